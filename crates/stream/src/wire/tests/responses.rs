//! The Responses API, with everything that may be sent twice.

use super::{events, usages};

#[track_caller]
fn check(frames: &[&str], want: &[&str]) {
    super::check("openai_responses", &events(frames), want);
}

const COMPLETED: &str =
    r#"{"type":"response.completed","response":{"id":"r","status":"completed","output":[]}}"#;

#[test]
fn everything_is_emitted_once() {
    check(
        &[
            r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message","content":[]}}"#,
            r#"{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"a"}"#,
            r#"{"type":"response.output_text.done","item_id":"m","output_index":0,"content_index":0,"text":"a"}"#,
            r#"{"type":"response.output_text.done","item_id":"m","output_index":0,"content_index":1,"text":"b"}"#,
            r#"{"type":"response.refusal.delta","item_id":"m","output_index":0,"content_index":2,"delta":"no"}"#,
            r#"{"type":"response.refusal.done","item_id":"m","output_index":0,"content_index":2,"refusal":"no"}"#,
            r#"{"type":"response.content_part.done","item_id":"m","output_index":0,"content_index":0,"part":{"type":"output_text","text":"a"}}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"},{"type":"refusal","refusal":"no"},{"type":"output_text","text":"c"}]}}"#,
            r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"n","type":"message","content":[{"type":"output_text","text":"d"}]}}"#,
            r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"n","type":"message","content":[{"type":"output_text","text":"d"}]}}"#,
            r#"{"type":"response.completed","response":{"id":"r","output":[{"id":"m","type":"message","content":[{"type":"output_text","text":"a"}]}]}}"#,
        ],
        &["text ab", "refusal no", "text cd", "finish stop"],
    );
    check(
        &[
            r#"{"type":"response.reasoning_summary_text.delta","item_id":"r","output_index":0,"summary_index":0,"delta":"a"}"#,
            r#"{"type":"response.reasoning_summary_text.done","item_id":"r","output_index":0,"summary_index":0,"text":"a"}"#,
            r#"{"type":"response.reasoning_text.delta","item_id":"r","output_index":0,"content_index":0,"delta":"b"}"#,
            r#"{"type":"response.reasoning_text.done","item_id":"r","output_index":0,"content_index":0,"text":"b"}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"r","type":"reasoning","summary":[{"type":"summary_text","text":"a"},{"type":"summary_text","text":"c"}],"content":[{"type":"reasoning_text","text":"b"}],"encrypted_content":"s"}}"#,
            COMPLETED,
        ],
        &["reasoning abc", "signature s", "finish stop"],
    );
    // Several interleaved items.
    check(
        &[
            r#"{"type":"response.output_text.delta","output_index":0,"delta":"a"}"#,
            r#"{"type":"response.output_text.delta","output_index":1,"delta":"b"}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"text":"a"}]}}"#,
            r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"message","content":[{"text":"b"}]}}"#,
            COMPLETED,
        ],
        &["text ab", "finish stop"],
    );
    // Without any key to distinguish them.
    check(
        &[
            r#"{"type":"response.output_text.delta","delta":""}"#,
            r#"{"type":"response.output_item.done","item":{"type":"message","content":[{"text":"a"}]}}"#,
            r#"{"type":"response.output_text.delta","delta":"b"}"#,
            r#"{"type":"response.output_item.done","item":{"type":"message","content":[{"text":"b"}]}}"#,
            r#"{"type":"response.output_item.done","item":{"type":"message","content":[{"text":"c"}]}}"#,
            COMPLETED,
        ],
        &["text abc", "finish stop"],
    );
    // The type only in the name of the event.
    super::check(
        "openai_responses",
        "event: response.output_text.delta\r\ndata: {\"delta\":\"a\"}\r\n\r\nevent: response.completed\r\ndata: {\"response\":{\"id\":\"r\"}}\r\n\r\n",
        &["text a", "finish stop"],
    );
}

fn added(index: u64, id: &str, name: &str) -> String {
    format!(
        r#"{{"type":"response.output_item.added","output_index":{index},"item":{{"id":"{id}","type":"function_call","call_id":"c{index}","name":"{name}","arguments":""}}}}"#
    )
}

fn delta(index: u64, id: &str, args: &str) -> String {
    let args = serde_json::to_string(args).expect("a string");
    format!(
        r#"{{"type":"response.function_call_arguments.delta","output_index":{index},"item_id":"{id}","delta":{args}}}"#
    )
}

fn done(index: u64, id: &str, name: &str, args: &str) -> String {
    let args = serde_json::to_string(args).expect("a string");
    format!(
        r#"{{"type":"response.output_item.done","output_index":{index},"item":{{"id":"{id}","type":"function_call","call_id":"c{index}","name":"{name}","arguments":{args}}}}}"#
    )
}

#[test]
fn calls() {
    let one = &["start 0 f #c0", "args 0 {}", "end 0", "finish tool_calls"];
    check(&[&added(0, "i", "f"), &done(0, "i", "f", "{}"), COMPLETED], one);
    check(&[&added(0, "i", "f"), &delta(0, "i", "{}"), COMPLETED], one);
    check(
        &[
            &added(0, "i", "f"),
            r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}"#,
            &done(0, "i", "f", "{}"),
            &done(0, "i", "f", "{}"),
            COMPLETED,
        ],
        one,
    );
    // Ids that change each time, and deltas before the name.
    check(&[&added(0, "x", "f"), &delta(0, "y", "{}"), &done(0, "z", "f", "{}"), COMPLETED], one);
    check(&[&delta(0, "i", "{}"), &done(0, "i", "f", "{}"), COMPLETED], one);
    check(&[&added(0, "i", ""), &delta(0, "i", "{}"), &done(0, "i", "f", "{}"), COMPLETED], one);
    check(&[&delta(0, "i", "{}"), COMPLETED], &["finish stop", "error malformed_call"]);
    // Interleaved, in any order.
    check(
        &[
            &added(0, "i", "f"),
            &added(1, "j", "g"),
            &delta(1, "j", "{\"b\""),
            &delta(0, "i", "{\"a\""),
            &delta(1, "j", ":2}"),
            &done(1, "j", "g", "{\"b\":2}"),
            &delta(0, "i", ":1}"),
            &done(0, "i", "f", "{\"a\":1}"),
            COMPLETED,
        ],
        &[
            "start 0 f #c0",
            "args 0 {\"a\":1}",
            "end 0",
            "start 1 g #c1",
            "args 1 {\"b\":2}",
            "end 1",
            "finish tool_calls",
        ],
    );
    // One index for all.
    let second = done(0, "j", "g", "[]").replace("c0", "c1");
    check(
        &[&done(0, "i", "f", "{}"), &second, COMPLETED],
        &[
            "start 0 f #c0",
            "args 0 {}",
            "end 0",
            "start 1 g #c1",
            "args 1 []",
            "end 1",
            "finish tool_calls",
        ],
    );
    check(
        &[&added(0, "i", "f"), &done(0, "i", "f", ""), COMPLETED],
        &["start 0 f #c0", "end 0", "finish tool_calls"],
    );
    check(
        &[&done(0, "i", "f", "a=1"), COMPLETED],
        &[
            "start 0 f #c0",
            "args 0 a=1",
            "end 0 incomplete",
            "finish tool_calls",
            "error invalid_json",
        ],
    );
    // What the provider runs itself is not for us to run.
    check(
        &[
            r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"w","type":"web_search_call","status":"completed"}}"#,
            COMPLETED,
        ],
        &["finish stop"],
    );
}

#[test]
fn calls_with_a_text() {
    let added = r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"i","type":"custom_tool_call","call_id":"c","name":"patch","input":""}}"#;
    let delta = r#"{"type":"response.custom_tool_call_input.delta","output_index":0,"item_id":"i","delta":"*** {"}"#;
    let input_done = r#"{"type":"response.custom_tool_call_input.done","output_index":0,"item_id":"i","input":"*** {"}"#;
    let done = r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"i","type":"custom_tool_call","call_id":"c","name":"patch","input":"*** {"}}"#;
    let want = &["start 0 patch #c", "args 0 *** {", "end 0", "finish tool_calls"];
    check(&[added, delta, input_done, done, COMPLETED], want);
    check(&[added, input_done, done, COMPLETED], want);
    check(&[done, COMPLETED], want);
    check(
        &[added, delta],
        &["start 0 patch #c", "args 0 *** {", "end 0 incomplete", "error truncated"],
    );
}

#[test]
fn ends() {
    let text = r#"{"type":"response.output_text.delta","delta":"a"}"#;
    let end =
        |end: &str, response: &str| format!(r#"{{"type":"response.{end}","response":{response}}}"#);
    for (end, want) in [
        (end("completed", "{}"), "finish stop"),
        (end("done", r#"{"status":"completed"}"#), "finish stop"),
        (
            end("incomplete", r#"{"incomplete_details":{"reason":"max_output_tokens"}}"#),
            "finish length",
        ),
        (
            end("incomplete", r#"{"incomplete_details":{"reason":"content_filter"}}"#),
            "finish content_filter",
        ),
        (end("incomplete", r#"{"incomplete_details":{"reason":"tired"}}"#), "finish tired"),
        (end("incomplete", "null"), "finish incomplete"),
        (end("cancelled", "{}"), "finish cancelled"),
    ] {
        check(&[text, &end], &["text a", want]);
    }
    for failed in ["null", "{}", r#"{"error":{"code":"server_error","message":"no"}}"#] {
        check(&[text, &end("failed", failed)], &["text a", "finish error", "error upstream"]);
    }
    check(&[text, r#"{"type":"error","code":"x","message":"no"}"#], &["text a", "error upstream"]);
    check(
        &[
            &added(0, "i", "f"),
            &delta(0, "i", "{"),
            &end("incomplete", r#"{"incomplete_details":{"reason":"max_output_tokens"}}"#),
        ],
        &["start 0 f #c0", "args 0 {", "end 0 incomplete", "finish length", "error truncated"],
    );
    check(
        &[&added(0, "i", "f"), &delta(0, "i", "{")],
        &["start 0 f #c0", "args 0 {", "end 0 incomplete", "error truncated"],
    );
    check(&[&done(0, "i", "f", "{}")], &["start 0 f #c0", "args 0 {}", "end 0", "error truncated"]);
}

#[test]
fn an_answer_that_was_not_streamed() {
    let response = r#"{"id":"r","object":"response","status":"completed","error":null,"output":[
        {"id":"r","type":"reasoning","summary":[{"type":"summary_text","text":"b"}]},
        {"id":"m","type":"message","content":[{"type":"output_text","text":"a"}]},
        {"id":"i","type":"function_call","call_id":"c","name":"f","arguments":"{}"}],
        "usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":3}}}"#;
    let want =
        &["reasoning b", "text a", "start 0 f #c", "args 0 {}", "end 0", "finish tool_calls"];
    super::check("openai_responses", response, want);
    // The same as the only event with any content.
    let event =
        format!(r#"{{"type":"response.completed","response":{response}}}"#).replace('\n', "");
    check(&[&event], want);
    assert_eq!(usages("openai_responses", response), [[9, 4, 0, 5, 3]]);
    assert_eq!(usages("openai_responses", &events(&[&event])), [[9, 4, 0, 5, 3]]);
}
