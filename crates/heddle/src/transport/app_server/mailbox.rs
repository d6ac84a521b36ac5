//! [`Mailbox`]: the messages of a thread that its turn has not read yet. Bounded: a slow turn makes the server wait.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::transport::app_server::connection::Incoming;
use crate::transport::error::TransportError;

/// The messages of a thread that its turn has not read yet.
///
/// While no turn runs, messages are dropped, as nothing would read them; what happens between turns is in the log.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    arrived: Notify,
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Incoming>,
    bytes: usize,
    /// Whether a turn reads the messages.
    open: bool,
    broken: Option<TransportError>,
}

impl Mailbox {
    /// Collects messages from now on, for a turn.
    pub(crate) fn open(&self) {
        self.lock().open = true;
    }

    /// Drops the messages that are queued, and all that arrive from now on.
    pub(crate) fn shut(&self) {
        let mut state = self.lock();
        state.open = false;
        state.messages.clear();
        state.bytes = 0;
        drop(state);
        self.taken.notify_one();
    }

    /// Adds a message; waits while there is no room. Returns the refusal of a question that will not be read.
    pub(crate) async fn put(&self, message: Incoming) -> Option<String> {
        let bytes = message.params.get().len() + MESSAGE_BYTES;
        loop {
            let taken = self.taken.notified();
            {
                let mut state = self.lock();
                if !state.open {
                    let id = message.id?;
                    let error =
                        serde_json::json!({"code": -32600, "message": "no turn is followed"});
                    return Some(format!("{}\n", serde_json::json!({"id": id, "error": error})));
                }
                if state.bytes < BYTES_MAX {
                    state.bytes += bytes;
                    state.messages.push_back(message);
                    break;
                }
            }
            taken.await;
        }
        self.arrived.notify_one();
        None
    }

    /// Takes the next message; waits until there is one. May be dropped and called again.
    pub(crate) async fn take(&self) -> Result<Incoming, TransportError> {
        loop {
            let arrived = self.arrived.notified();
            {
                let mut state = self.lock();
                if let Some(message) = state.messages.pop_front() {
                    state.bytes -= message.params.get().len() + MESSAGE_BYTES;
                    drop(state);
                    self.taken.notify_one();
                    return Ok(message);
                }
                if let Some(error) = &state.broken {
                    return Err(error.clone());
                }
            }
            arrived.await;
        }
    }

    /// Ends the mailbox: after the queued messages, reading fails with this error.
    pub(crate) fn close(&self, error: TransportError) {
        self.lock().broken = Some(error);
        self.arrived.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Approximate size of a message without its parameters.
const MESSAGE_BYTES: usize = 128;
/// Bytes that a slow turn may leave unread before the server has to wait, and with it the other threads of the
/// connection.
const BYTES_MAX: usize = 16 << 20;
