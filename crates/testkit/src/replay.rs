//! Replays recorded runs of the reference agent against another binary.
//!
//! A recording contains the setup (config, files), the model's answers, the command lines and what the
//! reference did. Each one runs in its own [`Lab`] against a [`ModelServer`]; the [`view`] of both sides must
//! be equal. Those that need a prepared rollout are skipped.

mod rpc;
pub mod view;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::Deserialize;
use serde_json::Value;

use crate::lab::Lab;
use crate::server::{ModelServer, StartError};

/// The result of a replay without a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The binary did what the reference did.
    Same,
    /// The recording cannot be replayed, for this reason.
    Skipped(&'static str),
}

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The binary behaved differently; the text describes the first difference.
    #[error("{0}")]
    Differs(String),
    /// The recording is invalid.
    #[error("cannot read {}: {source}", path.display())]
    Recording { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Model(#[from] StartError),
    /// The directories could not be created or the binary could not be started.
    #[error("cannot set up the run: {0}")]
    SetUp(#[from] io::Error),
}

/// Replays the recording in `path` with `binary`, in directories created under `parent`.
///
/// Sandbox profiles leave the system's temporary directory writable, so recordings about what they forbid
/// need a `parent` outside it.
pub fn replay(binary: &Path, path: &Path, parent: &Path) -> Result<Outcome, ReplayError> {
    let unreadable = |source| ReplayError::Recording { path: path.to_owned(), source };
    let text = fs::read(path).map_err(unreadable)?;
    let recording = serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))?;
    replay_recording(binary, recording, parent)
}

fn replay_recording(
    binary: &Path,
    recording: Recording,
    parent: &Path,
) -> Result<Outcome, ReplayError> {
    if let Some(reason) = recording.reason_to_skip() {
        return Ok(Outcome::Skipped(reason));
    }
    let Recording { name, runs, requests, after, .. } = &recording;
    let server = ModelServer::start(recording.model.clone())?;
    let lab = Lab::new_in(parent)?;
    let place = Place::new(&lab, server.port());
    place.set_up(&recording)?;

    let same_order = !UNORDERED.contains(&name.as_str());
    let mut thread_ids = HashMap::new();
    for run in runs {
        let argv = run.argv.iter().map(|word| {
            let word = place.fill(word);
            thread_ids.get(&word).cloned().unwrap_or(word)
        });
        let mut command = lab.command(binary);
        command.args(argv);
        command.envs(recording.env.iter().map(|(name, value)| (name, place.fill(value))));
        if let Some(steps) = &run.steps {
            let mut client = rpc::Client::start(command, place.texts())?;
            for step in steps {
                let shell = |script: &str| {
                    let mut shell = lab.command("sh");
                    shell.args(["-c", script]);
                    shell
                };
                client.step(step, shell).map_err(ReplayError::Differs)?;
            }
            let mask_ids = |text: &str| view::mask_ids(text).into_owned();
            let want: Vec<_> = run.rpc.iter().map(|it| rpc::masked(it, mask_ids)).collect();
            let got: Vec<_> =
                client.end().iter().map(|it| rpc::masked(it, |text| place.mask(text))).collect();
            let (mut want, mut got) = (rpc::messages(&want), rpc::messages(&got));
            if !same_order {
                (want, got) = (view::unordered(&want), view::unordered(&got));
            }
            differs(view::first_difference("message", &want, &got))?;
            continue;
        }
        let (status, output) = run_to_end(command, run)?;
        let output = view::lines(&output);
        thread_ids.extend(matching_thread_ids(&run.stdout, &output));

        if status.success() != (run.exit == 0) {
            let want = if run.exit == 0 { "0" } else { "a failure" };
            return Err(ReplayError::Differs(format!("exit code: want {want} got {status}")));
        }
        let want: Vec<_> = run.stdout.iter().map(|line| view::mask_ids(line)).collect();
        let got: Vec<_> = output.iter().map(|line| place.mask(line)).collect();
        let (mut want, mut got) = (view::events(&want), view::events(&got));
        if !same_order {
            (want, got) = (view::unordered(&want), view::unordered(&got));
        }
        differs(view::first_difference("event", &want, &got))?;
    }

    let want = map_files(after, |text| view::mask_ids(text).into_owned());
    let got = map_files(&lab.workspace.files()?, |text| place.mask(text));
    differs(view::first_file_difference(&want, &got))?;

    let seen = server.requests();
    let posted = seen.iter().filter(|request| request.method == "POST");
    let want = joined(view::requests(requests));
    let got = joined(view::requests(posted.map(|request| &request.body)));
    differs(view::first_difference("request", &want, &got))?;
    Ok(Outcome::Same)
}

#[derive(Debug, Deserialize)]
struct Recording {
    name: String,
    config: String,
    env: BTreeMap<String, String>,
    git: bool,
    files: BTreeMap<String, Body>,
    home_files: BTreeMap<String, Body>,
    model: Value,
    runs: Vec<Run>,
    requests: Vec<Value>,
    after: BTreeMap<String, Value>,
    #[serde(default)]
    mutation: Value,
    #[serde(default)]
    input_rollout: Value,
}

#[derive(Debug, Deserialize)]
struct Run {
    argv: Vec<String>,
    #[serde(default)]
    stdin: Option<String>,
    /// A signal number, as text.
    #[serde(default)]
    signal: Option<String>,
    #[serde(default)]
    exit: i32,
    #[serde(default)]
    timed_out: Option<bool>,
    #[serde(default)]
    stdout: Vec<String>,
    /// What a client of a server did.
    #[serde(default)]
    steps: Option<Vec<Value>>,
    /// What the server said.
    #[serde(default)]
    rpc: Vec<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Body {
    Text(String),
    Bytes { base64: String },
}

impl Recording {
    fn reason_to_skip(&self) -> Option<&'static str> {
        if !self.mutation.is_null() || !self.input_rollout.is_null() {
            return Some("needs a prepared rollout");
        }
        if self.runs.iter().any(|run| run.argv.is_empty() || run.timed_out == Some(true)) {
            return Some("is not replayable as recorded");
        }
        None
    }
}

/// The directories of one replay and their placeholders in a recording.
struct Place<'a> {
    lab: &'a Lab,
    vars: [(&'static str, String); 5],
}

impl<'a> Place<'a> {
    fn new(lab: &'a Lab, port: u16) -> Self {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        // The root comes after what it is a prefix of.
        let vars = [
            ("${WS}", text(lab.workspace.path())),
            ("${HOME}", text(lab.home.path())),
            ("${UHOME}", text(lab.home.user())),
            ("${LAB}", text(lab.root())),
            ("${PORT}", port.to_string()),
        ];
        Self { lab, vars }
    }

    /// Returns the texts behind the placeholders, by the names that steps use.
    fn texts(&self) -> BTreeMap<String, Value> {
        let bare = |name: &str| name.trim_start_matches("${").trim_end_matches('}').to_owned();
        self.vars.iter().map(|(name, text)| (bare(name), Value::from(text.clone()))).collect()
    }

    fn set_up(&self, recording: &Recording) -> io::Result<()> {
        fs::create_dir_all(OUTSIDE)?;
        self.lab.home.write("config.toml", self.fill(&recording.config))?;
        for (name, body) in &recording.home_files {
            self.lab.home.write(name, self.bytes(body)?)?;
        }
        for (name, body) in &recording.files {
            self.lab.workspace.write(name, self.bytes(body)?)?;
        }
        if recording.git { self.lab.workspace.git_init() } else { Ok(()) }
    }

    fn bytes(&self, body: &Body) -> io::Result<Vec<u8>> {
        match body {
            Body::Text(text) => Ok(self.fill(text).into_bytes()),
            Body::Bytes { base64 } => STANDARD.decode(base64).map_err(io::Error::other),
        }
    }

    fn fill(&self, text: &str) -> String {
        let fill = |text: String, (var, value): &(&str, String)| text.replace(var, value);
        self.vars.iter().fold(text.to_owned(), fill)
    }

    fn mask(&self, text: &str) -> String {
        let mask = |text: String, (var, value): &(&str, String)| match *var {
            "${PORT}" => text,
            var => text.replace(value, var),
        };
        view::mask_ids(&self.vars.iter().fold(text.to_owned(), mask)).into_owned()
    }
}

fn run_to_end(
    mut command: std::process::Command,
    run: &Run,
) -> Result<(ExitStatus, String), ReplayError> {
    let stdin = if run.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let deadline = Instant::now() + RUN_LIMIT;
    let mut child = command.spawn()?;

    if let (Some(mut pipe), Some(text)) = (child.stdin.take(), run.stdin.clone()) {
        // A binary that does not read its input closes the pipe, which is fine.
        thread::spawn(move || {
            let _ = pipe.write_all(text.as_bytes());
        });
    }
    let (sender, output) = mpsc::channel();
    if let Some(mut pipe) = child.stdout.take() {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = pipe.read_to_end(&mut bytes).map(|_| bytes);
            let _ = sender.send(read);
        });
    }

    let mut wait = RUN_LIMIT;
    let mut signal = run.signal.as_deref().and_then(|number| number.parse().ok());
    if signal.is_some() {
        wait = SIGNAL_AFTER;
    }
    let bytes = loop {
        match output.recv_timeout(wait) {
            Ok(bytes) => break bytes?,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(signal) = signal.take().and_then(Signal::from_named_raw)
                    && child.try_wait()?.is_none()
                {
                    kill_process(pid_of(&child), signal).map_err(io::Error::from)?;
                }
                wait = deadline.saturating_duration_since(Instant::now());
                if wait.is_zero() {
                    return Err(give_up(&mut child));
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the reader of the output died").into());
            }
        }
    };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, String::from_utf8_lossy(&bytes).into_owned()));
        }
        if Instant::now() >= deadline {
            return Err(give_up(&mut child));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Kills a run that takes too long, with everything it started.
fn give_up(child: &mut Child) -> ReplayError {
    // Both fail only if nothing is left to kill.
    let _ = kill_process_group(pid_of(child), Signal::KILL);
    let _ = child.wait();
    ReplayError::Differs(format!("did not finish in {} s", RUN_LIMIT.as_secs()))
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Pairs the thread ids of the recording with those of this run, for command lines that contain one.
fn matching_thread_ids(want: &[String], got: &[&str]) -> Vec<(String, String)> {
    let id = |line: &str| {
        let event: Value = serde_json::from_str(line).ok()?;
        let started = event["type"] == "thread.started";
        started.then(|| event["thread_id"].as_str().map(str::to_owned))?
    };
    want.iter().zip(got).filter_map(|(want, got)| Some((id(want)?, id(got)?))).collect()
}

fn map_files(
    files: &BTreeMap<String, Value>,
    change: impl Fn(&str) -> String,
) -> BTreeMap<String, Value> {
    files.iter().map(|(name, file)| (name.clone(), view::map_strings(file, &change))).collect()
}

fn joined(requests: Vec<Vec<String>>) -> Vec<String> {
    requests.iter().map(|items| format!("[{}]", items.join(", "))).collect()
}

fn differs(difference: Option<String>) -> Result<(), ReplayError> {
    difference.map_or(Ok(()), |text| Err(ReplayError::Differs(text)))
}

const RUN_LIMIT: Duration = Duration::from_secs(90);
/// When the recorder sent its signal.
const SIGNAL_AFTER: Duration = Duration::from_secs(2);
/// A path outside every root, which some recordings use.
const OUTSIDE: &str = "/var/tmp/heddle-replay";
/// Recordings in which calls run concurrently and end in any order.
const UNORDERED: [&str; 4] =
    ["exec_mcp_failure", "exec_parallel_tool_calls", "exec_spawn_agent", "app_spawn_agent"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "01a1e059-00de-7f60-8864-f0a44240ca80";

    /// Replays a recording of one shell command, modified by `change`.
    #[track_caller]
    fn check(sh: &str, change: Value, want: Result<Outcome, &str>) {
        let mut recording = json!({
            "name": "test", "config": "port = ${PORT}\n", "env": { "EXTRA": "${WS}" }, "git": false,
            "files": {}, "home_files": {}, "model": [], "requests": [], "after": {},
            "runs": [{ "argv": ["-c", sh], "stdin": null, "signal": null, "exit": 0, "stdout": [] }],
        });
        for (pointer, value) in change.as_object().unwrap() {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            recording.pointer_mut(parent).unwrap()[name] = value.clone();
        }
        let recording = serde_json::from_value(recording).unwrap();
        let got = replay_recording(Path::new("/bin/sh"), recording, &std::env::temp_dir());
        match (got.map_err(|error| error.to_string()), want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want),
            (Err(got), Err(want)) if got.contains(want) => {}
            (got, want) => panic!("want {want:?} got {got:?}"),
        }
    }

    const SAME: Result<Outcome, &str> = Ok(Outcome::Same);

    #[test]
    fn what_is_compared() {
        check("true", json!({}), SAME);
        check("exit 3", json!({}), Err("exit code: want 0 got exit status: 3"));
        check("exit 3", json!({ "/runs/0/exit": 1 }), SAME);
        check("kill -9 $$", json!({ "/runs/0/exit": 1 }), SAME);
        check("true", json!({ "/runs/0/exit": 1 }), Err("exit code: want a failure"));
        check("echo $EXTRA; pwd", json!({ "/runs/0/stdout": ["${WS}", "${WS}"] }), SAME);
        check("echo hi", json!({}), Err("event 0: want (nothing) got text hi"));
        check("cat", json!({ "/runs/0/stdin": "in", "/runs/0/stdout": ["in"] }), SAME);
        check(
            "cat $HEDDLE_HOME/config.toml | tr -d 0-9",
            json!({ "/runs/0/stdout": ["port = "] }),
            SAME,
        );
        check("echo x > new", json!({}), Err("file new: want null"));
        let files = json!({ "/files": { "a": { "base64": "/w==" } }, "/after": { "a": { "base64": "/w==", "mode": "644" } } });
        check("true", files, SAME);
        check("true", json!({ "/requests": [{}] }), Err("request 0: want [] got (nothing)"));
        check("git log --format=%s", json!({ "/git": true, "/runs/0/stdout": ["init"] }), SAME);
    }

    #[test]
    fn what_is_skipped() {
        let skipped = |reason| Ok(Outcome::Skipped(reason));
        check("true", json!({ "/mutation": {} }), skipped("needs a prepared rollout"));
        let as_recorded = skipped("is not replayable as recorded");
        check("true", json!({ "/runs/0/timed_out": true }), as_recorded);
        check("true", json!({ "/runs/0/argv": [] }), as_recorded);
    }

    /// A server that answers every line with the same one.
    #[test]
    fn conversations() {
        let server = r#"while read -r line; do echo '{"id":1,"result":{"t":"x"}}'; done"#;
        let sent = json!({"send": {"id": 1, "method": "m"}});
        let awaited = json!({"wait_response": 1, "save": {"tid": "result.t"}});
        let said = json!([{"id": 1, "result": {}}]);
        let talk = |steps: Value, rpc: &Value| json!({"/runs/0/steps": steps, "/runs/0/rpc": rpc});
        check(server, talk(json!([sent, awaited]), &said), SAME);
        check(
            server,
            talk(json!([sent, awaited]), &json!([])),
            Err("message 0: want (nothing) got reply 1 ok"),
        );
        let error = json!([{"id": 1, "error": {"code": -1}}]);
        check(
            server,
            talk(json!([sent, awaited]), &error),
            Err("want reply 1 error -1 got reply 1 ok"),
        );
        let late = json!({"wait_response": 2, "timeout": 0.01});
        check(server, talk(json!([sent, late]), &said), Err("no answer to"));
        let sh = json!({"sh": "echo ${tid} > $HEDDLE_HOME/x; test -f $HEDDLE_HOME/x"});
        check(server, talk(json!([sent, awaited, sh]), &said), SAME);
    }

    #[test]
    fn later_runs_name_the_thread_of_this_run() {
        let here = "11111111-1111-1111-1111-111111111111";
        let started = |id: &str| format!(r#"{{"type":"thread.started","thread_id":"{id}"}}"#);
        let first =
            json!({ "argv": ["-c", format!("echo '{}'", started(here))], "stdout": [started(ID)] });
        let second =
            json!({ "argv": ["-c", "test $1 = 11111111-1111-1111-1111-111111111111", "sh", ID] });
        check("true", json!({ "/runs": [first, second] }), SAME);
    }

    #[test]
    fn a_signal_comes_after_two_seconds() {
        let sh = "trap 'echo caught; exit 1' TERM; for i in 1 2 3 4 5 6 7 8; do sleep 1; done";
        let change = json!({
            "/runs/0/signal": "15", "/runs/0/exit": 1, "/runs/0/stdout": ["caught"],
        });
        check(sh, change, SAME);
    }
}
