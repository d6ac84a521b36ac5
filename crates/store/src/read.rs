//! Reading a log, whatever state it is in.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What reading a thread came upon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// What could not be read: the first [`DAMAGE_MAX`] of it.
    pub damage: Vec<Damage>,
    /// How much more there is of that.
    pub damage_more: u64,
    /// Lines that were read.
    pub lines: u64,
    /// Bytes that were read.
    pub bytes: u64,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: Arc<Path>,
    /// Where it begins.
    pub offset: u64,
    /// How many bytes it is.
    pub length: u64,
    /// The ordinal of the line, as far as can be told; the first one if it is about several.
    pub ordinal: Option<u64>,
    /// The ordinals that are missing because of it, as far as can be told.
    pub missing: Option<Range<u64>>,
    /// The kind of the line, as far as can be told.
    pub kind: Option<String>,
    /// The turn that it belongs to, as far as can be told.
    pub turn: Option<String>,
    /// What is wrong.
    pub what: DamageKind,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DamageKind {
    /// The file ends in the middle of a line.
    TornTail,
    /// A line is not what was written.
    Line,
    /// Lines are missing.
    Gap,
    /// Lines that were on disk are missing at the end, which is otherwise whole.
    Cut,
    /// The head of the file is missing or damaged; it was made up from the rest.
    Head,
    /// The file that this one continues is missing.
    Base,
    /// The file that this one continues is not what it was when that began: lines of it are gone, or are
    /// others, and those that were written later are left out.
    Changed,
    /// Lines are there a second time, as if a file had been appended to itself. They are passed over.
    Repeated,
}

impl DamageKind {
    /// Tells whether lines are gone without a trace but their numbers.
    pub(crate) fn is_missing(self) -> bool {
        matches!(self, Self::Gap | Self::Cut)
    }

    /// Tells whether this is about another file, so that no repair of this one can help.
    pub(crate) fn is_elsewhere(self) -> bool {
        matches!(self, Self::Base | Self::Changed)
    }
}

/// Cuts a list to what is reported, and returns how much more there was.
pub(crate) fn bound(damage: &mut Vec<Damage>) -> u64 {
    let more = damage.len().saturating_sub(DAMAGE_MAX);
    damage.truncate(DAMAGE_MAX);
    more as u64
}

/// How many damages a report names.
pub const DAMAGE_MAX: usize = 1000;

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, length, .. } = self;
        let what = match self.what {
            DamageKind::TornTail => "the end is torn",
            DamageKind::Line => "a line is damaged",
            DamageKind::Gap => "lines are missing",
            DamageKind::Cut => "the end is missing, although it was on disk",
            DamageKind::Head => "the head is missing or damaged",
            DamageKind::Base => "what this file continues is missing",
            DamageKind::Changed => "what this file continues is not what it was",
            DamageKind::Repeated => "lines are there a second time",
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
