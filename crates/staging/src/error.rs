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
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: FileError,
    },
    /// Models do not take what it contains: convert it.
    #[error("{name} cannot be attached: {why}")]
    NotSupported {
        /// Its name.
        name: String,
        /// What it is.
        why: NotSupported,
    },
    /// It is larger than its kind may be: make it smaller, or let the model read it with its tools.
    #[error(
        "{name} cannot be attached: it has {bytes} bytes, and {} of at most {bytes_max} bytes can be attached; make it \
         smaller, or let the model read parts of it with its tools",
        plural(*kind)
    )]
    TooLarge {
        /// Its name.
        name: String,
        /// What it contains.
        kind: FileKind,
        /// Its size.
        bytes: u64,
        /// The limit for its kind.
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
    Io {
        /// Where it failed.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// Something is in the way that heddle has not put there.
    #[error("the staging area cannot be used: {} is {what}; move it away, and heddle makes its own", path.display())]
    Obstructed {
        /// What is in the way.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// Another process holds its lock.
    #[error("the staging area {} is locked: {reason}", path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
        /// Who has it.
        reason: LockError,
    },
}

/// Why the content of a reference cannot be read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It is not in this home: attach it again.
    #[error("its content is not in the staging area of this home; attach it again")]
    Missing,
    /// It is not what was staged: attach it again, which replaces it.
    #[error("its content in the staging area is damaged ({what}); attach it again")]
    Damaged {
        /// What is wrong with it.
        what: String,
    },
    /// It is larger than the caller accepts.
    #[error("it has {bytes} bytes, and at most {bytes_max} are sent")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// A disk operation failed.
    #[error("its content cannot be read from the staging area: {0}")]
    Io(#[from] io::Error),
}
