//! The log of a thread: its lines as types, written and read in one place.
//!
//! * [`line`]: the envelope of a line, and its possible payloads ([`Record`]);
//! * [`event`]: payloads of `event_msg` lines ([`LogEvent`]);
//! * [`item`]: completed items, from the engine's format to the log's and back;
//! * [`cause`]: why a turn failed, our causes and their names in the log in one table;
//! * [`Rollout`]: converts the events of a turn, and what the engine persists, to lines;
//! * [`Replay`]: converts lines to [`Step`]s and counts turns; every reader of logs uses it;
//! * [`history_item`], [`words`]: classifies items of the history, and messages that only look like the
//!   user's;
//! * [`command`]: the command that a call runs.
//!
//! Both formats of logs are supported: lines with ordinals, and the older format, in which messages are
//! events and not items. This crate opens no files: `store` does.

pub mod cause;
pub mod command;
pub mod event;
pub mod history_item;
pub mod item;
pub mod line;
mod replay;
mod rollout;
mod turns;
pub mod words;

pub use event::{EventKind, LogEvent};
pub use item::{LoggedBody, LoggedItem};
pub use line::{
    BaseInstructions, CollaborationMode, HistoryBase, Line, ModeSettings, PAGINATED, Payload,
    Record, SessionMeta, TokenUsage, Tombstone, TurnContext, kind, lenient,
};
pub use protocol::persist::{CallReturned, Compacted, RESTORED};
pub use protocol::usage::TotalledUsage;
pub use replay::{EventStep, ItemContent, ItemStep, Replay, Step, TurnMark, Unread, turn_after};
pub use rollout::Rollout;
pub use turns::{TURNS_MAX, Turn, TurnEnd, Turns, WORDS_BYTES_MAX};
