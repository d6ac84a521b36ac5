//! Reads one file of a thread: order, gaps, and damage.
//!
//! A file in which every ordinal follows the previous one is streamed. At the first one that does not, the
//! whole file is surveyed, so that lines are returned once and in order, whatever order the disk left them
//! in.

use std::collections::HashSet;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use log::{HistoryBase, Line, Record, kind};
use protocol::id::ThreadId;

use crate::disk::{Disk, DiskFile, Mode, read_range};
use crate::end::End;
use crate::head::is_head;
use crate::line::{Decoded, Hint, decode, encode, hint};
use crate::read::{DAMAGE_MAX, Damage, DamageKind, Note, NoteKind};
use crate::scan::{Body, Piece, scan};

/// One file of a thread, and how much of it is included.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) path: Arc<Path>,
    pub(crate) disk: Arc<dyn Disk>,
    /// The thread that the file belongs to.
    pub(crate) thread: ThreadId,
    /// When the thread was created, from its file name.
    pub(crate) made: String,
    /// The ordinal of its head.
    pub(crate) start: u64,
    pub(crate) base: Option<HistoryBase>,
    /// Where the included part ends.
    pub(crate) end_byte: u64,
    /// The first ordinal that is excluded.
    pub(crate) end_ordinal: Option<u64>,
    /// Whether it is known, and was reported, that the file ends earlier.
    pub(crate) short: bool,
    /// Whether it is the newest file of the thread that is read, and not one that it continues.
    pub(crate) own: bool,
    /// Where it ended when it was last synced.
    pub(crate) end: Option<End>,
}

/// A line that is passed to the sink.
#[derive(Debug)]
pub(crate) struct Given<'a> {
    pub(crate) line: &'a Line<'a>,
    /// Its text, without the line break.
    pub(crate) bytes: &'a [u8],
    /// Where it ends in its file.
    pub(crate) end: u64,
}

/// The result of reading a file.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) damage: Vec<Damage>,
    /// What is odd and was read correctly all the same.
    pub(crate) notes: Vec<Note>,
    pub(crate) lines: u64,
    /// The length of the file.
    pub(crate) bytes: u64,
    /// The first ordinal that was never used; none if lines have no ordinals.
    pub(crate) next: Option<u64>,
    /// Whether the line break of the last line is missing.
    pub(crate) open: bool,
    /// Where a torn end starts.
    pub(crate) torn_at: Option<u64>,
    /// Whether the first line is a valid head.
    pub(crate) headed: bool,
    /// The timestamp of the last line.
    pub(crate) timestamp: String,
}

pub(crate) type Sink<'s> = &'s mut dyn FnMut(&Given<'_>);

impl Part {
    /// Opens the file. Threads can have very many, so each is only open while it is read.
    pub(crate) fn open(&self) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(&self.path, Mode::Read)
    }

    /// Passes every included line to `sink`.
    pub(crate) fn read(&self, turn: &mut Option<String>, sink: Sink<'_>) -> io::Result<Outcome> {
        let file = &*self.open()?;
        let mut giver = Giver {
            part: self,
            file,
            sink,
            lines: 0,
            headed: None,
            head: None,
            timestamp: String::new(),
        };
        let mut track = Track { turn: turn.clone(), awaited: self.end, ..Track::default() };
        let mut order = Order::new(self.start);
        let (mut irregular, mut repeated, mut notes) = (None, Vec::new(), Vec::new());
        let mut failed = Ok(());
        scan(file, 0..self.end_byte, &mut |piece| {
            if let Body::Line { decoded, bytes, .. } = &piece.body {
                let ordinal = decoded.line.ordinal;
                if !self.counts(ordinal) {
                    return ControlFlow::Continue(());
                }
                if !order.follows(ordinal) || giver.is_head_again(&decoded.line, bytes) {
                    irregular = Some(piece.offset);
                    return ControlFlow::Break(());
                }
                failed = giver.give(&decoded.line, bytes, piece.offset + piece.length);
            }
            track.piece(&piece);
            if failed.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        failed?;
        if let Some(given_until) = irregular {
            let survey = self.survey(file, turn.clone())?;
            if survey.in_order {
                giver.rest(given_until, &survey.repeated)?;
            } else {
                giver.sorted(&survey.entries, given_until)?;
            }
            (track, order) = (survey.track, survey.order);
            (repeated, notes) = (survey.repeated, survey.notes);
        }
        giver.close()?;
        turn.clone_from(&track.turn);
        let mut outcome = self.outcome(track, order, &giver);
        outcome.notes = notes;
        outcome.damage.extend(repeated.into_iter().map(|Repeated { bytes, ordinal, .. }| {
            let length = bytes.end - bytes.start;
            self.damage(DamageKind::Repeated, bytes.start, length, ordinal)
        }));
        Ok(outcome)
    }

    /// Reads the whole file to learn what is where.
    fn survey(&self, file: &dyn DiskFile, turn: Option<String>) -> io::Result<Survey> {
        let mut track = Track { turn, awaited: self.end, ..Track::default() };
        let mut entries: Vec<Entry> = Vec::new();
        let mut in_order = true;
        let mut highest = None;
        scan(file, 0..self.end_byte, &mut |piece| {
            if let Body::Line { decoded, bytes, .. } = &piece.body {
                let ordinal = decoded.line.ordinal;
                if !self.counts(ordinal) {
                    return ControlFlow::Continue(());
                }
                in_order &= ordinal.is_none() || highest < ordinal;
                highest = highest.max(ordinal);
                // Only a checksum makes an ordinal trustworthy; other lines stay after their neighbour.
                let before = entries.last().map_or(0, |entry| entry.key);
                let key = ordinal.filter(|_| decoded.checked).unwrap_or(before);
                entries.push(Entry {
                    key,
                    ordinal,
                    offset: piece.offset,
                    text: bytes.len(),
                    length: piece.length,
                    sum: crc32c::crc32c(bytes),
                    head: decoded.line.kind == kind::SESSION_META,
                    checked: decoded.checked,
                });
            }
            track.piece(&piece);
            ControlFlow::Continue(())
        })?;
        let mut order = Order::new(self.start);
        if entries.first().is_some_and(|entry| entry.ordinal.is_none()) {
            order.follows(None);
        }
        let repeated = repeated(&entries);
        let notes = self.notes(&entries, &repeated);
        entries.sort_by_key(|entry| entry.key);
        let mut ordinals: Vec<u64> = entries.iter().filter_map(|entry| entry.ordinal).collect();
        ordinals.sort_unstable();
        ordinals.into_iter().for_each(|ordinal| order.pass(ordinal));
        Ok(Survey { entries, repeated, notes, in_order, track, order })
    }

    /// Names the lines that do not stand where their ordinals belong; `entries` are in the order of the file.
    fn notes(&self, entries: &[Entry], repeated: &[Repeated]) -> Vec<Note> {
        let mut notes: Vec<Note> = Vec::new();
        let mut seen = HashSet::new();
        let mut highest = None;
        for entry in entries {
            let Some(ordinal) = entry.ordinal else { continue };
            let is_new = seen.insert((ordinal, entry.text, entry.sum));
            let is_late = highest.is_some_and(|highest| ordinal <= highest);
            highest = highest.max(Some(ordinal));
            let at = repeated.partition_point(|again| again.bytes.end <= entry.offset);
            let is_copied = repeated.get(at).is_some_and(|it| it.bytes.contains(&entry.offset));
            let what = match (is_new, is_late, entry.checked) {
                _ if is_copied => continue,
                (false, ..) => NoteKind::Doubled,
                (true, false, _) => continue,
                (true, true, true) => NoteKind::Misplaced,
                (true, true, false) => NoteKind::Unordered,
            };
            match notes.last_mut() {
                Some(last)
                    if last.what == what
                        && last.offset + last.length == entry.offset
                        && last.lines.end == ordinal =>
                {
                    last.length += entry.length;
                    last.lines.end = ordinal.saturating_add(1);
                }
                _ => notes.push(Note {
                    file: Arc::clone(&self.path),
                    offset: entry.offset,
                    length: entry.length,
                    lines: ordinal..ordinal.saturating_add(1),
                    what,
                }),
            }
        }
        notes
    }

    fn counts(&self, ordinal: Option<u64>) -> bool {
        ordinal.is_none_or(|ordinal| self.end_ordinal.is_none_or(|end| ordinal < end))
    }

    fn outcome(&self, mut track: Track, mut order: Order, giver: &Giver<'_, '_>) -> Outcome {
        if let Some(end) = self.end_ordinal {
            if !self.short && order.expected < end && (order.numbered || !order.plain) {
                order.gaps.push(order.expected..end);
            }
            // Damage after the end does not affect the file that continues this one.
            track
                .broken
                .retain(|broken| broken.before.is_none_or(|before| before.saturating_add(1) < end));
        }
        let torn_at = track.broken.last().filter(|broken| broken.torn).map(|broken| broken.offset);
        let mut next = order.expected;
        let plain = order.plain && !order.numbered;
        if self.own && !plain {
            // Whatever is broken at the end was a line, and its ordinal is not reused. The line may state it,
            // but not claim more lines than there is room for.
            let tail = &track.broken[track.unfollowed..];
            let bytes: u64 = tail.iter().map(|broken| broken.length).sum();
            let lines: u64 = tail.iter().map(|broken| broken.lines).sum();
            let hint = tail.iter().filter_map(|broken| broken.highest).max();
            let hint = hint.filter(|hint| *hint <= next.saturating_add(bytes / PLAIN_LINE_BYTES));
            next = next.saturating_add(lines);
            next = next.max(hint.map_or(0, |hint| hint.saturating_add(1)));
            if next > order.expected {
                order.gaps.push(order.expected..next);
            }
        }
        let cut = self.cut(&track, &order, next, plain);
        if let Some(Cut { missing: Some(missing) }) = &cut {
            next = missing.end;
        }
        // An ordinal that cannot be there is not believed.
        let believable = self.start..next.max(self.end_ordinal.unwrap_or(0));
        for broken in &mut track.broken {
            broken.hint.ordinal = broken.hint.ordinal.filter(|hint| believable.contains(hint));
        }
        let mut damage = self.name(track.broken, &order.gaps);
        let headed = giver.headed == Some(true);
        if !headed && self.own {
            let start = self.start;
            let of_head = |damage: &&mut Damage| {
                let first = damage.missing.as_ref().is_some_and(|missing| missing.start == start);
                damage.offset == 0 && (damage.length > 0 || first)
            };
            match damage.iter_mut().find(of_head) {
                Some(damage) => damage.what = DamageKind::Head,
                None => {
                    let ordinal = (!order.plain).then_some(start);
                    damage.insert(0, self.damage(DamageKind::Head, 0, 0, ordinal));
                }
            }
        }
        if let Some(Cut { missing }) = cut {
            let first = missing.as_ref().map(|missing| missing.start);
            damage.push(Damage { missing, ..self.damage(DamageKind::Cut, track.end, 0, first) });
        }
        let plain = plain && giver.lines > 0;
        Outcome {
            damage,
            notes: Vec::new(),
            lines: giver.lines,
            bytes: track.end,
            next: (!plain).then_some(next),
            open: track.open && torn_at.is_none(),
            torn_at,
            headed,
            timestamp: giver.timestamp.clone(),
        }
    }

    /// Returns what is missing of what was synced. `next` is the first ordinal that the file itself does not
    /// know.
    fn cut(&self, track: &Track, order: &Order, next: u64, plain: bool) -> Option<Cut> {
        let end = self.end.filter(|_| self.own)?;
        if let Some(synced) = end.next.filter(|_| !plain)
            && next < synced
        {
            return Some(Cut { missing: Some(next..synced) });
        }
        // Another program may also have continued a truncated file, and used the same ordinals. Damage
        // explains by itself why a line is missing.
        let sound = track.broken.is_empty() && order.gaps.is_empty();
        let gone = track.end < end.bytes || (end.last.is_some() && !track.met);
        (sound && gone).then_some(Cut { missing: None })
    }

    /// Combines damage and gaps: each damage names the ordinals that are missing because of it.
    fn name(&self, broken: Vec<Broken>, gaps: &[Range<u64>]) -> Vec<Damage> {
        let gap_of = |broken: &Broken| {
            let at = |ordinal: u64| {
                let index = gaps.partition_point(|gap| gap.end <= ordinal);
                gaps.get(index).filter(|gap| gap.contains(&ordinal)).map(|_| index)
            };
            let hinted = broken.hint.ordinal.and_then(at);
            let after = || broken.before.map_or(Some(self.start), |before| before.checked_add(1));
            let behind = || broken.after.and_then(|after| after.checked_sub(1));
            hinted.or_else(|| after().and_then(at)).or_else(|| behind().and_then(at))
        };
        let claims: Vec<Option<usize>> = broken.iter().map(gap_of).collect();
        // The first ordinal of a gap that each damage covers; the next damage in the same gap limits it.
        let mut from: Vec<u64> = gaps.iter().map(|gap| gap.start).collect();
        let mut last: Vec<Option<usize>> = vec![None; gaps.len()];
        let mut damage: Vec<Damage> = Vec::with_capacity(broken.len());
        for (broken, claim) in broken.into_iter().zip(claims) {
            let what = if broken.torn { DamageKind::TornTail } else { DamageKind::Line };
            let mut named = self.damage(what, broken.offset, broken.length, broken.hint.ordinal);
            named.kind = broken.hint.kind;
            named.turn = broken.hint.turn.or(broken.turn);
            if let Some(index) = claim {
                let gap = &gaps[index];
                let hinted = broken.hint.ordinal.filter(|hint| *hint >= from[index]);
                let begin = match last[index] {
                    // The first one also covers everything missing before it.
                    None => gap.start,
                    Some(_) => hinted.unwrap_or(from[index]).min(gap.end),
                };
                if let Some(before) = last[index].and_then(|before| damage.get_mut(before)) {
                    before.missing = before.missing.take().map(|missing| missing.start..begin);
                }
                if begin < gap.end {
                    named.missing = Some(begin..gap.end);
                    named.ordinal = Some(named.ordinal.unwrap_or(begin));
                    let after = hinted.unwrap_or(begin).saturating_add(broken.lines);
                    from[index] = after.min(gap.end);
                    last[index] = Some(damage.len());
                }
            } else if named.ordinal.is_none() && broken.torn {
                named.ordinal = broken.before.map(|before| before.saturating_add(1));
            }
            damage.push(named);
        }
        for named in &mut damage {
            named.missing = named.missing.take().filter(|missing| !missing.is_empty());
        }
        for (gap, claimed) in gaps.iter().zip(last) {
            if claimed.is_none() {
                let mut named = self.damage(DamageKind::Gap, 0, 0, Some(gap.start));
                named.missing = Some(gap.clone());
                damage.push(named);
            }
        }
        damage
    }

    fn damage(&self, what: DamageKind, offset: u64, length: u64, ordinal: Option<u64>) -> Damage {
        let file = Arc::clone(&self.path);
        Damage { file, offset, length, ordinal, missing: None, kind: None, turn: None, what }
    }
}

/// Passes lines to the sink, the head first.
struct Giver<'p, 's> {
    part: &'p Part,
    file: &'p dyn DiskFile,
    sink: Sink<'s>,
    lines: u64,
    /// Whether the first line was the head; none before the first line.
    headed: Option<bool>,
    /// The checksum of a head without an ordinal.
    head: Option<u32>,
    timestamp: String,
}

impl Giver<'_, '_> {
    fn give(&mut self, line: &Line<'_>, bytes: &[u8], end: u64) -> io::Result<()> {
        if self.headed.is_none() {
            let good = is_head(line);
            self.headed = Some(good);
            self.head = (good && line.ordinal.is_none()).then(|| crc32c::crc32c(bytes));
            if !good {
                self.make_up(line.ordinal.is_some())?;
            }
        }
        self.lines += 1;
        self.timestamp.clear();
        self.timestamp.push_str(&line.timestamp);
        (self.sink)(&Given { line, bytes, end });
        Ok(())
    }

    /// Returns whether a line repeats the head. Without ordinals, nothing else shows that a log was appended
    /// to itself.
    fn is_head_again(&self, line: &Line<'_>, bytes: &[u8]) -> bool {
        line.ordinal.is_none()
            && line.kind == kind::SESSION_META
            && self.head.is_some_and(|head| head == crc32c::crc32c(bytes))
    }

    /// Passes on the lines from `given_until`, in the order of the file.
    fn rest(&mut self, given_until: u64, repeated: &[Repeated]) -> io::Result<()> {
        let part = self.part;
        let is_repeated = |offset: u64| {
            let at = repeated.partition_point(|again| again.bytes.end <= offset);
            repeated.get(at).is_some_and(|again| again.bytes.contains(&offset))
        };
        let mut failed = Ok(());
        scan(self.file, 0..part.end_byte, &mut |piece| {
            if let Body::Line { decoded, bytes, .. } = &piece.body
                && piece.offset >= given_until
                && !is_repeated(piece.offset)
                && part.counts(decoded.line.ordinal)
            {
                failed = self.give(&decoded.line, bytes, piece.offset + piece.length);
            }
            if failed.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        failed
    }

    /// Passes on lines in the order of their ordinals; of duplicates, the first.
    fn sorted(&mut self, entries: &[Entry], given_until: u64) -> io::Result<()> {
        let mut seen = HashSet::new();
        let mut key = None;
        for entry in entries {
            if key != Some(entry.key) {
                seen.clear();
                key = Some(entry.key);
            }
            let fresh =
                entry.ordinal.is_none() || seen.insert((entry.ordinal, entry.text, entry.sum));
            if !fresh || entry.offset < given_until {
                continue;
            }
            let bytes = read_range(self.file, entry.offset, entry.text)?;
            // It could be read a moment ago; if not any more, the disk is failing.
            let Some(Decoded { line, .. }) = decode(&bytes) else {
                return Err(io::Error::other("the file changes while it is read"));
            };
            self.give(&line, &bytes, entry.offset + entry.length)?;
        }
        Ok(())
    }

    /// Makes up a head if there were no lines.
    fn close(&mut self) -> io::Result<()> {
        if self.headed.is_none() {
            self.make_up(true)?;
        }
        Ok(())
    }

    fn make_up(&mut self, numbered: bool) -> io::Result<()> {
        // The file that continues this one has its own head.
        if !self.part.own {
            return Ok(());
        }
        let meta = self.part.made_up(self.file, numbered)?;
        let mut bytes = Vec::new();
        let ordinal = numbered.then_some(self.part.start);
        encode(&meta.timestamp.clone(), ordinal, &Record::SessionMeta(Box::new(meta)), &mut bytes);
        bytes.pop();
        let decoded = decode(&bytes).expect("what we encode can be decoded");
        (self.sink)(&Given { line: &decoded.line, bytes: &bytes, end: 0 });
        Ok(())
    }
}

/// The expected next ordinal.
#[derive(Debug)]
struct Order {
    expected: u64,
    gaps: Vec<Range<u64>>,
    /// Whether the first line had no ordinal, as in older files.
    plain: bool,
    numbered: bool,
}

impl Order {
    fn new(start: u64) -> Self {
        Self { expected: start, gaps: Vec::new(), plain: false, numbered: false }
    }

    /// Processes the next line of a file; false if it is not the expected one.
    fn follows(&mut self, ordinal: Option<u64>) -> bool {
        let Some(ordinal) = ordinal else {
            self.plain |= !self.numbered;
            return true;
        };
        if ordinal != self.expected {
            return false;
        }
        self.pass(ordinal);
        true
    }

    /// Processes the next ordinal, in order.
    fn pass(&mut self, ordinal: u64) {
        if self.plain && !self.numbered {
            self.expected = self.expected.max(ordinal);
        }
        self.numbered = true;
        if ordinal > self.expected {
            self.gaps.push(self.expected..ordinal);
        }
        self.expected = self.expected.max(ordinal.saturating_add(1));
    }
}

/// Lines that are missing at the end of a file.
#[derive(Debug)]
struct Cut {
    /// Their ordinals, if they are missing and were not reused.
    missing: Option<Range<u64>>,
}

/// What is observed while reading a file.
#[derive(Debug, Default)]
struct Track {
    turn: Option<String>,
    before: Option<u64>,
    broken: Vec<Broken>,
    /// Whether no line has followed the last of those yet.
    joins: bool,
    /// The first of those that no line with an ordinal has followed yet.
    unfollowed: usize,
    open: bool,
    end: u64,
    /// The last synced line, until it was found.
    awaited: Option<End>,
    met: bool,
}

/// A broken range, and what is around it.
#[derive(Debug)]
struct Broken {
    offset: u64,
    length: u64,
    torn: bool,
    /// How many lines it may have been.
    lines: u64,
    /// What the first of them says, and the highest ordinal stated.
    hint: Hint,
    highest: Option<u64>,
    turn: Option<String>,
    before: Option<u64>,
    after: Option<u64>,
}

impl Track {
    fn piece(&mut self, piece: &Piece<'_>) {
        self.end = piece.offset + piece.length;
        match &piece.body {
            Body::Line { decoded, open, bytes } => {
                self.open = *open;
                self.joins = false;
                if let Some(awaited) = self.awaited.filter(|awaited| awaited.bytes == self.end) {
                    self.met = awaited.last.is_none_or(|last| last == crc32c::crc32c(bytes));
                }
                if let Some(ordinal) = decoded.line.ordinal {
                    self.broken[self.unfollowed..].iter_mut().for_each(|broken| {
                        broken.after = Some(ordinal);
                    });
                    self.unfollowed = self.broken.len();
                    self.before = Some(ordinal);
                }
                self.note_turn(&decoded.line);
            }
            Body::Blank => self.open = false,
            Body::Broken { bytes, torn } => {
                self.open = *torn;
                let hint = hint(bytes);
                // Adjacent broken ranges are merged, unless a line in them still says which one it was. A
                // file of nothing else must not cost many times its length.
                let plain = hint == Hint::default() || self.broken.len() >= DAMAGE_MAX;
                if let Some(last) = self.broken.last_mut()
                    && self.joins
                    && plain
                    && !torn
                {
                    last.length = self.end - last.offset;
                    last.lines += 1;
                    last.highest = last.highest.max(hint.ordinal);
                    return;
                }
                self.joins = true;
                self.broken.push(Broken {
                    offset: piece.offset,
                    length: piece.length,
                    torn: *torn,
                    lines: 1,
                    highest: hint.ordinal,
                    hint,
                    turn: self.turn.clone(),
                    before: self.before,
                    after: None,
                });
            }
        }
    }

    fn note_turn(&mut self, line: &Line<'_>) {
        if let Some(turn) = log::turn_after(line) {
            self.turn = turn.map(Into::into);
        }
    }
}

/// The content of a file.
#[derive(Debug)]
struct Survey {
    /// Its lines, in order.
    entries: Vec<Entry>,
    /// Copies of the file within itself.
    repeated: Vec<Repeated>,
    notes: Vec<Note>,
    in_order: bool,
    track: Track,
    order: Order,
}

/// The location of a line.
#[derive(Debug)]
struct Entry {
    key: u64,
    ordinal: Option<u64>,
    offset: u64,
    /// Its length without the line break, and with it.
    text: usize,
    length: u64,
    sum: u32,
    /// Whether it claims to be the head of a file.
    head: bool,
    /// Whether its checksum matches, so that its ordinal is what was written.
    checked: bool,
}

/// A range of lines that are repeated in a file, byte for byte.
#[derive(Debug)]
struct Repeated {
    bytes: Range<u64>,
    /// The ordinal of the first of them.
    ordinal: Option<u64>,
    lines: u64,
}

/// Finds copies of the file within itself: the head again, and the following lines as long as they are
/// repeated. A single line that a disk has left twice is no damage. Lines without ordinals can be equal by
/// chance, so they must also come in the same order.
fn repeated(entries: &[Entry]) -> Vec<Repeated> {
    let mut found: Vec<Repeated> = Vec::new();
    let mut seen = HashSet::new();
    let mut in_copy = false;
    // The next line of a copy, where lines have no ordinals.
    let mut next = None;
    for (at, entry) in entries.iter().enumerate() {
        let is_like = |other: &Entry| (other.text, other.sum) == (entry.text, entry.sum);
        let is_again = match entry.ordinal {
            Some(ordinal) => !seen.insert((ordinal, entry.text, entry.sum)),
            None if at > 0 && entry.head && is_like(&entries[0]) => {
                next = Some(1);
                true
            }
            None => {
                next = next.filter(|next| entries.get(*next).is_some_and(is_like)).map(|at| at + 1);
                next.is_some()
            }
        };
        in_copy = is_again && (in_copy || entry.head);
        if !in_copy {
            continue;
        }
        let bytes = entry.offset..entry.offset + entry.length;
        match found.last_mut() {
            Some(last) if last.bytes.end == bytes.start => {
                last.bytes.end = bytes.end;
                last.lines += 1;
            }
            _ => found.push(Repeated { bytes, ordinal: entry.ordinal, lines: 1 }),
        }
    }
    found.retain(|again| again.lines > 1 || again.ordinal.is_none());
    found
}

/// Shortest realistic line, in bytes.
const PLAIN_LINE_BYTES: u64 = 64;
