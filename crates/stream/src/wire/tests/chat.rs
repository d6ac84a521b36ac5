//! Chat Completions, with the variations of compatible endpoints.

use super::{events, usages};
use crate::dialect::{HELD_BYTES_MAX, NAME_BYTES_MAX};
use crate::wire::CALLS_MAX;

/// Serializes deltas as chunks; `!word` is a chunk with that finish reason, `=…` any frame.
fn stream(deltas: &[&str]) -> String {
    let frames: Vec<String> = deltas
        .iter()
        .map(|delta| match delta.split_at(1) {
            ("!", reason) => format!(
                "{{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}"
            ),
            ("=", frame) => frame.to_owned(),
            _ => format!(
                "{{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":null}}]}}"
            ),
        })
        .collect();
    events(&frames.iter().map(String::as_str).collect::<Vec<_>>())
}

#[track_caller]
fn check(deltas: &[&str], want: &[&str]) {
    super::check("openai_chat", &stream(deltas), want);
}

/// Checks deltas of calls only: each is the content of `tool_calls`.
#[track_caller]
fn check_calls(deltas: &[&str], want: &[&str]) {
    let deltas: Vec<String> =
        deltas.iter().map(|delta| format!("{{\"tool_calls\":[{delta}]}}")).collect();
    let mut deltas: Vec<&str> = deltas.iter().map(String::as_str).collect();
    deltas.push("!tool_calls");
    check(&deltas, want);
}

#[test]
fn text_and_reasoning() {
    check(
        &[
            r#"{"reasoning":"a","reasoning_content":"a"}"#,
            r#"{"reasoning":"b","reasoning_content":null}"#,
            r#"{"reasoning":{"x":1},"content":"c"}"#,
            r#"{"content":["oops"]}"#,
            r#"{"refusal":"no"}"#,
            "null",
            "!stop",
        ],
        &["reasoning ab", "text c", "refusal no", "finish stop"],
    );
    check(
        &[
            r#"{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a"}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","text":"b","signature":"s"}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"d"}]}"#,
            r#"{"reasoning_details":"oops"}"#,
        ],
        &["reasoning ab", "signature sd"],
    );
    check(
        &[
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"a"}]}]}"#,
            r#"{"content":[{"type":"text","text":"b"},{"type":"refusal","refusal":"c"}]}"#,
        ],
        &["reasoning a", "text b", "refusal c"],
    );
    // Half a pair is replaced, and the rest is kept.
    check(&[r#"{"content":"a\ud83d b\u00e9"}"#], &["text a\u{fffd} bé"]);
    check(
        &["={\"choices\":[{\"text\":\"old\",\"finish_reason\":\"length\"}]}"],
        &["text old", "finish length"],
    );
    check(
        &[
            r#"={"choices":[{"index":1,"delta":{"content":"b"}},{"index":0,"delta":{"content":"a"}}]}"#,
        ],
        &["text a"],
    );
}

#[test]
fn reasons() {
    for (reason, want) in [
        ("!stop", "finish stop"),
        ("!length", "finish length"),
        ("!content_filter", "finish content_filter"),
        ("!tool_calls", "finish tool_calls"),
        ("!eos_token", "finish stop"),
        ("!error", "finish error"),
        ("!insufficient_system_resource", "finish insufficient_system_resource"),
    ] {
        check(&[reason, "!stop"], &[want]);
    }
    // It is not a reason, but some send it.
    check(&["!", r#"{"content":"a"}"#, "!stop"], &["text a", "finish stop"]);
}

#[test]
fn ids_and_names() {
    let one = &["start 0 f #c1", "args 0 {\"a\":1}", "end 0", "finish tool_calls"];
    // With every delta, in any combination.
    check_calls(
        &[
            r#"{"index":0,"id":"c1","function":{"name":"f","arguments":""}}"#,
            r#"{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\""}}"#,
            r#"{"index":0,"id":"c1","function":{"name":"f","arguments":":1}"}}"#,
            r#"{"index":0,"id":"c1","function":{"name":"f","arguments":""}}"#,
        ],
        one,
    );
    check_calls(
        &[
            r#"{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\""}}"#,
            r#"{"index":0,"id":"","function":{"name":"","arguments":":1"}}"#,
            r#"{"index":0,"id":null,"function":{"name":null,"arguments":"}"}}"#,
        ],
        one,
    );
    // Late.
    check_calls(
        &[
            r#"{"index":0,"function":{"name":"f","arguments":"{\"a\""}}"#,
            r#"{"index":0,"id":"c1","function":{"arguments":":1}"}}"#,
        ],
        one,
    );
    check_calls(
        &[
            r#"{"index":0,"id":"c1"}"#,
            r#"{"index":0,"function":{"arguments":"{\"a\""}}"#,
            r#"{"index":0,"function":{"name":"f","arguments":":1}"}}"#,
        ],
        one,
    );
    // New each time.
    check_calls(
        &[
            r#"{"index":0,"id":"c1","function":{"name":"f","arguments":""}}"#,
            r#"{"index":0,"id":"c2","function":{"arguments":"{\"a\""}}"#,
            r#"{"index":0,"id":"c3","function":{"arguments":":1}"}}"#,
        ],
        one,
    );
    // A number, and a name in pieces.
    check_calls(
        &[
            r#"{"index":0,"id":17,"function":{"name":"get_","arguments":""}}"#,
            r#"{"index":0,"function":{"name":"weather","arguments":""}}"#,
            r#"{"index":0,"function":{"arguments":"{}"}}"#,
        ],
        &["start 0 get_weather #17", "args 0 {}", "end 0", "finish tool_calls"],
    );
    // Another name for a running call is ignored.
    check_calls(
        &[
            r#"{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\""}}"#,
            r#"{"index":0,"function":{"name":"g","arguments":":1"}}"#,
            r#"{"index":0,"function":{"name":"h","arguments":"}"}}"#,
        ],
        &[one[0], one[1], one[2], one[3], "error unexpected_data"],
    );
}

#[test]
fn which_call() {
    let two = &[
        "start 0 f #c1",
        "args 0 {\"a\":1}",
        "end 0",
        "start 1 f #c2",
        "args 1 {\"b\":2}",
        "end 1",
        "finish tool_calls",
    ];
    for indices in [["0", "1"], ["\"0\"", "\"1\""], ["0.0", "1.0"], ["null", "null"], ["0", "0"]] {
        let [first, second] = indices;
        check_calls(
            &[
                &format!(
                    r#"{{"index":{first},"id":"c1","function":{{"name":"f","arguments":"{{"}}}}"#
                ),
                &format!(r#"{{"index":{first},"function":{{"arguments":"\"a\":1}}"}}}}"#),
                &format!(
                    r#"{{"index":{second},"id":"c2","function":{{"name":"f","arguments":"{{"}}}}"#
                ),
                &format!(r#"{{"index":{second},"function":{{"arguments":"\"b\":2}}"}}}}"#),
            ],
            two,
        );
    }
    // By id, interleaved, without an index.
    check_calls(
        &[
            r#"{"id":"c1","function":{"name":"f","arguments":"{\"a\""}}"#,
            r#"{"id":"c2","function":{"name":"f","arguments":"{\"b\""}}"#,
            r#"{"id":"c1","function":{"arguments":":1}"}}"#,
            r#"{"id":"c2","function":{"arguments":":2}"}}"#,
        ],
        two,
    );
    // By position, without either.
    check_calls(
        &[
            r#"{"function":{"name":"f","arguments":"{\"a\""}},{"function":{"name":"f","arguments":"{\"b\""}}"#,
            r#"{"function":{"arguments":":1}"}},{"function":{"arguments":":2}"}}"#,
        ],
        &[
            "start 0 f",
            "args 0 {\"a\":1}",
            "end 0",
            "start 1 f",
            "args 1 {\"b\":2}",
            "end 1",
            "finish tool_calls",
        ],
    );
    // By complete arguments, if nothing else tells.
    check_calls(
        &[
            r#"{"function":{"name":"f","arguments":"{\"a\":1}"}}"#,
            r#"{"function":{"name":"f","arguments":"{\"b\""}}"#,
            r#"{"function":{"arguments":":2}"}}"#,
            r#"{"index":0,"function":{"name":"g","arguments":"{}"}}"#,
        ],
        &[
            "start 0 f",
            "args 0 {\"a\":1}",
            "end 0",
            "start 1 f",
            "args 1 {\"b\":2}",
            "end 1",
            "start 2 g",
            "args 2 {}",
            "end 2",
            "finish tool_calls",
        ],
    );
    // The same id for all is no id.
    check_calls(
        &[
            r#"{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}"#,
            r#"{"index":1,"id":"c","function":{"name":"g","arguments":"{}"}}"#,
        ],
        &[
            "start 0 f #c",
            "args 0 {}",
            "end 0",
            "start 1 g #c",
            "args 1 {}",
            "end 1",
            "finish tool_calls",
        ],
    );
    // Numbered by their names, not by their arguments.
    check_calls(
        &[
            r#"{"index":0,"id":"c1","function":{"name":"f"}}"#,
            r#"{"index":1,"id":"c2","function":{"name":"f"}}"#,
            r#"{"index":1,"function":{"arguments":"{\"b\":2}"}}"#,
            r#"{"index":0,"function":{"arguments":"{\"a\":1}"}}"#,
        ],
        two,
    );
}

#[test]
fn arguments() {
    let all = |args, end| ["start 0 f #c", args, end, "finish tool_calls"];
    // An object in place of its text.
    check_calls(
        &[r#"{"index":0,"id":"c","function":{"name":"f","arguments":{"a": [1.50, "\u00e9"]}}}"#],
        &all("args 0 {\"a\": [1.50, \"\\u00e9\"]}", "end 0"),
    );
    check_calls(
        &[r#"{"index":0,"id":"c","function":{"name":"f","arguments":null}}"#],
        &["start 0 f #c", "end 0", "finish tool_calls"],
    );
    let broken = |args| {
        ["start 0 f #c", args, "end 0 incomplete", "finish tool_calls", "error invalid_json"]
    };
    check_calls(
        &[r#"{"index":0,"id":"c","function":{"name":"f","arguments":"{}{\"a\":1}"}}"#],
        &broken("args 0 {}{\"a\":1}"),
    );
    check_calls(
        &[r#"{"index":0,"id":"c","function":{"name":"f","arguments":"a=1"}}"#],
        &broken("args 0 a=1"),
    );
    // Two truncated calls are one broken stream.
    check_calls(
        &[
            r#"{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}"#,
            r#"{"index":1,"id":"d","function":{"name":"g","arguments":"["}}"#,
        ],
        &[
            "start 0 f #c",
            "args 0 {",
            "end 0 incomplete",
            "start 1 g #d",
            "args 1 [",
            "end 1 incomplete",
            "finish tool_calls",
            "error truncated",
        ],
    );
    // Text in its own grammar.
    check_calls(
        &[
            r#"{"index":0,"id":"c","type":"custom","custom":{"name":"f","input":"*** Begin"}}"#,
            r#"{"index":0,"custom":{"input":" Patch"}}"#,
        ],
        &all("args 0 *** Begin Patch", "end 0"),
    );
    check_calls(
        &[
            r#"{"index":0,"id":"c","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"s"}}}"#,
        ],
        &["start 0 f #c ~s", "args 0 {}", "end 0", "finish tool_calls"],
    );
    check_calls(
        &[r#"{"index":0,"id":"c","function":{"arguments":"{\"a\":1}"}}"#],
        &["text {\"a\":1}", "finish tool_calls", "error malformed_call"],
    );
    check(&[r#"{"tool_calls":"oops","content":"a"}"#], &["text a", "error malformed_call"]);
}

#[test]
fn where_a_stream_ends() {
    let whole = r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}"#;
    let half = r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]}"#;
    let head = r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}"#;
    check(&[r#"{"content":"a"}"#], &["text a"]);
    check(&[whole], &["start 0 f #c", "args 0 {}", "end 0"]);
    check(&[half], &["start 0 f #c", "args 0 {", "end 0 incomplete", "error truncated"]);
    check(&[half, "=[DONE]"], &["start 0 f #c", "args 0 {", "end 0 incomplete", "error truncated"]);
    // It is unknown whether arguments would have followed.
    check(&[head], &["start 0 f #c", "end 0 incomplete", "error truncated"]);
    check(&[head, "=[DONE]"], &["start 0 f #c", "end 0"]);
    check(
        &[head, "!length"],
        &["start 0 f #c", "end 0 incomplete", "finish length", "error truncated"],
    );
    check(
        &[half, r#"={"error":{"message":"no"}}"#],
        &["start 0 f #c", "args 0 {", "end 0 incomplete", "error upstream", "error truncated"],
    );
    // What comes after the end is not lost, unless it continues what has ended.
    check(
        &["!stop", r#"{"content":"a"}"#, whole],
        &["finish stop", "text a", "start 0 f #c", "args 0 {}", "end 0"],
    );
    check(
        &[whole, "!stop", r#"{"tool_calls":[{"index":0,"function":{"arguments":"x"}}]}"#],
        &["start 0 f #c", "args 0 {}", "end 0", "finish tool_calls", "error unexpected_data"],
    );
    check(
        &[head, r#"{"content":"a"}"#, "!tool_calls"],
        &["start 0 f #c", "end 0", "text a", "finish tool_calls"],
    );
}

#[test]
fn function_call() {
    let call = |inner: &str| format!("{{\"function_call\":{inner}}}");
    let name = |name: &str| call(&format!("{{\"name\":\"{name}\"}}"));
    let args = |args: &str| call(&format!("{{\"arguments\":\"{args}\"}}"));
    let one = &["start 0 get_weather", "args 0 {}", "end 0", "finish tool_calls"];
    check(&[&name("get_"), &name("weather"), &args("{"), &args("}"), "!function_call"], one);
    check(&[&name("get_weather"), &name("get_weather"), &args("{}"), "!function_call"], one);
    check(
        &[
            &call(r#"{"name":"get_weather","arguments":"{"}"#),
            &call(r#"{"name":"get_weather","arguments":"}"}"#),
            "!stop",
        ],
        one,
    );
    check(&[&args("{"), &name("get_weather"), &args("}"), "!function_call"], one);
    check(&[&call(r#"{"name":"get_weather","arguments":{}}"#), "!function_call"], one);
    check(
        &[&name("get_weather"), "!function_call"],
        &["start 0 get_weather", "end 0", "finish tool_calls"],
    );
    check(&[&name("get_weather"), &args("{}")], &one[..3]);
    check(
        &[
            &call(r#"{"name":"f","arguments":"{}"}"#),
            &call(r#"{"name":"f","arguments":"{\"a\":1}"}"#),
            &name("g"),
            "!function_call",
        ],
        &[
            "start 0 f",
            "args 0 {}",
            "end 0",
            "start 1 f",
            "args 1 {\"a\":1}",
            "end 1",
            "start 2 g",
            "end 2",
            "finish tool_calls",
        ],
    );
    // Both ways in one stream.
    let modern = r#"{"index":0,"id":"c","function":{"name":"g","arguments":"{}"}}"#;
    check(
        &[
            &call(r#"{"name":"f","arguments":"{}"}"#),
            &format!("{{\"tool_calls\":[{modern}]}}"),
            "!stop",
        ],
        &[
            "start 0 f",
            "args 0 {}",
            "end 0",
            "start 1 g #c",
            "args 1 {}",
            "end 1",
            "finish tool_calls",
        ],
    );
    check(
        &[
            &format!(
                r#"{{"tool_calls":[{modern}],"function_call":{{"name":"f","arguments":"{{}}"}}}}"#
            ),
            "!stop",
        ],
        &[
            "start 0 f",
            "args 0 {}",
            "end 0",
            "start 1 g #c",
            "args 1 {}",
            "end 1",
            "finish tool_calls",
        ],
    );
    // The same call in both ways.
    check(
        &[
            r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"g","arguments":"{"}}],"function_call":{"name":"g","arguments":"{"}}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"}"}}],"function_call":{"arguments":"}"}}"#,
            "!stop",
        ],
        &["start 0 g #c", "args 0 {}", "end 0", "finish tool_calls"],
    );
}

#[test]
fn failures() {
    for frame in [
        r#"={"object":"error","message":"no","type":"BadRequest","code":400}"#,
        r#"={"type":"error","error":{"message":"no"}}"#,
        r#"={"code":"InvalidParameter","message":"no","request_id":"r"}"#,
        r#"={"choices":[{"index":0,"delta":{},"error":{"code":502,"message":"no"}}]}"#,
    ] {
        check(&[r#"{"content":"a"}"#, frame, "=[DONE]"], &["text a", "error upstream"]);
    }
    check(
        &[
            r#"={"error":{"code":502,"message":"no"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#,
        ],
        &["finish error", "error upstream"],
    );
    check(&[r#"={"error":null,"choices":[{"delta":{"content":"a"},"error":null}]}"#], &["text a"]);
}

#[test]
fn an_answer_that_was_not_streamed() {
    super::check(
        "openai_chat",
        "{\n \"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\
         \"reasoning_content\":\"r\",\"content\":\"a\",\"tool_calls\":[\
         {\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},\
         {\"id\":\"d\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"\"}}]},\
         \"finish_reason\":\"tool_calls\"}]}\n",
        &[
            "reasoning r",
            "text a",
            "start 0 f #c",
            "args 0 {}",
            "end 0",
            "start 1 g #d",
            "end 1",
            "finish tool_calls",
        ],
    );
}

#[test]
fn token_counts() {
    let usage = r#"={"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,
        "prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":3}}}"#;
    let usage = usage.replace('\n', "");
    let early = r#"={"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
    let odd = r#"={"choices":[],"usage":"many"}"#;
    let null = r#"={"choices":[],"usage":null}"#;
    // Some count with every chunk; the last count is the sum.
    let input = stream(&[early, &usage, odd, null, "=[DONE]"]);
    assert_eq!(usages("openai_chat", &input), [[9, 4, 0, 5, 3]]);
    assert_eq!(usages("openai_chat", &stream(&[early])), [[9, 0, 0, 1, 0]]);
}

#[test]
fn limits() {
    let piece = "x".repeat(HELD_BYTES_MAX / 4);
    let nameless =
        format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{piece}"}}}}]}}"#);
    let deltas = [nameless.as_str(); 6];
    let collect = |input: &str| -> Vec<String> {
        let events = super::collect("openai_chat", [input.as_bytes()]).into_events(false);
        let line = |kind: &_| super::line(kind, false).or_else(|| super::line(kind, true));
        events.iter().filter_map(|event| line(&event.kind)).collect()
    };
    assert_eq!(collect(&stream(&deltas)), ["error limit"]);
    let name = "n".repeat(NAME_BYTES_MAX + 1);
    let named = format!(
        r#"{{"tool_calls":[{{"index":0,"function":{{"name":"{name}","arguments":"1"}}}}]}}"#
    );
    assert_eq!(collect(&stream(&[&named, &named])), ["error limit"]);
    let many: Vec<String> = (0..CALLS_MAX + 5)
        .map(|at| {
            format!(
                r#"{{"tool_calls":[{{"index":{at},"function":{{"name":"f","arguments":"1"}}}}]}}"#
            )
        })
        .collect();
    let lines = collect(&stream(&many.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!(lines.iter().filter(|line| line.starts_with("end")).count(), CALLS_MAX);
    assert_eq!(lines.iter().filter(|line| *line == "error limit").count(), 1);
}
