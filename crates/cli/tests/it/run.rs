//! Runs the binary and observes it: reads output as it arrives, sends signals, and checks what is left afterwards.
//!
//! Nothing here depends on timing. Every wait is for a condition; if that is not met within [`LIMIT`], the
//! test fails and shows the output so far.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use testkit::{Lab, ModelServer};

use crate::{BINARY, PARENT};

/// The longest any wait may take. No test comes near it on an idle machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Creates directories for one run; the workspace looks like a repository.
pub(crate) fn lab() -> Lab {
    let lab = Lab::new_in(Path::new(PARENT)).unwrap();
    lab.workspace.write(".git/HEAD", "ref: refs/heads/main\n").unwrap();
    lab
}

/// Creates directories for one run, with a configuration that points to `server`.
pub(crate) fn lab_for(server: &ModelServer) -> Lab {
    let lab = lab();
    lab.home.write_mock_config(server.port()).unwrap();
    lab
}

/// Prepares `heddle exec --json` with extra arguments.
pub(crate) fn exec(lab: &Lab, args: &[&str]) -> Command {
    let mut command = lab.command(BINARY);
    command.args(["exec", "--json"]).args(args);
    command
}

/// Waits until `ready` returns something.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A run of the binary, killed on drop if it is still running.
#[derive(Debug)]
pub(crate) struct Run {
    child: Child,
    started: Instant,
    stdin: Option<ChildStdin>,
    stdout: Arc<Seen>,
    stderr: Arc<Seen>,
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Run {
    /// Starts a run with empty stdin.
    pub(crate) fn start(command: Command) -> Self {
        let mut run = Self::start_open(command);
        run.stdin = None;
        run
    }

    /// Starts a run and leaves its stdin open.
    pub(crate) fn start_open(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.process_group(0).spawn().unwrap();
        let stdout = Seen::read(child.stdout.take().unwrap());
        let stderr = Seen::read(child.stderr.take().unwrap());
        let stdin = child.stdin.take();
        Self { child, started, stdin, stdout, stderr }
    }

    /// Starts a run with `text` as its stdin.
    pub(crate) fn start_with(command: Command, text: &[u8]) -> Self {
        let mut run = Self::start_open(command);
        // A program that has seen enough may close its end.
        let _ = run.say(text);
        run
    }

    /// Writes to its stdin and closes it.
    pub(crate) fn say(&mut self, text: &[u8]) -> io::Result<()> {
        self.stdin.take().unwrap().write_all(text)
    }

    /// Waits until `text` has been printed.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        if !self.stdout.wait(LIMIT, |seen| seen.contains(text)) {
            panic!("no {text:?} in {:?}\n{:?}", self.stdout.text(), self.stderr.text());
        }
    }

    /// Waits until `count` lines have been printed, or until no more can come.
    #[track_caller]
    pub(crate) fn wait_for_lines(&self, count: usize) {
        let came = self
            .stdout
            .wait(LIMIT, |seen| seen.bytes().filter(|&byte| byte == b'\n').count() >= count);
        assert!(came || self.stdout.wait_end(Duration::ZERO), "fewer than {count} lines: {self:?}");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends a signal, unless the process has already ended.
    pub(crate) fn signal_if_there(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits for the end, and returns the peak memory in KiB.
    #[track_caller]
    pub(crate) fn end_watched(mut self) -> (Ended, u64) {
        let status = format!("/proc/{}/status", self.child.id());
        let mut peak = 0;
        until("the end of the run", || {
            // The kernel records the peak, so nothing is missed between two samples.
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
            peak = kib.unwrap_or(0).max(peak);
            self.child.try_wait().unwrap()
        });
        (self.end(), peak)
    }

    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let status = until("the end of the run", || self.child.try_wait().unwrap());
        let took = self.started.elapsed();
        for seen in [&self.stdout, &self.stderr] {
            // A process left running would keep the pipe open.
            assert!(seen.wait_end(LIMIT), "the output goes on after the end: {self:?}");
        }
        let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
        Ended { code: status.code(), stdout, stderr, took }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            // Both fail only if the process has already ended.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Ended {
    /// Parses the lines of stdout, each of which must be a complete event.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Value> {
        assert!(self.stdout.is_empty() || self.stdout.ends_with('\n'), "cut: {self:?}");
        let event = |line: &str| {
            let event: Value = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{line:?} is no event ({error}): {self:?}"));
            assert!(event["type"].is_string(), "{line:?} has no type: {self:?}");
            event
        };
        self.stdout.lines().map(event).collect()
    }
}

/// What was read from a pipe so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    state: Mutex<(Vec<u8>, bool)>,
    changed: Condvar,
}

impl Seen {
    pub(crate) fn read(mut pipe: impl Read + Send + 'static) -> Arc<Self> {
        let seen = Arc::new(Self::default());
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            let mut buffer = [0; 8192];
            loop {
                let length = pipe.read(&mut buffer).unwrap_or(0);
                let mut state = shared.state.lock().unwrap();
                state.0.extend_from_slice(&buffer[..length]);
                state.1 = length == 0;
                shared.changed.notify_all();
                if length == 0 {
                    return;
                }
            }
        });
        seen
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.state.lock().unwrap().0).into_owned()
    }

    pub(crate) fn wait(&self, limit: Duration, ready: impl Fn(&str) -> bool) -> bool {
        let state = self.state.lock().unwrap();
        let waits =
            |state: &mut (Vec<u8>, bool)| !ready(&String::from_utf8_lossy(&state.0)) && !state.1;
        let (state, _) = self.changed.wait_timeout_while(state, limit, waits).unwrap();
        ready(&String::from_utf8_lossy(&state.0))
    }

    pub(crate) fn wait_end(&self, limit: Duration) -> bool {
        let state = self.state.lock().unwrap();
        let (state, _) = self.changed.wait_timeout_while(state, limit, |state| !state.1).unwrap();
        state.1
    }
}
