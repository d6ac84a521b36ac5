//! Saved threads: listing, searching, naming, archiving, deleting.

use std::path::PathBuf;

use history::Fold;
use log::{Compacted, RESTORED};
use protocol::id::ThreadId;
use protocol::repair::Repair;
use store::index::{CatalogError, Hit, Index, List, Page, Progress, Search};
use tokio::runtime::Handle;

/// The lines of a thread's log, which [`Threads::read`] passes on.
pub use ::log::{Line, Payload, Record, SessionMeta};
/// The turns of a thread, numbered as they are shown.
pub use history::Turns;
/// Thread stores: the traits, the store in files with its index, and the one in memory.
pub use store::*;

use crate::error::Error;
use crate::host::blocking;
use crate::session::past::{self, Stores};
use crate::turn::{SavedTurns, TurnResult};

/// All threads of a home: saved ones, and ephemeral ones while they are open.
#[derive(Clone, Debug)]
pub struct Threads {
    home: PathBuf,
    stores: Stores,
}

impl Threads {
    pub(crate) fn new(home: PathBuf, stores: Stores) -> Self {
        Self { home, stores }
    }

    /// Returns the file store of the home. For programs that administer heddle: export, import, `fsck` and revert work
    /// on files only. Its methods block.
    pub fn files(&self) -> FileStore {
        FileStore::new(&self.home)
    }

    /// Opens the index of the file store and updates it, reporting progress. Its methods block.
    pub fn index(&self, progress: impl FnMut(Progress) + 'static) -> Result<Index, CatalogError> {
        Index::open(&self.home, progress)
    }

    /// Lists saved threads, one page at a time.
    pub async fn list(&self, list: List) -> Result<Page, Error> {
        self.ask(|runtime, stores| Ok(runtime.block_on(stores.kept.list(list))?)).await
    }

    /// Searches the messages and commands of saved threads.
    pub async fn search(&self, search: Search) -> Result<Vec<Hit>, Error> {
        self.ask(|runtime, stores| Ok(runtime.block_on(stores.kept.search(search))?)).await
    }

    /// Finds a saved thread by its id, a prefix of its id, or its name.
    pub async fn resolve(&self, text: &str) -> Result<ThreadId, Error> {
        let text = text.to_owned();
        self.ask(move |runtime, stores| Ok(runtime.block_on(stores.kept.resolve(&text))?)).await
    }

    /// Finds the most recently updated thread, of one working directory or of all.
    pub async fn last(&self, directory: Option<&str>) -> Result<Option<ThreadId>, Error> {
        let directory = directory.map(str::to_owned);
        self.ask(move |runtime, stores| {
            Ok(runtime.block_on(stores.kept.last(directory.as_deref()))?)
        })
        .await
    }

    /// Finds a thread by its full id, including ephemeral ones.
    pub async fn find(&self, id: ThreadId) -> Result<Option<Found>, Error> {
        self.ask(move |runtime, stores| Ok(runtime.block_on(stores.of(id).find(id))?)).await
    }

    /// Calls `line` for every line of a thread, with `folded` as the accumulator, and returns the accumulator.
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

    /// Returns the results of the last turns of a thread, at most `turns_max`, oldest first. Each is the same as its
    /// [`Turn`](crate::Turn) has returned, but for warnings, retries, lists of steps and the numbers of items, which
    /// are not in the log. A turn without an end counts as interrupted.
    pub async fn turns(
        &self,
        id: ThreadId,
        turns_max: usize,
    ) -> Result<Vec<Result<TurnResult, Error>>, Error> {
        let saved = SavedTurns::new(turns_max.max(1));
        let saved = self.read(id, saved, SavedTurns::line).await?;
        Ok(saved.finish(id))
    }

    /// Returns the plan that a thread has proposed last, in its last 100 turns.
    pub async fn last_plan(&self, id: ThreadId) -> Result<Option<String>, Error> {
        let saved = SavedTurns::new(PLAN_TURNS_MAX);
        let saved = self.read(id, saved, SavedTurns::line).await?;
        Ok(saved.last_plan())
    }

    /// Moves a thread to the archive.
    pub async fn archive(&self, id: ThreadId) -> Result<(), Error> {
        self.ask(move |runtime, stores| Ok(runtime.block_on(stores.of(id).archive(id))?)).await
    }

    /// Moves a thread out of the archive.
    pub async fn unarchive(&self, id: ThreadId) -> Result<(), Error> {
        self.ask(move |runtime, stores| Ok(runtime.block_on(stores.of(id).unarchive(id))?)).await
    }

    /// Deletes a thread permanently.
    pub async fn delete(&self, id: ThreadId) -> Result<(), Error> {
        self.ask(move |runtime, stores| Ok(runtime.block_on(stores.of(id).delete(id))?)).await
    }

    /// Names a thread; [`Threads::resolve`] finds it by its name.
    pub async fn set_name(&self, id: ThreadId, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.ask(move |runtime, stores| Ok(runtime.block_on(stores.of(id).set_name(id, &name))?))
            .await
    }

    /// Returns the extras of a thread: what a program keeps about it besides its log; none if there are none.
    pub async fn extras(&self, id: ThreadId) -> Result<Option<Vec<u8>>, Error> {
        let files = self.files();
        self.ask(move |_, _| Ok(files.extras(id)?)).await
    }

    /// Changes the extras of a thread, which are deleted with it. `change` gets what they are, and returns what they shall be (none leaves them), and
    /// the result. No other change comes between, of whatever process; when this returns, they survive a power failure.
    pub async fn change_extras<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        id: ThreadId,
        change: impl FnOnce(Option<Vec<u8>>) -> Result<(Option<Vec<u8>>, T), E> + Send + 'static,
    ) -> Result<T, E> {
        let files = self.files();
        let changed = self.ask(move |_, _| {
            let mut result = None;
            let changed = files.change_extras(id, |extras| {
                let (extras, done) = change(extras).map_err(ExtrasError::Refused)?;
                result = Some(done);
                Ok(extras)
            });
            Ok(match changed {
                Ok(()) => Ok(result.expect("it was changed")),
                Err(ExtrasError::Store(error)) => Err(E::from(error.into())),
                Err(ExtrasError::Refused(error)) => Err(error),
            })
        });
        changed.await.map_err(E::from)?
    }

    /// Takes a turn and everything after it out of a saved thread, which must not be open. No line is erased: the thread goes
    /// on in a new file.
    pub async fn revert(&self, id: ThreadId, turn: &str) -> Result<(), Error> {
        let (files, turn) = (self.files(), turn.to_owned());
        self.ask(move |_, _| {
            let turns = turns(&files, id)?;
            let Some(first_gone) = turns.iter().find(|it| !turn.is_empty() && it.id == turn) else {
                return Err(Error::settings(format!("turn not found: {turn:.100}")));
            };
            let before = first_gone.ordinal.ok_or(OpenError::Legacy(id))?;
            let (log, _) = files.revert(id, before, &mut |_| {})?;
            log.close();
            Ok(())
        })
        .await
    }

    /// Restores the history that the last compaction replaced, followed by everything since. The log is only appended to:
    /// the restored history is written to it again. None if the thread was never compacted.
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

/// Why extras were not changed.
enum ExtrasError<E> {
    Store(StoreError),
    /// By who wanted to change them.
    Refused(E),
}

impl<E> From<StoreError> for ExtrasError<E> {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Returns the turns that a saved thread has now, without those that were rolled back.
pub fn turns(files: &FileStore, id: ThreadId) -> Result<Turns, StoreError> {
    let mut fold = Fold::default();
    files.read(id, &mut |line| fold.line(line))?;
    Ok(fold.finish().turns)
}

async fn undo_compaction(
    store: &dyn Store,
    id: ThreadId,
) -> Result<Option<UndoneCompaction>, Error> {
    let mut fold = Fold::default();
    let (mut log, report) = store.open(id, &mut |line| fold.line(line)).await?;
    // Opening has already repaired the log, so this is the only report of the damage.
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

/// The result of undoing a compaction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UndoneCompaction {
    /// Number of items in the history before.
    pub before: usize,
    /// Number of items in the history now.
    pub after: usize,
    /// Descriptions of the damaged places of the log, whose content is not in the history.
    pub damage: Vec<String>,
    /// Items that were left out because the history was too long; none if nothing was.
    pub left_out: Option<Repair>,
}

/// Number of turns in which a plan is looked for.
const PLAN_TURNS_MAX: usize = 100;
