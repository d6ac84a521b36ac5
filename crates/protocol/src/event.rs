//! Events: everything the engine tells the world, as one closed set.
//!
//! Exec JSONL, terminal text and log records are projections of these; none adds a fact.

use std::time::Duration;

use crate::approval::{ApprovalRequest, Resolution};
use crate::error::TurnError;
use crate::id::{ApprovalId, ItemId, ThreadId};
use crate::item::Item;
use crate::repair::Repair;
use crate::usage::Usage;

/// Something that happened in a thread.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The thread exists; nothing was sent to a model yet.
    ThreadStarted(ThreadId),
    /// The user should know this; no turn is affected.
    Warning(String),
    /// The history was changed so that the endpoint takes it; what is on disk stays as it was.
    HistoryRepaired(Vec<Repair>),
    /// A turn begins.
    TurnStarted,
    /// An item begins.
    ItemStarted(Item),
    /// An item changed as a whole.
    ItemUpdated(Item),
    /// A part of an item arrived.
    Delta {
        /// The item it belongs to.
        item: ItemId,
        /// Which text of the item it continues.
        part: DeltaPart,
        /// The text to append.
        text: String,
    },
    /// Something was typed into a command that is running.
    Typed {
        /// The item of the command, if it began in this turn.
        item: Option<ItemId>,
        /// The number of its session.
        session: u64,
        /// What was typed.
        text: String,
    },
    /// An item is final.
    ItemCompleted(Item),
    /// An item that had begun will never complete: the stream broke off inside it.
    ItemDiscarded(ItemId),
    /// A call waits for a person to say whether it may go on.
    ApprovalRequested {
        /// Names the question.
        id: ApprovalId,
        /// The item that waits; it began before this.
        item: Option<ItemId>,
        /// What is asked.
        request: ApprovalRequest,
    },
    /// A question is closed; an answer that comes later changes nothing.
    ApprovalResolved {
        /// Names the question.
        id: ApprovalId,
        /// How it ended.
        resolution: Resolution,
    },
    /// A request was made this long ago, and nothing of its answer has come yet.
    Waiting(Duration),
    /// A request failed and will be made again.
    Retrying {
        /// Which retry this is, from 1.
        attempt: u32,
        /// How many there may be.
        limit: u32,
        /// How long the wait is.
        delay: Duration,
        /// Why.
        reason: String,
    },
    /// The turn ended with an answer.
    TurnCompleted {
        /// Tokens of the whole thread.
        usage: Usage,
    },
    /// The turn ended without one.
    TurnFailed(TurnError),
    /// The user ended the turn.
    TurnInterrupted,
}

/// Which text of an item a delta continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaPart {
    /// The text of a message.
    Message,
    /// A part of the summary of reasoning, counted from 0.
    Summary(u64),
    /// The output of a command that is running. Deltas are for watching: there may be none, and after a great deal of output
    /// there are no more; the completed item has what counts.
    Output,
}

impl Event {
    /// Tells whether this is the last event of its turn.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::TurnCompleted { .. } | Self::TurnFailed(_) | Self::TurnInterrupted)
    }
}
