//! Threads, turns and items as JSON for clients. Fields are in the reference's order.

use std::path::Path;

use heddle::Mode;
use heddle::policy::{ScriptAction, script_actions};
use heddle::threads::index::Summary;
use heddle::tools::HOST_SERVER;
use log::cause;
use protocol::error::{FailureFacts, TurnError as Failure};
use protocol::item::{
    Change, ChangeKind, Command, CommandSource, ItemBody, Status as ItemStatus, ToolCall,
    WebSearchAction,
};
use protocol::review::{Review, UNFINISHED};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::past::to_camel;
use crate::request::{Approval, Changes, ItemsView, UserInput};

/// A thread. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Thread {
    pub id: String,
    /// Where it runs; null while it is not loaded.
    #[schemars(extend("x-experimental" = true))]
    pub environments: Option<Vec<Environment>>,
    /// Always null in this build.
    #[schemars(extend("x-experimental" = true))]
    pub extra: (),
    /// The id of the session in its log, or its own id if the log has none.
    pub session_id: String,
    /// The thread that it was forked from.
    pub forked_from_id: Option<String>,
    /// Always null in this build.
    pub parent_thread_id: (),
    /// The beginning of the user's first message.
    pub preview: String,
    /// Whether it is kept in memory only.
    pub ephemeral: bool,
    /// Always null in this build.
    pub section: (),
    /// Always null in this build.
    pub section_entered_at: (),
    /// Always null in this build.
    pub project_id: (),
    /// Whether the lines of its log have ordinals.
    pub history_mode: HistoryMode,
    pub model_provider: String,
    pub model: Option<String>,
    pub reasoning_effort: Option<String>,
    pub created_at: i64,
    /// When it last changed.
    pub updated_at: i64,
    /// The same as `updated_at`.
    pub recency_at: i64,
    /// Whether it is loaded, and what it is doing.
    pub status: Status,
    pub path: Option<String>,
    pub cwd: String,
    /// The version of the program that created it.
    pub cli_version: String,
    /// The client that created it.
    pub originator: Option<String>,
    /// The kind of program that created it, such as `cli` or `vscode`.
    pub source: Value,
    /// Whether the user can send messages to it.
    #[schemars(extend("x-experimental" = true))]
    pub can_accept_direct_input: Option<bool>,
    /// Always null in this build.
    pub thread_source: (),
    /// Always null in this build.
    pub agent_nickname: (),
    /// Always null in this build.
    pub agent_role: (),
    /// The Git commit and branch when it was created, unless a client has changed them.
    pub git_info: Option<GitInfo>,
    /// The name that the user gave it.
    pub name: Option<String>,
    /// Always null in this build.
    #[schemars(extend("x-experimental" = true))]
    pub daybreak_enabled: (),
    /// Its turns, if they were requested.
    pub turns: Vec<Turn>,
}

impl Thread {
    /// Creates a thread from its index entry.
    pub fn from_summary(found: Summary) -> Self {
        let seconds = |ms: i64| ms.div_euclid(1000);
        let updated_at = seconds(found.updated_ms);
        let branch = found.branch.map(|branch| GitInfo {
            sha: None,
            branch: Some(branch),
            origin_url: None,
        });
        Self {
            id: found.id.to_string(),
            session_id: found.id.to_string(),
            forked_from_id: found.forked_from.map(|id| id.to_string()),
            preview: found.preview,
            model_provider: found.provider,
            model: Some(found.model).filter(|model| !model.is_empty()),
            created_at: seconds(found.created_ms),
            updated_at,
            recency_at: updated_at,
            path: Some(found.path.display().to_string()),
            cwd: found.cwd,
            source: found.source.into(),
            git_info: branch,
            name: found.name,
            ..Self::default()
        }
    }
}

/// The machine and directory that a thread runs in.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ThreadEnvironment")]
pub struct Environment {
    environment_id: &'static str,
    cwd: String,
    runtime_workspace_roots: [String; 1],
}

impl Environment {
    /// Creates the environment of a directory on this machine.
    pub fn local(cwd: &str) -> Self {
        Self {
            environment_id: "local",
            cwd: cwd.to_owned(),
            runtime_workspace_roots: [cwd.to_owned()],
        }
    }
}

/// The log format of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ThreadHistoryMode")]
pub enum HistoryMode {
    /// Lines have ordinals, so forks can end at any turn.
    #[default]
    Paginated,
    /// Lines have no ordinals, as in older logs.
    Legacy,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitInfo {
    pub sha: Option<String>,
    pub branch: Option<String>,
    /// The URL it was cloned from.
    pub origin_url: Option<String>,
}

/// Whether a thread is loaded, and what it is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
#[schemars(rename = "ThreadStatus")]
pub enum Status {
    /// It exists only on disk.
    #[default]
    NotLoaded,
    /// It is waiting for the user.
    Idle,
    /// Its last turn failed.
    SystemError,
    /// A turn is running.
    #[serde(rename_all = "camelCase")]
    Active {
        /// What the turn waits for.
        active_flags: Vec<ActiveFlag>,
    },
}

impl Status {
    pub fn is_active(&self) -> bool {
        matches!(self, Self::Active { .. })
    }
}

/// Something that a turn waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ThreadActiveFlag")]
pub enum ActiveFlag {
    WaitingOnApproval,
    WaitingOnUserInput,
}

/// The settings of a thread, as results contain them.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThreadSettings {
    pub model: String,
    pub model_provider: String,
    pub service_tier: Option<String>,
    disabled_plugin_ids: [(); 0],
    pub cwd: String,
    #[schemars(extend("x-experimental" = true))]
    runtime_workspace_roots: [String; 1],
    instruction_sources: [(); 0],
    pub approval_policy: Approval,
    approvals_reviewer: &'static str,
    pub sandbox: Sandbox,
    #[schemars(extend("x-experimental" = true))]
    active_permission_profile: (),
    pub reasoning_effort: Option<String>,
    #[schemars(extend("x-experimental" = true))]
    multi_agent_mode: &'static str,
    /// How reasoning is summarized. Not part of results.
    #[serde(skip)]
    pub summary: Option<String>,
    /// The collaboration mode, and the instructions that replace its own. Not part of results.
    #[serde(skip)]
    pub mode: (ModeKind, Option<String>),
}

impl ThreadSettings {
    /// Applies changes, which hold from the next turn on.
    pub fn apply(&mut self, changes: &Changes) {
        let Changes {
            cwd,
            model,
            approval_policy,
            sandbox_policy,
            effort,
            summary,
            collaboration_mode,
        } = changes.clone();
        if let Some(cwd) = cwd {
            self.runtime_workspace_roots = [cwd.clone()];
            self.cwd = cwd;
        }
        self.model = model.unwrap_or_else(|| std::mem::take(&mut self.model));
        self.approval_policy = approval_policy.unwrap_or(self.approval_policy);
        if let Some(policy) = &sandbox_policy {
            self.sandbox = policy.into();
        }
        self.reasoning_effort = effort.or_else(|| self.reasoning_effort.take());
        self.summary = summary.or_else(|| self.summary.take());
        if let Some(CollaborationMode { mode, settings }) = collaboration_mode {
            let ModeSettings { model, reasoning_effort, developer_instructions } = settings;
            self.model = model;
            self.reasoning_effort = reasoning_effort;
            self.mode = (mode, developer_instructions);
        }
    }

    /// Converts the settings for `thread/settings/updated`.
    pub fn to_updated(&self) -> UpdatedSettings {
        UpdatedSettings {
            disabled_plugin_ids: [],
            cwd: self.cwd.clone(),
            approval_policy: self.approval_policy,
            approvals_reviewer: self.approvals_reviewer,
            sandbox_policy: self.sandbox.clone(),
            active_permission_profile: (),
            model: self.model.clone(),
            model_provider: self.model_provider.clone(),
            service_tier: self.service_tier.clone(),
            effort: self.reasoning_effort.clone(),
            summary: self.summary.clone(),
            collaboration_mode: CollaborationMode {
                mode: self.mode.0,
                settings: ModeSettings {
                    model: self.model.clone(),
                    reasoning_effort: self.reasoning_effort.clone(),
                    developer_instructions: self.mode.1.clone(),
                },
            },
            multi_agent_mode: self.multi_agent_mode,
            personality: (),
        }
    }

    /// Creates the settings; fields that are not arguments are the same for all threads of this build.
    pub fn new(
        model: String,
        model_provider: String,
        cwd: String,
        sandbox: Sandbox,
        approval_policy: Approval,
    ) -> Self {
        Self {
            model,
            model_provider,
            service_tier: None,
            disabled_plugin_ids: [],
            runtime_workspace_roots: [cwd.clone()],
            cwd,
            instruction_sources: [],
            approval_policy,
            approvals_reviewer: "user",
            sandbox,
            active_permission_profile: (),
            reasoning_effort: None,
            multi_agent_mode: "explicitRequestOnly",
            summary: None,
            mode: (ModeKind::Default, None),
        }
    }
}

/// The settings of a thread, as notifications contain them; some names differ from those in results.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ThreadSettings")]
pub struct UpdatedSettings {
    disabled_plugin_ids: [(); 0],
    cwd: String,
    approval_policy: Approval,
    approvals_reviewer: &'static str,
    sandbox_policy: Sandbox,
    active_permission_profile: (),
    model: String,
    model_provider: String,
    service_tier: Option<String>,
    effort: Option<String>,
    summary: Option<String>,
    collaboration_mode: CollaborationMode,
    #[schemars(extend("x-experimental" = true))]
    multi_agent_mode: &'static str,
    personality: (),
}

/// A collaboration mode and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CollaborationMode {
    pub mode: ModeKind,
    pub settings: ModeSettings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModeKind {
    Plan,
    Default,
}

/// Settings that come with a mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Settings")]
pub struct ModeSettings {
    pub model: String,
    pub reasoning_effort: Option<String>,
    /// Instructions to the model that replace those of the mode.
    pub developer_instructions: Option<String>,
}

impl From<Mode> for ModeKind {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Plan => Self::Plan,
            Mode::Default => Self::Default,
        }
    }
}

impl From<ModeKind> for Mode {
    fn from(mode: ModeKind) -> Self {
        match mode {
            ModeKind::Plan => Self::Plan,
            ModeKind::Default => Self::Default,
        }
    }
}

/// The sandbox of commands.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
#[schemars(rename = "SandboxPolicy")]
pub enum Sandbox {
    /// Commands may read everything and write nothing.
    #[serde(rename_all = "camelCase")]
    ReadOnly {
        /// Whether commands may use the network.
        network_access: bool,
    },
    /// Commands may also write in the workspace.
    #[serde(rename_all = "camelCase")]
    WorkspaceWrite {
        /// Additional writable directories.
        writable_roots: Vec<String>,
        /// Whether commands may use the network.
        network_access: bool,
        /// Whether `$TMPDIR` is not writable.
        exclude_tmpdir_env_var: bool,
        /// Whether `/tmp` is not writable.
        exclude_slash_tmp: bool,
    },
    /// Commands run without a sandbox.
    DangerFullAccess,
}

/// A turn. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    pub id: String,
    /// Its own id in this build; null in the result of `review/start`.
    pub root_turn_id: Option<String>,
    /// Its items; `items_view` says how many are included.
    pub items: Vec<Item>,
    pub items_view: ItemsView,
    pub status: TurnStatus,
    pub error: Option<TurnError>,
    pub started_at: Option<u64>,
    pub completed_at: Option<u64>,
    pub duration_ms: Option<u64>,
}

impl Turn {
    /// Creates a turn that has not started.
    pub fn new(id: String) -> Self {
        Self {
            root_turn_id: Some(id.clone()),
            id,
            items: Vec::new(),
            items_view: ItemsView::NotLoaded,
            status: TurnStatus::InProgress,
            error: None,
            started_at: None,
            completed_at: None,
            duration_ms: None,
        }
    }

    /// Creates a review that has not started. Its only item is the description of what is reviewed.
    pub fn of_review(id: String, hint: String) -> Self {
        let content = vec![UserInput::Text { text: hint, text_elements: Vec::new() }];
        let body = Body::UserMessage { id: id.clone(), client_id: None, content };
        let item = Item { body, started_at_ms: None, completed_at_ms: None };
        Self { root_turn_id: None, items: vec![item], ..Self::new(id) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TurnStatus {
    Completed,
    Interrupted,
    Failed,
    InProgress,
}

/// Why a turn, or one of its requests, failed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnError {
    /// A sentence for the user.
    pub message: String,
    /// The kind of failure, for programs.
    pub codex_error_info: Value,
    /// More details for the user.
    pub additional_details: Option<String>,
    /// Always null in this build.
    pub misalignment: (),
    /// More details of the failure, for programs written for heddle.
    #[serde(skip_serializing_if = "FailureFacts::is_empty")]
    #[schemars(with = "Map<String, Value>")]
    pub heddle: FailureFacts,
}

impl TurnError {
    pub fn new(message: String, info: Value, details: Option<String>) -> Self {
        Self {
            message,
            codex_error_info: info,
            additional_details: details,
            misalignment: (),
            heddle: FailureFacts::default(),
        }
    }

    pub fn from_failure(failure: &Failure) -> Self {
        let info = to_camel(cause::error_info(failure.cause));
        let heddle = cause::facts(failure);
        Self { heddle, ..Self::new(failure.message.clone(), info, None) }
    }
}

/// An item. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ThreadItem")]
pub struct Item {
    #[serde(flatten)]
    pub body: Body,
    pub started_at_ms: Option<u64>,
    pub completed_at_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields are named as in the protocol")]
#[schemars(rename = "ThreadItemBody")]
pub enum Body {
    UserMessage {
        id: String,
        client_id: Option<String>,
        content: Vec<UserInput>,
    },
    AgentMessage {
        id: String,
        text: String,
        phase: Option<String>,
        memory_citation: (),
        delivery: (),
        questions: (),
    },
    /// A plan that the model proposes.
    Plan {
        id: String,
        text: String,
    },
    Reasoning {
        id: String,
        summary: Vec<String>,
        content: Vec<String>,
    },
    /// A command and its result.
    CommandExecution {
        id: String,
        plugin_id: (),
        script_path: (),
        command: String,
        cwd: String,
        process_id: Option<String>,
        source: CommandOrigin,
        status: ItemState,
        command_actions: Vec<CommandAction>,
        aggregated_output: Option<String>,
        exit_code: Option<i32>,
        duration_ms: Option<u64>,
    },
    /// A patch and its result.
    FileChange {
        id: String,
        changes: Vec<FileChange>,
        status: ItemState,
    },
    /// A call of a tool that the client runs.
    DynamicToolCall {
        id: String,
        namespace: (),
        tool: String,
        arguments: Value,
        status: ItemState,
        content_items: Option<Vec<ContentItem>>,
        success: Option<bool>,
        duration_ms: Option<u64>,
    },
    /// A call of a tool that is neither built in nor run by the client.
    McpToolCall {
        id: String,
        server: String,
        tool: String,
        status: ItemState,
        arguments: Value,
        app_context: (),
        mcp_app_ui: (),
        plugin_id: (),
        read_only_hint: (),
        result: Option<McpResult>,
        error: Option<McpError>,
        duration_ms: Option<u64>,
    },
    /// A web search that the provider ran.
    WebSearch {
        id: String,
        query: String,
        action: Option<SearchAction>,
    },
    /// The history was replaced by a summary.
    ContextCompaction {
        id: String,
    },
    /// A reviewer starts.
    EnteredReviewMode {
        id: String,
        /// What is reviewed.
        review: String,
    },
    /// A reviewer has finished.
    ExitedReviewMode {
        id: String,
        /// The findings, in Markdown.
        review: String,
    },
}

/// The state of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ItemStatus")]
pub enum ItemState {
    InProgress,
    Completed,
    Failed,
    /// The user declined it.
    Declined,
}

/// Who has started a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CommandExecutionSource")]
pub enum CommandOrigin {
    Agent,
    UserShell,
    UnifiedExecStartup,
}

/// What a command does, as far as heddle can tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum CommandAction {
    /// Prints a file or a part of it.
    Read {
        command: String,
        name: String,
        path: String,
    },
    ListFiles {
        command: String,
        path: Option<String>,
    },
    Search {
        command: String,
        query: Option<String>,
        path: Option<String>,
    },
    /// Anything else.
    Unknown {
        command: String,
    },
}

/// A part of the result of a client's tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
#[schemars(rename = "DynamicToolCallOutputContentItem")]
pub enum ContentItem {
    InputText { text: String },
}

/// The result of a tool that is not built in.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "McpToolCallResult")]
pub struct McpResult {
    content: Vec<Value>,
    structured_content: (),
    #[serde(rename = "_meta")]
    meta: (),
}

/// Why a tool that is not built in has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "McpToolCallError")]
pub struct McpError {
    message: String,
}

/// An action of a web search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
#[schemars(rename = "WebSearchAction")]
#[expect(missing_docs, reason = "the fields are named as in the protocol")]
pub enum SearchAction {
    Search { query: Option<String>, queries: Option<Vec<String>> },
    OpenPage { url: Option<String> },
    FindInPage { url: Option<String>, pattern: Option<String> },
    Other,
}

/// What a patch does with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(rename = "PatchChangeKind")]
pub enum PatchKind {
    Add,
    Delete,
    /// Its content changes; it is also moved if there is another path.
    Update {
        move_path: Option<String>,
    },
}

/// A change of a file by a patch.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "FileUpdateChange")]
pub struct FileChange {
    path: String,
    kind: PatchKind,
    /// The content of a new or deleted file, or a unified diff.
    diff: String,
}

impl Body {
    pub fn id(&self) -> &str {
        match self {
            Self::UserMessage { id, .. }
            | Self::AgentMessage { id, .. }
            | Self::Plan { id, .. }
            | Self::Reasoning { id, .. }
            | Self::CommandExecution { id, .. }
            | Self::FileChange { id, .. }
            | Self::DynamicToolCall { id, .. }
            | Self::McpToolCall { id, .. }
            | Self::WebSearch { id, .. }
            | Self::ContextCompaction { id }
            | Self::EnteredReviewMode { id, .. }
            | Self::ExitedReviewMode { id, .. } => id,
        }
    }

    /// Creates a message of the model.
    pub fn agent_message(id: String, text: String) -> Self {
        let nothing = ();
        Self::AgentMessage {
            id,
            text,
            phase: None,
            memory_citation: nothing,
            delivery: nothing,
            questions: nothing,
        }
    }

    /// Creates a command; `duration_ms` once it has ended.
    pub fn command(id: String, command: &Command, duration_ms: Option<u64>) -> Self {
        let begun = command.status == ItemStatus::InProgress;
        let script = shlex::split(&command.command).and_then(|mut argv| argv.pop());
        let script = script.unwrap_or_else(|| command.command.clone());
        let command_actions = command_actions(&script, &command.cwd);
        Self::CommandExecution {
            id,
            plugin_id: (),
            script_path: (),
            command: command.command.clone(),
            cwd: command.cwd.display().to_string(),
            process_id: None,
            source: match (command.source, begun) {
                (CommandSource::User, _) => CommandOrigin::UserShell,
                (CommandSource::Model, true) => CommandOrigin::Agent,
                (CommandSource::Model, false) => CommandOrigin::UnifiedExecStartup,
            },
            status: command.status.into(),
            command_actions,
            aggregated_output: (!begun && !command.output.is_empty())
                .then(|| command.output.clone()),
            exit_code: command.exit_code,
            duration_ms: if begun { None } else { duration_ms },
        }
    }

    /// Creates a call of a tool that is not built in; `duration_ms` once it has ended.
    pub fn tool_call(id: String, call: &ToolCall, duration_ms: Option<u64>) -> Self {
        let begun = call.status == ItemStatus::InProgress;
        if call.server == HOST_SERVER {
            let content = || vec![ContentItem::InputText { text: call.output.clone() }];
            return Self::DynamicToolCall {
                id,
                namespace: (),
                tool: call.tool.clone(),
                arguments: call.json_arguments(),
                status: if call.status == ItemStatus::Declined {
                    ItemState::Failed
                } else {
                    call.status.into()
                },
                content_items: (!begun).then(content),
                success: (!begun).then_some(call.status == ItemStatus::Completed),
                duration_ms: if begun { None } else { duration_ms },
            };
        }
        let result = McpResult {
            content: vec![json!({"type": "text", "text": call.output})],
            structured_content: (),
            meta: (),
        };
        Self::McpToolCall {
            id,
            server: call.server.clone(),
            tool: call.tool.clone(),
            status: call.status.into(),
            arguments: call.json_arguments(),
            app_context: (),
            mcp_app_ui: (),
            plugin_id: (),
            read_only_hint: (),
            result: (!begun).then_some(result),
            error: (call.status == ItemStatus::Failed)
                .then(|| McpError { message: call.output.clone() }),
            duration_ms: if begun { None } else { duration_ms },
        }
    }

    pub fn file_change(id: String, changes: &[Change], status: ItemStatus) -> Self {
        let change = |change: &Change| FileChange {
            path: change.path.clone(),
            kind: match change.kind {
                ChangeKind::Add => PatchKind::Add,
                ChangeKind::Delete => PatchKind::Delete,
                ChangeKind::Update => PatchKind::Update { move_path: change.moved_to.clone() },
            },
            diff: change.diff.to_string(),
        };
        let changes = changes.iter().map(change).collect();
        Self::FileChange { id, changes, status: status.into() }
    }

    /// Converts an item of the engine; `None` for a to-do list, which is sent as `turn/plan/updated`.
    pub fn from_item(id: String, body: &ItemBody, duration_ms: Option<u64>) -> Option<Self> {
        Some(match body {
            ItemBody::UserMessage(message) => Self::UserMessage {
                id,
                client_id: message.client_id.clone(),
                // Kinds of input that this build does not know are left out, as clients do not know them either.
                content: message.inputs().cloned().map(Into::into).collect(),
            },
            ItemBody::AgentMessage { text } => Self::agent_message(id, text.to_string()),
            ItemBody::Reasoning { summary, content } => {
                Self::Reasoning { id, summary: summary.clone(), content: content.clone() }
            }
            ItemBody::Plan { text } => Self::Plan { id, text: text.to_string() },
            ItemBody::Command(command) => Self::command(id, command, duration_ms),
            ItemBody::ToolCall(call) => Self::tool_call(id, call, duration_ms),
            ItemBody::RefusedCall(call) => Self::tool_call(id, &call.as_failed(), duration_ms),
            ItemBody::FileChange { changes, status, .. } => Self::file_change(id, changes, *status),
            ItemBody::WebSearch { query, action, .. } => {
                Self::WebSearch { id, query: query.clone(), action: Some(action.into()) }
            }
            ItemBody::Compaction { .. } => Self::ContextCompaction { id },
            ItemBody::EnteredReview { hint, .. } => {
                Self::EnteredReviewMode { id, review: hint.clone() }
            }
            ItemBody::ExitedReview { review } => Self::ExitedReviewMode {
                id,
                review: review.as_ref().map_or_else(|| UNFINISHED.to_owned(), Review::text),
            },
            ItemBody::TodoList { .. } => return None,
        })
    }
}

/// Describes what a script does, as clients show it.
pub fn command_actions(script: &str, cwd: &Path) -> Vec<CommandAction> {
    script_actions(script, cwd).into_iter().map(CommandAction::from).collect()
}

impl From<ScriptAction> for CommandAction {
    fn from(action: ScriptAction) -> Self {
        match action {
            ScriptAction::Read { command, name, path } => {
                Self::Read { command, name, path: path.display().to_string() }
            }
            ScriptAction::ListFiles { command, path } => Self::ListFiles { command, path },
            ScriptAction::Search { command, query, path } => Self::Search { command, query, path },
            ScriptAction::Unknown { command } => Self::Unknown { command },
        }
    }
}

impl From<&WebSearchAction> for SearchAction {
    fn from(action: &WebSearchAction) -> Self {
        match action.clone() {
            WebSearchAction::Search { query, queries } => Self::Search { query, queries },
            WebSearchAction::OpenPage { url } => Self::OpenPage { url },
            WebSearchAction::FindInPage { url, pattern } => Self::FindInPage { url, pattern },
            WebSearchAction::Other => Self::Other,
        }
    }
}

impl From<ItemStatus> for ItemState {
    fn from(status: ItemStatus) -> Self {
        match status {
            ItemStatus::InProgress => Self::InProgress,
            ItemStatus::Completed => Self::Completed,
            ItemStatus::Failed => Self::Failed,
            ItemStatus::Declined => Self::Declined,
        }
    }
}
