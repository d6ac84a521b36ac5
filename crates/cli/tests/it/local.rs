//! Turns with a local model: no key, no network.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};
use testkit::{Lab, gguf};

use crate::app_server::Client;
use crate::run::until;
use crate::{BINARY, PARENT};

/// For a daemon: other tests need the processor, too, and two models with two threads each on two cores keep
/// waiting for each other.
const ONE_THREAD: (&str, &str) = ("OMP_THREAD_LIMIT", "1");

/// A home with a daemon, which is stopped with it.
pub(crate) struct Local {
    pub(crate) lab: Lab,
    env: Vec<(&'static str, &'static str)>,
}

impl Local {
    /// Creates a home with the real model, if it is available.
    pub(crate) fn real() -> Option<Self> {
        let model = testkit::model()?;
        let local = Self::empty();
        let model = model.to_str().unwrap();
        local.heddle(&["models", "add", model, "--name", "smollm2"]);
        Some(local)
    }

    /// Creates a home with a tiny model of random weights, whose output is arbitrary.
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
        Self { lab, env: Vec::new() }
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let mut command = self.lab.command(BINARY);
        command.env(ONE_THREAD.0, ONE_THREAD.1).envs(self.env.iter().copied());
        command.args(args).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its output.
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
        // It would exit by itself, but only after its home is gone.
        let _ = self.run(&["daemon", "stop"]);
    }
}

/// What a new user does first: no key, no configuration, one request.
#[test]
fn a_missing_folder_is_created() {
    let Some(local) = Local::real() else { return };
    let output = local.run(&["exec", "make a folder called build"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    assert!(local.lab.workspace.path().join("build").is_dir(), "{stderr}");
    for words in ["OPENAI_API_KEY is not set: using the local model smollm2", "smoke tests only"] {
        assert!(stderr.contains(words), "{stderr}");
    }
    assert!(stderr.contains("mkdir build"), "{stderr}");
    // A second turn finds the daemon running, and with `--json` there is nothing but events.
    let output = local.run(&["exec", "--json", "delete old.log"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!stderr.contains("starting the local daemon"), "{stderr}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.last().unwrap()["type"], "turn.completed", "{lines}");
}

/// The agent and the daemon agree on who runs a tool: a call of the daemon's own is shown with its output, is
/// not run again, and is in the history of the next turn.
#[test]
fn tools_of_the_daemon_are_shown_and_not_run_again() {
    let Some(mut local) = Local::real() else { return };
    local.env = vec![
        ("HEDDLE_ALLOW_TOOLS", "1"),
        ("HEDDLE_ALLOWED_TOOLS", "echo"),
        ("HEDDLE_ALLOW_FORCED_CALLS", "1"),
    ];
    let (base_url, token) = local.serve(&[]);
    let forced = json!({"name": "echo", "arguments": "{\"text\":\"tulip\"}"}).to_string();
    let (port, requests) = forcing(&base_url, &token, forced);
    let config = format!(
        "model = \"local\"\nmodel_provider = \"own\"\n[model_providers.own]\nname = \"own\"\n\
         base_url = \"http://127.0.0.1:{port}/v1\"\nwire_api = \"responses\"\n"
    );
    local.lab.home.write("config.toml", config).unwrap();
    let lines = local.heddle(&["exec", "--json", "say hello"]);
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_call = |event: &&Value| {
        event["type"] == "item.completed" && event["item"]["type"] == "mcp_tool_call"
    };
    let calls: Vec<_> = events.iter().filter(is_call).collect();
    assert_eq!(calls.len(), 1, "{lines}");
    let item = &calls[0]["item"];
    assert_eq!((&item["tool"], &item["status"]), (&json!("echo"), &json!("completed")), "{lines}");
    assert_eq!(item["result"]["content"][0]["text"], "tulip", "{lines}");
    assert!(!lines.contains("unsupported call"), "{lines}");
    let first = requests.lock().unwrap().len();
    local.heddle(&["exec", "--json", "resume", "--last", "say it again"]);
    let requests = requests.lock().unwrap();
    let body = requests[first].to_string();
    assert!(body.contains("\"function_call_output\"") && body.contains("tulip"), "{body}");
    assert!(!body.contains("unsupported call: echo"), "{body}");
}

/// A proxy between agent and daemon that makes the first request call a tool of the daemon. Returns its port,
/// and the requests that went through it.
fn forcing(base_url: &str, token: &str, call: String) -> (u16, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = base_url.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
    let (token, seen) = (token.to_owned(), Arc::new(Mutex::new(Vec::new())));
    let requests = Arc::clone(&seen);
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut reader = BufReader::new(client.try_clone().unwrap());
            let (mut first, mut length) = (String::new(), 0);
            reader.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                let line = line.to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let mut body: Value = serde_json::from_slice(&body).unwrap();
            let is_first = seen.lock().unwrap().is_empty();
            seen.lock().unwrap().push(body.clone());
            if is_first {
                body["metadata"] = json!({ "heddle_forced_call": call });
            }
            let body = body.to_string();
            let mut daemon = TcpStream::connect(&address).unwrap();
            write!(
                daemon,
                "{first}host: {address}\r\nauthorization: Bearer {token}\r\n\
                 content-type: application/json\r\naccept: text/event-stream\r\n\
                 content-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            // The agent may disconnect before the daemon has sent everything.
            let _ = std::io::copy(&mut daemon, &mut client);
        }
    });
    (port, requests)
}

/// An idle daemon exits. Resuming an old thread starts it again.
#[test]
fn a_daemon_that_exited_is_started_again() {
    let Some(local) = Local::real() else { return };
    let mut client = Client::initialized(&local.lab, &[ONE_THREAD]);
    let thread = client.start_thread();
    for folder in ["build", "docs"] {
        let turn = client.turn(&thread, &format!("make a folder called {folder}"));
        assert_eq!(turn["status"], "completed", "{turn}");
        local.heddle(&["daemon", "stop"]);
    }
    // It cannot be started: the message says so, and what to do.
    let model = local.lab.root().join("home/models");
    fs::remove_dir_all(&model).unwrap();
    let turn = client.turn(&thread, "make a folder called src");
    assert_eq!(turn["status"], "failed", "{turn}");
    assert!(turn["error"]["message"].as_str().unwrap().contains("heddle models"), "{turn}");
}

/// The daemon's log identifies the thread of a turn.
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
    // Our clients send their protocol version.
    assert_eq!(found["protocol"], "1", "{found}");
}

/// The user's sandbox settings apply to local models, too.
#[test]
fn read_only_is_read_only() {
    let Some(local) = Local::real() else { return };
    let output = local.run(&["exec", "-s", "read-only", "make a folder called build"]);
    assert!(!local.lab.workspace.path().join("build").exists(), "{output:?}");
    // Nor does asking for a local model widen anything.
    let output = local.run(&["exec", "--oss", "make a folder called build"]);
    assert!(!local.lab.workspace.path().join("build").exists(), "{output:?}");
}

/// An answer with a schema validates, whatever the model would have said.
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
    // A file with the same model name is another model, if it is given by path.
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
