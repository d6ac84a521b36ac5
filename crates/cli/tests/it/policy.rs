//! Policy decisions, as `heddle policy explain` prints them and as turns enforce them.

use std::fs;
use std::process::Command;

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
    check(&["--", "ls"], "run", Some("sandbox"), "nothing prevents it");
    check(&["-s", "danger-full-access", "--", "ls"], "run", Some("outside"), "no sandbox");
    check(&["--", "touch", "allowed"], "run", Some("outside"), "a.rules:2:1");
    check(&["--ignore-rules", "--", "touch", "allowed"], "run", Some("sandbox"), "");
    check(&["--", "git push"], "refuse", None, "a.rules:3:1");
    let asks = &["--approval", "on-request"];
    check(&[asks, &["--", "git push"][..]].concat(), "ask", Some("sandbox"), "a.rules:3:1");
    check(&[asks, &["--escalated", "--", "ls"][..]].concat(), "ask", Some("outside"), "leave");
    check(&["--", "sudo bash -c 'terraform destroy'"], "refuse", None, "a.rules:4:1");
    check(&["--", "rm -rf /"], "refuse", None, "destroys files");
    check(&["--", "git $X"], "refuse", None, "may match a rule");
    check(
        &["-c", "approval_policy=\"untrusted\"", "--", "ls"],
        "ask",
        Some("sandbox"),
        "everything",
    );
}

/// What is explained is what the gate sees when a model makes the call, and it decides the same.
#[test]
fn what_is_explained_is_what_is_judged() {
    let rules = format!("{RULES}prefix_rule(pattern=[\"bash\"], decision=\"prompt\")\n");
    for (words, call) in [
        (&["touch allowed"][..], json!({"cmd": "touch allowed"})),
        (&["touch", "allowed"], json!({"cmd": "touch allowed"})),
        (&["bash", "-lc", "touch allowed"], json!({"cmd": "touch allowed", "shell": "bash"})),
        (&["/bin/bash", "-lc", "touch allowed"], json!({"cmd": "touch allowed", "shell": "bash"})),
        (&["sh", "-c", "git push"], json!({"cmd": "git push", "shell": "sh", "login": false})),
        (&["bash", "-c", "true"], json!({"cmd": "true", "shell": "bash", "login": false})),
        (&["bash -lc 'touch allowed'"], json!({"cmd": "bash -lc 'touch allowed'"})),
        (&["bash", "-c", "true", "x"], json!({"cmd": "bash -c true x"})),
        (&["dash", "-c", "touch allowed"], json!({"cmd": "dash -c 'touch allowed'"})),
    ] {
        let script = json!([
            script::response([script::call("c", "exec_command", call)]),
            script::response([script::message("Done.")]),
        ]);
        let server = ModelServer::start(script).unwrap();
        let lab = lab_for(&server);
        lab.home.write("rules/a.rules", &rules).unwrap();
        let explained = explain(&lab, &[&["-s", "read-only", "--"], words].concat());
        let command = exec(&lab, &["-s", "read-only", "--include-refused", "go"]);
        let ended = Run::start(command).end();
        let items = ended.events();
        let item = &items.iter().find(|event| event["type"] == "item.completed").unwrap()["item"];
        assert_eq!(item["command"], explained["command"], "{words:?} {ended:#?}");
        let declined = item["status"] == "declined";
        assert_eq!(declined, explained["decision"] == "refuse", "{words:?} {explained} {item}");
        let outside = lab.workspace.path().join("allowed").exists();
        assert_eq!(outside, explained["place"] == "outside", "{words:?} {explained} {item}");
    }
}

#[test]
fn project_rules_apply_only_if_trusted() {
    for (trust, decision) in [("untrusted", "run"), ("trusted", "refuse")] {
        let lab = lab();
        let rule = "prefix_rule(pattern=[\"make\"], decision=\"forbidden\")\n";
        lab.workspace.write(".heddle/rules/p.rules", rule).unwrap();
        let key = format!("projects.{:?}.trust_level={trust:?}", lab.workspace.path());
        assert_eq!(explain(&lab, &["-c", &key, "--", "make"])["decision"], decision, "{trust}");
    }
}

#[test]
fn human_output_is_text() {
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

/// Runs one command of a model and returns what the model reads about it.
fn turn(cmd: &str) -> (String, Lab) {
    let (mut said, lab) =
        turns(RULES, "read-only", &[json!({ "cmd": cmd, "login": false })], |_, _| {});
    (said.pop().unwrap(), lab)
}

/// Runs commands of a model one after the other, and returns what the model reads about each.
fn turns(
    rules: &str,
    mode: &str,
    calls: &[Value],
    prepare: impl Fn(&Lab, &mut Command),
) -> (Vec<String>, Lab) {
    let mut entries: Vec<_> = calls
        .iter()
        .enumerate()
        .map(|(n, call)| {
            script::response([script::call(&format!("c{n}"), "exec_command", call.clone())])
        })
        .collect();
    entries.push(script::response([script::message("Done.")]));
    let server = ModelServer::play(Script::from_value(json!(entries)).unwrap()).unwrap();
    let lab = lab_for(&server);
    lab.home.write("rules/a.rules", rules).unwrap();
    let mut command = exec(&lab, &["-s", mode, "do it"]);
    prepare(&lab, &mut command);
    let ended = Run::start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let output = |n: usize| {
        let body = server.requests()[n + 1].body.clone();
        body["input"].as_array().unwrap().last().unwrap()["output"].as_str().unwrap().to_owned()
    };
    ((0..calls.len()).map(output).collect(), lab)
}

const LIFTING: &str = r#"
prefix_rule(pattern=["touch", ["x", "src/x"]], decision="allow")
prefix_rule(pattern=["git", ["fetch", "pull"]], decision="allow")
prefix_rule(pattern=["mine"], decision="allow")
prefix_rule(pattern=["./mine"], decision="allow")
"#;

/// Files that a model prepared in the sandbox run nowhere else, whatever rules allow.
#[test]
fn an_allowed_command_runs_no_files_of_the_model() {
    type Prepare = fn(&Lab, &mut Command);
    let trap = "mkdir -p src/sub && cd src/sub && git init -q . && \
                git config remote.origin.url . && \
                git config remote.origin.uploadpack 'touch ROOT/escaped;'";
    let mine = "mkdir -p src && printf '#!/bin/sh\\ntouch ROOT/escaped\\n' > src/mine && \
                chmod +x src/mine";
    let profile = "mkdir -p src && echo 'touch ROOT/escaped' | \
                   tee src/.bash_profile src/.bashrc src/.profile src/env";
    let path: Prepare = |lab, command| {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}/src:{path}", lab.workspace.path().display()));
    };
    let home: Prepare = |lab, command| {
        command.env("HOME", lab.workspace.path().join("src"));
    };
    let variable: Prepare = |lab, command| {
        command.env("BASH_ENV", lab.workspace.path().join("src/env"));
        command.env("ENV", lab.workspace.path().join("src/env"));
    };
    let options: Prepare = |lab, command| {
        let script = lab.workspace.path().join("src/env");
        for (name, value) in [
            ("GIT_CONFIG_COUNT", "2".to_owned()),
            ("GIT_CONFIG_KEY_0", "remote.origin.url".to_owned()),
            ("GIT_CONFIG_VALUE_0", ".".to_owned()),
            ("GIT_CONFIG_KEY_1", "remote.origin.uploadpack".to_owned()),
            ("GIT_CONFIG_VALUE_1", format!("sh {};", script.display())),
        ] {
            command.env(name, value);
        }
    };
    let plain: Prepare = |_, _| {};
    for (prepare, before, call) in [
        (plain, trap, json!({ "cmd": "git fetch origin", "workdir": "src/sub" })),
        (plain, trap, json!({ "cmd": "git fetch", "workdir": "src/sub" })),
        (plain, trap, json!({ "cmd": "cd src/sub && git fetch" })),
        (plain, trap, json!({ "cmd": "git fetch --upload-pack='touch ROOT/escaped;' src/sub" })),
        (plain, mine, json!({ "cmd": "./mine", "workdir": "src" })),
        (path, mine, json!({ "cmd": "mine" })),
        (home, profile, json!({ "cmd": "touch src/x", "login": true })),
        (variable, profile, json!({ "cmd": "touch src/x", "login": false })),
        (variable, profile, json!({ "cmd": "touch src/x", "shell": "sh" })),
        (options, profile, json!({ "cmd": "git fetch" })),
    ] {
        // The location of the lab is not known to the sandbox, so the path is filled in later.
        let root = std::env::temp_dir().join(format!("heddle-lift-{}", std::process::id()));
        let fill = |value: Value| -> Value {
            let text = value.to_string().replace("ROOT", &root.display().to_string());
            serde_json::from_str(&text).unwrap()
        };
        let before = fill(json!({ "cmd": before, "login": false }));
        let call = fill(call);
        // The marker must be where a sandboxed command cannot write.
        let strict = |lab: &Lab, command: &mut Command| {
            command.args(["-c", "sandbox_workspace_write.exclude_slash_tmp=true"]);
            command.args(["-c", "sandbox_workspace_write.exclude_tmpdir_env_var=true"]);
            fs::create_dir_all(&root).unwrap();
            prepare(lab, command);
        };
        let (said, _lab) = turns(LIFTING, "workspace-write", &[before, call.clone()], strict);
        assert!(said[0].contains("exited with code 0"), "{call}: {}", said[0]);
        let escaped = root.join("escaped").exists();
        fs::remove_dir_all(&root).unwrap();
        assert!(!escaped, "{call}: {said:?}");
    }
}

/// The same command leaves the sandbox in the directory of the thread, however that is named, but not below
/// it.
#[test]
fn an_allow_rule_holds_in_the_directory_of_the_thread() {
    for (workdir, code) in [(".", true), ("src/..", true), ("src/up", true), ("src", false)] {
        let before = json!({ "cmd": "mkdir -p src && ln -sfn .. src/up", "login": false });
        let call = json!({ "cmd": "touch /var/tmp/MARK", "workdir": workdir });
        let mark = format!("/var/tmp/heddle-lift-mark-{}", std::process::id());
        let call: Value =
            serde_json::from_str(&call.to_string().replace("/var/tmp/MARK", &mark)).unwrap();
        let rule = format!("prefix_rule(pattern=[\"touch\", {mark:?}], decision=\"allow\")\n");
        let (said, _lab) = turns(&rule, "workspace-write", &[before, call], |_, _| {});
        let made = fs::remove_file(&mark).is_ok();
        assert_eq!(made, code, "{workdir}: {said:?}");
    }
}

#[test]
fn explanations_depend_on_the_directory() {
    let lab = lab();
    lab.home.write("rules/a.rules", LIFTING).unwrap();
    fs::create_dir(lab.workspace.path().join("sub")).unwrap();
    let got = explain(&lab, &["--workdir", "sub", "--", "touch", "x"]);
    assert_eq!((&got["decision"], &got["place"]), (&json!("run"), &json!("sandbox")), "{got}");
    let kept = got["kept"].as_str().unwrap();
    assert!(kept.contains("sub is not the working directory of the thread"), "{kept}");
    let got = explain(&lab, &["--workdir", "sub/..", "--", "touch", "x"]);
    assert_eq!((&got["place"], &got["kept"]), (&json!("outside"), &Value::Null), "{got}");
    let got = explain(&lab, &["--", "git fetch origin"]);
    assert!(got["kept"].as_str().unwrap().contains("does not name all of them"), "{got}");
}

#[test]
fn rules_are_enforced_in_a_turn() {
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
