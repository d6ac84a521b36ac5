//! Threads that leave this home, and threads that come into it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use protocol::id::ThreadId;
use protocol::rollout::kind;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::chain::read_head;
use crate::disk::{Mode, append_all, create_dirs, up_to_home};
use crate::files::Name;
use crate::line::{begin, seal};
use crate::part::is_head;
use crate::read::ReadReport;
use crate::scan::{Body, scan};
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
    /// The thread was in this home before, and was left as it is.
    Present,
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
        scan(&*part.file, 0..u64::MAX, &mut |piece| {
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
                let meta = part.made_up(numbered).map_err(io)?;
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
                        let entries = entries.into_iter();
                        queue.extend(entries.map(|entry| from.join(entry.name)));
                        continue;
                    }
                    Err(error) => ImportOutcome::Failed(error),
                },
                // Directories have other files, too.
                (Ok(_), None) if !named => continue,
                (Ok(_), None) => ImportOutcome::NotAThread,
                (Ok(_), Some(name)) if present.contains(&name.id) => ImportOutcome::Present,
                (Ok(_), Some(name)) => match self.copy_in(&from, &name) {
                    Ok((to, bases)) => {
                        queue.extend(bases);
                        ImportOutcome::Copied(to)
                    }
                    Err(error) => ImportOutcome::Failed(error),
                },
            };
            imported.push(Imported { from, id, outcome });
        }
        Ok(imported)
    }

    /// Copies a file. Returns where to, and the files that it continues.
    fn copy_in(&self, from: &Path, name: &Name) -> io::Result<(PathBuf, Vec<PathBuf>)> {
        let source = self.disk.open(from, Mode::Read)?;
        let home = home_of(from);
        let archived =
            from.parent().and_then(Path::file_name) == Some("archived_sessions".as_ref());
        let folder =
            if archived { self.archive_folder() } else { self.sessions().join(name.day()) };
        create_dirs(&*self.disk, &folder)?;
        let to = folder.join(name.file_name());
        let hidden = folder.join(format!(".{}.new", name.file_name()));
        match self.disk.remove(&hidden) {
            Err(error) if !crate::files::missing(&error) => return Err(error),
            _ => {}
        }
        let file = self.disk.open(&hidden, Mode::Create)?;
        let copy = || {
            let mut at = 0;
            loop {
                let chunk = crate::disk::read_range(&*source, at, COPY_BYTES)?;
                if chunk.is_empty() {
                    break;
                }
                append_all(&*file, &chunk)?;
                at += chunk.len() as u64;
            }
            file.sync_data()?;
            self.disk.rename(&hidden, &to)
        };
        if let Err(error) = copy() {
            let _ = self.disk.remove(&hidden);
            return Err(error);
        }
        for folder in up_to_home(&self.home, &folder) {
            self.disk.sync_dir(&folder)?;
        }
        let mut others = Vec::new();
        // What it continues: files of the thread itself beside it, and those of another.
        if name.segment.is_some() {
            others.push(name.id);
        }
        others.extend(read_head(&*source)?.base.map(|base| base.thread_id));
        let mut bases = Vec::new();
        if let Some(home) = home {
            let there = Self::with_disk(home, std::sync::Arc::clone(&self.disk));
            for id in others {
                let files = there.files(id).map_err(io::Error::other)?;
                bases.extend(files.into_iter().flat_map(|files| files.segments));
            }
        }
        Ok((to, bases))
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
        matches!(name, Some("sessions" | "archived_sessions"))
    };
    path.ancestors().skip(1).find(is_home_of)?.parent().map(Path::to_owned)
}

const COPY_BYTES: usize = 1 << 20;
