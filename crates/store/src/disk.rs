//! The disk as the store uses it: all file operations of the log go through here.
//!
//! A trait, so that tests can replace the disk by one that fails, tears writes and loses data.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::{FileError, Holder};

pub trait Disk: fmt::Debug + Send + Sync {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, replacing whatever has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Copies the mode of a file and, if permitted, its owner to another file.
    fn copy_mode(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (_, _) = (from, to);
        Ok(())
    }
    /// Returns whether two paths refer to the same file.
    fn is_same(&self, one: &Path, other: &Path) -> bool {
        one == other
    }
    /// Returns the canonical path, with all links resolved.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Creates one directory.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Waits until the entries of a directory are on disk.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Lists a directory, in no particular order.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
    fn metadata(&self, path: &Path) -> io::Result<Metadata>;
}

/// An open file.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Reads at `offset`; 0 bytes mean the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Appends with one system call; may write fewer bytes than given.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Writes at `offset`; not for files opened for appending.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Waits until the content of the file is on disk.
    fn sync_data(&self) -> io::Result<()>;
    fn metadata(&self) -> io::Result<Metadata>;
    /// Takes the exclusive lock of the file, which is held until the file is closed; false if another process
    /// has it.
    fn try_lock(&self) -> io::Result<bool>;
    /// Returns which process holds the lock, if the system can tell.
    fn holder(&self) -> Option<Holder> {
        None
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Read an existing file.
    Read,
    /// Read and write anywhere in an existing file.
    Edit,
    /// Append to an existing file.
    Append,
    /// Append to a file, creating it if necessary.
    AppendOrCreate,
    /// Append to a new file; it must not exist yet.
    Create,
    /// For locking: read and write, creating it if necessary.
    Lock,
}

/// A directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name; names that are not Unicode are not ours and not listed.
    pub name: String,
    /// The type of the file; for a link, of its target.
    pub kind: EntryKind,
    /// Whether it is a link.
    pub linked: bool,
}

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    Folder,
    /// A pipe, a socket, a device, or a dangling link.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its length in bytes.
    pub length: u64,
    /// The number of hard links; zero once it was removed.
    pub links: u64,
    pub is_dir: bool,
}

/// The disk of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile(File);

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        match mode {
            Mode::Read => options.read(true),
            Mode::Edit => options.read(true).write(true),
            Mode::Append => options.read(true).append(true),
            Mode::AppendOrCreate => options.read(true).append(true).create(true),
            Mode::Create => options.read(true).append(true).create_new(true),
            Mode::Lock => options.read(true).write(true).create(true).truncate(false),
        };
        private(&mut options);
        Ok(Arc::new(RealFile(open_file(&mut options, path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn copy_mode(&self, from: &Path, to: &Path) -> io::Result<()> {
        let metadata = fs::metadata(from)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::{MetadataExt as _, chown};
            // Only root may change the owner; for others the file stays theirs.
            let _ = chown(to, Some(metadata.uid()), Some(metadata.gid()));
        }
        fs::set_permissions(to, metadata.permissions())
    }

    #[cfg(unix)]
    fn is_same(&self, one: &Path, other: &Path) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        let number = |path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
        matches!((number(one), number(other)), (Ok(one), Ok(other)) if one == other)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let mut found = entry.file_type()?;
            let linked = found.is_symlink();
            let mut kind = EntryKind::Other;
            if linked && let Ok(metadata) = fs::metadata(entry.path()) {
                found = metadata.file_type();
            }
            if found.is_file() {
                kind = EntryKind::File;
            } else if found.is_dir() {
                kind = EntryKind::Folder;
            }
            entries.push(Entry { name, kind, linked });
        }
        Ok(entries)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        Ok(summary(&fs::metadata(path)?))
    }
}

impl DiskFile for RealFile {
    #[cfg(unix)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.0, buffer, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(&self.0, buffer, offset)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.0).write(bytes)
    }

    #[cfg(unix)]
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::write_at(&self.0, bytes, offset)
    }

    #[cfg(windows)]
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(&self.0, bytes, offset)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn metadata(&self) -> io::Result<Metadata> {
        Ok(summary(&self.0.metadata()?))
    }

    // On Unix this is flock(LOCK_EX | LOCK_NB), which other programs use on these files.
    fn try_lock(&self) -> io::Result<bool> {
        match self.0.try_lock() {
            Ok(()) => Ok(true),
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn holder(&self) -> Option<Holder> {
        files::holder(&self.0)
    }
}

/// Opens a regular file. Anything else of that name is refused: opening a pipe would block until its other
/// end is opened.
pub(crate) fn open_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    match files::open_with(options, path) {
        Err(FileError::NotAFile(_)) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file; move it away"))
        }
        opened => Ok(opened?),
    }
}

/// New files are readable by their owner only: threads are private.
fn private(options: &mut OpenOptions) {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    #[cfg(not(unix))]
    let _ = options;
}

fn summary(metadata: &fs::Metadata) -> Metadata {
    #[cfg(unix)]
    let links = std::os::unix::fs::MetadataExt::nlink(metadata);
    #[cfg(not(unix))]
    let links = 1;
    Metadata { length: metadata.len(), links, is_dir: metadata.is_dir() }
}

/// Reads `length` bytes at `offset`, with zeros for unreadable blocks; fewer if the file ends before.
pub(crate) fn read_range(file: &dyn DiskFile, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match read_past_errors(file, &mut bytes[filled..], offset + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Reads at `offset` like a file, but returns zeros for unreadable blocks: no line contains any, so they show
/// up as damage, and everything around them can be read.
pub(crate) fn read_past_errors(
    file: &dyn DiskFile,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let mut length = buffer.len();
    let mut tries = BLOCK_TRIES;
    loop {
        let error = match file.read_at(&mut buffer[..length], offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if is_bad_block(&error) => error,
            done => return done,
        };
        // Up to the end of this block, to skip no more than necessary.
        let to_end = BLOCK_BYTES - offset % BLOCK_BYTES;
        let block = usize::try_from(to_end).unwrap_or(length);
        length = length.min(block);
        if tries > 0 {
            tries -= 1;
            continue;
        }
        let left = file.metadata()?.length.saturating_sub(offset);
        let length = length.min(usize::try_from(left).unwrap_or(length));
        if length == 0 {
            return Err(error);
        }
        buffer[..length].fill(0);
        return Ok(length);
    }
}

#[cfg(unix)]
fn is_bad_block(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

#[cfg(not(unix))]
fn is_bad_block(_: &io::Error) -> bool {
    false
}

/// The unit in which a disk reads and fails to read.
const BLOCK_BYTES: u64 = 4096;
/// How often a block is retried.
const BLOCK_TRIES: usize = 2;

/// Appends all of `bytes`.
pub(crate) fn append_all(file: &dyn DiskFile, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.append(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `bytes` at `offset`.
pub(crate) fn write_all_at(
    file: &dyn DiskFile,
    mut bytes: &[u8],
    mut offset: u64,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Creates `path` and its missing parents.
pub(crate) fn create_dirs(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut at = path;
    while let Err(error) = disk.metadata(at) {
        if error.kind() != io::ErrorKind::NotFound {
            return Err(error);
        }
        missing.push(at);
        let Some(above) = at.parent().filter(|above| !above.as_os_str().is_empty()) else { break };
        at = above;
    }
    for folder in missing.into_iter().rev() {
        match disk.create_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => done?,
        }
    }
    Ok(())
}

/// Returns `folder` and its parents up to `home`. Their creator may have died before they were on disk, so a
/// new file syncs them all.
pub(crate) fn up_to_home(home: &Path, folder: &Path) -> Vec<PathBuf> {
    let inside = |folder: &&Path| folder.starts_with(home);
    folder.ancestors().take_while(inside).map(Path::to_owned).collect()
}
