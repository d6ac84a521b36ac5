//! Decides which connection is closed when there is no room: the one that has been idle longest without an
//! admitted request.
//!
//! The port is open to the whole machine, so idle connections must not keep out active ones. A connection
//! with an admitted request stays, unless it has been silent for longer than any answer is.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The slot of one connection.
#[derive(Debug)]
pub(crate) struct Seat {
    admitted: AtomicBool,
    /// Requests in progress.
    handling: AtomicUsize,
    /// When something was last read or written.
    last: Mutex<Instant>,
    /// Signals that another connection needs the slot.
    needed: Notify,
}

impl Seat {
    pub(crate) fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self {
            admitted: AtomicBool::new(false),
            handling: AtomicUsize::new(0),
            last: Mutex::new(now),
            needed: Notify::new(),
        })
    }

    /// Records that a request was admitted.
    pub(crate) fn admit(&self) {
        self.admitted.store(true, Ordering::Relaxed);
    }

    /// Records that something was read or written.
    pub(crate) fn touch(&self, now: Instant) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Counts a request, until the returned guard is dropped.
    pub(crate) fn handle(self: &Arc<Self>) -> Handling {
        self.handling.fetch_add(1, Ordering::Relaxed);
        Handling(Arc::clone(self))
    }

    /// Waits until another connection needs the slot.
    pub(crate) async fn needed(&self) {
        self.needed.notified().await;
    }

    /// Returns for how long the slot has been available to others.
    fn free_for(&self, silence: Duration, now: Instant) -> Option<Duration> {
        if self.handling.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = now.saturating_duration_since(last);
        (!self.admitted.load(Ordering::Relaxed) || idle >= silence).then_some(idle)
    }
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct Handling(Arc<Seat>);

impl Drop for Handling {
    fn drop(&mut self) {
        self.0.handling.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The slots of one listener.
#[derive(Debug)]
pub(crate) struct Seats {
    taken: Mutex<Vec<Arc<Seat>>>,
    most: usize,
    /// Longer than any answer may be silent.
    silence: Duration,
}

impl Seats {
    pub(crate) fn new(most: usize, silence: Duration) -> Self {
        Self { taken: Mutex::default(), most, silence }
    }

    /// Takes a slot, if necessary from an idle connection.
    pub(crate) fn take(&self, now: Instant) -> Option<Arc<Seat>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.len() >= self.most {
            let idle = |(at, seat): (usize, &Arc<Seat>)| {
                seat.free_for(self.silence, now).map(|idle| (idle, at))
            };
            let (_, at) = taken.iter().enumerate().filter_map(idle).max()?;
            taken.swap_remove(at).needed.notify_one();
        }
        let seat = Seat::new(now);
        taken.push(Arc::clone(&seat));
        Some(seat)
    }

    /// Releases a slot, unless it was already given to another connection.
    pub(crate) fn leave(&self, seat: &Arc<Seat>) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|other| !Arc::ptr_eq(other, seat));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_longest_idle_connection_is_closed_first() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let seats = Seats::new(3, 30 * second);
        let take = |after: u32| seats.take(begun + after * second);
        let taken: Vec<_> = (0..3).map(|after| take(after).unwrap()).collect();
        // A connection whose slot is needed learns it immediately.
        let is_needed = async |seat: &Seat| {
            let needed = tokio::time::timeout(Duration::from_millis(1), seat.needed());
            needed.await.is_ok()
        };
        // The oldest one has an admitted request, and the next is being answered.
        taken[0].admit();
        let handling = taken[1].handle();
        let fourth = take(3).unwrap();
        assert!(is_needed(&taken[2]).await && !is_needed(&taken[0]).await);
        assert!(!is_needed(&taken[1]).await);
        fourth.admit();
        assert!(take(4).is_none(), "nobody can be asked to go");
        drop(handling);
        let fifth = take(5).unwrap();
        assert!(is_needed(&taken[1]).await, "one that never asked for anything can");
        fifth.admit();
        // After a silence longer than any answer's, all of them can.
        fourth.touch(begun + 20 * second);
        fifth.touch(begun + 20 * second);
        assert!(take(29).is_none());
        let sixth = take(31).unwrap();
        assert!(is_needed(&taken[0]).await && !is_needed(&fourth).await);
        sixth.admit();
        assert!(take(32).is_none());
        seats.leave(&sixth);
        seats.leave(&taken[0]);
        assert!(take(32).is_some());
    }
}
