//! Threads that go back and forth between us and the published Codex binary.
//!
//! It is installed from npm; without npm the test says so and passes. What counts is what reaches the
//! endpoint: the program that resumes a thread sends the history that the other one left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::reference::NotificationSchema;
use testkit::{Lab, ModelServer, script};

use crate::run::{Run, lab_for};
use crate::{BINARY, npm};

const MANIFEST: &str = r#"{
  "name": "heddle-interop-test",
  "private": true,
  "dependencies": { "@openai/codex": "0.166.0" }
}"#;

#[test]
fn with_the_real_binary() {
    let codex = match codex() {
        Ok(codex) => codex,
        Err(reason) => return npm::skip("threads shared with Codex", &reason),
    };
    let (codex, ours) = (codex.as_path(), Path::new(BINARY));
    // Which program creates the thread, and which resumes it, turn by turn.
    check(&[(ours, ""), (codex, "resume")]);
    check(&[(codex, ""), (ours, "resume")]);
    check(&[(ours, ""), (codex, "resume"), (ours, "resume"), (codex, "resume")]);
    check(&[(codex, ""), (ours, "resume"), (codex, "resume"), (ours, "resume")]);
    check(&[(ours, ""), (codex, "fork"), (ours, "resume")]);
    check(&[(codex, ""), (ours, "fork"), (codex, "resume"), (ours, "fork"), (codex, "resume")]);
    exported(codex);
    locked(codex);
}

/// The copy of its schema that other tests compare our kinds with has the kinds that it prints.
#[test]
fn the_kept_schema_has_the_published_kinds() {
    let codex = match codex() {
        Ok(codex) => codex,
        Err(reason) => return npm::skip("the schema of Codex", &reason),
    };
    let lab = Lab::new().unwrap();
    let mut command = lab.command(&codex);
    command.args(["app-server", "generate-json-schema", "--experimental", "--out"]);
    let output = command.arg(lab.workspace.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = lab.workspace.read("ServerNotification.json").unwrap();
    let (printed, kept) = (NotificationSchema::parse(&text).unwrap(), NotificationSchema::kept());
    assert_eq!(printed.methods(), kept.methods());
    for definition in ["ThreadItem", "CodexErrorInfo", "TurnStatus", "CommandExecutionStatus"] {
        assert_eq!(printed.kinds(definition), kept.kinds(definition), "{definition}");
    }
}

/// Installs the published binary, unless it is already installed.
pub(crate) fn codex() -> Result<PathBuf, String> {
    npm::install("codex", MANIFEST, &[]).and_then(|folder| find(&folder))
}

/// Finds the binary itself: the package only starts it.
fn find(folder: &Path) -> Result<PathBuf, String> {
    let mut folders = vec![folder.join("node_modules/@openai")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("bin/codex") {
                return Ok(path);
            }
        }
    }
    Err("npm has no binary for this machine".to_owned())
}

/// A turn with everything that occurs in histories: reasoning, parallel calls, a patch, a message.
fn turn(number: usize) -> Vec<Value> {
    let id = |name: &str| format!("{name}{number}");
    let reasoning = script::item(json!({
        "type": "reasoning",
        "id": id("rs_"),
        "summary": [{ "type": "summary_text", "text": "thinking" }],
        "encrypted_content": id("sealed"),
    }));
    let run = |name: &str| {
        let cmd = format!("echo {name}; seq 900");
        script::call(name, "exec_command", json!({ "cmd": cmd }))
    };
    let patch = format!("*** Begin Patch\n*** Add File: f{number}.txt\n+text\n*** End Patch\n");
    let message = script::item(json!({
        "type": "message",
        "role": "assistant",
        "id": id("msg_"),
        "content": [{ "type": "output_text", "text": id("answer ") }],
    }));
    vec![
        script::response([reasoning, run(&id("a")), run(&id("b"))]),
        script::response([script::custom_call(&id("p"), "apply_patch", &patch)]),
        script::response([message]),
    ]
}

fn check(turns: &[(&Path, &str)]) {
    let entries: Vec<_> = (0..turns.len()).flat_map(turn).collect();
    let server = ModelServer::start(json!(entries)).unwrap();
    let lab = lab_for(&server);
    let mut thread = None;
    let mut before: Vec<Value> = Vec::new();
    for (number, (binary, way)) in turns.iter().enumerate() {
        let from = requests(&server).len();
        let id = exec(&lab, binary, way, thread.as_deref(), &format!("question {number}"));
        let sent = requests(&server);
        assert_eq!(sent.len(), from + 3, "{turns:?}");
        holds(&sent[from], &before, &format!("turn {number} of {turns:?}"));
        // What the next program must send: the last request, and the response to it.
        before = own(&sent[from + 2]);
        before.push(json!(["message", "assistant", format!("answer {number}")]));
        assert!(way != &"resume" || thread.as_ref() == Some(&id), "another thread");
        thread = Some(id);
    }
}

/// An exported fork is complete in another home.
fn exported(codex: &Path) {
    let entries: Vec<_> = (0..3).flat_map(turn).collect();
    let server = ModelServer::start(json!(entries)).unwrap();
    let lab = lab_for(&server);
    let ours = Path::new(BINARY);
    let first = exec(&lab, ours, "", None, "question 0");
    let fork = exec(&lab, ours, "fork", Some(&first), "question 1");
    let mut before = own(requests(&server).last().unwrap());
    before.push(json!(["message", "assistant", "answer 1"]));
    let other = lab_for(&server);
    let folder = other.home.path().join("sessions/2026/01/02");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("rollout-2026-01-02T03-04-05-{fork}.jsonl"));
    let mut export = lab.command(BINARY);
    export.args(["threads", "export", &fork, "-o"]).arg(&file);
    let ended = Run::start(export).end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let from = requests(&server).len();
    exec(&other, codex, "resume", Some(&fork), "question 2");
    holds(&requests(&server)[from], &before, "the exported thread");
}

/// A program that has a thread open locks the other one out.
fn locked(codex: &Path) {
    let slow = json!([
        script::response([script::message("one")]),
        { "events": [script::created()], "hang_ms": 60_000 },
    ]);
    for (holder, other) in [(Path::new(BINARY), codex), (codex, Path::new(BINARY))] {
        let server = ModelServer::start(slow.clone()).unwrap();
        let lab = lab_for(&server);
        let id = exec(&lab, holder, "", None, "question");
        let running = Run::start(command(&lab, holder, "resume", Some(&id), "wait"));
        running.wait_for("turn.started");
        let ended = Run::start(command(&lab, other, "resume", Some(&id), "me too")).end();
        assert_ne!(ended.code, Some(0), "{}", ended.stdout);
        let words = ["in use", "active writer"];
        assert!(words.iter().any(|words| ended.stderr.contains(words)), "{}", ended.stderr);
    }
}

fn command(lab: &Lab, binary: &Path, way: &str, thread: Option<&str>, prompt: &str) -> Command {
    let mut command = lab.command(binary);
    command.args(["exec", "--json", "--skip-git-repo-check", "-s", "danger-full-access"]);
    if !way.is_empty() {
        command.arg(way).args(thread);
    }
    command.arg(prompt).stdin(Stdio::null());
    command
}

/// Runs a turn and returns its thread.
#[track_caller]
fn exec(lab: &Lab, binary: &Path, way: &str, thread: Option<&str>, prompt: &str) -> String {
    let ended = Run::start(command(lab, binary, way, thread, prompt)).end();
    let said = format!("{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(ended.code, Some(0), "{binary:?} {way}: {said}");
    let first: Value = serde_json::from_str(ended.stdout.lines().next().unwrap()).unwrap();
    first["thread_id"].as_str().unwrap_or_else(|| panic!("no thread: {said}")).to_owned()
}

fn requests(server: &ModelServer) -> Vec<Value> {
    let all = server.requests();
    let samples = all.into_iter().filter(|request| request.path.contains("/responses"));
    samples.map(|request| request.body).collect()
}

/// Returns the history that a request contains, reduced to what must not change; without what a program says
/// about itself and its environment.
fn own(request: &Value) -> Vec<Value> {
    let items = request["input"].as_array().unwrap().iter();
    let brief = |item: &Value| match item["type"].as_str().unwrap() {
        "message" => {
            let text: String = item["content"]
                .as_array()
                .unwrap()
                .iter()
                .map(|part| part["text"].as_str().unwrap_or("<image>"))
                .collect();
            let context = text.starts_with("<environment_context>") || item["role"] == "developer";
            (!context).then(|| json!(["message", item["role"], text]))
        }
        "reasoning" => Some(json!(["reasoning", item["encrypted_content"]])),
        kind => Some(json!([
            kind,
            item["call_id"],
            item["name"],
            item["arguments"],
            item["input"],
            item["output"]
        ])),
    };
    items.filter_map(brief).collect()
}

/// Checks that a request begins with a history.
#[track_caller]
fn holds(request: &Value, history: &[Value], what: &str) {
    let sent = own(request);
    assert_eq!(sent.len(), history.len() + 1, "{what}: {sent:#?}\nafter {history:#?}");
    for (index, (sent, want)) in sent.iter().zip(history).enumerate() {
        assert_eq!(sent, want, "{what}: item {index}");
    }
}
