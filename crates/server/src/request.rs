//! Parameters of requests.

mod account;
mod command;
mod config;
mod extension;
mod fs;
mod goal;
mod metadata;
mod queue;
mod review;
mod search;

use std::ops::Range;

use crate::wire::CollaborationMode;
use protocol::id::ThreadId;
use protocol::user::{self, ImageDetail};
use schemars::JsonSchema;
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub use self::command::{
    CommandExec, CommandResize, CommandWrite, Input, OfCommand, OfProcess, ProcessResize,
    ProcessSpawn, ProcessWrite, Run, TerminalSize,
};
pub use self::fs::{
    AbsolutePath, Copy, CreateDirectory, OfPath, Remove, Unwatch, Watch, WriteFile,
};
pub use self::goal::GoalSet;
pub use self::metadata::{GitChanges, MetadataUpdate};
pub use self::queue::{QueueAdd, QueueDelete, QueueReorder, QueueStart, QueueUpdate};
pub use self::search::{FileSearch, OfSearch, SearchStart, SearchUpdate, check_query, check_roots};
pub use account::{Dropped, LoginStart, ReadAccount};
pub use config::{
    ConfigBatchWrite, ConfigEdit, ConfigRead, ConfigValueWrite, MergeStrategy, WriteConditions,
};
pub use extension::{
    ExtraRoots, FeatureEnablement, FeatureList, ResourceRead, SkillSwitch, ToolCall,
};

pub use review::{ReviewDelivery, ReviewStart, ReviewTarget};

use crate::message::RpcError;

/// Parses the parameters of a method.
pub fn read_params<T: DeserializeOwned>(
    method: &str,
    params: Option<&RawValue>,
    experimental: bool,
) -> Result<T, RpcError> {
    let may_be_null = MAY_BE_NULL.contains(&method);
    let params = match params.map(RawValue::get) {
        None if may_be_null => "null",
        given => given.ok_or_else(|| invalid("missing field `params`"))?,
    };
    let none = params == "null" && may_be_null;
    // Serde would also accept lists as structures; those are not valid parameters.
    let fields: Map<String, Value> =
        serde_json::from_str(if none { "{}" } else { params }).map_err(invalid)?;
    if !experimental {
        refuse_experimental(method, &fields)?;
    }
    refuse_unsupported(method, &fields)?;
    serde_json::from_value(Value::Object(fields)).map_err(invalid)
}

/// Parameters of `initialize`: a client introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Initialize {
    pub client_info: ClientInfo,
    #[serde(default)]
    pub capabilities: Option<Capabilities>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ClientInfo {
    pub name: String,
    /// Its display name, which this build does not show.
    #[serde(default)]
    pub title: Option<String>,
    pub version: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "InitializeCapabilities")]
pub struct Capabilities {
    /// Whether the client opts in to the experimental API.
    pub experimental_api: bool,
    /// Methods of the notifications that the client opts out of.
    pub opt_out_notification_methods: Option<Vec<String>>,
}

/// Parameters of methods that take none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Nothing {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfThread {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
}

/// Parameters of a new thread.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThreadStart {
    #[serde(flatten)]
    pub settings: Settings,
    /// Tools that the client runs.
    #[serde(default)]
    pub dynamic_tools: Option<Vec<DynamicToolSpec>>,
}

/// A tool that the client runs.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DynamicToolSpec {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its arguments; null for a namespace.
    #[serde(default)]
    pub input_schema: Value,
    /// `function`, or `namespace`, which is not supported.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
}

/// Parameters of reading a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThreadRead {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    #[serde(default)]
    pub include_turns: bool,
}

/// Parameters of naming a thread.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetName {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub name: String,
}

/// Parameters of interrupting a turn.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnInterrupt {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    /// The turn to interrupt; empty for the running one.
    pub turn_id: String,
}

/// Parameters of adding input to a running turn.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnSteer {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub expected_turn_id: String,
    pub input: Vec<UserInput>,
    /// The client's id for the message.
    #[serde(default)]
    pub client_user_message_id: Option<String>,
}

/// A command that the user runs in a thread.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShellCommand {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    /// The command line, for the user's shell.
    pub command: String,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// Asks for the notifications of a thread that the client has missed. The reference has no such method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThreadEvents {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    /// The number (`heddleSeq`) of the last notification that the client got.
    pub since: u64,
}

/// Items to add to the history of a thread.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectItems {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    /// Items of the Responses API.
    pub items: Vec<Value>,
}

/// The turns of a thread to remove.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revert {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    /// The first turn to remove; all later ones are removed as well.
    pub before_turn_id: String,
}

/// Which items of a turn to return.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ItemsRead {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub turn_id: String,
    pub item_ids: Vec<String>,
}

/// What to search for in all threads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ThreadSearch {
    pub search_term: String,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
    pub archived: Option<bool>,
}

/// What to search for in one thread.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchOccurrences {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub search_term: String,
    #[serde(flatten)]
    pub page: PageOf,
}

/// A page of a list that belongs to a thread.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PageOfThread {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    #[serde(flatten)]
    pub page: PageOf,
}

/// A background command to end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Terminate {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub process_id: String,
}

/// Which threads to list.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ThreadList {
    pub limit: Option<u32>,
    pub cursor: Option<String>,
    pub archived: Option<bool>,
    pub cwd: Option<OneOrMany>,
    pub search_term: Option<String>,
    pub model_providers: Option<Vec<String>>,
    pub sort_direction: Option<Direction>,
    pub sort_key: Option<SortKey>,
}

/// What a list of threads is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ThreadSortKey")]
pub enum SortKey {
    #[default]
    CreatedAt,
    UpdatedAt,
    /// The same as `UpdatedAt` in this build.
    RecencyAt,
    /// The same as `CreatedAt`, as sections are not supported.
    SectionPosition,
}

/// Which items of a thread to return.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ItemsList {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    /// Restricts the list to one turn.
    #[serde(default)]
    pub turn_id: Option<String>,
    #[serde(default)]
    pub limit: Option<u32>,
    /// The cursor of a page; none for the first page.
    #[serde(default)]
    pub cursor: Option<String>,
    /// The order; oldest first if it is not set.
    #[serde(default)]
    pub sort_direction: Option<Direction>,
}

/// Directories whose skills a client asks about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SkillsList {
    pub cwds: Option<Vec<String>>,
    /// Whether to search for skills again. This build always does.
    pub force_reload: bool,
}

/// Directories whose hooks a client asks about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HooksList {
    pub cwds: Option<Vec<String>>,
    /// The thread whose hooks are listed.
    #[serde(deserialize_with = "optional_thread_id")]
    #[schemars(with = "Option<String>")]
    pub thread_id: Option<ThreadId>,
}

/// Which models to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelList {
    #[serde(flatten)]
    pub page: PageOf,
    /// Whether to include models that are hidden from users. This build hides none.
    pub include_hidden: Option<bool>,
}

/// Which permission profiles to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileList {
    #[serde(flatten)]
    pub page: PageOf,
    /// The directory whose profiles are listed. This build has the same ones everywhere.
    pub cwd: Option<String>,
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PageOf {
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

/// One value or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "ThreadListCwdFilter")]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Settings of a thread that a client may set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    pub cwd: Option<String>,
    pub model: Option<String>,
    pub model_provider: Option<String>,
    pub sandbox: Option<Sandbox>,
    pub approval_policy: Option<Approval>,
    /// Overrides of the configuration.
    pub config: Option<Map<String, Value>>,
    /// Developer instructions, which precede all other messages.
    pub developer_instructions: Option<String>,
    /// Whether to keep the thread in memory only.
    pub ephemeral: Option<bool>,
    /// The sandbox with its details.
    pub sandbox_policy: Option<SandboxPolicy>,
    pub effort: Option<String>,
    /// How the model's reasoning is summarized.
    pub summary: Option<String>,
    /// The collaboration mode. Threads begin in the default mode, or in the last mode of their log.
    #[serde(skip)]
    pub mode: Option<CollaborationMode>,
}

/// The sandbox with its details.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SandboxPolicy {
    DangerFullAccess,
    ReadOnly {
        #[serde(default)]
        network_access: bool,
    },
    WorkspaceWrite {
        /// Additional writable directories.
        #[serde(default)]
        writable_roots: Vec<String>,
        #[serde(default)]
        network_access: bool,
        #[serde(default)]
        exclude_tmpdir_env_var: bool,
        #[serde(default)]
        exclude_slash_tmp: bool,
    },
}

impl SandboxPolicy {
    /// Returns the mode without its details.
    pub fn mode(&self) -> Sandbox {
        match self {
            Self::DangerFullAccess => Sandbox::DangerFullAccess,
            Self::ReadOnly { .. } => Sandbox::ReadOnly,
            Self::WorkspaceWrite { .. } => Sandbox::WorkspaceWrite,
        }
    }

    /// Refuses a policy that this build cannot enforce.
    pub fn check(&self) -> Result<(), RpcError> {
        match self {
            Self::ReadOnly { network_access: true } => Err(RpcError::invalid(
                "sandboxPolicy: a read-only sandbox has no network here; use workspaceWrite",
            )),
            _ => Ok(()),
        }
    }

    fn overrides(&self) -> Vec<String> {
        let Self::WorkspaceWrite {
            writable_roots,
            network_access,
            exclude_tmpdir_env_var,
            exclude_slash_tmp,
        } = self
        else {
            return Vec::new();
        };
        let table = "sandbox_workspace_write";
        vec![
            format!("{table}.writable_roots={}", Value::from(writable_roots.clone())),
            format!("{table}.network_access={network_access}"),
            format!("{table}.exclude_tmpdir_env_var={exclude_tmpdir_env_var}"),
            format!("{table}.exclude_slash_tmp={exclude_slash_tmp}"),
        ]
    }
}

/// Settings that can be changed while a thread is loaded.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Changes {
    pub cwd: Option<String>,
    pub model: Option<String>,
    pub approval_policy: Option<Approval>,
    pub sandbox_policy: Option<SandboxPolicy>,
    pub effort: Option<String>,
    pub summary: Option<String>,
    /// The collaboration mode. Its model and effort take precedence over the fields above.
    pub collaboration_mode: Option<CollaborationMode>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettingsUpdate {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    #[serde(flatten)]
    pub changes: Changes,
}

/// The sandbox, by its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "SandboxMode")]
pub enum Sandbox {
    /// Commands may read everything and write nothing.
    ReadOnly,
    /// Commands may also write in the workspace.
    WorkspaceWrite,
    /// Commands run without a sandbox.
    DangerFullAccess,
}

impl Settings {
    /// Returns these settings with the changes applied.
    #[must_use]
    pub fn with(&self, changes: &Changes) -> Self {
        let Changes {
            cwd,
            model,
            approval_policy,
            sandbox_policy,
            effort,
            summary,
            collaboration_mode,
        } = changes.clone();
        let mut changed = self.clone();
        if let Some(policy) = sandbox_policy {
            changed.sandbox = Some(policy.mode());
            changed.sandbox_policy = Some(policy);
        }
        changed.cwd = cwd.or(changed.cwd);
        changed.model = model.or(changed.model);
        changed.approval_policy = approval_policy.or(changed.approval_policy);
        changed.effort = effort.or(changed.effort);
        changed.summary = summary.or(changed.summary);
        if let Some(mode) = collaboration_mode {
            changed.model = Some(mode.settings.model.clone());
            changed.effort.clone_from(&mode.settings.reasoning_effort);
            changed.mode = Some(mode);
        }
        changed
    }

    /// Returns the settings as `key=value` overrides in TOML; later ones win.
    pub fn overrides(&self) -> Vec<String> {
        let mut overrides = Vec::new();
        for (key, value) in self.config.iter().flatten() {
            // Dots in a top-level key lead into tables, as on the command line.
            flatten(key.clone(), value, &mut overrides);
        }
        let texts = [
            ("model_provider", &self.model_provider),
            ("developer_instructions", &self.developer_instructions),
            ("model_reasoning_effort", &self.effort),
            ("model_reasoning_summary", &self.summary),
        ];
        overrides.extend(self.sandbox_policy.iter().flat_map(SandboxPolicy::overrides));
        for (key, text) in texts {
            overrides
                .extend(text.iter().map(|text| format!("{key}={}", Value::from(text.clone()))));
        }
        overrides
    }
}

/// When to ask for approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "AskForApproval")]
pub enum Approval {
    Untrusted,
    #[serde(alias = "on-failure")]
    OnRequest,
    Never,
    #[serde(untagged)]
    Granular {
        granular: Granular,
    },
}

/// Which kinds of approvals the user is asked for; the others are refused at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Granular {
    pub sandbox_approval: bool,
    pub rules: bool,
    pub mcp_elicitations: bool,
    pub request_permissions: bool,
    pub skill_approval: bool,
}

/// Formats a value as assignments to its innermost keys.
fn flatten(key: String, value: &Value, overrides: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                flatten(format!("{key}.{}", Value::from(name.clone())), value, overrides);
            }
        }
        // Strings, numbers, booleans and lists of them look the same in TOML.
        value => overrides.push(format!("{key}={value}")),
    }
}

/// A thread to resume.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resume {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    /// Whether to leave the turns out of the result.
    #[serde(default)]
    pub exclude_turns: bool,
    /// Settings that replace those of the thread.
    #[serde(flatten)]
    pub settings: Settings,
}

/// A thread to fork.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fork {
    #[serde(flatten)]
    pub from: Resume,
    /// The last turn to copy into the fork.
    #[serde(default)]
    pub last_turn_id: Option<String>,
    /// The first turn to leave out of the fork.
    #[serde(default)]
    pub before_turn_id: Option<String>,
}

/// Which turns of a thread to return.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnsList {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    #[serde(default)]
    pub limit: Option<u32>,
    /// The cursor of a page; none for the first page.
    #[serde(default)]
    pub cursor: Option<String>,
    #[serde(default)]
    pub sort_direction: Option<Direction>,
    /// How many items of each turn to include.
    #[serde(default)]
    pub items_view: Option<ItemsView>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "SortDirection")]
pub enum Direction {
    /// Oldest first.
    Asc,
    /// Newest first.
    #[default]
    Desc,
}

/// How many items of a turn are included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TurnItemsView")]
pub enum ItemsView {
    NotLoaded,
    /// The user's messages and the last message of the model.
    #[default]
    Summary,
    Full,
}

/// Parameters of a new turn.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnStart {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub input: Vec<UserInput>,
    /// The client's id for the message.
    #[serde(default)]
    pub client_user_message_id: Option<String>,
    /// A JSON Schema that the answer must match.
    #[serde(default)]
    pub output_schema: Option<Value>,
    /// How often to ask the model again if its answer does not match the schema. The reference has no such field.
    #[serde(default)]
    pub output_retries: Option<u32>,
    /// Settings that change from this turn on.
    #[serde(flatten)]
    pub changes: Changes,
    /// Limits of the turn, which override the settings. Only clients written for heddle set them.
    #[serde(default)]
    pub heddle_limits: TurnLimits,
}

/// Limits at which a turn ends even if the model would continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "HeddleLimits")]
pub struct TurnLimits {
    /// Most tokens in all requests and answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
    /// Most requests to the model, not counting retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
}

/// The names of [`ImageDetail`], for schemas.
#[derive(JsonSchema)]
#[schemars(rename = "ImageDetail", rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum DetailName {
    Auto,
    Low,
    High,
    Original,
}

/// A part of the user's input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum UserInput {
    Text {
        text: String,
        /// Spans that the client displays in its own way.
        #[serde(default)]
        text_elements: Vec<TextElement>,
    },
    Image {
        /// The URL, usually a `data:` URL.
        url: String,
        #[serde(default)]
        #[schemars(with = "Option<DetailName>")]
        detail: Option<ImageDetail>,
    },
    /// An image in a file.
    LocalImage {
        #[serde(default)]
        #[schemars(with = "Option<DetailName>")]
        detail: Option<ImageDetail>,
        path: String,
    },
    /// A skill that the user chose.
    Skill {
        name: String,
        /// The path of its instructions.
        path: String,
    },
    /// Something that the user refers to. It is displayed, but not sent to the model.
    Mention {
        name: String,
        /// Its path or URL.
        path: String,
    },
}

/// A span of text that a client displays in its own way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TextElement {
    /// Its position in the text, in bytes.
    pub byte_range: Range<usize>,
    /// The text that is displayed instead.
    #[serde(default)]
    pub placeholder: Option<String>,
}

impl From<UserInput> for user::UserInput {
    fn from(input: UserInput) -> Self {
        match input {
            UserInput::Text { text, text_elements } => {
                let element = |TextElement { byte_range, placeholder }| user::TextElement {
                    byte_range,
                    placeholder,
                };
                let text_elements = text_elements.into_iter().map(element).collect();
                Self::Text { text, text_elements }
            }
            UserInput::Image { url, detail } => Self::Image { image_url: url, detail },
            UserInput::LocalImage { path, detail } => Self::LocalImage { path, detail },
            UserInput::Skill { name, path } => Self::Skill { name, path },
            UserInput::Mention { name, path } => Self::Mention { name, path },
        }
    }
}

impl From<user::UserInput> for UserInput {
    fn from(input: user::UserInput) -> Self {
        match input {
            user::UserInput::Text { text, text_elements } => {
                let element = |user::TextElement { byte_range, placeholder }| TextElement {
                    byte_range,
                    placeholder,
                };
                let text_elements = text_elements.into_iter().map(element).collect();
                Self::Text { text, text_elements }
            }
            user::UserInput::Image { image_url, detail } => Self::Image { url: image_url, detail },
            user::UserInput::LocalImage { path, detail } => Self::LocalImage { path, detail },
            user::UserInput::Skill { name, path } => Self::Skill { name, path },
            user::UserInput::Mention { name, path } => Self::Mention { name, path },
        }
    }
}

fn invalid(error: impl std::fmt::Display) -> RpcError {
    RpcError::invalid(format!("Invalid request: {error}"))
}

fn thread_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ThreadId, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|error| de::Error::custom(format!("invalid thread id: {error}")))
}

/// Reads a field that is present, even if it is null.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

fn optional_thread_id<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ThreadId>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let parsed = text.map(|text| text.parse()).transpose();
    parsed.map_err(|error| de::Error::custom(format!("invalid thread id: {error}")))
}

/// Refuses input for the model that this build cannot pass on.
pub fn check_input(input: &[UserInput]) -> Result<(), RpcError> {
    let skill = input.iter().find_map(|part| match part {
        UserInput::Skill { name, .. } => Some(name),
        _ => None,
    });
    match skill {
        None => Ok(()),
        Some(name) => Err(RpcError::invalid(format!(
            "turn/start.input: the skill {name:.100} cannot be used, as this build has no skills yet"
        ))),
    }
}

/// Refuses fields that would change the behavior and are not supported yet. Unknown fields are ignored, because clients may
/// be newer or older than this build.
fn refuse_unsupported(method: &str, fields: &Map<String, Value>) -> Result<(), RpcError> {
    let unset = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    let listed = UNSUPPORTED.iter().filter(|(of, _)| *of == method).flat_map(|(_, names)| *names);
    for name in listed {
        if fields.get(*name).is_some_and(|value| !unset(value)) {
            let message = format!("{method}.{name} is not supported by this build yet");
            return Err(RpcError::invalid(message));
        }
    }
    // Other unknown fields are ignored, but whoever gives this one believes that the turn is held by it.
    if ["turn/start", "thread/settings/update"].contains(&method) && fields.contains_key("sandbox")
    {
        let message = format!(
            "{method}.sandbox: that is a field of thread/start; give sandboxPolicy, such as {{\"type\": \"readOnly\"}}"
        );
        return Err(RpcError::invalid(message));
    }
    Ok(())
}

/// Refuses experimental fields if the client has not opted in to the experimental API.
fn refuse_experimental(method: &str, fields: &Map<String, Value>) -> Result<(), RpcError> {
    for name in experimental_fields(method) {
        if fields.get(name).is_some_and(|value| !value.is_null()) {
            return Err(RpcError::experimental(&format!("{method}.{name}")));
        }
    }
    Ok(())
}

/// Returns the experimental fields of a method.
pub(crate) fn experimental_fields(method: &str) -> impl Iterator<Item = &'static str> {
    let listed = EXPERIMENTAL.iter().filter(move |(of, _)| *of == method);
    listed.flat_map(|(_, names)| names.iter().copied())
}

/// Methods without parameters, whose `params` may be null or missing.
const MAY_BE_NULL: [&str; 5] = [
    "account/logout",
    "account/rateLimits/read",
    "account/usage/read",
    "config/mcpServer/reload",
    "configRequirements/read",
];

const EXPERIMENTAL: [(&str, &[&str]); 5] = [
    ("thread/start", EXPERIMENTAL_SETTINGS),
    ("thread/resume", EXPERIMENTAL_SETTINGS),
    ("thread/fork", EXPERIMENTAL_SETTINGS),
    ("thread/fork", &["beforeTurnId"]),
    ("turn/start", &["additionalContext", "collaborationMode", "environments", "permissions"]),
];

const EXPERIMENTAL_SETTINGS: &[&str] = &[
    "dynamicTools",
    "environments",
    "history",
    "historyMode",
    "mockExperimentalField",
    "path",
    "permissions",
];

const UNSUPPORTED: [(&str, &[&str]); 7] = [
    ("command/exec", &["permissionProfile"]),
    ("thread/start", &["baseInstructions", "environments", "permissions"]),
    ("thread/resume", &["baseInstructions", "history", "path", "permissions"]),
    ("thread/fork", &["baseInstructions", "path", "permissions"]),
    ("thread/metadata/update", &["daybreakEnabled", "projectId"]),
    ("thread/settings/update", &["permissions"]),
    ("turn/start", &["additionalContext", "environments", "permissions", "toolOutput"]),
];

#[cfg(test)]
mod tests {
    use protocol::user;
    use serde_json::value::to_raw_value;
    use serde_json::{Value, json};

    use super::*;
    use crate::message::INVALID_REQUEST;

    const ID: &str = "01a1e055-b282-7523-b985-c798177efe12";

    fn parse<T: DeserializeOwned>(method: &str, params: &Value) -> Result<T, RpcError> {
        read_params(method, Some(&to_raw_value(params).unwrap()), true)
    }

    #[track_caller]
    fn refused<T: DeserializeOwned>(method: &str, params: Value, words: &str) {
        let error = parse::<T>(method, &params).err().expect(method);
        assert!(error.code == INVALID_REQUEST && error.message.contains(words), "{error:?}");
    }

    #[test]
    fn invalid_requests() {
        refused::<ThreadStart>("thread/start", json!([]), "Invalid request");
        refused::<ThreadStart>("thread/start", json!({"sandbox": "none"}), "none");
        refused::<ThreadStart>("thread/start", json!({"approvalPolicy": "always"}), "Approval");
        refused::<ThreadStart>(
            "thread/start",
            json!({"baseInstructions": "x"}),
            "thread/start.baseI",
        );
        refused::<ThreadRead>("thread/read", json!({"threadId": "nope"}), "invalid thread id");
        refused::<OfThread>("thread/archive", json!({"threadId": 1}), "expected a string");
        refused::<Resume>("thread/resume", json!({}), "threadId");
        refused::<Fork>("thread/fork", json!({"threadId": ID, "path": "/x"}), "thread/fork.path");
        refused::<TurnsList>("thread/turns/list", json!({"threadId": ID, "limit": "abc"}), "abc");
        refused::<TurnStart>("turn/start", json!({"threadId": ID}), "input");
        refused::<TurnStart>(
            "turn/start",
            json!({"threadId": ID, "input": [{"type": "audio"}]}),
            "audio",
        );
        let plan = json!({"threadId": ID, "input": [], "collaborationMode": {"mode": "play"}});
        refused::<TurnStart>("turn/start", plan, "play");
        refused::<TurnInterrupt>("turn/interrupt", json!({"threadId": ID}), "turnId");
        let sandbox = json!({"threadId": ID, "input": [], "sandbox": "read-only"});
        refused::<TurnStart>("turn/start", sandbox.clone(), "give sandboxPolicy");
        refused::<SettingsUpdate>("thread/settings/update", sandbox, "give sandboxPolicy");
        for (part, words) in [
            (json!({"type": "image", "fileId": "f"}), "url"),
            (json!({"type": "localImage", "path": "/a", "detail": "huge"}), "huge"),
            (json!({"type": "text", "text": "a", "text_elements": ["b"]}), "TextElement"),
            (
                json!({"type": "text", "text": "a", "text_elements": [
                    {"byteRange": {"start": -1, "end": 2}},
                ]}),
                "-1",
            ),
        ] {
            refused::<TurnStart>("turn/start", json!({"threadId": ID, "input": [part]}), words);
        }
        let skill = UserInput::Skill { name: "deploy".into(), path: "/s".into() };
        assert!(check_input(&[skill]).unwrap_err().message.contains("no skills yet"));
        let missing = read_params::<Nothing>("model/list", None, true).unwrap_err();
        assert_eq!(missing.message, "Invalid request: missing field `params`");
    }

    #[test]
    fn parameters_that_are_null() {
        let null = to_raw_value(&Value::Null).unwrap();
        let read = |method| read_params::<Nothing>(method, Some(&null), true).map(drop);
        assert_eq!(read("account/logout"), Ok(()));
        assert_eq!(read_params::<Nothing>("account/logout", None, true).map(drop), Ok(()));
        assert!(read("server/diagnostics").unwrap_err().message.contains("invalid type: null"));
    }

    #[test]
    fn the_configuration_and_what_extends_the_agent() {
        let write = |value: Value| {
            let edit = json!({"keyPath": "a", "value": value, "mergeStrategy": "upsert"});
            parse::<ConfigValueWrite>("config/value/write", &edit)
        };
        assert_eq!(write(Value::Null).unwrap().edit.value, Value::Null);
        assert_eq!(write(json!(1.0)).unwrap().edit.value, json!(1.0));
        let none = WriteConditions::default();
        assert_eq!(write(json!({"b": [u64::MAX, -1]})).unwrap().conditions, none);
        let method = "config/value/write";
        refused::<ConfigValueWrite>(method, json!({"keyPath": "a", "value": 1}), "mergeStrategy");
        let missing = json!({"keyPath": "a", "mergeStrategy": "replace"});
        refused::<ConfigValueWrite>(method, missing, "missing field `value`");
        refused::<ConfigBatchWrite>("config/batchWrite", json!({}), "missing field `edits`");
        refused::<ConfigRead>("config/read", json!({"cwd": 3}), "expected a string");
        let enablement = json!({"enablement": {"a": 3}});
        refused::<FeatureEnablement>("experimentalFeature/enablement/set", enablement, "boolean");
        refused::<ExtraRoots>("skills/extraRoots/set", json!({"extraRoots": ["a"]}), "relative");
        let switch = json!({"enabled": true, "path": "a".repeat(5000)});
        let error = parse::<SkillSwitch>("skills/config/write", &switch).unwrap_err();
        assert!(error.message.contains("relative") && error.message.len() < 300, "{error}");
        refused::<ResourceRead>("mcpServer/resource/read", json!({"server": "s"}), "uri");
        refused::<LoginStart>("account/login/start", json!({"type": "apiKey"}), "apiKey");
        refused::<LoginStart>("account/login/start", json!({"type": "x"}), "variant `x`");
        let key = json!({"type": "apiKey", "apiKey": "sk"});
        let login: LoginStart = parse("account/login/start", &key).unwrap();
        assert_eq!(login, LoginStart::ApiKey { api_key: Dropped });
    }

    #[test]
    fn experimental_fields() {
        let params = to_raw_value(&json!({"dynamicTools": [], "newer": 1})).unwrap();
        let read = |experimental| {
            read_params::<ThreadStart>("thread/start", Some(&params), experimental).map(drop)
        };
        let error = read(false).unwrap_err().message;
        assert_eq!(error, "thread/start.dynamicTools requires experimentalApi capability");
        assert_eq!(read(true), Ok(()));
    }

    #[test]
    fn valid_requests() {
        let params = json!({
            "threadId": ID, "input": [{"type": "text", "text": "hi"}], "model": null, "newer": 1,
            "approvalPolicy": "never", "heddleLimits": {"calls": 3, "newer": 1},
        });
        let start: TurnStart = parse("turn/start", &params).unwrap();
        assert_eq!(start.thread_id.to_string(), ID);
        assert_eq!(start.heddle_limits, TurnLimits { calls: Some(3), ..TurnLimits::default() });
        assert_eq!(
            json!(start.input),
            json!([{"type": "text", "text": "hi", "text_elements": []}])
        );
        let params = json!({"threadId": ID, "excludeTurns": true, "cwd": "/w"});
        let Fork { from: fork, .. } = parse("thread/fork", &params).unwrap();
        assert_eq!((fork.exclude_turns, fork.settings.cwd.as_deref()), (true, Some("/w")));
        for (policy, want) in [
            (json!("untrusted"), Approval::Untrusted),
            (json!("on-failure"), Approval::OnRequest),
            (
                json!({"granular": {"rules": true, "sandbox_approval": false}}),
                Approval::Granular { granular: Granular { rules: true, ..Granular::default() } },
            ),
        ] {
            let params = json!({"approvalPolicy": policy});
            let start: ThreadStart = parse("thread/start", &params).unwrap();
            assert_eq!(start.settings.approval_policy, Some(want));
        }
    }

    #[test]
    fn changes() {
        let params = json!({
            "threadId": ID, "model": "m2", "effort": "low",
            "sandboxPolicy": {"type": "workspaceWrite", "writableRoots": ["/a b"], "networkAccess": true},
        });
        let update: SettingsUpdate = parse("thread/settings/update", &params).unwrap();
        let before =
            Settings { model: Some("m1".into()), cwd: Some("/w".into()), ..Settings::default() };
        let after = before.with(&update.changes);
        assert_eq!((after.model.as_deref(), after.cwd.as_deref()), (Some("m2"), Some("/w")));
        assert_eq!(after.sandbox, Some(Sandbox::WorkspaceWrite));
        assert_eq!(
            after.overrides(),
            [
                r#"sandbox_workspace_write.writable_roots=["/a b"]"#,
                "sandbox_workspace_write.network_access=true",
                "sandbox_workspace_write.exclude_tmpdir_env_var=false",
                "sandbox_workspace_write.exclude_slash_tmp=false",
                r#"model_reasoning_effort="low""#,
            ]
        );
        assert!(SandboxPolicy::ReadOnly { network_access: true }.check().is_err());
        assert!(SandboxPolicy::DangerFullAccess.check().is_ok());
    }

    /// Input stays the same when it is converted to the library's form and back.
    #[test]
    fn input_of_every_kind() {
        let input = json!([
            {"type": "text", "text": "look", "text_elements": [
                {"byteRange": {"start": 0, "end": 4}, "placeholder": "[x]"},
                {"byteRange": {"start": 4, "end": 4}, "placeholder": null},
            ]},
            {"type": "localImage", "detail": null, "path": "/a.png"},
            {"type": "image", "url": "data:x", "detail": "low"},
            {"type": "mention", "name": "a", "path": "/a.txt"},
        ]);
        let params = json!({"threadId": ID, "input": input});
        let start: TurnStart = parse("turn/start", &params).unwrap();
        let ours: Vec<_> = start.input.into_iter().map(user::UserInput::from).collect();
        let back: Vec<_> = ours.into_iter().map(UserInput::from).collect();
        assert_eq!(json!(back), input);
        let skill = json!({"type": "skill", "name": "s", "path": "/s"});
        let read: UserInput = serde_json::from_value(skill.clone()).unwrap();
        assert_eq!(json!(UserInput::from(user::UserInput::from(read))), skill);
    }

    #[test]
    fn settings_become_overrides() {
        let params = json!({
            "config": {"a": {"b.c": [1, "x"], "n": null}, "d.e": true},
            "modelProvider": "lab \"x\"",
        });
        let settings: Settings = serde_json::from_value(params).unwrap();
        assert_eq!(
            settings.overrides(),
            [r#"a."b.c"=[1,"x"]"#, "d.e=true", r#"model_provider="lab \"x\"""#]
        );
    }
}
