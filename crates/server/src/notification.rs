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
    /// A thread was deleted for good.
    #[serde(rename = "thread/deleted")]
    ThreadDeleted { thread_id: String },
    /// A thread has another name.
    #[serde(rename = "thread/name/updated")]
    ThreadNameUpdated { thread_id: String, thread_name: Option<String> },
    /// Other settings hold from the next turn on.
    #[serde(rename = "thread/settings/updated")]
    SettingsUpdated { thread_id: String, thread_settings: Value },
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
    /// A part of the raw reasoning arrived.
    #[serde(rename = "item/reasoning/textDelta")]
    ReasoningTextDelta {
        thread_id: String,
        turn_id: String,
        item_id: String,
        delta: String,
        content_index: u64,
    },
    /// A request to clients was answered, or nobody waits for its answer any more.
    #[serde(rename = "serverRequest/resolved")]
    RequestResolved { thread_id: String, request_id: i64 },
    /// Something failed.
    #[serde(rename = "error")]
    Error { error: TurnError, will_retry: bool, thread_id: String, turn_id: String },
    /// A warning for the user.
    #[serde(rename = "warning")]
    Warning { thread_id: Option<String>, message: String },
    /// Something in the configuration may not have the effect that the user expects.
    #[serde(rename = "configWarning")]
    ConfigWarning { summary: String, details: Option<String> },
    /// Another account pays, or none.
    #[serde(rename = "account/updated")]
    AccountUpdated { auth_mode: Option<String>, plan_type: Option<String> },
    /// The list of skills may be another one.
    #[serde(rename = "skills/changed")]
    SkillsChanged {},
}

impl Notification {
    pub fn method(&self) -> &'static str {
        match self {
            Self::ThreadStarted { .. } => "thread/started",
            Self::ThreadStatusChanged { .. } => "thread/status/changed",
            Self::ThreadArchived { .. } => "thread/archived",
            Self::ThreadUnarchived { .. } => "thread/unarchived",
            Self::ThreadDeleted { .. } => "thread/deleted",
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
            Self::AccountUpdated { .. } => "account/updated",
            Self::SkillsChanged {} => "skills/changed",
        }
    }

    /// Returns the text that it adds, if it is a part of one.
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

    /// Returns whether both are parts of the same text.
    pub fn is_same_text(&self, other: &Self) -> bool {
        let place = |it: &Self| match it {
            Self::AgentMessageDelta { item_id, .. } => Some((0, item_id.clone(), 0)),
            Self::PlanDelta { item_id, .. } => Some((1, item_id.clone(), 0)),
            Self::CommandOutputDelta { item_id, .. } => Some((2, item_id.clone(), 0)),
            Self::ReasoningTextDelta { item_id, content_index, .. } => {
                Some((3, item_id.clone(), *content_index))
            }
            Self::SummaryTextDelta { item_id, summary_index, .. } => {
                Some((4, item_id.clone(), *summary_index))
            }
            _ => None,
        };
        self.thread_id() == other.thread_id()
            && place(self).is_some()
            && place(self) == place(other)
    }

    /// Returns a part with more text at its end.
    #[must_use]
    pub fn with_more(&self, text: &str) -> Self {
        let mut longer = self.clone();
        if let Self::AgentMessageDelta { delta, .. }
        | Self::PlanDelta { delta, .. }
        | Self::CommandOutputDelta { delta, .. }
        | Self::ReasoningTextDelta { delta, .. }
        | Self::SummaryTextDelta { delta, .. } = &mut longer
        {
            delta.push_str(text);
        }
        longer
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
