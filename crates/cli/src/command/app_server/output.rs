//! Text on its way to a client, written by a thread of its own.
//!
//! A client may read slowly, or not at all. Until [`QUEUE_BYTES_MAX`] wait, nobody notices; from then on
//! whoever sends waits with it. A client that takes nothing for as long as `patience` counts as gone:
//! nothing is sent to it any more, and everything else can come to its end.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that wait to be written before their sender waits as well.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// Bytes that are written at once, so that progress shows within a long line.
const WRITE_BYTES: usize = 32 * 1024;

/// What waits to be written.
#[derive(Clone)]
pub(super) struct Output {
    shared: Arc<Shared>,
    patience: Duration,
}

/// Nobody reads any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gone;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// Since when the client has taken nothing, while there is something to take.
    since: Option<Instant>,
    gone: bool,
    /// Whether it is gone because it took nothing for too long.
    stalled: bool,
}

impl Output {
    /// Begins to write to `target`.
    pub(super) fn start(
        name: &str,
        mut target: impl Write + Send + 'static,
        patience: Duration,
    ) -> io::Result<Self> {
        let output = Self { shared: Arc::default(), patience };
        let shared = Arc::clone(&output.shared);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Some(bytes) = shared.next() {
                for piece in bytes.chunks(WRITE_BYTES) {
                    let written = target.write_all(piece).and_then(|()| target.flush());
                    if !shared.wrote(written.is_ok()) {
                        return;
                    }
                }
            }
        })?;
        Ok(output)
    }

    /// Sends a line; waits while too much waits already.
    pub(super) fn send(&self, line: &str) -> Result<(), Gone> {
        let mut state = self.shared.lock();
        while state.waiting.len() > QUEUE_BYTES_MAX && !state.gone {
            let waited = state.since.map_or(Duration::ZERO, |since| since.elapsed());
            let Some(left) = self.patience.checked_sub(waited).filter(|left| !left.is_zero())
            else {
                (state.stalled, state.gone) = (true, true);
                break;
            };
            let wait = self.shared.changed.wait_timeout(state, left);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.gone {
            return Err(Gone);
        }
        state.push(line);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Sends a line if there is room for it; what is beside the point may be lost.
    pub(super) fn send_or_drop(&self, line: &str) {
        let mut state = self.shared.lock();
        if state.waiting.len() <= QUEUE_BYTES_MAX && !state.gone {
            state.push(line);
            self.shared.changed.notify_all();
        }
    }

    /// Waits until the client has taken nothing for too long; for ever if that does not happen.
    pub(super) async fn stalled(&self) {
        loop {
            tokio::time::sleep((self.patience / 4).min(Duration::from_secs(1))).await;
            let mut state = self.shared.lock();
            if state.since.is_some_and(|since| since.elapsed() >= self.patience) {
                (state.stalled, state.gone) = (true, true);
                return;
            }
        }
    }

    /// Tells whether the client was given up because it took nothing.
    pub(super) fn has_stalled(&self) -> bool {
        self.shared.lock().stalled
    }

    /// Waits until all is written, but no longer than `limit`.
    pub(super) fn drain(&self, limit: Duration) {
        let state = self.shared.lock();
        let waits = |state: &mut State| state.since.is_some() && !state.gone;
        let _ = self.shared.changed.wait_timeout_while(state, limit, waits);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all that waits, once something does; none when nobody reads any more.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            state.since = None;
            self.changed.notify_all();
        }
        let waits = |state: &mut State| state.waiting.is_empty() && !state.gone;
        let wait = self.changed.wait_while(state, waits);
        let mut state = wait.unwrap_or_else(PoisonError::into_inner);
        // Senders may go on while this is written: as much again can wait.
        let bytes = std::mem::take(&mut state.waiting);
        self.changed.notify_all();
        (!state.gone).then_some(bytes)
    }

    /// Notes that a piece was written, or could not be; tells whether to go on.
    fn wrote(&self, well: bool) -> bool {
        let mut state = self.lock();
        state.gone |= !well;
        state.since = Some(Instant::now());
        self.changed.notify_all();
        !state.gone
    }
}

impl State {
    fn push(&mut self, line: &str) {
        self.since.get_or_insert_with(Instant::now);
        self.waiting.extend_from_slice(line.as_bytes());
        self.waiting.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Takes a piece each time it is let.
    struct Gate(mpsc::Receiver<()>, mpsc::Sender<Vec<u8>>);

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(io::Error::other)?;
            self.1.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gated(patience: Duration) -> (Output, mpsc::Sender<()>, mpsc::Receiver<Vec<u8>>) {
        let (open, gate) = mpsc::channel();
        let (sender, written) = mpsc::channel();
        (Output::start("test", Gate(gate, sender), patience).unwrap(), open, written)
    }

    #[test]
    fn lines_come_whole_and_in_order() {
        let (output, open, written) = gated(Duration::from_secs(60));
        for n in 0..100 {
            output.send(&"x".repeat(n * 10)).unwrap();
            open.send(()).unwrap();
            open.send(()).unwrap();
        }
        output.drain(Duration::from_secs(60));
        drop(open);
        let text: Vec<u8> = written.try_iter().flatten().collect();
        let lines: Vec<usize> = text.split(|byte| *byte == b'\n').map(<[u8]>::len).collect();
        assert_eq!(lines.len(), 101);
        assert!(lines[..100].iter().enumerate().all(|(n, length)| *length == n * 10));
    }

    /// A reader that takes nothing makes its sender wait, for so long and no longer.
    #[test]
    fn a_reader_that_takes_nothing_is_given_up() {
        let (output, open, _written) = gated(Duration::from_millis(50));
        let line = "x".repeat(1 << 20);
        let sent = (0..100).take_while(|_| output.send(&line).is_ok()).count();
        // One batch is with the writer, and one waits.
        assert!((4..=12).contains(&sent), "{sent}");
        assert_eq!(output.send("more"), Err(Gone));
        assert!(output.has_stalled());
        output.send_or_drop("more");
        output.drain(Duration::from_secs(60));
        drop(open);
    }

    #[test]
    fn a_closed_reader_is_gone() {
        let (output, open, written) = gated(Duration::from_secs(60));
        drop((open, written));
        output.send("a").unwrap();
        output.drain(Duration::from_secs(60));
        assert_eq!(output.send("b"), Err(Gone));
        assert!(!output.has_stalled());
    }
}
