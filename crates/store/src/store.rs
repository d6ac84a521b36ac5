//! The file store: creates, opens, reads and forks the threads of a home.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use log::{Line, PAGINATED, SessionMeta};
use protocol::id::ThreadId;

use crate::chain::Chain;
use crate::disk::{Disk, RealDisk};
use crate::files::{self, Name};
use crate::log::{FileLog, Pending, WriteError, format_time};
use crate::part::{Given, Outcome};
use crate::read::{DAMAGE_MAX, Damage, ReadReport};
use crate::side::Known;

/// Stores threads in files below a home directory.
#[derive(Clone, Debug)]
pub struct FileStore {
    pub(crate) home: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    /// Held while the index is asked.
    pub(crate) asking: Arc<tokio::sync::Mutex<()>>,
}

/// An existing thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its newest file, if the store uses files.
    pub path: Option<PathBuf>,
    pub archived: bool,
    /// The name that the user gave it.
    pub name: Option<String>,
}

/// A thread to be created.
#[derive(Clone, Debug)]
pub struct NewThread {
    pub id: ThreadId,
    /// The head of its file.
    pub meta: SessionMeta,
}

/// A thread could not be found or read at all.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("there is no thread {0} in this home")]
    NotFound(ThreadId),
    /// A file of a thread is in two places.
    #[error(
        "{} has the same name as {}, which takes precedence; archive the thread if they are identical, or \
         move the unwanted one away",
        path.display(),
        other.display()
    )]
    Twice {
        /// The one that is ignored.
        path: PathBuf,
        /// The one that counts.
        other: PathBuf,
    },
    /// Something other than a regular file has the name of a thread's file.
    #[error(
        "{} is named like a thread file but is a pipe, a device, a directory or a dangling link; move it \
         away, and restore the file if you have it",
        path.display()
    )]
    NotAFile {
        /// The pipe, device, directory or link.
        path: PathBuf,
    },
    /// A disk operation failed.
    #[error("cannot access {}{}", path.display(), advice(source))]
    Io { path: PathBuf, source: std::io::Error },
    /// A store that is not made of files failed.
    #[error("the threads could not be reached")]
    Backend(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A thread could not be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It could not be found or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another process has it open.
    #[error("the thread {id} is in use by {holder}; try again later, or continue in a fork of it")]
    Held {
        id: ThreadId,
        /// A description of the process.
        holder: String,
    },
    /// It was read, all of its lines were passed on, but it cannot be continued.
    #[error("the thread {id} can be read but not continued")]
    Unwritable {
        id: ThreadId,
        /// What was found while reading it.
        report: Box<ReadReport>,
        source: WriteError,
    },
    /// Its lines have no ordinals, so that no position in it can be named.
    #[error("the thread {0} has the old log format and cannot be reverted; fork it instead")]
    Legacy(ThreadId),
}

/// Returns advice for a disk error, to append to the message; may be empty.
pub fn advice(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind as Kind;
    match error.kind() {
        Kind::ReadOnlyFilesystem => {
            "; make it writable, or set HEDDLE_HOME to a writable directory"
        }
        Kind::PermissionDenied => "; fix its permissions, or set HEDDLE_HOME to another directory",
        Kind::StorageFull | Kind::QuotaExceeded => "; free some space, and try again",
        _ => "",
    }
}

impl StoreError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

impl FileStore {
    /// Returns the threads below `home`. Accesses nothing yet.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        Self::with_disk(home, Arc::new(RealDisk))
    }

    /// Returns the threads below `home` on another disk.
    pub fn with_disk(home: impl Into<PathBuf>, disk: Arc<dyn Disk>) -> Self {
        Self { home: home.into(), disk, asking: Arc::default() }
    }

    /// Reads a thread, with what it continues, and passes every line to `sink`. The last head among them is
    /// the thread's own.
    pub fn read(
        &self,
        id: ThreadId,
        sink: &mut dyn FnMut(&Line<'_>),
    ) -> Result<ReadReport, StoreError> {
        let files = self.files(id)?.ok_or(StoreError::NotFound(id))?;
        let chain = self.chain(&files)?;
        Ok(self.read_chain(&chain, &mut |_, given| sink(given.line))?.0)
    }

    /// Creates a thread. Its file is created with the first lines.
    pub fn create(&self, new: NewThread) -> Result<FileLog, OpenError> {
        let NewThread { id, mut meta } = new;
        meta.id.get_or_insert(id);
        meta.history_mode.get_or_insert_with(|| PAGINATED.to_owned());
        let next = meta.history_base.as_ref().map_or(0, |base| base.end_ordinal_exclusive);
        let next = (meta.history_mode.as_deref() == Some(PAGINATED)).then_some(next);
        let copied = Vec::new();
        let latest = jiff::Timestamp::UNIX_EPOCH;
        Ok(self.create_with(Pending { home: self.home.clone(), id, meta, copied, latest }, next))
    }

    pub(crate) fn create_with(&self, mut pending: Pending, next: Option<u64>) -> FileLog {
        if pending.meta.timestamp.is_empty() {
            pending.meta.timestamp = format_time(jiff::Timestamp::now());
        }
        let stamp = files::stamp(&jiff::Zoned::now());
        let name = Name { id: pending.id, segment: None, stamp };
        let path = self.sessions().join(name.day()).join(name.file_name());
        FileLog::pending(Arc::clone(&self.disk), path, pending, next)
    }

    pub(crate) fn sessions(&self) -> PathBuf {
        self.home.join("sessions")
    }

    pub(crate) fn archive_folder(&self) -> PathBuf {
        self.home.join("archived_sessions")
    }

    /// Passes on every line of a chain, each with the number of its part. Also returns the outcome of the
    /// last part.
    pub(crate) fn read_chain(
        &self,
        chain: &Chain,
        sink: &mut dyn FnMut(usize, &Given<'_>),
    ) -> Result<(ReadReport, Outcome), StoreError> {
        let mut report = ReadReport { damage: chain.damage.clone(), ..ReadReport::default() };
        let mut last = Outcome::default();
        let mut turn = None;
        for (index, part) in chain.parts.iter().enumerate() {
            let io = |source| StoreError::io(&part.path, source);
            let outcome = part.read(&mut turn, &mut |given| sink(index, given)).map_err(io)?;
            report.lines += outcome.lines;
            report.bytes += outcome.bytes;
            let is_gap = |damage: &Damage| damage.what.is_missing();
            // A repair that gave lines up has reported them.
            let known = match outcome.damage.iter().any(is_gap) {
                true => Known::read(&*self.disk, &part.path).map_err(io)?,
                false => Known::default(),
            };
            for damage in &outcome.damage {
                let gave_up = damage.missing.as_ref().is_some_and(|gap| known.gave_up(gap));
                if is_gap(damage) && gave_up {
                    continue;
                }
                if report.damage.len() < DAMAGE_MAX {
                    report.damage.push(damage.clone());
                } else {
                    report.damage_more += 1;
                }
            }
            last = outcome;
        }
        Ok((report, last))
    }
}
