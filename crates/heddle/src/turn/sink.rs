//! [`EventSink`]: the events between the transport and the reader of a turn.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use protocol::event::Event;

/// Events that were not read yet. They are added only while the turn is polled.
pub(crate) type Queue = VecDeque<Event>;

/// Receives the events of a turn from its transport.
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

    /// Sets the id of the turn, if the program that runs it has assigned another one than requested.
    pub(crate) fn set_id(&self, id: &str) {
        self.lock().id = Some(id.to_owned());
    }

    /// Waits until there is room for more events. The transport calls it between steps.
    ///
    /// It needs no waker: it waits within the turn, which is polled again once its events were read.
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

    /// Takes the events out of the queue.
    pub(crate) fn take(&self) -> impl Iterator<Item = Event> + use<> {
        std::mem::take(&mut self.lock().events).into_iter()
    }

    /// Takes the new id of the turn, if the program has assigned one.
    pub(crate) fn take_id(&self) -> Option<String> {
        self.lock().id.take()
    }

    /// Swaps the queue with one that was read; returns the new id of the turn, if the program has assigned one.
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

/// How many events may be unread before the transport waits. A step of the transport may add a few more.
pub(crate) const EVENTS_MAX: usize = 256;
