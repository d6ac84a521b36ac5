//! A bar for what takes long enough to wonder.

use std::io::Write as _;
use std::time::{Duration, Instant};

use store::index::Progress;

use crate::terminal::Screen;

const BAR_AFTER: Duration = Duration::from_secs(1);
const BAR_EVERY: Duration = Duration::from_millis(100);
const BAR_COLUMNS: usize = 30;

/// Returns what draws a bar on stderr, if that is a terminal and it takes long enough to wonder.
pub(crate) fn bar(what: &'static str) -> impl FnMut(Progress) + 'static {
    let screen = Screen::of_stderr();
    let started = Instant::now();
    let mut drawn: Option<Instant> = None;
    move |Progress { done, total }| {
        if !screen.terminal || started.elapsed() < BAR_AFTER {
            return;
        }
        let mut stderr = std::io::stderr().lock();
        // With nobody to see it, there is nobody to tell that either.
        if done == total {
            let _ = stderr.write_all(b"\r\x1b[K");
        } else if drawn.is_none_or(|drawn| drawn.elapsed() > BAR_EVERY) {
            drawn = Some(Instant::now());
            let filled = BAR_COLUMNS * done / total.max(1);
            let (full, empty) = ("#".repeat(filled), ".".repeat(BAR_COLUMNS - filled));
            let _ = write!(stderr, "\r\x1b[K{what} [{full}{empty}] {done} of {total}");
        }
    }
}
