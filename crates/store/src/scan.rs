//! Splits a file into lines, whatever is in it.
//!
//! Every byte ends up in exactly one piece: a line, a blank, or something broken. The cost is linear in the
//! file, and memory holds at most its longest line, up to [`LINE_BYTES_MAX`], and a few blocks.

use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::mpsc;
use std::thread;

use crate::disk::{DiskFile, Metadata, read_past_errors};
use crate::line::{Decoded, START, TRAILER, TRAILER_BYTES, checksum, decode};

/// Longest line that is read; a longer one counts as damage.
pub const LINE_BYTES_MAX: usize = 256 << 20;

/// A range of a file.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) offset: u64,
    /// Including the line break, if there is one.
    pub(crate) length: u64,
    pub(crate) body: Body<'a>,
}

/// The content of a range.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    Line {
        decoded: Decoded<'a>,
        /// Its text, without the line break.
        bytes: &'a [u8],
        /// Whether the line break is missing.
        open: bool,
    },
    /// Only whitespace.
    Blank,
    /// Not a line.
    Broken {
        /// The part of it that is in memory.
        bytes: &'a [u8],
        /// Whether the file ends in it, in the middle of a line.
        torn: bool,
    },
}

pub(crate) type Each<'e> = &'e mut dyn FnMut(Piece<'_>) -> ControlFlow<()>;

/// Splits the bytes of `file` in `range` into pieces, in order. Stops early if `each` breaks.
pub(crate) fn scan(file: &dyn DiskFile, range: Range<u64>, each: Each<'_>) -> io::Result<()> {
    scan_bounded(file, range, LINE_BYTES_MAX, each)
}

fn scan_bounded(
    file: &dyn DiskFile,
    range: Range<u64>,
    line_bytes_max: usize,
    each: Each<'_>,
) -> io::Result<()> {
    thread::scope(|scope| {
        let mut source = Source::Here(Reader { file, at: range.start, end: range.end });
        let mut held = Block::default();
        // Where the next line starts in memory and in the file, and up to where its end was searched for.
        let (mut start, mut offset, mut searched) = (0, range.start, 0);
        // Where an overlong line starts that is discarded, and how it begins.
        let mut skipped: Option<(u64, Vec<u8>)> = None;
        loop {
            while let Some(found) = memchr::memchr(b'\n', &held.bytes[searched..held.filled]) {
                let end = searched + found + 1;
                let raw = &held.bytes[start..end];
                let after = offset + raw.len() as u64;
                let flow = match skipped.take() {
                    Some((from, head)) => each(overlong(from, after - from, &head, false)),
                    None if raw.len() > line_bytes_max => {
                        each(overlong(offset, after - offset, head_of(raw), false))
                    }
                    None => line(raw, offset, each),
                };
                if flow.is_break() {
                    return Ok(());
                }
                (start, offset, searched) = (end, after, end);
            }
            let rest = &held.bytes[start..held.filled];
            if skipped.is_none() && rest.len() >= line_bytes_max {
                skipped = Some((offset, head_of(rest).to_vec()));
            }
            if skipped.is_some() {
                offset += rest.len() as u64;
                start = held.filled;
            }
            let next = source.next(scope)?;
            if next.is_empty() {
                let rest = &held.bytes[start..held.filled];
                let _ = match skipped {
                    Some((from, head)) => each(overlong(from, offset - from, &head, true)),
                    None if !rest.is_empty() => line(rest, offset, each),
                    None => ControlFlow::Continue(()),
                };
                return Ok(());
            }
            let unended = held.filled - start;
            source.reuse(held.join(next, &mut start));
            searched = start + unended;
        }
    })
}

/// A block of a file in memory, with room before it for the start of its first line.
#[derive(Debug, Default)]
struct Block {
    /// The data is after the room, up to `filled`.
    bytes: Vec<u8>,
    filled: usize,
}

impl Block {
    fn is_empty(&self) -> bool {
        self.filled <= ROOM_BYTES
    }

    /// Appends `next` to what is left of this one from `start` on. Returns the block that is no longer
    /// needed.
    fn join(&mut self, mut next: Self, start: &mut usize) -> Self {
        let rest = &self.bytes[*start..self.filled];
        if let Some(at) = ROOM_BYTES.checked_sub(rest.len()) {
            next.bytes[at..ROOM_BYTES].copy_from_slice(rest);
            *start = at;
            return std::mem::replace(self, next);
        }
        self.bytes.truncate(self.filled);
        self.bytes.drain(..*start);
        self.bytes.extend_from_slice(&next.bytes[ROOM_BYTES..next.filled]);
        self.filled = self.bytes.len();
        *start = 0;
        next
    }
}

#[derive(Clone, Copy, Debug)]
struct Reader<'f> {
    file: &'f dyn DiskFile,
    at: u64,
    end: u64,
}

impl Reader<'_> {
    /// Fills a block with the next bytes; an empty block means the end.
    fn fill(&mut self, mut block: Block) -> io::Result<Block> {
        let bytes = if self.at == 0 { FIRST_BYTES } else { BLOCK_BYTES };
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        block.bytes.resize(ROOM_BYTES + bytes.min(left), 0);
        let count = read_past_errors(self.file, &mut block.bytes[ROOM_BYTES..], self.at)?;
        self.at += count as u64;
        block.filled = ROOM_BYTES + count;
        Ok(block)
    }
}

/// Where blocks come from.
enum Source<'f> {
    /// Read on demand, for most files.
    Here(Reader<'f>),
    /// Read ahead by another thread, for long files.
    Ahead { blocks: mpsc::Receiver<io::Result<Block>>, used: mpsc::Sender<Block> },
}

impl<'f> Source<'f> {
    fn next<'s>(&mut self, scope: &'s thread::Scope<'s, '_>) -> io::Result<Block>
    where
        'f: 's,
    {
        if let Self::Here(reader) = self
            && reader.at >= AHEAD_FROM_BYTES
            && let Ok(ahead) = Self::ahead(*reader, scope)
        {
            *self = ahead;
        }
        match self {
            Self::Here(reader) => reader.fill(Block::default()),
            Self::Ahead { blocks, .. } => blocks.recv().map_err(io::Error::other)?,
        }
    }

    fn ahead<'s>(mut reader: Reader<'f>, scope: &'s thread::Scope<'s, '_>) -> io::Result<Self>
    where
        'f: 's,
    {
        let (send, blocks) = mpsc::sync_channel(BLOCKS_AHEAD);
        let (used, reuse) = mpsc::channel();
        thread::Builder::new().name("read-ahead".to_owned()).spawn_scoped(scope, move || {
            loop {
                let block = reader.fill(reuse.try_recv().unwrap_or_default());
                let last = block.as_ref().map_or(true, Block::is_empty);
                // The receiver is gone if enough was seen.
                if send.send(block).is_err() || last {
                    return;
                }
            }
        })?;
        Ok(Self::Ahead { blocks, used })
    }

    fn reuse(&self, block: Block) {
        // A block that grew with a long line is freed.
        if let Self::Ahead { used, .. } = self
            && block.bytes.capacity() <= 2 * BLOCK_BYTES
        {
            let _ = used.send(block);
        }
    }
}

fn head_of(line: &[u8]) -> &[u8] {
    &line[..line.len().min(HEAD_BYTES)]
}

/// A range of bytes, and how a reader interprets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub range: Range<u64>,
    pub what: Reading,
}

/// How a reader interprets a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A line whose checksum matches.
    Checked,
    /// A line without a checksum.
    Believed,
    /// Only whitespace.
    Blank,
    /// Damage.
    Broken,
}

/// Returns how a reader interprets the bytes of a file; the ranges cover all of them, in order.
pub fn stretches(bytes: &[u8]) -> Vec<Stretch> {
    stretches_bounded(bytes, LINE_BYTES_MAX)
}

fn stretches_bounded(bytes: &[u8], line_bytes_max: usize) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    let file = Memory(bytes.to_vec());
    let scanned = scan_bounded(&file, 0..u64::MAX, line_bytes_max, &mut |piece| {
        let what = match &piece.body {
            Body::Line { decoded, .. } if decoded.checked => Reading::Checked,
            Body::Line { .. } => Reading::Believed,
            Body::Blank => Reading::Blank,
            Body::Broken { .. } => Reading::Broken,
        };
        stretches.push(Stretch { range: piece.offset..piece.offset + piece.length, what });
        ControlFlow::Continue(())
    });
    scanned.expect("memory can be read");
    stretches
}

fn overlong(offset: u64, length: u64, head: &[u8], torn: bool) -> Piece<'_> {
    Piece { offset, length, body: Body::Broken { bytes: head, torn } }
}

/// Passes on a line with its line break, or what can be recovered of it.
fn line(raw: &[u8], offset: u64, each: Each<'_>) -> ControlFlow<()> {
    let (text, open) = match raw.strip_suffix(b"\n") {
        Some(text) => (text, false),
        None => (raw, true),
    };
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let length = raw.len() as u64;
    if let Some(decoded) = decode(text) {
        return each(Piece { offset, length, body: Body::Line { decoded, bytes: text, open } });
    }
    if text.trim_ascii().is_empty() {
        return each(Piece { offset, length, body: Body::Blank });
    }
    let mut at = 0;
    for found in salvage(text) {
        if found.start > at {
            let bytes = &raw[at..found.start];
            let length = bytes.len() as u64;
            let body = Body::Broken { bytes, torn: false };
            each(Piece { offset: offset + at as u64, length, body })?;
        }
        let bytes = &raw[found.clone()];
        // The line break belongs to the last line found.
        at = if found.end == text.len() { raw.len() } else { found.end };
        let decoded = decode(bytes).expect("what is salvaged was decoded before");
        each(Piece {
            offset: offset + found.start as u64,
            length: (at - found.start) as u64,
            body: Body::Line { decoded, bytes, open: at == raw.len() && open },
        })?;
    }
    if at == raw.len() {
        return ControlFlow::Continue(());
    }
    let bytes = &raw[at..];
    let body = Body::Broken { bytes, torn: open };
    each(Piece { offset: offset + at as u64, length: bytes.len() as u64, body })
}

/// Finds complete lines inside a broken one, as when a line break became another byte.
fn salvage(text: &[u8]) -> Vec<Range<usize>> {
    let checked = checked_lines(text);
    let mut found = Vec::new();
    let mut at = 0;
    for line in checked {
        // Between lines with a checksum there may be one without.
        plain_lines(text, at..line.start, &mut found);
        at = line.end;
        found.push(line);
    }
    plain_lines(text, at..text.len(), &mut found);
    found
}

/// Finds lines whose checksum matches. Each end is tried with the nearest few starts before it, the outermost
/// first; their checksums are computed incrementally, so that the cost is linear.
fn checked_lines(text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut starts = memchr::memmem::find_iter(text, START).peekable();
    // Starts, each with the checksum of what follows up to a position.
    let mut open: Vec<(usize, u32, usize)> = Vec::new();
    let mut done = 0;
    for trailer in memchr::memmem::find_iter(text, TRAILER) {
        while let Some(start) = starts.next_if(|start| *start < trailer) {
            if start >= done {
                if open.len() == OPEN_MAX {
                    open.remove(0);
                }
                open.push((start, 0, start));
            }
        }
        let end = trailer + TRAILER_BYTES;
        let Some((_, sum)) = text.get(done..end).and_then(checksum) else { continue };
        let matching = open.iter_mut().find_map(|(start, carried, upto)| {
            *carried = crc32c::crc32c_append(*carried, &text[*upto..trailer]);
            *upto = trailer;
            (*carried == sum && decode(&text[*start..end]).is_some()).then_some(*start)
        });
        if let Some(start) = matching {
            found.push(start..end);
            open.clear();
            done = end;
        }
    }
    found
}

/// Finds lines without a checksum: one after the other with at most a byte between them, or up to the end of
/// the range. The latter are tried from a few starts only, so that the cost is linear.
fn plain_lines(text: &[u8], within: Range<usize>, found: &mut Vec<Range<usize>>) {
    let mut at = within.start;
    for _ in 0..PLAIN_TRIES {
        let rest = &text[at..within.end];
        let Some(skip) = memchr::memmem::find(rest, START.as_bytes()) else { return };
        let orderly = skip <= 1;
        at += skip;
        let length = plain_line(&text[at..within.end]).unwrap_or(0);
        let after = &text[at + length..within.end];
        let close =
            memchr::memmem::find(&after[..after.len().min(START.len() + 1)], START.as_bytes());
        // A value that continues is a part of one that starts elsewhere.
        let ends = !after.first().is_some_and(|next| b",:]}\"".contains(next));
        if length > 0 && ((orderly && ends) || after.len() <= 1 || close.is_some()) {
            found.push(at..at + length);
            at += length;
        } else {
            at += START.len();
        }
    }
}

/// Returns the length of the line without a checksum that starts here.
fn plain_line(text: &[u8]) -> Option<usize> {
    let mut values =
        serde_json::Deserializer::from_slice(text).into_iter::<&serde_json::value::RawValue>();
    let length = values.next()?.ok()?.get().len();
    let line = &text[..length];
    let is_object = |decoded: Decoded<'_>| decoded.line.payload.get().starts_with('{');
    (checksum(line).is_none() && decode(line).is_some_and(is_object)).then_some(length)
}

/// Bytes in memory, read like a file.
#[derive(Debug)]
struct Memory(Vec<u8>);

impl DiskFile for Memory {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.0.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn append(&self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn metadata(&self) -> io::Result<Metadata> {
        Ok(Metadata { length: self.0.len() as u64, links: 1, is_dir: false })
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// How much is read first: most heads, and many files, are not longer.
const FIRST_BYTES: usize = 32 << 10;
/// How much is read at once after that, unless a line is longer.
const BLOCK_BYTES: usize = 256 << 10;
/// How much of a line can continue in the next block without being copied into a longer one.
const ROOM_BYTES: usize = 64 << 10;
/// From which length on blocks are read ahead, and how many.
const AHEAD_FROM_BYTES: u64 = 2 << 20;
const BLOCKS_AHEAD: usize = 4;
/// How much of an overlong line is kept to identify it.
const HEAD_BYTES: usize = 4 << 10;
/// How many starts are tried with an end. A line has one, but objects in it may look like more.
const OPEN_MAX: usize = 8;
/// How many starts of lines without a checksum are tried.
const PLAIN_TRIES: usize = 64;

#[cfg(test)]
mod tests;
