//! Lines of a thread's log, in the rollout layout that Codex clients read and write.
//!
//! A line is `{"timestamp":…,"ordinal":…,"type":…,"payload":{…}}`; ours end in a checksum of all that
//! stands before it (`"crc32c"`), which other readers skip. [`Line`] is what is read, with its payload
//! untouched; [`Record`] is what is written, and what a line reads back as.

use std::borrow::Cow;

use protocol::id::ThreadId;
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
    /// What the payload is: one of [`kind`], or something newer than this build.
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    /// The payload as it stands.
    #[serde(borrow)]
    pub payload: Payload<'a>,
}

/// The payload of a line: JSON text, as it stands. A checksum can vouch for it in place of a parser, so it
/// is not certain to be JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a>(&'a str);

impl<'a> Payload<'a> {
    /// Takes `text` for a payload.
    pub fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// Returns the text.
    pub fn get(self) -> &'a str {
        self.0
    }

    /// Returns it as JSON, if it is.
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
    /// What a turn runs with: [`super::TurnContext`].
    pub const TURN_CONTEXT: &str = "turn_context";
    /// Something that happened: [`crate::event::LogEvent`].
    pub const EVENT_MSG: &str = "event_msg";
    /// Tokens of one answer: [`super::TokenUsage`].
    pub const TOKEN_USAGE: &str = "token_usage_record";
    /// A history that replaces all before it: [`protocol::persist::Compacted`].
    pub const COMPACTED: &str = "compacted";
    /// The output of a call whose turn in the history has not come yet: [`protocol::persist::CallReturned`]. Ours
    /// alone: it keeps an output that was shown from being lost with the process.
    pub const CALL_RETURNED: &str = "call_returned";
    /// An item as it came, before the one that is sent in its place: [`protocol::responses::ResponseItem`]. Ours
    /// alone: nothing that was said is lost because no endpoint would take it.
    pub const ORIGINAL_ITEM: &str = "heddle_original_item";
    /// The same in logs of before the rename.
    pub const ORIGINAL_ITEM_OLD: &str = "heddle_item_came";
    /// Stands where a damaged line was: [`super::Tombstone`]. Ours alone.
    pub const TOMBSTONE: &str = "heddle_tombstone";
}

/// The head of a file. Whatever is missing in a file of another program, or is not of the type that it has
/// here, is empty: one odd field costs nothing but itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionMeta {
    /// The thread.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub id: Option<ThreadId>,
    /// The thread again; what it was first called.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The thread that this one was forked from.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub forked_from_id: Option<ThreadId>,
    /// How many lines of it count.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub forked_from_ordinal_exclusive: Option<u64>,
    /// When the thread was made: RFC 3339.
    #[serde(default, deserialize_with = "lenient")]
    pub timestamp: String,
    /// The working directory.
    #[serde(default, deserialize_with = "lenient")]
    pub cwd: String,
    /// The program.
    #[serde(default, deserialize_with = "lenient")]
    pub originator: String,
    /// Its version.
    #[serde(default, deserialize_with = "lenient")]
    pub cli_version: String,
    /// What it was made through: `exec`, `cli`, or an object about a parent.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub source: Option<Raw>,
    /// The provider.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub model_provider: Option<String>,
    /// The base instructions that every request carries.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub base_instructions: Option<BaseInstructions>,
    /// `paginated` if lines have ordinals; older files have none.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub history_mode: Option<String>,
    /// What this file continues, if it does not begin at nothing.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub history_base: Option<HistoryBase>,
    /// The commit and branch that the thread began at.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub git: Option<Raw>,
}

/// The mode of files whose lines have ordinals.
pub const PAGINATED: &str = "paginated";

/// Reads a value, or nothing if it is not of the type that is wanted. Whatever it is, it must be JSON.
pub fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Box::<RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(value.get()).unwrap_or_default())
}

/// Base instructions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BaseInstructions {
    /// The text.
    pub text: String,
}

/// The lines that stand before those of a file: a fork's are those of its source, a revert's those of
/// the thread itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryBase {
    /// The thread they belong to.
    pub thread_id: ThreadId,
    /// The first ordinal that does not count.
    pub end_ordinal_exclusive: u64,
    /// Where the last line that counts ends in its file.
    pub end_byte_offset: u64,
}

/// What a turn runs with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnContext {
    /// The turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The working directory.
    #[serde(default)]
    pub cwd: String,
    /// When a person is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_policy: Option<Raw>,
    /// What commands may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_policy: Option<Raw>,
    /// The model.
    #[serde(default)]
    pub model: String,
    /// The reasoning effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The reasoning summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// Tokens of one answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// The thread.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// The turn.
    #[serde(default, deserialize_with = "lenient")]
    pub turn_id: String,
    /// Those of the answer.
    pub usage: TotalledUsage,
    /// Those of the turn so far.
    #[serde(default, deserialize_with = "lenient")]
    pub turn_token_usage: TotalledUsage,
    /// Those of the thread so far.
    pub thread_token_usage: TotalledUsage,
}

/// Stands where a damaged line was, so that nobody looks for it again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Where the bytes were put: the name of a file beside this one.
    pub set_aside: String,
    /// What the line was, as far as could be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// A line without what its place in the file decides: as it is to be written, or as it was.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// The head of a file.
    SessionMeta(Box<SessionMeta>),
    /// An item of the history.
    ResponseItem(Raw),
    /// What a turn runs with.
    TurnContext(Box<TurnContext>),
    /// Something that happened.
    EventMsg(Open<LogEvent>),
    /// Tokens of one answer.
    TokenUsageRecord(Box<TokenUsage>),
    /// A history that replaces all before it.
    Compacted(Box<Compacted>),
    /// The output of a call, before it enters the history.
    CallReturned(Box<CallReturned>),
    /// An item as it came, before the one that is sent in its place.
    OriginalItem(Raw),
    /// Stands where a damaged line was.
    Tombstone(Box<Tombstone>),
    /// A line of a kind that this build does not know, or that is not what its kind should be.
    Unknown {
        /// The kind.
        kind: String,
        /// The payload as it stands.
        payload: Raw,
    },
}

impl Record {
    /// Makes the line of an event.
    pub fn event(event: LogEvent) -> Self {
        Self::EventMsg(Open::Known(event))
    }

    /// Makes the line of an event that is already written.
    pub fn raw_event(event: Raw) -> Self {
        Self::EventMsg(Open::Unknown(event))
    }

    /// Reads a line; fails only if its payload is not JSON.
    pub fn from_line(line: &Line<'_>) -> serde_json::Result<Self> {
        let payload = line.payload.to_raw()?;
        let json = payload.as_str();
        // A list would pass for the fields of an object, in order.
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
