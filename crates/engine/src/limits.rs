//! Every bound of a turn, by name.

use std::time::Duration;

/// The bounds of one turn. Reaching one ends the turn with a message that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests to the model, retries not counted.
    pub requests_max: u32,
    /// Answers in a row that get nowhere and still want another request: nothing that they call can be run
    /// or is allowed to, they call nothing at all, or the same as before with the same result, and without waiting for it.
    pub idle_answers_max: u32,
    /// Items that one answer may begin or finish.
    pub answer_items_max: u32,
    /// Bytes that one answer may have on the wire, whatever they are.
    pub answer_bytes_max: u64,
    /// How long one answer may take from its first byte to its end, however lively it is.
    pub answer_time_max: Duration,
    /// Tool calls.
    pub calls_max: u32,
    /// Tool calls at the same time. A call has one question open at most, so this bounds those too.
    pub calls_parallel_max: usize,
    /// Bytes of arguments that a call may bring.
    pub argument_bytes_max: usize,
    /// How deep arguments may nest.
    pub argument_depth_max: usize,
    /// Bytes of text that an output may bring into the history; the middle is left out beyond it.
    pub output_bytes_max: usize,
    /// How long a question to a person stays open; after that it counts as declined.
    pub approval_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_max: 1_000,
            // Enough for a model that guesses names of tools, and few enough to notice a loop.
            idle_answers_max: 50,
            answer_items_max: 8_192,
            // The longest answers that models give are a tenth of this, with all that frames them.
            answer_bytes_max: 256 * 1024 * 1024,
            // A slow model on a slow machine takes an hour for a long answer.
            answer_time_max: Duration::from_secs(2 * 60 * 60),
            calls_max: 4_000,
            calls_parallel_max: 16,
            argument_bytes_max: 8 * 1024 * 1024,
            argument_depth_max: 64,
            output_bytes_max: 1024 * 1024,
            // Long enough for somebody who is at lunch; a thread nobody watches still goes on.
            approval_timeout: Duration::from_secs(30 * 60),
        }
    }
}
