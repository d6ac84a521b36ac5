//! Items: the things in a turn that a person would point at.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::ItemId;

/// One item, as it stands at the moment of the event that carries it.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Names the item across its events.
    pub id: ItemId,
    /// The call that it is part of, by the model's own id.
    pub call_id: Option<String>,
    /// What it is.
    pub body: ItemBody,
    /// Whether nothing came of it: it was refused, or it failed at once as if by the sandbox. The reference
    /// keeps such items to itself, so its wire format has them only on demand.
    pub stopped: bool,
}

impl Item {
    /// Makes an item that is part of no call.
    pub fn new(id: ItemId, body: ItemBody) -> Self {
        Self { id, call_id: None, body, stopped: false }
    }

    /// Returns what it is called in the log and by clients: as the model or the provider calls it, else
    /// by its number in the turn.
    pub fn name(&self, turn: &str) -> String {
        match (&self.call_id, &self.body) {
            (Some(call), _) | (None, ItemBody::WebSearch { call, .. }) => call.clone(),
            (None, _) => format!("{turn}-{}", self.id.0),
        }
    }
}

/// Returns what a message of the user is called: the first that is said in a turn has the number 1.
pub fn user_message_name(turn: &str, number: u64) -> String {
    format!("{turn}-user-{number}")
}

/// What an item is.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemBody {
    /// Text from the model to the user.
    AgentMessage {
        /// The text so far, or the whole of it once completed. It is shared, because it may be long and
        /// several faces keep the last one.
        text: Arc<str>,
    },
    /// The model's reasoning, as far as the provider shows it.
    Reasoning {
        /// Summary parts.
        summary: Vec<String>,
    },
    /// A command and what became of it.
    Command(Command),
    /// A patch and what became of it.
    FileChange {
        /// The files, sorted by path.
        changes: Vec<Change>,
        /// How far it is.
        status: Status,
        /// Why it was refused before anything was changed.
        refusal: Option<String>,
    },
    /// A search that the provider ran.
    WebSearch {
        /// The provider's own id of the call.
        call: String,
        /// What was looked for, in words.
        query: String,
        /// What was done.
        action: WebSearchAction,
    },
    /// A call that the endpoint ran itself.
    EndpointCall(EndpointCall),
    /// A call that came to nothing.
    RefusedCall(RefusedCall),
    /// The list of steps that the model keeps.
    TodoList {
        /// The steps in order.
        steps: Vec<Step>,
    },
    /// The history was replaced by a summary of itself.
    Compaction {
        /// Why.
        reason: CompactionReason,
    },
}

impl ItemBody {
    /// Returns it as it stood at its beginning, before anything came of it.
    pub fn begun(&self) -> Self {
        match self.clone() {
            Self::Command(command) => Self::Command(Command {
                output: String::new(),
                exit_code: None,
                status: Status::InProgress,
                ..command
            }),
            Self::FileChange { changes, .. } => {
                Self::FileChange { changes, status: Status::InProgress, refusal: None }
            }
            Self::AgentMessage { .. } => Self::AgentMessage { text: Arc::default() },
            Self::Reasoning { .. } => Self::Reasoning { summary: Vec::new() },
            Self::EndpointCall(call) => Self::EndpointCall(EndpointCall {
                output: String::new(),
                status: Status::InProgress,
                ..call
            }),
            body => body,
        }
    }
}

/// Why a history is replaced by a shorter one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionReason {
    /// The user wants it.
    Requested,
    /// The context window is nearly full.
    NearlyFull,
    /// The endpoint finds that it does not fit.
    Refused,
}

/// A command that a tool runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The argument vector, quoted for a shell and joined.
    pub command: String,
    /// Where it runs.
    pub cwd: PathBuf,
    /// What it printed, both streams in the order of arrival.
    pub output: String,
    /// How it ended; none while it runs.
    pub exit_code: Option<i32>,
    /// How far it is.
    pub status: Status,
}

/// A call that the endpoint ran itself: it came together with its output, and nothing is run here for it.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointCall {
    /// Whose tool it is: an MCP server of the endpoint, a namespace, or [`EndpointCall::SERVER`].
    pub server: String,
    /// What the tool is called.
    pub tool: String,
    /// What it was called with: JSON as text, and not always valid, or free text.
    pub arguments: String,
    /// What came of it, as text.
    pub output: String,
    /// Completed or failed.
    pub status: Status,
}

impl EndpointCall {
    /// Stands for the endpoint itself where a tool is of no server.
    pub const SERVER: &str = "endpoint";

    /// Returns the arguments as JSON; free text and what is no JSON are a string.
    pub fn json_arguments(&self) -> serde_json::Value {
        serde_json::from_str(&self.arguments)
            .unwrap_or_else(|_| serde_json::Value::String(self.arguments.clone()))
    }
}

/// A call that came to nothing: there is no such tool, what it was called with makes no sense, or the tool
/// could not even begin. Commands and patches that are refused are shown as such instead.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedCall {
    /// What the model called.
    pub tool: String,
    /// What it was called with: JSON as text, and not always valid, or free text.
    pub arguments: String,
    /// Why nothing came of it, as the model reads it.
    pub reason: String,
}

impl RefusedCall {
    /// Stands for this program where clients want to know whose tool it is.
    pub const SERVER: &str = "heddle";

    /// Returns it in the shape of a call that failed elsewhere, for clients that have no other words.
    pub fn as_failed(&self) -> EndpointCall {
        EndpointCall {
            server: Self::SERVER.to_owned(),
            tool: self.tool.clone(),
            arguments: self.arguments.clone(),
            output: self.reason.clone(),
            status: Status::Failed,
        }
    }
}

/// How far an item with a beginning and an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Begun.
    InProgress,
    /// Ended well.
    Completed,
    /// Ended badly.
    Failed,
    /// Not begun, because the user or the policy said no.
    Declined,
}

/// One file of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The absolute path; of a move, the source.
    pub path: String,
    /// What happens to it.
    pub kind: ChangeKind,
}

/// What a patch does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is made.
    Add,
    /// It is removed.
    Delete,
    /// It is changed or moved.
    Update,
}

/// One step of a todo list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is to be done.
    pub text: String,
    /// How far it is.
    pub status: StepStatus,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// Not begun.
    Pending,
    /// Being worked on.
    InProgress,
    /// Done.
    Completed,
}

/// What a web search did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WebSearchAction {
    /// Looked something up.
    Search {
        /// The first query.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        query: Option<String>,
        /// All queries.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queries: Option<Vec<String>>,
    },
    /// Opened a page.
    OpenPage {
        /// Its address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    },
    /// Looked for text in a page.
    FindInPage {
        /// Its address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
        /// The text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pattern: Option<String>,
    },
    /// Something this build does not know.
    #[serde(other)]
    Other,
}

impl WebSearchAction {
    /// Says in words what was looked for.
    pub fn query(&self) -> String {
        match self {
            Self::Search { query: Some(query), .. } if !query.is_empty() => query.clone(),
            Self::Search { queries: Some(queries), .. } => match queries.as_slice() {
                [one] => one.clone(),
                [first, ..] if !first.trim().is_empty() => format!("{first} ..."),
                _ => String::new(),
            },
            Self::OpenPage { url: Some(url) } => url.clone(),
            Self::FindInPage { url: Some(url), pattern: Some(pattern) } => {
                format!("'{pattern}' in {url}")
            }
            Self::FindInPage { url: Some(text), .. }
            | Self::FindInPage { pattern: Some(text), .. } => text.clone(),
            _ => String::new(),
        }
    }
}
