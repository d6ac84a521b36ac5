//! The log file of one thread, open for writing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use log::{Record, SessionMeta};
use protocol::id::ThreadId;

use crate::disk::{Disk, DiskFile, Mode, create_dirs, up_to_home};
use crate::end::{End, EndNote};
use crate::line::encode;
use crate::lock::{Lock, Taken, branching};
use crate::store::{FileStore, StoreError};

/// The log of one thread, open for writing, with exclusive access.
#[derive(Debug)]
pub struct FileLog {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// What to do before the first lines; none once it was done.
    pending: Option<Box<Pending>>,
    lock: Option<Lock>,
    shared: Arc<Shared>,
    /// The ordinal of the next line; none in files of the older format.
    next: Option<u64>,
    /// The length of the file, up to the last complete line.
    length: u64,
    /// Whether there may be incomplete data after that.
    uncut: bool,
    /// The timestamp of the last line; later lines are never earlier.
    latest: Timestamp,
}

/// A file that is created with its first lines.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) home: PathBuf,
    pub(crate) id: ThreadId,
    pub(crate) meta: SessionMeta,
    /// Lines that are copied after the head.
    pub(crate) copied: Vec<u8>,
    /// The timestamp of the last line before; later lines are never earlier.
    pub(crate) latest: Timestamp,
}

#[derive(Debug)]
pub(crate) struct OpenLogFile {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) lock: Option<Lock>,
    pub(crate) length: u64,
    pub(crate) latest: Timestamp,
    /// Directories with new entries.
    pub(crate) folders: Vec<PathBuf>,
}

/// Makes appended lines durable. Can be used from another thread while the log is written.
#[derive(Clone, Debug)]
pub struct Syncer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Mutex<Option<Arc<dyn DiskFile>>>,
    /// Directories whose entries are not on disk yet.
    folders: Mutex<Vec<PathBuf>>,
    /// Where the last appended line ends; none before the first one.
    end: Mutex<Option<End>>,
    /// Where the last synced line ends.
    note: Mutex<EndNote>,
    broken: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
#[error("the log {place} could not be written: {}", kind.describe())]
pub struct WriteError {
    /// The file, or what stands for one.
    pub place: String,
    pub kind: WriteErrorKind,
    pub source: io::Error,
}

/// Kinds of write errors, by what can be done about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteErrorKind {
    /// The disk is full; the write can be retried.
    Full,
    /// The location is not writable.
    ReadOnly,
    /// The file was removed.
    Gone,
    /// The thread that this one continues was deleted.
    Orphaned,
    /// The disk lost data that it had accepted; nothing is written to this log any more.
    Broken,
    Other,
}

impl WriteErrorKind {
    fn describe(self) -> &'static str {
        match self {
            Self::Full => "the disk is full; free some space, then resume the thread",
            Self::ReadOnly => {
                "it is read-only; make it writable, or set HEDDLE_HOME to a writable directory"
            }
            Self::Orphaned => "the thread that it continues was deleted; start a new thread",
            Self::Gone => {
                "its file was removed or cannot be created; check HEDDLE_HOME, then start a new thread"
            }
            Self::Broken => {
                "the disk lost written lines; check it, then resume the thread to see what remains"
            }
            Self::Other => "the disk reported an error",
        }
    }
}

impl WriteError {
    pub(crate) fn new(path: &Path, source: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let kind = match source.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge | Kind::WriteZero => {
                WriteErrorKind::Full
            }
            Kind::ReadOnlyFilesystem | Kind::PermissionDenied => WriteErrorKind::ReadOnly,
            Kind::NotFound | Kind::NotADirectory | Kind::StaleNetworkFileHandle => {
                WriteErrorKind::Gone
            }
            _ => WriteErrorKind::Other,
        };
        Self { place: path.display().to_string(), kind, source }
    }

    fn of_kind(path: &Path, kind: WriteErrorKind, source: io::Error) -> Self {
        Self { place: path.display().to_string(), kind, source }
    }
}

impl FileLog {
    /// Creates a log whose file does not exist yet.
    pub(crate) fn pending(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        pending: Pending,
        next: Option<u64>,
    ) -> Self {
        let shared = Shared::new(&disk, &pending.home, &path, None, Vec::new());
        let latest = pending.latest;
        Self {
            disk,
            path,
            pending: Some(Box::new(pending)),
            lock: None,
            shared,
            next,
            length: 0,
            uncut: false,
            latest,
        }
    }

    /// Creates a log that continues an existing file.
    pub(crate) fn opened(
        disk: Arc<dyn Disk>,
        home: &Path,
        path: PathBuf,
        opened: OpenLogFile,
        next: Option<u64>,
    ) -> Self {
        let OpenLogFile { file, lock, length, latest, folders } = opened;
        let shared = Shared::new(&disk, home, &path, Some(file), folders);
        Self { disk, path, pending: None, lock, shared, next, length, uncut: false, latest }
    }

    /// Appends lines in one write. They are in the file when this returns, so they survive our process; they
    /// are on disk once a [`Syncer`] that was called after this has returned. If this fails, none of them is
    /// in the file.
    pub fn append(&mut self, records: &[Record]) -> Result<(), WriteError> {
        if self.shared.broken.load(Ordering::Acquire) {
            return Err(self.shared.refusal());
        }
        if records.is_empty() && self.pending.is_none() {
            return Ok(());
        }
        let latest = self.latest.max(Timestamp::now());
        let timestamp = format_time(latest);
        let mut next = self.next;
        let mut bytes = Vec::new();
        let mut put = |record: &Record, bytes: &mut Vec<u8>| {
            encode(&timestamp, next, record, bytes);
            next = next.map(|next| next.saturating_add(1));
        };
        if let Some(pending) = &self.pending {
            put(&Record::SessionMeta(Box::new(pending.meta.clone())), &mut bytes);
            bytes.extend_from_slice(&pending.copied);
        }
        let _branching = self.hold_base()?;
        let file = self.file().map_err(|source| WriteError::new(&self.path, source))?;
        let mut length = self.length;
        let written = records.iter().try_for_each(|record| {
            // Long lines are not batched; the last one stays, as it is needed below.
            if bytes.len() > GATHERED_BYTES_MAX {
                self.write(&*file, &bytes)?;
                length += bytes.len() as u64;
                bytes.clear();
            }
            put(record, &mut bytes);
            Ok(())
        });
        if let Err(source) = written.and_then(|()| self.write(&*file, &bytes)) {
            self.undo(&*file);
            return Err(WriteError::new(&self.path, source));
        }
        self.pending = None;
        self.length = length + bytes.len() as u64;
        (self.next, self.latest) = (next, latest);
        let last = bytes.trim_ascii_end();
        let last = &last[memchr::memrchr(b'\n', last).map_or(0, |end| end + 1)..];
        let last = Some(crc32c::crc32c(last));
        *lock(&self.shared.end) = Some(End { bytes: self.length, next, last });
        Ok(())
    }

    /// Returns the handle that makes appended lines durable.
    pub fn syncer(&self) -> Syncer {
        Syncer { shared: Arc::clone(&self.shared) }
    }

    /// Returns whether the lines of this file have no ordinals, as older programs wrote them.
    pub fn is_legacy(&self) -> bool {
        self.next.is_none()
    }

    /// Returns its path, also if it is not created yet.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Releases the thread.
    pub fn close(self) {}

    /// Makes sure that the continued thread exists, and stays until the returned value is dropped.
    fn hold_base(&self) -> Result<Option<Arc<dyn DiskFile>>, WriteError> {
        let pending = self.pending.as_ref();
        let Some((pending, base)) =
            pending.and_then(|pending| Some((pending, pending.meta.history_base.as_ref()?)))
        else {
            return Ok(None);
        };
        let lock = branching(&*self.disk, &pending.home)
            .map_err(|source| WriteError::new(&self.path, source))?;
        let store = FileStore::with_disk(&pending.home, Arc::clone(&self.disk));
        match store.files(base.thread_id) {
            Ok(Some(_)) => Ok(Some(lock)),
            Ok(None) => {
                let gone = StoreError::NotFound(base.thread_id);
                let source = io::Error::new(io::ErrorKind::NotFound, gone);
                Err(WriteError::of_kind(&self.path, WriteErrorKind::Orphaned, source))
            }
            Err(StoreError::Io { source, .. }) => Err(WriteError::new(&self.path, source)),
            Err(error) => Err(WriteError::new(&self.path, io::Error::other(error))),
        }
    }

    /// Returns the file, and creates it on first use.
    fn file(&mut self) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = &*lock(&self.shared.file) {
            return Ok(Arc::clone(file));
        }
        let pending = self.pending.as_ref().expect("a log without a file is yet to get one");
        if self.lock.is_none() {
            match Lock::take(&self.disk, &pending.home, pending.id)? {
                Taken::Ours(lock) => self.lock = Some(lock),
                Taken::Held(holder) => {
                    return Err(io::Error::new(
                        io::ErrorKind::WouldBlock,
                        format!("the thread is in use by {holder}"),
                    ));
                }
            }
        }
        let folder = self.path.parent().unwrap_or(Path::new("")).to_owned();
        create_dirs(&*self.disk, &folder)?;
        let folders = up_to_home(&pending.home, &folder);
        let file = self.disk.open(&self.path, Mode::Create)?;
        *lock(&self.shared.folders) = folders;
        *lock(&self.shared.file) = Some(Arc::clone(&file));
        Ok(file)
    }

    fn write(&mut self, file: &dyn DiskFile, bytes: &[u8]) -> io::Result<()> {
        if self.uncut {
            file.truncate(self.length)?;
            self.uncut = false;
        }
        let mut written = 0;
        while written < bytes.len() {
            match file.append(&bytes[written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // One cheap call; otherwise a whole turn could be written to a deleted file.
        if file.metadata()?.links == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(())
    }

    /// Removes what a failed write has left.
    fn undo(&mut self, file: &dyn DiskFile) {
        if self.pending.is_some() {
            // A file without a head would look like a damaged thread.
            *lock(&self.shared.file) = None;
            let _ = file.truncate(0);
            let _ = self.disk.remove(&self.path);
        } else {
            self.uncut = file.truncate(self.length).is_err();
        }
    }
}

/// Most bytes of lines that are written together.
const GATHERED_BYTES_MAX: usize = 1024 * 1024;

impl Shared {
    fn new(
        disk: &Arc<dyn Disk>,
        home: &Path,
        path: &Path,
        file: Option<Arc<dyn DiskFile>>,
        folders: Vec<PathBuf>,
    ) -> Arc<Self> {
        Arc::new(Self {
            disk: Arc::clone(disk),
            path: path.to_owned(),
            file: Mutex::new(file),
            folders: Mutex::new(folders),
            end: Mutex::new(None),
            note: Mutex::new(EndNote::new(home, path)),
            broken: AtomicBool::new(false),
        })
    }

    fn refusal(&self) -> WriteError {
        let source = io::Error::other("an earlier line may be lost");
        WriteError::of_kind(&self.path, WriteErrorKind::Broken, source)
    }

    fn sync(&self) -> Result<(), WriteError> {
        if self.broken.load(Ordering::Acquire) {
            return Err(self.refusal());
        }
        let Some(file) = lock(&self.file).clone() else { return Ok(()) };
        self.sync_file(&*file).map_err(|source| {
            // The kernel drops what it could not write: a second sync would report success.
            self.broken.store(true, Ordering::Release);
            let mut error = WriteError::new(&self.path, source);
            if error.kind != WriteErrorKind::Gone {
                error.kind = WriteErrorKind::Broken;
            }
            error
        })
    }

    fn sync_file(&self, file: &dyn DiskFile) -> io::Result<()> {
        // Before the sync: lines appended meanwhile may not be on disk after it.
        let end = *lock(&self.end);
        file.sync_data()?;
        if file.metadata()?.links == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut folders = lock(&self.folders);
        for folder in folders.iter() {
            self.disk.sync_dir(folder)?;
        }
        folders.clear();
        if let Some(end) = end {
            lock(&self.note).write(&*self.disk, end);
        }
        Ok(())
    }
}

impl Syncer {
    /// Waits until everything that was appended before is on disk. Once this has failed, it always
    /// does, and nothing can be appended any more.
    pub fn sync(&self) -> Result<(), WriteError> {
        self.shared.sync()
    }
}

/// Formats a time as in logs: RFC 3339 in UTC, with milliseconds.
pub(crate) fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// A poisoned lock is fine: no operation under it can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
