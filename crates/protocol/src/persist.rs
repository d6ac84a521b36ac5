//! What the log of a thread must keep beside events: the history, and what it cost.

use crate::open::Raw;
use crate::rollout::{CallReturned, Compacted, TotalledUsage};

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
