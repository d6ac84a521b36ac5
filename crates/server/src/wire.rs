//! Threads, turns and items as clients see them. The order of fields is that of the reference.

use protocol::item::{
    Change, ChangeKind, Command, EndpointCall, ItemBody, Status as ItemStatus, WebSearchAction,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::request::{ItemsView, UserInput};

/// A thread. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Thread {
    /// Its id.
    pub id: String,
    /// Where it runs; none while it is not loaded.
    pub environments: Option<Vec<Environment>>,
    /// Nothing in this build.
    pub extra: (),
    /// Its id again; what it was first called.
    pub session_id: String,
    /// What it was forked from.
    pub forked_from_id: Option<String>,
    /// Nothing in this build.
    pub parent_thread_id: (),
    /// The first that the user said.
    pub preview: String,
    /// Whether nothing of it is kept.
    pub ephemeral: bool,
    /// Nothing in this build.
    pub section: (),
    /// Nothing in this build.
    pub section_entered_at: (),
    /// Nothing in this build.
    pub project_id: (),
    /// Whether its lines have ordinals.
    pub history_mode: HistoryMode,
    /// The provider.
    pub model_provider: String,
    /// The model.
    pub model: Option<String>,
    /// The reasoning effort.
    pub reasoning_effort: Option<String>,
    /// When it was made.
    pub created_at: i64,
    /// When it was last written to.
    pub updated_at: i64,
    /// The same, for lists.
    pub recency_at: i64,
    /// Whether it is loaded, and what it does.
    pub status: Status,
    /// Its file.
    pub path: Option<String>,
    /// The working directory.
    pub cwd: String,
    /// The version of the program that made it.
    pub cli_version: String,
    /// The client that had it made.
    pub originator: Option<String>,
    /// What it was made through.
    pub source: Value,
    /// Whether a user can speak in it.
    pub can_accept_direct_input: Option<bool>,
    /// Nothing in this build.
    pub thread_source: (),
    /// Nothing in this build.
    pub agent_nickname: (),
    /// Nothing in this build.
    pub agent_role: (),
    /// The commit and branch that it began at.
    pub git_info: Option<GitInfo>,
    /// What the user calls it.
    pub name: Option<String>,
    /// Nothing in this build.
    pub daybreak_enabled: (),
    /// Its turns, if they were asked for.
    pub turns: Vec<Turn>,
}

/// Where a thread runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    environment_id: &'static str,
    cwd: String,
    runtime_workspace_roots: [String; 1],
}

impl Environment {
    /// This machine, in a directory.
    pub fn local(cwd: &str) -> Self {
        Self {
            environment_id: "local",
            cwd: cwd.to_owned(),
            runtime_workspace_roots: [cwd.to_owned()],
        }
    }
}

/// How the log of a thread is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HistoryMode {
    /// Its lines have ordinals.
    #[default]
    Paginated,
    /// They have none.
    Legacy,
}

/// A commit and a branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GitInfo {
    /// The commit.
    pub sha: Option<String>,
    /// The branch.
    pub branch: Option<String>,
    /// Where it was cloned from.
    pub origin_url: Option<String>,
}

/// Whether a thread is loaded, and what it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Status {
    /// It is on disk and nowhere else.
    #[default]
    NotLoaded,
    /// It waits for the user.
    Idle,
    /// Its last turn failed.
    SystemError,
    /// A turn runs.
    #[serde(rename_all = "camelCase")]
    Active {
        /// What the turn waits for; nothing in this build.
        active_flags: [(); 0],
    },
}

/// What a thread runs with, as results say it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadSettings {
    /// The model.
    pub model: String,
    /// The provider.
    pub model_provider: String,
    /// The service tier.
    pub service_tier: Option<String>,
    disabled_plugin_ids: [(); 0],
    /// The working directory.
    pub cwd: String,
    runtime_workspace_roots: [String; 1],
    instruction_sources: [(); 0],
    approval_policy: &'static str,
    approvals_reviewer: &'static str,
    /// What commands may do.
    pub sandbox: Sandbox,
    active_permission_profile: (),
    /// The reasoning effort.
    pub reasoning_effort: Option<String>,
    multi_agent_mode: &'static str,
}

impl ThreadSettings {
    /// Makes it; what is not named is the same for all threads of this build.
    pub fn new(model: String, model_provider: String, cwd: String, sandbox: Sandbox) -> Self {
        Self {
            model,
            model_provider,
            service_tier: None,
            disabled_plugin_ids: [],
            runtime_workspace_roots: [cwd.clone()],
            cwd,
            instruction_sources: [],
            approval_policy: "never",
            approvals_reviewer: "user",
            sandbox,
            active_permission_profile: (),
            reasoning_effort: None,
            multi_agent_mode: "explicitRequestOnly",
        }
    }
}

/// What commands may do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Sandbox {
    /// Read everything, write nothing.
    #[serde(rename_all = "camelCase")]
    ReadOnly {
        /// Whether the network can be used.
        network_access: bool,
    },
    /// Write in the workspace.
    #[serde(rename_all = "camelCase")]
    WorkspaceWrite {
        /// Where else.
        writable_roots: Vec<String>,
        /// Whether the network can be used.
        network_access: bool,
        /// Whether not in `$TMPDIR`.
        exclude_tmpdir_env_var: bool,
        /// Whether not in `/tmp`.
        exclude_slash_tmp: bool,
    },
    /// Anything.
    DangerFullAccess,
}

/// A turn. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    /// Its id.
    pub id: String,
    /// The turn that it belongs to; itself.
    pub root_turn_id: String,
    /// Its items, as many as `items_view` says.
    pub items: Vec<Item>,
    /// How many of its items there are.
    pub items_view: ItemsView,
    /// How far it is.
    pub status: TurnStatus,
    /// Why it failed.
    pub error: Option<TurnError>,
    /// When it began.
    pub started_at: Option<u64>,
    /// When it ended.
    pub completed_at: Option<u64>,
    /// How long it took.
    pub duration_ms: Option<u64>,
}

impl Turn {
    /// Makes one that has not begun.
    pub fn new(id: String) -> Self {
        Self {
            root_turn_id: id.clone(),
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
}

/// How far a turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum TurnStatus {
    /// It ended with an answer.
    Completed,
    /// It was ended.
    Interrupted,
    /// It ended with an error.
    Failed,
    /// It runs.
    InProgress,
}

/// Why a turn failed, or a request of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnError {
    /// What a person reads.
    pub message: String,
    /// What a program branches on.
    pub codex_error_info: Value,
    /// More for a person.
    pub additional_details: Option<String>,
    /// Nothing in this build.
    pub misalignment: (),
}

impl TurnError {
    /// Makes an error.
    pub fn new(message: String, info: Value, details: Option<String>) -> Self {
        Self { message, codex_error_info: info, additional_details: details, misalignment: () }
    }
}

/// An item. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// What it is.
    #[serde(flatten)]
    pub body: Body,
    /// When it began.
    pub started_at_ms: Option<u64>,
    /// When it was done.
    pub completed_at_ms: Option<u64>,
}

/// What an item is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(
    missing_docs,
    reason = "the fields are those of the protocol, and say no more than it does"
)]
pub enum Body {
    /// What the user said.
    UserMessage { id: String, client_id: Option<String>, content: Vec<UserInput> },
    /// What the model said.
    AgentMessage {
        id: String,
        text: String,
        phase: Option<String>,
        memory_citation: (),
        delivery: (),
        questions: (),
    },
    /// What the model thought.
    Reasoning { id: String, summary: Vec<String>, content: Vec<String> },
    /// A command.
    CommandExecution {
        id: String,
        plugin_id: (),
        script_path: (),
        command: String,
        cwd: String,
        process_id: Option<String>,
        source: &'static str,
        status: &'static str,
        command_actions: Vec<Value>,
        aggregated_output: Option<String>,
        exit_code: Option<i32>,
        duration_ms: Option<u64>,
    },
    /// A patch.
    FileChange { id: String, changes: Vec<FileChange>, status: &'static str },
    /// A call that the endpoint ran itself, in the shape of one of an MCP server.
    McpToolCall {
        id: String,
        server: String,
        tool: String,
        status: &'static str,
        arguments: Value,
        app_context: (),
        mcp_app_ui: (),
        plugin_id: (),
        read_only_hint: (),
        result: Option<Value>,
        error: Option<Value>,
        duration_ms: Option<u64>,
    },
    /// A search.
    WebSearch { id: String, query: String, action: Option<Value> },
    /// The history was replaced by a summary.
    ContextCompaction { id: String },
}

/// A file of a patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileChange {
    path: String,
    kind: Value,
    /// This build does not keep what changed.
    diff: String,
}

impl Body {
    /// A message of the model.
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

    /// A command; `duration_ms` once it is done.
    pub fn command(id: String, command: &Command, duration_ms: Option<u64>) -> Self {
        let begun = command.status == ItemStatus::InProgress;
        let script = shlex::split(&command.command).and_then(|mut argv| argv.pop());
        let script = script.unwrap_or_else(|| command.command.clone());
        Self::CommandExecution {
            id,
            plugin_id: (),
            script_path: (),
            command: command.command.clone(),
            cwd: command.cwd.display().to_string(),
            process_id: None,
            source: if begun { "agent" } else { "unifiedExecStartup" },
            status: status_name(command.status),
            command_actions: vec![json!({"type": "unknown", "command": script})],
            aggregated_output: (!begun && !command.output.is_empty())
                .then(|| command.output.clone()),
            exit_code: command.exit_code,
            duration_ms: if begun { None } else { duration_ms },
        }
    }

    /// A call that the endpoint ran; `duration_ms` once it is done.
    pub fn endpoint_call(id: String, call: &EndpointCall, duration_ms: Option<u64>) -> Self {
        let begun = call.status == ItemStatus::InProgress;
        let content = json!([{"type": "text", "text": call.output}]);
        let result = json!({"content": content, "structuredContent": null, "_meta": null});
        Self::McpToolCall {
            id,
            server: call.server.clone(),
            tool: call.tool.clone(),
            status: status_name(call.status),
            arguments: call.json_arguments(),
            app_context: (),
            mcp_app_ui: (),
            plugin_id: (),
            read_only_hint: (),
            result: (!begun).then_some(result),
            error: (call.status == ItemStatus::Failed).then(|| json!({"message": call.output})),
            duration_ms: if begun { None } else { duration_ms },
        }
    }

    /// A patch.
    pub fn file_change(id: String, changes: &[Change], status: ItemStatus) -> Self {
        let change = |change: &Change| FileChange {
            path: change.path.clone(),
            kind: match change.kind {
                ChangeKind::Add => json!({"type": "add"}),
                ChangeKind::Delete => json!({"type": "delete"}),
                ChangeKind::Update => json!({"type": "update", "move_path": null}),
            },
            diff: String::new(),
        };
        let changes = changes.iter().map(change).collect();
        Self::FileChange { id, changes, status: status_name(status) }
    }

    /// An item of the engine; none if it is shown otherwise.
    pub fn from_item(id: String, body: &ItemBody, duration_ms: Option<u64>) -> Option<Self> {
        Some(match body {
            ItemBody::AgentMessage { text } => Self::agent_message(id, text.to_string()),
            ItemBody::Reasoning { summary } => {
                Self::Reasoning { id, summary: summary.clone(), content: Vec::new() }
            }
            ItemBody::Command(command) => Self::command(id, command, duration_ms),
            ItemBody::EndpointCall(call) => Self::endpoint_call(id, call, duration_ms),
            ItemBody::RefusedCall(call) => Self::endpoint_call(id, &call.as_failed(), duration_ms),
            ItemBody::FileChange { changes, status, .. } => Self::file_change(id, changes, *status),
            ItemBody::WebSearch { query, action, .. } => {
                Self::WebSearch { id, query: query.clone(), action: Some(search_action(action)) }
            }
            ItemBody::Compaction { .. } => Self::ContextCompaction { id },
            ItemBody::TodoList { .. } => return None,
        })
    }
}

/// Writes an action of a search as clients of this protocol read it.
pub fn search_action(action: &WebSearchAction) -> Value {
    match action {
        WebSearchAction::Search { query, queries } => {
            json!({"type": "search", "query": query, "queries": queries})
        }
        WebSearchAction::OpenPage { url } => json!({"type": "openPage", "url": url}),
        WebSearchAction::FindInPage { url, pattern } => {
            json!({"type": "findInPage", "url": url, "pattern": pattern})
        }
        WebSearchAction::Other => json!({"type": "other"}),
    }
}

fn status_name(status: ItemStatus) -> &'static str {
    match status {
        ItemStatus::InProgress => "inProgress",
        ItemStatus::Completed => "completed",
        ItemStatus::Failed => "failed",
        ItemStatus::Declined => "declined",
    }
}
