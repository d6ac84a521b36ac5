//! Answers that must match a schema: checked whatever the endpoint is, requested again once, then a failure.

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{ModelServer, script};

use crate::BINARY;
use crate::run::{Ended, Run, exec, lab_for, until};

const SCHEMA: &str = r#"{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false}"#;

/// Runs against an endpoint that gives these answers, one per request. Returns how it ended, the content of
/// the answer file, and the requests.
fn run(answers: &[&str], args: &[&str]) -> (Ended, String, Vec<Value>) {
    let entry = |answer: &&str| match *answer {
        "" => script::response([]),
        answer => script::response([script::message(answer)]),
    };
    let server = ModelServer::start(Value::Array(answers.iter().map(entry).collect())).unwrap();
    let lab = lab_for(&server);
    lab.workspace.write("schema.json", SCHEMA).unwrap();
    lab.workspace.write("answer.txt", "as it was").unwrap();
    let mut command = exec(&lab, &["-o", "answer.txt", "--output-schema", "schema.json"]);
    command.args(args);
    let ended = Run::start(command).end();
    let bodies = server.requests().iter().map(|request| request.body.clone()).collect();
    (ended, lab.workspace.read("answer.txt").unwrap(), bodies)
}

/// The turn has this answer after this many requests.
#[track_caller]
fn answered(answers: &[&str], requests: usize) {
    let (ended, file, bodies) = run(answers, &["go"]);
    assert_eq!((ended.code, bodies.len()), (Some(0), requests), "{ended:#?}");
    assert_eq!(file, answers[requests - 1], "{ended:#?}");
    let usage = ended.events().pop().unwrap()["usage"].take();
    assert_eq!(usage["input_tokens"], 100 * requests, "{ended:#?}");
    if requests == 2 {
        let told = bodies[1]["input"].as_array().unwrap().last().unwrap();
        let text = told["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("Your answer does not follow the schema"), "{told}");
        // The schema also applies to the second answer.
        assert_eq!(bodies[1]["text"]["format"], bodies[0]["text"]["format"]);
    }
}

/// The turn fails after two requests, and the message contains all `words`.
#[track_caller]
fn failed(answers: &[&str], words: &[&str]) {
    let (ended, file, bodies) = run(answers, &["go"]);
    assert_eq!((ended.code, bodies.len(), file.as_str()), (Some(1), 2, "as it was"), "{ended:#?}");
    let last = ended.events().pop().unwrap();
    assert_eq!(last["type"], "turn.failed", "{ended:#?}");
    for word in words {
        assert!(last["error"]["message"].as_str().unwrap().contains(word), "{word} {ended:#?}");
        assert!(ended.stderr.contains(word), "{word} {ended:#?}");
    }
    assert!(ended.stdout.len() < 20_000 && ended.stderr.len() < 2000, "{ended:#?}");
}

#[test]
fn answers_are_checked() {
    answered(&[r#"{"ok":true}"#], 1);
    answered(&["not json", r#"{"ok":true}"#], 2);
    answered(&[r#"{"ok":"yes"}"#, r#"{"ok":false}"#], 2);
    answered(&["", r#"{"ok":true}"#], 2);
    answered(&["```json\n{\"ok\":true}\n```", r#"{"ok":true}"#], 2);
    failed(&["not json"], &["expected one JSON value", "got \"not json\""]);
    failed(&[r#"{"ok":"yes"}"#], &["at /ok: expected boolean, got \"yes\""]);
    let several = r#"{"ok":1,"other":2}"#;
    failed(&[several], &["at /ok: expected boolean, got 1", "got [\"other\"] as well"]);
    failed(&["{}", "[]"], &["at the whole answer: expected object, got []"]);
    failed(&[""], &["got no answer"]);
    failed(&[r#"{"ok":true,"ok":true}"#], &["stands twice"]);
    let long = format!(r#"{{"ok":"{}"}}"#, "x".repeat(3000));
    failed(&[&long], &["at /ok: expected boolean, got \"xxx"]);
}

/// `--output-retries` says how often the model may correct its answer.
#[test]
fn the_number_of_corrections_can_be_set() {
    let good = r#"{"ok":true}"#;
    for (retries, answers, code, requests) in [
        ("0", &["no", good][..], 1, 1),
        ("2", &["no", "[]", good], 0, 3),
        ("2", &["no", "[]", "{}", good], 1, 3),
    ] {
        for args in [
            vec!["--output-retries", retries],
            vec!["-c", &format!("limits.output_retries={retries}")],
        ] {
            let (ended, file, bodies) = run(answers, &[args.as_slice(), &["go"]].concat());
            assert_eq!((ended.code, bodies.len()), (Some(code), requests), "{retries} {ended:#?}");
            assert_eq!(file, if code == 0 { good } else { "as it was" }, "{ended:#?}");
        }
    }
    let (ended, _, bodies) = run(&["no"], &["--output-retries", "0", "go"]);
    assert!(ended.stderr.contains("does not match the output schema: at the whole"), "{ended:#?}");
    assert!(!bodies[0].to_string().contains("does not follow"));
    for (args, says) in [
        (&["--output-retries", "11", "go"][..], "11 is not in 0..=10"),
        (&["--output-retries", "-1", "go"], "--output-retries"),
    ] {
        let (ended, _, bodies) = run(&[good], args);
        assert_eq!((ended.code, bodies.len()), (Some(2), 0), "{ended:#?}");
        assert!(ended.stderr.contains(says), "{ended:#?}");
    }
    let server = ModelServer::start(json!([])).unwrap();
    let ended = Run::start(exec(&lab_for(&server), &["--output-retries", "1", "go"])).end();
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(ended.stderr.contains("--output-retries requires --output-schema"), "{ended:#?}");
}

/// A schema goes out as it is. If the provider refuses the request, stderr says what strict providers take.
#[test]
fn a_refused_schema_is_explained() {
    let error = json!({ "error": { "message": "Invalid schema for response_format" } });
    let server = ModelServer::start(json!([script::status(400, error)])).unwrap();
    let lab = lab_for(&server);
    for (schema, says) in [
        (SCHEMA, &[][..]),
        (
            r#"{"type":"object","properties":{"ok":{"type":"boolean"}}}"#,
            &[
                "strict form",
                r#"{"ok":{"type":["boolean","null"]}},"required":["ok"],"additionalProperties":false}"#,
            ],
        ),
        (
            r#"{"type":"object","properties":{"a":{},"b":{"type":"object","additionalProperties":{}}}}"#,
            &[
                "at /properties/a: `type`: say what",
                "at /properties/b: `additionalProperties`: name all",
            ],
        ),
    ] {
        lab.workspace.write("schema.json", schema).unwrap();
        let ended = Run::start(exec(&lab, &["--output-schema", "schema.json", "go"])).end();
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        assert_eq!(ended.stderr.contains("output schema"), !says.is_empty(), "{ended:#?}");
        for text in says {
            assert!(ended.stderr.contains(text), "{text} {ended:#?}");
        }
    }
    let sent = server.requests().last().unwrap().body["text"]["format"]["schema"].clone();
    assert!(sent.get("additionalProperties").is_none(), "{sent}");
}

/// A schema may come from a process substitution: `<(…)`.
#[test]
fn a_schema_can_be_a_pipe() {
    let answers = json!([script::response([script::message(r#"{"ok":true}"#)])]);
    let server = ModelServer::start(answers).unwrap();
    let lab = lab_for(&server);
    let mut command = lab.command("bash");
    let line = format!("exec {BINARY} exec --json --output-schema <(echo '{SCHEMA}') go");
    command.args(["-c", &line]);
    let ended = Run::start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let format = &server.requests()[0].body["text"]["format"]["schema"];
    assert_eq!(format.to_string(), serde_json::from_str::<Value>(SCHEMA).unwrap().to_string());
    // A larger one is refused, not read forever.
    let mut command = lab.command("bash");
    let line = format!("exec {BINARY} exec --json --output-schema <(yes '{{') go");
    command.args(["-c", &line]);
    let ended = Run::start(command).end();
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(ended.stderr.contains("larger than 1048576 bytes"), "{ended:#?}");
}

/// Human-readable output reports the same.
#[test]
fn violations_are_shown_to_the_user() {
    let server = ModelServer::start(json!([script::response([script::message("no")])])).unwrap();
    let lab = lab_for(&server);
    lab.workspace.write("schema.json", SCHEMA).unwrap();
    let mut command = lab.command(crate::BINARY);
    command.args(["exec", "--output-schema", "schema.json", "go"]);
    let ended = Run::start(command).end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:#?}");
    assert!(ended.stderr.contains("warning the answer does not match"), "{ended:#?}");
    assert!(ended.stderr.contains("error the answer does not match"), "{ended:#?}");
}

/// A resumed thread is checked like a new one, and without a schema not at all.
#[test]
fn resumed_threads_are_checked_if_a_schema_is_given() {
    let message = |text| script::response([script::message(text)]);
    let script = json!([message("no"), message("no"), message("no"), message("{\"ok\":true}")]);
    let server = ModelServer::start(script).unwrap();
    let lab = lab_for(&server);
    lab.workspace.write("schema.json", SCHEMA).unwrap();
    let with = ["--output-schema", "schema.json"];
    let first = Run::start(exec(&lab, &[with[0], with[1], "go"])).end();
    assert_eq!(first.code, Some(1), "{first:#?}");
    let free = Run::start(exec(&lab, &["resume", "--last", "freely"])).end();
    assert_eq!(free.code, Some(0), "{free:#?}");
    let args = ["-o", "answer.txt", "resume", "--last", with[0], with[1], "again"];
    let again = Run::start(exec(&lab, &args)).end();
    assert_eq!(again.code, Some(0), "{again:#?}");
    assert_eq!(lab.workspace.read("answer.txt").unwrap(), "{\"ok\":true}");
    let seen = server.requests().len();
    assert_eq!(seen, 4);
}

/// A signal ends the second attempt like the first.
#[test]
fn an_interruption_during_the_second_attempt() {
    let script = json!([
        script::response([script::message("no")]),
        { "events": [script::created()], "hang_ms": 60_000 },
    ]);
    let server = ModelServer::start(script).unwrap();
    let lab = lab_for(&server);
    lab.workspace.write("schema.json", SCHEMA).unwrap();
    let args = ["-o", "answer.txt", "--output-schema", "schema.json", "go"];
    let run = Run::start(exec(&lab, &args));
    until("the second request", || (server.requests().len() == 2).then_some(()));
    run.signal(Signal::INT);
    let ended = run.end();
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(!ended.stdout.contains("turn.failed"), "{ended:#?}");
}
