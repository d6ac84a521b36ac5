//! [`Area`]: stages contents, reads them back, and lists them.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use files::FileError;
use protocol::file::{Digest, FileKind, FileReference};
use tempfile::NamedTempFile;

use crate::content::{Limits, Summary, sha256};
use crate::error::{AreaError, ReadError, StageError};
use crate::kind::{NotSupported, Sniffer};

/// The directory of the area, in the home.
pub const FOLDER: &str = "staged-files";
/// Largest file that is read into memory to stage it, in bytes. Larger files are copied first.
pub const SMALL_BYTES_MAX: u64 = 1 << 20;
/// Longest name of a file, in bytes: the limit of file systems.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Beginning of the names of temporary files.
pub(crate) const TEMPORARY: &str = ".tmp-";
const LOCK: &str = ".lock";
/// How long to wait for the lock of the area, which is held for a few system calls only.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
/// Age of an entry's time of last use beyond which a use renews it.
const RENEWED_AFTER: Duration = Duration::from_secs(3600);

/// The staging area of a home. Its methods block.
#[derive(Clone, Debug)]
pub struct Area {
    folder: PathBuf,
}

/// A content in the area, named by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// SHA-256 of the content.
    pub sha256: Digest,
    /// Kind of the content, from the ending of its name.
    pub kind: FileKind,
    /// Size in bytes.
    pub bytes: u64,
    /// When it was last staged, or last sent in a request; accurate to an hour.
    pub used: SystemTime,
}

/// A staged file. While this exists, clean-up does not remove its content.
#[derive(Debug)]
pub struct Staged {
    file: FileReference,
    reused: bool,
    area: Area,
    /// The entry, with a shared lock on it.
    lease: File,
    /// The time of last use that the entry had when this was created; another use changes the entry.
    used: SystemTime,
    /// Whether dropping this removes the content; `keep` resets it.
    temporary: AtomicBool,
}

impl Area {
    /// Creates the area of a home, without accessing the disk.
    pub fn new(home: &Path) -> Self {
        Self { folder: home.join(FOLDER) }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path at which the content of a reference is, if it is staged.
    pub fn path(&self, sha256: Digest, kind: FileKind) -> PathBuf {
        self.folder.join(format!("{sha256}.{}", extension(kind)))
    }

    /// Stages a file: copies it into the area, unless the area has the same content already.
    pub fn stage(&self, path: &Path, limits: &Limits) -> Result<Staged, StageError> {
        let unreadable = |reason| StageError::Unreadable { path: path.to_owned(), reason };
        let source = files::open(path).map_err(unreadable)?;
        let bytes = source.metadata().map_err(|error| unreadable(error.into()))?.len();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if bytes <= SMALL_BYTES_MAX {
            match files::read_opened(&source, SMALL_BYTES_MAX) {
                Ok(content) => return self.stage_bytes(&name, &content, limits),
                // The file has just grown, so it is copied like a large one.
                Err(FileError::TooLarge { .. }) => {}
                Err(error) => return Err(unreadable(error)),
            }
        }
        let name = file_name(&name);
        let mut sniffer = Sniffer::default();
        let mut head = vec![0; HEAD_BYTES];
        (&source).read_exact(&mut head).map_err(|error| unreadable(error.into()))?;
        sniffer.push(&head);
        // A kind that is refused and shows in the beginning is refused before anything is copied.
        let kind = sniffer.early().unwrap_or(Ok(FileKind::Text));
        fits(&name, kind, bytes, limits)?;
        let check = |summary: &Summary| checked(&name, summary, limits);
        let read = |file: &File| Summary::of_file(file, limits.largest());
        if self.has_size(bytes)? {
            // The content is probably staged already: then nothing is written.
            let summary = read(&source).map_err(|error| unreadable(error.into()))?;
            let file = check(&summary)?;
            if let Some(staged) = self.reuse(&file)? {
                return Ok(staged);
            }
        }
        let temporary = self.temporary()?;
        let failed = |error| self.failed(temporary.path(), error);
        (&source).rewind().map_err(|error| unreadable(error.into()))?;
        let mut within = (&source).take(limits.largest().saturating_add(1));
        // The kernel copies, where it can.
        io::copy(&mut within, &mut temporary.as_file()).map_err(failed)?;
        // The copy is hashed, since the file may change meanwhile. The disk writes at the same time.
        let summary = thread::scope(|scope| {
            let sync = scope.spawn(|| temporary.as_file().sync_data());
            let summary = read(temporary.as_file());
            sync.join().map_err(|_| io::Error::other("the sync panicked"))??;
            summary
        });
        let file = check(&summary.map_err(failed)?)?;
        self.publish(temporary, file)
    }

    /// Stages a content that is in memory.
    pub fn stage_bytes(
        &self,
        name: &str,
        content: &[u8],
        limits: &Limits,
    ) -> Result<Staged, StageError> {
        let file = checked(&file_name(name), &Summary::of_bytes(content), limits)?;
        if let Some(staged) = self.reuse(&file)? {
            return Ok(staged);
        }
        let temporary = self.temporary()?;
        let written = temporary.as_file().write_all(content);
        let written = written.and_then(|()| temporary.as_file().sync_data());
        written.map_err(|error| self.failed(temporary.path(), error))?;
        self.publish(temporary, file)
    }

    /// Reads the content of a reference and checks it against the digest.
    pub fn read(&self, file: &FileReference, bytes_max: u64) -> Result<Vec<u8>, ReadError> {
        if file.bytes > bytes_max {
            return Err(ReadError::TooLarge { bytes: file.bytes, bytes_max });
        }
        let damaged = |what: String| ReadError::Damaged { what };
        let entry = match self.open_entry(file)? {
            Found::Nothing => return Err(ReadError::Missing),
            Found::Other(what) => return Err(damaged(what)),
            Found::Entry(entry) => entry,
        };
        let found = entry.metadata()?;
        if found.len() != file.bytes {
            return Err(damaged(format!("{} bytes instead of {}", found.len(), file.bytes)));
        }
        let content = files::read_opened(&entry, file.bytes).map_err(io::Error::from)?;
        if content.len() as u64 != file.bytes || sha256(&content) != file.sha256 {
            return Err(damaged("its digest does not match".to_owned()));
        }
        let age = found.modified()?.elapsed().unwrap_or_default();
        if age > RENEWED_AFTER {
            // A failure does not matter to the caller, who has the content.
            let _ = entry.set_modified(SystemTime::now());
        }
        Ok(content)
    }

    /// Lists the contents, sorted by digest. Other files in the directory are ignored.
    pub fn entries(&self) -> Result<Vec<Entry>, AreaError> {
        let mut entries = Vec::new();
        self.each(&mut |name, path| {
            let Some((sha256, kind)) = parse_name(name) else { return Ok(()) };
            match fs::symlink_metadata(path) {
                Ok(found) if found.is_file() => {
                    let (bytes, used) = (found.len(), found.modified()?);
                    entries.push(Entry { sha256, kind, bytes, used });
                }
                Ok(_) => {}
                // Another process has removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            Ok(())
        })?;
        entries.sort_by_key(|entry| entry.sha256);
        Ok(entries)
    }

    /// Calls `each` for every name in the directory.
    pub(crate) fn each(
        &self,
        each: &mut dyn FnMut(&str, &Path) -> io::Result<()>,
    ) -> Result<(), AreaError> {
        let listed = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            done => done.map_err(|error| self.failed(&self.folder, error))?,
        };
        for entry in listed {
            let entry = entry.map_err(|error| self.failed(&self.folder, error))?;
            let path = entry.path();
            if let Some(name) = entry.file_name().to_str() {
                each(name, &path).map_err(|error| self.failed(&path, error))?;
            }
        }
        Ok(())
    }

    /// Returns whether a content of this size is staged.
    fn has_size(&self, bytes: u64) -> Result<bool, AreaError> {
        let mut has = false;
        self.each(&mut |name, path| {
            has = has
                || (parse_name(name).is_some()
                    && fs::symlink_metadata(path).is_ok_and(|found| found.len() == bytes));
            Ok(())
        })?;
        Ok(has)
    }

    /// Takes a lease on a content if the area has it undamaged.
    fn reuse(&self, file: &FileReference) -> Result<Option<Staged>, AreaError> {
        let path = self.path(file.sha256, file.kind);
        // Most contents are new; then neither the lock nor the directory is needed yet.
        if fs::symlink_metadata(&path).is_err() {
            return Ok(None);
        }
        let lease = {
            let _held = self.lock()?;
            match self.lease(file).map_err(|error| self.failed(&path, error))? {
                Some(lease) => lease,
                None => return Ok(None),
            }
        };
        // With the lease, clean-up cannot remove the entry, so it is checked without the lock.
        let sound = is_sound(&lease, file).map_err(|error| self.failed(&path, error))?;
        match sound {
            true => self.reused(file.clone(), lease).map(Some),
            false => Ok(None),
        }
    }

    fn reused(&self, file: FileReference, lease: File) -> Result<Staged, AreaError> {
        let used = SystemTime::now();
        let touched = lease.set_modified(used);
        touched.map_err(|error| self.failed(&self.path(file.sha256, file.kind), error))?;
        Ok(Staged::new(self, file, true, lease, used))
    }

    /// Renames a temporary file to its entry, unless another process has staged the content meanwhile.
    fn publish(&self, temporary: NamedTempFile, file: FileReference) -> Result<Staged, StageError> {
        if let Some(staged) = self.reuse(&file)? {
            return Ok(staged);
        }
        let path = self.path(file.sha256, file.kind);
        let failed = |error| self.failed(&path, error);
        let held = self.lock()?;
        // Checked again under the lock: another process may have staged the content in between.
        if let Some(lease) = self.lease(&file).map_err(failed)?
            && is_sound(&lease, &file).map_err(failed)?
        {
            return Ok(self.reused(file, lease)?);
        }
        // Everything else is replaced. A directory with content is not removed, as heddle has not made it.
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir())
            && fs::remove_dir(&path).is_err()
        {
            return Err(obstructed(&path, "a directory that is not empty").into());
        }
        let lease = temporary.persist(&path).map_err(|error| failed(error.error))?;
        lease.unlock().and_then(|()| lease.lock_shared()).map_err(failed)?;
        drop(held);
        // If a power failure undoes the rename, the content is missing and can be staged again.
        #[cfg(unix)]
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        let used = lease.metadata().and_then(|found| found.modified()).map_err(failed)?;
        Ok(Staged::new(self, file, false, lease, used))
    }

    /// Opens an entry with a shared lock. The area must be locked.
    fn lease(&self, file: &FileReference) -> io::Result<Option<File>> {
        let Found::Entry(entry) = self.open_entry(file)? else { return Ok(None) };
        match entry.try_lock_shared() {
            Ok(()) => Ok(Some(entry)),
            // No heddle locks an entry exclusively while another one has the lock of the area.
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn open_entry(&self, file: &FileReference) -> io::Result<Found> {
        open_entry(&self.path(file.sha256, file.kind))
    }

    /// Creates a temporary file, which is locked.
    pub(crate) fn temporary(&self) -> Result<NamedTempFile, AreaError> {
        // Clean-up must not see it before it is locked.
        let _held = self.lock()?;
        let made = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(&self.folder);
        let locked = made.and_then(|made| made.as_file().lock().map(|()| made));
        locked.map_err(|error| self.failed(&self.folder, error))
    }

    /// Takes the lock under which entries are added and removed; creates the area if necessary.
    pub(crate) fn lock(&self) -> Result<File, AreaError> {
        let path = self.folder.join(LOCK);
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => obstructed(&self.folder, "no directory"),
            _ => self.failed(&self.folder, error),
        })?;
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        private(&mut options);
        let file = files::open_own(&mut options, &path).map_err(|error| match error {
            FileError::NotAFile(kind) => obstructed(&path, &kind.to_string()),
            error => self.failed(&path, error.into()),
        })?;
        files::lock_within(&file, LOCK_PATIENCE)
            .map_err(|reason| AreaError::Locked { path, reason })?;
        Ok(file)
    }

    pub(crate) fn failed(&self, path: &Path, source: io::Error) -> AreaError {
        AreaError::Io { path: path.to_owned(), reason: source }
    }
}

impl Staged {
    fn new(area: &Area, file: FileReference, reused: bool, lease: File, used: SystemTime) -> Self {
        let (area, temporary) = (area.clone(), AtomicBool::new(false));
        Self { file, reused, area, lease, used, temporary }
    }

    /// Returns the reference to the file.
    pub fn file(&self) -> &FileReference {
        &self.file
    }

    /// Returns whether the area had the content already.
    pub fn is_reused(&self) -> bool {
        self.reused
    }

    /// Returns the path of the content.
    pub fn path(&self) -> PathBuf {
        self.area.path(self.file.sha256, self.file.kind)
    }

    /// Removes the content when this is dropped, unless the area had it before, another process uses it, or
    /// [`Staged::keep`] was called.
    pub fn make_temporary(&self) {
        self.temporary.store(true, Ordering::SeqCst);
    }

    /// Leaves the content to clean-up: a log may refer to it.
    pub fn keep(&self) {
        self.temporary.store(false, Ordering::SeqCst);
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.reused && *self.temporary.get_mut() {
            // If that fails, clean-up removes it some time later.
            let _ = self.remove();
        }
    }
}

impl Staged {
    fn remove(&self) -> Result<(), AreaError> {
        let path = self.path();
        let failed = |error| self.area.failed(&path, error);
        let _held = self.area.lock()?;
        self.lease.unlock().map_err(failed)?;
        let Found::Entry(entry) = open_entry(&path).map_err(failed)? else { return Ok(()) };
        // If the time differs, another process has staged it since, and may have a log that refers to it by now.
        let used = entry.metadata().and_then(|found| found.modified()).map_err(failed)?;
        if used == self.used && entry.try_lock().is_ok() {
            fs::remove_file(&path).map_err(failed)?;
            self.area.remove_prepared(self.file.sha256);
        }
        Ok(())
    }
}

fn obstructed(path: &Path, what: &str) -> AreaError {
    AreaError::Obstructed { path: path.to_owned(), what: what.to_owned() }
}

/// What a path of an entry leads to.
pub(crate) enum Found {
    Nothing,
    /// Something other than a regular file, which is not used.
    Other(String),
    Entry(File),
}

/// Opens an entry, without following symbolic links.
pub(crate) fn open_entry(path: &Path) -> io::Result<Found> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
    }
    match options.open(path) {
        Ok(file) => Ok(match file.metadata()?.is_file() {
            true => Found::Entry(file),
            false => Found::Other("it is no regular file".to_owned()),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => match fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => Ok(Found::Other("it is no regular file".to_owned())),
            _ => Err(error),
        },
    }
}

/// Returns whether the content of an entry has the digest of its name.
fn is_sound(entry: &File, file: &FileReference) -> io::Result<bool> {
    if entry.metadata()?.len() != file.bytes {
        return Ok(false);
    }
    Ok(Summary::of_file(entry, file.bytes)?.sha256 == file.sha256)
}

/// Creates the reference to a content; an error if it is not supported or too large.
fn checked(name: &str, summary: &Summary, limits: &Limits) -> Result<FileReference, StageError> {
    let (sha256, bytes) = (summary.sha256, summary.bytes);
    let kind = fits(name, summary.kind, bytes, limits)?;
    Ok(FileReference { sha256, name: name.to_owned(), kind, bytes })
}

/// Returns the kind of a file, if it is supported and not larger than its limit.
fn fits(
    name: &str,
    kind: Result<FileKind, NotSupported>,
    bytes: u64,
    limits: &Limits,
) -> Result<FileKind, StageError> {
    let kind = kind.map_err(|why| StageError::NotSupported { name: name.to_owned(), why })?;
    let bytes_max = limits.bytes_max(kind);
    if bytes > bytes_max {
        return Err(StageError::TooLarge { name: name.to_owned(), kind, bytes, bytes_max });
    }
    Ok(kind)
}

/// Returns a name that fits into one line of a message and into a file system.
fn file_name(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut name: String = name.chars().map(|c| if c.is_control() { '_' } else { c }).collect();
    if name.len() > NAME_BYTES_MAX {
        // The ending is kept, as it shows the kind.
        let ending = name.rfind('.').filter(|at| name.len() - at <= ENDING_BYTES_MAX);
        let ending = ending.map_or(String::new(), |at| name[at..].to_owned());
        let stem = name.floor_char_boundary(NAME_BYTES_MAX - ending.len());
        name.truncate(stem);
        name.push_str(&ending);
    }
    match name.as_str() {
        "" | "." | ".." => "file".to_owned(),
        _ => name,
    }
}

/// Returns the ending of an entry's name, by which other programs recognise it.
fn extension(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Png => "png",
        FileKind::Jpeg => "jpg",
        FileKind::Gif => "gif",
        FileKind::WebP => "webp",
        FileKind::Pdf => "pdf",
        FileKind::Text => "txt",
    }
}

/// Reads the name of an entry.
pub(crate) fn parse_name(name: &str) -> Option<(Digest, FileKind)> {
    let (digest, ending) = name.split_once('.')?;
    let kind = match ending {
        "png" => FileKind::Png,
        "jpg" => FileKind::Jpeg,
        "gif" => FileKind::Gif,
        "webp" => FileKind::WebP,
        "pdf" => FileKind::Pdf,
        "txt" => FileKind::Text,
        _ => return None,
    };
    Some((digest.parse().ok()?, kind))
}

/// Makes files readable for their owner only.
fn private(options: &mut OpenOptions) {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    #[cfg(not(unix))]
    let _ = options;
}

/// Bytes of a file that are examined before it is copied.
const HEAD_BYTES: usize = 64 << 10;
/// Longest ending that a shortened name keeps.
const ENDING_BYTES_MAX: usize = 16;
