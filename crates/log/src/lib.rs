//! The log of a thread: its lines as types, written and read in one place.
//!
//! * [`line`]: the envelope of a line, and what its payload can be ([`Record`]);
//! * [`event`]: what an `event_msg` line says happened ([`LogEvent`]);
//! * [`item`]: completed items, from the form of the engine to that of the log and back;
//! * [`cause`]: why a turn failed, our causes and the names of the log in one table;
//! * [`Rollout`]: events of a turn, and what the engine wants kept, to lines;
//! * [`Replay`]: lines to [`Step`]s, with the turns counted; every reader of logs goes through it;
//! * [`history_item`], [`words`]: items of the history told apart, and what only looks like the user's;
//! * [`command`]: what a call runs.
//!
//! Both forms of logs are known: those whose lines have ordinals, and the older ones, in which messages are events
//! and not items. Files are not opened here: `store` has them.

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
    BaseInstructions, HistoryBase, Line, PAGINATED, Payload, Record, SessionMeta, TokenUsage,
    Tombstone, TurnContext, kind, lenient,
};
pub use protocol::persist::{CallReturned, Compacted, RESTORED};
pub use protocol::usage::TotalledUsage;
pub use replay::{EventStep, ItemContent, ItemStep, Replay, Step, TurnMark, Unread, turn_after};
pub use rollout::Rollout;
pub use turns::{TURNS_MAX, Turn, TurnEnd, Turns, WORDS_BYTES_MAX};
