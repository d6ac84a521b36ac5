//! Holds events back until what they report is on disk.
//!
//! Every write to the log has a number. An event that completes something waits until the log is synced up to
//! the write that it came with; later events wait behind it, so that the order is kept. One sync serves all
//! waiting events.

use std::collections::VecDeque;

use protocol::error::{RetryAdvice, TurnError, TurnErrorCause};
use protocol::event::Event;
use protocol::usage::TurnUsage;

/// The queue of outgoing events.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: VecDeque<(Event, u64)>,
    /// The last write that is synced.
    durable: u64,
    /// Why nothing can be written any more.
    failed: Option<String>,
}

impl Outbox {
    /// Adds an event that came with the write `written`.
    pub fn push(&mut self, event: Event, written: u64) {
        let event = match &self.failed {
            Some(message) => instead(event, message),
            None => event,
        };
        let written = if self.failed.is_some() { 0 } else { written };
        let completes = matches!(event, Event::ItemCompleted(_)) || event.is_terminal();
        self.waiting.push_back((event, if completes { written } else { 0 }));
    }

    /// Records that the log is synced up to the write `written`.
    pub fn synced(&mut self, written: u64) {
        self.durable = self.durable.max(written);
    }

    /// Returns the next event that may be shown.
    pub fn pop(&mut self) -> Option<Event> {
        let (_, needs) = self.waiting.front()?;
        if *needs > self.durable {
            return None;
        }
        self.waiting.pop_front().map(|(event, _)| event)
    }

    /// Returns how many events wait, for the disk or behind one that does.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether an event waits for the disk.
    pub fn waits(&self) -> bool {
        self.waiting.iter().any(|(_, needs)| *needs > self.durable)
    }

    /// Records that the disk failed: waiting items are never shown as completed, and a turn that had ended
    /// has failed. The same applies to all later events.
    pub fn fail(&mut self, message: &str) {
        let instead = |(event, _)| (instead(event, message), 0);
        self.waiting = std::mem::take(&mut self.waiting).into_iter().map(instead).collect();
        self.failed = Some(message.to_owned());
    }

    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }
}

/// Returns the event to emit instead when nothing can be saved.
fn instead(event: Event, message: &str) -> Event {
    match event {
        Event::ItemCompleted(item) => Event::ItemDiscarded(item.id),
        Event::TurnCompleted { usage, turn_usage, at_ms } => {
            failed(message, Some(TurnUsage { thread: usage, turn: turn_usage }), at_ms)
        }
        Event::TurnFailed { error, at_ms } => failed(message, error.usage, at_ms),
        Event::TurnInterrupted { at_ms } => failed(message, None, at_ms),
        event => event,
    }
}

fn failed(message: &str, usage: Option<TurnUsage>, at_ms: u64) -> Event {
    let retry = RetryAdvice::Later;
    let error = TurnError { retry, usage, ..TurnError::new(TurnErrorCause::Storage, message) };
    Event::TurnFailed { error, at_ms }
}

#[cfg(test)]
mod tests {
    use protocol::event::{DeltaPart, Event};
    use protocol::id::ItemId;
    use protocol::item::{CompactionReason, Item, ItemBody};

    use super::Outbox;

    fn completed(id: u64) -> Event {
        Event::ItemCompleted(Item::new(
            ItemId(id),
            ItemBody::Compaction { reason: CompactionReason::Requested },
        ))
    }

    fn drain(outbox: &mut Outbox) -> String {
        let brief = |event: Event| match event {
            Event::ItemCompleted(item) => format!("done {}", item.id.0),
            Event::ItemDiscarded(id) => format!("discarded {}", id.0),
            Event::Delta { text, .. } => text,
            Event::TurnFailed { error, .. } => error.message,
            event => format!("{event:?}"),
        };
        let mut seen = Vec::new();
        while let Some(event) = outbox.pop() {
            seen.push(brief(event));
        }
        seen.join(", ")
    }

    #[test]
    fn no_event_is_shown_before_it_is_on_disk() {
        let mut outbox = Outbox::default();
        let part = DeltaPart::Message;
        let delta = |text: &str| Event::Delta { item: ItemId(9), part, text: text.to_owned() };
        outbox.push(delta("a"), 1);
        outbox.push(completed(1), 1);
        outbox.push(delta("b"), 1);
        outbox.push(completed(2), 2);
        outbox.push(Event::TurnInterrupted { at_ms: 0 }, 3);
        assert_eq!(drain(&mut outbox), "a");
        assert!(outbox.waits());
        outbox.synced(1);
        assert_eq!(drain(&mut outbox), "done 1, b");
        // A late sync changes nothing.
        outbox.synced(0);
        outbox.synced(2);
        assert_eq!(drain(&mut outbox), "done 2");
        outbox.fail("no space");
        assert!(!outbox.waits());
        assert_eq!(drain(&mut outbox), "no space");
    }

    #[test]
    fn unsaved_events_are_withdrawn() {
        let mut outbox = Outbox::default();
        outbox.push(completed(1), 1);
        outbox.fail("gone");
        // Later events are affected, too.
        outbox.push(completed(2), 2);
        outbox.push(Event::TurnInterrupted { at_ms: 0 }, 2);
        assert_eq!(drain(&mut outbox), "discarded 1, discarded 2, gone");
    }
}
