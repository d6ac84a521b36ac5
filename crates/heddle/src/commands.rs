//! Commands that a host program runs for its user, not for a model.
//!
//! No rule applies and no approval is asked for, because the caller may do whatever the user may. The sandbox is up to the
//! settings or the caller. When a command ends, everything that it started ends as well.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use policy::{Permit, Profile, SandboxMode};
use sandbox::{Connection, Given, Group, Io, Process, Sandbox, SpawnRequest};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

pub use ::sandbox::{SpawnError, TerminalSize};

use crate::error::Error;
use crate::host::{Heddle, blocking};
use crate::session::safety;
use crate::session::settings::{self, Preferences};

/// Most bytes of input that wait for a command to read them.
pub const INPUT_WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long to wait for output after a command has ended; only a process that left the command's process group can keep the
/// pipe open.
const DRAIN: Duration = Duration::from_millis(200);
/// Most bytes that are read after a command has ended; no pipe holds more.
const DRAIN_BYTES_MAX: usize = 1024 * 1024;
/// The character that a terminal interprets as the end of the input.
const END_OF_INPUT: u8 = 4;

/// A command to run in the directory of a [`Heddle`].
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Variables that override those that the settings give to commands; one without a value is removed.
    pub env: BTreeMap<String, Option<String>>,
    /// Preferences that override the settings, such as the permissions of the sandbox.
    pub preferences: Preferences,
    /// Whether it runs in the sandbox of the settings.
    pub confined: bool,
    /// How its standard streams are connected.
    pub streams: Streams,
}

/// How the standard streams of a command are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// A pipe for each.
    Pipes {
        /// Whether it gets input; otherwise stdin is closed.
        input: bool,
    },
    /// A terminal of this size, or of the default size.
    Terminal(Option<TerminalSize>),
}

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The settings or the sandbox are not usable.
    #[error(transparent)]
    Setup(#[from] Error),
    /// The process could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

/// Why input was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The command was started without a stdin.
    #[error("it was started without input")]
    None,
    /// The input was closed, or the command has ended.
    #[error("stdin is already closed")]
    Closed,
    /// The command does not read its input, and too much of it is waiting.
    #[error(
        "it does not read its input, of which {INPUT_WAITING_BYTES_MAX} bytes wait: try again later"
    )]
    Full,
}

/// The stream that output came from. A terminal has only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output, or everything that is printed to a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// An event of a running command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandEvent {
    /// It printed something.
    Output {
        /// The stream that it was printed to.
        stream: OutputStream,
        /// The bytes, which may end in the middle of a character.
        bytes: Vec<u8>,
    },
    /// It has ended; no further events follow.
    Exited {
        /// The exit code. A command that a signal killed has 128 plus the signal's number, or 1 on a terminal.
        code: i32,
        /// Whether all output was read. A process that left the command's process group may still print more.
        drained: bool,
    },
}

/// Controls of a command, from before it starts until it has ended.
#[derive(Debug)]
pub struct Controls {
    streams: Streams,
    /// `None` once the input is closed.
    input: Mutex<Option<mpsc::UnboundedSender<Vec<u8>>>>,
    /// Taken by the command when it starts.
    source: Mutex<Option<mpsc::UnboundedReceiver<Vec<u8>>>>,
    waiting_bytes: Arc<AtomicUsize>,
    killed: watch::Sender<bool>,
    handles: Mutex<Handles>,
}

/// The handles of a running command.
#[derive(Debug, Default)]
struct Handles {
    /// The process group, while the command runs.
    group: Option<Group>,
    /// The terminal, while the command runs on one.
    terminal: Option<Arc<Connection>>,
    /// The size that was requested before there was a terminal.
    size: Option<TerminalSize>,
}

impl Controls {
    /// Creates the controls of a command that will have these streams.
    pub fn new(streams: Streams) -> Self {
        let (input, source) = mpsc::unbounded_channel();
        Self {
            streams,
            input: Mutex::new(Some(input)),
            source: Mutex::new(Some(source)),
            waiting_bytes: Arc::default(),
            killed: watch::Sender::default(),
            handles: Mutex::default(),
        }
    }

    /// Queues input, which the command gets as it reads.
    pub fn write(&self, bytes: Vec<u8>) -> Result<(), InputError> {
        if self.streams == (Streams::Pipes { input: false }) {
            return Err(InputError::None);
        }
        let input = lock(&self.input);
        let input = input.as_ref().ok_or(InputError::Closed)?;
        let length = bytes.len();
        let waiting = self.waiting_bytes.fetch_add(length, Ordering::Relaxed);
        let sent = match waiting > 0 && waiting + length > INPUT_WAITING_BYTES_MAX {
            true => Err(InputError::Full),
            false => input.send(bytes).map_err(|_| InputError::Closed),
        };
        if sent.is_err() {
            self.waiting_bytes.fetch_sub(length, Ordering::Relaxed);
        }
        sent
    }

    /// Closes the input after what is queued.
    pub fn close_input(&self) -> Result<(), InputError> {
        if self.streams == (Streams::Pipes { input: false }) {
            return Err(InputError::None);
        }
        lock(&self.input).take();
        Ok(())
    }

    /// Resizes the terminal, before any input that is written later. Returns false if there is no terminal.
    pub fn resize(&self, size: TerminalSize) -> bool {
        let mut handles = lock(&self.handles);
        match &handles.terminal {
            // It fails only if the terminal is closed, and then nobody sees its size.
            Some(terminal) => drop(terminal.resize(size)),
            None => handles.size = Some(size),
        }
        matches!(self.streams, Streams::Terminal(_))
    }

    /// Asks for the command and everything that it started to be killed.
    pub fn kill(&self) {
        self.killed.send_replace(true);
    }

    /// Waits until the command was asked to be killed.
    pub async fn killed(&self) {
        // The sender is in `self`.
        let _ = self.killed.subscribe().wait_for(|killed| *killed).await;
    }

    /// Kills the command immediately, from any thread, for a program that is about to exit.
    pub fn kill_now(&self) {
        self.kill();
        if let Some(group) = lock(&self.handles).group {
            group.kill();
        }
    }

    /// Stores the handles of a process that was started.
    fn attach(&self, process: &Process) {
        let mut handles = lock(&self.handles);
        handles.group = Some(process.group());
        if matches!(self.streams, Streams::Terminal(_)) {
            let terminal = process.connection();
            if let Some(size) = handles.size {
                let _ = terminal.resize(size);
            }
            handles.terminal = Some(terminal);
        }
    }

    /// Drops the handles of a process that has ended: its ids may belong to another process by now.
    fn detach(&self) {
        *lock(&self.handles) = Handles::default();
    }
}

/// A command that is running. Dropping it kills the command and everything that it has started.
#[derive(Debug)]
pub struct RunningCommand {
    process: Process,
    stdout: Reader,
    stderr: Reader,
    controls: Arc<Controls>,
    killed: watch::Receiver<bool>,
    is_killed: bool,
    feeder: Option<JoinHandle<()>>,
    exited: Option<Exit>,
}

/// How a command ended, and how much of its output to wait for.
#[derive(Clone, Copy, Debug)]
struct Exit {
    code: i32,
    deadline: Instant,
    bytes_left: usize,
}

/// Starts a command with the given settings. It is killed when the thread that polls this future ends, so poll it on a
/// long-lived one.
pub async fn start(
    heddle: &Heddle,
    spec: CommandSpec,
    controls: Arc<Controls>,
) -> Result<RunningCommand, StartError> {
    let streams = spec.streams;
    let (request, sandbox) = {
        let heddle = heddle.clone();
        blocking(move |_| prepare(&heddle, spec)).await?
    };
    let connect = |reason| SpawnError::Connect { what: "pipe", reason };
    let (mut given, mut sink) = (Given::default(), None);
    match streams {
        Streams::Pipes { input: false } => {}
        Streams::Pipes { input: true } => {
            let (ours, theirs) = pipe::pipe().map_err(connect)?;
            given.input = Some(theirs.into_blocking_fd().map_err(connect)?);
            sink = Some(Sink::Pipe(ours));
        }
        Streams::Terminal(size) => given.size = size,
    }
    let process = Process::spawn_given(&sandbox, &request, given).await?;
    controls.attach(&process);
    if matches!(streams, Streams::Terminal(_)) {
        sink = Some(Sink::Terminal(process.connection()));
    }
    let source = lock(&controls.source).take();
    let feeder = sink.zip(source).map(|(sink, source)| {
        tokio::spawn(feed(source, sink, Arc::clone(&controls.waiting_bytes)))
    });
    Ok(RunningCommand {
        stdout: Reader::new(Some(process.connection())),
        stderr: Reader::new(process.errors()),
        process,
        killed: controls.killed.subscribe(),
        is_killed: false,
        controls,
        feeder,
        exited: None,
    })
}

/// Determines from the settings how to run a command.
fn prepare(heddle: &Heddle, spec: CommandSpec) -> Result<(SpawnRequest, Sandbox), Error> {
    let CommandSpec { argv, env: changes, preferences, confined, streams } = spec;
    let host = heddle.host();
    let loaded = settings::load(host, preferences)?;
    let (config, preferences) = (&loaded.config, &loaded.preferences);
    let (profile, sandbox) = match confined {
        true => {
            let profile = safety::profile(host, config, preferences)?;
            let sandbox = safety::find_sandbox(host, config, profile.mode, None)?;
            (profile, sandbox)
        }
        false => (Profile::full_access(), Sandbox::none()),
    };
    debug_assert!(confined || profile.mode == SandboxMode::DangerFullAccess);
    let mut env: BTreeMap<_, _> = safety::command_env(host, config).into_iter().collect();
    for (name, value) in changes {
        match value {
            Some(value) => drop(env.insert(name, value)),
            None => drop(env.remove(&name)),
        }
    }
    let request = SpawnRequest {
        argv,
        cwd: host.directory.clone(),
        env: env.into_iter().collect(),
        io: match streams {
            Streams::Pipes { .. } => Io::Pipes,
            Streams::Terminal(_) => Io::Terminal,
        },
        permit: Permit::for_user(profile),
    };
    Ok((request, sandbox))
}

impl RunningCommand {
    /// Waits for the next event; after the end, returns the same event again.
    ///
    /// Cancel-safe. A command blocks when its pipes are full and nobody calls this.
    pub async fn next(&mut self) -> CommandEvent {
        loop {
            if *self.killed.borrow_and_update() && !self.is_killed && self.exited.is_none() {
                self.is_killed = true;
                self.process.kill();
            }
            let Self { process, stdout, stderr, killed, exited, .. } = self;
            let Some(exit) = exited else {
                // Unbiased: a flood of output must delay neither the end of the process nor its being killed.
                tokio::select! {
                    bytes = stdout.next(), if stdout.is_open() => {
                        if let Some(bytes) = bytes {
                            return CommandEvent::Output { stream: OutputStream::Stdout, bytes };
                        }
                    }
                    bytes = stderr.next(), if stderr.is_open() => {
                        if let Some(bytes) = bytes {
                            return CommandEvent::Output { stream: OutputStream::Stderr, bytes };
                        }
                    }
                    code = process.wait() => {
                        // It cannot be waited for if somebody else has done that.
                        let code = code.unwrap_or(-1);
                        let deadline = Instant::now() + DRAIN;
                        *exited = Some(Exit { code, deadline, bytes_left: DRAIN_BYTES_MAX });
                        self.controls.detach();
                    }
                    // The sender is ours, so it is there.
                    Ok(()) = killed.changed() => {}
                }
                continue;
            };
            let is_open = stdout.is_open() || stderr.is_open();
            if !is_open || exit.bytes_left == 0 {
                return CommandEvent::Exited { code: exit.code, drained: !is_open };
            }
            // Biased: what is there is read, however late it is.
            let (stream, bytes) = tokio::select! {
                biased;
                bytes = stdout.next(), if stdout.is_open() => (OutputStream::Stdout, bytes),
                bytes = stderr.next(), if stderr.is_open() => (OutputStream::Stderr, bytes),
                () = sleep_until(exit.deadline) => {
                    return CommandEvent::Exited { code: exit.code, drained: false };
                }
            };
            if let Some(bytes) = bytes {
                exit.bytes_left = exit.bytes_left.saturating_sub(bytes.len());
                return CommandEvent::Output { stream, bytes };
            }
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        self.controls.detach();
        // A process that has left the group could keep it waiting.
        if let Some(feeder) = &self.feeder {
            feeder.abort();
        }
    }
}

#[derive(Debug)]
struct Reader {
    /// `None` at its end.
    connection: Option<Arc<Connection>>,
    buffer: Vec<u8>,
}

impl Reader {
    fn new(connection: Option<Arc<Connection>>) -> Self {
        Self { connection, buffer: Vec::new() }
    }

    fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// Waits for output; `None` at the end. Cancel-safe.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let connection = self.connection.as_ref()?;
        match connection.read(&mut self.buffer).await {
            Ok(true) => Some(std::mem::take(&mut self.buffer)),
            // What cannot be read has ended.
            Ok(false) | Err(_) => {
                self.connection = None;
                None
            }
        }
    }
}

/// The destination of input.
enum Sink {
    Pipe(pipe::Sender),
    Terminal(Arc<Connection>),
}

impl Sink {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.write_all(bytes).await,
            Self::Terminal(terminal) => terminal.write(bytes).await,
        }
    }
}

/// Passes input on until it is closed or the command stops accepting it.
async fn feed(
    mut source: mpsc::UnboundedReceiver<Vec<u8>>,
    mut sink: Sink,
    waiting_bytes: Arc<AtomicUsize>,
) {
    let mut at_line_start = true;
    while let Some(bytes) = source.recv().await {
        let written = sink.write(&bytes).await;
        waiting_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
        if written.is_err() {
            return;
        }
        at_line_start = bytes.last().map_or(at_line_start, |last| matches!(last, b'\n' | b'\r'));
    }
    if let Sink::Terminal(terminal) = sink {
        // In the middle of a line, the first one only ends that.
        let ends = if at_line_start { 1 } else { 2 };
        // If the command has ended, it needs none.
        let _ = terminal.write(&[END_OF_INPUT; 2][..ends]).await;
    }
}

/// Locks a mutex even if it is poisoned: the value in it is still complete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(script: &str, streams: Streams) -> CommandSpec {
        CommandSpec {
            argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            env: BTreeMap::from([("GONE".into(), None), ("ADDED".into(), Some("a".into()))]),
            preferences: Preferences::default(),
            confined: false,
            streams,
        }
    }

    /// Runs a script to its end; returns its exit code, both outputs, and whether they were read completely.
    async fn run(
        script: &str,
        streams: Streams,
        control: impl AsyncFnOnce(&Controls),
    ) -> (i32, String, String, bool) {
        let home = tempfile::tempdir().unwrap();
        let heddle = Heddle::builder().home(home.path()).var("GONE", "g").var("KEPT", "k");
        let heddle = heddle.var("PATH", "/usr/bin:/bin").build().unwrap();
        let controls = Arc::new(Controls::new(streams));
        let mut running =
            start(&heddle, spec(script, streams), Arc::clone(&controls)).await.unwrap();
        control(&controls).await;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match running.next().await {
                CommandEvent::Output { stream: OutputStream::Stdout, bytes } => {
                    stdout.extend(bytes);
                }
                CommandEvent::Output { stream: OutputStream::Stderr, bytes } => {
                    stderr.extend(bytes);
                }
                CommandEvent::Exited { code, drained } => {
                    let text = |bytes| String::from_utf8(bytes).unwrap();
                    return (code, text(stdout), text(stderr), drained);
                }
            }
        }
    }

    #[tokio::test]
    async fn commands() {
        let (none, input) = (Streams::Pipes { input: false }, Streams::Pipes { input: true });
        for (script, streams, want) in [
            ("echo o; echo e >&2; exit 3", none, (3, "o\n", "e\n")),
            ("echo $GONE-$KEPT-$ADDED", none, (0, "-k-a\n", "")),
            ("cat", none, (0, "", "")),
            ("kill -9 $$", none, (137, "", "")),
            ("sleep 60 & echo now", none, (0, "now\n", "")),
            ("cat; echo after", input, (0, "typed\nafter\n", "")),
        ] {
            let (code, stdout, stderr, drained) = run(script, streams, async |controls| {
                if streams == input {
                    controls.write(b"typed\n".to_vec()).unwrap();
                    controls.close_input().unwrap();
                    assert_eq!(controls.write(vec![1]), Err(InputError::Closed));
                } else {
                    assert_eq!(controls.write(vec![1]), Err(InputError::None));
                    assert_eq!(controls.close_input(), Err(InputError::None));
                }
                assert!(!controls.resize(TerminalSize { rows: 1, columns: 1 }));
            })
            .await;
            assert_eq!((code, &*stdout, &*stderr), want, "{script}");
            assert!(drained, "{script}");
        }
    }

    /// A process that leaves the group keeps the output open, but is not waited for.
    #[tokio::test]
    async fn the_end_is_not_put_off() {
        let (code, stdout, _, drained) = run(
            "setsid sleep 5 & sleep 0.2; echo now",
            Streams::Pipes { input: false },
            async |_| {},
        )
        .await;
        assert_eq!((code, &*stdout, drained), (0, "now\n", false));
    }

    #[tokio::test]
    async fn killed() {
        for (streams, want) in
            [(Streams::Pipes { input: false }, 137), (Streams::Terminal(None), 1)]
        {
            let (code, ..) = run("sleep 60", streams, async |controls| controls.kill()).await;
            assert_eq!(code, want);
        }
        // All of a large output comes, although its reader is slow.
        let flood = run(
            "head -c 300000 /dev/zero | tr '\\0' x",
            Streams::Pipes { input: false },
            async |_| {
                tokio::time::sleep(2 * DRAIN).await;
            },
        );
        assert_eq!(flood.await.1.len(), 300_000);
    }

    #[tokio::test]
    async fn terminals() {
        let size = |rows, columns| TerminalSize { rows, columns };
        let script = "stty size; read a; stty size; cat; echo end";
        let (code, stdout, ..) =
            run(script, Streams::Terminal(Some(size(11, 33))), async |controls| {
                assert!(controls.resize(size(22, 44)));
                controls.write(b"one\ntw".to_vec()).unwrap();
                controls.write(b"o".to_vec()).unwrap();
                controls.close_input().unwrap();
            })
            .await;
        assert!(code == 0 && stdout.ends_with("end\r\n"), "{code} {stdout}");
        assert!(stdout.contains("22 44") && stdout.contains("two"), "{stdout}");
    }

    #[tokio::test]
    async fn what_nobody_reads_has_a_bound() {
        let (code, ..) = run("sleep 60", Streams::Pipes { input: true }, async |controls| {
            let half = vec![0; INPUT_WAITING_BYTES_MAX / 2];
            for _ in 0..2 {
                controls.write(half.clone()).unwrap();
            }
            assert_eq!(controls.write(half), Err(InputError::Full));
            controls.kill();
        })
        .await;
        assert_eq!(code, 137);
    }

    #[tokio::test]
    async fn what_cannot_start() {
        let home = tempfile::tempdir().unwrap();
        let heddle = Heddle::builder().home(home.path()).build().unwrap();
        let streams = Streams::Pipes { input: false };
        let start = |argv: &[&str], confined| {
            let argv = argv.iter().map(|word| (*word).to_owned()).collect();
            let spec = CommandSpec { argv, confined, ..spec("", streams) };
            start(&heddle, spec, Arc::new(Controls::new(streams)))
        };
        let missing = start(&["/no/such/program"], false).await.unwrap_err();
        assert!(missing.to_string().contains("(os error 2)"), "{missing}");
        assert!(matches!(start(&[], false).await, Err(StartError::Spawn(SpawnError::Empty))));
        // This program is no helper that could build a sandbox.
        assert!(matches!(start(&["true"], true).await, Err(StartError::Setup(_))));
    }
}
