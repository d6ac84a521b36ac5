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
    /// The last turns of a thread were taken out of it.
    #[serde(rename = "thread/reverted")]
    ThreadReverted { thread_id: String },
    #[serde(rename = "thread/name/updated")]
    ThreadNameUpdated { thread_id: String, thread_name: Option<String> },
    /// The goal of a thread has changed, in a turn or by a client.
    #[serde(rename = "thread/goal/updated")]
    GoalUpdated { thread_id: String, turn_id: Option<String>, goal: ThreadGoal },
    /// A thread has no goal.
    #[serde(rename = "thread/goal/cleared")]
    GoalCleared { thread_id: String },
    /// What is queued in a thread has changed.
    #[serde(rename = "thread/queue/changed")]
    QueueChanged { thread_id: String },
    /// Settings changed, from the next turn on.
    #[serde(rename = "thread/settings/updated")]
    SettingsUpdated { thread_id: String, thread_settings: Box<UpdatedSettings> },
    #[serde(rename = "thread/tokenUsage/updated")]
    TokenUsageUpdated { thread_id: String, turn_id: String, token_usage: TokenUsage },
    #[serde(rename = "turn/started")]
    TurnStarted { thread_id: String, turn: Turn },
    #[serde(rename = "turn/completed")]
    TurnCompleted { thread_id: String, turn: Turn },
    /// A patch was applied: all changes of the turn so far, as a unified diff.
    #[serde(rename = "turn/diff/updated")]
    DiffUpdated { thread_id: String, turn_id: String, diff: String },
    /// The plan of the model changed.
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
    /// Something changed at a path that the client watches.
    #[serde(rename = "fs/changed")]
    FsChanged { watch_id: String, changed_paths: Vec<String> },
    /// A command of the client has printed something.
    #[serde(rename = "command/exec/outputDelta")]
    CommandExecOutput {
        process_id: String,
        stream: &'static str,
        delta_base64: String,
        cap_reached: bool,
    },
    /// A process of the client has printed something.
    #[serde(rename = "process/outputDelta")]
    ProcessOutput {
        process_handle: String,
        stream: &'static str,
        delta_base64: String,
        cap_reached: bool,
    },
    /// A process of the client has ended.
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
    /// What a search of the client has found until now.
    #[serde(rename = "fuzzyFileSearch/sessionUpdated")]
    SearchUpdated { session_id: String, query: String, files: Vec<FoundFile> },
    /// Nothing more fits the last query of a search.
    #[serde(rename = "fuzzyFileSearch/sessionCompleted")]
    SearchCompleted { session_id: String },
    /// A request to the model failed and is sent again, or the turn failed.
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

    /// Output of something that the client runs.
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

    /// Returns a delta with another text.
    #[must_use]
    pub fn with_text(&self, text: String) -> Self {
        let mut other = self.clone();
        if let Some(delta) = other.text_mut() {
            *delta = text;
        }
        other
    }

    /// Adds text to the end of a delta.
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

    /// Formats the line of the notification.
    pub fn line(&self, now_ms: u64) -> String {
        self.numbered_line(now_ms, None)
    }

    /// Formats the line of a notification that has a number in its thread.
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

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "TurnPlanStep")]
pub struct PlanStep {
    pub step: String,
    pub status: PlanStepStatus,
}

/// How far a step of a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TurnPlanStepStatus")]
pub enum PlanStepStatus {
    Pending,
    InProgress,
    Completed,
}

/// A file that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FuzzyFileSearchResult")]
pub struct FoundFile {
    /// The directory that was looked through, as the client has named it.
    pub root: String,
    /// Relative to the root.
    pub path: String,
    /// `file` or `directory`.
    pub match_type: &'static str,
    pub file_name: String,
    /// How well it fits; more is better.
    pub score: u32,
    /// Which characters of the path fit the query.
    pub indices: Vec<u32>,
}

/// What a client runs, by its name for it.
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
    /// For the whole thread.
    pub total: Tokens,
    /// For the last answer of the model.
    pub last: Tokens,
    /// Size of the context window in tokens, if it is known.
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
