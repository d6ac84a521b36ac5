//! Why a file cannot be staged, read or cleaned up.

use std::io;
use std::path::PathBuf;

use files::{FileError, LockError};
use protocol::file::FileKind;

use crate::kind::NotSupported;

/// Why a file cannot be staged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// The file cannot be read: give another path.
    #[error("{} cannot be attached: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: FileError },
    /// Models do not accept files of this kind: convert it.
    #[error("{name} cannot be attached: {why}")]
    NotSupported { name: String, why: NotSupported },
    /// It is larger than its kind may be: make it smaller, or let the model read it with its tools.
    #[error(
        "{name} cannot be attached: it has {bytes} bytes, and {} of at most {bytes_max} bytes can be attached; make it \
         smaller, or let the model read parts of it with its tools",
        plural(*kind)
    )]
    TooLarge {
        name: String,
        kind: FileKind,
        /// Size in bytes.
        bytes: u64,
        /// Largest size of its kind, in bytes.
        bytes_max: u64,
    },
    /// The staging area cannot be used.
    #[error(transparent)]
    Area(#[from] AreaError),
}

fn plural(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Pdf => "PDFs",
        FileKind::Text => "text files",
        FileKind::Png | FileKind::Jpeg | FileKind::Gif | FileKind::WebP => "images",
    }
}

/// Why the staging area cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AreaError {
    /// A disk operation failed.
    #[error("the staging area {} cannot be used: {reason}; make room, or fix its permissions", path.display())]
    Io { path: PathBuf, reason: io::Error },
    /// A file or directory that heddle has not created is in the way: move it.
    #[error("the staging area cannot be used: {} is {what}; move it away, and heddle makes its own", path.display())]
    Obstructed { path: PathBuf, what: String },
    /// Another process holds the lock of the area.
    #[error("the staging area {} is locked: {reason}", path.display())]
    Locked { path: PathBuf, reason: LockError },
}

/// Why the content of a reference cannot be read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The area has no such content: attach the file again.
    #[error("its content is not in the staging area of this home; attach it again")]
    Missing,
    /// The content is not the one that was staged: attach the file again, which replaces it.
    #[error("its content in the staging area is damaged ({what}); attach it again")]
    Damaged { what: String },
    /// It is larger than the caller accepts.
    #[error("it has {bytes} bytes, and at most {bytes_max} are sent")]
    TooLarge {
        /// Size in bytes.
        bytes: u64,
        /// Largest size that the caller accepts, in bytes.
        bytes_max: u64,
    },
    /// A disk operation failed.
    #[error("its content cannot be read from the staging area: {0}")]
    Io(#[from] io::Error),
}
