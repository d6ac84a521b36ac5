//! The traits of a thread store: what a runtime asks of the place that keeps its threads.
//!
//! [`FileStore`](crate::FileStore) and [`MemoryStore`](crate::MemoryStore) implement them; [`conformance`](crate::conformance)
//! tells whether another one does.
//!
//! A store may block the thread that polls it. Callers poll it where blocking is fine; only a [`ThreadLog`] is polled
//! on the thread of a turn.

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

/// The answer of a store.
pub type StoreFuture<'a, T, E = StoreError> =
    Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// The answer of a log. It may outlive the log, and dropping it takes nothing back.
pub type LogFuture = Pin<Box<dyn Future<Output = Result<(), WriteError>> + Send>>;

/// Is given the lines of a thread, in order.
pub type LineSink<'a> = &'a mut (dyn FnMut(&Line<'_>) + Send);

/// A log that was opened, and what reading it came upon.
pub type Opened = (Box<dyn ThreadLog>, ReadReport);

/// Keeps threads.
///
/// A thread has one writer at a time: while one has it open, [`open`](Self::open), [`archive`](Self::archive),
/// [`unarchive`](Self::unarchive) and [`delete`](Self::delete) fail with `Held`. Readers and forks need not wait.
pub trait ThreadStore: fmt::Debug + Send + Sync {
    /// Makes a thread. It exists for others once something was appended, be it no lines at all.
    fn create(&self, new: NewThread) -> StoreFuture<'_, Box<dyn ThreadLog>, OpenError>;

    /// Opens a thread for writing. Gives every line to `sink`.
    fn open<'a>(&'a self, id: ThreadId, sink: LineSink<'a>) -> StoreFuture<'a, Opened, OpenError>;

    /// Reads a thread, with what it was forked from, and gives every line to `sink`. The last head among them is the
    /// thread's own.
    fn read<'a>(&'a self, id: ThreadId, sink: LineSink<'a>) -> StoreFuture<'a, ReadReport>;

    /// Makes a thread that begins with the lines of another, or those before an ordinal. Gives these to `sink`. Base
    /// instructions that the new head lacks are those of the other thread.
    fn fork<'a>(
        &'a self,
        id: ThreadId,
        new: NewThread,
        before: Option<u64>,
        sink: LineSink<'a>,
    ) -> StoreFuture<'a, Opened, OpenError>;

    /// Looks for a thread.
    fn find(&self, id: ThreadId) -> StoreFuture<'_, Option<Found>>;

    /// Puts a thread into the archive. Does nothing if it is there.
    fn archive(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError>;

    /// Takes a thread back from the archive. Does nothing if it is not there.
    fn unarchive(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError>;

    /// Deletes a thread for good. A store whose forks share lines with it may refuse while there are any.
    fn delete(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError>;

    /// Gives a thread a name that it can be found by.
    fn set_name<'a>(&'a self, id: ThreadId, name: &'a str) -> StoreFuture<'a, ()>;
}

/// The log of a thread, open for writing. Dropping it lets the next writer in, once what was appended is written.
pub trait ThreadLog: fmt::Debug + Send {
    /// Takes lines, and returns at once. They are written after those of earlier calls, all or none; the future waits
    /// for that. What is written outlives our process.
    fn append(&mut self, records: Vec<Record>) -> LogFuture;

    /// Makes everything that was appended before durable, and returns at once; the future waits for that. What is
    /// durable outlives a power failure. After a failure nothing is appended any more.
    fn sync(&mut self) -> LogFuture;

    /// Tells whether lines have no ordinals, as older programs wrote them.
    fn is_legacy(&self) -> bool {
        false
    }

    /// The file that lines go into, if that is how they are kept.
    fn path(&self) -> Option<&Path> {
        None
    }
}

/// Finds threads among all that are kept.
pub trait Catalog: fmt::Debug + Send + Sync {
    /// Lists threads, a page at a time.
    fn list(&self, list: List) -> StoreFuture<'_, Page, CatalogError>;

    /// Searches what users and agents said, and the commands that ran.
    fn search(&self, search: Search) -> StoreFuture<'_, Vec<Hit>, CatalogError>;

    /// Returns the one thread that an id, its first digits, or a name stands for.
    fn resolve<'a>(&'a self, text: &'a str) -> StoreFuture<'a, ThreadId, ResolveError>;

    /// Returns the thread that was last written to, of those that work in a directory or of all.
    fn last<'a>(&'a self, cwd: Option<&'a str>) -> StoreFuture<'a, Option<ThreadId>, CatalogError>;
}

/// Keeps threads and finds them.
pub trait Store: ThreadStore + Catalog {}

impl<T: ThreadStore + Catalog> Store for T {}
