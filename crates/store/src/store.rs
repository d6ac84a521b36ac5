//! The threads of a home.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::id::ThreadId;
use protocol::rollout::{Line, Record, SessionMeta};

use crate::log::Log;
use crate::read::ReadReport;

/// The threads of a home.
#[derive(Clone, Debug)]
pub struct Store {
    home: PathBuf,
}

/// Where a thread is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its newest file.
    pub path: PathBuf,
    /// Whether it is archived.
    pub archived: bool,
}

/// A thread that is to be made.
#[derive(Clone, Debug)]
pub struct NewThread {
    /// Its id.
    pub id: ThreadId,
    /// The head of its file.
    pub meta: SessionMeta,
}

/// A thread could not be found or read at all.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such thread.
    #[error("there is no thread {0}; `heddle threads list --all` shows those that there are")]
    NotFound(ThreadId),
    /// The disk refused.
    #[error("{path}: {source}")]
    Io {
        /// What could not be used.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// A thread could not be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It could not be found or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Somebody else has it.
    #[error("the thread {id} is in use by {holder}")]
    Held {
        /// The thread.
        id: ThreadId,
        /// Who has it, in words.
        holder: String,
    },
}

impl Store {
    /// Returns the threads below `home`. Nothing is touched yet.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        Self { home: home.into() }
    }

    /// Looks for a thread.
    pub fn find(&self, id: ThreadId) -> Result<Option<Found>, StoreError> {
        let mut found = None;
        walk(&self.home.join("sessions"), &mut |path| {
            if path.to_string_lossy().contains(&id.to_string()) {
                found = Some(Found { path: path.to_owned(), archived: false });
            }
        });
        Ok(found)
    }

    /// Reads a thread, with what it continues, and gives every line to `sink`.
    pub fn read(
        &self,
        id: ThreadId,
        sink: &mut dyn FnMut(&Line<'_>),
    ) -> Result<ReadReport, StoreError> {
        let found = self.find(id)?.ok_or(StoreError::NotFound(id))?;
        let io = |source| StoreError::Io { path: found.path.clone(), source };
        let mut report = ReadReport::default();
        for text in BufReader::new(File::open(&found.path).map_err(io)?).lines() {
            if let Ok(line) = serde_json::from_str(&text.map_err(io)?) {
                report.lines += 1;
                sink(&line);
            }
        }
        Ok(report)
    }

    /// Opens a thread for writing, gives every line of it to `sink`, and repairs its end.
    pub fn open(
        &self,
        id: ThreadId,
        sink: &mut dyn FnMut(&Line<'_>),
    ) -> Result<(Log, ReadReport), OpenError> {
        let report = self.read(id, sink)?;
        let found = self.find(id)?.ok_or(StoreError::NotFound(id))?;
        let io = |source| StoreError::Io { path: found.path.clone(), source };
        let file = OpenOptions::new().append(true).open(&found.path).map_err(io)?;
        let log = Log { path: found.path, file: Arc::new(file), next: Some(report.lines) };
        Ok((log, report))
    }

    /// Makes a thread. Its file comes into being with the first lines.
    pub fn create(&self, new: NewThread) -> Result<Log, OpenError> {
        let mut new = new;
        new.meta.timestamp = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        let now = jiff::Zoned::now();
        let folder = self.home.join("sessions").join(now.strftime("%Y/%m/%d").to_string());
        let stamp = now.strftime("%Y-%m-%dT%H-%M-%S");
        let path = folder.join(format!("rollout-{stamp}-{}.jsonl", new.id));
        let io = |source| StoreError::Io { path: path.clone(), source };
        fs::create_dir_all(&folder).map_err(io)?;
        let file = OpenOptions::new().append(true).create_new(true).open(&path).map_err(io)?;
        let mut log = Log { path: path.clone(), file: Arc::new(file), next: Some(0) };
        log.append(&[Record::SessionMeta(Box::new(new.meta))])
            .map_err(|error| io(std::io::Error::other(error)))?;
        Ok(log)
    }
}

fn walk(folder: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { walk(&path, each) } else { each(&path) }
    }
}

impl Store {
    /// Makes a thread that goes on from another.
    pub fn fork(&self, _source: ThreadId, new: NewThread) -> Result<Log, OpenError> {
        self.create(new)
    }
}
