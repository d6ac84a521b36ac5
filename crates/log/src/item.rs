//! Items of the log: from [`ItemBody`] to the format in which Codex clients store items, and back.
//!
//! An item is the same when read from disk as it was live. What the reference's format cannot express is
//! stored in fields whose names begin with `heddle_`, which other programs ignore. The list of steps is not
//! stored, since the history has the call that set it.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use protocol::item::{
    Change, ChangeKind, Command, CommandSource, CompactionReason, Decision, Item, ItemBody,
    RefusedCall, Status, ToolCall, WebSearchAction,
};
use protocol::open::{self, Open, Raw};
use protocol::review::{Review, ReviewTarget};
use protocol::user::{UserInput, UserMessage};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::history_item::leading_kind;
use crate::line::lenient;

/// An item in a line of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedItem {
    /// Its id: see [`Item::name`].
    pub id: String,
    pub body: LoggedBody,
    /// How long a command or a call took.
    pub duration: Option<Duration>,
    /// Whether it had no result: see [`Item::stopped`].
    pub stopped: bool,
    /// What was decided before it started: see [`Item::decision`].
    pub decision: Option<Box<Decision>>,
    /// Where the rest of a command's output is, if the item has only its beginning and its end.
    pub output_in_call: Option<OutputInCall>,
}

/// The content of an item of the log.
#[derive(Clone, Debug, PartialEq)]
pub enum LoggedBody {
    /// An item of the engine.
    Item(ItemBody),
    /// Something that this build does not know, verbatim.
    Unknown(Raw),
}

impl LoggedItem {
    /// Creates an item from a final one, in the turn `turn`; none for a list of steps, which is in the history
    /// as the call that set it.
    pub fn from_item(turn: &str, item: &Item) -> Option<Self> {
        let is_timed = match &item.body {
            ItemBody::TodoList { .. } => return None,
            ItemBody::Command(_) | ItemBody::ToolCall(_) | ItemBody::RefusedCall(_) => true,
            ItemBody::UserMessage(_)
            | ItemBody::AgentMessage { .. }
            | ItemBody::Reasoning { .. }
            | ItemBody::Plan { .. }
            | ItemBody::FileChange { .. }
            | ItemBody::WebSearch { .. }
            | ItemBody::Compaction { .. }
            | ItemBody::EnteredReview { .. }
            | ItemBody::ExitedReview { .. } => false,
        };
        Some(Self {
            duration: is_timed.then(|| item.duration()),
            stopped: item.stopped,
            decision: item.decision.clone(),
            ..Self::new(item.name(turn), LoggedBody::Item(item.body.clone()))
        })
    }

    /// Creates an item without the optional fields.
    pub fn new(id: String, body: LoggedBody) -> Self {
        Self { id, body, duration: None, stopped: false, decision: None, output_in_call: None }
    }

    /// Returns what the user said; none for other items.
    pub fn user_message(&self) -> Option<&UserMessage> {
        match &self.body {
            LoggedBody::Item(ItemBody::UserMessage(message)) => Some(message),
            _ => None,
        }
    }

    /// Replaces an abbreviated output by the full one that was written with its call. Returns whether it did.
    pub fn restore_output(&mut self, call_output: &str) -> bool {
        let Some(in_call) = &self.output_in_call else { return false };
        let LoggedBody::Item(ItemBody::Command(command)) = &mut self.body else { return false };
        let Some(output) = in_call.find(&command.output, call_output) else { return false };
        command.output = output.to_owned();
        self.output_in_call = None;
        true
    }
}

/// Refers to the output of a command that its item does not repeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputInCall {
    /// The call whose output contains it.
    pub call_id: String,
    /// The byte at which it starts there.
    pub from: usize,
    /// How many bytes of its middle the item omits.
    pub left_out: usize,
}

impl OutputInCall {
    /// Cuts the middle out of an output; none if it is short enough to be written twice.
    pub fn cut(output: &str, call_id: &str, from: usize) -> Option<(String, Self)> {
        if output.len() <= OUTPUT_BYTES_MAX {
            return None;
        }
        let head = output.floor_char_boundary(OUTPUT_BYTES_MAX / 2);
        let tail = output.ceil_char_boundary(output.len() - OUTPUT_BYTES_MAX / 2);
        let cut = Self { call_id: call_id.to_owned(), from, left_out: tail - head };
        Some((format!("{}{}{}", &output[..head], cut.mark(), &output[tail..]), cut))
    }

    /// Finds the full output of the abbreviated `text` in the output of its call.
    fn find<'a>(&self, text: &str, call_output: &'a str) -> Option<&'a str> {
        let length = text.len().checked_add(self.left_out)?.checked_sub(self.mark().len())?;
        let output = call_output.get(self.from..)?.get(..length)?;
        // Another program may have changed either.
        let is_it = Self::cut(output, "", 0).is_some_and(|(cut, _)| cut == text);
        is_it.then_some(output)
    }

    fn mark(&self) -> String {
        format!("\n[{} bytes: see the output of the call]\n", self.left_out)
    }
}

/// The source of a command that the user ran themselves.
const USER_SHELL: &str = "user_shell";

/// Longest output in bytes that an item repeats in full although the call has it, too.
pub const OUTPUT_BYTES_MAX: usize = 600;

/// The fields of an item that can be read without parsing all of it.
#[derive(Clone, Debug, Deserialize)]
pub struct ItemHead<'a> {
    /// The kind of item, by its name in the log.
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    #[serde(default, borrow)]
    pub id: Cow<'a, str>,
    #[serde(default, borrow)]
    status: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    server: Option<Cow<'a, str>>,
}

impl ItemHead<'_> {
    pub fn is_user_message(&self) -> bool {
        self.kind == USER_MESSAGE
    }

    /// Returns whether a review begins or ends here.
    pub fn is_review(&self) -> bool {
        self.kind == ENTERED_REVIEW_MODE || self.kind == EXITED_REVIEW_MODE
    }

    /// Returns whether this is a refused call, for which nothing was run.
    pub fn is_refused(&self) -> bool {
        let status = self.status.as_deref().map(status);
        status == Some(Status::Declined)
            || (self.server.as_deref() == Some(RefusedCall::SERVER)
                && status == Some(Status::Failed))
    }
}

// The reference's formats, written and read by the same types.

#[derive(Serialize, Deserialize)]
struct LoggedUserMessage<'a> {
    #[serde(default, deserialize_with = "lenient")]
    id: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    client_id: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "user_content")]
    content: Cow<'a, [Open<UserInput>]>,
}

#[derive(Serialize, Deserialize)]
struct AgentMessage<'a> {
    #[serde(default, deserialize_with = "lenient")]
    id: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    content: Vec<TextPart<'a>>,
}

#[derive(Clone, Serialize, Deserialize)]
struct TextPart<'a> {
    #[serde(rename = "type", default)]
    kind: Cow<'a, str>,
    #[serde(default)]
    text: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct Reasoning<'a> {
    #[serde(default, deserialize_with = "lenient")]
    id: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    summary_text: Cow<'a, [String]>,
    #[serde(default, deserialize_with = "lenient")]
    raw_content: Cow<'a, [String]>,
}

#[derive(Serialize, Deserialize)]
struct Plan<'a> {
    #[serde(default, deserialize_with = "lenient")]
    id: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    text: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct CommandExecution<'a> {
    #[serde(default, deserialize_with = "lenient")]
    id: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    command: Vec<String>,
    #[serde(default, deserialize_with = "lenient")]
    cwd: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    parsed_cmd: Value,
    #[serde(default, deserialize_with = "lenient")]
    source: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    status: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    aggregated_output: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    exit_code: Option<i32>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    duration: Option<Duration>,
    /// The command as it was shown, if its words do not determine it.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    heddle_command: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    heddle_output_in_call: Option<OutputInCall>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "is_false")]
    heddle_stopped: bool,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    heddle_decision: Option<Box<Decision>>,
}

#[derive(Serialize, Deserialize)]
struct FileChange<'a> {
    #[serde(default, deserialize_with = "lenient")]
    id: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    changes: Map<String, Value>,
    #[serde(default, deserialize_with = "lenient")]
    status: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    auto_approved: bool,
    #[serde(default, deserialize_with = "lenient")]
    stdout: Cow<'a, str>,
    /// Contains, among other things, why it was refused.
    #[serde(default, deserialize_with = "lenient")]
    stderr: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "is_false")]
    heddle_stopped: bool,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    heddle_decision: Option<Box<Decision>>,
}

#[derive(Serialize, Deserialize)]
struct WebSearch<'a> {
    #[serde(default, deserialize_with = "lenient")]
    id: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    query: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    action: Option<WebSearchAction>,
    /// The provider's id, if the item has another one.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    heddle_call: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
struct McpToolCall<'a> {
    #[serde(default, deserialize_with = "lenient")]
    id: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    server: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    tool: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    arguments: Option<Raw>,
    #[serde(default, deserialize_with = "lenient")]
    status: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    result: Option<CallResult<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    error: Option<CallError<'a>>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    duration: Option<Duration>,
    /// The arguments as the model wrote them, if the field above does not determine them.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    heddle_arguments: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "is_false")]
    heddle_stopped: bool,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    heddle_decision: Option<Box<Decision>>,
}

#[derive(Serialize, Deserialize)]
struct CallResult<'a> {
    #[serde(default)]
    content: Vec<TextPart<'a>>,
    #[serde(rename = "isError", default, deserialize_with = "lenient")]
    is_error: Option<bool>,
}

#[derive(Serialize, Deserialize)]
struct CallError<'a> {
    message: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct ContextCompaction<'a> {
    #[serde(default, deserialize_with = "lenient")]
    id: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    heddle_reason: Option<Reason>,
}

#[derive(Serialize, Deserialize)]
struct EnteredReviewMode<'a> {
    #[serde(default, deserialize_with = "lenient")]
    id: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    target: Option<ReviewTarget>,
    #[serde(default, deserialize_with = "lenient")]
    user_facing_hint: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
struct ExitedReviewMode<'a> {
    #[serde(default, deserialize_with = "lenient")]
    id: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    review_output: Option<Cow<'a, Review>>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reason {
    Requested,
    NearlyFull,
    Refused,
}

#[derive(Serialize)]
struct Tagged<T> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    item: T,
}

const USER_MESSAGE: &str = "UserMessage";
const AGENT_MESSAGE: &str = "AgentMessage";
const REASONING: &str = "Reasoning";
const PLAN: &str = "Plan";
const COMMAND_EXECUTION: &str = "CommandExecution";
const FILE_CHANGE: &str = "FileChange";
const WEB_SEARCH: &str = "WebSearch";
const MCP_TOOL_CALL: &str = "McpToolCall";
const CONTEXT_COMPACTION: &str = "ContextCompaction";
const ENTERED_REVIEW_MODE: &str = "EnteredReviewMode";
const EXITED_REVIEW_MODE: &str = "ExitedReviewMode";

impl Serialize for LoggedItem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let id = Cow::Borrowed(self.id.as_str());
        let body = match &self.body {
            LoggedBody::Unknown(raw) => return raw.serialize(serializer),
            LoggedBody::Item(body) => body,
        };
        match body {
            ItemBody::UserMessage(UserMessage { content, client_id }) => {
                let (content, client_id) = (content.into(), client_id.as_deref().map(Cow::from));
                tagged(USER_MESSAGE, LoggedUserMessage { id, client_id, content }, serializer)
            }
            ItemBody::AgentMessage { text } => {
                let content = vec![TextPart { kind: "Text".into(), text: (&**text).into() }];
                tagged(AGENT_MESSAGE, AgentMessage { id, content }, serializer)
            }
            ItemBody::Reasoning { summary, content } => {
                let summary_text = Cow::Borrowed(summary.as_slice());
                let raw_content = Cow::Borrowed(content.as_slice());
                tagged(REASONING, Reasoning { id, summary_text, raw_content }, serializer)
            }
            ItemBody::Plan { text } => {
                let text = Cow::Borrowed(&**text);
                tagged(PLAN, Plan { id, text }, serializer)
            }
            ItemBody::Command(command) => {
                tagged(COMMAND_EXECUTION, self.command(id, command), serializer)
            }
            ItemBody::FileChange { changes, status, refusal } => {
                let item = FileChange {
                    id,
                    changes: changes.iter().map(change).collect(),
                    status: status_name(*status).into(),
                    auto_approved: true,
                    stdout: "".into(),
                    stderr: refusal.as_deref().unwrap_or_default().into(),
                    heddle_stopped: self.stopped,
                    heddle_decision: self.decision.clone(),
                };
                tagged(FILE_CHANGE, item, serializer)
            }
            ItemBody::WebSearch { call, query, action } => {
                let heddle_call = (*call != id).then_some(call.into());
                let (query, action) = (query.into(), Some(action.clone()));
                tagged(WEB_SEARCH, WebSearch { id, query, action, heddle_call }, serializer)
            }
            ItemBody::ToolCall(call) => tagged(MCP_TOOL_CALL, self.call(id, call), serializer),
            ItemBody::RefusedCall(call) => {
                tagged(MCP_TOOL_CALL, self.call(id, &call.as_failed()), serializer)
            }
            ItemBody::Compaction { reason } => {
                let heddle_reason = Some(match reason {
                    CompactionReason::Requested => Reason::Requested,
                    CompactionReason::NearlyFull => Reason::NearlyFull,
                    CompactionReason::Refused => Reason::Refused,
                });
                let item = ContextCompaction { id, heddle_reason };
                tagged(CONTEXT_COMPACTION, item, serializer)
            }
            ItemBody::EnteredReview { hint, target } => {
                let (target, user_facing_hint) = (target.clone(), Some(hint.into()));
                let item = EnteredReviewMode { id, target, user_facing_hint };
                tagged(ENTERED_REVIEW_MODE, item, serializer)
            }
            ItemBody::ExitedReview { review } => {
                let review_output = review.as_ref().map(Cow::Borrowed);
                tagged(EXITED_REVIEW_MODE, ExitedReviewMode { id, review_output }, serializer)
            }
            // The call that set the steps is in the history; this is never written.
            ItemBody::TodoList { .. } => {
                tagged("TodoList", ContextCompaction { id, heddle_reason: None }, serializer)
            }
        }
    }
}

fn user_content<'de, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Cow<'a, [Open<UserInput>]>, D::Error> {
    lenient(deserializer).map(read_content)
}

/// Parses the parts of a message of the user. One that is invalid is kept like one of an unknown kind.
pub(crate) fn read_content<T: From<Vec<Open<UserInput>>>>(parts: Vec<Raw>) -> T {
    let read = |part: Raw| match Open::from_json(part.as_raw()) {
        Ok(read) => read,
        Err(_) => Open::Unknown(part),
    };
    parts.into_iter().map(read).collect::<Vec<_>>().into()
}

fn tagged<T: Serialize, S: Serializer>(
    kind: &'static str,
    item: T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    Tagged { kind, item }.serialize(serializer)
}

impl LoggedItem {
    fn command<'a>(&self, id: Cow<'a, str>, command: &'a Command) -> CommandExecution<'a> {
        let argv = shlex::split(&command.command).unwrap_or_else(|| vec![command.command.clone()]);
        let is_told = join(&argv) == command.command;
        CommandExecution {
            id,
            cwd: file_url(&command.cwd.to_string_lossy()).into(),
            parsed_cmd: json!([{"type": "unknown", "cmd": argv.last()}]),
            source: match command.source {
                CommandSource::Model => "unified_exec_startup".into(),
                CommandSource::User => USER_SHELL.into(),
            },
            status: status_name(command.status).into(),
            aggregated_output: command.output.as_str().into(),
            exit_code: command.exit_code,
            duration: self.duration,
            heddle_command: (!is_told).then(|| command.command.as_str().into()),
            heddle_output_in_call: self.output_in_call.clone(),
            heddle_stopped: self.stopped,
            heddle_decision: self.decision.clone(),
            command: argv,
        }
    }

    fn call<'a>(&self, id: Cow<'a, str>, call: &ToolCall) -> McpToolCall<'a> {
        let failed = call.status == Status::Failed;
        let (arguments, is_told) = arguments_value(&call.arguments);
        let part = TextPart { kind: "text".into(), text: call.output.clone().into() };
        McpToolCall {
            id,
            server: call.server.clone().into(),
            tool: call.tool.clone().into(),
            arguments: Some(arguments),
            status: status_name(call.status).into(),
            result: Some(CallResult { content: vec![part], is_error: Some(failed) }),
            error: failed.then(|| CallError { message: call.output.clone().into() }),
            duration: self.duration,
            heddle_arguments: (!is_told).then(|| call.arguments.clone().into()),
            heddle_stopped: self.stopped,
            heddle_decision: self.decision.clone(),
        }
    }

    fn read(raw: &RawValue) -> serde_json::Result<Self> {
        let json = raw.get();
        let kind = match leading_kind(json) {
            Some(kind) => Some(Cow::Borrowed(kind)),
            None => open::kind(json),
        };
        let kind = kind.ok_or_else(|| serde_json::Error::custom("an item has a type"))?;
        let item = |id: Cow<'_, str>, body| Self::new(id.into_owned(), LoggedBody::Item(body));
        Ok(match &*kind {
            USER_MESSAGE => {
                let read: LoggedUserMessage<'_> = serde_json::from_str(json)?;
                let client_id = read.client_id.map(Cow::into_owned);
                let message = UserMessage { content: read.content.into_owned(), client_id };
                item(read.id, ItemBody::UserMessage(message))
            }
            AGENT_MESSAGE => {
                let read: AgentMessage<'_> = serde_json::from_str(json)?;
                let text = match <[TextPart<'_>; 1]>::try_from(read.content) {
                    Ok([part]) => Arc::from(part.text),
                    Err(parts) => parts.iter().map(|part| &*part.text).collect::<String>().into(),
                };
                item(read.id, ItemBody::AgentMessage { text })
            }
            REASONING => {
                let read: Reasoning<'_> = serde_json::from_str(json)?;
                let summary = read.summary_text.into_owned();
                let content = read.raw_content.into_owned();
                item(read.id, ItemBody::Reasoning { summary, content })
            }
            PLAN => {
                let read: Plan<'_> = serde_json::from_str(json)?;
                item(read.id, ItemBody::Plan { text: read.text.into() })
            }
            COMMAND_EXECUTION => {
                let read: CommandExecution<'_> = serde_json::from_str(json)?;
                let command = match read.heddle_command {
                    Some(command) => command.into_owned(),
                    None => join(&read.command),
                };
                let command = Command {
                    command,
                    cwd: PathBuf::from(file_path(&read.cwd)),
                    output: read.aggregated_output.into_owned(),
                    exit_code: read.exit_code,
                    status: status(&read.status),
                    source: match &*read.source {
                        USER_SHELL => CommandSource::User,
                        _ => CommandSource::Model,
                    },
                };
                Self {
                    duration: read.duration,
                    stopped: read.heddle_stopped,
                    decision: read.heddle_decision,
                    output_in_call: read.heddle_output_in_call,
                    ..item(read.id, ItemBody::Command(command))
                }
            }
            FILE_CHANGE => {
                let read: FileChange<'_> = serde_json::from_str(json)?;
                let status = status(&read.status);
                let is_refused = !matches!(status, Status::Completed | Status::InProgress);
                let refusal = Some(read.stderr.into_owned())
                    .filter(|refusal| is_refused && !refusal.is_empty());
                let changes = read.changes.iter().map(read_change).collect();
                let body = ItemBody::FileChange { changes, status, refusal };
                Self {
                    stopped: read.heddle_stopped,
                    decision: read.heddle_decision,
                    ..item(read.id, body)
                }
            }
            WEB_SEARCH => {
                let read: WebSearch<'_> = serde_json::from_str(json)?;
                let call = read.heddle_call.as_ref().unwrap_or(&read.id).clone().into_owned();
                let action = read.action.unwrap_or(WebSearchAction::Other);
                item(read.id, ItemBody::WebSearch { call, query: read.query.into_owned(), action })
            }
            MCP_TOOL_CALL => Self::read_call(serde_json::from_str(json)?),
            CONTEXT_COMPACTION => {
                let read: ContextCompaction<'_> = serde_json::from_str(json)?;
                let reason = match read.heddle_reason {
                    Some(Reason::Requested) => CompactionReason::Requested,
                    Some(Reason::Refused) => CompactionReason::Refused,
                    // Other programs omit it, and this is the usual reason.
                    Some(Reason::NearlyFull) | None => CompactionReason::NearlyFull,
                };
                item(read.id, ItemBody::Compaction { reason })
            }
            ENTERED_REVIEW_MODE => {
                let EnteredReviewMode { id, target, user_facing_hint } =
                    serde_json::from_str(json)?;
                let hint = match (user_facing_hint, &target) {
                    (Some(hint), _) => hint.into_owned(),
                    (None, target) => target.as_ref().map(ReviewTarget::hint).unwrap_or_default(),
                };
                item(id, ItemBody::EnteredReview { hint, target })
            }
            EXITED_REVIEW_MODE => {
                let ExitedReviewMode { id, review_output } = serde_json::from_str(json)?;
                let review = review_output.map(Cow::into_owned);
                item(id, ItemBody::ExitedReview { review })
            }
            _ => Self::new(String::new(), LoggedBody::Unknown(raw.to_owned().into())),
        })
    }

    fn read_call(read: McpToolCall<'_>) -> Self {
        let arguments = match (read.heddle_arguments, read.arguments) {
            (Some(text), _) => text.into_owned(),
            (None, Some(json)) => serde_json::from_str::<String>(json.as_str())
                .unwrap_or_else(|_| json.as_str().to_owned()),
            (None, None) => "null".to_owned(),
        };
        let parts = read.result.map(|result| result.content).unwrap_or_default();
        let texts: Vec<_> = parts.iter().map(|part| &*part.text).collect();
        let message = read.error.filter(|_| texts.is_empty()).map(|error| error.message);
        let output = message.map_or_else(|| texts.join("\n"), Cow::into_owned);
        let status = status(&read.status);
        let (server, tool) = (read.server.into_owned(), read.tool.into_owned());
        let body = if server == RefusedCall::SERVER && status == Status::Failed {
            ItemBody::RefusedCall(RefusedCall { tool, arguments, reason: output })
        } else {
            ItemBody::ToolCall(ToolCall { server, tool, arguments, output, status })
        };
        Self {
            duration: read.duration,
            stopped: read.heddle_stopped,
            decision: read.heddle_decision,
            ..Self::new(read.id.into_owned(), LoggedBody::Item(body))
        }
    }
}

impl<'de> Deserialize<'de> for LoggedItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(<&RawValue>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Returns the arguments of a call as JSON, and whether they are read back unchanged.
fn arguments_value(arguments: &str) -> (Raw, bool) {
    let Ok(json) = RawValue::from_string(arguments.to_owned()) else {
        return (raw(&arguments), true);
    };
    // A line must not contain line breaks, and a text that is JSON must stay distinguishable from one that is
    // not.
    let is_plain = json.get() == arguments && !arguments.contains(['\n', '\r']);
    if is_plain && !arguments.starts_with('"') {
        return (json.into(), true);
    }
    let value = serde_json::from_str::<Value>(arguments).unwrap_or_default();
    (raw(&value), false)
}

fn change(change: &Change) -> (String, Value) {
    let Change { path, kind, moved_to, diff } = change;
    let value = match kind {
        ChangeKind::Add => json!({"type": "add", "content": **diff}),
        ChangeKind::Delete => json!({"type": "delete", "content": **diff}),
        ChangeKind::Update => {
            json!({"type": "update", "unified_diff": **diff, "move_path": moved_to})
        }
    };
    (path.clone(), value)
}

fn read_change((path, change): (&String, &Value)) -> Change {
    let (kind, diff) = match change["type"].as_str() {
        Some("add") => (ChangeKind::Add, &change["content"]),
        Some("delete") => (ChangeKind::Delete, &change["content"]),
        _ => (ChangeKind::Update, &change["unified_diff"]),
    };
    let moved_to = change["move_path"].as_str().map(str::to_owned);
    Change { path: path.clone(), kind, moved_to, diff: diff.as_str().unwrap_or_default().into() }
}

fn status_name(status: Status) -> &'static str {
    match status {
        Status::InProgress => "in_progress",
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::Declined => "declined",
    }
}

fn status(name: &str) -> Status {
    match name {
        "in_progress" => Status::InProgress,
        "failed" => Status::Failed,
        "declined" => Status::Declined,
        // Everything in the log has ended.
        _ => Status::Completed,
    }
}

/// Joins the words of a command with shell quoting.
pub fn join(argv: &[String]) -> String {
    // A word with a NUL byte cannot be quoted.
    shlex::try_join(argv.iter().map(String::as_str)).unwrap_or_else(|_| argv.join(" "))
}

/// Formats a path as a URL; reserved characters are percent-encoded.
fn file_url(path: &str) -> String {
    format!("file://{}", utf8_percent_encode(path, RESERVED))
}

/// Parses a path that may be written as a URL.
fn file_path(text: &str) -> String {
    let path = text.strip_prefix("file://").map(|path| percent_decode_str(path).decode_utf8());
    match path {
        Some(Ok(path)) => path.into_owned(),
        // It is no URL, or does not encode text.
        Some(Err(_)) | None => text.to_owned(),
    }
}

/// The characters of a path that a URL cannot contain as they are.
const RESERVED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');

fn raw(value: &impl Serialize) -> Raw {
    Raw::from(to_raw_value(value).expect("plain data with string keys"))
}

fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_urls() {
        assert_eq!(file_url("/w x/é"), "file:///w%20x/%C3%A9");
        for (text, want) in [
            ("file:///w%20x/%C3%A9", "/w x/é"),
            ("/plain%20", "/plain%20"),
            ("file:///a%2", "/a%2"),
            ("file:///%zz", "/%zz"),
            ("file:///%ff", "file:///%ff"),
        ] {
            assert_eq!(file_path(text), want);
        }
    }
}
