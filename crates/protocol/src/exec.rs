//! The lines of `heddle exec --json`: one event per line, compact, fields in the order given here.

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::error::FailureFacts;
use crate::item::{Change, ChangeKind, Status, WebSearchAction};
use crate::open::{Kinds, Open};
use crate::usage::Usage;

/// One line of output.
pub type Line = Open<ThreadEvent>;

/// An event of a known kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum ThreadEvent {
    /// The thread was created or resumed. Always the first line.
    #[serde(rename = "thread.started")]
    ThreadStarted {
        /// Id of the thread, for a later `resume`.
        thread_id: String,
    },
    /// The turn started. Occurs once per run.
    #[serde(rename = "turn.started")]
    TurnStarted {},
    /// The last line of a successful run.
    #[serde(rename = "turn.completed")]
    TurnCompleted {
        /// Tokens of the whole thread, including earlier runs.
        usage: Usage,
    },
    /// The last line of a failed run.
    #[serde(rename = "turn.failed")]
    TurnFailed {
        /// Why the turn failed.
        error: Failure,
    },
    /// An item started.
    #[serde(rename = "item.started")]
    ItemStarted {
        /// The item, as it is now.
        item: Open<ThreadItem>,
    },
    /// An item that had started was replaced by a new version.
    #[serde(rename = "item.updated")]
    ItemUpdated {
        /// The item, as it is now.
        item: Open<ThreadItem>,
    },
    /// An item is complete and will not change any more.
    #[serde(rename = "item.completed")]
    ItemCompleted {
        /// The complete item.
        item: Open<ThreadItem>,
    },
    /// A part of an item arrived; only with `--include-deltas`.
    #[serde(rename = "item.delta")]
    ItemDelta {
        /// The item it belongs to; the complete item follows under the same id.
        item_id: String,
        /// Kind of the item.
        item_type: Streamed,
        /// The text to append.
        delta: String,
    },
    /// An item whose parts were printed will never be completed; only with `--include-deltas`.
    #[serde(rename = "item.discarded")]
    ItemDiscarded {
        /// The item whose parts are void.
        item_id: String,
    },
    /// A retry, or the error that the next line reports as fatal.
    #[serde(rename = "error")]
    Error {
        /// The message for people.
        message: String,
    },
}

/// The kinds of items that are streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Streamed {
    /// Text from the model to the user.
    AgentMessage,
    /// A summary of the model's reasoning.
    Reasoning,
}

impl Kinds for ThreadEvent {
    fn read(kind: &str, json: &str) -> Option<serde_json::Result<Self>> {
        #[derive(Deserialize)]
        struct Thread {
            thread_id: String,
        }
        #[derive(Deserialize)]
        struct Used {
            usage: Usage,
        }
        #[derive(Deserialize)]
        struct Failed {
            error: Failure,
        }
        #[derive(Deserialize)]
        struct Carrier {
            item: Open<ThreadItem>,
        }
        #[derive(Deserialize)]
        struct Part {
            item_id: String,
            item_type: Streamed,
            delta: String,
        }
        #[derive(Deserialize)]
        struct Void {
            item_id: String,
        }
        let item = || serde_json::from_str(json).map(|Carrier { item }| item);
        Some(match kind {
            "thread.started" => serde_json::from_str(json)
                .map(|Thread { thread_id }| Self::ThreadStarted { thread_id }),
            "turn.started" => Ok(Self::TurnStarted {}),
            "turn.completed" => {
                serde_json::from_str(json).map(|Used { usage }| Self::TurnCompleted { usage })
            }
            "turn.failed" => {
                serde_json::from_str(json).map(|Failed { error }| Self::TurnFailed { error })
            }
            "item.started" => item().map(|item| Self::ItemStarted { item }),
            "item.updated" => item().map(|item| Self::ItemUpdated { item }),
            "item.completed" => item().map(|item| Self::ItemCompleted { item }),
            "item.delta" => serde_json::from_str(json).map(|part| {
                let Part { item_id, item_type, delta } = part;
                Self::ItemDelta { item_id, item_type, delta }
            }),
            "item.discarded" => {
                serde_json::from_str(json).map(|Void { item_id }| Self::ItemDiscarded { item_id })
            }
            "error" => {
                serde_json::from_str(json).map(|Message { message }| Self::Error { message })
            }
            _ => return None,
        })
    }
}

/// Why a turn failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// A message for people.
    pub message: String,
    /// For programs. Lines of the reference, and of older versions, have none.
    #[serde(
        default,
        skip_serializing_if = "FailureFacts::is_empty",
        deserialize_with = "FailureFacts::read"
    )]
    pub heddle: FailureFacts,
}

/// A text in an object of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// A message for people.
    pub message: String,
}

/// An item of a known kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadItem {
    /// `item_N`, counted from 0 in the order in which items became visible.
    pub id: String,
    /// The kind of the item and its other fields.
    #[serde(flatten)]
    pub details: Details,
}

/// Content of an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Details {
    /// Text from the model to the user.
    AgentMessage {
        /// The complete text of the message.
        text: String,
    },
    /// A summary of the model's reasoning.
    Reasoning {
        /// Its parts, one per line.
        text: String,
    },
    /// A command and its result.
    CommandExecution {
        /// The argument vector, quoted for a shell and joined.
        command: String,
        /// Both output streams, in the order of arrival.
        aggregated_output: String,
        /// Null while it runs.
        exit_code: Option<i32>,
        /// Whether it is running, succeeded, failed or was refused.
        status: Status,
    },
    /// A patch and its result.
    FileChange {
        /// The files that the patch changes.
        changes: Vec<FileUpdate>,
        /// Whether the patch was applied.
        status: Status,
        /// Why it was refused before anything was changed; absent otherwise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Message>,
    },
    /// A search that the provider ran. Its own `id` follows the item's: the key really occurs twice.
    WebSearch {
        /// The provider's own id of the search.
        id: String,
        /// The search terms, or the address of a page, as text.
        query: String,
        /// What the search did.
        action: WebSearchAction,
    },
    /// A call of a tool that is not built in, in the format of an MCP tool call.
    McpToolCall {
        /// The owner of the tool: `host` for the host program, `endpoint` for the endpoint itself, or a server.
        server: String,
        /// Name of the tool.
        tool: String,
        /// Arguments of the call.
        arguments: serde_json::Value,
        /// Its result; null while it runs.
        result: Option<McpResult>,
        /// The error, if it failed.
        error: Option<Message>,
        /// Whether it is running, completed or failed.
        status: Status,
    },
    /// The steps that the model works through.
    TodoList {
        /// The steps in order.
        items: Vec<Todo>,
    },
    /// A warning that does not end the turn.
    Error {
        /// The text of the warning.
        message: String,
    },
}

impl Kinds for ThreadItem {
    fn read(kind: &str, json: &str) -> Option<serde_json::Result<Self>> {
        // `mcp_tool_call` is kept verbatim: those of other programs contain more than ours.
        matches!(
            kind,
            "agent_message"
                | "reasoning"
                | "command_execution"
                | "file_change"
                | "web_search"
                | "todo_list"
                | "error"
        )
        .then(|| serde_json::from_str(json))
    }
}

/// Result of a tool call, in the format of MCP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct McpResult {
    /// Its parts, all of them texts.
    pub content: Vec<serde_json::Value>,
    /// Always null in this build.
    #[serde(default)]
    pub structured_content: Option<serde_json::Value>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Todo {
    /// The description of the step, in the model's words.
    pub text: String,
    /// Whether it is done.
    pub completed: bool,
}

impl<'de> Deserialize<'de> for ThreadItem {
    /// Deserializes by hand, because of the duplicate key: the first `id` is the item's, and everything else,
    /// including a second `id`, belongs to the details.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Split;

        impl<'de> Visitor<'de> for Split {
            type Value = (Option<String>, String);

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an item object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut id, mut rest) = (None, String::from("{"));
                while let Some(key) = map.next_key::<String>()? {
                    if key == "id" && id.is_none() {
                        id = Some(map.next_value()?);
                        continue;
                    }
                    let value: Box<RawValue> = map.next_value()?;
                    if rest.len() > 1 {
                        rest.push(',');
                    }
                    rest.push_str(&serde_json::to_string(&key).map_err(A::Error::custom)?);
                    rest.push(':');
                    rest.push_str(value.get());
                }
                rest.push('}');
                Ok((id, rest))
            }
        }

        let (id, rest) = deserializer.deserialize_map(Split)?;
        let id = id.ok_or_else(|| D::Error::missing_field("id"))?;
        let details = serde_json::from_str(&rest).map_err(D::Error::custom)?;
        Ok(Self { id, details })
    }
}

/// One file of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUpdate {
    /// The absolute path; for a move, the source.
    pub path: String,
    /// What happens to the file.
    pub kind: ChangeKind,
}

impl From<&Change> for FileUpdate {
    fn from(change: &Change) -> Self {
        Self { path: change.path.clone(), kind: change.kind }
    }
}
