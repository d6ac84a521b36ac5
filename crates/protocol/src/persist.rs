//! What the log of a thread must keep beside events: the history, and what it cost.

use serde::{Deserialize, Serialize};

use crate::open::Raw;
use crate::responses::OutputBody;
use crate::usage::TotalledUsage;

/// Something that the log keeps. Together with the events these are all that a thread is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Persist {
    /// An item entered the history.
    Item {
        /// The item as it is sent.
        wire: Raw,
        /// Whether the user said it.
        said: bool,
    },
    /// An item came with something in it that cannot be sent; it enters the history without that.
    Original(Raw),
    /// A call returned, and its output must wait for others before it enters the history.
    Returned(CallReturned),
    /// An answer is complete.
    Usage {
        /// Its tokens.
        answer: TotalledUsage,
        /// Those of the turn so far.
        turn: TotalledUsage,
        /// Those of the thread so far.
        thread: TotalledUsage,
    },
    /// The history was replaced.
    Compacted(Compacted),
}

/// A history that replaces all before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compacted {
    /// The summary, with what introduces it to the model.
    #[serde(default)]
    pub message: String,
    /// The history from here on. Older files have none: then it is what the user said, and the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement_history: Option<Vec<Raw>>,
    /// How this history came to be, if a model had no part in it: `trimmed` or `restored`. Ours alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heddle_cause: Option<String>,
}

/// The cause of a history that a compaction had replaced and that was brought back.
pub const RESTORED: &str = "restored";

/// The output of a call, before it enters the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallReturned {
    /// The call.
    pub call_id: String,
    /// Whether the call is one of a freeform tool.
    #[serde(default)]
    pub custom: bool,
    /// What the model will read.
    pub output: OutputBody,
}
