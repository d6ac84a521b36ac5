//! Endpoints that run calls themselves, that send unreadable data, and that never finish.

use std::fs;

use serde_json::{Value, json};
use testkit::{ModelServer, Strict, script};

use crate::run::{Ended, Run, exec, lab_for};

/// Runs one turn of `heddle exec --json` with extra arguments.
#[track_caller]
fn run(server: &ModelServer, args: &[&str]) -> (Ended, testkit::Lab) {
    let lab = lab_for(server);
    let mut command = exec(&lab, &["-s", "danger-full-access"]);
    command.args(args).arg("go");
    (Run::start(command).end(), lab)
}

fn output(call_id: &str, text: &str, status: &str) -> Value {
    script::item(json!({
        "type": "function_call_output", "id": "fco_1", "call_id": call_id, "output": text,
        "status": status, "name": "echo",
    }))
}

fn completed<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let items = events.iter().filter(|event| event["type"] == "item.completed");
    items.map(|event| &event["item"]).filter(|item| item["type"] == kind).collect()
}

#[test]
fn a_call_that_the_endpoint_ran_is_one_item_and_no_request() {
    let answer = script::response([
        script::call("c1", "echo", json!({"msg": "hi"})),
        output("c1", "hi", "completed"),
        script::call("c2", "fetch", json!({})),
        output("c2", "no network", "failed"),
        script::message("it said hi"),
    ]);
    let next = script::response([script::message("again")]);
    let server = ModelServer::strict(json!([answer, next]), Strict::default()).unwrap();
    let (ended, lab) = run(&server, &[]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(server.requests().len(), 1, "{ended:#?}");
    let events = ended.events();
    let calls = completed(&events, "mcp_tool_call");
    assert_eq!(calls.len(), 2, "{ended:#?}");
    assert_eq!(calls[0]["tool"], "echo");
    assert_eq!(calls[0]["arguments"], json!({"msg": "hi"}));
    assert_eq!(calls[0]["result"]["content"][0]["text"], "hi");
    assert_eq!((&calls[0]["status"], &calls[0]["error"]), (&json!("completed"), &Value::Null));
    assert_eq!(calls[1]["status"], "failed");
    assert_eq!(calls[1]["error"]["message"], "no network");
    assert_eq!(completed(&events, "error").len(), 0, "{ended:#?}");
    // The next turn sends both pairs, as the endpoint returned them.
    let mut command = exec(&lab, &["resume", "--last", "more"]);
    command.stdin(std::process::Stdio::null());
    let ended = Run::start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(completed(&ended.events(), "error").len(), 0, "{ended:#?}");
    let input = server.requests()[1].body["input"].clone();
    let kinds: Vec<_> = input.as_array().unwrap().iter().map(|item| item["type"].clone()).collect();
    let call = kinds.iter().position(|kind| kind == "function_call").unwrap();
    let want = ["function_call", "function_call_output", "function_call", "function_call_output"];
    assert_eq!(kinds[call..call + 4], want.map(Value::from), "{input}");
    assert_eq!(input[call + 1]["output"], "hi");
    assert_eq!(input[call + 3]["output"], "no network");
}

#[test]
fn a_call_and_its_output_are_shown() {
    let answer = script::response([
        script::call("c1", "echo", json!({"msg": "hi"})),
        output("c1", "hi there", "completed"),
        script::message("done"),
    ]);
    let server = ModelServer::start(json!([answer])).unwrap();
    let lab = lab_for(&server);
    let mut command = lab.command(crate::BINARY);
    command.args(["exec", "go"]);
    let ended = Run::start(command).end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "done\n"), "{ended:#?}");
    for words in ["remote call echo of endpoint: {\"msg\":\"hi\"}", "returned echo\n  hi there\n"] {
        assert!(ended.stderr.contains(words), "{ended:#?}");
    }
}

/// Whatever an endpoint does to keep a turn going, a named limit with its own exit code ends it.
#[test]
fn no_endpoint_keeps_a_turn_going() {
    let call = |name: &str| script::response([script::call("c", name, json!({"cmd": "false"}))]);
    let more = json!({"events": [
        script::created(),
        {"type": "response.completed", "response": {"id": "r", "end_turn": false}},
    ]});
    for (what, answer) in [
        ("an unknown tool", call("fly")),
        ("the same failing call", call("exec_command")),
        ("nothing", more),
    ] {
        let server = ModelServer::start(json!([answer])).unwrap();
        let (ended, _lab) = run(&server, &["-c", "limits.idle_answers_max=3"]);
        assert_eq!(ended.code, Some(4), "{what}: {ended:#?}");
        assert!((4..=5).contains(&server.requests().len()), "{what}: {ended:#?}");
        assert!(ended.stdout.contains("limits.idle_answers_max"), "{what}: {ended:#?}");
    }
}

#[test]
fn unreadable_data_is_shown_reported_or_fails_the_answer() {
    let frame = |data: &str| format!("data: {data}\n\n");
    let whole = frame(r#"{"type":"response.completed","response":{"id":"r"}}"#);
    let done = |item: &str| {
        frame(&format!(r#"{{"type":"response.output_item.done","item":{item}}}"#)) + &whole
    };
    let no_retry = "model_providers.mock.stream_max_retries=0";
    for (raw, code, says) in [
        (
            done(
                r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a\ud800b"}]}"#,
            ),
            0,
            "a\u{fffd}b",
        ),
        (
            done(r#"{"type":"message","role":"assistant","content":5}"#),
            1,
            "(`message`) that is broken",
        ),
        (
            done(r#"{"type":"function_call","arguments":"{}"}"#),
            1,
            "(`function_call`) that is broken",
        ),
        (done(r#"{"type":"hologram"}"#), 0, "`hologram`"),
        (done("{"), 0, "1 events that could not be read"),
        (
            frame(
                r#"{"type":"response.completed","response":{"id":"r","output":[{"type":"message","role":"assistant","content":"only here"}]}}"#,
            ),
            0,
            "only here",
        ),
        (
            frame(r#"{"type":"response.output_text.delta","delta":"found"}"#) + &whole,
            0,
            r#""type":"agent_message","text":"found""#,
        ),
        (
            frame(
                r#"{"type":"response.output_item.added","item":{"type":"message","role":"assistant","content":[]}}"#,
            ) + &frame(r#"{"type":"response.output_text.delta","delta":"lost"}"#)
                + &whole,
            0,
            "in the middle of a message",
        ),
        (
            frame(
                r#"{"type":"response.output_item.added","item":{"type":"function_call","call_id":"c","name":"exec_command","arguments":""}}"#,
            ) + &whole,
            1,
            "in the middle of a call",
        ),
        (whole.clone(), 0, "the model answered nothing"),
    ] {
        let server = ModelServer::start(json!([{ "raw": raw }])).unwrap();
        let (ended, _lab) = run(&server, &["-c", no_retry]);
        assert_eq!(ended.code, Some(code), "{raw} {ended:#?}");
        assert!(ended.stdout.contains(says), "{raw} {ended:#?}");
    }
}

/// A call that comes twice in one answer runs once, and its pair is in the history once.
#[test]
fn a_call_that_comes_twice_runs_once() {
    let command = json!({"cmd": "echo ran >> runs"});
    let call = script::call("c1", "exec_command", command.clone());
    let answer = script::response([call.clone(), call]);
    let mut last = script::message("done");
    last["item"]["id"] = "m1".into();
    let last = script::response([last.clone(), last]);
    let server = ModelServer::strict(json!([answer, last]), Strict::default()).unwrap();
    let (ended, lab) = run(&server, &[]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(lab.workspace.read("runs").unwrap(), "ran\n", "{ended:#?}");
    let events = ended.events();
    assert_eq!(completed(&events, "command_execution").len(), 1, "{ended:#?}");
    assert_eq!(completed(&events, "agent_message").len(), 1, "{ended:#?}");
    for id in ["c1", "m1"] {
        let says = format!("sent items twice: `{id}`");
        assert!(ended.stdout.contains(&says), "{ended:#?}");
    }

    // Chat Completions: the same id and arguments twice in one answer, and again in the next one, where a
    // server that counts from zero means another call.
    let call = |index| testkit::chat::call(index, "call_0", "exec_command", command.clone());
    let script = json!([
        testkit::chat::answer([call(0), call(1)]),
        testkit::chat::answer([call(0)]),
        testkit::chat::answer([testkit::chat::text("done")]),
    ]);
    let server = ModelServer::strict(script, Strict::default()).unwrap();
    let (ended, lab) = run(&server, &["-c", "model_providers.mock.wire_api=chat"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(lab.workspace.read("runs").unwrap(), "ran\nran\n", "{ended:#?}");
}

/// An unpaired surrogate in the arguments of a call, which are JSON within JSON: the call runs.
#[test]
fn arguments_with_half_a_surrogate_pair_run() {
    let item = r#"{"type":"function_call","call_id":"c","name":"exec_command","arguments":"{\"cmd\":\"printf '%s' 'a\\ud800b' > out\"}"}"#;
    let raw = format!(
        "data: {{\"type\":\"response.output_item.done\",\"item\":{item}}}\n\n\
         data: {{\"type\":\"response.completed\",\"response\":{{\"id\":\"r\"}}}}\n\n"
    );
    let last = script::response([script::message("done")]);
    let server = ModelServer::start(json!([{ "raw": raw }, last])).unwrap();
    let (ended, lab) = run(&server, &[]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(lab.workspace.read("out").unwrap(), "a\u{fffd}b", "{ended:#?}");
}

/// An endless stream ends at a named limit of bytes, whatever it contains.
#[test]
fn an_endless_answer_ends_at_its_limit() {
    let created = r#"data: {"type":"response.created","response":{"id":"r"}}"#;
    let added = r#"data: {"type":"response.output_item.added","item":{"type":"message","role":"assistant","content":[]}}"#;
    let text =
        format!(r#"data: {{"type":"response.output_text.delta","delta":"{}"}}"#, "x".repeat(4000));
    let thought = text.replace("output_text", "reasoning_summary_text");
    let arguments = text.replace("output_text", "function_call_arguments");
    let unknown = text.replace("output_text.delta", "in_progress");
    let comment = format!(": {}", "x".repeat(4000));
    let bytes = 24 << 20;
    for line in [text, thought, arguments, unknown, comment] {
        let endless = format!("{line}\n\n").repeat(bytes / line.len());
        let raw = format!("{created}\n\n{added}\n\n{endless}");
        let server = ModelServer::start(json!([{ "raw": raw, "hang_ms": 20_000 }])).unwrap();
        let begun = &line[..line.len().min(60)];
        let limit = format!("limits.answer_bytes_max={}", 20 << 20);
        let (ended, _lab) = run(&server, &["-c", &limit]);
        assert_eq!(ended.code, Some(4), "{begun}: {}", ended.stderr);
        assert!(ended.stdout.contains("limits.answer_bytes_max"), "{begun}: {}", ended.stdout);
        assert_eq!(server.requests().len(), 1, "{begun}");
    }
}

/// The log records what the endpoint ran in the form that readers of the log know, and keeps what could not
/// be shown.
#[test]
fn the_log_contains_everything() {
    let answer = script::response([
        script::call("c1", "echo", json!({"msg": "hi"})),
        output("c1", "hi", "completed"),
        script::item(json!({"type": "hologram", "of": "roses"})),
        script::message("done"),
    ]);
    let server = ModelServer::start(json!([answer])).unwrap();
    let (ended, lab) = run(&server, &[]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let mut lines = String::new();
    let mut folders = vec![lab.home.path().join("sessions")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path if path.extension().is_some_and(|ext| ext == "jsonl") => {
                    lines += &fs::read_to_string(path).unwrap();
                }
                _ => {}
            }
        }
    }
    for words in [
        r#""type":"McpToolCall""#,
        r#"{"type":"function_call_output","call_id":"c1","output":"hi"}"#,
        r#""of":"roses""#,
    ] {
        assert!(lines.contains(words), "{words} is not in {lines}");
    }
}
