//! What the log of a thread must contain besides events: the history, and token counts.

use serde::{Deserialize, Serialize};

use crate::open::Raw;
use crate::responses::OutputBody;
use crate::usage::TotalledUsage;

/// A record for the log. Together with the events, these make up a thread.
#[derive(Clone, Debug, PartialEq)]
pub enum Persist {
    /// An item was added to the history: as it is sent.
    Item(Raw),
    /// An item arrived with content that cannot be sent; the history gets it without that.
    Original(Raw),
    /// A call returned, but its output must wait for others before it enters the history.
    Returned(CallReturned),
    /// An answer is complete.
    Usage {
        /// Tokens of the answer.
        answer: TotalledUsage,
        /// Tokens of the turn so far.
        turn: TotalledUsage,
        /// Tokens of the thread so far.
        thread: TotalledUsage,
    },
    /// The history was replaced by a shorter one.
    Compacted(Compacted),
}

/// A history that replaces everything before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compacted {
    /// The summary, with its introduction for the model.
    #[serde(default)]
    pub message: String,
    /// The history from here on. Older files have none: then it consists of the user's messages and
    /// `message`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement_history: Option<Vec<Raw>>,
    /// How this history was made, if not by a model: `trimmed` or `restored`. Only we write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heddle_cause: Option<String>,
}

/// The cause of a history that was restored after a compaction.
pub const RESTORED: &str = "restored";

/// The output of a call, before it enters the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallReturned {
    /// Id of the call.
    pub call_id: String,
    /// Whether it is a call of a freeform tool.
    #[serde(default)]
    pub custom: bool,
    /// What the model will read.
    pub output: OutputBody,
}
