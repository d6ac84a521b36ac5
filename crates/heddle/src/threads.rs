//! Threads that are kept: listing, searching, naming, archiving.

use std::path::PathBuf;

use history::Fold;
use log::{Compacted, RESTORED, Record};
use protocol::id::ThreadId;
use protocol::repair::Repair;
use store::index::{Index, IndexError, Progress};

/// The files and the index behind [`Threads`]. For programs that operate heddle.
pub use store::*;

use crate::error::Error;
use crate::session::past;

/// The threads of a home. Every method reads files, so call it where blocking is fine.
#[derive(Clone, Debug)]
pub struct Threads {
    home: PathBuf,
}

impl Threads {
    pub(crate) fn new(home: PathBuf) -> Self {
        Self { home }
    }

    /// The files that the threads are in.
    pub fn store(&self) -> Store {
        Store::new(&self.home)
    }

    /// Opens the index that lists and searches are made with, and brings it up to date; `progress` is told how far that is.
    pub fn index(&self, progress: impl FnMut(Progress) + 'static) -> Result<Index, IndexError> {
        Index::open(&self.home, progress)
    }

    /// Finds the thread that was last written to: of a working directory, or of all.
    pub fn last(&self, directory: Option<&str>) -> Option<ThreadId> {
        index::last(&self.home, directory)
    }

    /// Finds the file of a thread.
    pub fn find(&self, id: ThreadId) -> Result<Option<Found>, Error> {
        Ok(self.store().find(id)?)
    }

    /// Puts a thread into the archive.
    pub fn archive(&self, id: ThreadId) -> Result<(), Error> {
        Ok(self.store().archive(id)?)
    }

    /// Takes a thread back from the archive.
    pub fn unarchive(&self, id: ThreadId) -> Result<(), Error> {
        Ok(self.store().unarchive(id)?)
    }

    /// Deletes a thread for good.
    pub fn delete(&self, id: ThreadId) -> Result<(), Error> {
        Ok(self.store().delete(id)?)
    }

    /// Brings back the history that the last compaction of a thread replaced, and what came after it. The log only grows:
    /// the whole history is written down once more. None if the thread has no compaction.
    pub fn undo_compaction(&self, id: ThreadId) -> Result<Option<UndoneCompaction>, Error> {
        let (store, mut fold) = (self.store(), Fold::default());
        let (mut log, report) = store.open(id, &mut |line| fold.line(line))?;
        // Opening has mended what it could, so nobody else will hear of it.
        let damage = past::damages(id, &report);
        let compacted = past::settle(&store, id, fold.finish())?;
        let Some(&number) = compacted.compactions.last() else { return Ok(None) };
        let folded = past::before(&store, id, number)?;
        let history = folded.replacement_history();
        let (before, after) = (compacted.entries.len(), history.len());
        let record = Compacted {
            message: String::new(),
            replacement_history: Some(history),
            heddle_cause: Some(RESTORED.to_owned()),
        };
        log.append(&[Record::Compacted(Box::new(record))]).map_err(Error::storage)?;
        log.syncer().sync().map_err(Error::storage)?;
        log.close();
        let left_out = folded.left_out.repair();
        Ok(Some(UndoneCompaction { before, after, damage, left_out }))
    }

    /// Gives a thread a name that it can be found by.
    pub fn set_name(&self, id: ThreadId, name: &str) -> Result<(), Error> {
        Ok(self.store().set_name(id, name)?)
    }
}

/// What undoing a compaction came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UndoneCompaction {
    /// Items that the history had.
    pub before: usize,
    /// Items that it has now.
    pub after: usize,
    /// Damage that was met on the way; what was there is not in the history.
    pub damage: Vec<String>,
    /// What was too long for the history.
    pub left_out: Option<Repair>,
}
