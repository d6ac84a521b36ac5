//! Gemini, in each of its framings.

use super::{details, events, usages};

#[track_caller]
fn check(chunks: &[&str], want: &[&str]) {
    super::check("gemini", &events(chunks), want);
    super::check("gemini", &format!("[{}\n]", chunks.join(",\r\n")), want);
    super::check("gemini", &chunks.join("\n"), want);
}

/// Builds a chunk with these parts.
fn parts(parts: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}}}}]}}"#)
}

fn call(call: &str) -> String {
    parts(&format!("{{\"functionCall\":{call}}}"))
}

const STOP: &str = r#"{"candidates":[{"finishReason":"STOP","index":0}]}"#;

#[test]
fn text_and_thoughts() {
    check(
        &[
            &parts(r#"{"text":"a ]},{ \" \\","thought":true}"#),
            &parts(
                r#"{"text":"","thoughtSignature":"s"},{"text":"é👩"},{"inlineData":{"data":"x"}}"#,
            ),
            &parts(r#"{"text":"b","thoughtSignature":"t"}"#),
            STOP,
        ],
        &["reasoning a ]},{ \" \\", "signature s", "text é👩b", "signature t", "finish stop"],
    );
    // A finish reason with each chunk, as in older versions.
    let with_reason =
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}"#;
    check(&[with_reason, with_reason], &["text aa", "finish stop"]);
    check(
        &[with_reason, &call(r#"{"name":"f","args":{}}"#)],
        &["text a", "start 0 f", "args 0 {}", "end 0", "finish tool_calls"],
    );
    check(
        &[&format!("{{\"response\":{with_reason},\"traceId\":\"x\"}}")],
        &["text a", "finish stop"],
    );
    check(&[r#"{"candidates":[{"index":1,"content":{"parts":[{"text":"b"}]}}]}"#], &[]);
}

#[test]
fn calls() {
    check(
        &[
            &parts(
                r#"{"functionCall":{"id":"c","name":"f","args":{"a": [1.0,"}"]}},"thoughtSignature":"s"},{"functionCall":{"name":"g"}}"#,
            ),
            STOP,
        ],
        &[
            "start 0 f #c ~s",
            "args 0 {\"a\": [1.0,\"}\"]}",
            "end 0",
            "start 1 g",
            "end 1",
            "finish tool_calls",
        ],
    );
    check(&[&call(r#"{"args":{}}"#)], &["error malformed_call"]);
    check(&[&call("{}"), &call("5")], &["error malformed_call"]);
}

#[test]
fn arguments_value_by_value() {
    let begin = call(r#"{"name":"f","willContinue":true}"#);
    let arg = |arg: &str| call(&format!(r#"{{"partialArgs":[{arg}],"willContinue":true}}"#));
    let values = [
        arg(r#"{"jsonPath":"$.n","numberValue":50}"#),
        arg(r#"{"jsonPath":"$.s","stringValue":"","willContinue":true}"#),
        arg(r#"{"jsonPath":"$.s","stringValue":"wa\"","willContinue":true}"#),
        arg(r#"{"jsonPath":"$.s","stringValue":"rm"}"#),
        arg(
            r#"{"jsonPath":"$.l[0].b","boolValue":false},{"jsonPath":"$.l[1]","nullValue":"NULL_VALUE"}"#,
        ),
    ];
    let json = r#"{"n":50,"s":"wa\"rm","l":[{"b":false},null"#;
    let mut chunks: Vec<&str> = vec![&begin];
    chunks.extend(values.iter().map(String::as_str));
    let open = format!("args 0 {json}");
    let closed = format!("args 0 {json}]}}");
    let end = call("{}");
    let stopped = [chunks.clone(), vec![&*end, STOP]].concat();
    check(&stopped, &["start 0 f", &closed, "end 0", "finish tool_calls"]);
    // The model has stopped, so nothing is missing.
    check(
        &[chunks.clone(), vec![STOP]].concat(),
        &["start 0 f", &closed, "end 0", "finish tool_calls"],
    );
    check(&chunks, &["start 0 f", &open, "end 0 incomplete", "error truncated"]);
    // The name of the next call is an end, too.
    check(
        &[chunks.clone(), vec![&*call(r#"{"name":"g"}"#)]].concat(),
        &["start 0 f", &closed, "end 0", "start 1 g", "end 1"],
    );
    // All at once, and with the name each time.
    check(
        &[&call(r#"{"name":"f","partialArgs":[{"jsonPath":"$.a","stringValue":"x"}]}"#)],
        &["start 0 f", "args 0 {\"a\":\"x\"}", "end 0"],
    );
    check(
        &[
            &call(
                r#"{"name":"f","partialArgs":[{"jsonPath":"$.a","numberValue":1}],"willContinue":true}"#,
            ),
            &call(r#"{"name":"f","partialArgs":[{"jsonPath":"$.b","numberValue":2}]}"#),
        ],
        &["start 0 f", "args 0 {\"a\":1,\"b\":2}", "end 0"],
    );
    check(&[&begin, &end, STOP], &["start 0 f", "end 0", "finish tool_calls"]);
    check(
        &[&begin, &values[1], &end],
        &["start 0 f", "args 0 {\"s\":\"", "end 0 incomplete", "error truncated"],
    );
    check(
        &[&begin, &values[0], &values[0], &end],
        &["start 0 f", "args 0 {\"n\":50", "end 0 incomplete", "error duplicate_key"],
    );
    check(
        &[&begin, &arg(r#"{"jsonPath":"$.a[7]","numberValue":1}"#), &end],
        &["start 0 f", "end 0 incomplete", "error malformed_call"],
    );
}

#[test]
fn reasons() {
    let reason = |reason: &str| format!(r#"{{"candidates":[{{"finishReason":"{reason}"}}]}}"#);
    for (word, want) in [
        ("STOP", "finish stop"),
        ("MAX_TOKENS", "finish length"),
        ("SAFETY", "finish content_filter"),
        ("RECITATION", "finish content_filter"),
        ("BLOCKLIST", "finish content_filter"),
        ("PROHIBITED_CONTENT", "finish content_filter"),
        ("SPII", "finish content_filter"),
        ("LANGUAGE", "finish LANGUAGE"),
    ] {
        check(&[&reason(word), STOP], &[want]);
    }
    let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#;
    check(&[blocked, blocked], &["finish content_filter", "error upstream"]);
    assert_eq!(details("gemini", blocked), ["the prompt was blocked: SAFETY"]);
    let malformed = r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"print(f())"}]}"#;
    check(&[malformed], &["finish error", "error malformed_call"]);
    assert_eq!(details("gemini", malformed), ["print(f())"]);
    check(&[&parts(r#"{"text":"a"}"#)], &["text a"]);
}

#[test]
fn token_counts() {
    let usage = r#"{"usageMetadata":{"promptTokenCount":9,"cachedContentTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":3,"totalTokenCount":17}}"#;
    let early = r#"{"usageMetadata":{"promptTokenCount":9}}"#;
    assert_eq!(usages("gemini", &events(&[early, usage])), [[9, 4, 0, 8, 3]]);
}
