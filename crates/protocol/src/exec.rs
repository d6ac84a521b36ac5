//! The lines of `heddle exec --json`: one event a line, compact, fields in the order given here.

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::item::{Change, Status, WebSearchAction};
use crate::open::{Kinds, Open};
use crate::usage::Usage;

/// One line.
pub type Line = Open<ThreadEvent>;

/// An event of a kind this build knows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum ThreadEvent {
    /// Always the first line.
    #[serde(rename = "thread.started")]
    ThreadStarted {
        /// Names the thread for a later `resume`.
        thread_id: String,
    },
    /// Once a run.
    #[serde(rename = "turn.started")]
    TurnStarted {},
    /// The last line of a run that went well.
    #[serde(rename = "turn.completed")]
    TurnCompleted {
        /// Tokens of the whole thread, earlier runs included.
        usage: Usage,
    },
    /// The last line of a run that did not.
    #[serde(rename = "turn.failed")]
    TurnFailed {
        /// What went wrong.
        error: Message,
    },
    /// An item begins.
    #[serde(rename = "item.started")]
    ItemStarted {
        /// As it stands now.
        item: Open<ThreadItem>,
    },
    /// An item changed.
    #[serde(rename = "item.updated")]
    ItemUpdated {
        /// As it stands now.
        item: Open<ThreadItem>,
    },
    /// An item is final.
    #[serde(rename = "item.completed")]
    ItemCompleted {
        /// As it will stay.
        item: Open<ThreadItem>,
    },
    /// A part of an item arrived; only with `--include-deltas`.
    #[serde(rename = "item.delta")]
    ItemDelta {
        /// The item it belongs to; the whole item comes later under the same id.
        item_id: String,
        /// What the item will be.
        item_type: Streamed,
        /// The text to append.
        delta: String,
    },
    /// An item of which parts were told will never be whole; only with `--include-deltas`.
    #[serde(rename = "item.discarded")]
    ItemDiscarded {
        /// The item whose parts are void.
        item_id: String,
    },
    /// A retry, or the error that the next line reports as fatal.
    #[serde(rename = "error")]
    Error {
        /// What happened.
        message: String,
    },
}

/// The kinds of items that come in parts.
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
            error: Message,
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

/// A text in an object of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The text.
    pub message: String,
}

/// An item of a kind this build knows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadItem {
    /// `item_N`, counted from 0 in the order in which items became visible.
    pub id: String,
    /// What it is.
    #[serde(flatten)]
    pub details: Details,
}

/// What an item is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Details {
    /// Text from the model to the user.
    AgentMessage {
        /// The whole of it.
        text: String,
    },
    /// A summary of the model's reasoning.
    Reasoning {
        /// Its parts, a line each.
        text: String,
    },
    /// A command.
    CommandExecution {
        /// The quoted argument vector.
        command: String,
        /// Both output streams.
        aggregated_output: String,
        /// Null while it runs.
        exit_code: Option<i32>,
        /// How far it is.
        status: Status,
    },
    /// A patch.
    FileChange {
        /// Its files.
        changes: Vec<Change>,
        /// How far it is.
        status: Status,
        /// Why it was refused before anything was changed; absent in all other cases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Message>,
    },
    /// A search that the provider ran. Its own `id` follows the item's: the key really stands twice.
    WebSearch {
        /// The provider's id.
        id: String,
        /// What was looked for.
        query: String,
        /// What was done.
        action: WebSearchAction,
    },
    /// A call that the endpoint ran itself, in the shape of one of an MCP server.
    McpToolCall {
        /// Whose tool it is; `endpoint` if it is the endpoint's own.
        server: String,
        /// The tool.
        tool: String,
        /// What it was called with.
        arguments: serde_json::Value,
        /// What came of it; null while it runs.
        result: Option<McpResult>,
        /// What went wrong.
        error: Option<Message>,
        /// How far it is.
        status: Status,
    },
    /// The model's list of steps.
    TodoList {
        /// The steps.
        items: Vec<Todo>,
    },
    /// A warning that does not end the turn.
    Error {
        /// What it is about.
        message: String,
    },
}

impl Kinds for ThreadItem {
    fn read(kind: &str, json: &str) -> Option<serde_json::Result<Self>> {
        // `mcp_tool_call` is left as it came: those of other programs have more in them than ours.
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

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct McpResult {
    /// Its parts: texts.
    pub content: Vec<serde_json::Value>,
    /// Nothing in this build.
    #[serde(default)]
    pub structured_content: Option<serde_json::Value>,
}

/// One step of a todo list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Todo {
    /// What is to be done.
    pub text: String,
    /// Whether it is.
    pub completed: bool,
}

impl<'de> Deserialize<'de> for ThreadItem {
    /// Reads by hand, because of the key that stands twice: the first `id` is the item's, and the
    /// rest, a second `id` included, belongs to the details.
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
