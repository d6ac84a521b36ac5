//! Decisions from the outside: `heddle policy explain`, and rules as a turn meets them.

use std::fs;

use serde_json::{Value, json};
use testkit::{Lab, ModelServer, Script, script};

use crate::BINARY;
use crate::run::{Run, exec, lab, lab_for};

const RULES: &str = r#"
prefix_rule(pattern=["touch", "allowed"], decision="allow")
prefix_rule(pattern=["git", "push"], decision="prompt")
prefix_rule(pattern=["terraform", "destroy"], decision="forbidden", justification="never from here")
"#;

fn explain(lab: &Lab, args: &[&str]) -> Value {
    let mut command = lab.command(BINARY);
    let output = command.args(["policy", "explain", "--json"]).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?} {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn check(args: &[&str], decision: &str, place: Option<&str>, because: &str) {
    let lab = lab();
    lab.home.write("rules/a.rules", RULES).unwrap();
    let got = explain(&lab, args);
    assert_eq!(got["decision"], decision, "{args:?} {got}");
    assert_eq!(got["place"], json!(place), "{args:?} {got}");
    assert!(got["because"].as_str().unwrap().contains(because), "{args:?} {got}");
}

#[test]
fn explanations() {
    check(&["--", "ls"], "run", Some("sandbox"), "nothing speaks against it");
    check(&["-s", "danger-full-access", "--", "ls"], "run", Some("outside"), "no sandbox");
    check(&["--", "touch", "allowed"], "run", Some("outside"), "a.rules:2:1");
    check(&["--ignore-rules", "--", "touch", "allowed"], "run", Some("sandbox"), "");
    check(&["--", "git push"], "refuse", None, "a.rules:3:1");
    let asks = &["--approval", "on-request"];
    check(&[asks, &["--", "git push"][..]].concat(), "ask", Some("sandbox"), "a.rules:3:1");
    check(&[asks, &["--escalated", "--", "ls"][..]].concat(), "ask", Some("outside"), "leave");
    check(&["--", "sudo bash -c 'terraform destroy'"], "refuse", None, "a.rules:4:1");
    check(&["--", "rm -rf /"], "refuse", None, "destroys files");
    check(&["--", "git $X"], "refuse", None, "could be what a rule is about");
    check(
        &["-c", "approval_policy=\"untrusted\"", "--", "ls"],
        "ask",
        Some("sandbox"),
        "everything",
    );
}

#[test]
fn a_project_has_a_say_only_if_it_is_trusted() {
    for (trust, decision) in [("untrusted", "run"), ("trusted", "refuse")] {
        let lab = lab();
        let rule = "prefix_rule(pattern=[\"make\"], decision=\"forbidden\")\n";
        lab.workspace.write(".heddle/rules/p.rules", rule).unwrap();
        let key = format!("projects.{:?}.trust_level={trust:?}", lab.workspace.path());
        assert_eq!(explain(&lab, &["-c", &key, "--", "make"])["decision"], decision, "{trust}");
    }
}

#[test]
fn for_people_it_is_text() {
    let lab = lab();
    lab.home.write("rules/a.rules", RULES).unwrap();
    let mut command = lab.command(BINARY);
    let output = command.args(["policy", "explain", "--", "git push"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in
        ["decision: it is refused", "commands found:\n  git push\n    prompt [git push] of "]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

/// Runs one command as a model's and returns what the model reads of it.
fn turn(cmd: &str) -> (String, Lab) {
    let call = script::call("c1", "exec_command", json!({ "cmd": cmd, "login": false }));
    let entries = json!([script::response([call]), script::response([script::message("Done.")])]);
    let server = ModelServer::play(Script::from_value(entries).unwrap()).unwrap();
    let lab = lab_for(&server);
    lab.home.write("rules/a.rules", RULES).unwrap();
    let ended = Run::start(exec(&lab, &["-s", "read-only", "do it"])).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let body = server.requests()[1].body.clone();
    let output = body["input"].as_array().unwrap().last().unwrap()["output"].clone();
    (output.as_str().unwrap().to_owned(), lab)
}

#[test]
fn a_turn_keeps_to_the_rules() {
    for (cmd, says, made) in [
        ("touch allowed", "exited with code 0", true),
        ("touch allowed; touch other", "Read-only file system", false),
        ("touch allowed >x", "Read-only file system", false),
        ("A=1 touch allowed", "Read-only file system", false),
        ("touch() { :; }; touch allowed", "exited with code 0", false),
        ("echo hi && terraform destroy", "never from here", false),
        ("git push", "the approval policy (never)", false),
        ("rm -rf .", "destroys files", false),
    ] {
        let (said, lab) = turn(cmd);
        assert!(said.contains(says), "{cmd}: {said}");
        let found = fs::exists(lab.workspace.path().join("allowed")).unwrap();
        assert_eq!(found, made, "{cmd}: {said}");
    }
}
