//! Lines of a thread's log, in the rollout format that Codex clients read and write.
//!
//! A line is `{"timestamp":…,"ordinal":…,"type":…,"payload":{…}}`; ours end with a checksum of everything
//! before it (`"crc32c"`), which other readers skip. [`Line`] is a line that was read, with its payload
//! unparsed; [`Record`] is what is written, and what a line is parsed to.

use std::borrow::Cow;

use protocol::id::ThreadId;
use protocol::mode::Mode;
use protocol::open::{Open, Raw};
use protocol::persist::{CallReturned, Compacted};
use protocol::usage::TotalledUsage;
use serde::de::DeserializeOwned;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::event::LogEvent;

/// A line as it was read.
#[derive(Clone, Debug, Deserialize)]
pub struct Line<'a> {
    /// When it was written: RFC 3339.
    #[serde(borrow, default)]
    pub timestamp: Cow<'a, str>,
    /// Its number in the thread; lines of older files have none.
    #[serde(default)]
    pub ordinal: Option<u64>,
    /// The kind of the payload: one of [`kind`], or something newer than this build.
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    /// The unparsed payload.
    #[serde(borrow)]
    pub payload: Payload<'a>,
}

/// The payload of a line as JSON text. It may be accepted by its checksum without being parsed, so it is not
/// certain to be valid JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a>(&'a str);

impl<'a> Payload<'a> {
    pub fn new(text: &'a str) -> Self {
        Self(text)
    }

    pub fn get(self) -> &'a str {
        self.0
    }

    /// Converts it to JSON, if it is valid.
    pub fn to_raw(self) -> serde_json::Result<Raw> {
        serde_json::from_str(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Payload<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Self(raw.get()))
    }
}

/// The kinds of lines that this build understands.
pub mod kind {
    /// The head of a file: [`super::SessionMeta`].
    pub const SESSION_META: &str = "session_meta";
    /// An item of the history: [`protocol::responses::ResponseItem`].
    pub const RESPONSE_ITEM: &str = "response_item";
    /// The settings of a turn: [`super::TurnContext`].
    pub const TURN_CONTEXT: &str = "turn_context";
    /// An event: [`crate::event::LogEvent`].
    pub const EVENT_MSG: &str = "event_msg";
    /// Tokens of one answer: [`super::TokenUsage`].
    pub const TOKEN_USAGE: &str = "token_usage_record";
    /// A history that replaces everything before it: [`protocol::persist::Compacted`].
    pub const COMPACTED: &str = "compacted";
    /// The output of a call that cannot enter the history yet: [`protocol::persist::CallReturned`]. Only we
    /// write it: an output that was shown must not be lost with the process.
    pub const CALL_RETURNED: &str = "call_returned";
    /// An original item, before the repaired one that is sent: [`protocol::responses::ResponseItem`]. Only we
    /// write it: no message is lost because endpoints would refuse it.
    pub const ORIGINAL_ITEM: &str = "heddle_original_item";
    /// The same in logs from before the rename.
    pub const ORIGINAL_ITEM_OLD: &str = "heddle_item_came";
    /// Replaces a damaged line: [`super::Tombstone`]. Only we write it.
    pub const TOMBSTONE: &str = "heddle_tombstone";
}

/// The head of a file. Fields that are missing or of another type in a file of another program are empty, so
/// that one odd field does not invalidate the line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionMeta {
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub id: Option<ThreadId>,
    /// The thread's original id.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The thread that this one was forked from.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub forked_from_id: Option<ThreadId>,
    /// How many of its lines belong to this thread.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub forked_from_ordinal_exclusive: Option<u64>,
    /// When the thread was created: RFC 3339.
    #[serde(default, deserialize_with = "lenient")]
    pub timestamp: String,
    #[serde(default, deserialize_with = "lenient")]
    pub cwd: String,
    #[serde(default, deserialize_with = "lenient")]
    pub originator: String,
    /// Version of the originator.
    #[serde(default, deserialize_with = "lenient")]
    pub cli_version: String,
    /// How it was created: `exec`, `cli`, or an object about a parent.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub source: Option<Raw>,
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub model_provider: Option<String>,
    /// The base instructions of every request.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub base_instructions: Option<BaseInstructions>,
    /// `paginated` if lines have ordinals; older files lack it.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub history_mode: Option<String>,
    /// What this file continues, if anything.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub history_base: Option<HistoryBase>,
    /// The commit and branch at the start of the thread.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub git: Option<Raw>,
}

/// The mode of files whose lines have ordinals.
pub const PAGINATED: &str = "paginated";

/// Parses a value, or returns the default if it has another type. It must be JSON in any case.
pub fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Box::<RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(value.get()).unwrap_or_default())
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BaseInstructions {
    pub text: String,
}

/// The lines before those of a file: for a fork, those of its source; for a revert, those of the thread
/// itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryBase {
    /// The thread they belong to.
    pub thread_id: ThreadId,
    /// The first ordinal that is excluded.
    pub end_ordinal_exclusive: u64,
    /// Where the last included line ends in its file.
    pub end_byte_offset: u64,
}

/// The settings of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnContext {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    #[serde(default)]
    pub cwd: String,
    /// When a person is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_policy: Option<Raw>,
    /// What commands may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_policy: Option<Raw>,
    #[serde(default)]
    pub model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// How the user and the model worked together; none if the log does not say.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub collaboration_mode: Option<CollaborationMode>,
}

/// The mode of a turn, and the settings that were chosen with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CollaborationMode {
    pub mode: Mode,
    #[serde(default, deserialize_with = "lenient")]
    pub settings: ModeSettings,
}

/// The settings of a mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModeSettings {
    #[serde(default, deserialize_with = "lenient")]
    pub model: String,
    #[serde(default, deserialize_with = "lenient")]
    pub reasoning_effort: Option<String>,
    /// What the model was told about the mode, if it was not the usual text.
    #[serde(default, deserialize_with = "lenient")]
    pub developer_instructions: Option<String>,
}

/// Tokens of one answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenUsage {
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    #[serde(default, deserialize_with = "lenient")]
    pub turn_id: String,
    /// For the answer.
    pub usage: TotalledUsage,
    /// For the turn so far.
    #[serde(default, deserialize_with = "lenient")]
    pub turn_token_usage: TotalledUsage,
    /// For the thread so far.
    pub thread_token_usage: TotalledUsage,
}

/// Replaces a damaged line, so that no one looks for it again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The file next to this one that contains the damaged bytes.
    pub set_aside: String,
    /// The kind of the line, as far as it could be recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// The content of a line, without timestamp, ordinal and checksum.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// The head of a file.
    SessionMeta(Box<SessionMeta>),
    /// An item of the history.
    ResponseItem(Raw),
    /// The settings of a turn.
    TurnContext(Box<TurnContext>),
    EventMsg(Open<LogEvent>),
    /// Tokens of one answer.
    TokenUsageRecord(Box<TokenUsage>),
    /// A history that replaces everything before it.
    Compacted(Box<Compacted>),
    /// The output of a call, before it enters the history.
    CallReturned(Box<CallReturned>),
    /// An original item, before the repaired one that is sent.
    OriginalItem(Raw),
    /// Replaces a damaged line.
    Tombstone(Box<Tombstone>),
    /// A line of an unknown kind, or without the shape of its kind.
    Unknown {
        kind: String,
        /// The unparsed payload.
        payload: Raw,
    },
}

impl Record {
    /// Creates the record of an event.
    pub fn event(event: LogEvent) -> Self {
        Self::EventMsg(Open::Known(event))
    }

    /// Creates the record of an event that is already serialized.
    pub fn raw_event(event: Raw) -> Self {
        Self::EventMsg(Open::Unknown(event))
    }

    /// Parses a line; fails only if its payload is not JSON.
    pub fn from_line(line: &Line<'_>) -> serde_json::Result<Self> {
        let payload = line.payload.to_raw()?;
        let json = payload.as_str();
        // Serde would accept a list as the fields of an object, in order.
        let kind = if json.starts_with('{') { &*line.kind } else { "" };
        let known = match kind {
            kind::SESSION_META => boxed(json, Self::SessionMeta),
            kind::RESPONSE_ITEM => Some(Self::ResponseItem(payload.clone())),
            kind::TURN_CONTEXT => boxed(json, Self::TurnContext),
            kind::EVENT_MSG => serde_json::from_str(json).ok().map(Self::EventMsg),
            kind::TOKEN_USAGE => boxed(json, Self::TokenUsageRecord),
            kind::COMPACTED => boxed(json, Self::Compacted),
            kind::CALL_RETURNED => boxed(json, Self::CallReturned),
            kind::ORIGINAL_ITEM | kind::ORIGINAL_ITEM_OLD => {
                Some(Self::OriginalItem(payload.clone()))
            }
            kind::TOMBSTONE => boxed(json, Self::Tombstone),
            _ => None,
        };
        Ok(known.unwrap_or_else(|| Self::Unknown { kind: line.kind.to_string(), payload }))
    }
}

fn boxed<T: DeserializeOwned>(json: &str, record: impl FnOnce(Box<T>) -> Record) -> Option<Record> {
    serde_json::from_str(json).ok().map(record)
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_struct("Record", 2)?;
        let mut put = |kind: &str| line.serialize_field("type", kind);
        match self {
            Self::SessionMeta(meta) => {
                put(kind::SESSION_META)?;
                line.serialize_field(PAYLOAD, meta)?;
            }
            Self::ResponseItem(item) => {
                put(kind::RESPONSE_ITEM)?;
                line.serialize_field(PAYLOAD, item)?;
            }
            Self::TurnContext(context) => {
                put(kind::TURN_CONTEXT)?;
                line.serialize_field(PAYLOAD, context)?;
            }
            Self::EventMsg(event) => {
                put(kind::EVENT_MSG)?;
                line.serialize_field(PAYLOAD, event)?;
            }
            Self::TokenUsageRecord(usage) => {
                put(kind::TOKEN_USAGE)?;
                line.serialize_field(PAYLOAD, usage)?;
            }
            Self::Compacted(compacted) => {
                put(kind::COMPACTED)?;
                line.serialize_field(PAYLOAD, compacted)?;
            }
            Self::CallReturned(returned) => {
                put(kind::CALL_RETURNED)?;
                line.serialize_field(PAYLOAD, returned)?;
            }
            Self::OriginalItem(item) => {
                put(kind::ORIGINAL_ITEM)?;
                line.serialize_field(PAYLOAD, item)?;
            }
            Self::Tombstone(tombstone) => {
                put(kind::TOMBSTONE)?;
                line.serialize_field(PAYLOAD, tombstone)?;
            }
            Self::Unknown { kind, payload } => {
                put(kind)?;
                line.serialize_field(PAYLOAD, payload)?;
            }
        }
        line.end()
    }
}

const PAYLOAD: &str = "payload";
