//! The examples of the library over the other transports: they drive this binary and the published Codex binary.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::ModelServer;
use testkit::script::{call, deltas, message, response};

use crate::run::lab_for;
use crate::{BINARY, interop, npm};

/// Returns the program of an example. A run of all tests builds them; alone, `cargo build -p heddle --examples` does.
fn program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(program.exists(), "run `cargo build -p heddle --examples` first");
    program
}

/// Runs an example over both transports and with both programs; compares what it prints.
fn check(name: &str, script: &Value, prints: &[&str]) {
    for binary in binaries() {
        for how in ["exec", "app-server"] {
            let over = format!("{how}:{}", binary.display());
            run(name, script, &[("HEDDLE_TRANSPORT", &over)], &[], prints);
        }
    }
}

#[track_caller]
fn run(name: &str, script: &Value, vars: &[(&str, &str)], args: &[&str], prints: &[&str]) {
    let server = ModelServer::start(script.clone()).unwrap();
    let lab = lab_for(&server);
    let mut command = lab.command(program(name));
    let output = command.envs(vars.iter().copied()).args(args).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name} {vars:?} {args:?}: {printed}{errors}");
    for text in prints {
        assert!(printed.contains(text), "{name} {vars:?} {args:?}: {printed}{errors}");
    }
}

/// Returns this binary, and the published one if it is installed.
fn binaries() -> Vec<PathBuf> {
    let mut binaries = vec![PathBuf::from(BINARY)];
    match interop::codex() {
        Ok(codex) => binaries.push(codex),
        Err(reason) => npm::skip("examples over Codex", &reason),
    }
    binaries
}

#[test]
fn hello() {
    check("hello", &json!([response([message("Hello there.")])]), &["Hello there.\n"]);
}

#[test]
fn streaming() {
    let script = json!([response(deltas(["It ", "streams."]))]);
    check("streaming", &script, &["It streams.\n"]);
}

#[test]
fn structured_output() {
    let answer = message(r#"{"language": "Rust", "files": 3}"#);
    check("structured_output", &json!([response([answer])]), &["3 files, mostly Rust"]);
}

#[test]
fn resume_and_fork() {
    let answers = ["I will.", "It was 7.", "That is 8."].map(|text| response([message(text)]));
    check("resume_and_fork", &json!(answers), &["resumed: It was 7.", "forked: That is 8."]);
}

#[test]
fn files() {
    let script = json!([response([message("Numbers.")])]);
    check("files", &script, &["attached visits.csv\n", "Numbers.\n"]);
}

#[test]
fn limits() {
    let step = |id: &str| call(id, "exec_command", json!({"cmd": "true"}));
    // With a message, so that there is something of a turn that another program ends before its commands.
    let steps = response([message("Two steps."), step("c1"), step("c2")]);
    let script = json!([steps, steps, response([message("Both ran.")])]);
    check("limits", &script, &["turn: the turn reached its limit of 1 tool calls", "Both ran."]);
}

#[test]
fn many_threads() {
    let script = json!([response([message("Code.")])]);
    check("many_threads", &script, &["src: Code.\n", "docs: Code.\n", "tests: Code.\n"]);
}

/// Tools and approvers of the host program are used over an app-server.
fn check_app_server(name: &str, script: &Value, prints: &[&str]) {
    for binary in binaries() {
        let over = format!("app-server:{}", binary.display());
        run(name, script, &[("HEDDLE_TRANSPORT", &over)], &[], prints);
    }
}

#[test]
fn custom_tool() {
    let script = json!([
        response([call("c1", "look_up", json!({"city": "Oslo"}))]),
        response([message(r#"{"city": "Oslo", "degrees": 4}"#)]),
    ]);
    check_app_server("custom_tool", &script, &["look_up Oslo\n", "Oslo: 4 degrees\n"]);
}

#[test]
fn approver() {
    let arguments = |command: &str| json!({"cmd": command, "sandbox_permissions": "require_escalated", "justification": "May I?"});
    let script = json!([
        response([call("c1", "exec_command", arguments("cp note.txt other.txt"))]),
        response([message("It was declined.")]),
    ]);
    check_app_server("approver", &script, &["declined: Some(\"May I?\")", "It was declined."]);
}

#[test]
fn drive_codex() {
    let answers = [
        response([call("c1", "exec_command", json!({"cmd": "exit 3"}))]),
        response([message("A loom.")]),
        response([message("Threads.")]),
    ];
    let want = ["exit 3", "-> Some(3)", "A loom.\n", "Threads.\n"];
    for binary in binaries() {
        for how in ["exec", "app-server"] {
            let program = binary.display().to_string();
            run("drive_codex", &json!(answers), &[], &[how, &program, "What is it?"], &want);
        }
    }
}

/// A program that another one starts does not choose its transport by the same variable.
#[test]
fn the_variable_reaches_no_other_program() {
    let over = format!("exec:{BINARY}");
    let server = ModelServer::start(json!([response([message("Hello there.")])])).unwrap();
    let lab = lab_for(&server);
    let mut command = lab.command(Path::new(BINARY));
    command.env("HEDDLE_TRANSPORT", &over).args(["exec", "--skip-git-repo-check", "hi"]);
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Hello there.\n", "{output:?}");
    assert_eq!(server.requests().len(), 1);
}
