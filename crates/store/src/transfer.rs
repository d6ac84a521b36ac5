//! Threads that leave this home, and threads that come into it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use protocol::id::ThreadId;
use protocol::rollout::kind;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::chain::read_head;
use crate::disk::{DiskFile, Mode, append_all, create_dirs, read_range, up_to_home};
use crate::files::{Name, missing};
use crate::line::{begin, seal};
use crate::open::file_name;
use crate::part::is_head;
use crate::read::ReadReport;
use crate::scan::{Body, scan};
use crate::side::side_path;
use crate::store::{Store, StoreError};

/// What became of a file that was to be imported.
#[derive(Debug)]
pub struct Imported {
    /// The file.
    pub from: PathBuf,
    /// The thread that it belongs to.
    pub id: Option<ThreadId>,
    /// What became of it.
    pub outcome: ImportOutcome,
}

/// What became of a file that was to be imported.
#[derive(Debug)]
pub enum ImportOutcome {
    /// It is in this home now.
    Copied(PathBuf),
    /// The thread was in this home before, and was left as it is; or another file that was imported
    /// says as much or more.
    Present,
    /// It differs from this file of the same thread, which is in this home and was left as it is.
    Conflict(PathBuf),
    /// Its name is not that of a thread's file: `rollout-…-ID.jsonl`.
    NotAThread,
    /// It could not be read or written.
    Failed(io::Error),
}

/// A line with what others put beside its payload.
#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(borrow, default)]
    timestamp: Cow<'a, str>,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
}

impl Store {
    /// Writes a thread as one file that needs no other: with all that it continues, numbered anew,
    /// without what is damaged.
    pub fn export(&self, id: ThreadId, out: &mut dyn Write) -> Result<ReadReport, StoreError> {
        let files = self.files(id)?.ok_or(StoreError::NotFound(id))?;
        let chain = self.chain(&files)?;
        let part = chain.parts.last().expect("a chain ends in the thread's own file");
        let numbered = self.is_numbered(&chain)?;
        let io = |source| StoreError::io(&part.path, source);
        let mut next = numbered.then_some(0);
        let mut head = None;
        let file = part.open().map_err(io)?;
        scan(&*file, 0..u64::MAX, &mut |piece| {
            if let Body::Line { decoded, .. } = &piece.body
                && is_head(&decoded.line)
            {
                let payload = decoded.line.payload.get().to_owned();
                head = Some((decoded.line.timestamp.clone().into_owned(), payload));
                return std::ops::ControlFlow::Break(());
            }
            std::ops::ControlFlow::Continue(())
        })
        .map_err(io)?;
        let (timestamp, payload) = match head {
            Some(head) => head,
            None => {
                let meta = part.made_up(&*file, numbered).map_err(io)?;
                (meta.timestamp.clone(), serde_json::to_string(&meta).map_err(|e| io(e.into()))?)
            }
        };
        let payload = standing_alone(&payload);
        let head = Whole {
            timestamp: timestamp.into(),
            kind: kind::SESSION_META.into(),
            payload: &payload,
            metadata: None,
        };
        let output = Path::new("the output");
        let mut bytes = Vec::new();
        put(&head, &mut next, &mut bytes);
        let mut done = out.write_all(&bytes);
        let (report, _) = self.read_chain(&chain, &mut |_, given| {
            let dropped = matches!(&*given.line.kind, kind::SESSION_META | kind::TOMBSTONE);
            if dropped || done.is_err() {
                return;
            }
            // It was read as a line before, with less in it.
            if let Ok(whole) = serde_json::from_slice(given.bytes) {
                bytes.clear();
                put(&whole, &mut next, &mut bytes);
                done = out.write_all(&bytes);
            }
        })?;
        done.and_then(|()| out.flush()).map_err(|source| StoreError::io(output, source))?;
        Ok(report)
    }

    /// Takes files, or all files below directories, into this home, together with what they continue.
    /// Threads that are here already are left as they are.
    pub fn import(&self, paths: &[PathBuf]) -> Result<Vec<Imported>, StoreError> {
        let present: HashSet<ThreadId> = self.threads()?.map(|thread| thread.id).collect();
        let mut queue: Vec<PathBuf> = paths.iter().rev().cloned().collect();
        let mut seen: HashSet<PathBuf> = HashSet::new();
        let mut imported = Vec::new();
        let mut here: HashMap<Name, PathBuf> = HashMap::new();
        while let Some(from) = queue.pop() {
            if !seen.insert(from.clone()) {
                continue;
            }
            let named = paths.contains(&from);
            let name = from.file_name().and_then(|name| Name::parse(name.to_str()?));
            let id = name.as_ref().map(|name| name.id);
            let outcome = match (self.disk.metadata(&from), name) {
                (Err(error), _) => ImportOutcome::Failed(error),
                (Ok(found), _) if found.is_dir => match self.disk.list(&from) {
                    Ok(mut entries) => {
                        entries.sort_by(|a, b| b.name.cmp(&a.name));
                        // Links can lead in circles, and out of what was named.
                        let entries = entries.into_iter().filter(|entry| !entry.linked);
                        queue.extend(entries.map(|entry| from.join(entry.name)));
                        continue;
                    }
                    Err(error) => ImportOutcome::Failed(error),
                },
                // Directories have other files, too.
                (Ok(_), None) if !named => continue,
                (Ok(_), None) => ImportOutcome::NotAThread,
                (Ok(_), Some(name)) if present.contains(&name.id) => ImportOutcome::Present,
                (Ok(_), Some(name)) => self
                    .take_in(&from, name, &mut here)
                    .and_then(|outcome| {
                        if matches!(outcome, ImportOutcome::Copied(_)) {
                            queue.extend(self.continued_by(&from)?);
                        }
                        Ok(outcome)
                    })
                    .unwrap_or_else(ImportOutcome::Failed),
            };
            imported.push(Imported { from, id, outcome });
        }
        Ok(imported)
    }

    /// Copies a file into this home, unless one of its name is there that says as much or more.
    fn take_in(
        &self,
        from: &Path,
        mut name: Name,
        here: &mut HashMap<Name, PathBuf>,
    ) -> io::Result<ImportOutcome> {
        let archived = from.parent().and_then(Path::file_name) == Some(ARCHIVE.as_ref());
        let folder =
            if archived { self.archive_folder() } else { self.sessions().join(name.day()) };
        let mut to = folder.join(name.file_name());
        // The same file may have come from elsewhere under another time, or into the other place.
        name.stamp.clear();
        if let Some(before) = here.get(&name) {
            to.clone_from(before);
        }
        let source = self.disk.open(from, Mode::Read)?;
        let there = match self.disk.open(&to, Mode::Read) {
            Err(error) if missing(&error) => None,
            done => Some(done?),
        };
        let outcome = match there {
            Some(there) => match compare(&*source, &*there)? {
                Likeness::Same | Likeness::Shorter => ImportOutcome::Present,
                Likeness::Different => ImportOutcome::Conflict(to.clone()),
                Likeness::Longer => self.copy_with_side(from, &*source, &to)?,
            },
            None => self.copy_with_side(from, &*source, &to)?,
        };
        here.insert(name, to);
        Ok(outcome)
    }

    /// Copies a file, and what was set aside of it.
    fn copy_with_side(
        &self,
        from: &Path,
        source: &dyn DiskFile,
        to: &Path,
    ) -> io::Result<ImportOutcome> {
        let aside = side_path(to);
        match self.disk.open(&side_path(from), Mode::Read) {
            Err(error) if missing(&error) => {}
            side => {
                let side = side?;
                if self.disk.metadata(&aside).is_err() {
                    self.copy(&*side, &aside)?;
                }
            }
        }
        self.copy(source, to)
    }

    fn copy(&self, source: &dyn DiskFile, to: &Path) -> io::Result<ImportOutcome> {
        let folder = to.parent().unwrap_or(Path::new(""));
        create_dirs(&*self.disk, folder)?;
        let hidden = folder.join(format!(".{}.new", file_name(to)));
        match self.disk.remove(&hidden) {
            Err(error) if !missing(&error) => return Err(error),
            _ => {}
        }
        let file = self.disk.open(&hidden, Mode::Create)?;
        let copy = || {
            let mut at = 0;
            loop {
                let chunk = read_range(source, at, COPY_BYTES)?;
                if chunk.is_empty() {
                    break;
                }
                append_all(&*file, &chunk)?;
                at += chunk.len() as u64;
            }
            file.sync_data()?;
            self.disk.rename(&hidden, to)
        };
        if let Err(error) = copy() {
            let _ = self.disk.remove(&hidden);
            return Err(error);
        }
        for folder in up_to_home(&self.home, folder) {
            self.disk.sync_dir(&folder)?;
        }
        Ok(ImportOutcome::Copied(to.to_owned()))
    }

    /// Returns the files that a file may continue: those of the thread itself beside it, and those of
    /// another.
    fn continued_by(&self, from: &Path) -> io::Result<Vec<PathBuf>> {
        let name = from.file_name().and_then(|name| Name::parse(name.to_str()?));
        let mut others = Vec::new();
        others.extend(name.filter(|name| name.segment.is_some()).map(|name| name.id));
        let source = self.disk.open(from, Mode::Read)?;
        others.extend(read_head(&*source)?.base.map(|base| base.thread_id));
        let mut bases = Vec::new();
        if let Some(home) = home_of(from) {
            let there = Self::with_disk(home, std::sync::Arc::clone(&self.disk));
            for id in others {
                let files = there.files(id).map_err(|error| match error {
                    StoreError::Io { source, .. } => source,
                    error => io::Error::other(error),
                })?;
                bases.extend(files.into_iter().flat_map(|files| files.segments));
            }
        }
        Ok(bases)
    }
}

/// How a file compares with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Likeness {
    Same,
    /// The other one begins with it.
    Shorter,
    /// It begins with the other one.
    Longer,
    Different,
}

pub(crate) fn compare(one: &dyn DiskFile, other: &dyn DiskFile) -> io::Result<Likeness> {
    let mut at = 0;
    loop {
        let a = read_range(one, at, COPY_BYTES)?;
        let b = read_range(other, at, COPY_BYTES)?;
        let shared = a.len().min(b.len());
        if a[..shared] != b[..shared] {
            return Ok(Likeness::Different);
        }
        match a.len().cmp(&b.len()) {
            Ordering::Less => return Ok(Likeness::Shorter),
            Ordering::Greater => return Ok(Likeness::Longer),
            Ordering::Equal if a.is_empty() => return Ok(Likeness::Same),
            Ordering::Equal => at += shared as u64,
        }
    }
}

/// Appends a line under the next ordinal.
fn put(line: &Whole<'_>, next: &mut Option<u64>, out: &mut Vec<u8>) {
    let quoted = |text: &str| serde_json::to_string(text).expect("text can be quoted");
    // Another program may have put anything there.
    let timestamp = quoted(&line.timestamp);
    let start = begin(&timestamp[1..timestamp.len() - 1], *next, out);
    // Writing to memory cannot fail.
    let _ = write!(out, "\"type\":{},\"payload\":{}", quoted(&line.kind), line.payload.get());
    if let Some(metadata) = line.metadata {
        let _ = write!(out, ",\"metadata\":{}", metadata.get());
    }
    seal(start, out);
    *next = next.map(|next| next + 1);
}

/// Takes out of a head what refers to other files.
fn standing_alone(payload: &str) -> Box<RawValue> {
    let head = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(payload);
    let mut head = head.unwrap_or_default();
    for key in ["history_base", "forked_from_id", "forked_from_ordinal_exclusive"] {
        head.remove(key);
    }
    serde_json::value::to_raw_value(&head).expect("a head is plain data")
}

/// Returns the home that a file lies in.
fn home_of(path: &Path) -> Option<PathBuf> {
    let is_home_of = |folder: &&Path| {
        let name = folder.file_name().and_then(|name| name.to_str());
        matches!(name, Some("sessions" | ARCHIVE))
    };
    path.ancestors().skip(1).find(is_home_of)?.parent().map(Path::to_owned)
}

const ARCHIVE: &str = "archived_sessions";
const COPY_BYTES: usize = 1 << 20;
