//! Limits of a turn.

use crate::error::ConfigError;
use crate::section::{Field, Notes, Read};

/// `[limits]`: when a turn is ended. Unset limits have generous defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TurnLimits {
    /// Duration of one turn, in seconds.
    pub seconds_max: Option<u64>,
    /// Tokens of all requests and answers of one turn.
    pub tokens_max: Option<u64>,
    /// Requests to the model in one turn, not counting retries.
    pub requests_max: Option<u64>,
    /// Tool calls in one turn.
    pub calls_max: Option<u64>,
    /// Consecutive answers without progress: nothing in them can be run, or everything was done before with
    /// the same result.
    pub idle_answers_max: Option<u64>,
    /// Bytes of one answer on the wire.
    pub answer_bytes_max: Option<u64>,
    /// Duration of one answer, in seconds.
    pub answer_seconds_max: Option<u64>,
    /// How often an answer that does not match its schema is requested again; at most [`OUTPUT_RETRIES_MAX`].
    pub output_retries: Option<u32>,
}

/// Most requests to correct an answer. A model that does not get it by then never will, and each costs as much as the
/// answer.
pub const OUTPUT_RETRIES_MAX: u32 = 10;

impl Read for TurnLimits {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let mut section = field.section(notes)?;
        let limits = Self {
            seconds_max: section.value("seconds_max")?,
            tokens_max: section.value("tokens_max")?,
            requests_max: section.value("requests_max")?,
            calls_max: section.value("calls_max")?,
            idle_answers_max: section.value("idle_answers_max")?,
            answer_bytes_max: section.value("answer_bytes_max")?,
            answer_seconds_max: section.value("answer_seconds_max")?,
            output_retries: section
                .value::<u64>("output_retries")?
                .map(|count| count.min(OUTPUT_RETRIES_MAX.into()) as u32),
        };
        section.finish();
        Ok(limits)
    }
}
