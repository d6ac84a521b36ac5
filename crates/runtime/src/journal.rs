//! The log of a thread, as the driver writes it.
//!
//! What the engine persists is batched, and written at once before any following action is performed: no
//! command ever runs that the log does not know of. Syncs run concurrently with the turn; one sync covers
//! everything that was written before it started.

use log::{Rollout, TurnContext};
use protocol::event::Event;
use protocol::persist::Persist;
use store::{Log, Syncer};

use crate::id::now_ms;

/// The log of a thread that is being written.
#[derive(Debug)]
pub struct Journal {
    log: Log,
    rollout: Rollout,
    syncer: Syncer,
    /// Number of writes.
    written: u64,
    /// Why nothing can be written any more.
    broken: Option<String>,
}

impl Journal {
    /// Starts writing `log`.
    pub fn new(log: Log, rollout: Rollout) -> Self {
        let syncer = log.syncer();
        Self { log, rollout, syncer, written: 0, broken: None }
    }

    /// Sets the settings of the next turn.
    pub(crate) fn begin_turn(&mut self, id: String, context: TurnContext) {
        self.rollout.begin_turn(id, context);
    }

    pub(crate) fn event(&mut self, event: &Event) {
        if self.broken.is_none() {
            self.rollout.event(now_ms(), event);
        }
    }

    pub(crate) fn keep(&mut self, keep: Persist) {
        if self.broken.is_none() {
            self.rollout.keep(now_ms(), keep);
        }
    }

    /// Writes the batch; the error says once why that is impossible.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        if self.rollout.is_empty() || self.broken.is_some() {
            return Ok(());
        }
        let records = self.rollout.take();
        match self.log.append(&records) {
            Ok(()) => {
                self.written += 1;
                Ok(())
            }
            Err(error) => Err(self.break_off(error.to_string())),
        }
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
            None if self.rollout.is_empty() => self.written,
            None => self.written + 1,
        }
    }

    /// Returns a syncer, and the number of the last write that it covers.
    pub(crate) fn syncer(&self) -> (Syncer, u64) {
        (self.syncer.clone(), self.written)
    }

    /// Stops writing, and returns why.
    pub(crate) fn break_off(&mut self, why: String) -> String {
        self.broken.get_or_insert(why).clone()
    }

    /// Releases the log.
    pub(crate) fn close(self) {
        self.log.close();
    }
}
