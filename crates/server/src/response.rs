//! Results of requests.
//!
//! A field that is always empty or null in this build has a type that says so.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::goal::ThreadGoal;
use crate::notification::FoundFile;
use crate::queue::Queued;
use crate::wire::{Thread, ThreadSettings, Turn};

/// The request is done.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct Done {}

/// No result: this build answers these requests with errors only.
pub(crate) enum Refused {}

impl JsonSchema for Refused {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Refused".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!(false)
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct OneGoal {
    pub(crate) goal: ThreadGoal,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct MaybeGoal {
    pub(crate) goal: Option<ThreadGoal>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Cleared {
    /// Whether there was a goal to remove.
    pub(crate) cleared: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OneQueued {
    pub(crate) queued_submission: Queued,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Deleted {
    /// Whether the entry was in the queue.
    pub(crate) deleted: bool,
}

/// A list that is returned as a whole.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Data<T> {
    pub(crate) data: Vec<T>,
}

/// A page of a list that can be read in one direction only.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed<T> {
    pub(crate) data: Vec<T>,
    /// The cursor of the next page; null on the last page.
    pub(crate) next_cursor: Option<String>,
}

/// The entry type of lists that are always empty in this build.
#[derive(Serialize)]
pub(crate) enum NoEntry {}

impl JsonSchema for NoEntry {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NoEntry".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!(true)
    }
}

// Connections.

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Initialized {
    pub(crate) user_agent: String,
    pub(crate) codex_home: String,
    pub(crate) platform_family: &'static str,
    pub(crate) platform_os: &'static str,
}

/// Numbers that describe the state of the server.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Diagnostics {
    pub(crate) process: Process,
    pub(crate) gauges: Vec<Gauge>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ServerDiagnosticsProcess")]
pub(crate) struct Process {
    pub(crate) id: u32,
    pub(crate) resident_memory_bytes: Option<u64>,
    /// Only macOS has it.
    pub(crate) physical_footprint_bytes: Option<u64>,
}

/// A value as it is at this moment.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerDiagnosticsGauge")]
pub(crate) struct Gauge {
    pub(crate) name: &'static str,
    pub(crate) value: u64,
}

// Threads.

/// A thread and its settings, in one JSON object.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Opened {
    pub(crate) thread: Thread,
    #[serde(flatten)]
    pub(crate) settings: ThreadSettings,
    /// The number of the newest notification, for a thread that was already loaded.
    #[serde(rename = "heddleSeq", skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct OneThread {
    pub(crate) thread: Thread,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reverted {
    pub(crate) thread: Thread,
    /// The cursors of the end of the thread, from which ascending lists continue.
    pub(crate) turns_backwards_cursor: Option<String>,
    pub(crate) items_backwards_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Threads {
    pub(crate) data: Vec<Thread>,
    /// Always empty in this build.
    #[schemars(extend("x-experimental" = true))]
    pub(crate) read_states: BTreeMap<String, Value>,
    pub(crate) next_cursor: Option<String>,
    /// Always null in this build.
    pub(crate) backwards_cursor: (),
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FoundThreads {
    pub(crate) data: Vec<FoundThread>,
    pub(crate) next_cursor: Option<String>,
    /// Always null in this build.
    pub(crate) backwards_cursor: (),
}

/// A thread and its best match.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ThreadSearchResult")]
pub(crate) struct FoundThread {
    pub(crate) thread: Thread,
    pub(crate) snippet: String,
}

/// Notifications that a client has missed.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Events {
    #[schemars(with = "Vec<Value>")]
    pub(crate) data: Vec<Box<RawValue>>,
    pub(crate) last_seq: u64,
    /// Whether no notification is missing between the given number and the first one in the list.
    pub(crate) is_complete: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Unsubscribed {
    pub(crate) status: UnsubscribeStatus,
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ThreadUnsubscribeStatus")]
pub(crate) enum UnsubscribeStatus {
    NotLoaded,
    NotSubscribed,
    Unsubscribed,
}

// Turns.

#[derive(Serialize, JsonSchema)]
pub(crate) struct OneTurn {
    pub(crate) turn: Turn,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReviewStarted {
    pub(crate) turn: Turn,
    /// The thread that the review belongs to: the one that it was started in.
    pub(crate) review_thread_id: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Steered {
    pub(crate) turn_id: String,
}

// Background commands.

/// A background command that the model started.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ThreadBackgroundTerminal")]
pub(crate) struct Terminal {
    pub(crate) item_id: String,
    pub(crate) process_id: String,
    pub(crate) command: String,
    pub(crate) cwd: String,
    // Nothing here measures them.
    pub(crate) os_pid: (),
    pub(crate) cpu_percent: (),
    pub(crate) rss_kb: (),
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Terminated {
    pub(crate) terminated: bool,
}

// Models and modes.

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Model {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) upgrade: (),
    pub(crate) upgrade_info: (),
    pub(crate) availability_nux: (),
    pub(crate) display_name: String,
    pub(crate) description: &'static str,
    pub(crate) model_specialty: (),
    pub(crate) hidden: bool,
    pub(crate) supported_reasoning_efforts: Vec<Effort>,
    pub(crate) default_reasoning_effort: String,
    pub(crate) input_modalities: [&'static str; 2],
    pub(crate) supports_personality: bool,
    pub(crate) multi_agent_version: (),
    pub(crate) additional_speed_tiers: [(); 0],
    pub(crate) service_tiers: [(); 0],
    pub(crate) default_service_tier: (),
    pub(crate) available_access_programs: (),
    pub(crate) is_default: bool,
}

/// A reasoning effort that a model supports.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ReasoningEffortOption")]
pub(crate) struct Effort {
    pub(crate) reasoning_effort: String,
    pub(crate) description: String,
}

/// Tools that providers run themselves.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProviderCapabilities {
    pub(crate) image_generation: bool,
    pub(crate) web_search: bool,
}

/// A named set of permissions for commands.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PermissionProfileSummary")]
pub(crate) struct PermissionProfile {
    pub(crate) id: &'static str,
    pub(crate) description: Option<&'static str>,
    pub(crate) allowed: bool,
}

/// A collaboration mode and its settings.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CollaborationModeMask")]
pub(crate) struct CollaborationMode {
    pub(crate) name: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) model: Option<&'static str>,
    pub(crate) reasoning_effort: Option<&'static str>,
}

/// The features that were switched: none in this build.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Enabled {
    pub(crate) enablement: BTreeMap<String, bool>,
}

// The account.

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WhoPays {
    pub(crate) account: Option<Account>,
    pub(crate) requires_openai_auth: bool,
    /// Always null in this build.
    #[schemars(extend("x-experimental" = true))]
    pub(crate) workspace_routing: (),
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(crate) enum Account {
    /// The owner of the key in the server's environment.
    ApiKey {},
}

// The configuration, skills, hooks.

/// Settings that an administrator enforces: none in this build.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Requirements {
    pub(crate) supports_independent_speed_modes: bool,
    pub(crate) requirements: (),
}

/// The skills of a directory: none in this build.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SkillsListEntry")]
pub(crate) struct Skills {
    pub(crate) cwd: String,
    pub(crate) skills: [(); 0],
    pub(crate) errors: [(); 0],
}

/// The hooks of a directory: none in this build.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "HooksListEntry")]
pub(crate) struct Hooks {
    pub(crate) cwd: String,
    pub(crate) hooks: [(); 0],
    pub(crate) warnings: [(); 0],
    pub(crate) errors: [(); 0],
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SkillSwitched {
    pub(crate) effective_enabled: bool,
}

// Files.

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileContent {
    pub(crate) data_base64: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileMetadata {
    pub(crate) is_directory: bool,
    pub(crate) is_file: bool,
    pub(crate) is_symlink: bool,
    pub(crate) created_at_ms: i64,
    pub(crate) modified_at_ms: i64,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Entries {
    pub(crate) entries: Vec<Entry>,
}

/// An entry of a directory.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FsReadDirectoryEntry")]
pub(crate) struct Entry {
    pub(crate) file_name: String,
    pub(crate) is_directory: bool,
    pub(crate) is_file: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Watched {
    pub(crate) path: String,
}

// Commands and searches.

/// The result of a command.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ended {
    pub(crate) exit_code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct FoundFiles {
    pub(crate) files: Vec<FoundFile>,
}
