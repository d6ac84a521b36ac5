//! Events: everything that the engine reports, as one closed set.
//!
//! Exec JSONL, terminal text and log records are projections of these; none adds a fact.

use std::time::Duration;

use crate::approval::{ApprovalRequest, Resolution};
use crate::error::TurnError;
use crate::file::FileReference;
use crate::id::{ApprovalId, ItemId, ThreadId};
use crate::item::Item;
use crate::repair::Repair;
use crate::usage::Usage;

/// Something that happened in a thread.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The thread exists; nothing was sent to a model yet.
    ThreadStarted(ThreadId),
    /// A warning for the user; no turn is affected.
    Warning(String),
    /// The history was changed so that the endpoint accepts it; the disk is not changed.
    HistoryRepaired(Vec<Repair>),
    /// A turn started; see [`Event::is_terminal`] for the events that end it.
    TurnStarted {
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// An item started. It may be updated before [`Event::ItemCompleted`] or [`Event::ItemDiscarded`] ends it.
    ItemStarted(Item),
    /// An item was replaced by a new version.
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
    /// Text was typed into a running command.
    Typed {
        /// The item of the command, if it started in this turn.
        item: Option<ItemId>,
        /// Session number of the command.
        session: u64,
        /// The text, with control characters such as Ctrl-C verbatim.
        text: String,
    },
    /// An item is complete and will not change any more.
    ItemCompleted(Item),
    /// A started item will never complete: the stream broke off inside it.
    ItemDiscarded(ItemId),
    /// A call waits for approval.
    ApprovalRequested {
        /// Id of the question, the same in both events.
        id: ApprovalId,
        /// The item that waits; it started before this event.
        item: Option<ItemId>,
        /// What would happen, and the possible scopes of an approval.
        request: ApprovalRequest,
    },
    /// A question is closed; a later answer has no effect.
    ApprovalResolved {
        /// Id of the question, the same in both events.
        id: ApprovalId,
        /// The answer, or that the question was withdrawn.
        resolution: Resolution,
    },
    /// A file of the user's message is in the staging area. Comes before the turn starts.
    FileStaged {
        /// The file, as the message refers to it.
        file: FileReference,
        /// Whether its content was there already, so that nothing was written.
        reused: bool,
    },
    /// An endpoint took the first request that contains a file of the user's message.
    FileSent(FileReference),
    /// An answer of the model is complete, and its calls have returned.
    TokensUsed {
        /// Tokens of the thread so far.
        usage: Usage,
        /// Tokens of the answer and of its request.
        answer: Usage,
    },
    /// A request was made this long ago, and nothing of its answer has arrived yet.
    Waiting(Duration),
    /// A request failed and will be retried.
    Retrying {
        /// The number of this retry, from 1.
        attempt: u32,
        /// The maximum number of retries.
        limit: u32,
        /// The delay before the retry.
        delay: Duration,
        /// Why the request failed.
        reason: String,
    },
    /// The turn ended with an answer.
    TurnCompleted {
        /// Tokens used by the whole thread, including this turn.
        usage: Usage,
        /// Tokens used by this turn.
        turn_usage: Usage,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// The turn ended without an answer.
    TurnFailed {
        /// The cause, for programs, and a message for people.
        error: TurnError,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// The user interrupted the turn.
    TurnInterrupted {
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
}

/// Which text of an item a delta continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaPart {
    /// The text of a message.
    Message,
    /// A part of the summary of reasoning, counted from 0.
    Summary(u64),
    /// A part of the raw reasoning, counted from 0. Few providers show it.
    Reasoning(u64),
    /// The text of a plan.
    Plan,
    /// The output of a running command. Deltas are for watching only: there may be none, and they stop after
    /// a large amount of output; the completed item has the output that counts.
    Output,
}

impl Event {
    /// Returns whether this is the last event of its turn.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self,
            Self::TurnCompleted { .. } | Self::TurnFailed { .. } | Self::TurnInterrupted { .. }
        )
    }
}
