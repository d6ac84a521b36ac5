//! Every limit of a turn, by name.

use std::time::Duration;

/// The limits of one turn. Reaching one ends the turn with a message that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time from the start of the turn, if that is limited. What runs then is stopped.
    pub time_max: Option<Duration>,
    /// Tokens of all requests and answers, if they are limited. The last answer may exceed it, as only its end says
    /// how many it has.
    pub tokens_max: Option<u64>,
    /// Requests to the model, not counting retries.
    pub requests_max: u32,
    /// Consecutive answers without progress that still need another request: their calls cannot be run or are
    /// refused, there are no calls, or the same calls as before have the same results without waiting for
    /// anything.
    pub idle_answers_max: u32,
    /// Items that one answer may start or finish.
    pub answer_items_max: u32,
    /// Bytes of one answer on the wire, whatever they are.
    pub answer_bytes_max: u64,
    /// Time of one answer from its first byte to its end, even if data keeps coming.
    pub answer_time_max: Duration,
    /// Tool calls per turn.
    pub calls_max: u32,
    /// Concurrent tool calls. A call has at most one open question, so this limits those too.
    pub calls_parallel_max: usize,
    /// Bytes of arguments of one call.
    pub argument_bytes_max: usize,
    /// Nesting depth of arguments.
    pub argument_depth_max: usize,
    /// Bytes of text that an output adds to the history; beyond that, its middle is omitted.
    pub output_bytes_max: usize,
    /// How often an answer that does not match its schema is requested again, unless the turn says.
    pub output_retries: u32,
    /// How long a question to a person stays open; after that it counts as declined.
    pub approval_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // The other limits bound both, generously.
            time_max: None,
            tokens_max: None,
            requests_max: 1_000,
            // Enough for a model that guesses tool names, and few enough to notice a loop.
            idle_answers_max: 50,
            answer_items_max: 8_192,
            // Ten times the longest answers that models give, including framing.
            answer_bytes_max: 256 * 1024 * 1024,
            // A slow model on a slow machine takes an hour for a long answer.
            answer_time_max: Duration::from_secs(2 * 60 * 60),
            calls_max: 4_000,
            calls_parallel_max: 16,
            argument_bytes_max: 8 * 1024 * 1024,
            argument_depth_max: 64,
            output_bytes_max: 1024 * 1024,
            output_retries: 1,
            // Long enough for a lunch break; an unattended thread still continues.
            approval_timeout: Duration::from_secs(30 * 60),
        }
    }
}
