//! [`EventSink`]: the events between the transport and the reader of a turn.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use protocol::event::Event;

/// Events that were not read yet. It is filled only while the turn is polled.
pub(crate) type Queue = VecDeque<Event>;

/// Takes the events of a turn.
#[derive(Clone, Debug, Default)]
pub struct EventSink(Arc<Mutex<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    events: Queue,
    /// The id of the turn, if the program that runs it has given it one.
    id: Option<String>,
}

impl EventSink {
    pub(crate) fn push(&self, event: Event) {
        self.lock().events.push_back(event);
    }

    /// Says which id the turn has, if it is not the one that was asked for.
    pub(crate) fn set_id(&self, id: &str) {
        self.lock().id = Some(id.to_owned());
    }

    /// Waits until there is room for more events. The transport calls it between steps.
    ///
    /// Nobody has to wake it: it waits within the turn, which is polled again once its events were read.
    pub(crate) async fn room(&self) {
        poll_fn(|_| match self.has_room() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    pub(crate) fn has_room(&self) -> bool {
        self.lock().events.len() < EVENTS_MAX
    }

    /// Takes out what was pushed.
    pub(crate) fn take(&self) -> impl Iterator<Item = Event> + use<> {
        std::mem::take(&mut self.lock().events).into_iter()
    }

    /// Takes out the id that the turn has now, if it has another one.
    pub(crate) fn take_id(&self) -> Option<String> {
        self.lock().id.take()
    }

    /// Swaps the queue with one that was read; returns the id of the turn, if it has another one now.
    pub(super) fn swap(&self, ready: &mut Queue) -> Option<String> {
        let mut shared = self.lock();
        std::mem::swap(ready, &mut shared.events);
        shared.id.take()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().events.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many events may wait to be read before the transport waits, too. A step may add a few.
pub(crate) const EVENTS_MAX: usize = 256;
