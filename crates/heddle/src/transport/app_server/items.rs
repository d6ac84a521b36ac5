//! Reads items from an app-server, and writes the user's input to it. Pure.

use std::path::PathBuf;

use protocol::item::{
    Change, ChangeKind, Command, CommandSource, CompactionReason, ItemBody, Status, ToolCall,
    WebSearchAction,
};
use protocol::review::Review;
use protocol::user::{TextElement, UserInput, UserMessage};
use serde::Deserialize;
use serde_json::Value;

use crate::transport::exec::texts;

/// An item, with the fields that this version shows.
#[derive(Debug, Deserialize)]
pub(crate) struct WireItem {
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) body: WireBody,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum WireBody {
    UserMessage {
        #[serde(default)]
        client_id: Option<String>,
        #[serde(default)]
        content: Vec<Value>,
    },
    AgentMessage {
        text: String,
    },
    Plan {
        text: String,
    },
    Reasoning {
        #[serde(default)]
        summary: Vec<String>,
        #[serde(default)]
        content: Vec<String>,
    },
    CommandExecution {
        command: String,
        #[serde(default)]
        cwd: PathBuf,
        #[serde(default)]
        aggregated_output: Option<String>,
        #[serde(default)]
        exit_code: Option<i32>,
        status: WireStatus,
        #[serde(default)]
        source: Option<String>,
    },
    FileChange {
        changes: Vec<WireChange>,
        status: WireStatus,
    },
    McpToolCall {
        server: String,
        tool: String,
        #[serde(default)]
        arguments: Value,
        #[serde(default)]
        result: Option<CallResult>,
        #[serde(default)]
        error: Option<CallError>,
        status: WireStatus,
    },
    DynamicToolCall {
        tool: String,
        #[serde(default)]
        arguments: Value,
        #[serde(default)]
        content_items: Option<Vec<Value>>,
        status: WireStatus,
    },
    WebSearch {
        #[serde(default)]
        query: String,
        #[serde(default)]
        action: Option<Value>,
    },
    ImageView {
        path: String,
    },
    ContextCompaction {},
    EnteredReviewMode {
        review: String,
    },
    ExitedReviewMode {
        review: String,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum WireStatus {
    InProgress,
    Completed,
    Declined,
    #[serde(other)]
    Failed,
}

/// One file of a patch.
#[derive(Debug, Deserialize)]
pub(crate) struct WireChange {
    path: String,
    kind: WireChangeKind,
    #[serde(default)]
    diff: String,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum WireChangeKind {
    Add,
    Delete,
    Update {
        #[serde(default)]
        move_path: Option<String>,
    },
}

#[derive(Debug, Deserialize)]
pub(crate) struct CallResult {
    #[serde(default)]
    content: Vec<Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CallError {
    message: String,
}

impl WireItem {
    /// Converts the item; returns none for a kind that this version does not know. `compaction` is the reason for
    /// compactions, which the item lacks.
    pub(crate) fn into_body(self, compaction: CompactionReason) -> Option<ItemBody> {
        Some(match self.body {
            WireBody::UserMessage { client_id, content } => {
                let inputs = content.into_iter().filter_map(user_input);
                let message = UserMessage::from_inputs(inputs);
                ItemBody::UserMessage(UserMessage { client_id, ..message })
            }
            WireBody::AgentMessage { text } => ItemBody::AgentMessage { text: text.into() },
            WireBody::Plan { text } => ItemBody::Plan { text: text.into() },
            WireBody::Reasoning { summary, content } => ItemBody::Reasoning { summary, content },
            WireBody::CommandExecution {
                command,
                cwd,
                aggregated_output,
                exit_code,
                status,
                source,
            } => ItemBody::Command(Command {
                command,
                cwd,
                output: aggregated_output.unwrap_or_default(),
                exit_code,
                status: status.into(),
                source: match source.as_deref() {
                    Some("userShell") => CommandSource::User,
                    _ => CommandSource::Model,
                },
            }),
            WireBody::FileChange { changes, status } => ItemBody::FileChange {
                changes: changes.into_iter().map(Change::from).collect(),
                status: status.into(),
                refusal: None,
            },
            WireBody::McpToolCall { server, tool, arguments, result, error, status } => {
                let content = result.map(|result| result.content).unwrap_or_default();
                let output = error.map_or_else(|| texts(&content), |error| error.message);
                let arguments = arguments.to_string();
                ItemBody::ToolCall(ToolCall {
                    server,
                    tool,
                    arguments,
                    output,
                    status: status.into(),
                })
            }
            WireBody::DynamicToolCall { tool, arguments, content_items, status } => {
                ItemBody::ToolCall(ToolCall {
                    server: HOST.to_owned(),
                    tool,
                    arguments: arguments.to_string(),
                    output: texts(&content_items.unwrap_or_default()),
                    status: status.into(),
                })
            }
            WireBody::WebSearch { query, action } => {
                let action = action.map_or(WebSearchAction::Other, search_action);
                ItemBody::WebSearch { call: self.id, query, action }
            }
            WireBody::ImageView { path } => ItemBody::ToolCall(ToolCall {
                server: HARNESS.to_owned(),
                tool: "view_image".to_owned(),
                arguments: serde_json::json!({ "path": path }).to_string(),
                output: String::new(),
                status: Status::Completed,
            }),
            WireBody::ContextCompaction {} => ItemBody::Compaction { reason: compaction },
            WireBody::EnteredReviewMode { review } => {
                ItemBody::EnteredReview { hint: review, target: None }
            }
            WireBody::ExitedReviewMode { review } => {
                ItemBody::ExitedReview { review: Review::shown(review) }
            }
            WireBody::Unknown => return None,
        })
    }
}

/// Name of the server of the host program's tools, as for threads in this process.
const HOST: &str = "host";
/// Name of the server of tools that are built into the program.
const HARNESS: &str = "builtin";

impl From<WireStatus> for Status {
    fn from(status: WireStatus) -> Self {
        match status {
            WireStatus::InProgress => Self::InProgress,
            WireStatus::Completed => Self::Completed,
            WireStatus::Declined => Self::Declined,
            WireStatus::Failed => Self::Failed,
        }
    }
}

impl From<WireChange> for Change {
    fn from(change: WireChange) -> Self {
        let WireChange { path, kind, diff } = change;
        let (kind, moved_to) = match kind {
            WireChangeKind::Add => (ChangeKind::Add, None),
            WireChangeKind::Delete => (ChangeKind::Delete, None),
            WireChangeKind::Update { move_path } => (ChangeKind::Update, move_path),
        };
        Self { path, kind, moved_to, diff: diff.into() }
    }
}

fn search_action(action: Value) -> WebSearchAction {
    let text = |name: &str| action[name].as_str().map(str::to_owned);
    match action["type"].as_str() {
        Some("search") => {
            let queries = action["queries"]
                .as_array()
                .map(|all| all.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect());
            WebSearchAction::Search { query: text("query"), queries }
        }
        Some("openPage") => WebSearchAction::OpenPage { url: text("url") },
        Some("findInPage") => {
            WebSearchAction::FindInPage { url: text("url"), pattern: text("pattern") }
        }
        _ => WebSearchAction::Other,
    }
}

/// Reads a part of the user's input; none if this version does not know its kind.
fn user_input(part: Value) -> Option<UserInput> {
    #[derive(Deserialize)]
    #[serde(tag = "type", rename_all = "camelCase")]
    enum Part {
        Text {
            text: String,
            #[serde(default)]
            text_elements: Vec<Element>,
        },
        Image {
            url: String,
        },
        LocalImage {
            path: String,
        },
        Skill {
            name: String,
            path: String,
        },
        Mention {
            name: String,
            path: String,
        },
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Element {
        byte_range: std::ops::Range<usize>,
        #[serde(default)]
        placeholder: Option<String>,
    }
    Some(match serde_json::from_value(part).ok()? {
        Part::Text { text, text_elements } => {
            let element = |element: Element| TextElement {
                byte_range: element.byte_range,
                placeholder: element.placeholder,
            };
            let text_elements = text_elements.into_iter().map(element).collect();
            UserInput::Text { text, text_elements }
        }
        Part::Image { url } => UserInput::Image { image_url: url, detail: None },
        Part::LocalImage { path } => UserInput::LocalImage { path, detail: None },
        Part::Skill { name, path } => UserInput::Skill { name, path },
        Part::Mention { name, path } => UserInput::Mention { name, path },
    })
}

/// Writes the parts of a message; relative paths are below `directory`.
pub(crate) fn write_inputs(message: &UserMessage, directory: &std::path::Path) -> Vec<Value> {
    message.inputs().map(|input| write_input(input, directory)).collect()
}

/// Writes a part of a message; a relative path is below `directory`.
pub(crate) fn write_input(input: &UserInput, directory: &std::path::Path) -> Value {
    match input {
        UserInput::Text { text, text_elements } => {
            let element = |it: &TextElement| {
                serde_json::json!({
                    "byteRange": {"start": it.byte_range.start, "end": it.byte_range.end},
                    "placeholder": it.placeholder,
                })
            };
            let elements: Vec<_> = text_elements.iter().map(element).collect();
            serde_json::json!({"type": "text", "text": text, "text_elements": elements})
        }
        UserInput::Image { image_url, detail } => {
            with_detail(serde_json::json!({"type": "image", "url": image_url}), *detail)
        }
        UserInput::LocalImage { path, detail } => {
            let path = directory.join(path);
            with_detail(serde_json::json!({"type": "localImage", "path": path}), *detail)
        }
        UserInput::Skill { name, path } => {
            serde_json::json!({"type": "skill", "name": name, "path": path})
        }
        UserInput::Mention { name, path } => {
            serde_json::json!({"type": "mention", "name": name, "path": path})
        }
    }
}

fn with_detail(mut part: Value, detail: Option<protocol::user::ImageDetail>) -> Value {
    if let Some(detail) = detail {
        part["detail"] = detail.name().into();
    }
    part
}
