//! A tool call on its way from the model to a tool, and what the tool reports while it runs.
//!
//! The engine decides when a call runs, a tool handles it; both use these types.

use serde::{Deserialize, Serialize};

use crate::id::CallKey;
use crate::item::{Decision, ItemBody, Step};

/// A call to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Identifies the call within the turn.
    pub key: CallKey,
    /// The id of the call in the history; unique, even if the model repeats one.
    pub call_id: String,
    /// Name of the tool.
    pub name: String,
    /// What the model passes to the tool.
    pub payload: Payload,
}

/// Arguments of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// JSON as text, not always valid, for function tools.
    Function(String),
    /// Free text, for freeform tools, which may have a grammar.
    Custom(String),
}

impl Payload {
    /// Returns the text, JSON or not.
    pub fn text(&self) -> &str {
        match self {
            Self::Function(text) | Self::Custom(text) => text,
        }
    }
}

/// A command that the user runs in a thread, without asking the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCommand {
    /// The command line, for the user's shell.
    pub command: String,
    /// How long it may run, in milliseconds; an hour if that is none.
    pub timeout_ms: Option<u64>,
}

/// What a tool reports while it runs, and its session after it returned.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The gate has decided about what it reports next.
    Decided(Decision),
    /// It started something that is shown as an item.
    Started(ItemBody),
    /// The item that it started is complete.
    Ended(ItemBody),
    /// The item started and ended at once, apparently blocked by the sandbox.
    Stopped(ItemBody),
    /// The call is refused, for this reason; `shown` is the item it would have been, if known. Not sent for a
    /// call that has already reported an item.
    Refused {
        /// A command or a patch in its final state.
        shown: Option<ItemBody>,
        /// The reason, as the model reads it.
        reason: String,
    },
    /// It typed into a command that another call started.
    Typed {
        /// The call that started it.
        into: CallKey,
        /// Session number of the command.
        session: u64,
        /// The text, with control characters such as Ctrl-C verbatim.
        text: String,
    },
    /// The command that it started has printed this since the last report.
    Output(String),
    /// The plan now has these steps.
    Plan(Vec<Step>),
    /// The user allowed commands with this prefix from now on.
    Remembered(Vec<String>),
    /// A warning for the user.
    Warning(String),
}
