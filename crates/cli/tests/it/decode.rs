//! `heddle debug decode`: every test vector of the dialects through the binary, and the messages about
//! unusable flags.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::Lab;

use crate::BINARY;
use crate::run::{Ended, Run, lab};

fn decode(lab: &Lab, args: &[&str], input: &[u8]) -> Ended {
    let mut command: Command = lab.command(BINARY);
    command.args(["debug", "decode"]).args(args);
    Run::start_with(command, input).end()
}

/// Sorts errors to the end, and normalises arguments for comparison.
fn normal(events: &[Value], json_arguments: bool) -> Vec<Value> {
    let (mut rest, mut errors): (Vec<_>, Vec<_>) =
        events.iter().cloned().partition(|event| event["type"] != "error");
    errors.sort_by_key(ToString::to_string);
    if json_arguments {
        for event in rest.iter_mut().filter(|event| event["type"] == "tool_args") {
            if let Ok(value) = serde_json::from_str(event["text"].as_str().unwrap()) {
                event["text"] = value;
            }
        }
    }
    rest.append(&mut errors);
    rest
}

#[test]
fn vectors() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stream/tests/vectors");
    let lab = lab();
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for vector in serde_json::from_str::<Vec<Value>>(&text).unwrap() {
            // Vectors with raw bytes are covered by the crate's own test.
            let Some(input) = vector["input"].as_str() else { continue };
            count += 1;
            lab.workspace.write("tools.json", vector["tools"].to_string()).unwrap();
            let options = vector["options"].to_string();
            let format = vector["format"].as_str().unwrap();
            let mut args = vec!["--format", format];
            if vector["tools"].is_array() {
                args.extend(["--tools", "tools.json"]);
            }
            if vector["options"].is_object() {
                args.extend(["--options", &options]);
            }
            let json_arguments = vector["args_mode"] == "json";
            let want = normal(vector["expected"].as_array().unwrap(), json_arguments);
            for more in [&[][..], &["--chunk", "1"], &["--chunk", "7"]] {
                let ended = decode(&lab, &[&args[..], more].concat(), input.as_bytes());
                assert_eq!(ended.code, Some(0), "{}: {ended:?}", vector["id"]);
                let got = normal(&ended.events(), json_arguments);
                assert_eq!(got, want, "{} {more:?}", vector["id"]);
            }
        }
    }
    assert!(count > 200, "{count} vectors");
}

const CALL: &[u8] = br#"Hi <tool_call>{"name":"f","arguments":{"a":1}}</tool_call>"#;

#[track_caller]
fn check(args: &[&str], input: &[u8], want: &str) {
    let lab = lab();
    let ended = decode(&lab, args, input);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), want), "{args:?}: {ended:?}");
}

#[test]
fn printed_events() {
    let text = "{\"type\":\"text\",\"text\":\"Hi \"}\n";
    let call = "{\"type\":\"tool_start\",\"index\":0,\"name\":\"f\",\"id\":null}\n\
                {\"type\":\"tool_args\",\"index\":0,\"text\":\"{\\\"a\\\":1}\"}\n\
                {\"type\":\"tool_end\",\"index\":0,\"complete\":true}\n";
    check(&["-f", "hermes"], CALL, &format!("{text}{call}"));
    check(&["-f", "auto", "-"], CALL, &format!("{text}{call}"));
    check(
        &["-f", "hermes", "--ranges"],
        CALL,
        "{\"type\":\"text\",\"text\":\"Hi \",\"range\":[0,3]}\n\
         {\"type\":\"tool_start\",\"index\":0,\"name\":\"f\",\"id\":null,\"range\":[3,25]}\n\
         {\"type\":\"tool_args\",\"index\":0,\"text\":\"{\\\"a\\\":1}\",\"range\":[38,45]}\n\
         {\"type\":\"tool_end\",\"index\":0,\"complete\":true,\"range\":[46,46]}\n",
    );
    check(
        &["-f", "hermes", "--deltas", "--chunk", "2"],
        b"abc",
        "{\"type\":\"text\",\"text\":\"ab\"}\n{\"type\":\"text\",\"text\":\"c\"}\n",
    );
    check(
        &["-f", "hermes"],
        b"a\xffb",
        "{\"type\":\"text\",\"text\":\"a\u{fffd}b\"}\n{\"type\":\"error\",\"kind\":\"invalid_utf8\"}\n",
    );
    check(&["-f", "hermes"], b"", "");
}

#[test]
fn auto_reports_the_detected_format() {
    let ended = decode(&lab(), &["-f", "auto"], CALL);
    assert!(ended.stderr.contains("detected hermes (95 % confidence)"), "{ended:?}");
}

#[test]
fn formats_are_listed() {
    let ended = decode(&lab(), &["--list"], b"");
    let names: Vec<_> =
        ended.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 52 && names.contains(&"harmony"), "{ended:?}");
}

#[test]
fn what_cannot_be_used() {
    for (args, words) in [
        (&["-f", "hermse"][..], &["no format `hermse`", "hermes", "--list"][..]),
        (&["-f", "hermes", "-o", "{"], &["--options", "{"]),
        (&["-f", "hermes", "-o", "[]"], &["--options"]),
        (&["-f", "hermes", "-o", "{\"start_in_reasoning\":1}"], &["--options"]),
        (&["-f", "hermes", "-t", "nowhere.json"], &["nowhere.json"]),
        (&["-f", "hermes", "-t", "."], &["cannot read the tools"]),
        (&["-f", "hermes", "nowhere.txt"], &["nowhere.txt"]),
        (&["-f", "hermes", "--chunk", "0"], &["--chunk"]),
        (&[], &["--format"]),
    ] {
        let ended = decode(&lab(), args, CALL);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{args:?}: {ended:?}");
        for word in words {
            assert!(ended.stderr.contains(word), "no {word:?} for {args:?}: {ended:?}");
        }
    }
    // A tool without a name is identified by its position.
    let lab = lab();
    lab.workspace.write("tools.json", r#"[{"name":"a"},{"x":1}]"#).unwrap();
    let ended = decode(&lab, &["-f", "hermes", "-t", "tools.json"], CALL);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("entry 1"), "{ended:?}");
}

#[test]
fn paths_of_documents() {
    let lab = lab();
    let input = br#"{"do":[{"name":"f","arguments":{"x":{"ToolCall_V2":{"name":"g"}}}}],"b":1}"#;
    for (options, want) in [
        (r#"{"paths":["$.do[]"]}"#, &["f"][..]),
        (r#"{"paths":["$.do[]","ToolCall_V2"],"calls_in_arguments":true}"#, &["f", "g"]),
        (r#"{"paths":["$.nowhere"]}"#, &[]),
    ] {
        for format in ["toolcall_v2", "legacy_json", "auto"] {
            let ended = decode(&lab, &["--format", format, "--options", options], input);
            assert_eq!(ended.code, Some(0), "{ended:#?}");
            let events: Vec<Value> =
                ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let names: Vec<_> = events.iter().filter_map(|event| event["name"].as_str()).collect();
            assert_eq!(names, want, "{format} {options}");
            let text: String = events
                .iter()
                .filter_map(|event| match event["type"] == "text" {
                    true => event["text"].as_str(),
                    false => None,
                })
                .collect();
            assert!(text.contains("\"b\":1"), "{format} {options}: {text}");
        }
    }
    let ended = decode(&lab, &["-f", "toolcall_v2", "-o", r#"{"paths":["a","b[0]"]}"#], b"");
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(ended.stderr.contains("`b[0]`") && ended.stderr.contains("character 2"), "{ended:#?}");
}

/// Joins the data of events to the body of an answer.
fn sse(events: &[&str]) -> String {
    events.iter().map(|data| format!("data: {data}\n\n")).collect()
}

#[test]
fn answers_as_turns_read_them() {
    let lab = lab();
    let message = r#"{"type":"message","role":"assistant","id":"m","content":[]}"#;
    let (one, two) = (
        r#"{"type":"response.output_text.delta","delta":"ab"}"#,
        r#"{"type":"response.output_text.delta","delta":"c"}"#,
    );
    let done = format!(r#"{{"type":"response.output_item.done","item":{message}}}"#);
    let end = r#"{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":3,"output_tokens":1}}}"#;
    let failed =
        r#"{"type":"response.failed","response":{"error":{"code":"server_error","message":"no"}}}"#;
    let (text, pieces) = (&["text"][..], &["text", "text"][..]);
    for (args, events, want) in [
        (
            &["responses"][..],
            &[one, two, &done, end, "never read"][..],
            [text, &["item", "completed"]].concat(),
        ),
        (
            &["responses", "--deltas"],
            &[one, two, &done, end],
            [pieces, &["item", "completed"]].concat(),
        ),
        (&["responses", "--chunk", "1"], &[one, two, end], [text, &["completed"]].concat()),
        (&["responses"], &[one, failed, two], [text, &["failed"]].concat()),
        (&["responses"], &["no JSON", one], vec!["unreadable", "text", "failed"]),
        (&["responses"], &[], vec!["failed"]),
        (
            &["chat", "-f", "hermes"],
            &[
                r#"{"choices":[{"delta":{"content":"<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"}}]}"#,
                r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
                "[DONE]",
            ],
            vec!["created", "item", "completed"],
        ),
    ] {
        let ended = decode(&lab, &[&["--api"], args].concat(), sse(events).as_bytes());
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:#?}");
        let events = ended.events();
        let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, want, "{args:?}: {ended:#?}");
        if let Some(end) = events.iter().find(|event| event["type"] == "failed") {
            assert!(!end["message"].as_str().unwrap().is_empty(), "{ended:#?}");
        }
    }
    for args in [
        &["--api", "responses", "-f", "hermes"][..],
        &["--api", "chat", "--tools", "tools.json"],
        &["--api", "chat", "--ranges"],
        &["--api", "grpc"],
    ] {
        let ended = decode(&lab, args, b"");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{args:?}: {ended:#?}");
    }
}
