//! The examples, run as programs against a scripted endpoint.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::script::{call, deltas, message, response};
use testkit::{Lab, ModelServer};

/// Returns the program of an example; Cargo builds examples with the tests.
fn program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().parent().unwrap().join("examples").join(name)
}

/// Runs an example whose model plays `script`, and compares what it prints.
#[track_caller]
fn check(name: &str, script: Value, prints: &[&str]) -> Lab {
    let lab = Lab::new().unwrap();
    let server = ModelServer::start(script).unwrap();
    lab.home.write_mock_config(server.port()).unwrap();
    let output = lab.command(program(name)).output().unwrap();
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
    let report = |files| message(&format!(r#"{{"language": "Rust", "files": {files}}}"#));
    let script = json!([response([report(3)]), response([report(2)])]);
    check("structured_output", script, &["3 files, mostly Rust", "and 2 files of tests"]);
}

#[test]
fn approver() {
    let arguments = |command: &str| json!({"cmd": command, "sandbox_permissions": "require_escalated", "justification": "May I?"});
    let calls = [
        call("c1", "exec_command", arguments("touch note.txt")),
        call("c2", "exec_command", arguments("touch x && cp note.txt other.txt")),
    ];
    let script = json!([response(calls), response([message("One of them.")])]);
    let lab = check("approver", script, &["declined: Some(\"May I?\")", "One of them."]);
    assert!(lab.workspace.path().join("note.txt").exists());
    assert!(!lab.workspace.path().join("other.txt").exists());
}

#[test]
fn custom_tool() {
    let script = json!([
        response([call("c1", "look_up", json!({"city": "Oslo"}))]),
        response([message(r#"{"city": "Oslo", "degrees": 4}"#)]),
    ]);
    check("custom_tool", script, &["look_up Oslo\n", "Oslo: 4 degrees\n"]);
}

#[test]
fn resume_and_fork() {
    let answers = ["I will.", "It was 7.", "That is 8."].map(|text| response([message(text)]));
    check("resume_and_fork", json!(answers), &["resumed: It was 7.", "forked: That is 8."]);
}

#[test]
fn files() {
    let script = json!([response([message("Numbers.")])]);
    check("files", script, &["attached visits.csv\n", "sent visits.csv, 19 bytes\n", "Numbers.\n"]);
}

#[test]
fn many_threads() {
    let script = json!([response([message("Code.")])]);
    check(
        "many_threads",
        script,
        &["src: Code.\n", "docs: Code.\n", "tests: Code.\n", " tokens\n"],
    );
}

/// A request as a browser sends it; returns the answer as text.
fn post(address: &str, prompt: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /ask HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{prompt}",
        prompt.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn axum_service() {
    let lab = Lab::new().unwrap();
    let server = ModelServer::start(json!([response(deltas(["Hello ", "there."]))])).unwrap();
    lab.home.write_mock_config(server.port()).unwrap();
    let mut command = lab.command(program("axum_service"));
    let mut service = command.arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").unwrap();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| post(address, "Say hello."))).collect();
        asked.into_iter().map(|it| it.join().unwrap()).collect()
    });
    service.kill().unwrap();
    service.wait().unwrap();
    for answer in answers {
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        // In parts, each as it came.
        assert!(answer.contains("Hello \r\n") && answer.contains("there.\r\n"), "{answer}");
    }
}

#[test]
fn limits() {
    let step = |id: &str| call(id, "exec_command", json!({"cmd": "true"}));
    let steps = response([step("c1"), step("c2")]);
    let script = json!([steps, steps, response([message("Both ran.")])]);
    let reached = "turn: the turn reached its limit of 1 tool calls";
    check("limits", script, &[reached, "3 turns, 4 calls", "Both ran."]);
    // It never ends.
    let script = json!([steps]);
    let stopped = "stopped: the run reached its limit of 3 turns";
    check("limits", script, &[reached, stopped, "3 turns, 6 calls", "no answer yet"]);
}
