//! The index of threads: what lists and searches need, in a disposable database.
//!
//! Everything in it is read from the logs. It is updated before each query, so writers of logs need not know
//! about it. If it is missing, damaged, locked or of another version, it is rebuilt; and if it cannot be
//! stored on disk at all, it is built in memory.

mod db;
mod letters;
pub(crate) mod memory;
mod query;
mod scan;
mod sync;
mod walk;

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use protocol::id::ThreadId;
use rusqlite::Connection;

use crate::disk::open_file;
use db::Remedy;
use sync::Sweep;
use walk::{ARCHIVE, Folders, Look, Named};

pub use db::FOLDER;
pub use query::{
    Cursor, Direction, EXPRESSION_BYTES_MAX, Filter, Hit, InvalidCursor, LIMIT_MAX, List, Page,
    Piece, Search, Sort, Summary, is_id_beginning,
};
pub use scan::Role;

/// Progress of updating the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Logs are being read.
    Reading {
        /// Number of threads that were read.
        done: usize,
        /// Number of threads to read.
        total: usize,
    },
    /// The index cannot be stored on disk this time, and is built in memory; the text says why.
    InMemory(String),
}

/// The index of the threads of a home.
pub struct Index {
    home: PathBuf,
    db: Connection,
    on_disk: bool,
    /// How often it was rebuilt.
    restarts: usize,
    progress: Box<dyn FnMut(Progress)>,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("home", &self.home).field("on_disk", &self.on_disk).finish()
    }
}

/// Which files are checked before a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Care {
    Every,
    /// Those that may have been written to, if all were checked a moment ago.
    Likely,
}

/// The index could not answer.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The search expression is invalid.
    #[error("invalid search expression: {0}")]
    Expression(String),
    /// The search expression is too long.
    #[error("the search is too long; the limit is {EXPRESSION_BYTES_MAX} bytes")]
    TooLong,
    /// The cursor belongs to a list in another order.
    #[error("the cursor belongs to a list in another order; use the same order and direction")]
    Order,
    /// The store failed.
    #[error("the threads cannot be listed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<rusqlite::Error> for CatalogError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// A text does not identify one thread.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// No thread has that id or name.
    #[error("there is no thread `{0}`; give an id, its first four or more digits, or a name")]
    Unknown(String),
    /// There are several.
    #[error("`{text}` is ambiguous; use one of these ids: {}", ids(.candidates))]
    Ambiguous {
        /// The given text.
        text: String,
        /// Some possible threads.
        candidates: Vec<Summary>,
    },
    /// The index could not answer.
    #[error(transparent)]
    Index(#[from] CatalogError),
}

fn ids(candidates: &[Summary]) -> String {
    let ids: Vec<_> = candidates.iter().map(|candidate| candidate.id.to_string()).collect();
    ids.join(", ")
}

/// Finds the one thread with this id, prefix of an id, or name.
fn meant(text: &str, mut candidates: Vec<Summary>) -> Result<ThreadId, ResolveError> {
    match candidates.len() {
        0 => Err(ResolveError::Unknown(text.to_owned())),
        1 => Ok(candidates.remove(0).id),
        _ => Err(ResolveError::Ambiguous { text: text.to_owned(), candidates }),
    }
}

impl Index {
    /// Opens the index of `home`, or creates an empty one. `progress` is called while logs are read.
    pub fn open(
        home: impl Into<PathBuf>,
        progress: impl FnMut(Progress) + 'static,
    ) -> Result<Self, CatalogError> {
        let home = home.into();
        let path = db::path(&home);
        let mut progress = progress;
        let opened = match db::open(&path) {
            Err(error) if db::remedy(&error) == Remedy::ThrowAway && db::remove(&path) => {
                db::open(&path)
            }
            opened => opened,
        };
        let (db, on_disk) = match opened {
            Ok(db) => (db, true),
            Err(error) => {
                // Without a home there are no threads, and nothing to report.
                if home.exists() {
                    progress(Progress::InMemory(error.to_string()));
                }
                (db::open_in_memory()?, false)
            }
        };
        Ok(Self { home, db, on_disk, restarts: 0, progress: Box::new(progress) })
    }

    /// Returns whether the index is stored for the next time.
    pub fn is_on_disk(&self) -> bool {
        self.on_disk
    }

    /// Updates the index from the disk. The queries below do this themselves.
    pub fn sync(&mut self) -> Result<(), CatalogError> {
        self.sync_to(Care::Every)
    }

    /// Updates the index from the disk, and erases deleted text from its files.
    pub fn forget(&mut self) -> Result<(), CatalogError> {
        self.sync()?;
        loop {
            match db::checkpoint(&self.db) {
                Ok(()) => return Ok(()),
                Err(error) => self.recover(error)?,
            }
        }
    }

    fn sync_to(&mut self, care: Care) -> Result<(), CatalogError> {
        while let Err(error) = self.try_sync(care) {
            self.recover(error)?;
        }
        Ok(())
    }

    pub fn list(&mut self, list: &List) -> Result<Page, CatalogError> {
        list.check()?;
        let page = self.ask(Care::Likely, |db| query::list(db, list))?;
        let fresh = |thread: &Summary| {
            let found = fs::metadata(self.home.join(&thread.path));
            found.is_ok_and(|found| found.len() == thread.bytes)
        };
        if page.threads.iter().all(fresh) {
            return Ok(page);
        }
        // A list must be correct, no matter which program wrote the logs.
        self.ask(Care::Every, |db| query::list(db, list))
    }

    /// Searches messages of users and agents, and commands.
    pub fn search(&mut self, search: &Search) -> Result<Vec<Hit>, CatalogError> {
        search.check()?;
        if search.raw {
            self.ask(Care::Every, |db| search.check_expression(db))??;
        }
        self.ask(Care::Every, |db| query::search(db, search))
    }

    pub fn get(&mut self, id: ThreadId) -> Result<Option<Summary>, CatalogError> {
        self.ask(Care::Every, |db| query::get(db, id))
    }

    /// Returns the most recently written thread, of those created in `cwd` or of all.
    pub fn last(&mut self, cwd: Option<&str>) -> Result<Option<Summary>, CatalogError> {
        Ok(self.list(&List::newest(cwd))?.threads.pop())
    }

    /// Returns the one thread with this id, prefix of an id, or name.
    pub fn resolve(&mut self, text: &str) -> Result<ThreadId, ResolveError> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        meant(text, self.ask(Care::Likely, |db| query::called(db, text))?)
    }

    /// Queries the database after an update, and again if it had to be rebuilt.
    fn ask<T>(
        &mut self,
        care: Care,
        ask: impl Fn(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, CatalogError> {
        loop {
            self.sync_to(care)?;
            match ask(&self.db) {
                Ok(answer) => return Ok(answer),
                Err(error) => self.recover(error)?,
            }
        }
    }

    fn try_sync(&mut self, care: Care) -> rusqlite::Result<()> {
        let mut patience = PATIENCE;
        let mut left = usize::MAX;
        loop {
            let known = sync::known(&self.db)?;
            // Checked before the files: a writer that starts in between is noticed next time.
            let (locks, held) = walk::locks(&self.home);
            let sweep = Sweep::now(locks);
            let last = sync::last_sweep(&self.db)?;
            let spared = last.is_some_and(|last| sweep.is_spared_by(&last));
            let look = match care {
                Care::Likely if spared => Look::Likely(&held),
                _ => Look::All,
            };
            let seen = walk::walk(&self.home, &known, look);
            let plan = sync::Plan::new(&known, &seen);
            let done = sync::names(&mut self.db, &self.home).and_then(|()| {
                if !plan.is_empty() {
                    sync::apply(&mut self.db, &self.home, &plan, &seen, &mut self.progress)?;
                }
                let noted = spared || matches!(look, Look::Likely(_));
                if noted { Ok(()) } else { sync::swept(&self.db, sweep) }
            });
            match done {
                Err(error) if db::remedy(&error) == Remedy::Wait => {
                    // Another process is updating it. As long as that makes progress, there is no need to do
                    // it twice.
                    if plan.len() < left {
                        (left, patience) = (plan.len(), PATIENCE);
                    } else if patience == 0 {
                        return Err(error);
                    } else {
                        patience -= 1;
                    }
                }
                done => return done,
            }
        }
    }

    /// Rebuilds the index after a failure, finally in memory.
    fn recover(&mut self, error: rusqlite::Error) -> Result<(), CatalogError> {
        self.restarts += 1;
        if !self.on_disk || self.restarts > RESTARTS_MAX {
            return Err(error.into());
        }
        let path = db::path(&self.home);
        // The damaged database is closed before it is removed.
        self.db = db::open_in_memory()?;
        self.on_disk = false;
        if db::remedy(&error) == Remedy::ThrowAway
            && self.restarts < RESTARTS_MAX
            && db::remove(&path)
            && let Ok(db) = db::open(&path)
        {
            self.db = db;
            self.on_disk = true;
        }
        if !self.on_disk {
            (self.progress)(Progress::InMemory(error.to_string()));
        }
        Ok(())
    }
}

/// Returns the most recently written thread, of those created in `cwd` or of all; without an index if there
/// can be none.
pub fn last(home: &Path, cwd: Option<&str>) -> Option<ThreadId> {
    let found = Index::open(home, |_| {}).and_then(|mut index| index.last(cwd));
    match found {
        Ok(found) => found.map(|summary| summary.id),
        Err(_) => last_by_files(home, cwd),
    }
}

/// Searches the files, most recently written first.
fn last_by_files(home: &Path, cwd: Option<&str>) -> Option<ThreadId> {
    let seen = walk::walk(home, &Folders::new(), Look::All);
    let folders = seen.iter().filter(|(path, _)| !path.starts_with(ARCHIVE));
    let mut files: Vec<_> = folders
        .flat_map(|(path, folder)| {
            folder.files.iter().map(move |file| (file.stamp.mtime, path, file))
        })
        .collect();
    files.sort_unstable_by_key(|(mtime, ..)| std::cmp::Reverse(*mtime));
    let mut tried = HashSet::new();
    files.into_iter().find_map(|(_, path, file)| {
        let id = Named::parse(&file.name)?.id;
        if !tried.insert(id) {
            return None;
        }
        let fits = |cwd: &str| made_in(&home.join(path).join(&file.name)).as_deref() == Some(cwd);
        cwd.is_none_or(fits).then_some(id)
    })
}

/// Returns the directory in which the thread of a file was created.
fn made_in(path: &Path) -> Option<String> {
    let mut summary = scan::Summary::default();
    let file = open_file(fs::File::options().read(true), path).ok()?;
    let mut start = file.take(HEAD_BYTES_MAX);
    scan::read_lines(&mut start, 0, &mut |line| summary.line(line, &mut |_| {})).ok()?;
    Some(summary.cwd)
}

/// How often another process may keep the database locked without progress, half a second each.
const PATIENCE: usize = 1;
/// How often the index is rebuilt before giving up; the last time in memory.
const RESTARTS_MAX: usize = 3;
/// How many bytes are searched for the head of a file without an index.
const HEAD_BYTES_MAX: u64 = 1024 * 1024;
