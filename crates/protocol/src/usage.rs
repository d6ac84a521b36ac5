//! Token counts.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Tokens used, as exec JSONL prints them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the requests, including cached ones.
    pub input_tokens: u64,
    /// Input tokens that the provider had cached.
    pub cached_input_tokens: u64,
    /// Input tokens that the provider wrote to its cache.
    #[serde(default)]
    pub cache_write_input_tokens: u64,
    /// Tokens of the answers, including reasoning.
    pub output_tokens: u64,
    /// Output tokens that were reasoning.
    #[serde(default)]
    pub reasoning_output_tokens: u64,
}

impl Usage {
    /// Returns the tokens of requests and answers together.
    pub fn total_tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Returns the difference to the usage `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(before.input_tokens),
            cached_input_tokens: self
                .cached_input_tokens
                .saturating_sub(before.cached_input_tokens),
            cache_write_input_tokens: self
                .cache_write_input_tokens
                .saturating_sub(before.cache_write_input_tokens),
            output_tokens: self.output_tokens.saturating_sub(before.output_tokens),
            reasoning_output_tokens: self
                .reasoning_output_tokens
                .saturating_sub(before.reasoning_output_tokens),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        // A provider may send any number; a sum that wraps or panics would be worse than a saturated one.
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.cached_input_tokens =
            self.cached_input_tokens.saturating_add(other.cached_input_tokens);
        self.cache_write_input_tokens =
            self.cache_write_input_tokens.saturating_add(other.cache_write_input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.reasoning_output_tokens =
            self.reasoning_output_tokens.saturating_add(other.reasoning_output_tokens);
    }
}

/// Tokens used by a turn, and by its thread until the end of the turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnUsage {
    /// Tokens of the whole thread, including the turn.
    pub thread: Usage,
    /// Tokens of the turn.
    pub turn: Usage,
}

/// Token counts with their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TotalledUsage {
    /// The counts by kind of token.
    #[serde(flatten)]
    pub usage: Usage,
    /// Request and answer together: how full the context window was.
    #[serde(default)]
    pub total_tokens: u64,
}

impl From<Usage> for TotalledUsage {
    fn from(usage: Usage) -> Self {
        Self { usage, total_tokens: usage.total_tokens() }
    }
}
