//! Requests of a client: the supported methods and their parameters.

use std::ops::Range;

use protocol::id::ThreadId;
use protocol::user::{self, ImageDetail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::message::RpcError;

/// The methods of this build.
pub const METHODS: [&str; 10] = [
    "initialize",
    "thread/start",
    "thread/resume",
    "thread/fork",
    "thread/archive",
    "thread/unarchive",
    "thread/read",
    "thread/turns/list",
    "turn/start",
    "turn/interrupt",
];

#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Introduces the client. Must come first.
    Initialize(Initialize),
    /// Creates a thread.
    ThreadStart(Settings),
    /// Loads a thread.
    ThreadResume(Resume),
    /// Creates a thread that continues another.
    ThreadFork(Resume),
    ThreadArchive(ThreadId),
    /// Restores a thread from the archive.
    ThreadUnarchive(ThreadId),
    /// Returns a thread.
    ThreadRead {
        thread: ThreadId,
        /// Whether to include its turns.
        turns: bool,
    },
    /// Returns turns of a thread.
    TurnsList(TurnsList),
    TurnStart(TurnStart),
    TurnInterrupt {
        thread: ThreadId,
        /// The turn; empty for the running one.
        turn: String,
    },
}

impl Request {
    /// Parses the parameters of a method.
    pub fn parse(method: &str, params: Option<&RawValue>) -> Result<Self, RpcError> {
        if !METHODS.contains(&method) {
            return Err(RpcError::unknown_method(method));
        }
        let params = params.ok_or_else(|| invalid("missing field `params`"))?;
        // Serde would also accept lists as structures; those are not valid parameters.
        let fields: Map<String, Value> = serde_json::from_str(params.get()).map_err(invalid)?;
        refuse_unsupported(method, &fields)?;
        Ok(match method {
            "initialize" => Self::Initialize(read(fields)?),
            "thread/start" => {
                let settings: Settings = read(fields)?;
                Self::ThreadStart(settings.checked()?)
            }
            "thread/resume" => Self::ThreadResume(resume(fields)?),
            "thread/fork" => Self::ThreadFork(resume(fields)?),
            "thread/archive" => Self::ThreadArchive(thread(fields)?),
            "thread/unarchive" => Self::ThreadUnarchive(thread(fields)?),
            "thread/read" => {
                #[derive(Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Params {
                    thread_id: String,
                    #[serde(default)]
                    include_turns: bool,
                }
                let params: Params = read(fields)?;
                Self::ThreadRead { thread: id(&params.thread_id)?, turns: params.include_turns }
            }
            "thread/turns/list" => {
                let thread = of_thread(&fields)?;
                Self::TurnsList(TurnsList { thread, ..read(fields)? })
            }
            "turn/start" => {
                let thread = of_thread(&fields)?;
                check_approval(fields.get("approvalPolicy"))?;
                let start: TurnStart = read(fields)?;
                check_input(&start.input)?;
                Self::TurnStart(TurnStart { thread, ..start })
            }
            "turn/interrupt" => {
                #[derive(Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Params {
                    thread_id: String,
                    turn_id: String,
                }
                let params: Params = read(fields)?;
                Self::TurnInterrupt { thread: id(&params.thread_id)?, turn: params.turn_id }
            }
            other => return Err(RpcError::unknown_method(other)),
        })
    }
}

/// Introduction of a client.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialize {
    pub client_info: ClientInfo,
    #[serde(default)]
    pub capabilities: Option<Capabilities>,
}

/// The name and version of a client.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ClientInfo {
    pub name: String,
    pub version: String,
}

/// Capabilities of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    /// Notifications that it does not want.
    pub opt_out_notification_methods: Option<Vec<String>>,
}

/// Settings of a thread, as far as the client sets them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    pub cwd: Option<String>,
    pub model: Option<String>,
    pub model_provider: Option<String>,
    /// What commands may do.
    pub sandbox: Option<Sandbox>,
    /// When to ask; this build never does.
    pub approval_policy: Option<Value>,
    /// Overrides of the configuration.
    pub config: Option<Map<String, Value>>,
    /// Instructions before any message.
    pub developer_instructions: Option<String>,
    /// Whether the thread is not saved.
    pub ephemeral: Option<bool>,
}

/// What commands may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// Read everything, write nothing.
    ReadOnly,
    /// Also write in the workspace.
    WorkspaceWrite,
    /// Run without a sandbox.
    DangerFullAccess,
}

impl Settings {
    /// Returns the differences from the configuration, as `key=value` in TOML; later ones win.
    pub fn overrides(&self) -> Vec<String> {
        let mut overrides = Vec::new();
        for (key, value) in self.config.iter().flatten() {
            // Dots in a top-level key lead into tables, as on the command line.
            flatten(key.clone(), value, &mut overrides);
        }
        let texts = [
            ("model_provider", &self.model_provider),
            ("developer_instructions", &self.developer_instructions),
        ];
        for (key, text) in texts {
            overrides
                .extend(text.iter().map(|text| format!("{key}={}", Value::from(text.clone()))));
        }
        overrides
    }

    fn checked(self) -> Result<Self, RpcError> {
        check_approval(self.approval_policy.as_ref())?;
        Ok(self)
    }
}

/// Formats a value as assignments to single keys.
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

/// A thread to resume or to fork.
#[derive(Clone, Debug, PartialEq)]
pub struct Resume {
    pub thread: ThreadId,
    /// Whether to return its turns.
    pub turns: bool,
    /// Its settings from now on.
    pub settings: Settings,
}

/// Which turns of a thread to return.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnsList {
    #[serde(skip, default = "nobody")]
    pub thread: ThreadId,
    #[serde(default)]
    pub limit: Option<u32>,
    /// Where to continue.
    #[serde(default)]
    pub cursor: Option<String>,
    #[serde(default)]
    pub sort_direction: Option<Direction>,
    /// How many items of each turn to include.
    #[serde(default)]
    pub items_view: Option<ItemsView>,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Oldest first.
    Asc,
    /// Newest first.
    #[default]
    Desc,
}

/// How many of its items a turn includes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ItemsView {
    NotLoaded,
    /// The user's messages and the last message of the model.
    #[default]
    Summary,
    Full,
}

/// Parameters of a new turn.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnStart {
    #[serde(skip, default = "nobody")]
    pub thread: ThreadId,
    pub input: Vec<UserInput>,
    /// The client's id for the message.
    #[serde(default)]
    pub client_user_message_id: Option<String>,
    /// The schema that the answer must match.
    #[serde(default)]
    pub output_schema: Option<Value>,
}

/// A part of the user's input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum UserInput {
    Text {
        text: String,
        /// Spans of the text that the client shows in its own way.
        #[serde(default)]
        text_elements: Vec<TextElement>,
    },
    /// An image at a URL.
    Image {
        /// The URL; usually a `data:` URL.
        url: String,
        #[serde(default)]
        detail: Option<ImageDetail>,
    },
    /// An image in a file.
    LocalImage {
        #[serde(default)]
        detail: Option<ImageDetail>,
        /// Path of the file.
        path: String,
    },
    /// A skill that the user chose.
    Skill {
        name: String,
        /// Path of its instructions.
        path: String,
    },
    /// Something that the user refers to. It is shown, and the model does not get it.
    Mention {
        name: String,
        /// Its path or URL.
        path: String,
    },
}

/// A span of a text that a client shows in its own way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TextElement {
    /// In bytes.
    pub byte_range: Range<usize>,
    /// What is shown instead.
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

/// A placeholder for an id that is filled in later.
fn nobody() -> ThreadId {
    ThreadId::new(0, [0; 10])
}

fn invalid(error: impl std::fmt::Display) -> RpcError {
    RpcError::invalid(format!("Invalid request: {error}"))
}

fn read<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, RpcError> {
    serde_json::from_value(Value::Object(fields)).map_err(invalid)
}

fn id(text: &str) -> Result<ThreadId, RpcError> {
    text.parse().map_err(|error| RpcError::invalid(format!("invalid thread id: {error}")))
}

fn of_thread(fields: &Map<String, Value>) -> Result<ThreadId, RpcError> {
    let text = fields.get("threadId").ok_or_else(|| invalid("missing field `threadId`"))?;
    id(text.as_str().ok_or_else(|| invalid("`threadId` is not a text"))?)
}

fn thread(fields: Map<String, Value>) -> Result<ThreadId, RpcError> {
    of_thread(&fields)
}

fn resume(fields: Map<String, Value>) -> Result<Resume, RpcError> {
    let thread = of_thread(&fields)?;
    let exclude = fields.get("excludeTurns").and_then(Value::as_bool).unwrap_or(false);
    let settings: Settings = read(fields)?;
    Ok(Resume { thread, turns: !exclude, settings: settings.checked()? })
}

fn check_approval(policy: Option<&Value>) -> Result<(), RpcError> {
    match policy {
        None | Some(Value::Null) => Ok(()),
        Some(policy) if policy == "never" => Ok(()),
        Some(policy) => Err(RpcError::invalid(format!(
            "approvalPolicy {policy}: this build does not ask yet; use \"never\""
        ))),
    }
}

/// Refuses parts of the user's input that the model would have to get and would not.
fn check_input(input: &[UserInput]) -> Result<(), RpcError> {
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

/// Refuses fields that would change the behaviour and are not supported yet. Other fields are ignored, as
/// clients may be newer or older than we are.
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
    Ok(())
}

const UNSUPPORTED: [(&str, &[&str]); 4] = [
    ("thread/start", &["baseInstructions", "dynamicTools", "environments", "permissions"]),
    ("thread/resume", &["baseInstructions", "history", "path", "permissions"]),
    ("thread/fork", &["baseInstructions", "beforeTurnId", "lastTurnId", "path", "permissions"]),
    (
        "turn/start",
        &[
            "additionalContext",
            "collaborationMode",
            "cwd",
            "effort",
            "environments",
            "model",
            "permissions",
            "sandboxPolicy",
            "summary",
            "toolOutput",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use protocol::user;
    use serde_json::value::to_raw_value;
    use serde_json::{Value, json};

    use super::{METHODS, Request, Settings, UserInput};
    use crate::message::{INVALID_REQUEST, METHOD_NOT_FOUND};

    const ID: &str = "01a1e055-b282-7523-b985-c798177efe12";

    fn parse(method: &str, params: &Value) -> Result<Request, crate::message::RpcError> {
        Request::parse(method, Some(&to_raw_value(params).unwrap()))
    }

    #[track_caller]
    fn refused(method: &str, params: Value, code: i64, words: &str) {
        let error = parse(method, &params).expect_err(method);
        assert!(error.code == code && error.message.contains(words), "{error:?}");
    }

    #[test]
    fn invalid_requests() {
        let bad = INVALID_REQUEST;
        refused("no/such", json!({}), METHOD_NOT_FOUND, "unknown method");
        refused("thread/start", json!([]), bad, "Invalid request");
        refused("thread/start", json!({"sandbox": "none"}), bad, "none");
        refused("thread/start", json!({"approvalPolicy": "on-request"}), bad, "does not ask yet");
        refused("thread/start", json!({"approvalPolicy": {"granular": {}}}), bad, "never");
        refused("thread/start", json!({"baseInstructions": "x"}), bad, "thread/start.baseI");
        refused("thread/read", json!({"threadId": "nope"}), bad, "invalid thread id");
        refused("thread/archive", json!({"threadId": 1}), bad, "threadId");
        refused("thread/resume", json!({}), bad, "threadId");
        refused("thread/fork", json!({"threadId": ID, "lastTurnId": "t"}), bad, "lastTurnId");
        refused("thread/turns/list", json!({"threadId": ID, "limit": "abc"}), bad, "abc");
        refused("turn/start", json!({"threadId": ID}), bad, "input");
        refused("turn/start", json!({"threadId": ID, "input": [{"type": "audio"}]}), bad, "audio");
        refused("turn/start", json!({"threadId": ID, "input": [], "model": "m"}), bad, "model");
        for (part, words) in [
            (json!({"type": "skill", "name": "deploy", "path": "/s"}), "no skills yet"),
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
            refused("turn/start", json!({"threadId": ID, "input": [part]}), bad, words);
        }
        refused("turn/interrupt", json!({"threadId": ID}), bad, "turnId");
        for method in METHODS {
            let error = Request::parse(method, None).expect_err(method);
            assert_eq!(error.message, "Invalid request: missing field `params`");
        }
    }

    #[test]
    fn valid_requests() {
        let params = json!({
            "threadId": ID, "input": [{"type": "text", "text": "hi"}], "model": null, "newer": 1,
            "approvalPolicy": "never",
        });
        let Ok(Request::TurnStart(start)) = parse("turn/start", &params) else { panic!() };
        assert_eq!(start.thread.to_string(), ID);
        assert_eq!(
            json!(start.input),
            json!([{"type": "text", "text": "hi", "text_elements": []}])
        );
        let params = json!({"threadId": ID, "excludeTurns": true, "cwd": "/w"});
        let Ok(Request::ThreadFork(fork)) = parse("thread/fork", &params) else { panic!() };
        assert_eq!((fork.turns, fork.settings.cwd.as_deref()), (false, Some("/w")));
    }

    /// What a client gives comes back to it as it was, through our own form of it.
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
        let Ok(Request::TurnStart(start)) = parse("turn/start", &params) else { panic!() };
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
