//! A tool call on its way from the model to a tool, and what the tool shows while it runs.
//!
//! The engine decides when a call runs, a tool answers it; both speak of it in these types.

use crate::id::CallKey;
use crate::item::{ItemBody, Step};

/// A call that should run.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Names the call within the turn.
    pub key: CallKey,
    /// The id that the history has for it; unique, also when the model repeats itself.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// What it is called with.
    pub payload: Payload,
}

/// What a tool is called with.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// JSON as text.
    Function(String),
    /// Free text.
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

/// What a tool shows while it runs, and a session of it after it returned.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// It began something that is an item.
    Started(ItemBody),
    /// The item is final.
    Ended(ItemBody),
    /// The item began and ended at once, as if the sandbox had stopped it.
    Stopped(ItemBody),
    /// The call comes to nothing, for this reason; `shown` is what it would have been, if that is known.
    /// A call that has shown something has told so already.
    Refused {
        /// A command or a patch, as it stands at its end.
        shown: Option<ItemBody>,
        /// Why, as the model reads it.
        reason: String,
    },
    /// It typed into a command that another call began.
    Typed {
        /// The call that began it.
        into: CallKey,
        /// The number of its session.
        session: u64,
        /// What was typed.
        text: String,
    },
    /// The command that it began has printed this, since the last time.
    Output(String),
    /// The list of steps is now this.
    Plan(Vec<Step>),
    /// Commands with this prefix are allowed from now on, as the user wanted.
    Remembered(Vec<String>),
    /// The user should know this.
    Warning(String),
}
