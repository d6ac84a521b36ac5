//! The agent's logic, as state machines without I/O.
//!
//! A [`Turn`] takes [`Input`]s and returns [`Action`]s for a driver to perform. It opens no file, spawns no task,
//! reads no clock and has no randomness of its own. So tests drive it from a list, simulations from a seed, and
//! the driver from real events, all through the same two methods.
//!
//! * [`turn`]: the state machine;
//! * [`approval`]: the questions that calls wait for;
//! * [`call`]: which tool calls may run now, and in what order their outputs go back;
//! * [`retry`]: whether and when a failed request is retried;
//! * [`context`]: the history that requests contain, append-only except for compaction;
//! * [`compaction`]: what remains of a history when it is replaced by a shorter one;
//! * [`answer`]: requirements for the answer;
//! * [`outbox`]: holds events back until what they report is on disk;
//! * [`prompt`]: the texts that heddle itself sends to a model;
//! * [`model`]: what is known about models;
//! * [`limits`]: every limit, by name.

pub mod answer;
pub mod approval;
pub mod call;
pub mod compaction;
pub mod context;
pub mod limits;
pub mod model;
pub mod outbox;
pub mod prompt;
pub mod retry;
pub mod turn;

pub use answer::AnswerCheck;
pub use approval::Question;
pub use call::{ToolTable, ToolTraits};
pub use context::{Context, Origin, UserTurnInput};
pub use limits::Limits;
pub use outbox::Outbox;
pub use protocol::call::{Call, Payload, Report};
pub use turn::{
    Action, FileOutcome, Input, Numbers, Outcome, Purpose, Turn, TurnOptions, TurnParts, Unexpected,
};
