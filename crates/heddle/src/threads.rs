//! Threads that are kept: listing, searching, naming, archiving.

use std::path::PathBuf;

use history::Fold;
use log::{Compacted, RESTORED};
use protocol::id::ThreadId;
use protocol::repair::Repair;
use store::index::{CatalogError, Hit, Index, List, Page, Progress, Search};
use tokio::runtime::Handle;

/// Stores of threads: the traits, the files and the index, the one in memory.
pub use ::log::{Line, Payload, Record, SessionMeta};
pub use store::*;

use crate::error::Error;
use crate::host::blocking;
use crate::session::past::{self, Stores};

/// The threads that are kept, and those that are open without being kept.
#[derive(Clone, Debug)]
pub struct Threads {
    home: PathBuf,
    stores: Stores,
}

impl Threads {
    pub(crate) fn new(home: PathBuf, stores: Stores) -> Self {
        Self { home, stores }
    }

    /// The files of the home. For programs that operate heddle: export, import, `fsck` and reverts are for files only.
    /// Its methods block.
    pub fn files(&self) -> FileStore {
        FileStore::new(&self.home)
    }

    /// Opens the index of the files, and brings it up to date; `progress` is told how far that is. Its methods block.
    pub fn index(&self, progress: impl FnMut(Progress) + 'static) -> Result<Index, CatalogError> {
        Index::open(&self.home, progress)
    }

    /// Lists threads that are kept, a page at a time.
    pub async fn list(&self, list: List) -> Result<Page, Error> {
        self.ask(|runtime, stores| Ok(runtime.block_on(stores.kept.list(list))?)).await
    }

    /// Searches what was said in threads that are kept, and the commands that ran in them.
    pub async fn search(&self, search: Search) -> Result<Vec<Hit>, Error> {
        self.ask(|runtime, stores| Ok(runtime.block_on(stores.kept.search(search))?)).await
    }

    /// Finds the thread that an id, its first digits, or a name stands for.
    pub async fn resolve(&self, text: &str) -> Result<ThreadId, Error> {
        let text = text.to_owned();
        self.ask(move |runtime, stores| Ok(runtime.block_on(stores.kept.resolve(&text))?)).await
    }

    /// Finds the thread that was last written to: of a working directory, or of all.
    pub async fn last(&self, directory: Option<&str>) -> Result<Option<ThreadId>, Error> {
        let directory = directory.map(str::to_owned);
        self.ask(move |runtime, stores| {
            Ok(runtime.block_on(stores.kept.last(directory.as_deref()))?)
        })
        .await
    }

    /// Looks for a thread.
    pub async fn find(&self, id: ThreadId) -> Result<Option<Found>, Error> {
        self.ask(move |runtime, stores| Ok(runtime.block_on(stores.of(id).find(id))?)).await
    }

    /// Reads the lines of a thread into `folded`.
    pub async fn read<T: Send + 'static>(
        &self,
        id: ThreadId,
        mut folded: T,
        mut line: impl FnMut(&mut T, &Line<'_>) + Send + 'static,
    ) -> Result<T, Error> {
        self.ask(move |runtime, stores| {
            let sink = &mut |it: &Line<'_>| line(&mut folded, it);
            runtime.block_on(stores.of(id).read(id, sink))?;
            Ok(folded)
        })
        .await
    }

    /// Puts a thread into the archive.
    pub async fn archive(&self, id: ThreadId) -> Result<(), Error> {
        self.ask(move |runtime, stores| Ok(runtime.block_on(stores.of(id).archive(id))?)).await
    }

    /// Takes a thread back from the archive.
    pub async fn unarchive(&self, id: ThreadId) -> Result<(), Error> {
        self.ask(move |runtime, stores| Ok(runtime.block_on(stores.of(id).unarchive(id))?)).await
    }

    /// Deletes a thread for good.
    pub async fn delete(&self, id: ThreadId) -> Result<(), Error> {
        self.ask(move |runtime, stores| Ok(runtime.block_on(stores.of(id).delete(id))?)).await
    }

    /// Gives a thread a name that it can be found by.
    pub async fn set_name(&self, id: ThreadId, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.ask(move |runtime, stores| Ok(runtime.block_on(stores.of(id).set_name(id, &name))?))
            .await
    }

    /// Brings back the history that the last compaction of a thread replaced, and what came after it. The log only grows:
    /// the whole history is written down once more. None if the thread has no compaction.
    pub async fn undo_compaction(&self, id: ThreadId) -> Result<Option<UndoneCompaction>, Error> {
        self.ask(move |runtime, stores| runtime.block_on(undo_compaction(stores.of(id), id))).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Handle, &Stores) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let stores = self.stores.clone();
        blocking(move |runtime| ask(runtime, &stores)).await
    }
}

async fn undo_compaction(
    store: &dyn Store,
    id: ThreadId,
) -> Result<Option<UndoneCompaction>, Error> {
    let mut fold = Fold::default();
    let (mut log, report) = store.open(id, &mut |line| fold.line(line)).await?;
    // Opening has mended what it could, so nobody else will hear of it.
    let damage = past::damages(id, &report);
    let compacted = past::settle(store, id, fold.finish()).await?;
    let Some(&number) = compacted.compactions.last() else { return Ok(None) };
    let folded = past::before(store, id, number).await?;
    let history = folded.replacement_history();
    let (before, after) = (compacted.entries.len(), history.len());
    let record = Compacted {
        message: String::new(),
        replacement_history: Some(history),
        heddle_cause: Some(RESTORED.to_owned()),
    };
    log.append(vec![Record::Compacted(Box::new(record))]).await.map_err(Error::storage)?;
    log.sync().await.map_err(Error::storage)?;
    let left_out = folded.left_out.repair();
    Ok(Some(UndoneCompaction { before, after, damage, left_out }))
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
