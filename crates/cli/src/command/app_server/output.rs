//! Output to a client, written by its own thread.
//!
//! A client may read slowly or not at all. Up to [`QUEUE_BYTES_MAX`] are buffered; beyond that, senders
//! block. A client that reads nothing for `patience` counts as gone: nothing more is sent to it, so that
//! everything else can finish.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most bytes in the buffer; beyond that, senders block.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// Bytes per write, small enough to see progress within a long line.
const WRITE_BYTES: usize = 32 * 1024;

/// The buffer of pending output.
#[derive(Clone)]
pub(super) struct Output {
    shared: Arc<Shared>,
    patience: Duration,
}

/// The client no longer reads.
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
    /// Since when the client has read nothing although output is pending.
    since: Option<Instant>,
    gone: bool,
    /// Whether the client was dropped because it read nothing for too long.
    stalled: bool,
}

impl Output {
    /// Starts writing to `target`.
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

    /// Sends a line; blocks while the buffer is full.
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

    /// Sends a line if there is room for it; for output that may be lost.
    pub(super) fn send_or_drop(&self, line: &str) {
        let mut state = self.shared.lock();
        if state.waiting.len() <= QUEUE_BYTES_MAX && !state.gone {
            state.push(line);
            self.shared.changed.notify_all();
        }
    }

    /// Waits until the client has read nothing for too long; forever if that does not happen.
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

    /// Returns whether the client was dropped because it read nothing.
    pub(super) fn has_stalled(&self) -> bool {
        self.shared.lock().stalled
    }

    /// Waits until everything is written, at most for `limit`.
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

    /// Waits for pending output and takes all of it; none when the client is gone.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            state.since = None;
            self.changed.notify_all();
        }
        let waits = |state: &mut State| state.waiting.is_empty() && !state.gone;
        let wait = self.changed.wait_while(state, waits);
        let mut state = wait.unwrap_or_else(PoisonError::into_inner);
        // Senders may continue while this is written: the buffer is empty again.
        let bytes = std::mem::take(&mut state.waiting);
        self.changed.notify_all();
        (!state.gone).then_some(bytes)
    }

    /// Records whether a piece was written; returns whether to continue.
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

    /// Accepts one piece per message received.
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
    fn lines_arrive_whole_and_in_order() {
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

    /// A reader that reads nothing blocks its sender for a limited time.
    #[test]
    fn a_reader_that_does_not_read_is_dropped() {
        let (output, open, _written) = gated(Duration::from_millis(50));
        let line = "x".repeat(1 << 20);
        let sent = (0..100).take_while(|_| output.send(&line).is_ok()).count();
        // One batch is being written, and one is pending.
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
