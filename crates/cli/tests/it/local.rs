//! Turns with a model on this machine: no key, no network.

use std::fs;
use std::process::Output;

use serde_json::Value;
use testkit::{Lab, gguf};

use crate::app_server::Client;
use crate::run::until;
use crate::{BINARY, PARENT};

/// For a daemon that is started with it: other tests need the processor, too, and two models with two threads each on
/// two cores wait for each other all the time.
const ONE_THREAD: (&str, &str) = ("OMP_THREAD_LIMIT", "1");

/// A home with a daemon, which ends with it.
pub(crate) struct Local {
    pub(crate) lab: Lab,
}

impl Local {
    /// Makes a home that has the real model, if it can be had.
    pub(crate) fn real() -> Option<Self> {
        let model = testkit::model()?;
        let local = Self::empty();
        let model = model.to_str().unwrap();
        local.heddle(&["models", "add", model, "--name", "smollm2"]);
        Some(local)
    }

    /// Makes a home that has a tiny model of random weights, which says anything.
    pub(crate) fn tiny() -> Self {
        let local = Self::empty();
        let path = local.lab.root().join("tiny.gguf");
        gguf::llama(1).write(&path).unwrap();
        local.heddle(&["models", "add", path.to_str().unwrap(), "--copy"]);
        local
    }

    fn empty() -> Self {
        let lab = Lab::new_in(PARENT.as_ref()).unwrap();
        lab.workspace.git_init().unwrap();
        Self { lab }
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.lab.command(BINARY).env(ONE_THREAD.0, ONE_THREAD.1).args(args).output().unwrap()
    }

    /// Runs what must succeed, and returns what it printed.
    #[track_caller]
    pub(crate) fn heddle(&self, args: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.run(args);
        let (stdout, stderr) =
            (String::from_utf8(stdout).unwrap(), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{args:?}: {status}: {stdout}{stderr}");
        stdout
    }

    /// Starts the daemon on a port, and returns its address and its token.
    pub(crate) fn serve(&self, args: &[&str]) -> (String, String) {
        self.heddle(&[&["daemon", "start", "--tcp", "0"], args].concat());
        let status: Value =
            serde_json::from_str(&self.heddle(&["daemon", "status", "--json"])).unwrap();
        let token = fs::read_to_string(status["token_file"].as_str().unwrap()).unwrap();
        (status["base_url"].as_str().unwrap().to_owned(), token.trim().to_owned())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // It would leave by itself, but not before its home is gone.
        let _ = self.run(&["daemon", "stop"]);
    }
}

/// The first thing that anybody does: no key, no configuration, a wish.
#[test]
fn a_folder_is_made() {
    let Some(local) = Local::real() else { return };
    let output = local.run(&["exec", "make a folder called build"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    assert!(local.lab.workspace.path().join("build").is_dir(), "{stderr}");
    for words in ["OPENAI_API_KEY is not set: using the local model smollm2", "smoke tests only"] {
        assert!(stderr.contains(words), "{stderr}");
    }
    assert!(stderr.contains("mkdir build"), "{stderr}");
    // A second turn finds the daemon running, and a program gets nothing but events.
    let output = local.run(&["exec", "--json", "delete old.log"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!stderr.contains("starting the local daemon"), "{stderr}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.last().unwrap()["type"], "turn.completed", "{lines}");
}

/// A daemon leaves when nobody comes. Whoever comes back to an old thread finds it all the same.
#[test]
fn a_daemon_that_left_is_started_again() {
    let Some(local) = Local::real() else { return };
    let mut client = Client::initialized(&local.lab, &[ONE_THREAD]);
    let thread = client.start_thread();
    for folder in ["build", "docs"] {
        let turn = client.turn(&thread, &format!("make a folder called {folder}"));
        assert_eq!(turn["status"], "completed", "{turn}");
        local.heddle(&["daemon", "stop"]);
    }
    // Nothing to start it with: that is said, with what to do.
    let model = local.lab.root().join("home/models");
    fs::remove_dir_all(&model).unwrap();
    let turn = client.turn(&thread, "make a folder called src");
    assert_eq!(turn["status"], "failed", "{turn}");
    assert!(turn["error"]["message"].as_str().unwrap().contains("heddle models"), "{turn}");
}

/// A turn is found in the log of the daemon by its thread.
#[test]
fn the_log_of_the_daemon_names_the_thread() {
    let local = Local::tiny();
    let schema = r#"{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false}"#;
    local.lab.workspace.write("schema.json", schema).unwrap();
    let lines =
        local.heddle(&["exec", "--json", "--oss", "--output-schema", "schema.json", "is it so?"]);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let thread = first["thread_id"].as_str().unwrap();
    let is_ours = |line: &Value| line["event"] == "request" && line["thread_id"] == thread;
    let found = until("the line of the request", || {
        let log = local.heddle(&["daemon", "logs"]);
        let mut lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.find(is_ours)
    });
    assert_eq!((&found["route"], &found["status"]), (&"/v1/responses".into(), &200.into()));
    assert!(found["request_id"].is_string() && found.get("session_id").is_none(), "{found}");
    // A client of ours says what it speaks.
    assert_eq!(found["protocol"], "1", "{found}");
}

/// What the user says about the sandbox holds for local models, too.
#[test]
fn read_only_is_read_only() {
    let Some(local) = Local::real() else { return };
    let output = local.run(&["exec", "-s", "read-only", "make a folder called build"]);
    assert!(!local.lab.workspace.path().join("build").exists(), "{output:?}");
    // Nor does asking for a local model widen anything.
    let output = local.run(&["exec", "--oss", "make a folder called build"]);
    assert!(!local.lab.workspace.path().join("build").exists(), "{output:?}");
}

/// An answer under a schema validates, whatever the model would have liked to say.
#[test]
fn answers_follow_a_schema() {
    let local = Local::tiny();
    let schema = r#"{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false}"#;
    local.lab.workspace.write("schema.json", schema).unwrap();
    let answer = local.heddle(&["exec", "--oss", "--output-schema", "schema.json", "is it so?"]);
    let answer: Value = serde_json::from_str(answer.trim()).unwrap();
    assert!(answer["ok"].is_boolean(), "{answer}");
}

#[test]
fn probed() {
    let local = Local::tiny();
    let probed: Value =
        serde_json::from_str(&local.heddle(&["models", "probe", "tiny", "--run", "--json"]))
            .unwrap();
    // Another of the same name is another model, if its file is named.
    let other = local.lab.root().join("other");
    fs::create_dir(&other).unwrap();
    let other = other.canonicalize().unwrap().join("tiny.gguf");
    gguf::llama(2).write(&other).unwrap();
    local.heddle(&["models", "probe", other.to_str().unwrap(), "--run"]);
    let status: Value =
        serde_json::from_str(&local.heddle(&["daemon", "status", "--json"])).unwrap();
    assert_eq!(status["file"].as_str(), other.to_str(), "{status}");
    let run = &probed["run"];
    assert!(run["tokens_per_second"].as_f64().unwrap() > 0.0, "{run}");
    for what in ["tool_call", "schema_answer"] {
        assert!(run[what].as_str().unwrap().starts_with("valid"), "{run}");
    }
}
