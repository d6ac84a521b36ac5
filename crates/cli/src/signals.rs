//! Signals: they interrupt the turn, and end the program if the turn does not end.
//!
//! They are handled on their own thread. The thread of the turn may be blocked in a write that no one reads,
//! and must end nevertheless, together with its commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use heddle::{Thread, TurnHandle};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::code;

/// How long an interrupted turn may take to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// The exit code of the signal that ended the run, if one did.
pub(crate) struct Signals(Arc<AtomicU8>);

impl Signals {
    /// Starts listening: the first signal interrupts the turn; a second one, or a time-out, kills the
    /// commands and exits.
    pub(crate) fn listen(turn: TurnHandle, thread: Thread) -> std::io::Result<Self> {
        Self::watch(move || turn.interrupt(), move || thread.kill_commands())
    }

    /// Starts listening: runs one callback at the first signal, and the other right before the program is
    /// forced to exit.
    pub(crate) fn watch(
        first: impl FnOnce() + Send + 'static,
        last: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        let received = Arc::new(AtomicU8::new(code::INTERRUPTED));
        let shared = Arc::clone(&received);
        let (ready, listening) = std::sync::mpsc::sync_channel(1);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let watch = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let watch = match watch {
                Ok(watch) => watch,
                Err(error) => return drop(ready.send(Err(error))),
            };
            watch.block_on(async {
                let mut signals = match Handlers::install() {
                    Ok(signals) => signals,
                    Err(error) => return drop(ready.send(Err(error))),
                };
                // The caller waits for this.
                let _ = ready.send(Ok(()));
                let signal = signals.next().await;
                shared.store(signal, Ordering::Relaxed);
                first();
                let again = tokio::time::timeout(PATIENCE, signals.next()).await;
                last();
                std::process::exit(i32::from(again.unwrap_or(signal)));
            });
        })?;
        listening.recv().map_err(std::io::Error::other)??;
        Ok(Self(received))
    }

    /// Returns the exit code for the signal received.
    pub(crate) fn received(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The signals that end a run.
struct Handlers {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Handlers {
    fn install() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            // The terminal is gone. Dying of it would leave the commands behind.
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal and returns its exit code.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => code::INTERRUPTED,
            _ = self.terminate.recv() => code::TERMINATED,
            _ = self.hangup.recv() => code::HUNG_UP,
        }
    }
}
