//! Progress bars for slow operations.

use std::io::Write as _;
use std::time::{Duration, Instant};

use heddle::files;
use heddle::threads::index::Progress;

use crate::command::models::bytes;
use crate::terminal::{Screen, note};

const BAR_AFTER: Duration = Duration::from_secs(1);
const BAR_EVERY: Duration = Duration::from_millis(100);
const BAR_COLUMNS: usize = 30;

/// Returns a callback that draws a bar on stderr, if that is a terminal and the operation is slow.
pub(crate) fn bar(what: &'static str) -> impl FnMut(Progress) + Send + 'static {
    let screen = Screen::of_stderr();
    let started = Instant::now();
    let mut drawn: Option<Instant> = None;
    move |progress| {
        let (done, total) = match progress {
            Progress::Reading { done, total } => (done, total),
            Progress::InMemory(why) => {
                return note(&format!(
                    "the thread index cannot be used ({why}); building a temporary one in memory"
                ));
            }
        };
        if !screen.terminal || started.elapsed() < BAR_AFTER {
            return;
        }
        let mut stderr = std::io::stderr().lock();
        // If stderr cannot be written, there is nowhere to report that.
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

/// Does the same for a search of logs.
pub(crate) fn searching(what: &'static str) -> impl FnMut(files::Progress) + Send + 'static {
    let mut bar = bar(what);
    move |files::Progress { done, total }| bar(Progress::Reading { done, total })
}

/// Shows the progress of a transfer: as a bar on a terminal, as occasional lines elsewhere.
pub(crate) struct Transfer {
    what: &'static str,
    screen: Screen,
    /// Whether to print lines where there is no terminal.
    lines: bool,
    started: Instant,
    /// How much was already present at the start.
    from: Option<u64>,
    told: Option<Instant>,
    drawn: bool,
}

impl Transfer {
    pub(crate) fn new(what: &'static str, lines: bool) -> Self {
        let (screen, started) = (Screen::of_stderr(), Instant::now());
        Self { what, screen, lines, started, from: None, told: None, drawn: false }
    }

    /// Returns whether an update is due.
    pub(crate) fn is_due(&mut self, done: u64, total: u64) -> bool {
        let every = if self.screen.terminal { BAR_EVERY } else { LINE_EVERY };
        let due = done == total || self.told.is_none_or(|told| told.elapsed() >= every);
        if due {
            self.told = Some(Instant::now());
        }
        due
    }

    pub(crate) fn show(&mut self, done: u64, total: u64) {
        if self.from.is_none() {
            (self.from, self.started) = (Some(done), Instant::now());
        }
        let terminal = self.screen.terminal;
        if !(terminal || self.lines) || !self.is_due(done, total) {
            return;
        }
        let gone = self.started.elapsed().as_secs_f64();
        let speed = done.saturating_sub(self.from.unwrap_or(0)) as f64 / gone.max(0.001);
        let left = total.saturating_sub(done) as f64 / speed.max(1.0);
        let mut words = format!("{} of {}", bytes(done), bytes(total));
        if gone > 1.0 {
            words.push_str(&format!(", {}/s", bytes(speed as u64)));
            if done < total && left < 360_000.0 {
                words.push_str(&format!(", {left:.0} s left"));
            }
        }
        let mut stderr = std::io::stderr().lock();
        // If stderr cannot be written, there is nowhere to report that.
        if terminal {
            let filled = (BAR_COLUMNS as u64).saturating_mul(done) / total.max(1);
            let filled = usize::try_from(filled).unwrap_or(0).min(BAR_COLUMNS);
            let (full, empty) = ("#".repeat(filled), ".".repeat(BAR_COLUMNS - filled));
            let _ = write!(stderr, "\r\x1b[K[{full}{empty}] {words}");
            self.drawn = true;
        } else {
            let _ = writeln!(stderr, "heddle: {}: {words}", self.what);
        }
    }

    /// Removes the bar, so that other output can follow.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

/// How often a line is printed without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
