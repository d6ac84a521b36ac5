//! A clock that moves only when a test advances it. It never reads the real time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A monotonic clock in milliseconds; clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    now_ms: Arc<AtomicU64>,
}

impl Clock {
    /// Starts a clock at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a clock at `now_ms`.
    pub fn starting_at(now_ms: u64) -> Self {
        Self { now_ms: Arc::new(AtomicU64::new(now_ms)) }
    }

    /// Returns the time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    /// Moves every clone forward and returns the new time.
    pub fn advance_ms(&self, by_ms: u64) -> u64 {
        let before = self.now_ms.fetch_add(by_ms, Ordering::SeqCst);
        before.checked_add(by_ms).expect("a test does not last 500 million years")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(start_ms: u64, steps: &[u64], want_ms: u64) {
        let clock = Clock::starting_at(start_ms);
        let clone = clock.clone();
        for step in steps {
            assert_eq!(clock.advance_ms(*step), clone.now_ms());
        }
        assert_eq!(clone.now_ms(), want_ms);
    }

    #[test]
    fn clones_move_together() {
        check(0, &[], 0);
        check(0, &[1, 0, 2], 3);
        check(1_000, &[500], 1_500);
        assert_eq!(Clock::new().now_ms(), 0);
    }
}
