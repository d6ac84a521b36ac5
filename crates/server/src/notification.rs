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
    #[serde(rename = "thread/status/changed")]
    ThreadStatusChanged { thread_id: String, status: Status },
    #[serde(rename = "thread/archived")]
    ThreadArchived { thread_id: String },
    /// A thread was restored from the archive.
    #[serde(rename = "thread/unarchived")]
    ThreadUnarchived { thread_id: String },
    #[serde(rename = "thread/deleted")]
    ThreadDeleted { thread_id: String },
    /// The last turns of a thread were taken out of it.
    #[serde(rename = "thread/reverted")]
    ThreadReverted { thread_id: String },
    #[serde(rename = "thread/name/updated")]
    ThreadNameUpdated { thread_id: String, thread_name: Option<String> },
    /// Settings changed, from the next turn on.
    #[serde(rename = "thread/settings/updated")]
    SettingsUpdated { thread_id: String, thread_settings: Value },
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
    /// A running command has printed more output.
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
    /// A part of the raw reasoning arrived.
    #[serde(rename = "item/reasoning/textDelta")]
    ReasoningTextDelta {
        thread_id: String,
        turn_id: String,
        item_id: String,
        delta: String,
        content_index: u64,
    },
    /// A request to clients was answered, or its answer is no longer needed.
    #[serde(rename = "serverRequest/resolved")]
    RequestResolved { thread_id: String, request_id: i64 },
    /// A request to the model failed and is sent again, or the turn failed.
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
            Self::ThreadDeleted { .. } => "thread/deleted",
            Self::ThreadReverted { .. } => "thread/reverted",
            Self::ThreadNameUpdated { .. } => "thread/name/updated",
            Self::SettingsUpdated { .. } => "thread/settings/updated",
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
            Self::ReasoningTextDelta { .. } => "item/reasoning/textDelta",
            Self::RequestResolved { .. } => "serverRequest/resolved",
            Self::Error { .. } => "error",
            Self::Warning { .. } => "warning",
            Self::ConfigWarning { .. } => "configWarning",
        }
    }

    /// Returns the text of a delta; none if the notification is not a delta of a text.
    pub fn part_text(&self) -> Option<&str> {
        match self {
            Self::AgentMessageDelta { delta, .. }
            | Self::PlanDelta { delta, .. }
            | Self::CommandOutputDelta { delta, .. }
            | Self::ReasoningTextDelta { delta, .. }
            | Self::SummaryTextDelta { delta, .. } => Some(delta),
            _ => None,
        }
    }

    /// Returns whether both are deltas of the same text.
    pub fn is_same_text(&self, other: &Self) -> bool {
        self.text_place().is_some()
            && self.text_place() == other.text_place()
            && self.thread_id() == other.thread_id()
    }

    /// Returns the kind of the text of a delta, its item, and its number within that.
    fn text_place(&self) -> Option<(u8, &str, u64)> {
        match self {
            Self::AgentMessageDelta { item_id, .. } => Some((0, item_id, 0)),
            Self::PlanDelta { item_id, .. } => Some((1, item_id, 0)),
            Self::CommandOutputDelta { item_id, .. } => Some((2, item_id, 0)),
            Self::ReasoningTextDelta { item_id, content_index, .. } => {
                Some((3, item_id, *content_index))
            }
            Self::SummaryTextDelta { item_id, summary_index, .. } => {
                Some((4, item_id, *summary_index))
            }
            _ => None,
        }
    }

    /// Returns a copy of a delta with more text at its end.
    #[must_use]
    pub fn with_more(&self, text: &str) -> Self {
        let mut longer = self.clone();
        longer.add_text(text);
        longer
    }

    /// Adds text to the end of a delta.
    pub fn add_text(&mut self, text: &str) {
        if let Self::AgentMessageDelta { delta, .. }
        | Self::PlanDelta { delta, .. }
        | Self::CommandOutputDelta { delta, .. }
        | Self::ReasoningTextDelta { delta, .. }
        | Self::SummaryTextDelta { delta, .. } = self
        {
            delta.push_str(text);
        }
    }

    fn thread_id(&self) -> Option<&str> {
        match self {
            Self::AgentMessageDelta { thread_id, .. }
            | Self::PlanDelta { thread_id, .. }
            | Self::CommandOutputDelta { thread_id, .. }
            | Self::ReasoningTextDelta { thread_id, .. }
            | Self::SummaryTextDelta { thread_id, .. } => Some(thread_id),
            _ => None,
        }
    }

    /// Formats the notification as a line, with the time at which it is sent.
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
    /// Size of the context window in tokens, if it is known.
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
