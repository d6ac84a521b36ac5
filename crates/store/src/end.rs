//! Records where a log ended when it was last synced.
//!
//! A file that was truncated at the end of a line looks intact. So the synced end is recorded elsewhere:
//! `thread-ends/NAME.end`, one line of a fixed length, written after a sync of the log has succeeded. The
//! note itself is never synced: a power cut can leave an old or unreadable note, which is ignored, but none
//! that claims more than is on disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, Mode, create_dirs, read_range, write_all_at};
use crate::open::file_name;

/// The end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The length of the file.
    pub(crate) bytes: u64,
    /// The first unused ordinal; none if lines have no ordinals.
    pub(crate) next: Option<u64>,
    /// The checksum of the last line, without its line break.
    pub(crate) last: Option<u32>,
}

/// The note with the end of a log; the writer of the log updates it.
#[derive(Debug)]
pub(crate) struct EndNote {
    path: PathBuf,
    file: Option<Arc<dyn DiskFile>>,
    written: Option<End>,
}

impl EndNote {
    pub(crate) fn new(home: &Path, log: &Path) -> Self {
        Self { path: path(home, log), file: None, written: None }
    }

    /// Writes the note. Without it only a warning is lost, so a write error is ignored.
    pub(crate) fn write(&mut self, disk: &dyn Disk, end: End) {
        if self.written == Some(end) || self.try_write(disk, end).is_err() {
            return;
        }
        self.written = Some(end);
    }

    fn try_write(&mut self, disk: &dyn Disk, end: End) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let open = || disk.open(&self.path, Mode::Lock);
                let file = match open() {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        create_dirs(disk, self.path.parent().unwrap_or(Path::new("")))?;
                        open()?
                    }
                    done => done?,
                };
                none.insert(file)
            }
        };
        write_all_at(&**file, encode(end).as_bytes(), 0)
    }
}

impl End {
    /// Reads the note about a log. A missing or incomplete one is ignored.
    pub(crate) fn read(disk: &dyn Disk, home: &Path, log: &Path) -> Option<Self> {
        let file = disk.open(&path(home, log), Mode::Read).ok()?;
        decode(&read_range(&*file, 0, NOTE_BYTES).ok()?)
    }
}

pub(crate) fn forget(disk: &dyn Disk, home: &Path, log: &Path) -> io::Result<()> {
    match disk.remove(&path(home, log)) {
        Err(error) if !crate::files::missing(&error) => Err(error),
        _ => Ok(()),
    }
}

fn path(home: &Path, log: &Path) -> PathBuf {
    // With another extension than the log's, so that a search for logs in a home does not find it.
    home.join(FOLDER).join(file_name(&log.with_extension("end")))
}

fn encode(end: End) -> String {
    let next = end.next.map_or_else(|| "-".to_owned(), |next| next.to_string());
    let last = end.last.map_or_else(|| "-".to_owned(), |last| format!("{last:08x}"));
    let text = format!("{:>20} {next:>20} {last:>8}", end.bytes);
    format!("{text} {:08x}\n", crc32c::crc32c(text.as_bytes()))
}

fn decode(bytes: &[u8]) -> Option<End> {
    let line = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (text, sum) = line.rsplit_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32c::crc32c(text.as_bytes()) {
        return None;
    }
    let mut words = text.split_ascii_whitespace();
    let bytes = words.next()?.parse().ok()?;
    let next = words.next()?;
    let next = if next == "-" { None } else { Some(next.parse().ok()?) };
    let last = words.next()?;
    let last = if last == "-" { None } else { Some(u32::from_str_radix(last, 16).ok()?) };
    words.next().is_none().then_some(End { bytes, next, last })
}

const FOLDER: &str = "thread-ends";
/// Two numbers of up to 20 digits, two checksums, and separators.
const NOTE_BYTES: usize = 20 + 1 + 20 + 1 + 8 + 1 + 8 + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_round_trip_and_damaged_ones_are_ignored() {
        for end in [
            End { bytes: 0, next: None, last: None },
            End { bytes: 7, next: Some(0), last: Some(0) },
            End { bytes: u64::MAX, next: Some(u64::MAX), last: Some(u32::MAX) },
        ] {
            let note = encode(end);
            assert_eq!(note.len(), NOTE_BYTES);
            assert_eq!(decode(note.as_bytes()), Some(end));
            for at in 0..note.len() {
                let mut bytes = note.clone().into_bytes();
                assert_eq!(decode(&bytes[..at]), None, "cut at {at}");
                bytes[at] ^= 1;
                assert_ne!(decode(&bytes), Some(End { bytes: 1, ..end }), "flipped at {at}");
            }
        }
    }
}
