//! Notifications to clients: what happens to threads, turns and items.

use heddle::commands::OutputStream;
use protocol::usage::Usage;
use schemars::JsonSchema;
use serde::Serialize;

use crate::goal::ThreadGoal;
use crate::message::to_line;
use crate::wire::{Item, Status, Thread, Turn, TurnError, UpdatedSettings};

/// A notification to a client.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "method", content = "params", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields are named as in the protocol")]
#[schemars(rename = "ServerNotification")]
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
    /// The last turns of a thread were removed from it.
    #[serde(rename = "thread/reverted")]
    ThreadReverted { thread_id: String },
    #[serde(rename = "thread/name/updated")]
    ThreadNameUpdated { thread_id: String, thread_name: Option<String> },
    /// The goal of a thread was changed by a turn or by a client.
    #[serde(rename = "thread/goal/updated")]
    GoalUpdated { thread_id: String, turn_id: Option<String>, goal: ThreadGoal },
    /// The goal of a thread was removed.
    #[serde(rename = "thread/goal/cleared")]
    GoalCleared { thread_id: String },
    /// The queue of a thread changed.
    #[serde(rename = "thread/queue/changed")]
    QueueChanged { thread_id: String },
    /// Settings changed; they apply from the next turn on.
    #[serde(rename = "thread/settings/updated")]
    SettingsUpdated { thread_id: String, thread_settings: Box<UpdatedSettings> },
    #[serde(rename = "thread/tokenUsage/updated")]
    TokenUsageUpdated { thread_id: String, turn_id: String, token_usage: TokenUsage },
    #[serde(rename = "turn/started")]
    TurnStarted { thread_id: String, turn: Turn },
    #[serde(rename = "turn/completed")]
    TurnCompleted { thread_id: String, turn: Turn },
    /// A patch was applied. `diff` has all changes of the turn so far, as a unified diff.
    #[serde(rename = "turn/diff/updated")]
    DiffUpdated { thread_id: String, turn_id: String, diff: String },
    /// The model changed its plan.
    #[serde(rename = "turn/plan/updated")]
    PlanUpdated {
        thread_id: String,
        turn_id: String,
        explanation: Option<String>,
        plan: Vec<PlanStep>,
    },
    #[serde(rename = "item/started")]
    ItemStarted { item: Item, thread_id: String, turn_id: String, started_at_ms: u64 },
    #[serde(rename = "item/completed")]
    ItemCompleted { item: Item, thread_id: String, turn_id: String, completed_at_ms: u64 },
    /// Input was written to the terminal of a running command.
    #[serde(rename = "item/commandExecution/terminalInteraction")]
    TerminalInteraction {
        thread_id: String,
        turn_id: String,
        item_id: String,
        process_id: String,
        stdin: String,
    },
    /// A running command printed more output.
    #[serde(rename = "item/commandExecution/outputDelta")]
    CommandOutputDelta { thread_id: String, turn_id: String, item_id: String, delta: String },
    /// The next part of a message.
    #[serde(rename = "item/agentMessage/delta")]
    AgentMessageDelta { thread_id: String, turn_id: String, item_id: String, delta: String },
    /// The next part of a plan.
    #[serde(rename = "item/plan/delta")]
    PlanDelta { thread_id: String, turn_id: String, item_id: String, delta: String },
    /// The next part of a reasoning summary starts.
    #[serde(rename = "item/reasoning/summaryPartAdded")]
    SummaryPartAdded { thread_id: String, turn_id: String, item_id: String, summary_index: u64 },
    /// The next part of a reasoning summary.
    #[serde(rename = "item/reasoning/summaryTextDelta")]
    SummaryTextDelta {
        thread_id: String,
        turn_id: String,
        item_id: String,
        delta: String,
        summary_index: u64,
    },
    /// The next part of the raw reasoning.
    #[serde(rename = "item/reasoning/textDelta")]
    ReasoningTextDelta {
        thread_id: String,
        turn_id: String,
        item_id: String,
        delta: String,
        content_index: u64,
    },
    /// A request to clients was answered, or no longer needs an answer.
    #[serde(rename = "serverRequest/resolved")]
    RequestResolved { thread_id: String, request_id: i64 },
    /// Something changed at a path that this client watches.
    #[serde(rename = "fs/changed")]
    FsChanged { watch_id: String, changed_paths: Vec<String> },
    /// A command of this client printed something.
    #[serde(rename = "command/exec/outputDelta")]
    CommandExecOutput {
        process_id: String,
        stream: &'static str,
        delta_base64: String,
        cap_reached: bool,
    },
    /// A process of this client printed something.
    #[serde(rename = "process/outputDelta")]
    ProcessOutput {
        process_handle: String,
        stream: &'static str,
        delta_base64: String,
        cap_reached: bool,
    },
    /// A process of this client exited.
    #[serde(rename = "process/exited")]
    ProcessExited {
        process_handle: String,
        exit_code: i32,
        output_drain_timed_out: bool,
        stdout: String,
        stdout_cap_reached: bool,
        stderr: String,
        stderr_cap_reached: bool,
    },
    /// What a search of this client has found so far.
    #[serde(rename = "fuzzyFileSearch/sessionUpdated")]
    SearchUpdated { session_id: String, query: String, files: Vec<FoundFile> },
    /// A search has no more results for its latest query.
    #[serde(rename = "fuzzyFileSearch/sessionCompleted")]
    SearchCompleted { session_id: String },
    /// A request to the model failed and is sent again, or the turn failed.
    #[serde(rename = "error")]
    Error { error: TurnError, will_retry: bool, thread_id: String, turn_id: String },
    /// A warning for the user.
    #[serde(rename = "warning")]
    Warning { thread_id: Option<String>, message: String },
    /// A setting may not have the effect that the user expects.
    #[serde(rename = "configWarning")]
    ConfigWarning { summary: String, details: Option<String> },
    /// The account that pays for answers changed.
    #[serde(rename = "account/updated")]
    AccountUpdated { auth_mode: Option<String>, plan_type: Option<String> },
    /// The list of skills may have changed.
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
            Self::ThreadReverted { .. } => "thread/reverted",
            Self::ThreadNameUpdated { .. } => "thread/name/updated",
            Self::GoalUpdated { .. } => "thread/goal/updated",
            Self::GoalCleared { .. } => "thread/goal/cleared",
            Self::QueueChanged { .. } => "thread/queue/changed",
            Self::SettingsUpdated { .. } => "thread/settings/updated",
            Self::TokenUsageUpdated { .. } => "thread/tokenUsage/updated",
            Self::TurnStarted { .. } => "turn/started",
            Self::TurnCompleted { .. } => "turn/completed",
            Self::DiffUpdated { .. } => "turn/diff/updated",
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
            Self::FsChanged { .. } => "fs/changed",
            Self::SearchUpdated { .. } => "fuzzyFileSearch/sessionUpdated",
            Self::SearchCompleted { .. } => "fuzzyFileSearch/sessionCompleted",
            Self::CommandExecOutput { .. } => "command/exec/outputDelta",
            Self::ProcessOutput { .. } => "process/outputDelta",
            Self::ProcessExited { .. } => "process/exited",
            Self::Error { .. } => "error",
            Self::Warning { .. } => "warning",
            Self::ConfigWarning { .. } => "configWarning",
            Self::AccountUpdated { .. } => "account/updated",
            Self::SkillsChanged {} => "skills/changed",
        }
    }

    /// Creates the notification for output of a client's command or process.
    pub fn output(
        of: &OutputOf,
        from: OutputStream,
        delta_base64: String,
        cap_reached: bool,
    ) -> Self {
        let stream = match from {
            OutputStream::Stdout => "stdout",
            OutputStream::Stderr => "stderr",
        };
        match of.clone() {
            OutputOf::Command { process_id } => {
                Self::CommandExecOutput { process_id, stream, delta_base64, cap_reached }
            }
            OutputOf::Process { process_handle } => {
                Self::ProcessOutput { process_handle, stream, delta_base64, cap_reached }
            }
        }
    }

    /// Returns the text of a delta, or `None` for other notifications.
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

    /// Identifies the text that a delta belongs to: its kind, its item, and its index within the item.
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

    /// Returns the delta with another text.
    #[must_use]
    pub fn with_text(&self, text: String) -> Self {
        let mut other = self.clone();
        if let Some(delta) = other.text_mut() {
            *delta = text;
        }
        other
    }

    /// Appends text to a delta.
    pub fn add_text(&mut self, text: &str) {
        if let Some(delta) = self.text_mut() {
            delta.push_str(text);
        }
    }

    fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::AgentMessageDelta { delta, .. }
            | Self::PlanDelta { delta, .. }
            | Self::CommandOutputDelta { delta, .. }
            | Self::ReasoningTextDelta { delta, .. }
            | Self::SummaryTextDelta { delta, .. } => Some(delta),
            _ => None,
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

    /// Formats the notification as a line.
    pub fn line(&self, now_ms: u64) -> String {
        self.numbered_line(now_ms, None)
    }

    /// Formats the notification as a line with its number in the thread.
    pub fn numbered_line(&self, now_ms: u64, number: Option<u64>) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Line<'a> {
            #[serde(flatten)]
            notification: &'a Notification,
            emitted_at_ms: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            heddle_seq: Option<u64>,
        }
        let line = Line { notification: self, emitted_at_ms: now_ms, heddle_seq: number };
        to_line(&line)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "TurnPlanStep")]
pub struct PlanStep {
    pub step: String,
    pub status: PlanStepStatus,
}

/// The state of a plan step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TurnPlanStepStatus")]
pub enum PlanStepStatus {
    Pending,
    InProgress,
    Completed,
}

/// A file that a search found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FuzzyFileSearchResult")]
pub struct FoundFile {
    /// The directory that was searched, as the client named it.
    pub root: String,
    /// The path, relative to the root.
    pub path: String,
    /// `file` or `directory`.
    pub match_type: &'static str,
    pub file_name: String,
    /// How well it matches; higher is better.
    pub score: u32,
    /// Positions of the characters in the path that match the query.
    pub indices: Vec<u32>,
}

/// A command or process of a client, by the client's name for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named as in the protocol")]
pub enum OutputOf {
    Command { process_id: String },
    Process { process_handle: String },
}

/// Token counts of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ThreadTokenUsage")]
pub struct TokenUsage {
    /// Sum over the whole thread.
    pub total: Tokens,
    /// Only the last answer of the model.
    pub last: Tokens,
    /// Size of the context window in tokens, if known.
    pub model_context_window: Option<u64>,
}

/// Token counts with their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TokenUsageBreakdown")]
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
