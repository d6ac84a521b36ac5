//! The side file of a log: keeps what could not be read, next to the log.
//!
//! `rollout-….jsonl.damaged` has a line for every damaged range of bytes. Nothing is truncated or overwritten
//! before it is there and on disk.

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, DiskFile, Mode, append_all, read_range};
use crate::files::missing;
use crate::read::Damage;

#[derive(Debug, Serialize, Deserialize)]
struct SideLine {
    offset: u64,
    length: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ordinal: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<String>,
    /// When it was found: RFC 3339.
    time: String,
    /// The checksum of the bytes, to recognise them.
    crc32c: u32,
    /// The first and the last ordinal that were given up with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_up: Option<(u64, u64)>,
    /// The bytes, in base64.
    bytes: String,
}

/// Returns the path of the side file of a log.
pub(crate) fn side_path(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".damaged");
    name.into()
}

/// The content of a side file.
#[derive(Debug, Default)]
pub(crate) struct Known {
    stretches: HashSet<(u64, u64, u32)>,
    /// The ordinals that were given up: sorted ranges that do not touch.
    given_up: Vec<Range<u64>>,
    /// Whether its last line has no line break.
    open: bool,
}

impl Known {
    /// Reads the side file of a log, if it exists.
    pub(crate) fn read(disk: &dyn Disk, log: &Path) -> io::Result<Self> {
        let mut known = Self::default();
        let file = match disk.open(&side_path(log), Mode::Read) {
            Err(error) if missing(&error) => return Ok(known),
            done => done?,
        };
        let mut at = 0;
        let mut rest = Vec::new();
        loop {
            let chunk = read_range(&*file, at, CHUNK_BYTES)?;
            if chunk.is_empty() {
                break;
            }
            at += chunk.len() as u64;
            rest.extend_from_slice(&chunk);
            let whole = memchr::memrchr(b'\n', &rest).map_or(0, |end| end + 1);
            for line in rest[..whole].split(|byte| *byte == b'\n') {
                known.note(line);
            }
            rest.drain(..whole);
            if rest.len() > LINE_BYTES_MAX {
                rest.clear();
            }
            known.open = !rest.is_empty();
        }
        // They may have been given up in several steps.
        let mut ranges = std::mem::take(&mut known.given_up);
        ranges.sort_by_key(|range| range.start);
        for range in ranges {
            match known.given_up.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => known.given_up.push(range),
            }
        }
        Ok(known)
    }

    fn note(&mut self, line: &[u8]) {
        if let Ok(line) = serde_json::from_slice::<SideLine>(line) {
            self.stretches.insert((line.offset, line.length, line.crc32c));
            let given_up = line.given_up.map(|(first, last)| first..last.saturating_add(1));
            self.given_up.extend(given_up);
        }
    }

    /// Returns whether ordinals were already given up.
    pub(crate) fn gave_up(&self, missing: &Range<u64>) -> bool {
        let at = self.given_up.partition_point(|range| range.end <= missing.start);
        let found = self.given_up.get(at);
        found.is_some_and(|range| range.start <= missing.start && missing.end <= range.end)
    }
}

/// Copies damage in `file`, the log at `log`, to its side file, unless it is already there, and waits until
/// it is on disk. With `give_up`, missing ordinals are no longer reported.
pub(crate) fn set_aside(
    disk: &dyn Disk,
    log: &Path,
    file: &dyn DiskFile,
    damage: &[&Damage],
    give_up: bool,
) -> io::Result<()> {
    let known = Known::read(disk, log)?;
    let time = crate::log::format_time(jiff::Timestamp::now());
    let mut side = None;
    for damage in damage {
        let given_up = damage.missing.as_ref().filter(|missing| give_up && !known.gave_up(missing));
        let mut given_up = given_up.map(|missing| (missing.start, missing.end - 1));
        let mut at = damage.offset;
        let end = damage.offset + damage.length;
        // A long range is stored in pieces, so that only one is in memory.
        while at < end || given_up.is_some() {
            let length = usize::try_from(end - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            let bytes = read_range(file, at, length)?;
            let crc32c = crc32c::crc32c(&bytes);
            let length = bytes.len() as u64;
            if given_up.is_some() || !known.stretches.contains(&(at, length, crc32c)) {
                let line = SideLine {
                    offset: at,
                    length,
                    ordinal: damage.ordinal,
                    kind: damage.kind.clone(),
                    turn: damage.turn.clone(),
                    time: time.clone(),
                    crc32c,
                    given_up: given_up.take(),
                    bytes: BASE64_STANDARD.encode(&bytes),
                };
                let side = match &mut side {
                    Some(side) => side,
                    none => none.insert(disk.open(&side_path(log), Mode::AppendOrCreate)?),
                };
                let mut text = serde_json::to_vec(&line).map_err(io::Error::other)?;
                if known.open {
                    text.insert(0, b'\n');
                }
                text.push(b'\n');
                append_all(&**side, &text)?;
            }
            if length == 0 {
                break;
            }
            at += length;
        }
    }
    if let Some(side) = side {
        side.sync_data()?;
        disk.sync_dir(log.parent().unwrap_or(Path::new("")))?;
    }
    Ok(())
}

/// How much of a long range goes into one line.
const CHUNK_BYTES: usize = 1 << 20;
/// Longest line that we write.
const LINE_BYTES_MAX: usize = 4 << 20;
