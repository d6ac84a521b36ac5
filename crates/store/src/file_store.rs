//! Implements the store traits for files. Everything runs on the polling thread, except syncs.

use std::future::ready;
use std::io;
use std::path::Path;

use log::Record;
use protocol::id::ThreadId;
use tokio::runtime::Handle;

use crate::index::{self, CatalogError, Hit, Index, List, Page, ResolveError, Search};
use crate::log::{FileLog, WriteError};
use crate::manage::ManageError;
use crate::read::ReadReport;
use crate::store::{FileStore, Found, NewThread, OpenError};
use crate::thread_store::{
    Catalog, LineSink, LogFuture, Opened, StoreFuture, ThreadLog, ThreadStore,
};

impl ThreadStore for FileStore {
    fn create(&self, new: NewThread) -> StoreFuture<'_, Box<dyn ThreadLog>, OpenError> {
        Box::pin(async move { Ok(Box::new(Self::create(self, new)?) as Box<dyn ThreadLog>) })
    }

    fn open<'a>(&'a self, id: ThreadId, sink: LineSink<'a>) -> StoreFuture<'a, Opened, OpenError> {
        Box::pin(async move { Self::open(self, id, sink).map(opened) })
    }

    fn read<'a>(&'a self, id: ThreadId, sink: LineSink<'a>) -> StoreFuture<'a, ReadReport> {
        Box::pin(async move { Self::read(self, id, sink) })
    }

    fn fork<'a>(
        &'a self,
        id: ThreadId,
        new: NewThread,
        before: Option<u64>,
        sink: LineSink<'a>,
    ) -> StoreFuture<'a, Opened, OpenError> {
        Box::pin(async move { Self::fork(self, id, new, before, sink).map(opened) })
    }

    fn find(&self, id: ThreadId) -> StoreFuture<'_, Option<Found>> {
        Box::pin(async move {
            let Some(files) = self.files(id)? else { return Ok(None) };
            // The name is optional, so the thread is found even if names cannot be read.
            let name = self.names().unwrap_or_default().remove(&id);
            Ok(Some(Found { path: Some(files.path), archived: files.archived, name }))
        })
    }

    fn archive(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError> {
        Box::pin(async move { Self::archive(self, id) })
    }

    fn unarchive(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError> {
        Box::pin(async move { Self::unarchive(self, id) })
    }

    fn delete(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError> {
        Box::pin(async move { Self::delete(self, id) })
    }

    fn set_name<'a>(&'a self, id: ThreadId, name: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move { Self::set_name(self, id, name) })
    }
}

fn opened((log, report): (FileLog, ReadReport)) -> Opened {
    (Box::new(log), report)
}

impl ThreadLog for FileLog {
    // Writing to the page cache is faster than handing the lines to another thread.
    fn append(&mut self, records: Vec<Record>) -> LogFuture {
        Box::pin(ready(Self::append(self, &records)))
    }

    fn sync(&mut self) -> LogFuture {
        let syncer = self.syncer();
        match Handle::try_current() {
            Ok(runtime) => {
                let path = self.path().to_owned();
                let syncing = runtime.spawn_blocking(move || syncer.sync());
                Box::pin(async move {
                    let failed = |ended| Err(WriteError::new(&path, io::Error::other(ended)));
                    syncing.await.unwrap_or_else(failed)
                })
            }
            Err(_) => Box::pin(async move { syncer.sync() }),
        }
    }

    fn is_legacy(&self) -> bool {
        Self::is_legacy(self)
    }

    fn path(&self) -> Option<&Path> {
        Some(Self::path(self))
    }
}

impl Catalog for FileStore {
    fn list(&self, list: List) -> StoreFuture<'_, Page, CatalogError> {
        Box::pin(self.ask(move |index| index.list(&list)))
    }

    fn search(&self, search: Search) -> StoreFuture<'_, Vec<Hit>, CatalogError> {
        Box::pin(self.ask(move |index| index.search(&search)))
    }

    fn resolve<'a>(&'a self, text: &'a str) -> StoreFuture<'a, ThreadId, ResolveError> {
        Box::pin(self.ask(move |index| index.resolve(text)))
    }

    fn last<'a>(&'a self, cwd: Option<&'a str>) -> StoreFuture<'a, Option<ThreadId>, CatalogError> {
        Box::pin(async move {
            let _asking = self.asking.lock().await;
            Ok(index::last(&self.home, cwd))
        })
    }
}

impl FileStore {
    /// Asks the index, after everybody who asked before. Every question first updates the index, which only one can do at a
    /// time: the others would wait for its lock, each with pages of the database in memory, and those that wait too long
    /// would read all logs into an index of their own.
    async fn ask<T, E: From<CatalogError>>(
        &self,
        ask: impl FnOnce(&mut Index) -> Result<T, E>,
    ) -> Result<T, E> {
        let _asking = self.asking.lock().await;
        ask(&mut Index::open(&self.home, |_| {})?)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    /// Begins a question while another one is answered, and finishes it after that.
    #[track_caller]
    fn check<T, E: std::fmt::Debug>(store: &FileStore, mut asked: StoreFuture<'_, T, E>) {
        let mut context = Context::from_waker(Waker::noop());
        let asking = store.asking.try_lock().expect("nobody asks");
        assert!(asked.as_mut().poll(&mut context).is_pending());
        drop(asking);
        let std::task::Poll::Ready(answer) = asked.as_mut().poll(&mut context) else {
            panic!("it still waits")
        };
        answer.unwrap();
    }

    #[test]
    fn questions_wait_for_each_other() {
        let home = tempfile::tempdir().unwrap();
        let store = FileStore::new(home.path());
        // A clone is the same store.
        let other = store.clone();
        check(&store, other.list(List::default()));
        let search = Search { words: "x".into(), raw: false, cwd: None, archived: false, limit: 1 };
        check(&store, other.search(search));
        let unknown = Box::pin(async { other.resolve("x").await.map_or(Ok(()), |_| Err("found")) });
        check(&store, unknown);
        check(&store, other.last(None));
    }
}
