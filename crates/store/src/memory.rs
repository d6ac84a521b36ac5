//! A thread store in memory, for tests and for ephemeral threads.

use std::collections::BTreeMap;
use std::fmt;
use std::future::ready;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use log::{BaseInstructions, Line, PAGINATED, Record, SessionMeta, kind};
use protocol::id::ThreadId;

use crate::index::memory::{MemoryIndex, Source};
use crate::index::{CatalogError, Hit, List, Page, ResolveError, Search};
use crate::line::{copy, decode, encode};
use crate::log::{WriteError, WriteErrorKind, format_time};
use crate::manage::ManageError;
use crate::names::shown;
use crate::read::ReadReport;
use crate::store::{Found, NewThread, OpenError, StoreError};
use crate::thread_store::{
    Catalog, LineSink, LogFuture, Opened, StoreFuture, ThreadLog, ThreadStore,
};

/// Stores threads in memory. Clones share the same threads.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    threads: BTreeMap<ThreadId, MemoryThread>,
    /// Created by the first list or search.
    index: Option<MemoryIndex>,
    lifetime: Lifetime,
}

/// When threads are forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lifetime {
    /// When they are deleted.
    #[default]
    UntilDeleted,
    /// When their log is dropped.
    WhileOpen,
}

#[derive(Clone, Default)]
struct MemoryThread {
    /// The lines, encoded as in a file.
    lines: Vec<Arc<[u8]>>,
    /// Number of lines copied from the thread it was forked from.
    inherited: usize,
    bytes: u64,
    next: u64,
    archived: bool,
    name: Option<String>,
    /// Whether it is open for writing.
    held: bool,
}

impl fmt::Debug for MemoryThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryThread").field("lines", &self.lines.len()).finish_non_exhaustive()
    }
}

/// The log of a thread in memory.
#[derive(Debug)]
struct MemoryLog {
    shared: Arc<Mutex<Shared>>,
    id: ThreadId,
    /// Initial lines and head of a new thread; none once the thread is visible in the store.
    pending: Option<Box<(MemoryThread, SessionMeta)>>,
}

impl MemoryStore {
    /// Creates a store that forgets a thread when its log is dropped.
    pub fn while_open() -> Self {
        let shared = Shared { lifetime: Lifetime::WhileOpen, ..Shared::default() };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Returns whether the store contains a thread.
    pub fn has(&self, id: ThreadId) -> bool {
        self.lock().threads.contains_key(&id)
    }

    /// Adds a copy of a thread of another store, and opens it. The original is not changed.
    pub fn adopt(&self, id: ThreadId, lines: CopiedLines) -> Result<Box<dyn ThreadLog>, OpenError> {
        let mut shared = self.lock();
        if shared.threads.contains_key(&id) {
            return Err(held(id));
        }
        shared.threads.insert(id, MemoryThread { held: true, ..lines.thread });
        Ok(Box::new(MemoryLog { shared: Arc::clone(&self.shared), id, pending: None }))
    }

    /// Creates a fork from the copied lines of a thread, which may be in another store.
    pub fn fork_lines(
        &self,
        id: ThreadId,
        lines: CopiedLines,
        new: NewThread,
    ) -> Box<dyn ThreadLog> {
        let CopiedLines { mut thread, instructions } = lines;
        let NewThread { id: new_id, mut meta } = new;
        thread.inherited = thread.lines.len();
        meta.base_instructions = meta.base_instructions.or(instructions);
        meta.forked_from_id = Some(id);
        meta.forked_from_ordinal_exclusive = Some(thread.next);
        Box::new(self.begin(new_id, thread, meta))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    fn begin(&self, id: ThreadId, thread: MemoryThread, meta: SessionMeta) -> MemoryLog {
        let pending = Some(Box::new((thread, meta)));
        MemoryLog { shared: Arc::clone(&self.shared), id, pending }
    }

    fn read_into(&self, id: ThreadId, sink: LineSink<'_>) -> Result<ReadReport, StoreError> {
        // Lines are reference-counted, so that writers do not wait for a slow reader.
        let lines = self.lock().thread(id)?.lines.clone();
        let mut report = ReadReport::default();
        for line in &lines {
            report.lines += 1;
            report.bytes += line.len() as u64;
            if let Some(decoded) = decode(line) {
                sink(&decoded.line);
            }
        }
        Ok(report)
    }

    /// Changes a thread, unless it is open for writing.
    fn manage(&self, id: ThreadId, change: impl FnOnce(&mut Shared)) -> Result<(), ManageError> {
        let mut shared = self.lock();
        if shared.thread(id)?.held {
            return Err(ManageError::Held { id, holder: HOLDER.to_owned() });
        }
        change(&mut shared);
        Ok(())
    }

    fn ask<T>(
        &self,
        ask: impl FnOnce(&mut MemoryIndex) -> Result<T, CatalogError>,
    ) -> Result<T, CatalogError> {
        let shared = &mut *self.lock();
        let index = match &mut shared.index {
            Some(index) => index,
            none => none.insert(MemoryIndex::new()?),
        };
        index.update(shared.threads.iter().map(|(id, thread)| Source {
            id: *id,
            lines: &thread.lines,
            inherited: thread.inherited,
            bytes: thread.bytes,
            archived: thread.archived,
            name: thread.name.as_deref(),
        }))?;
        ask(index)
    }
}

impl Shared {
    fn thread(&self, id: ThreadId) -> Result<&MemoryThread, StoreError> {
        self.threads.get(&id).ok_or(StoreError::NotFound(id))
    }
}

/// Holder of an open thread, in errors. It can only be this program.
const HOLDER: &str = "another part of this program";

fn held(id: ThreadId) -> OpenError {
    OpenError::Held { id, holder: HOLDER.to_owned() }
}

/// The lines of a thread, copied into memory.
#[derive(Debug, Default)]
pub struct CopiedLines {
    thread: MemoryThread,
    /// Base instructions of the last head that contains any.
    instructions: Option<BaseInstructions>,
}

impl CopiedLines {
    /// Copies the next line.
    pub fn line(&mut self, line: &Line<'_>) {
        let mut bytes = Vec::new();
        copy(line, &mut bytes);
        self.push(line, bytes.into());
    }

    fn push(&mut self, line: &Line<'_>, bytes: Arc<[u8]>) {
        if line.kind == kind::SESSION_META {
            let head = serde_json::from_str::<SessionMeta>(line.payload.get()).ok();
            let instructions = head.and_then(|head| head.base_instructions);
            self.instructions = instructions.or(self.instructions.take());
        }
        let next = line.ordinal.map_or(0, |ordinal| ordinal.saturating_add(1));
        self.thread.next = self.thread.next.max(next);
        self.thread.push(bytes);
    }
}

impl MemoryThread {
    fn push(&mut self, line: Arc<[u8]>) {
        self.bytes += line.len() as u64;
        self.lines.push(line);
    }

    fn put(&mut self, timestamp: &str, record: &Record) {
        let mut line = Vec::new();
        encode(timestamp, Some(self.next), record, &mut line);
        self.next = self.next.saturating_add(1);
        self.push(line.into());
    }
}

impl ThreadStore for MemoryStore {
    fn create(&self, new: NewThread) -> StoreFuture<'_, Box<dyn ThreadLog>, OpenError> {
        Box::pin(async move {
            let NewThread { id, meta } = new;
            Ok(Box::new(self.begin(id, MemoryThread::default(), meta)) as Box<dyn ThreadLog>)
        })
    }

    fn open<'a>(&'a self, id: ThreadId, sink: LineSink<'a>) -> StoreFuture<'a, Opened, OpenError> {
        Box::pin(async move {
            let mut shared = self.lock();
            let thread = shared.threads.get_mut(&id).ok_or(StoreError::NotFound(id))?;
            if std::mem::replace(&mut thread.held, true) {
                return Err(held(id));
            }
            drop(shared);
            let log = MemoryLog { shared: Arc::clone(&self.shared), id, pending: None };
            let report = self.read_into(id, sink)?;
            Ok((Box::new(log) as Box<dyn ThreadLog>, report))
        })
    }

    fn read<'a>(&'a self, id: ThreadId, sink: LineSink<'a>) -> StoreFuture<'a, ReadReport> {
        Box::pin(async move { self.read_into(id, sink) })
    }

    fn fork<'a>(
        &'a self,
        id: ThreadId,
        new: NewThread,
        before: Option<u64>,
        sink: LineSink<'a>,
    ) -> StoreFuture<'a, Opened, OpenError> {
        Box::pin(async move {
            let source = self.lock().thread(id)?.lines.clone();
            let mut copied = CopiedLines::default();
            for bytes in source {
                let Some(line) = decode(&bytes).map(|decoded| decoded.line) else { continue };
                if before.is_some_and(|before| line.ordinal.is_some_and(|it| it >= before)) {
                    continue;
                }
                sink(&line);
                copied.push(&line, Arc::clone(&bytes));
            }
            let (lines, bytes) = (copied.thread.lines.len() as u64, copied.thread.bytes);
            let report = ReadReport { lines, bytes, ..ReadReport::default() };
            Ok((self.fork_lines(id, copied, new), report))
        })
    }

    fn find(&self, id: ThreadId) -> StoreFuture<'_, Option<Found>> {
        Box::pin(async move {
            let found = |thread: &MemoryThread| Found {
                path: None,
                archived: thread.archived,
                name: thread.name.clone(),
            };
            Ok(self.lock().threads.get(&id).map(found))
        })
    }

    fn archive(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError> {
        Box::pin(async move { self.set_archived(id, true) })
    }

    fn unarchive(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError> {
        Box::pin(async move { self.set_archived(id, false) })
    }

    fn delete(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError> {
        Box::pin(async move {
            self.manage(id, |shared| {
                shared.threads.remove(&id);
            })
        })
    }

    fn set_name<'a>(&'a self, id: ThreadId, name: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut shared = self.lock();
            let thread = shared.threads.get_mut(&id).ok_or(StoreError::NotFound(id))?;
            thread.name = Some(shown(name)).filter(|name| !name.is_empty());
            Ok(())
        })
    }
}

impl MemoryStore {
    fn set_archived(&self, id: ThreadId, archived: bool) -> Result<(), ManageError> {
        self.manage(id, |shared| {
            if let Some(thread) = shared.threads.get_mut(&id) {
                thread.archived = archived;
            }
        })
    }
}

impl MemoryLog {
    fn write(&mut self, records: &[Record]) -> Result<(), WriteError> {
        let mut shared = lock(&self.shared);
        let timestamp = format_time(Timestamp::now());
        if let Some(pending) = self.pending.take() {
            if shared.threads.contains_key(&self.id) {
                self.pending = Some(pending);
                return Err(failed(self.id, io::ErrorKind::AlreadyExists));
            }
            let (mut thread, mut meta) = *pending;
            meta.id.get_or_insert(self.id);
            meta.history_mode.get_or_insert_with(|| PAGINATED.to_owned());
            if meta.timestamp.is_empty() {
                meta.timestamp.clone_from(&timestamp);
            }
            thread.held = true;
            thread.put(&timestamp, &Record::SessionMeta(Box::new(meta)));
            shared.threads.insert(self.id, thread);
        }
        let thread = shared.threads.get_mut(&self.id);
        let thread = thread.ok_or_else(|| failed(self.id, io::ErrorKind::NotFound))?;
        records.iter().for_each(|record| thread.put(&timestamp, record));
        Ok(())
    }
}

fn failed(id: ThreadId, kind: io::ErrorKind) -> WriteError {
    let error_kind = match kind {
        io::ErrorKind::NotFound => WriteErrorKind::Gone,
        _ => WriteErrorKind::Other,
    };
    WriteError { place: format!("of {id} in memory"), kind: error_kind, source: kind.into() }
}

impl ThreadLog for MemoryLog {
    fn append(&mut self, records: Vec<Record>) -> LogFuture {
        Box::pin(ready(self.write(&records)))
    }

    fn sync(&mut self) -> LogFuture {
        Box::pin(ready(Ok(())))
    }
}

impl Drop for MemoryLog {
    fn drop(&mut self) {
        if self.pending.is_some() {
            return;
        }
        let mut shared = lock(&self.shared);
        match shared.lifetime {
            Lifetime::WhileOpen => drop(shared.threads.remove(&self.id)),
            Lifetime::UntilDeleted => {
                if let Some(thread) = shared.threads.get_mut(&self.id) {
                    thread.held = false;
                }
            }
        }
    }
}

impl Catalog for MemoryStore {
    fn list(&self, list: List) -> StoreFuture<'_, Page, CatalogError> {
        Box::pin(async move { self.ask(|index| index.list(&list)) })
    }

    fn search(&self, search: Search) -> StoreFuture<'_, Vec<Hit>, CatalogError> {
        Box::pin(async move { self.ask(|index| index.search(&search)) })
    }

    fn resolve<'a>(&'a self, text: &'a str) -> StoreFuture<'a, ThreadId, ResolveError> {
        Box::pin(async move { self.ask(|index| Ok(index.resolve(text)))? })
    }

    fn last<'a>(&'a self, cwd: Option<&'a str>) -> StoreFuture<'a, Option<ThreadId>, CatalogError> {
        Box::pin(async move {
            let page = self.ask(|index| index.list(&List::newest(cwd)))?;
            Ok(page.threads.first().map(|thread| thread.id))
        })
    }
}

/// Ignores poisoning: nothing done under this lock can panic half-way.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
