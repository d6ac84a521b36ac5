//! Every call is shown, even if it fails: commands blocked by the sandbox, refused commands, invalid calls. Each is
//! shown in every output format, and in the saved thread.

use serde_json::{Value, json};
use testkit::{Lab, ModelServer, script};

use crate::app_server::Client;
use crate::run::{Ended, Run, exec, lab_for};
use crate::{BINARY, run};

fn turn(call: Value, args: &[&str]) -> (Ended, Lab) {
    let answers = json!([script::response([call]), script::response([script::message("done")])]);
    let server = ModelServer::start(answers).unwrap();
    let lab = lab_for(&server);
    let mut command = exec(&lab, &["-s", "read-only"]);
    command.args(args).arg("go");
    (Run::start(command).end(), lab)
}

/// Makes one call in a read-only sandbox. `want` is how the item ends, with a part of its text.
#[track_caller]
fn check(call: Value, want: Value, says: &str) {
    // Without the flag the output matches the reference, which has no event for it.
    let (plain, _) = turn(call.clone(), &[]);
    let kinds: Vec<_> = plain.events().iter().map(|it| it["item"]["type"].clone()).collect();
    assert!(kinds.iter().all(|kind| kind.is_null() || kind == "agent_message"), "{plain:#?}");
    assert!(plain.stderr.contains("1 of the model's calls"), "{plain:#?}");

    let (ended, lab) = turn(call.clone(), &["--include-refused"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let events = ended.events();
    let kind = want["type"].as_str().unwrap();
    let found: Vec<_> = events
        .iter()
        .filter(|event| event["item"]["type"] == kind)
        .map(|event| (event["type"].as_str().unwrap(), &event["item"]))
        .collect();
    let [begun @ .., ("item.completed", item)] = found.as_slice() else {
        panic!("no {want} in {events:#?}")
    };
    assert_eq!(begun.len(), usize::from(kind != "error"), "{found:#?}");
    for (name, value) in want.as_object().unwrap() {
        assert_eq!(&item[name], value, "{name} of {item:#}");
    }
    assert!(item.to_string().contains(says), "{says}: {item:#}");

    // Human-readable output shows it, too.
    let (human, _) = human(call);
    assert!(human.contains(says), "{says}: {human}");

    // So do both ways to read the thread later.
    let mut command = lab.command(BINARY);
    let thread = events[0]["thread_id"].as_str().unwrap();
    command.args(["threads", "show", thread]);
    let shown = Run::start(command).end();
    assert!(shown.stdout.contains(says), "{says}: {shown:#?}");
    let mut client = Client::initialized(&lab, &[]);
    let asked = json!({"threadId": thread, "includeTurns": true});
    let read = client.ask("thread/read", asked).unwrap();
    let items = read["thread"]["turns"][0]["items"].as_array().unwrap().clone();
    let kinds: Vec<_> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
    let kind = match kind {
        "command_execution" => "commandExecution",
        "file_change" => "fileChange",
        _ => "mcpToolCall",
    };
    assert_eq!(kinds, ["userMessage", kind, "agentMessage"], "{items:#?}");
}

fn human(call: Value) -> (String, Lab) {
    let answers = json!([script::response([call]), script::response([script::message("done")])]);
    let server = ModelServer::start(answers).unwrap();
    let lab = lab_for(&server);
    let mut command = lab.command(BINARY);
    command.args(["exec", "-s", "read-only", "go"]);
    (Run::start(command).end().stderr, lab)
}

fn command(cmd: &str) -> Value {
    script::call("c1", "exec_command", json!({ "cmd": cmd }))
}

/// Commands that ran and failed with a message that a sandbox might have caused.
#[test]
fn commands_that_look_denied() {
    for words in
        ["Permission denied", "Operation not permitted", "Read-only file system", "sandbox"]
    {
        let want = json!({"type": "command_execution", "status": "failed", "exit_code": 3});
        check(command(&format!("echo '{words}'; exit 3")), want, words);
    }
    let want = json!({"type": "command_execution", "status": "failed", "exit_code": 1});
    check(command("touch new"), want, "Read-only file system");
}

/// Commands that were refused before anything ran.
#[test]
fn refused_commands() {
    let want = json!({"type": "command_execution", "status": "declined", "exit_code": null});
    check(command("rm -rf ."), want.clone(), "destroys files");
    let escalated = json!({"cmd": "true", "sandbox_permissions": "require_escalated"});
    check(script::call("c1", "exec_command", escalated), want.clone(), "approval policy");
    let justified = json!({"cmd": "true", "justification": "please"});
    check(script::call("c1", "exec_command", justified), want, "only for calls");
}

/// Patches that were refused before anything was changed.
#[test]
fn refused_patches() {
    let patch = |body: &str| format!("*** Begin Patch\n{body}\n*** End Patch\n");
    let custom = |text: String| script::call("c1", "apply_patch", json!({ "input": text }));
    let want = |kind: &str| json!({"type": "file_change", "status": "failed", "changes": [{"path": "", "kind": kind}]});
    for (text, kind, says) in [
        (patch("*** Add File: new\n+x"), "add", "read-only"),
        (patch("*** Delete File: missing"), "delete", "does not exist"),
        (patch("*** Update File: missing\n@@\n-x\n+y"), "update", "does not exist"),
    ] {
        let mut want = want(kind);
        // The path is absolute and differs each time.
        want.as_object_mut().unwrap().remove("changes");
        check(custom(text.clone()), want.clone(), says);
        check(command(&format!("apply_patch <<'EOF'\n{text}EOF")), want, says);
    }
    let want = json!({"type": "error"});
    check(custom("no patch".to_owned()), want, "must start with");
}

/// Calls that are neither.
#[test]
fn invalid_calls() {
    let want = json!({"type": "error"});
    check(script::call("c1", "fly", json!({"to": "moon"})), want.clone(), "unsupported call: fly");
    check(script::custom_call("c1", "fly", "moon"), want.clone(), "unsupported custom tool call");
    let cases = [("exec_command", r#"{"cmd":7}"#), ("exec_command", "{"), ("update_plan", "[]")];
    for (tool, arguments) in cases {
        let call = script::call_text("c1", tool, arguments);
        check(call, want.clone(), "failed to parse function arguments");
    }
    let call = script::call("c1", "write_stdin", json!({"session_id": 77}));
    check(call, want.clone(), "there is no session 77");
    let call = script::call("c1", "view_image", json!({"path": "missing.png"}));
    check(call, want, "cannot be shown");
}

/// A model that is refused repeatedly is stopped long before the limit of requests.
#[test]
fn loops_of_refusals_end() {
    type Call = fn(usize) -> Value;
    let cases: [(&str, Call); 5] = [
        ("denied by the sandbox", |_| command("touch new")),
        ("refused by the policy", |n| command(&format!("rm -rf . {n}"))),
        ("invalid arguments", |n| script::call("c", "exec_command", json!({ "cmd": n }))),
        ("no such tool", |n| script::call("c", "fly", json!({ "to": n }))),
        ("a patch that does not fit", |n| {
            let text = format!("*** Begin Patch\n*** Delete File: no{n}\n*** End Patch");
            script::call("c", "apply_patch", json!({ "input": text }))
        }),
    ];
    for (what, call) in cases {
        let answers: Vec<_> = (0..100).map(|n| script::response([call(n)])).collect();
        let server = ModelServer::start(json!(answers)).unwrap();
        let lab = run::lab_for(&server);
        let args = ["-s", "read-only", "-c", "limits.idle_answers_max=3", "go"];
        let ended = Run::start(exec(&lab, &args)).end();
        assert_eq!(ended.code, Some(4), "{what}: {ended:#?}");
        assert!(server.requests().len() <= 5, "{what}: {} requests", server.requests().len());
        assert!(ended.stdout.contains("idle_answers_max"), "{what}: {ended:#?}");
    }
}

/// Files that commands may not read are not read for the model either: not by a patch, and not as
/// instructions.
#[test]
fn links_to_hidden_files() {
    let link = |target: &str| command(&format!("ln -sf {target} way"));
    let patch = "*** Begin Patch\n*** Update File: way\n*** Move to: out\n@@\n+x\n*** End Patch";
    let moved = || script::call("c2", "apply_patch", json!({ "input": patch }));
    for target in ["/proc/self/environ", "/proc/$PPID/environ", "HOME/daemon/token"] {
        let answers = |home: &str| {
            json!([
                script::response([link(&target.replace("HOME", home))]),
                script::response([moved()]),
                script::response([script::message("done")]),
            ])
        };
        let lab = run::lab();
        let home = lab.home.path().display().to_string();
        lab.home.write("daemon/token", "top-secret").unwrap();
        let server = ModelServer::start(answers(&home)).unwrap();
        lab.home.write_mock_config(server.port()).unwrap();
        let mut run = exec(&lab, &["-s", "workspace-write", "go"]);
        run.env("HEDDLE_TEST_PLAIN", "top-secret");
        let ended = Run::start(run).end();
        assert_eq!(ended.code, Some(0), "{target}: {ended:#?}");
        assert!(!lab.workspace.path().join("out").exists(), "{target}: {ended:#?}");
        let bodies: String = server.requests().iter().map(|it| it.body.to_string()).collect();
        assert!(!bodies.contains("top-secret"), "{target}");
    }
}

/// Commands still running at the end of the turn are killed, and that is reported.
#[test]
fn commands_that_outlive_the_turn() {
    let sleeping = json!({ "cmd": "exec sleep 600", "yield_time_ms": 250 });
    let (ended, _) = turn(script::call("c1", "exec_command", sleeping), &[]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told = "`exec sleep 600` was still running when the turn ended";
    assert_eq!(ended.stderr.matches(told).count(), 1, "{ended:#?}");
    let (ended, _) = turn(command("true"), &[]);
    assert!(!ended.stderr.contains("still running"), "{ended:#?}");
}

/// The answer file is written outside the sandbox, so the model must not be able to redirect it.
#[test]
fn an_answer_is_not_written_through_links() {
    for swap in ["ln -sfn .git/config answer.txt", "rm answer.txt; mkfifo answer.txt"] {
        let answers = json!([
            script::response([command(swap)]),
            script::response([script::message("[core]\n\tfsmonitor = false\n")])
        ]);
        let server = ModelServer::start(answers).unwrap();
        let lab = lab_for(&server);
        lab.workspace.write("answer.txt", "as it was").unwrap();
        let config = "[core]\n";
        lab.workspace.write(".git/config", config).unwrap();
        let run = exec(&lab, &["-s", "workspace-write", "-o", "answer.txt", "go"]);
        let ended = Run::start(run).end();
        assert_eq!(ended.code, Some(0), "{swap}: {ended:#?}");
        assert_eq!(lab.workspace.read(".git/config").unwrap(), config, "{swap}");
        assert!(lab.workspace.read("answer.txt").unwrap().contains("fsmonitor"), "{swap}");
    }
}

/// Instructions that the model does not read as they are: said once, on stderr, and not in JSON lines.
#[test]
fn instructions_that_are_not_read() {
    type Make = fn(&std::path::Path);
    let cases: [(Make, &str, &str); 4] = [
        (|at| std::fs::create_dir(at).unwrap(), "", "AGENTS.md is not read: it is a directory"),
        (|at| std::fs::write(at, b"a\xff").unwrap(), "", "AGENTS.md is not UTF-8 text"),
        (
            |at| std::fs::write(at, "x".repeat(200)).unwrap(),
            "project_doc_max_bytes=100",
            "the model reads only the first 100 of ",
        ),
        (|at| std::fs::write(at, "x").unwrap(), "", ""),
    ];
    for (make, setting, says) in cases {
        for json in [true, false] {
            let answers = json!([script::response([script::message("ok")])]);
            let server = ModelServer::start(answers).unwrap();
            let lab = lab_for(&server);
            make(&lab.workspace.path().join("AGENTS.md"));
            let more = (!setting.is_empty()).then_some(["-c", setting]);
            let mut run = lab.command(BINARY);
            run.arg("exec").args(json.then_some("--json")).args(more.into_iter().flatten());
            run.arg("go");
            let ended = Run::start(run).end();
            assert_eq!(ended.code, Some(0), "{ended:#?}");
            assert_eq!(
                ended.stderr.matches("AGENTS.md").count(),
                usize::from(!says.is_empty()),
                "{ended:#?}"
            );
            assert!(
                ended.stderr.contains(says) && !ended.stdout.contains("AGENTS.md"),
                "{ended:#?}"
            );
        }
    }
}

/// A directory on the way to the file that a command moves: nothing is written, and the answer is not lost.
#[test]
fn an_answer_is_not_written_where_a_directory_was_moved() {
    for swap in ["mv sub old && mkdir sub", "mv sub old", "rm -r sub", "mv sub old; ln -s old sub"]
    {
        let answers = json!([
            script::response([command(swap)]),
            script::response([script::message("forty-two")])
        ]);
        let server = ModelServer::start(answers).unwrap();
        let lab = lab_for(&server);
        lab.workspace.write("sub/keep", "").unwrap();
        let mut run = lab.command(BINARY);
        run.args(["exec", "-s", "workspace-write", "-o", "sub/x", "go"]);
        let ended = Run::start(run).end();
        assert_eq!(ended.code, Some(1), "{swap}: {ended:#?}");
        assert_eq!(ended.stdout, "forty-two\n", "{swap}: {ended:#?}");
        let says = ["the answer was not written to sub/x", "when the turn began was"];
        assert!(says.iter().all(|says| ended.stderr.contains(says)), "{swap}: {ended:#?}");
        for place in ["sub/x", "old/x"] {
            assert!(!lab.workspace.path().join(place).exists(), "{swap}: {place}");
        }
    }
}

#[test]
fn instructions_that_lead_out_of_the_repository() {
    for (target, sent) in [("/proc/self/environ", false), ("OUTSIDE/x", false), ("docs/x", true)] {
        let server =
            ModelServer::start(json!([script::response([script::message("ok")])])).unwrap();
        let lab = lab_for(&server);
        // Another lab is outside of this one's repository.
        let outside = run::lab();
        outside.workspace.write("x", "marked").unwrap();
        lab.workspace.write("docs/x", "marked").unwrap();
        let target = target.replace("OUTSIDE", &outside.workspace.path().display().to_string());
        std::os::unix::fs::symlink(&target, lab.workspace.path().join("AGENTS.md")).unwrap();
        let mut run = exec(&lab, &["go"]);
        run.env("HEDDLE_TEST_PLAIN", "marked");
        let ended = Run::start(run).end();
        let body = server.requests()[0].body.to_string();
        assert_eq!(body.contains("marked"), sent, "{target}: {ended:#?}");
        let warned = ended.stderr.contains("is a link out of the repository");
        assert_eq!(warned, target.ends_with("/x") && !sent, "{target}: {ended:#?}");
    }
}
