//! Writes the log of a thread, for the driver.
//!
//! Everything the engine wants logged is collected, and written in one append before any later action is
//! performed: a command never runs before the log mentions it. There is one append at a time. Syncs run in the
//! background; one covers everything that was appended before it started.

use log::{Record, Rollout, TurnContext};
use protocol::event::Event;
use protocol::open::Raw;
use protocol::persist::Persist;
use store::{LogFuture, ThreadLog};

/// The log of a thread that is being written.
#[derive(Debug)]
pub struct Journal {
    log: Box<dyn ThreadLog>,
    rollout: Rollout,
    /// Number of writes started so far.
    begun: u64,
    /// Why nothing can be written any more.
    broken: Option<String>,
}

impl Journal {
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

    pub(crate) fn keep(&mut self, keep: Persist) {
        if self.broken.is_none() {
            self.rollout.keep(keep);
        }
    }

    /// Writes items that belong to no turn, and waits until they are on disk.
    pub(crate) async fn add(&mut self, items: Vec<Raw>) -> Result<(), String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        let stored = async {
            self.log.append(items.into_iter().map(Record::ResponseItem).collect()).await?;
            self.log.sync().await
        };
        match stored.await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.break_off(error.to_string())),
        }
    }

    /// Starts to write the collected records; none if there are none.
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

    /// Returns the number of the last write that was started.
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    /// Starts a sync of all writes started so far.
    pub(crate) fn sync(&mut self) -> LogFuture {
        self.log.sync()
    }

    /// Stops writing, and returns why.
    pub(crate) fn break_off(&mut self, why: String) -> String {
        self.broken.get_or_insert(why).clone()
    }
}
