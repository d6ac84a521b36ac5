//! Anthropic's Messages, with the variations of compatible endpoints.

use super::{events, usages};

#[track_caller]
fn check(frames: &[&str], want: &[&str]) {
    super::check("anthropic", &events(frames), want);
}

const CALL: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#;
const STOP: &str = r#"{"type":"content_block_stop","index":0}"#;
const END: &str = r#"{"type":"message_stop"}"#;

fn args(args: &str) -> String {
    let json = serde_json::to_string(args).expect("a string");
    format!(
        r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"input_json_delta","partial_json":{json}}}}}"#
    )
}

fn reason(reason: &str) -> String {
    format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}"#)
}

#[test]
fn blocks() {
    check(
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{}}}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":"b","signature":"s"}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"t"}}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"redacted_thinking","data":"u"}}"#,
            r#"{"type":"content_block_start","index":3,"content_block":{"type":"hologram","text":"x"}}"#,
            END,
        ],
        &["text a", "reasoning b", "signature stu"],
    );
    // What the provider runs itself is not for us to run.
    check(
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"t","name":"web_search","input":{}}}"#,
            &args("{\"query\":\"x\"}"),
            STOP,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"t","content":[]}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"a"}}"#,
            &reason("end_turn"),
            END,
        ],
        &["text a", "finish stop"],
    );
    // The type only in the name of the event.
    super::check(
        "anthropic",
        "event: content_block_delta\ndata: {\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n\
         event: message_stop\ndata: {}\n\n",
        &["text a"],
    );
}

#[test]
fn calls() {
    let whole = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{"a": 1}}}"#;
    let want = &["start 0 f #t", "args 0 {\"a\": 1}", "end 0", "finish tool_calls"];
    check(&[whole, STOP, &reason("tool_use"), END], want);
    check(&[whole, &args("{\"a\": 1}"), STOP, &reason("tool_use"), END], want);
    // Without a stop, and with a reason that does not mention calls.
    check(&[CALL, &args("{\"a\": 1}"), &reason("end_turn"), END], want);
    check(
        &[CALL, &args("{\"a\""), CALL, &args("{}"), STOP, END],
        &[
            "start 0 f #t",
            "args 0 {\"a\"",
            "end 0 incomplete",
            "start 1 f #t",
            "args 1 {}",
            "end 1",
            "error truncated",
        ],
    );
    // Interleaved, and without an index.
    let other = CALL.replace("\"index\":0", "\"index\":1");
    let more = args("{}").replace("\"index\":0", "\"index\":1");
    let two = &["start 0 f #t", "args 0 [1]", "end 0", "start 1 f #t", "args 1 {}", "end 1"];
    check(&[CALL, &args("[1"), &other, &more, &args("]"), STOP, END], two);
    let bare = |frame: &str| frame.replace("\"index\":0,", "").replace(",\"index\":0", "");
    check(
        &[&bare(CALL), &bare(&args("[1]")), &bare(STOP), &bare(CALL), &bare(&args("{}")), END],
        two,
    );
    check(
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t"}}"#,
            &args("{}"),
            STOP,
            END,
        ],
        &["error malformed_call"],
    );
    // Fine-grained streaming may send anything.
    check(
        &[CALL, &args("{\"a\":1} and so"), STOP, &reason("tool_use"), END],
        &[
            "start 0 f #t",
            "args 0 {\"a\":1} and so",
            "end 0 incomplete",
            "finish tool_calls",
            "error invalid_json",
        ],
    );
}

#[test]
fn reasons() {
    for (word, want) in [
        ("end_turn", "finish stop"),
        ("stop_sequence", "finish stop"),
        ("tool_use", "finish tool_calls"),
        ("max_tokens", "finish length"),
        ("model_context_window_exceeded", "finish length"),
        ("refusal", "finish content_filter"),
        ("pause_turn", "finish pause_turn"),
    ] {
        check(&[&reason(word), END], &[want]);
        // A reason is as good as an end.
        check(&[&reason(word)], &[want]);
    }
}

#[test]
fn where_a_stream_ends() {
    let text =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#;
    check(&[text], &["text a", "error truncated"]);
    check(&[text, END], &["text a"]);
    check(&[CALL], &["start 0 f #t", "end 0 incomplete", "error truncated"]);
    check(
        &[CALL, &args("{")],
        &["start 0 f #t", "args 0 {", "end 0 incomplete", "error truncated"],
    );
    check(&[CALL, &args("{}")], &["start 0 f #t", "args 0 {}", "end 0", "error truncated"]);
    check(
        &[text, r#"{"type":"error","error":{"type":"api_error"}}"#],
        &["text a", "error upstream"],
    );
    check(&[r#"{"type":"error","message":"no"}"#], &["error upstream"]);
}

#[test]
fn an_answer_that_was_not_streamed() {
    super::check(
        "anthropic",
        r#"{"id":"m","type":"message","role":"assistant","content":[
            {"type":"thinking","thinking":"r","signature":"s"},{"type":"text","text":"a"},
            {"type":"tool_use","id":"t","name":"f","input":{"a":1}},{"type":"tool_use","id":"u","name":"g","input":{}}],
            "stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2}}"#,
        &[
            "reasoning r",
            "signature s",
            "text a",
            "start 0 f #t",
            "args 0 {\"a\":1}",
            "end 0",
            "start 1 g #u",
            "end 1",
            "finish tool_calls",
        ],
    );
}

#[test]
fn token_counts() {
    let input = events(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":1,"cache_read_input_tokens":10,"cache_creation_input_tokens":100,"output_tokens":1}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7,"input_tokens":null}}"#,
        END,
    ]);
    assert_eq!(usages("anthropic", &input), [[111, 10, 100, 7, 0]]);
}
