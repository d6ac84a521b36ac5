//! The index of threads in memory, with the same tables and queries as the one of files.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use protocol::id::ThreadId;
use rusqlite::Connection;

use super::query::{self, Hit, List, Page, Search};
use super::{CatalogError, ResolveError, db, meant, sync};

/// The index of threads in memory.
pub(crate) struct MemoryIndex {
    db: Connection,
    /// The state in which each thread was last indexed.
    known: HashMap<ThreadId, Known>,
}

#[derive(Debug, PartialEq, Eq)]
struct Known {
    lines: usize,
    archived: bool,
    name: Option<String>,
}

/// A thread in the store, to be indexed.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    pub(crate) id: ThreadId,
    pub(crate) lines: &'a [Arc<[u8]>],
    /// Number of lines copied from the thread it was forked from.
    pub(crate) inherited: usize,
    pub(crate) bytes: u64,
    pub(crate) archived: bool,
    pub(crate) name: Option<&'a str>,
}

impl fmt::Debug for MemoryIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryIndex").field("known", &self.known).finish_non_exhaustive()
    }
}

impl MemoryIndex {
    pub(crate) fn new() -> Result<Self, CatalogError> {
        Ok(Self { db: db::open_in_memory()?, known: HashMap::new() })
    }

    /// Indexes threads that have changed, and removes those that no longer exist.
    pub(crate) fn update<'a>(
        &mut self,
        threads: impl Iterator<Item = Source<'a>>,
    ) -> Result<(), CatalogError> {
        let mut gone = std::mem::take(&mut self.known);
        for thread in threads {
            let (lines, archived) = (thread.lines.len(), thread.archived);
            let now = Known { lines, archived, name: thread.name.map(str::to_owned) };
            if gone.remove(&thread.id).as_ref() != Some(&now) {
                sync::put_lines(&mut self.db, &thread)?;
            }
            self.known.insert(thread.id, now);
        }
        for id in gone.into_keys() {
            sync::forget(&mut self.db, id)?;
        }
        Ok(())
    }

    pub(crate) fn list(&self, list: &List) -> Result<Page, CatalogError> {
        list.check()?;
        Ok(query::list(&self.db, list)?)
    }

    pub(crate) fn search(&self, search: &Search) -> Result<Vec<Hit>, CatalogError> {
        search.check()?;
        search.check_expression(&self.db)??;
        Ok(query::search(&self.db, search)?)
    }

    pub(crate) fn resolve(&self, text: &str) -> Result<ThreadId, ResolveError> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let candidates = query::called(&self.db, text).map_err(CatalogError::from)?;
        meant(text, candidates)
    }
}
