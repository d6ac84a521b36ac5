//! Signals: they interrupt the turn, and end the program if the turn does not end.
//!
//! They are handled on their own thread. The thread of the turn may be blocked in a write that no one reads,
//! and must end nevertheless, together with its commands.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use heddle::{Thread, TurnHandle};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::code;

/// How long an interrupted turn may take to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Handles the signals that end a run, from the moment it was started.
pub(crate) struct Signals(Arc<Shared>);

struct Shared {
    /// What to do at signals, once there is something to do.
    steps: Mutex<Option<Steps>>,
    /// The exit code of the signal that ended the run, if one did.
    received: AtomicU8,
}

struct Steps {
    first: Box<dyn FnOnce() + Send>,
    last: Box<dyn FnOnce() + Send>,
}

/// A thread that is about to handle signals.
pub(crate) struct StartingSignals {
    shared: Arc<Shared>,
    ready: Receiver<std::io::Result<()>>,
}

impl Signals {
    /// Starts the thread that handles signals, and does not wait for it: the caller has other things to prepare. Until
    /// there is something to interrupt, a signal ends the program.
    pub(crate) fn start() -> std::io::Result<StartingSignals> {
        let received = AtomicU8::new(code::INTERRUPTED);
        let shared = Arc::new(Shared { steps: Mutex::new(None), received });
        let handler = Arc::clone(&shared);
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
                let _ = ready.send(Ok(()));
                let signal = signals.next().await;
                handler.received.store(signal, Ordering::Relaxed);
                let steps = handler.steps.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some(Steps { first, last }) = steps else {
                    std::process::exit(i32::from(signal));
                };
                first();
                let again = tokio::time::timeout(PATIENCE, signals.next()).await;
                last();
                std::process::exit(i32::from(again.unwrap_or(signal)));
            });
        })?;
        Ok(StartingSignals { shared, ready: listening })
    }

    /// Returns the exit code for the signal received.
    pub(crate) fn received(&self) -> u8 {
        self.0.received.load(Ordering::Relaxed)
    }
}

impl StartingSignals {
    /// From now on the first signal interrupts the turn; a second one, or a time-out, kills the commands and exits.
    pub(crate) fn interrupt(self, turn: TurnHandle, thread: Thread) -> std::io::Result<Signals> {
        self.run(move || turn.interrupt(), move || thread.kill_commands())
    }

    /// From now on one callback runs at the first signal, and the other right before the program is forced to exit.
    pub(crate) fn run(
        self,
        first: impl FnOnce() + Send + 'static,
        last: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Signals> {
        let steps = Steps { first: Box::new(first), last: Box::new(last) };
        *self.shared.steps.lock().unwrap_or_else(PoisonError::into_inner) = Some(steps);
        self.ready.recv().map_err(std::io::Error::other)??;
        Ok(Signals(self.shared))
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
