//! Notifications to clients: what happens to threads, turns and items.

use protocol::usage::Usage;
use serde::Serialize;
use serde_json::Value;

use crate::message::to_line;
use crate::wire::{Item, Status, Thread, Turn, TurnError};

/// A notification to a client.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "method", content = "params", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields are named as in the protocol")]
pub enum Notification {
    #[serde(rename = "thread/started")]
    ThreadStarted { thread: Box<Thread> },
    /// The status of a thread changed.
    #[serde(rename = "thread/status/changed")]
    ThreadStatusChanged { thread_id: String, status: Status },
    #[serde(rename = "thread/archived")]
    ThreadArchived { thread_id: String },
    /// A thread was restored from the archive.
    #[serde(rename = "thread/unarchived")]
    ThreadUnarchived { thread_id: String },
    /// Tokens were used.
    #[serde(rename = "thread/tokenUsage/updated")]
    TokenUsageUpdated { thread_id: String, turn_id: String, token_usage: TokenUsage },
    #[serde(rename = "turn/started")]
    TurnStarted { thread_id: String, turn: Turn },
    #[serde(rename = "turn/completed")]
    TurnCompleted { thread_id: String, turn: Turn },
    /// The plan of the model changed.
    #[serde(rename = "turn/plan/updated")]
    PlanUpdated {
        thread_id: String,
        turn_id: String,
        explanation: Option<String>,
        plan: Vec<Value>,
    },
    #[serde(rename = "item/started")]
    ItemStarted { item: Item, thread_id: String, turn_id: String, started_at_ms: u64 },
    /// An item is final.
    #[serde(rename = "item/completed")]
    ItemCompleted { item: Item, thread_id: String, turn_id: String, completed_at_ms: u64 },
    /// Text was typed into a running command.
    #[serde(rename = "item/commandExecution/terminalInteraction")]
    TerminalInteraction {
        thread_id: String,
        turn_id: String,
        item_id: String,
        process_id: String,
        stdin: String,
    },
    /// A running command has printed something.
    #[serde(rename = "item/commandExecution/outputDelta")]
    CommandOutputDelta { thread_id: String, turn_id: String, item_id: String, delta: String },
    /// A part of a message arrived.
    #[serde(rename = "item/agentMessage/delta")]
    AgentMessageDelta { thread_id: String, turn_id: String, item_id: String, delta: String },
    /// A part of a plan arrived.
    #[serde(rename = "item/plan/delta")]
    PlanDelta { thread_id: String, turn_id: String, item_id: String, delta: String },
    /// A part of a reasoning summary starts.
    #[serde(rename = "item/reasoning/summaryPartAdded")]
    SummaryPartAdded { thread_id: String, turn_id: String, item_id: String, summary_index: u64 },
    /// A part of a reasoning summary arrived.
    #[serde(rename = "item/reasoning/summaryTextDelta")]
    SummaryTextDelta {
        thread_id: String,
        turn_id: String,
        item_id: String,
        delta: String,
        summary_index: u64,
    },
    /// Something failed.
    #[serde(rename = "error")]
    Error { error: TurnError, will_retry: bool, thread_id: String, turn_id: String },
    /// A warning for the user.
    #[serde(rename = "warning")]
    Warning { thread_id: Option<String>, message: String },
    /// Something in the configuration may not have the effect that the user expects.
    #[serde(rename = "configWarning")]
    ConfigWarning { summary: String, details: Option<String> },
}

impl Notification {
    pub fn method(&self) -> &'static str {
        match self {
            Self::ThreadStarted { .. } => "thread/started",
            Self::ThreadStatusChanged { .. } => "thread/status/changed",
            Self::ThreadArchived { .. } => "thread/archived",
            Self::ThreadUnarchived { .. } => "thread/unarchived",
            Self::TokenUsageUpdated { .. } => "thread/tokenUsage/updated",
            Self::TurnStarted { .. } => "turn/started",
            Self::TurnCompleted { .. } => "turn/completed",
            Self::PlanUpdated { .. } => "turn/plan/updated",
            Self::ItemStarted { .. } => "item/started",
            Self::ItemCompleted { .. } => "item/completed",
            Self::TerminalInteraction { .. } => "item/commandExecution/terminalInteraction",
            Self::AgentMessageDelta { .. } => "item/agentMessage/delta",
            Self::PlanDelta { .. } => "item/plan/delta",
            Self::SummaryPartAdded { .. } => "item/reasoning/summaryPartAdded",
            Self::CommandOutputDelta { .. } => "item/commandExecution/outputDelta",
            Self::SummaryTextDelta { .. } => "item/reasoning/summaryTextDelta",
            Self::Error { .. } => "error",
            Self::Warning { .. } => "warning",
            Self::ConfigWarning { .. } => "configWarning",
        }
    }

    /// Formats the line of the notification.
    pub fn line(&self, now_ms: u64) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Line<'a> {
            #[serde(flatten)]
            notification: &'a Notification,
            emitted_at_ms: u64,
        }
        to_line(&Line { notification: self, emitted_at_ms: now_ms })
    }
}

/// Token counts of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// For the whole thread.
    pub total: Tokens,
    /// For the last turn.
    pub last: Tokens,
    /// Size of the context window.
    pub model_context_window: Option<u64>,
}

/// Token counts with their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tokens {
    total_tokens: u64,
    input_tokens: u64,
    cached_input_tokens: u64,
    cache_write_input_tokens: u64,
    output_tokens: u64,
    reasoning_output_tokens: u64,
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        Self {
            total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
            input_tokens: usage.input_tokens,
            cached_input_tokens: usage.cached_input_tokens,
            cache_write_input_tokens: usage.cache_write_input_tokens,
            output_tokens: usage.output_tokens,
            reasoning_output_tokens: usage.reasoning_output_tokens,
        }
    }
}
