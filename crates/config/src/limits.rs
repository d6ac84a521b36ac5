//! How far a turn may go.

use crate::error::ConfigError;
use crate::section::{Field, Notes, Read};

/// `[limits]`: how far a turn may go before it is ended. What is not set has a generous default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TurnLimits {
    /// Requests to the model in one turn, retries not counted.
    pub requests_max: Option<u64>,
    /// Tool calls in one turn.
    pub calls_max: Option<u64>,
    /// Answers in a row that get nowhere: nothing in them can be run, or all was done before with the
    /// same result.
    pub idle_answers_max: Option<u64>,
    /// Bytes of one answer on the wire.
    pub answer_bytes_max: Option<u64>,
    /// Seconds that one answer may take.
    pub answer_seconds_max: Option<u64>,
}

impl Read for TurnLimits {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let mut section = field.section(notes)?;
        let limits = Self {
            requests_max: section.value("requests_max")?,
            calls_max: section.value("calls_max")?,
            idle_answers_max: section.value("idle_answers_max")?,
            answer_bytes_max: section.value("answer_bytes_max")?,
            answer_seconds_max: section.value("answer_seconds_max")?,
        };
        section.finish();
        Ok(limits)
    }
}
