//! Checks files, and repairs them without moving a readable byte.

use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use log::{Record, Tombstone};
use protocol::id::ThreadId;

use crate::chain::{Chain, begun, guess_base, missing_base, read_head};
use crate::disk::{DiskFile, Mode, append_all, read_range, write_all_at};
use crate::end::{End, EndNote};
use crate::files::{Name, ThreadFiles};
use crate::head::is_head;
use crate::line::{begin, seal};
use crate::lock::{Lock, Taken};
use crate::log::format_time;
use crate::open::file_name;
use crate::part::{Outcome, Part};
use crate::read::{Damage, DamageKind, Note, bound};
use crate::scan::{Body, scan};
use crate::side::{Known, set_aside, side_path};
use crate::store::{FileStore, StoreError};

/// The result of a check.
#[derive(Debug, Default)]
pub struct Report {
    /// The files, ordered by thread.
    pub files: Vec<FileReport>,
}

/// The result of checking one file.
#[derive(Debug)]
pub struct FileReport {
    /// The thread that it belongs to.
    pub thread: ThreadId,
    pub path: PathBuf,
    pub archived: bool,
    /// Number of readable lines.
    pub lines: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Whether it starts with its head.
    pub headed: bool,
    /// The thread that it continues.
    pub base: Option<ThreadId>,
    /// A description of the process that has the thread open.
    pub held: Option<String>,
    /// Damage that remains after repairs: the first [`crate::DAMAGE_MAX`].
    pub damage: Vec<Damage>,
    /// The number of further ones.
    pub damage_more: u64,
    /// Repaired damage: the first [`crate::DAMAGE_MAX`].
    pub repaired: Vec<Damage>,
    /// The number of further ones.
    pub repaired_more: u64,
    /// What is odd and is read correctly all the same, so that it is no damage and stays as it is: the first
    /// [`crate::DAMAGE_MAX`].
    pub notes: Vec<Note>,
    /// The number of further ones.
    pub notes_more: u64,
    /// Why it could not be checked or repaired.
    pub error: Option<StoreError>,
}

impl FileReport {
    fn new(thread: ThreadId, path: PathBuf, archived: bool) -> Self {
        Self {
            thread,
            path,
            archived,
            lines: 0,
            bytes: 0,
            headed: false,
            base: None,
            held: None,
            damage: Vec::new(),
            damage_more: 0,
            repaired: Vec::new(),
            repaired_more: 0,
            notes: Vec::new(),
            notes_more: 0,
            error: None,
        }
    }
}

impl Report {
    /// Returns whether nothing is damaged and everything could be checked.
    pub fn is_clean(&self) -> bool {
        self.files.iter().all(|file| file.damage.is_empty() && file.error.is_none())
    }
}

impl FileStore {
    /// Checks one thread, or all of them, and with `repair` repairs what is possible. Calls `progress` with
    /// the number of finished files and the total.
    pub fn fsck(
        &self,
        only: Option<ThreadId>,
        repair: bool,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Report, StoreError> {
        let threads: Vec<ThreadFiles> = match only {
            Some(id) => {
                let found = self.files_everywhere(id)?;
                if found.is_none() && self.not_files(only)?.is_empty() {
                    return Err(StoreError::NotFound(id));
                }
                found.into_iter().collect()
            }
            None => self.threads()?.collect(),
        };
        let count = |thread: &ThreadFiles| thread.segments.len() + thread.copies.len();
        let total = threads.iter().map(count).sum();
        let mut report = Report::default();
        for thread in threads {
            let segments = thread.segments.iter().map(|path| (path, None));
            let copies = thread.copies.iter().map(|path| (path, original(path, &thread.segments)));
            for (path, twice) in segments.chain(copies) {
                progress(report.files.len(), total);
                let mut file = FileReport::new(thread.id, path.clone(), thread.archived);
                file.error = match twice {
                    Some(other) => Some(StoreError::Twice { path: path.clone(), other }),
                    None => self.check_file(&mut file, repair).err(),
                };
                file.damage_more = bound(&mut file.damage);
                file.repaired_more = bound(&mut file.repaired);
                file.notes_more = bound(&mut file.notes);
                report.files.push(file);
            }
        }
        for (thread, path, archived) in self.not_files(only)? {
            let error = Some(StoreError::NotAFile { path: path.clone() });
            report.files.push(FileReport { error, ..FileReport::new(thread, path, archived) });
        }
        progress(total, total);
        Ok(report)
    }

    fn check_file(&self, report: &mut FileReport, repair: bool) -> Result<(), StoreError> {
        let path = report.path.clone();
        let io = |source| StoreError::io(&path, source);
        if !repair {
            let held = Lock::holder(&*self.disk, &self.home, report.thread);
            report.held = held.map_err(io)?.map(|holder| holder.to_string());
            return self.check_part(report).map(|_| ());
        }
        let mut unable = None;
        let lock = match Lock::take(&self.disk, &self.home, report.thread) {
            Ok(Taken::Ours(lock)) => Some(lock),
            Ok(Taken::Held(holder)) => {
                report.held = Some(holder.to_string());
                None
            }
            // An intact file needs no repair.
            Err(error) => {
                unable = Some(error);
                None
            }
        };
        let (mut part, mut outcome) = self.check_part(report)?;
        if let Some(error) = unable.filter(|_| !report.damage.is_empty()) {
            return Err(StoreError::io(&self.home, error));
        }
        let before = report.damage.clone();
        // A repair can reveal what the damage was hiding, such as a head that is not the first line.
        for _ in 0..REPAIR_ROUNDS {
            let done = report.damage.iter().all(|damage| damage.what.is_elsewhere());
            // A process that has the thread open is in the middle of writing it.
            if lock.is_none() || done {
                break;
            }
            self.repair(&part, &outcome, &report.damage).map_err(io)?;
            (part, outcome) = self.check_part(report)?;
        }
        let key = |damage: &Damage| (damage.what, damage.offset, damage.missing.clone());
        let left: HashSet<_> = report.damage.iter().map(key).collect();
        report.repaired =
            before.into_iter().filter(|damage| !left.contains(&key(damage))).collect();
        Ok(())
    }

    fn check_part(&self, report: &mut FileReport) -> Result<(Part, Outcome), StoreError> {
        let path = report.path.clone();
        let io = |source| StoreError::io(&path, source);
        let mut part = self.part(&path)?;
        part.own = true;
        part.end = End::read(&*self.disk, &self.home, &path);
        let head = part.open().and_then(|file| read_head(&*file)).map_err(io)?;
        part.base = head.base.clone().or_else(|| guess_base(&path, &head));
        report.damage.clear();
        if let Some(base) = &part.base {
            part.start = base.end_ordinal_exclusive;
            report.base = Some(base.thread_id);
            match self.base_part(base, &part, &head, &Chain::default())? {
                None => report.damage.push(missing_base(&part)),
                Some(found) => report.damage.extend(found.damage),
            }
        }
        let mut outcome = part.read(&mut None, &mut |_| {}).map_err(io)?;
        // We can read lines out of order, but other programs expect the head in the first one.
        let headed = part.open().and_then(|file| begins_with_head(&*file)).map_err(io)?;
        if outcome.headed && !headed {
            outcome.headed = false;
            outcome.damage.push(Damage {
                file: path.as_path().into(),
                offset: 0,
                length: 0,
                ordinal: outcome.next.map(|_| part.start),
                missing: None,
                kind: None,
                turn: None,
                what: DamageKind::Head,
            });
        }
        let known = Known::read(&*self.disk, &path).map_err(io)?;
        let given_up = |damage: &Damage| {
            let missing = damage.missing.as_ref();
            damage.what.is_missing() && missing.is_some_and(|missing| known.gave_up(missing))
        };
        let damage = outcome.damage.iter().filter(|damage| !given_up(damage));
        report.damage.extend(damage.cloned());
        report.notes = std::mem::take(&mut outcome.notes);
        (report.lines, report.bytes, report.headed) =
            (outcome.lines, outcome.bytes, outcome.headed);
        Ok((part, outcome))
    }

    /// Repairs a file, after everything that will be overwritten was saved to another file.
    fn repair(&self, part: &Part, outcome: &Outcome, damage: &[Damage]) -> io::Result<()> {
        let path = &part.path;
        let own: Vec<&Damage> = damage.iter().filter(|d| !d.what.is_elsewhere()).collect();
        let file = self.disk.open(path, Mode::Edit)?;
        set_aside(&*self.disk, path, &*file, &own, true)?;
        let mut headless = !outcome.headed;
        // Before anything that it is made from is overwritten.
        let head = match headless {
            true => Some(self.head_for(part, &*file, outcome.next.is_some())?),
            false => None,
        };
        for damage in &own {
            if damage.length == 0 || Some(damage.offset) == outcome.torn_at {
                continue;
            }
            let room = usize::try_from(damage.length).unwrap_or(usize::MAX);
            let lead = damage.offset > 0 && read_range(&*file, damage.offset - 1, 1)? != b"\n";
            let stand_in;
            if damage.what == DamageKind::Head {
                let ordinal = outcome.next.map(|_| part.start);
                stand_in = head.as_ref().and_then(|(_, meta)| padded(room, lead, ordinal, meta));
                headless = stand_in.is_none();
            } else if damage.what == DamageKind::Repeated {
                stand_in = None;
            } else {
                stand_in = tombstone(path, room, lead, damage, outcome);
            }
            write_stretch(&*file, damage.offset, damage.length, lead, stand_in)?;
        }
        file.sync_data()?;
        // The end: truncated, terminated, and with a head if nothing else is left.
        let (opened, _) = self.make_whole(part, outcome, None)?;
        opened.file.sync_data()?;
        headless &= outcome.torn_at != Some(0) && opened.length > 0 && outcome.bytes > 0;
        match head {
            Some((begun, meta)) if headless => self.put_head(part, outcome, &begun, &meta),
            _ => Ok(()),
        }
    }

    /// Returns the head that a file should have, and when it was started, which determines what it can
    /// continue.
    fn head_for(
        &self,
        part: &Part,
        file: &dyn DiskFile,
        numbered: bool,
    ) -> io::Result<(String, Record)> {
        let found = read_head(file)?;
        let begun = found.written.or_else(|| begun(&part.path)).map(format_time);
        let meta = match found.meta {
            Some(meta) => meta,
            None => part.made_up(file, numbered)?,
        };
        Ok((begun.unwrap_or_else(|| part.made.clone()), Record::SessionMeta(Box::new(meta))))
    }

    /// Rewrites the file with a head at the start, through a temporary file.
    fn put_head(
        &self,
        part: &Part,
        outcome: &Outcome,
        begun: &str,
        meta: &Record,
    ) -> io::Result<()> {
        let path = &part.path;
        let hidden = path.with_file_name(format!(".{}.new", file_name(path)));
        match self.disk.remove(&hidden) {
            Err(error) if !crate::files::missing(&error) => return Err(error),
            _ => {}
        }
        let source = self.disk.open(path, Mode::Read)?;
        let file = self.disk.open(&hidden, Mode::Create)?;
        let mut head = Vec::new();
        let ordinal = outcome.next.map(|_| part.start);
        crate::line::encode(begun, ordinal, meta, &mut head);
        append_all(&*file, &head)?;
        let mut at = 0;
        loop {
            let chunk = read_range(&*source, at, COPY_BYTES)?;
            if chunk.is_empty() {
                break;
            }
            append_all(&*file, &chunk)?;
            at += chunk.len() as u64;
        }
        file.sync_data()?;
        self.disk.copy_mode(path, &hidden)?;
        self.disk.rename(&hidden, path)?;
        if let Some(end) = part.end {
            let end = End { bytes: head.len() as u64 + at, last: None, ..end };
            EndNote::new(&self.home, path).write(&*self.disk, end);
        }
        self.disk.sync_dir(path.parent().unwrap_or(Path::new("")))
    }
}

/// Returns the file that another one is a copy of.
fn original(copy: &Path, segments: &[PathBuf]) -> Option<PathBuf> {
    let segment = |path: &Path| Some(Name::parse(path.file_name()?.to_str()?)?.segment);
    segments.iter().find(|path| segment(path) == segment(copy)).cloned()
}

fn begins_with_head(file: &dyn DiskFile) -> io::Result<bool> {
    let mut found = false;
    scan(file, 0..u64::MAX, &mut |piece| {
        found = matches!(&piece.body, Body::Line { decoded, .. } if is_head(&decoded.line));
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// Overwrites a range of a file with a line, or with blanks; the range ends with a line break.
fn write_stretch(
    file: &dyn DiskFile,
    offset: u64,
    length: u64,
    lead: bool,
    stand_in: Option<Vec<u8>>,
) -> io::Result<()> {
    if let Some(bytes) = stand_in {
        return write_all_at(file, &bytes, offset);
    }
    let mut at = 0;
    while at < length {
        let count = (length - at).min(COPY_BYTES as u64);
        let mut blank = vec![b' '; usize::try_from(count).unwrap_or(COPY_BYTES)];
        if at == 0 && lead {
            blank[0] = b'\n';
        }
        at += count;
        if at == length
            && let Some(last) = blank.last_mut()
        {
            *last = b'\n';
        }
        write_all_at(file, &blank, offset + at - count)?;
    }
    Ok(())
}

/// Returns the replacement for a damaged line, if its ordinal is known and there is room.
fn tombstone(
    path: &Path,
    room: usize,
    lead: bool,
    damage: &Damage,
    outcome: &Outcome,
) -> Option<Vec<u8>> {
    let ordinal = damage.missing.as_ref().map(|missing| missing.start);
    // A line without an ordinal does not belong in a file where all have one.
    if outcome.next.is_some() && ordinal.is_none() {
        return None;
    }
    let whole = Tombstone { set_aside: file_name(&side_path(path)), kind: damage.kind.clone() };
    [whole, Tombstone::default()]
        .into_iter()
        .find_map(|tombstone| padded(room, lead, ordinal, &Record::Tombstone(Box::new(tombstone))))
}

/// Returns a line that is padded to exactly `room` bytes, if it fits.
fn padded(room: usize, lead: bool, ordinal: Option<u64>, record: &Record) -> Option<Vec<u8>> {
    if room > STAND_IN_BYTES_MAX {
        return None;
    }
    let mut out = Vec::with_capacity(room);
    out.extend(lead.then_some(b'\n'));
    let now = format_time(Timestamp::now());
    let start = begin(&now, ordinal, &mut out);
    let text = serde_json::to_string(record).ok()?;
    out.extend_from_slice(&text.as_bytes()[1..text.len() - 1]);
    let spaces = room.checked_sub(out.len() + crate::line::TRAILER_BYTES + 1)?;
    out.resize(out.len() + spaces, b' ');
    seal(start, &mut out);
    Some(out)
}

/// How often a file is repaired at most.
const REPAIR_ROUNDS: usize = 3;
const COPY_BYTES: usize = 1 << 20;
/// Longest range that gets a replacement line; a longer one is blanked, since a line of that length is of no
/// use.
const STAND_IN_BYTES_MAX: usize = 16 << 20;
