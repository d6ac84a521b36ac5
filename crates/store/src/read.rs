//! The report of reading a thread: how much was read, and which places are damaged.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The result of reading a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// What could not be read: the first [`DAMAGE_MAX`].
    pub damage: Vec<Damage>,
    /// The number of further ones.
    pub damage_more: u64,
    /// Number of lines read.
    pub lines: u64,
    /// Number of bytes read.
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub file: Arc<Path>,
    /// Where it starts.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The ordinal of the line, if known; the first one if there are several.
    pub ordinal: Option<u64>,
    /// The ordinals that are missing because of it, if known.
    pub missing: Option<Range<u64>>,
    /// The kind of the line, if known.
    pub kind: Option<String>,
    /// The turn that it belongs to, if known.
    pub turn: Option<String>,
    pub what: DamageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DamageKind {
    /// The file ends in the middle of a line.
    TornTail,
    /// A line is not what was written.
    Line,
    /// Lines are missing.
    Gap,
    /// Lines that were on disk are missing at the end, which is otherwise intact.
    Cut,
    /// The head of the file is missing or damaged; it was reconstructed from the rest.
    Head,
    /// The file that this one continues is missing.
    Base,
    /// The file that this one continues has changed since: lines of it are gone or different, and lines that
    /// were written later are excluded.
    Changed,
    /// Lines are repeated, as if a file had been appended to itself. They are skipped.
    Repeated,
}

impl DamageKind {
    /// Returns whether lines are gone, with only their numbers known.
    pub(crate) fn is_missing(self) -> bool {
        matches!(self, Self::Gap | Self::Cut)
    }

    /// Returns whether the damage is in another file, so that no repair of this one can help.
    pub(crate) fn is_elsewhere(self) -> bool {
        matches!(self, Self::Base | Self::Changed)
    }
}

/// Lines that are odd and were read correctly all the same: nothing is lost, and no repair is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub file: Arc<Path>,
    /// Where they are in the file.
    pub offset: u64,
    pub length: u64,
    /// Their ordinals.
    pub lines: Range<u64>,
    pub what: NoteKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoteKind {
    /// They stand behind later ones, and are read in their place.
    Misplaced,
    /// They stand behind later ones, and have no checksum: they are read where they stand, because their
    /// ordinals may be what is wrong.
    Unordered,
    /// They were there before, byte for byte, and are passed over.
    Doubled,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, length, lines, what } = self;
        write!(f, "{}: ", file.display())?;
        let last = lines.end.saturating_sub(1);
        if last > lines.start {
            write!(f, "lines {} to {last} (", lines.start)?;
        } else {
            write!(f, "line {} (", lines.start)?;
        }
        write!(f, "{length} bytes at {offset}): ")?;
        f.write_str(match what {
            NoteKind::Misplaced => "behind later lines; read in place, so nothing is lost",
            NoteKind::Unordered => {
                "behind later lines and without a checksum; read where it stands, so nothing is lost"
            }
            NoteKind::Doubled => "in the file twice; read once, so nothing is lost",
        })
    }
}

/// Truncates a list to what is reported, and returns how many more there were.
pub(crate) fn bound<T>(list: &mut Vec<T>) -> u64 {
    let more = list.len().saturating_sub(DAMAGE_MAX);
    list.truncate(DAMAGE_MAX);
    more as u64
}

/// Most damages that a report names.
pub const DAMAGE_MAX: usize = 1000;

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, length, .. } = self;
        let what = match self.what {
            DamageKind::TornTail => "the last line is incomplete",
            DamageKind::Line => "a line is damaged",
            DamageKind::Gap => "lines are missing",
            DamageKind::Cut => "the end is missing, although it was on disk",
            DamageKind::Head => "the head is missing or damaged",
            DamageKind::Base => "the file that this one continues is missing",
            DamageKind::Changed => "the file that this one continues has changed",
            DamageKind::Repeated => "lines are duplicated",
        };
        match self.what {
            DamageKind::Cut => write!(f, "{}: {what}: from byte {offset} on", file.display())?,
            _ => write!(f, "{}: {what}: {length} bytes at {offset}", file.display())?,
        }
        match &self.missing {
            Some(missing) if missing.end - missing.start > 1 => {
                write!(f, ", lines {} to {}", missing.start, missing.end - 1)?;
            }
            _ => {
                if let Some(ordinal) = self.ordinal {
                    write!(f, ", line {ordinal}")?;
                }
            }
        }
        if let Some(kind) = &self.kind {
            write!(f, ", {kind}")?;
        }
        if let Some(turn) = &self.turn {
            write!(f, ", turn {turn}")?;
        }
        Ok(())
    }
}
