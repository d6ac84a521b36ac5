//! [`Processes`]: the commands that clients run, by client and by the client's name for them.
//!
//! A command ends with the connection that started it, or with the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use heddle::commands::{CommandEvent, Controls, OutputStream, RunningCommand};
use tokio::sync::Notify;

use crate::message::RpcError;
use crate::notification::{Notification, OutputOf};
use crate::peer::{Message, Peer, PeerId};

/// Most commands that a connection can run at the same time.
pub const PROCESSES_MAX: usize = 64;
/// Bytes of each output stream that are kept or sent, unless the client sets another limit.
pub const OUTPUT_BYTES_DEFAULT: usize = 1024 * 1024;
/// Most bytes of each output stream that are kept until the end, whatever limit the client sets.
pub const OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long a command may run, unless the client sets another timeout.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// The exit code of a command that was stopped by its timeout.
const TIMED_OUT: i32 = 124;

/// The commands that clients run.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    running: Mutex<BTreeMap<Key, Arc<Controls>>>,
    /// The number of the next command that its client did not name.
    next: AtomicU64,
    /// Signals that a command has ended.
    ended: Notify,
    ending: AtomicBool,
}

type Key = (PeerId, Kind, Name);

/// The group of methods that started a command. Each group has its own names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Command,
    Process,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Unnamed(u64),
    Given(String),
}

impl Processes {
    /// Registers a command before it is started.
    pub(crate) fn begin(
        self: &Arc<Self>,
        peer: PeerId,
        kind: Kind,
        name: Option<String>,
        controls: &Arc<Controls>,
    ) -> Result<Begun, RpcError> {
        let name = match name {
            Some(name) => Name::Given(name),
            None => Name::Unnamed(self.next.fetch_add(1, Ordering::Relaxed)),
        };
        let key = (peer, kind, name);
        let mut running = lock(&self.running);
        // Looked at under the lock, so that none begins once all were told to end.
        if self.ending.load(Ordering::Acquire) {
            return Err(RpcError::invalid("the server is shutting down"));
        }
        if running.contains_key(&key) {
            let what = match kind {
                Kind::Command => "command/exec process id",
                Kind::Process => "process handle",
            };
            return Err(RpcError::invalid(format!("duplicate active {what}: {}", shown(&key.2))));
        }
        if of_peer(&running, peer).count() >= PROCESSES_MAX {
            return Err(RpcError::invalid(format!(
                "this connection runs {PROCESSES_MAX} commands, which is the limit: wait for one \
                 to end, or terminate one"
            )));
        }
        running.insert(key.clone(), Arc::clone(controls));
        Ok(Begun { processes: Arc::clone(self), key })
    }

    /// Returns the controls of a command that is still running.
    pub(crate) fn find(
        &self,
        peer: PeerId,
        kind: Kind,
        name: String,
    ) -> Result<Arc<Controls>, RpcError> {
        let key = (peer, kind, Name::Given(name));
        lock(&self.running).get(&key).cloned().ok_or_else(|| {
            let what = match kind {
                Kind::Command => "command/exec for process id",
                Kind::Process => "process for process handle",
            };
            RpcError::invalid(format!("no active {what} {}", shown(&key.2)))
        })
    }

    /// Ends the commands of a client.
    pub(crate) fn end_of(&self, peer: PeerId) {
        of_peer(&lock(&self.running), peer).for_each(|controls| controls.kill());
    }

    /// Ends all commands, refuses new ones, and waits until all are gone.
    pub(crate) async fn shut_down(&self) {
        self.ending.store(true, Ordering::Release);
        lock(&self.running).values().for_each(|controls| controls.kill());
        loop {
            let changed = self.ended.notified();
            tokio::pin!(changed);
            // Registered before the look, so no end is missed.
            changed.as_mut().enable();
            if lock(&self.running).is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Kills all commands without waiting for them to end, because the process is about to be forced to exit.
    pub(crate) fn kill_now(&self) {
        lock(&self.running).values().for_each(|controls| controls.kill_now());
    }
}

fn of_peer(
    running: &BTreeMap<Key, Arc<Controls>>,
    peer: PeerId,
) -> impl Iterator<Item = &Arc<Controls>> {
    let from = running.range((peer, Kind::Command, Name::Unnamed(0))..);
    from.take_while(move |(key, _)| key.0 == peer).map(|(_, controls)| controls)
}

fn shown(name: &Name) -> String {
    match name {
        Name::Given(name) => format!("\"{name:.200}\""),
        Name::Unnamed(number) => number.to_string(),
    }
}

/// A registered command; dropping it removes the command from the list.
#[derive(Debug)]
pub(crate) struct Begun {
    processes: Arc<Processes>,
    key: Key,
}

impl Drop for Begun {
    fn drop(&mut self) {
        lock(&self.processes.running).remove(&self.key);
        self.processes.ended.notify_waiters();
    }
}

/// How to run a command: what becomes of its output, and how long it may take.
#[derive(Debug)]
pub(crate) struct Attention {
    /// The name under which output is sent to the client while the command runs; `None` if it is kept until the end.
    pub(crate) told_as: Option<OutputOf>,
    /// Most bytes of each stream that are kept or sent.
    pub(crate) bytes_max: usize,
    pub(crate) timeout: Option<Duration>,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) drained: bool,
    pub(crate) stdout: Kept,
    pub(crate) stderr: Kept,
}

/// The output of one stream that was kept.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    /// Bytes kept or sent so far.
    count: usize,
    pub(crate) cap_reached: bool,
}

impl Kept {
    /// Returns how many of `length` more bytes fit; `None` if the limit was reached before.
    fn room_for(&mut self, length: usize, bytes_max: usize) -> Option<usize> {
        if self.cap_reached {
            return None;
        }
        let room = (bytes_max - self.count).min(length);
        self.count += room;
        self.cap_reached = self.count == bytes_max;
        Some(room)
    }

    pub(crate) fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Runs a command to its end: keeps or sends its output, and kills it when its time is over.
///
/// A client that does not read its output delays only its own command.
pub(crate) async fn attend(
    peer: &Peer,
    mut running: RunningCommand,
    controls: &Controls,
    attention: &Attention,
) -> Ended {
    let Attention { told_as, bytes_max, timeout } = attention;
    let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
    let mut timed_out = false;
    let deadline = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(*timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(deadline);
    let (code, drained) = loop {
        let next = async {
            if told_as.is_some() {
                // A command that is to end must not wait for a client that never reads.
                tokio::select! {
                    () = peer.has_room() => {}
                    () = controls.killed() => {}
                }
            }
            running.next().await
        };
        let event = tokio::select! {
            event = next => event,
            () = &mut deadline, if !timed_out => {
                timed_out = true;
                controls.kill();
                continue;
            }
        };
        let (stream, mut bytes) = match event {
            CommandEvent::Output { stream, bytes } => (stream, bytes),
            CommandEvent::Exited { code, drained } => break (code, drained),
        };
        let kept = match stream {
            OutputStream::Stdout => &mut stdout,
            OutputStream::Stderr => &mut stderr,
        };
        let Some(room) = kept.room_for(bytes.len(), *bytes_max) else { continue };
        bytes.truncate(room);
        match told_as {
            None => kept.bytes.extend(bytes),
            Some(of) => {
                let delta = Notification::output(
                    of,
                    stream,
                    BASE64_STANDARD.encode(&bytes),
                    kept.cap_reached,
                );
                peer.send(&Message::notification(delta, heddle::now_ms()));
            }
        }
    };
    Ended { code: if timed_out { TIMED_OUT } else { code }, drained, stdout, stderr }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use heddle::commands::Streams;

    use super::*;

    fn controls() -> Arc<Controls> {
        Arc::new(Controls::new(Streams::Pipes { input: false }))
    }

    #[test]
    fn names_belong_to_connections() {
        let processes = Arc::new(Processes::default());
        let begin = |peer, kind, name: &str| {
            processes.begin(PeerId(peer), kind, Some(name.to_owned()), &controls())
        };
        let first = begin(1, Kind::Command, "a").unwrap();
        let _second = begin(1, Kind::Process, "a").unwrap();
        let _other = begin(2, Kind::Command, "a").unwrap();
        let twice = begin(1, Kind::Command, "a").unwrap_err();
        assert_eq!(twice.message, "duplicate active command/exec process id: \"a\"");
        assert!(processes.find(PeerId(3), Kind::Command, "a".into()).is_err());
        drop(first);
        let ended = processes.find(PeerId(1), Kind::Command, "a".into()).unwrap_err();
        assert_eq!(ended.message, "no active command/exec for process id \"a\"");
        begin(1, Kind::Command, "a").unwrap();
    }

    #[test]
    fn a_connection_has_a_bound() {
        let processes = Arc::new(Processes::default());
        let begin = |peer| processes.begin(PeerId(peer), Kind::Command, None, &controls());
        let begun: Vec<_> = (0..PROCESSES_MAX).map(|_| begin(1).unwrap()).collect();
        assert!(begin(1).unwrap_err().message.contains("wait for one"));
        begin(2).unwrap();
        // The end waits for all of them.
        assert!(processes.shut_down().now_or_never().is_none());
        assert!(begin(2).is_err());
        drop(begun);
        assert!(processes.shut_down().now_or_never().is_some());
    }

    #[test]
    fn output_is_cut() {
        for (bytes_max, chunks, want) in [
            (4, &[3, 3, 3][..], &[(Some(3), false), (Some(1), true), (None, true)][..]),
            (4, &[4, 1], &[(Some(4), true), (None, true)]),
            (0, &[1, 1], &[(Some(0), true), (None, true)]),
            (9, &[1, 1], &[(Some(1), false), (Some(1), false)]),
        ] {
            let mut kept = Kept::default();
            let cut = chunks.iter().map(|length| {
                let room = kept.room_for(*length, bytes_max);
                (room, kept.cap_reached)
            });
            assert_eq!(cut.collect::<Vec<_>>(), want, "{bytes_max} {chunks:?}");
        }
    }
}
