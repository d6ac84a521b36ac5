//! Payloads of `event_msg` lines.
//!
//! [`Open<LogEvent>`] reads and writes any such payload: an unknown kind is kept byte for byte. Fields that
//! are missing or of another type are empty, so that one odd field does not invalidate the line.

use std::borrow::Cow;
use std::sync::Arc;

use protocol::error::{Limit, RetryAdvice, TurnError, TurnErrorCause};
use protocol::id::ThreadId;
use protocol::open::{Kinds, Open, Raw};
use protocol::usage::TotalledUsage;
use protocol::user::{TextElement, UserInput, UserMessage};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::cause;
use crate::item::{LoggedItem, read_content};
use crate::line::lenient;

/// An event of a known kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LogEvent {
    /// A turn started. Also written as `turn_started`.
    TaskStarted(TaskStarted),
    /// A turn ended by itself, successfully or not. Also written as `turn_complete`.
    TaskComplete(TaskComplete),
    TurnAborted(TurnAborted),
    /// An item is final.
    ItemCompleted(Box<ItemCompleted>),
    /// A message of the user, in files without ordinals.
    UserMessage(UserMessageEvent),
    /// A message of the model, in files without ordinals.
    AgentMessage(AgentMessage),
    /// Tokens of the thread so far.
    TokenCount(TokenCount),
    /// Turns were rolled back.
    ThreadRolledBack(ThreadRolledBack),
    /// The settings of the thread have changed.
    ThreadSettingsApplied(ThreadSettingsApplied),
}

/// The kind of an event. Readers match on this and parse no more than they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are those of `LogEvent`")]
pub enum EventKind {
    TaskStarted,
    TaskComplete,
    TurnAborted,
    ItemCompleted,
    UserMessage,
    AgentMessage,
    TokenCount,
    ThreadRolledBack,
    ThreadSettingsApplied,
    /// A kind that this build does not know.
    Unknown,
}

impl EventKind {
    /// Returns the kind for a name, old or new.
    pub fn from_name(name: &str) -> Self {
        match name {
            "task_started" | "turn_started" => Self::TaskStarted,
            "task_complete" | "turn_complete" => Self::TaskComplete,
            "turn_aborted" => Self::TurnAborted,
            "item_completed" => Self::ItemCompleted,
            "user_message" => Self::UserMessage,
            "agent_message" => Self::AgentMessage,
            "token_count" => Self::TokenCount,
            "thread_rolled_back" => Self::ThreadRolledBack,
            "thread_settings_applied" => Self::ThreadSettingsApplied,
            _ => Self::Unknown,
        }
    }
}

impl Kinds for LogEvent {
    fn read(kind: &str, json: &str) -> Option<serde_json::Result<Self>> {
        Self::read_kind(EventKind::from_name(kind), json)
    }
}

impl LogEvent {
    /// Parses a payload whose kind is given; none if this build does not know it.
    pub(crate) fn read_kind(kind: EventKind, json: &str) -> Option<serde_json::Result<Self>> {
        Some(match kind {
            EventKind::TaskStarted => serde_json::from_str(json).map(Self::TaskStarted),
            EventKind::TaskComplete => serde_json::from_str(json).map(Self::TaskComplete),
            EventKind::TurnAborted => serde_json::from_str(json).map(Self::TurnAborted),
            EventKind::ItemCompleted => serde_json::from_str(json).map(Self::ItemCompleted),
            EventKind::UserMessage => serde_json::from_str(json).map(Self::UserMessage),
            EventKind::AgentMessage => serde_json::from_str(json).map(Self::AgentMessage),
            EventKind::TokenCount => serde_json::from_str(json).map(Self::TokenCount),
            EventKind::ThreadRolledBack => serde_json::from_str(json).map(Self::ThreadRolledBack),
            EventKind::ThreadSettingsApplied => {
                serde_json::from_str(json).map(Self::ThreadSettingsApplied)
            }
            EventKind::Unknown => return None,
        })
    }
}

/// A turn started. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named as in the log")]
pub struct TaskStarted {
    #[serde(default, deserialize_with = "lenient")]
    pub turn_id: Option<String>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub root_turn_id: Option<String>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    pub model_context_window: Option<u64>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub collaboration_mode_kind: Option<String>,
}

/// A turn ended by itself. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named as in the log")]
pub struct TaskComplete {
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<u64>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default, deserialize_with = "error", skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<TaskError>>,
    #[serde(default, deserialize_with = "lenient")]
    pub last_agent_message: Option<Arc<str>>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub root_turn_id: Option<String>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    pub turn_id: Option<String>,
}

/// Why a turn failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskError {
    /// For programs that know the reference's names.
    pub codex_error_info: Value,
    /// How many requests were made for the answer that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heddle_attempts: Option<u32>,
    /// Our own name of the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heddle_cause: Option<Cow<'static, str>>,
    /// The limit that was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heddle_limit: Option<Limit>,
    /// The provider's id of the last request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heddle_request_id: Option<String>,
    /// Whether and when the turn could be retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heddle_retry: Option<RetryAdvice>,
    /// The text for people.
    pub message: String,
}

impl TaskError {
    /// Returns the cause, as far as the line says.
    pub fn cause(&self) -> Option<TurnErrorCause> {
        cause::cause(self.heddle_cause.as_deref(), &self.codex_error_info)
    }

    /// Returns the failure as it was reported, as far as the line says. Logs of other programs, and old ones of ours, say
    /// neither how often something was tried nor whether it can be retried.
    pub fn into_turn_error(self) -> TurnError {
        TurnError {
            attempts: self.heddle_attempts.unwrap_or_default(),
            retry: self.heddle_retry.unwrap_or_default(),
            request_id: self.heddle_request_id.clone(),
            limit: self.heddle_limit,
            ..TurnError::new(self.cause().unwrap_or(TurnErrorCause::Unknown), self.message)
        }
    }

    fn from_value(value: Value) -> Self {
        let mut fields = match value {
            Value::Object(fields) => fields,
            // There was an error, and nothing more is known.
            value => serde_json::Map::from_iter([("message".to_owned(), value)]),
        };
        let mut text = |name: &str| match fields.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let message = text("message").unwrap_or_else(|| "an error".to_owned());
        let heddle_cause = text("heddle_cause").map(Cow::Owned);
        let heddle_request_id = text("heddle_request_id");
        let codex_error_info = fields.remove("codex_error_info").filter(|info| !info.is_null());
        Self {
            codex_error_info: codex_error_info.unwrap_or_else(|| cause::OTHER.into()),
            heddle_attempts: read_field(&mut fields, "heddle_attempts"),
            heddle_cause,
            heddle_limit: read_field(&mut fields, "heddle_limit"),
            heddle_request_id,
            heddle_retry: read_field(&mut fields, "heddle_retry"),
            message,
        }
    }
}

impl From<&TurnError> for TaskError {
    fn from(error: &TurnError) -> Self {
        Self {
            codex_error_info: cause::error_info(error.cause),
            heddle_attempts: (error.attempts > 0).then_some(error.attempts),
            heddle_cause: cause::cause_name(error.cause).map(Cow::Borrowed),
            heddle_limit: error.limit,
            heddle_request_id: error.request_id.clone(),
            heddle_retry: (error.retry != RetryAdvice::Never).then_some(error.retry),
            message: error.message.clone(),
        }
    }
}

/// Reads a field that a newer version may write in another form.
fn read_field<T: DeserializeOwned>(
    fields: &mut serde_json::Map<String, Value>,
    name: &str,
) -> Option<T> {
    fields.remove(name).and_then(|value| serde_json::from_value(value).ok())
}

fn error<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<TaskError>>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    Ok(value.map(|value| Box::new(TaskError::from_value(value))))
}

/// A turn was interrupted. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named as in the log")]
pub struct TurnAborted {
    #[serde(default, deserialize_with = "lenient")]
    pub turn_id: Option<String>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<u64>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

impl TurnAborted {
    /// The reason of a turn that the user interrupted, or whose process ended.
    pub const INTERRUPTED: &str = "interrupted";
}

/// An item is final. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named as in the log")]
pub struct ItemCompleted {
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub completed_at_ms: Option<u64>,
    pub item: LoggedItem,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub started_at_ms: Option<u64>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    #[serde(default, deserialize_with = "lenient")]
    pub turn_id: Option<String>,
}

/// A message of the user, in files without ordinals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UserMessageEvent {
    /// The id that the client gave it.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Its texts, with nothing between them.
    pub message: String,
    /// The URLs of its images.
    #[serde(default, deserialize_with = "lenient")]
    pub images: Vec<String>,
    /// The paths of its images in files.
    #[serde(default, deserialize_with = "lenient")]
    pub local_images: Vec<String>,
    /// The spans of the joined text that a client shows in its own way.
    #[serde(default, deserialize_with = "lenient")]
    pub text_elements: Vec<TextElement>,
    /// Its parts, if the other fields do not determine them.
    #[serde(
        default,
        deserialize_with = "optional_content",
        skip_serializing_if = "Option::is_none"
    )]
    heddle_content: Option<Vec<Open<UserInput>>>,
}

impl UserMessageEvent {
    /// Returns the message.
    pub fn into_message(self) -> UserMessage {
        let Self { client_id, message, images, local_images, text_elements, heddle_content } = self;
        if let Some(content) = heddle_content {
            return UserMessage { content, client_id };
        }
        let has_text = !message.is_empty() || !text_elements.is_empty();
        let text = has_text.then_some(UserInput::Text { text: message, text_elements });
        let detail = None;
        let images = images.into_iter().map(|image_url| UserInput::Image { image_url, detail });
        let files = local_images.into_iter().map(|path| UserInput::LocalImage { path, detail });
        let inputs = text.into_iter().chain(images).chain(files);
        UserMessage { client_id, ..UserMessage::from_inputs(inputs) }
    }
}

impl From<&UserMessage> for UserMessageEvent {
    fn from(message: &UserMessage) -> Self {
        let event = Self {
            client_id: message.client_id.clone(),
            message: message.joined_text(),
            images: message.image_urls().map(str::to_owned).collect(),
            local_images: message.local_image_paths().map(str::to_owned).collect(),
            text_elements: message.text_elements(),
            heddle_content: None,
        };
        let is_told = event.clone().into_message() == *message;
        Self { heddle_content: (!is_told).then(|| message.content.clone()), ..event }
    }
}

fn optional_content<'de, D>(deserializer: D) -> Result<Option<Vec<Open<UserInput>>>, D::Error>
where
    D: Deserializer<'de>,
{
    let parts: Option<Vec<Raw>> = lenient(deserializer)?;
    Ok(parts.map(read_content))
}

/// A message of the model, in files without ordinals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named as in the log")]
pub struct AgentMessage {
    pub message: Arc<str>,
}

/// Tokens of the thread so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named as in the log")]
pub struct TokenCount {
    #[serde(default)]
    pub info: Option<TokenInfo>,
    #[serde(default, deserialize_with = "lenient")]
    pub rate_limits: Option<Raw>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// For the whole thread.
    pub total_token_usage: TotalledUsage,
    /// For the last answer.
    pub last_token_usage: TotalledUsage,
    /// Size of the context window.
    #[serde(default, deserialize_with = "lenient")]
    pub model_context_window: Option<u64>,
}

/// Turns were rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadRolledBack {
    /// The number of turns, counting only those with a message of the user.
    pub num_turns: u64,
}

/// The settings of the thread have changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named as in the log")]
pub struct ThreadSettingsApplied {
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    pub thread_settings: ThreadSettings,
}

/// Settings of a thread, as far as a log needs them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named as in the log")]
pub struct ThreadSettings {
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub model_provider_id: Option<String>,
}
