//! Cutting a file into lines, whatever is in it.
//!
//! Every byte ends up in exactly one piece: a line, a blank, or something broken. The cost is linear in
//! the file, and no more of it is held than its longest line, up to [`LINE_BYTES_MAX`].

use std::io;
use std::ops::{ControlFlow, Range};

use crate::disk::{DiskFile, Metadata, read_past_errors};
use crate::line::{Decoded, START, TRAILER, TRAILER_BYTES, checksum, decode};

/// The longest line that is read; a longer one counts as damage.
pub const LINE_BYTES_MAX: usize = 256 << 20;

/// A stretch of a file.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) offset: u64,
    /// With the end of the line, if it has one.
    pub(crate) length: u64,
    pub(crate) body: Body<'a>,
}

/// What a stretch of a file is.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    /// A line.
    Line {
        decoded: Decoded<'a>,
        /// Its text, without its end.
        bytes: &'a [u8],
        /// Whether the end is missing.
        open: bool,
    },
    /// Nothing but space.
    Blank,
    /// Something that is not a line.
    Broken {
        /// What there is of it in memory.
        bytes: &'a [u8],
        /// Whether the file ends in it, in the middle of a line.
        torn: bool,
    },
}

pub(crate) type Each<'e> = &'e mut dyn FnMut(Piece<'_>) -> ControlFlow<()>;

/// Cuts the bytes of `file` in `range` into pieces, in order. Stops early if `each` says so.
pub(crate) fn scan(file: &dyn DiskFile, range: Range<u64>, each: Each<'_>) -> io::Result<()> {
    scan_bounded(file, range, LINE_BYTES_MAX, each)
}

fn scan_bounded(
    file: &dyn DiskFile,
    range: Range<u64>,
    line_bytes_max: usize,
    each: Each<'_>,
) -> io::Result<()> {
    let mut buffer = vec![0; FIRST_BYTES.min(line_bytes_max)];
    // What is held is `buffer[..filled]`, and lies at `base` in the file.
    let (mut base, mut filled) = (range.start, 0);
    // Where the next line begins in the buffer, and up to where no end of it was found.
    let (mut start, mut searched) = (0, 0);
    // How many bytes of an overlong line were let go of, and what it begins with.
    let mut skipped: Option<(u64, Vec<u8>)> = None;
    loop {
        while let Some(found) = memchr::memchr(b'\n', &buffer[searched..filled]) {
            let end = searched + found + 1;
            let offset = base + start as u64;
            let flow = match skipped.take() {
                Some((from, head)) => {
                    let length = offset + (end - start) as u64 - from;
                    each(overlong(from, length, &head, false))
                }
                None => line(&buffer[start..end], offset, each),
            };
            if flow.is_break() {
                return Ok(());
            }
            (start, searched) = (end, end);
        }
        searched = filled;
        if filled - start >= line_bytes_max {
            let head = || buffer[start..filled.min(start + HEAD_BYTES)].to_vec();
            skipped.get_or_insert_with(|| (base + start as u64, head()));
        }
        if skipped.is_some() {
            start = filled;
        }
        // Room for more: first by letting go of what was given out, then by growing.
        if start > 0 {
            buffer.copy_within(start..filled, 0);
            base += start as u64;
            (filled, searched, start) = (filled - start, searched - start, 0);
        }
        if filled == buffer.len() || (base > range.start && buffer.len() < BUFFER_BYTES) {
            buffer.resize((buffer.len() * 2).max(BUFFER_BYTES).min(line_bytes_max), 0);
        }
        let left = range.end.saturating_sub(base + filled as u64);
        let room = (buffer.len() - filled).min(usize::try_from(left).unwrap_or(usize::MAX));
        let at = base + filled as u64;
        let count = read_past_errors(file, &mut buffer[filled..filled + room], at)?;
        if count == 0 {
            let _ = match skipped {
                Some((from, head)) => {
                    each(overlong(from, base + filled as u64 - from, &head, true))
                }
                None if filled > 0 => line(&buffer[..filled], base, each),
                None => ControlFlow::Continue(()),
            };
            return Ok(());
        }
        filled += count;
    }
}

/// A stretch of bytes, and what a reader makes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where it is.
    pub range: Range<u64>,
    /// What it is.
    pub what: Reading,
}

/// What a reader makes of a stretch of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A line whose checksum matches.
    Checked,
    /// A line without a checksum.
    Believed,
    /// Nothing but space.
    Blank,
    /// Damage.
    Broken,
}

/// Says what a reader makes of the bytes of a file; the stretches cover all of them, in order.
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

/// Gives out a line with its end, or what can be had of it.
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
        // The end of the line belongs to the last line on it.
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

/// Finds whole lines inside of something that is none, as when the end of a line became another byte.
fn salvage(text: &[u8]) -> Vec<Range<usize>> {
    let checked = checked_lines(text);
    let mut found = Vec::new();
    let mut at = 0;
    for line in checked {
        // What lies between lines with a checksum may be one without.
        plain_lines(text, at..line.start, &mut found);
        at = line.end;
        found.push(line);
    }
    plain_lines(text, at..text.len(), &mut found);
    found
}

/// Finds lines whose checksum matches. Each end is tried with the nearest few beginnings before it,
/// the outermost first; their checksums are carried along, so that the cost is linear.
fn checked_lines(text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut starts = memchr::memmem::find_iter(text, START).peekable();
    // Beginnings, each with the checksum of what follows up to a place.
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

/// Finds lines without a checksum: one after the other with at most a byte between them, or up to the
/// end of the stretch. Those are tried from a few beginnings only, so that the cost is linear.
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
        // A value that goes on is a piece of one that begins elsewhere.
        let ends = !after.first().is_some_and(|next| b",:]}\"".contains(next));
        if length > 0 && ((orderly && ends) || after.len() <= 1 || close.is_some()) {
            found.push(at..at + length);
            at += length;
        } else {
            at += START.len();
        }
    }
}

/// Returns the length of the line without a checksum that begins here.
fn plain_line(text: &[u8]) -> Option<usize> {
    let mut values =
        serde_json::Deserializer::from_slice(text).into_iter::<&serde_json::value::RawValue>();
    let length = values.next()?.ok()?.get().len();
    let line = &text[..length];
    let is_object = |decoded: Decoded<'_>| decoded.line.payload.get().starts_with('{');
    (checksum(line).is_none() && decode(line).is_some_and(is_object)).then_some(length)
}

/// Bytes in memory, to be read like a file.
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
const BUFFER_BYTES: usize = 256 << 10;
/// How much of an overlong line is kept to tell what it was.
const HEAD_BYTES: usize = 4 << 10;
/// How many beginnings are tried with an end. A line has one, but objects in it may look like more.
const OPEN_MAX: usize = 8;
/// How many beginnings of lines without a checksum are tried.
const PLAIN_TRIES: usize = 64;

#[cfg(test)]
mod tests;
