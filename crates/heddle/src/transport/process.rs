//! A running program: its lines, its stderr, and its end.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use stdx::HeadTail;
use stdx::lines::{Cut, Lines};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::transport::error::{Exit, Printed, TransportError};

/// Bounds on what a program may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Longest line on stdout, in bytes.
    pub(crate) line_bytes_max: usize,
    /// Longest time until it prints its first line.
    pub(crate) startup_max: Duration,
    /// Longest time without output during a turn.
    pub(crate) silence_max: Duration,
}

/// A running program. Dropping this ends the program: first with a signal, then by force if it does not exit.
///
/// Nothing is read unless [`next_line`](Self::next_line) is polled, so a slow reader makes the program wait.
#[derive(Debug)]
pub(crate) struct Process {
    program: String,
    child: Option<Child>,
    input: Option<Writing>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    lines: Option<Lines>,
    cuts: VecDeque<Cut>,
    printed: HeadTail,
    secrets: Vec<String>,
    limits: Limits,
    /// How long it may print nothing, and a clause for the error: what was going on meanwhile.
    patience: Option<(Duration, &'static str)>,
    /// When it last wrote to stdout, or read its input. Output on stderr does not count as progress.
    heard: Instant,
    /// The first signal that ends it.
    asks_to_end: Signal,
    /// Locked until the program is gone.
    held: Option<OwnedMutexGuard<()>>,
    buffer: Box<[u8]>,
    errors: Box<[u8]>,
}

/// Input that is still to be written to stdin, which is then closed.
#[derive(Debug)]
struct Writing {
    stdin: ChildStdin,
    bytes: Vec<u8>,
    written: usize,
}

impl Process {
    pub(crate) fn start(
        program: String,
        mut command: Command,
        input: Option<Vec<u8>>,
        secrets: Vec<String>,
        limits: Limits,
    ) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let input = match (stdin, input) {
            (Some(stdin), Some(bytes)) => Some(Writing { stdin, bytes, written: 0 }),
            (stdin, None) => {
                // A caller without a fixed input takes stdin and writes to it.
                child.stdin = stdin;
                None
            }
            (None, Some(_)) => None,
        };
        Ok(Self {
            program,
            input,
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            child: Some(child),
            lines: Some(Lines::with_limit(limits.line_bytes_max)),
            cuts: VecDeque::new(),
            printed: HeadTail::new(PRINTED_BYTES / 2, PRINTED_BYTES / 2),
            secrets,
            limits,
            patience: None,
            heard: Instant::now(),
            asks_to_end: Signal::INT,
            held: None,
            buffer: vec![0; READ_BYTES].into(),
            errors: vec![0; PRINTED_BYTES].into(),
        })
    }

    /// Ends it with SIGTERM instead of SIGINT, as for a server.
    pub(crate) fn ends_as_server(mut self) -> Self {
        self.asks_to_end = Signal::TERM;
        self
    }

    /// Keeps a lock until the program has exited, even after this was dropped.
    pub(crate) fn holding(mut self, lock: OwnedMutexGuard<()>) -> Self {
        self.held = Some(lock);
        self
    }

    /// Takes stdin, if the program was started without an input.
    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.as_mut().and_then(|child| child.stdin.take())
    }

    /// Sets how long it may print nothing from now on, and the clause for the error.
    pub(crate) fn wait_for(&mut self, limit: Duration, what: &'static str) {
        self.patience = Some((limit, what));
    }

    /// Returns the next line, or none when the program has closed its output. May be dropped and called again.
    pub(crate) async fn next_line(&mut self) -> Result<Option<Vec<u8>>, TransportError> {
        loop {
            match self.cuts.pop_front() {
                Some(Cut::Line(line)) => return Ok(Some(line)),
                Some(Cut::Overlong(_)) => {
                    return Err(TransportError::LineTooLong {
                        program: self.program.clone(),
                        limit: self.limits.line_bytes_max,
                        printed: self.printed(),
                    });
                }
                None => {}
            }
            if self.lines.is_none() {
                return Ok(None);
            }
            let deadline = self
                .patience
                .and_then(|(limit, what)| Some((self.heard.checked_add(limit)?, limit, what)));
            let Some((deadline, limit, what)) = deadline else {
                self.exchange().await?;
                continue;
            };
            match timeout_at(deadline, self.exchange()).await {
                Ok(done) => done?,
                // Output that arrived while this was not polled is seen only after the runtime has polled the pipe.
                Err(_) => self.hear_within(LATE_TIMEOUT).await?,
            }
            let is_late = self.heard.checked_add(limit).is_some_and(|end| end <= Instant::now());
            if is_late && self.lines.is_some() {
                return Err(self.timed_out_after(limit, what));
            }
        }
    }

    /// Reads and writes for a short time, or until the program makes progress.
    async fn hear_within(&mut self, limit: Duration) -> Result<(), TransportError> {
        let (before, end) = (self.heard, Instant::now() + limit);
        while self.heard == before && Instant::now() < end {
            match timeout_at(end, self.exchange()).await {
                Ok(done) => done?,
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Makes the next possible step: reads stdout, writes stdin or reads stderr.
    async fn exchange(&mut self) -> Result<(), TransportError> {
        let Self { input, stdout, stderr, buffer, errors, .. } = self;
        let write = async {
            match input {
                Some(Writing { stdin, bytes, written }) if *written < bytes.len() => {
                    stdin.write(&bytes[*written..]).await
                }
                Some(_) => Ok(0),
                None => std::future::pending().await,
            }
        };
        let read = async {
            match stdout {
                Some(stdout) => stdout.read(buffer).await,
                None => Ok(0),
            }
        };
        let read_errors = async {
            match stderr {
                Some(stderr) => stderr.read(errors).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            read = read => self.read(read)?,
            written = write => self.wrote(written),
            // Last, as a program may print on stderr without end.
            read = read_errors => self.read_errors(read),
        }
        Ok(())
    }

    fn wrote(&mut self, result: io::Result<usize>) {
        match (result, &mut self.input) {
            (Ok(count), Some(writing)) if count > 0 => {
                writing.written += count;
                self.heard = Instant::now();
            }
            // Everything is written, or the program has closed stdin: then its exit or its silence is reported.
            _ => self.input = None,
        }
    }

    fn read(&mut self, result: io::Result<usize>) -> Result<(), TransportError> {
        self.heard = Instant::now();
        match result {
            Ok(0) => {
                let last = self.lines.take().and_then(Lines::finish);
                self.cuts.extend(last);
                self.stdout = None;
            }
            Ok(count) => {
                if let Some(lines) = &mut self.lines {
                    self.cuts.extend(lines.push(&self.buffer[..count]));
                    if lines.is_overlong() {
                        self.cuts.push_back(Cut::Overlong(Vec::new()));
                    }
                }
            }
            Err(error) => {
                return Err(TransportError::Disconnected {
                    program: self.program.clone(),
                    reason: error.to_string(),
                    printed: self.printed(),
                });
            }
        }
        Ok(())
    }

    fn read_errors(&mut self, result: io::Result<usize>) {
        match result {
            Ok(count) if count > 0 => self.printed.push(&self.errors[..count]),
            _ => self.stderr = None,
        }
    }

    /// Waits until the program has ended, for a limited time.
    pub(crate) async fn end(&mut self) -> Option<Exit> {
        let mut child = self.child.take()?;
        // Its output is read on, so that it does not block on a full pipe.
        let drain = async {
            while self.stdout.is_some() || self.stderr.is_some() {
                let no_output = self.stdout.is_none();
                if no_output {
                    let Self { stderr: Some(stderr), errors, .. } = self else { break };
                    let read = stderr.read(errors).await;
                    self.read_errors(read);
                } else if self.exchange().await.is_err() {
                    break;
                }
                self.cuts.clear();
            }
        };
        let status = {
            let (mut drain, mut drained) = (std::pin::pin!(drain), false);
            let mut wait = std::pin::pin!(timeout(END_TIMEOUT, child.wait()));
            let status = loop {
                tokio::select! {
                    status = &mut wait => break status.ok().and_then(Result::ok),
                    () = &mut drain, if !drained => drained = true,
                }
            };
            // Its last output is in the pipe; but a process that it has started may hold the pipe open.
            if !drained {
                let _ = timeout(LAST_WORDS_TIMEOUT, drain).await;
            }
            status
        };
        match status {
            Some(status) => Some(exit(status)),
            None => {
                self.child = Some(child);
                None
            }
        }
    }

    /// Asks the program to interrupt its turn; the program logs the interruption.
    pub(crate) fn interrupt(&self) {
        signal(self.child.as_ref(), Signal::INT);
    }

    /// Returns the error for a program that ended before its turn.
    pub(crate) async fn ended_early(&mut self) -> TransportError {
        match self.end().await {
            Some(exit) => {
                let (program, printed) = (self.program.clone(), self.printed());
                TransportError::Exited { program, exit, printed }
            }
            None => TransportError::Disconnected {
                program: self.program.clone(),
                reason: "it closed its output and did not end".to_owned(),
                printed: self.printed(),
            },
        }
    }

    /// Returns the error for a program that ended like this after its turn was completed.
    pub(crate) fn failed_at_end(&self, exit: Exit) -> TransportError {
        let (program, printed) = (self.program.clone(), self.printed());
        TransportError::FailedAtEnd { program, exit, printed }
    }

    /// Returns the error for a program that has printed nothing since it was started.
    pub(crate) fn timed_out(&self, waiting_for: &'static str) -> TransportError {
        self.timed_out_after(self.limits.startup_max, waiting_for)
    }

    fn timed_out_after(&self, waited: Duration, waiting_for: &'static str) -> TransportError {
        let (program, printed) = (self.program.clone(), self.printed());
        TransportError::TimedOut { program, waited, waiting_for, printed }
    }

    pub(crate) fn malformed(&self, line: &[u8], reason: String) -> TransportError {
        let shown = String::from_utf8_lossy(&line[..line.len().min(4 * LINE_CHARS_MAX)]);
        let shown: String = shown.chars().take(LINE_CHARS_MAX).collect();
        let line = self.masked(stdx::visible::line(&shown).into_owned());
        // It may quote the line.
        let reason: String = reason.chars().take(2 * LINE_CHARS_MAX).collect();
        let reason = self.masked(stdx::visible::line(&reason).into_owned());
        TransportError::Malformed {
            program: self.program.clone(),
            reason,
            line,
            printed: self.printed(),
        }
    }

    /// Returns what was printed on stderr so far, without secrets.
    pub(crate) fn printed(&self) -> Printed {
        Printed(self.masked(stdx::visible::lines(&self.printed.to_text()).into_owned()))
    }

    fn masked(&self, text: String) -> String {
        let mut text = policy::mask_secrets(&text);
        for secret in &self.secrets {
            if text.contains(secret) {
                text = text.replace(secret, "[redacted]");
            }
        }
        text
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        signal(Some(&child), self.asks_to_end);
        let Ok(runtime) = Handle::try_current() else {
            // Without a runtime, no task can wait for it to exit.
            let _ = child.start_kill();
            return;
        };
        // Its output is read on, so that it neither blocks on a full pipe nor ends because of a closed one.
        let (mut stdout, mut stderr) = (self.stdout.take(), self.stderr.take());
        let held = self.held.take();
        self.input = None;
        runtime.spawn(async move {
            let drain = async {
                let mut sink = tokio::io::sink();
                if let Some(stdout) = &mut stdout {
                    let _ = tokio::io::copy(stdout, &mut sink).await;
                }
            };
            let drain_errors = async {
                let mut sink = tokio::io::sink();
                if let Some(stderr) = &mut stderr {
                    let _ = tokio::io::copy(stderr, &mut sink).await;
                }
            };
            let patience = async {
                sleep(INTERRUPT_PATIENCE).await;
                signal_pid(child.id(), Signal::TERM);
                sleep(TERMINATE_PATIENCE).await;
            };
            tokio::select! {
                () = patience => {}
                () = async { tokio::join!(drain, drain_errors); } => {
                    let _ = timeout(INTERRUPT_PATIENCE, child.wait()).await;
                }
            }
            let _ = child.kill().await;
            drop(held);
        });
    }
}

fn signal(child: Option<&Child>, signal: Signal) {
    signal_pid(child.and_then(Child::id), signal);
}

fn signal_pid(id: Option<u32>, signal: Signal) {
    let id = id.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(id) = id {
        let _ = kill_process(id, signal);
    }
}

fn exit(status: std::process::ExitStatus) -> Exit {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}

/// How long to read once more from a program that seems to be silent.
pub(crate) const LATE_TIMEOUT: Duration = Duration::from_millis(100);
/// Bytes per read.
const READ_BYTES: usize = 64 << 10;
/// Bytes of stderr that are kept.
const PRINTED_BYTES: usize = 16 << 10;
/// Characters of a line that an error shows.
const LINE_CHARS_MAX: usize = 200;
/// How long a dropped program takes to exit, at most: SIGINT, SIGTERM, SIGKILL.
pub(crate) const GONE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for the output of a program that has ended.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a program may take to end after its last line.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an interrupted program has to log the interruption before it gets SIGTERM.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(2);
/// How long it then has before it gets SIGKILL.
const TERMINATE_PATIENCE: Duration = Duration::from_secs(1);
