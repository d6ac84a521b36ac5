//! The examples, run as programs against a scripted endpoint.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::script::{call, deltas, message, response};
use testkit::{Lab, ModelServer};

/// Runs an example whose model plays `script`, and compares what it prints.
#[track_caller]
fn check(name: &str, script: Value, prints: &[&str]) -> Lab {
    let lab = Lab::new().unwrap();
    let server = ModelServer::start(script).unwrap();
    lab.home.write_mock_config(server.port()).unwrap();
    // Cargo builds examples with the tests.
    let tests = std::env::current_exe().unwrap();
    let example: PathBuf = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    let output = lab.command(&example).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name}: {printed}{errors}");
    for text in prints {
        assert!(printed.contains(text), "{name}: {printed}{errors}");
    }
    lab
}

#[test]
fn hello() {
    check("hello", json!([response([message("Hello there.")])]), &["Hello there.\n"]);
}

#[test]
fn streaming() {
    let command = call("c1", "exec_command", json!({"cmd": "echo from the sandbox"}));
    let script = json!([response([command]), response(deltas(["It ", "says so."]))]);
    check("streaming", script, &["$ ", "echo from the sandbox", "It says so."]);
}

#[test]
fn structured_output() {
    let answer = message(r#"{"language": "Rust", "files": 3}"#);
    check("structured_output", json!([response([answer])]), &["3 files, mostly Rust"]);
}

#[test]
fn approver() {
    let arguments = |command: &str| json!({"cmd": command, "sandbox_permissions": "require_escalated", "justification": "May I?"});
    let calls = [
        call("c1", "exec_command", arguments("touch note.txt")),
        call("c2", "exec_command", arguments("cp note.txt other.txt")),
    ];
    let script = json!([response(calls), response([message("One of them.")])]);
    let lab = check("approver", script, &["May I?", "yes", "no", "One of them."]);
    assert!(lab.workspace.path().join("note.txt").exists());
    assert!(!lab.workspace.path().join("other.txt").exists());
}

#[test]
fn custom_tool() {
    let script = json!([
        response([call("c1", "look_up", json!({"city": "Oslo"}))]),
        response([message("It is 4 degrees in Oslo.")]),
    ]);
    check("custom_tool", script, &["look_up Oslo", "It is 4 degrees in Oslo."]);
}

#[test]
fn resume_and_fork() {
    let answers = ["I will.", "It was 7.", "That is 8."].map(|text| response([message(text)]));
    check("resume_and_fork", json!(answers), &["resumed: It was 7.", "forked: That is 8."]);
}
