//! Running commands: their output is collected whether or not a call waits for it.
//!
//! Each has a task that owns its process. A tool call waits for it for a while and takes the output since the
//! last call; a later call continues from there. When the command ends, the item of the call that started it
//! is completed, whichever call is waiting by then.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use policy::{InputRequest, Typed};
use protocol::call::Report;
use protocol::id::CallKey;
use protocol::item::{Command, ItemBody, Status};
use sandbox::{Connection, Group, Io, Process};
use stdx::HeadTail;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::gate::Approval;
use crate::tool::ProgressSender;

/// Most commands that run at the same time.
pub(crate) const SESSIONS_MAX: usize = 64;
/// The character that a terminal turns into an interrupt.
pub(crate) const CTRL_C: &str = "\u{3}";
/// Bytes kept of the beginning of a command's output, and the same number of its end.
const OUTPUT_HALF_BYTES_MAX: usize = 512 * 1024;
/// How long to wait for output after a process and its group have ended; only a process that left the group
/// can keep the pipe open that long.
const DRAIN: Duration = Duration::from_millis(100);
/// How long a command runs before its start is reported.
const START_DELAY: Duration = Duration::from_millis(150);
/// How long to wait for a killed command to end.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// How long a program may take to read what was typed.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// The running commands of one thread.
#[derive(Debug, Default)]
pub struct Sessions {
    list: Mutex<List>,
}

impl Sessions {
    /// Starts numbering here. A resumed thread must not reuse the numbers of commands that ended with an
    /// earlier process.
    pub fn starting_after(last: u64) -> Self {
        Self { list: Mutex::new(List { last, ..List::default() }) }
    }
}

#[derive(Debug, Default)]
struct List {
    running: HashMap<u64, Arc<Session>>,
    last: u64,
}

/// A command that still runs, whether or not a call waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningCommand {
    /// Its number, as the model knows it.
    pub session: u64,
    /// The call that started it.
    pub call_id: String,
    /// Its argument vector, quoted for a shell and joined.
    pub command: String,
    pub cwd: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) key: CallKey,
    call_id: String,
    argv: Vec<String>,
    cwd: PathBuf,
    sandboxed: bool,
    typed: Mutex<Typed>,
    connection: Arc<Connection>,
    collected: Mutex<Collected>,
    group: Group,
    /// The exit code; any number of calls can wait for it.
    exit: watch::Sender<Option<i32>>,
    stop: watch::Sender<bool>,
}

/// What is needed to start a command.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) key: CallKey,
    /// The id of the call in the history; empty for a command of the user's own.
    pub(crate) call_id: String,
    /// The command that was approved.
    pub(crate) argv: Vec<String>,
    /// The item that is reported at the end.
    pub(crate) item: Command,
    /// Whether the start was already reported, because approval was asked.
    pub(crate) shown: bool,
    /// Whether a sandbox can be the cause of a failure.
    pub(crate) sandboxed: bool,
}

#[derive(Debug)]
struct Collected {
    /// Output that no call has taken yet.
    unread: HeadTail,
    /// The whole output, for the item.
    all: HeadTail,
}

impl Sessions {
    /// Returns whether another command may start.
    pub(crate) fn has_room(&self) -> bool {
        let mut list = lock(&self.list);
        if list.running.len() >= SESSIONS_MAX {
            // Ended commands only wait for a model that may never ask.
            list.running.retain(|_, session| session.is_running());
        }
        list.running.len() < SESSIONS_MAX
    }

    /// Takes ownership of a process.
    pub(crate) fn adopt(
        &self,
        process: Process,
        start: Start,
        progress: ProgressSender,
    ) -> Arc<Session> {
        let mut list = lock(&self.list);
        list.last += 1;
        let empty = || HeadTail::new(OUTPUT_HALF_BYTES_MAX, OUTPUT_HALF_BYTES_MAX);
        let (stop, stopped) = watch::channel(false);
        let session = Arc::new(Session {
            id: list.last,
            key: start.key,
            call_id: start.call_id.clone(),
            argv: start.argv.clone(),
            cwd: start.item.cwd.clone(),
            sandboxed: start.sandboxed,
            typed: Mutex::default(),
            connection: process.connection(),
            collected: Mutex::new(Collected { unread: empty(), all: empty() }),
            group: process.group(),
            exit: watch::Sender::new(None),
            stop,
        });
        list.running.insert(session.id, Arc::clone(&session));
        let task = attend(Arc::clone(&session), process, stopped, start, progress);
        tokio::spawn(task);
        session
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<Session>> {
        lock(&self.list).running.get(&id).cloned()
    }

    /// Forgets a command after a call has reported its end to the model.
    pub(crate) fn forget(&self, id: u64) {
        lock(&self.list).running.remove(&id);
    }

    /// Stops the commands that a call started.
    pub fn stop(&self, key: CallKey) {
        for session in lock(&self.list).running.values().filter(|session| session.key == key) {
            session.stop.send_replace(true);
        }
    }

    /// Returns the commands that a model started and that still run, oldest first.
    pub fn running(&self) -> Vec<RunningCommand> {
        let mut running: Vec<_> = lock(&self.list)
            .running
            .values()
            .filter(|session| session.is_running() && !session.call_id.is_empty())
            .map(|session| RunningCommand {
                session: session.id,
                call_id: session.call_id.clone(),
                command: crate::shell::join(&session.argv),
                cwd: session.cwd.clone(),
            })
            .collect();
        running.sort_by_key(|command| command.session);
        running
    }

    /// Stops one command. Returns whether it was running.
    pub fn stop_session(&self, id: u64) -> bool {
        let session = self.find(id).filter(|session| session.is_running());
        session.is_some_and(|session| {
            session.stop.send_replace(true);
            true
        })
    }

    /// Stops all commands, waits until they are gone, and returns those that were still running, oldest
    /// first.
    pub async fn stop_all(&self) -> Vec<String> {
        let mut running: Vec<_> =
            lock(&self.list).running.drain().map(|(_, session)| session).collect();
        running.retain(|session| session.is_running());
        running.sort_by_key(|session| session.id);
        let ended = running.iter().filter_map(|session| session.argv.last().cloned()).collect();
        for session in &running {
            session.stop.send_replace(true);
        }
        let deadline = Instant::now() + END_PATIENCE;
        for session in running {
            session.wait(deadline).await;
        }
        ended
    }

    /// Kills all commands immediately, from any thread, for a program that is about to exit.
    pub fn kill_all(&self) {
        for session in lock(&self.list).running.values().filter(|session| session.is_running()) {
            session.group.kill();
        }
    }
}

impl Drop for Sessions {
    /// No one can ask for them any more, so nothing is left running.
    fn drop(&mut self) {
        for session in lock(&self.list).running.values() {
            session.stop.send_replace(true);
        }
    }
}

impl Session {
    /// Returns the request to decide about before this text can be typed.
    pub(crate) fn input(&self, text: &str) -> InputRequest {
        InputRequest {
            argv: self.argv.clone(),
            cwd: self.cwd.clone(),
            outside: !self.sandboxed,
            text: lock(&self.typed).with(text),
        }
    }

    /// Returns whether an unfinished line was typed.
    pub(crate) fn has_open_line(&self) -> bool {
        lock(&self.typed).is_open()
    }

    /// Types into the command's terminal, with the approval for [`Session::input`].
    pub(crate) async fn write(&self, text: &str, leave: &Approval) -> io::Result<()> {
        if text == CTRL_C && self.connection.drops_line_on_interrupt() {
            lock(&self.typed).give_up_line();
        } else {
            lock(&self.typed).push(text);
        }
        if leave.asked {
            lock(&self.typed).accepted();
        }
        let written = timeout(WRITE_PATIENCE, self.connection.write(text.as_bytes())).await;
        written.unwrap_or_else(|_| Err(io::Error::other("the program does not read its input")))
    }

    /// Returns whether the command has no terminal to type into.
    pub(crate) fn is_piped(&self) -> bool {
        self.connection.kind() == Io::Pipe
    }

    pub(crate) fn is_running(&self) -> bool {
        self.exit.borrow().is_none()
    }

    /// Interrupts the command, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        if self.is_running() {
            self.group.interrupt();
        }
    }

    /// Waits until the command has ended or until `deadline`.
    pub(crate) async fn wait(&self, deadline: Instant) {
        // At the deadline there is nothing to do but report the state.
        let _ = timeout_at(deadline, self.exit.subscribe().wait_for(Option::is_some)).await;
    }

    /// Takes the output that no call has taken yet, and the exit code, if the command has ended.
    pub(crate) fn take(&self) -> (HeadTail, Option<i32>) {
        let mut collected = lock(&self.collected);
        // Read under the lock: then all output before the end is included.
        (collected.unread.take(), *self.exit.borrow())
    }

    fn collect(&self, buffer: &mut Vec<u8>) {
        let mut collected = lock(&self.collected);
        collected.unread.push(buffer);
        collected.all.push(buffer);
        buffer.clear();
    }
}

/// Collects the output of a process until its end, and reports its start and its end.
///
/// The start is reported with a short delay, or right before the end of a quicker command: most are quicker,
/// and a list of running commands should not flicker.
async fn attend(
    session: Arc<Session>,
    mut process: Process,
    mut stopped: watch::Receiver<bool>,
    start: Start,
    progress: ProgressSender,
) {
    let Start { mut item, shown, sandboxed, .. } = start;
    let started = Report::Started(ItemBody::Command(item.clone()));
    let mut unreported = (!shown).then_some(started);
    let late = sleep(START_DELAY);
    tokio::pin!(late);
    let mut buffer = Vec::new();
    let mut live = LiveOutput::default();
    let mut open = true;
    let exit = loop {
        // Unbiased: a flood of output must delay neither the end of its process nor a stop.
        tokio::select! {
            more = session.connection.read(&mut buffer), if open => {
                open = matches!(more, Ok(true));
                // Output that came before the start was reported is not streamed.
                if unreported.is_none() {
                    live.push(&buffer);
                }
                session.collect(&mut buffer);
            }
            text = live.next() => progress.send(session.key, Report::Output(text)).await,
            exit = process.wait() => break exit.unwrap_or(-1),
            Ok(()) = stopped.changed() => process.kill(),
            () = &mut late, if unreported.is_some() => {
                if let Some(started) = unreported.take() {
                    progress.send(session.key, started).await;
                }
            }
        }
    };
    let drained = Instant::now() + DRAIN;
    while open {
        let more = timeout_at(drained, session.connection.read(&mut buffer)).await;
        open = matches!(more, Ok(Ok(true)));
        session.collect(&mut buffer);
    }
    if let Some(overrun) = process.overrun() {
        let advice = match overrun.is_limit() {
            true => "; the user can change `command_limits` in config.toml",
            false => "",
        };
        let line = format!("\n[{overrun}{advice}]\n");
        session.collect(&mut line.into_bytes());
    }
    item.output = lock(&session.collected).all.to_text();
    item.exit_code = Some(exit);
    item.status = if exit == 0 { Status::Completed } else { Status::Failed };
    // The item is reported before anyone can learn that the command has ended.
    if unreported.is_some() && sandboxed && looks_denied(exit, &item.output) {
        progress.send(session.key, Report::Stopped(ItemBody::Command(item))).await;
    } else {
        if let Some(started) = unreported {
            progress.send(session.key, started).await;
        }
        progress.send(session.key, Report::Ended(ItemBody::Command(item))).await;
    }
    session.exit.send_replace(Some(exit));
}

/// Output of a running command, streamed to observers: batched, so that it is sent a few times a second, and
/// bounded, so that a command that never stops printing does not flood them.
#[derive(Debug, Default)]
struct LiveOutput {
    /// Output since the last event; it may end in the middle of a character.
    pending: Vec<u8>,
    /// When the next event is due.
    due: Option<Instant>,
    told: usize,
}

impl LiveOutput {
    fn push(&mut self, bytes: &[u8]) {
        let room = LIVE_BYTES_MAX.saturating_sub(self.told + self.pending.len());
        self.pending.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if self.due.is_none() && !self.pending.is_empty() {
            self.due = Some(Instant::now() + LIVE_EVERY);
        }
    }

    /// Waits until there is output to send; forever while there is none. Cancel-safe.
    async fn next(&mut self) -> String {
        loop {
            match self.due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
            let text = self.take();
            let more = !self.pending.is_empty() && !text.is_empty();
            self.due = more.then(|| Instant::now() + LIVE_EVERY);
            if !text.is_empty() {
                return text;
            }
        }
    }

    /// Takes whole characters, at most as many as fit into one event; an incomplete character waits for its
    /// rest.
    fn take(&mut self) -> String {
        let next = &self.pending[..self.pending.len().min(LIVE_EVENT_BYTES_MAX)];
        let whole = match std::str::from_utf8(next) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => next.len(),
        };
        self.told += whole;
        let rest = self.pending.split_off(whole);
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending = rest;
        text
    }
}

/// How long output of a running command is batched.
const LIVE_EVERY: Duration = Duration::from_millis(100);
/// Most bytes of output in one event.
const LIVE_EVENT_BYTES_MAX: usize = 32 * 1024;
/// Most bytes of output of one command that are streamed while it runs.
const LIVE_BYTES_MAX: usize = 1024 * 1024;

/// Guesses from how a command ended whether the sandbox stopped it.
fn looks_denied(exit_code: i32, output: &str) -> bool {
    exit_code != 0 && DENIALS.iter().any(|words| output.contains(words))
}

/// What programs print when a sandbox stops them.
const DENIALS: [&str; 4] =
    ["Read-only file system", "Permission denied", "Operation not permitted", "sandbox"];

/// A poisoned lock still guards complete values: every change under it is a single call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{LIVE_BYTES_MAX, LIVE_EVENT_BYTES_MAX, LiveOutput, looks_denied};

    /// However output is chunked, the streamed text is the same, up to the bound.
    #[test]
    fn live_output() {
        for (chunks, want) in [
            (vec![&b"a"[..], b"b"], "ab"),
            (vec![b"\xc3", b"\xa9!"], "\u{e9}!"),
            (vec![b"\xe2\x82", b"\xac", b"\xe2"], "\u{20ac}"),
            (vec![b"\xff", b"x"], "\u{fffd}x"),
            (vec![], ""),
        ] {
            let mut live = LiveOutput::default();
            let mut told = String::new();
            for chunk in chunks {
                live.push(chunk);
                told.push_str(&live.take());
            }
            assert_eq!(told, want);
        }
        let mut live = LiveOutput::default();
        let mut told = 0;
        live.push(&vec![b'x'; 2 * LIVE_BYTES_MAX]);
        for _ in 0..=LIVE_BYTES_MAX / LIVE_EVENT_BYTES_MAX {
            let text = live.take();
            assert!(text.len() <= LIVE_EVENT_BYTES_MAX);
            told += text.len();
        }
        assert_eq!(told, LIVE_BYTES_MAX);
    }

    #[test]
    fn denials() {
        for (exit_code, output, want) in [
            (1, "touch: cannot touch 'x': Read-only file system\n", true),
            (2, "sh: 1: cannot create x: Permission denied\n", true),
            (1, "connect: Operation not permitted\n", true),
            (126, "stopped by the sandbox\n", true),
            (0, "Permission denied\n", false),
            (1, "no such file\n", false),
            (1, "", false),
        ] {
            assert_eq!(looks_denied(exit_code, output), want, "{exit_code} {output}");
        }
    }
}
