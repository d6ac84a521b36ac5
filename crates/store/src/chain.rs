//! What a thread continues: forks continue another thread, reverts an older file of their own.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::rollout::{HistoryBase, SessionMeta};

use crate::disk::{DiskFile, read_range};
use crate::files::{Name, ThreadFiles, unusable};
use crate::line::{decode, hint};
use crate::part::{Part, is_head};
use crate::read::{Damage, DamageKind};
use crate::scan::{Body, scan};
use crate::store::{Store, StoreError};

/// The files that make up a thread, oldest first, and what is missing of them.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) parts: Vec<Part>,
    pub(crate) damage: Vec<Damage>,
}

/// What a file begins with.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(crate) meta: Option<SessionMeta>,
    /// What the file continues, also if its head is damaged and still tells.
    pub(crate) base: Option<HistoryBase>,
    /// The ordinal of its first line.
    pub(crate) first: Option<u64>,
    /// When it was written.
    pub(crate) written: Option<jiff::Timestamp>,
}

impl Store {
    /// Finds all files that a thread is made of.
    pub(crate) fn chain(&self, files: &ThreadFiles) -> Result<Chain, StoreError> {
        let mut chain = Chain::default();
        let mut part = self.part(&files.path)?;
        part.own = true;
        loop {
            let io = |source| StoreError::io(&part.path, source);
            let head = part.open().and_then(|file| read_head(&*file)).map_err(io)?;
            let mut base = head.base.clone().or_else(|| guess_base(&part.path, &head));
            if base.is_none() && head.meta.is_none() && head.first.is_none() {
                base = self.whole_before(files, &part)?;
            }
            let Some(base) = base else { break };
            part.start = base.end_ordinal_exclusive;
            part.base = Some(base.clone());
            let step = if chain.parts.len() + 1 >= DEPTH_MAX {
                None
            } else {
                self.base_part(&base, &part, head.written, &chain)?
            };
            let Some(next) = step else {
                let missing = (part.start > 0).then_some(0..part.start);
                chain.damage.push(Damage {
                    file: Arc::clone(&part.path),
                    offset: 0,
                    length: 0,
                    ordinal: missing.as_ref().map(|missing| missing.start),
                    missing,
                    kind: None,
                    turn: None,
                    what: DamageKind::Base,
                });
                break;
            };
            chain.parts.push(std::mem::replace(&mut part, next));
        }
        chain.parts.push(part);
        chain.parts.reverse();
        Ok(chain)
    }

    /// Stands in for what a file continues of which nothing can be read at all: everything before it.
    fn whole_before(
        &self,
        files: &ThreadFiles,
        part: &Part,
    ) -> Result<Option<HistoryBase>, StoreError> {
        let at = files.segments.iter().position(|path| **path == *part.path);
        let Some(before) = at.and_then(|at| files.segments.get(at.checked_sub(1)?)) else {
            return Ok(None);
        };
        let before = self.part(before)?;
        let io = |source| StoreError::io(&before.path, source);
        let outcome = match before.read(&mut None, &mut |_| {}) {
            Err(error) if unusable(&error) => return Ok(None),
            done => done.map_err(io)?,
        };
        Ok(outcome.next.map(|end_ordinal_exclusive| HistoryBase {
            thread_id: part.thread,
            end_ordinal_exclusive,
            end_byte_offset: u64::MAX,
        }))
    }

    /// Returns one file as a part that begins at nothing and counts to its end.
    pub(crate) fn part(&self, path: &Path) -> Result<Part, StoreError> {
        let name = path.file_name().and_then(|name| Name::parse(name.to_str()?));
        let Some(name) = name else {
            return Err(StoreError::io(path, io::Error::other("this is not the name of a thread")));
        };
        Ok(Part {
            path: path.into(),
            disk: Arc::clone(&self.disk),
            thread: name.id,
            made: name.made(),
            start: 0,
            base: None,
            end_byte: u64::MAX,
            end_ordinal: None,
            own: false,
        })
    }

    /// Finds the file that `base` is about. Several files of a thread can have the same ordinals; the
    /// right one is that in which the last line that counts ends where `base` says.
    pub(crate) fn base_part(
        &self,
        base: &HistoryBase,
        above: &Part,
        written: Option<jiff::Timestamp>,
        chain: &Chain,
    ) -> Result<Option<Part>, StoreError> {
        let Some(files) = self.files(base.thread_id)? else { return Ok(None) };
        let used = |path: &PathBuf| {
            **path == *above.path || chain.parts.iter().any(|part| *part.path == **path)
        };
        // Newest first, and nothing newer than what continues it.
        let mut candidates = Vec::new();
        for path in files.segments.iter().rev().filter(|path| !used(path)) {
            candidates.push(self.part(path)?);
        }
        if above.thread == base.thread_id {
            candidates.retain(|part| segment(&part.path) < segment(&above.path));
        }
        // What was begun later can only be meant if nothing else fits.
        candidates.sort_by_key(|part| written < segment(&part.path).and_then(time_of));
        let end = base.end_ordinal_exclusive;
        for part in &candidates {
            let io = |source| StoreError::io(&part.path, source);
            let file = match part.open() {
                Err(error) if unusable(&error) => continue,
                done => done.map_err(io)?,
            };
            if ends_at(&*file, base).map_err(io)? {
                let mut part = part.clone();
                (part.end_byte, part.end_ordinal) = (base.end_byte_offset, Some(end));
                return Ok(Some(part));
            }
        }
        for mut part in candidates {
            let io = |source| StoreError::io(&part.path, source);
            let head = match part.open() {
                Err(error) if unusable(&error) => continue,
                done => done.and_then(|file| read_head(&*file)).map_err(io)?,
            };
            let start = head.base.as_ref().map_or(head.first, |b| Some(b.end_ordinal_exclusive));
            if start.is_none_or(|start| start < end) {
                part.end_ordinal = Some(end);
                // Lines without ordinals can only be counted in bytes.
                if head.first.is_none() {
                    part.end_byte = base.end_byte_offset;
                }
                return Ok(Some(part));
            }
        }
        Ok(None)
    }
}

/// Reads what a file begins with. Only a file whose head is not at its beginning is read further.
pub(crate) fn read_head(file: &dyn DiskFile) -> io::Result<Head> {
    let mut head = Head::default();
    let mut at_start = true;
    scan(file, 0..u64::MAX, &mut |piece| {
        match &piece.body {
            Body::Line { decoded, .. } => {
                let line = &decoded.line;
                if head.first.is_none() {
                    head.first = line.ordinal;
                }
                if is_head(line) {
                    head.meta = serde_json::from_str(line.payload.get()).ok();
                    head.base = head.meta.as_ref().and_then(|meta| meta.history_base.clone());
                    head.first = line.ordinal.or(head.first);
                    head.written = line.timestamp.parse().ok();
                    return ControlFlow::Break(());
                }
            }
            Body::Blank => {}
            Body::Broken { bytes, .. } if at_start => {
                head.first = hint(bytes).ordinal;
                head.base = fish_base(bytes);
                if head.base.is_some() {
                    return ControlFlow::Break(());
                }
            }
            Body::Broken { .. } => {}
        }
        at_start = false;
        ControlFlow::Continue(())
    })?;
    Ok(head)
}

/// Looks for what a damaged head says about what it continues.
fn fish_base(bytes: &[u8]) -> Option<HistoryBase> {
    let at = memchr::memmem::find(bytes, BASE_KEY)? + BASE_KEY.len();
    let values = serde_json::Deserializer::from_slice(&bytes[at..]).into_iter::<HistoryBase>();
    values.into_iter().next()?.ok()
}

/// A later file of a thread always continues an earlier one; its first ordinal tells how far.
pub(crate) fn guess_base(path: &Path, head: &Head) -> Option<HistoryBase> {
    let name = Name::parse(path.file_name()?.to_str()?)?;
    name.segment.filter(|_| head.meta.is_none())?;
    // The first line that can be read comes after the head.
    let end = head.first?.saturating_sub(1);
    Some(HistoryBase { thread_id: name.id, end_ordinal_exclusive: end, end_byte_offset: u64::MAX })
}

fn segment(path: &Path) -> Option<uuid::Uuid> {
    Name::parse(path.file_name()?.to_str()?)?.segment
}

fn time_of(segment: uuid::Uuid) -> Option<jiff::Timestamp> {
    let (seconds, nanoseconds) = segment.get_timestamp()?.to_unix();
    jiff::Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanoseconds).ok()?).ok()
}

/// Tells whether the last line that counts ends in this file where `base` says.
fn ends_at(file: &dyn DiskFile, base: &HistoryBase) -> io::Result<bool> {
    let end = base.end_byte_offset;
    if end == 0 || end == u64::MAX {
        return Ok(false);
    }
    let mut length = END_BYTES.min(end);
    loop {
        let tail = read_range(file, end - length, usize::try_from(length).unwrap_or(0))?;
        let Some((b'\n', text)) = tail.split_last() else { return Ok(false) };
        if (tail.len() as u64) < length {
            return Ok(false);
        }
        let begin = memchr::memrchr(b'\n', text).map(|at| at + 1);
        let Some(begin) = begin.or((length == end).then_some(0)) else {
            if length >= crate::scan::LINE_BYTES_MAX as u64 {
                return Ok(false);
            }
            length = (length * 4).min(end);
            continue;
        };
        let line = text[begin..].strip_suffix(b"\r").unwrap_or(&text[begin..]);
        let ordinal = match decode(line) {
            Some(decoded) => decoded.line.ordinal,
            None => hint(line).ordinal,
        };
        return Ok(ordinal
            .is_some_and(|ordinal| ordinal.checked_add(1) == Some(base.end_ordinal_exclusive)));
    }
}

const BASE_KEY: &[u8] = b"\"history_base\":";
/// How many files a thread may be made of.
pub const DEPTH_MAX: usize = 1024;
/// How much of the end of a base is read first to find its last line.
const END_BYTES: u64 = 64 << 10;
