//! The log of a thread, as the driver writes it.
//!
//! What the engine wants kept is gathered, and goes into the file in one write before anything that
//! follows is performed: a command never runs that the log does not know of. Syncs happen beside the
//! turn; one serves everything that was written before it began.

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
    /// Counts the writes.
    written: u64,
    /// Why nothing can be written any more.
    broken: Option<String>,
}

impl Journal {
    /// Begins to write `log`.
    pub fn new(log: Log, rollout: Rollout) -> Self {
        let syncer = log.syncer();
        Self { log, rollout, syncer, written: 0, broken: None }
    }

    /// Notes what the next turn runs with.
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

    /// Writes what was gathered; the error says why that cannot be done, once.
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

    /// Tells whether what came last is too long to be held any longer than it must.
    pub(crate) fn is_long(&self) -> bool {
        self.broken.is_none() && self.rollout.is_long()
    }

    /// Returns the number of the write that what is gathered now goes into.
    pub(crate) fn next_write(&self) -> u64 {
        match self.broken {
            // Nothing will be: whoever waits would wait for ever.
            Some(_) => 0,
            None if self.rollout.is_empty() => self.written,
            None => self.written + 1,
        }
    }

    /// Returns what syncs, and the number of the write up to which it will have.
    pub(crate) fn syncer(&self) -> (Syncer, u64) {
        (self.syncer.clone(), self.written)
    }

    /// Stops writing, and returns why.
    pub(crate) fn break_off(&mut self, why: String) -> String {
        self.broken.get_or_insert(why).clone()
    }

    /// Lets go of the log.
    pub(crate) fn close(self) {
        self.log.close();
    }
}
