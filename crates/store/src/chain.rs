//! What a thread continues: forks continue another thread, reverts an older file of their own.

use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use log::{HistoryBase, Line, SessionMeta, kind, lenient};
use protocol::id::ThreadId;
use serde::Deserialize;

use crate::disk::{DiskFile, read_range};
use crate::end::End;
use crate::files::{Name, ThreadFiles, unusable};
use crate::head::is_head;
use crate::line::{decode, hint, written};
use crate::part::Part;
use crate::read::{Damage, DamageKind};
use crate::scan::{Body, scan};
use crate::side::Known;
use crate::store::{FileStore, StoreError};

/// The files of a thread, oldest first, and what is missing of them.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) parts: Vec<Part>,
    pub(crate) damage: Vec<Damage>,
}

/// What is known from the beginning of a file.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(crate) meta: Option<SessionMeta>,
    /// What the file continues, even if its head is damaged or odd but still says so.
    pub(crate) base: Option<HistoryBase>,
    /// The ordinal of its first line.
    pub(crate) first: Option<u64>,
    /// Whether it has lines without ordinals, as older programs wrote them.
    pub(crate) plain: bool,
    /// When it was written, or when a later line was if that is unknown.
    pub(crate) written: Option<jiff::Timestamp>,
    /// Whether it has our checksum: then no earlier line has a later timestamp.
    pub(crate) checked: bool,
}

/// What a file continues.
#[derive(Debug)]
pub(crate) struct Base {
    /// The file, and how much of it is included.
    pub(crate) part: Part,
    /// The problem, if it is not what it was when it was continued.
    pub(crate) damage: Option<Damage>,
}

impl FileStore {
    /// Finds all files of a thread.
    pub(crate) fn chain(&self, files: &ThreadFiles) -> Result<Chain, StoreError> {
        let mut chain = Chain::default();
        let mut part = self.part(&files.path)?;
        part.own = true;
        // Before the file is read, as its writer may continue meanwhile.
        part.end = End::read(&*self.disk, &self.home, &files.path);
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
                self.base_part(&base, &part, &head, &chain)?
            };
            let Some(Base { part: next, damage }) = step else {
                chain.damage.push(missing_base(&part));
                break;
            };
            chain.damage.extend(damage);
            chain.parts.push(std::mem::replace(&mut part, next));
        }
        chain.parts.push(part);
        chain.parts.reverse();
        Ok(chain)
    }

    /// A substitute for a continued file of which nothing can be read: everything before it.
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

    /// Returns one file as a part that continues nothing and is included completely.
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
            short: false,
            own: false,
            end: None,
        })
    }

    /// Finds the file that `base` refers to, for the file `above` with this head. Several files of a thread
    /// can have the same ordinals; the right one is that in which the last included line ends where `base`
    /// says. If there is none, the continued file has changed, and of its lines only those count that were
    /// not written later.
    pub(crate) fn base_part(
        &self,
        base: &HistoryBase,
        above: &Part,
        head: &Head,
        chain: &Chain,
    ) -> Result<Option<Base>, StoreError> {
        let Some(files) = self.files(base.thread_id)? else { return Ok(None) };
        let used = |path: &PathBuf| {
            **path == *above.path || chain.parts.iter().any(|part| *part.path == **path)
        };
        // Newest first, and nothing newer than the file that continues it.
        let mut candidates = Vec::new();
        for path in files.segments.iter().rev().filter(|path| !used(path)) {
            candidates.push(self.part(path)?);
        }
        if above.thread == base.thread_id {
            candidates.retain(|part| segment(&part.path) < segment(&above.path));
        }
        // A file that was created later is only considered if nothing else matches.
        candidates.sort_by_key(|part| head.written < begun(&part.path));
        let end = base.end_ordinal_exclusive;
        for part in &candidates {
            let io = |source| StoreError::io(&part.path, source);
            let file = match part.open() {
                Err(error) if unusable(&error) => continue,
                done => done.map_err(io)?,
            };
            if let Some(end_byte) = ends_at(&*file, base, head).map_err(io)? {
                let part = Part { end_byte, end_ordinal: Some(end), ..part.clone() };
                return Ok(Some(Base { part, damage: None }));
            }
        }
        for mut part in candidates {
            let io = |source| StoreError::io(&part.path, source);
            let file = match part.open() {
                Err(error) if unusable(&error) => continue,
                done => done.map_err(io)?,
            };
            let own = read_head(&*file).map_err(io)?;
            let start = own.base.as_ref().map_or(own.first, |b| Some(b.end_ordinal_exclusive));
            if start.is_some_and(|start| start >= end) {
                continue;
            }
            let Left { next, later } = left(&*file, end, head.written).map_err(io)?;
            part.end_ordinal = Some(end);
            part.end_byte = later.unwrap_or(u64::MAX);
            // Lines without ordinals can only be counted in bytes.
            if own.first.is_none() {
                part.end_byte = part.end_byte.min(base.end_byte_offset);
            }
            let from = next.max(start.unwrap_or(0));
            let missing = (own.first.is_some() && from < end).then_some(from..end);
            let known = Known::read(&*self.disk, &part.path).map_err(io)?;
            let missing = missing.filter(|missing| !known.gave_up(missing));
            // An unreadable head is reported as damage of its own, and names no place to look at.
            let named = head.meta.is_some() || missing.is_some();
            part.short = missing.is_some();
            let damage = named.then(|| about_base(above, missing, DamageKind::Changed));
            return Ok(Some(Base { part, damage }));
        }
        Ok(None)
    }
}

/// Creates the damage of a missing continued file.
pub(crate) fn missing_base(part: &Part) -> Damage {
    about_base(part, (part.start > 0).then_some(0..part.start), DamageKind::Base)
}

/// Creates the damage of a continued file, with the lines that are missing because of it.
fn about_base(part: &Part, missing: Option<Range<u64>>, what: DamageKind) -> Damage {
    Damage {
        file: Arc::clone(&part.path),
        offset: 0,
        length: 0,
        ordinal: missing.as_ref().map(|missing| missing.start),
        missing,
        kind: None,
        turn: None,
        what,
    }
}

/// What remains of a continued file that has changed.
#[derive(Debug, Default)]
struct Left {
    /// The ordinal after the highest included one.
    next: u64,
    /// Where the first line starts that was written later under an included ordinal.
    later: Option<u64>,
}

/// Finds how much of a file existed when it was continued.
fn left(file: &dyn DiskFile, end: u64, written: Option<jiff::Timestamp>) -> io::Result<Left> {
    let mut left = Left::default();
    scan(file, 0..u64::MAX, &mut |piece| {
        let Body::Line { decoded, .. } = &piece.body else { return ControlFlow::Continue(()) };
        let line = &decoded.line;
        let counts = line.ordinal.is_none_or(|ordinal| ordinal < end);
        if counts && is_later(line, written) {
            left.later = Some(piece.offset);
            return ControlFlow::Break(());
        }
        if let Some(ordinal) = line.ordinal.filter(|_| counts) {
            left.next = left.next.max(ordinal + 1);
        }
        ControlFlow::Continue(())
    })?;
    Ok(left)
}

/// Returns whether a line was written after `written`. A line that a repair wrote has the time of the repair.
fn is_later(line: &Line<'_>, written: Option<jiff::Timestamp>) -> bool {
    let stands_in = matches!(&*line.kind, kind::TOMBSTONE | kind::SESSION_META);
    let time = || line.timestamp.parse::<jiff::Timestamp>().ok();
    !stands_in && written.is_some_and(|written| time().is_some_and(|time| time > written))
}

/// Reads the head of a file. Only if the head is not the first line, more is read.
pub(crate) fn read_head_line(file: &dyn DiskFile) -> io::Result<Option<SessionMeta>> {
    let mut meta = None;
    scan(file, 0..HEAD_BYTES_MAX, &mut |piece| {
        if let Body::Line { decoded, .. } = &piece.body
            && is_head(&decoded.line)
        {
            meta = serde_json::from_str(decoded.line.payload.get()).ok();
        }
        match piece.body {
            Body::Blank => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    })?;
    Ok(meta)
}

/// How many bytes are searched for the head, for a file whose name does not say what it is.
const HEAD_BYTES_MAX: u64 = 4 << 20;

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
                head.plain |= line.ordinal.is_none();
                if !is_head(line) {
                    // Not earlier than the head, at least.
                    head.written = head.written.or_else(|| line.timestamp.parse().ok());
                } else {
                    head.meta = serde_json::from_str(line.payload.get()).ok();
                    head.first = line.ordinal.or(head.first);
                    head.base = head.meta.as_ref().and_then(|meta| said_base(meta, line));
                    head.written = line.timestamp.parse().ok();
                    head.checked = decoded.checked;
                    return ControlFlow::Break(());
                }
            }
            Body::Blank => {}
            Body::Broken { bytes, .. } if at_start => {
                (head.first, head.written) = (hint(bytes).ordinal, written(bytes));
                head.base = fish_base(bytes);
            }
            Body::Broken { .. } => {}
        }
        at_start = false;
        let enough = head.base.is_some() && head.written.is_some();
        if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(head)
}

/// Returns what a head says that it continues. Even an invalid reference has an ordinal, and the head names
/// the thread that it was forked from.
fn said_base(meta: &SessionMeta, line: &Line<'_>) -> Option<HistoryBase> {
    #[derive(Deserialize)]
    struct Says {
        #[serde(default, deserialize_with = "lenient")]
        history_base: Option<Loose>,
    }
    #[derive(Deserialize)]
    struct Loose {
        #[serde(default, deserialize_with = "lenient")]
        thread_id: Option<ThreadId>,
        #[serde(default, deserialize_with = "lenient")]
        end_ordinal_exclusive: Option<u64>,
        #[serde(default, deserialize_with = "lenient")]
        end_byte_offset: Option<u64>,
    }
    if let Some(base) = &meta.history_base {
        return Some(base.clone());
    }
    let says = serde_json::from_str::<Says>(line.payload.get()).ok();
    let loose = says.and_then(|says| says.history_base);
    let thread_id = loose.as_ref().and_then(|loose| loose.thread_id).or(meta.forked_from_id)?;
    let end = loose.as_ref().and_then(|loose| loose.end_ordinal_exclusive);
    let end = end.or(meta.forked_from_ordinal_exclusive).or(line.ordinal);
    Some(HistoryBase {
        thread_id,
        end_ordinal_exclusive: end.filter(|end| *end > 0)?,
        end_byte_offset: loose.and_then(|loose| loose.end_byte_offset).unwrap_or(u64::MAX),
    })
}

/// Searches a damaged head for what it continues.
fn fish_base(bytes: &[u8]) -> Option<HistoryBase> {
    let at = memchr::memmem::find(bytes, BASE_KEY)? + BASE_KEY.len();
    let values = serde_json::Deserializer::from_slice(&bytes[at..]).into_iter::<HistoryBase>();
    values.into_iter().next()?.ok()
}

/// A later file of a thread always continues an earlier one; its first ordinal says how far.
pub(crate) fn guess_base(path: &Path, head: &Head) -> Option<HistoryBase> {
    let name = Name::parse(path.file_name()?.to_str()?)?;
    name.segment.filter(|_| head.meta.is_none())?;
    // The first readable line comes after the head.
    let end = head.first?.saturating_sub(1);
    Some(HistoryBase { thread_id: name.id, end_ordinal_exclusive: end, end_byte_offset: u64::MAX })
}

fn segment(path: &Path) -> Option<uuid::Uuid> {
    Name::parse(path.file_name()?.to_str()?)?.segment
}

/// Returns when a later file of a thread was started, from its name.
pub(crate) fn begun(path: &Path) -> Option<jiff::Timestamp> {
    segment(path).and_then(time_of)
}

fn time_of(segment: uuid::Uuid) -> Option<jiff::Timestamp> {
    let (seconds, nanoseconds) = segment.get_timestamp()?.to_unix();
    jiff::Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanoseconds).ok()?).ok()
}

/// Returns where the last included line ends in this file, if it exists.
fn ends_at(file: &dyn DiskFile, base: &HistoryBase, head: &Head) -> io::Result<Option<u64>> {
    let end = base.end_byte_offset;
    if end == 0 || end == u64::MAX {
        return Ok(None);
    }
    // The clock of another program may have been slightly behind.
    let slack = if head.checked { jiff::SignedDuration::ZERO } else { CLOCK_SLACK };
    let written = head.written.and_then(|written| written.checked_add(slack).ok());
    if ends_in(file, end, base, written)? {
        return Ok(Some(end));
    }
    // If a repair inserted a head at the start, everything has moved.
    let moved = first_line(file)?.and_then(|length| end.checked_add(length));
    match moved {
        Some(moved) if ends_in(file, moved, base, written)? => Ok(Some(moved)),
        _ => Ok(None),
    }
}

/// Returns the length of the first line of a file, including its line break.
fn first_line(file: &dyn DiskFile) -> io::Result<Option<u64>> {
    let mut length = None;
    scan(file, 0..u64::MAX, &mut |piece| {
        length = matches!(&piece.body, Body::Line { decoded, .. } if is_head(&decoded.line))
            .then_some(piece.length);
        ControlFlow::Break(())
    })?;
    Ok(length)
}

/// Returns whether the last line that `base` refers to ends at `end`.
fn ends_in(
    file: &dyn DiskFile,
    end: u64,
    base: &HistoryBase,
    written: Option<jiff::Timestamp>,
) -> io::Result<bool> {
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
        let is_last = |ordinal: u64| ordinal.checked_add(1) == Some(base.end_ordinal_exclusive);
        return Ok(match decode(line) {
            Some(decoded) => {
                let last = decoded.line.ordinal.is_some_and(is_last);
                last && !is_later(&decoded.line, written)
            }
            // A line that is damaged, or was and is blank now, still ends at the same place.
            None => hint(line).ordinal.is_none_or(is_last),
        });
    }
}

const BASE_KEY: &[u8] = b"\"history_base\":";
/// Most files that a thread may consist of.
pub const DEPTH_MAX: usize = 1024;
/// How much of the end of a continued file is read first to find its last line.
const END_BYTES: u64 = 64 << 10;
/// How much later than the continuing file a line may appear to be written.
const CLOCK_SLACK: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);
