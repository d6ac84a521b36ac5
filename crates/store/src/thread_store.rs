//! The traits that a thread store implements, so that threads can be stored elsewhere than in files.
//!
//! [`FileStore`](crate::FileStore) and [`MemoryStore`](crate::MemoryStore) implement them; the cases in
//! [`conformance`](crate::conformance) test other implementations.
//!
//! A store may block while it is polled, so callers poll it on a thread for blocking work. A [`ThreadLog`] must not
//! block for long, as it is polled on the thread that runs turns.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use log::{Line, Record};
use protocol::id::ThreadId;

use crate::index::{CatalogError, Hit, List, Page, ResolveError, Search};
use crate::log::WriteError;
use crate::manage::ManageError;
use crate::read::ReadReport;
use crate::store::{Found, NewThread, OpenError, StoreError};

/// The pending result of a store operation.
pub type StoreFuture<'a, T, E = StoreError> =
    Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// The pending result of a log operation. It may outlive the log; dropping it does not cancel the operation.
pub type LogFuture = Pin<Box<dyn Future<Output = Result<(), WriteError>> + Send>>;

/// Receives the lines of a thread, in order.
pub type LineSink<'a> = &'a mut (dyn FnMut(&Line<'_>) + Send);

/// An open log, and a report of reading it.
pub type Opened = (Box<dyn ThreadLog>, ReadReport);

/// Stores threads.
///
/// A thread has one writer at a time: while it is open for writing, [`open`](Self::open), [`archive`](Self::archive),
/// [`unarchive`](Self::unarchive) and [`delete`](Self::delete) fail with `Held`. Reading and forking are always possible.
pub trait ThreadStore: fmt::Debug + Send + Sync {
    /// Creates a thread. It becomes visible to other operations with the first append, even an empty one.
    fn create(&self, new: NewThread) -> StoreFuture<'_, Box<dyn ThreadLog>, OpenError>;

    /// Opens a thread for writing, and passes every line to `sink`.
    fn open<'a>(&'a self, id: ThreadId, sink: LineSink<'a>) -> StoreFuture<'a, Opened, OpenError>;

    /// Reads a thread, including the lines it was forked from, and passes every line to `sink`. The last head among them
    /// is the thread's own.
    fn read<'a>(&'a self, id: ThreadId, sink: LineSink<'a>) -> StoreFuture<'a, ReadReport>;

    /// Creates a thread that begins with the lines of another one, or only those before an ordinal, and passes these to
    /// `sink`. If the new head has no base instructions, it gets those of the other thread.
    fn fork<'a>(
        &'a self,
        id: ThreadId,
        new: NewThread,
        before: Option<u64>,
        sink: LineSink<'a>,
    ) -> StoreFuture<'a, Opened, OpenError>;

    /// Finds a thread by its id.
    fn find(&self, id: ThreadId) -> StoreFuture<'_, Option<Found>>;

    /// Moves a thread to the archive. Does nothing if it is already there.
    fn archive(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError>;

    /// Moves a thread out of the archive. Does nothing if it is not there.
    fn unarchive(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError>;

    /// Deletes a thread permanently. A store in which forks share lines with their source may refuse while it has forks.
    fn delete(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError>;

    /// Names a thread, so that it can be found by the name.
    fn set_name<'a>(&'a self, id: ThreadId, name: &'a str) -> StoreFuture<'a, ()>;
}

/// The log of a thread, open for writing. Dropping it releases the thread once everything appended is written.
pub trait ThreadLog: fmt::Debug + Send {
    /// Queues lines and returns at once; the future completes when they are written, all or none, after those of earlier
    /// calls. Written lines survive the end of this process.
    fn append(&mut self, records: Vec<Record>) -> LogFuture;

    /// Starts a sync and returns at once; the future completes when everything appended before would survive a power
    /// failure. After an error nothing more can be appended.
    fn sync(&mut self) -> LogFuture;

    /// Returns whether lines have no ordinals, as in logs of older programs.
    fn is_legacy(&self) -> bool {
        false
    }

    /// Returns the path of the log, if it is a file.
    fn path(&self) -> Option<&Path> {
        None
    }
}

/// Lists and searches the threads of a store.
pub trait Catalog: fmt::Debug + Send + Sync {
    /// Lists threads, one page at a time.
    fn list(&self, list: List) -> StoreFuture<'_, Page, CatalogError>;

    /// Searches the messages of users and agents, and commands.
    fn search(&self, search: Search) -> StoreFuture<'_, Vec<Hit>, CatalogError>;

    /// Finds the one thread with this id, prefix of an id, or name.
    fn resolve<'a>(&'a self, text: &'a str) -> StoreFuture<'a, ThreadId, ResolveError>;

    /// Returns the most recently updated thread, of one working directory or of all.
    fn last<'a>(&'a self, cwd: Option<&'a str>) -> StoreFuture<'a, Option<ThreadId>, CatalogError>;
}

/// A complete thread store: stores, lists and searches threads.
pub trait Store: ThreadStore + Catalog {}

impl<T: ThreadStore + Catalog> Store for T {}
