//! The log of a thread, as the driver writes it.
//!
//! What the engine wants kept is gathered, and goes into the log in one write before anything that
//! follows is performed: a command never runs that the log does not know of. One write is under way at
//! a time. Syncs happen beside the turn; one serves everything that was appended before it began.

use log::{Rollout, TurnContext};
use protocol::event::Event;
use protocol::persist::Persist;
use store::{LogFuture, ThreadLog};

/// The log of a thread that is being written.
#[derive(Debug)]
pub struct Journal {
    log: Box<dyn ThreadLog>,
    rollout: Rollout,
    /// Counts the writes that were begun.
    begun: u64,
    /// Why nothing can be written any more.
    broken: Option<String>,
}

impl Journal {
    /// Starts writing `log`.
    pub fn new(log: Box<dyn ThreadLog>, rollout: Rollout) -> Self {
        Self { log, rollout, begun: 0, broken: None }
    }

    /// Sets the settings of the next turn.
    pub(crate) fn begin_turn(&mut self, id: String, context: TurnContext) {
        self.rollout.begin_turn(id, context);
    }

    pub(crate) fn event(&mut self, event: &Event) {
        if self.broken.is_none() {
            self.rollout.event(event);
        }
    }

    pub(crate) fn keep(&mut self, at_ms: u64, keep: Persist) {
        if self.broken.is_none() {
            self.rollout.keep(at_ms, keep);
        }
    }

    /// Begins to write what was gathered; none if there is nothing to write.
    pub(crate) fn flush(&mut self) -> Option<LogFuture> {
        if self.rollout.is_empty() || self.broken.is_some() {
            return None;
        }
        self.begun += 1;
        Some(self.log.append(self.rollout.take()))
    }

    /// Returns whether the last record is too long to be held in memory longer than necessary.
    pub(crate) fn is_long(&self) -> bool {
        self.broken.is_none() && self.rollout.is_long()
    }

    /// Returns the number of the write that will contain the current batch.
    pub(crate) fn next_write(&self) -> u64 {
        match self.broken {
            // Nothing will be written: waiting for it would never end.
            Some(_) => 0,
            None if self.rollout.is_empty() => self.begun,
            None => self.begun + 1,
        }
    }

    /// Returns the number of the write that was begun last.
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    /// Begins a sync of every write that was begun.
    pub(crate) fn sync(&mut self) -> LogFuture {
        self.log.sync()
    }

    /// Stops writing, and returns why.
    pub(crate) fn break_off(&mut self, why: String) -> String {
        self.broken.get_or_insert(why).clone()
    }
}
