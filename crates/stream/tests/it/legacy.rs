//! Older call formats: which ones are known, what they parse to, and the confidence of detection.

use stream::dialect::{Options, Tools, detect};

use crate::short::read;

/// Checks what an input parses to as legacy and with detection; in which format it is detected, and with what
/// confidence.
#[track_caller]
fn check(input: &str, want: &str, detected: Option<(&str, u8)>) {
    for name in ["legacy", "auto"] {
        for size in [1, 2, 7, input.len().max(1)] {
            let got = read(name, &Options::default(), &Tools::default(), input, size);
            assert_eq!(got, want, "{name} by {size}: {input}");
        }
    }
    let found = detect(input).map(|found| (found.format.name(), found.confidence));
    assert_eq!(found, detected, "{input}");
}

#[test]
fn json_shapes() {
    let sure = Some(("legacy_json", 95));
    check(
        r#"{"function_call": {"name": "f", "arguments": "{\"a\": \"\u00e9\"}"}}"#,
        r#"⟨f({"a": "é"})⟩"#,
        sure,
    );
    check(
        r#"{"role": "assistant", "content": "Let me see.", "function_call": {"name": "f", "arguments": "{}"}}"#,
        r"Let me see.⟨f({})⟩",
        sure,
    );
    check(
        r#"{"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}, {"id": "c2", "function": {"name": "g", "arguments": {"b": [1]}}}]}"#,
        r#"⟨f#c1({})⟩⟨g#c2({"b": [1]})⟩"#,
        sure,
    );
    check(
        r#"{"tool_calls": [{"name": "f", "args": {}, "id": "x"}], "content": "after"}"#,
        "⟨f#x({})⟩after",
        sure,
    );
    check(r#"{"tool_call": {"name": "f", "arguments": {}}}"#, "⟨f({})⟩", Some(("legacy_json", 85)));
    let flat = Some(("legacy_json", 85));
    check(r#"{"name": "f", "parameters": {"a": 1}}"#, r#"⟨f({"a": 1})⟩"#, flat);
    check(r#"{"name": "f", "arguments": "{\"a\":1}"}"#, r#"⟨f({"a":1})⟩"#, flat);
    check(r#"{"type": "function", "name": "f", "parameters": {}}"#, "⟨f({})⟩", flat);
    check(r#"{"type": "function", "function": {"name": "f", "parameters": {}}}"#, "⟨f({})⟩", flat);
    check(
        r#"[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]"#,
        "⟨f({})⟩⟨g({})⟩",
        flat,
    );
    check(
        "{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {}}\n",
        "⟨f({})⟩⟨g({})⟩",
        flat,
    );
    check(
        r#"{"tool_calls": [{"name": "f", "arguments": {}}], oops} more"#,
        "⟨f({})⟩oops} more !invalid_json",
        sure,
    );
    check(r#"{"name": "f", "arguments": {"a": "x"#, r#"⟨f({"a": "x…⟩ !truncated"#, flat);
}

#[test]
fn documents_that_are_answers() {
    let guess = Some(("legacy_json", 50));
    check(r#"{"answer": 42, "ok": true}"#, r#"{"answer": 42, "ok": true}"#, guess);
    check(r#"{"name": "Bingo", "age": 30}"#, r#"{"name": "Bingo", "age": 30}"#, guess);
    check("{\"a\": 1}\nand more", "{\"a\": 1}\nand more", guess);
    check(r#"{"a": 1"#, r#"{"a": 1"#, guess);
    check("{not json", "{not json", guess);
    check("[1] is a footnote", "[1] is a footnote", None);
    check("", "", None);
    check("Just text.", "Just text.", None);
}

#[test]
fn text_shapes() {
    check(
        "Thought: I need it.\nAction: f\nAction Input: {\"a\": 1}\nObservation:",
        "[ I need it.\n]⟨f({\"a\": 1})⟩",
        Some(("react", 90)),
    );
    check(
        "Sure:\n```json\n{\"name\": \"f\", \"arguments\": {}}\n```\nDone",
        "Sure:\n⟨f({})⟩\nDone",
        Some(("json_fence", 70)),
    );
    check("```\n{\"name\": \"f\", \"arguments\": {}}\n```", "⟨f({})⟩", Some(("json_fence", 60)));
    check("```python\nprint(1)\n```\n", "```python\nprint(1)\n```\n", None);
}

#[test]
fn frames_of_older_servers() {
    check(
        "data: {\"choices\":[{\"delta\":{\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}}}]}\n\n\
         data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"function_call\"}]}\n\n",
        "⟨f({})⟩ .tool_calls",
        Some(("openai_chat", 99)),
    );
}
