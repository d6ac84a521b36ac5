//! Documents with calls inside: calls are emitted as calls, everything else stays the document.

use proptest::prelude::*;
use serde_json::{Value, json};
use stream::dialect::HELD_BYTES_MAX;
use stream::document::{Document, Found, Path};
use stream::event::Event;
use stream::json;

/// Parses a document in pieces of a size; calls are written as `⟨name#id arguments⟩`, the text outside them
/// verbatim. Also returns the JSON events, as text.
fn read(paths: &[Path], text: &str, size: usize) -> (String, String) {
    let mut document = Document::new(paths.to_vec(), 0);
    let (mut shown, mut events) = (String::new(), Vec::new());
    let mut ids: Vec<(usize, String)> = Vec::new();
    let mut sink = |found: Found<'_>, _range| match found {
        Found::Outside(piece) => shown.push_str(piece),
        Found::Json(event) => events.push(event_name(event)),
        Found::Call(Event::ToolStart { name, id, .. }) => {
            shown.push_str(&format!("⟨{name}"));
            ids.push((shown.len(), id.map(|id| format!("#{id}")).unwrap_or_default()));
            shown.push(' ');
        }
        Found::Call(Event::ToolId { id, .. }) => ids.last_mut().unwrap().1 = format!("#{id}"),
        Found::Call(Event::ToolArgs { text, .. }) => shown.push_str(text),
        Found::Call(Event::ToolEnd { complete, .. }) => {
            shown.push_str(if complete { "⟩" } else { "…⟩" });
        }
        Found::Call(Event::Error { kind, .. }) => shown.push_str(&format!("!{}!", kind.as_str())),
        Found::At(_) => {}
        Found::Call(other) => panic!("{other:?}"),
    };
    let (mut at, mut failed) = (0, false);
    while at < text.len() {
        let mut end = (at + size).min(text.len());
        while !text.is_char_boundary(end) {
            end += 1;
        }
        match document.push(&text[at..end], &mut sink) {
            Ok(progress) if progress.done => break,
            Ok(_) => at = end,
            Err(_) => {
                failed = true;
                break;
            }
        }
    }
    failed |= document.finish(&mut sink).is_err();
    for (at, id) in ids.iter().rev() {
        shown.insert_str(*at, id);
    }
    if failed {
        shown.push_str("!json!");
    }
    // Pieces of one text are merged.
    let mut merged: Vec<String> = Vec::new();
    for event in events {
        match merged.last_mut() {
            Some(last) if last.starts_with('~') && event.starts_with('~') => {
                last.push_str(&event[1..]);
            }
            _ => merged.push(event),
        }
    }
    (shown, merged.join(" "))
}

fn event_name(event: json::Event<'_>) -> String {
    match event {
        json::Event::Key(piece) | json::Event::Str(piece) | json::Event::Number(piece) => {
            format!("~{piece}")
        }
        other => format!("{other:?}"),
    }
}

#[track_caller]
fn check_at(paths: &[Path], text: &str, want: &str) {
    let whole = read(paths, text, text.len().max(1));
    assert_eq!(whole.0, want, "{text}");
    for size in 1..=text.len().min(40) {
        assert_eq!(read(paths, text, size), whole, "{text} by {size}");
    }
}

#[track_caller]
fn check(text: &str, want: &str) {
    check_at(&Path::built_in(), text, want);
}

#[test]
fn calls_in_documents() {
    check(
        r#"{"a":[1,{"ToolCall_V2":{"name":"f","arguments":{"q":"}"}}}],"b":true}"#,
        r#"{"a":[1,{"ToolCall_V2":⟨f {"q":"}"}⟩}],"b":true}"#,
    );
    check(
        r#"{"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"q\":\"\u00e9\"}"}},{"id":"c2","function":{"name":"g","arguments":"{}"}}]} "#,
        r#"{"tool_calls":[⟨f#c1 {"q":"é"}⟩,⟨g#c2 {}⟩]}"#,
    );
    // Immediately after each other, and one around another.
    check(
        r#"[{"ToolCall_V2":{"name":"f","arguments":{}}},{"ToolCall_V2":{"name":"g","arguments":[1]}}]"#,
        r#"[{"ToolCall_V2":⟨f {}⟩},{"ToolCall_V2":⟨g [1]⟩}]"#,
    );
    check(
        r#"{"tool_calls":[{"ToolCall_V2":{"name":"f","arguments":{}}}]}"#,
        r#"{"tool_calls":[⟨f {}⟩]}"#,
    );
    check(
        r#"{"ToolCall_V2":{"name":"f","arguments":{"x":{"ToolCall_V2":{"name":"g","arguments":{}}}}}}"#,
        r#"{"ToolCall_V2":⟨f {"x":{"ToolCall_V2":{"name":"g","arguments":{}}}}⟩}"#,
    );
    // Keys in any order, under other names, duplicated, or missing.
    check(
        r#"{"ToolCall_V2":{"arguments": {"a": 1} ,"meta":[{}],"name":"f","id":"x"}}"#,
        r#"{"ToolCall_V2":⟨f#x {"a": 1}!unexpected_data!⟩}"#,
    );
    check(r#"{"ToolCall_V2":{"name":"f","parameters":12}}"#, r#"{"ToolCall_V2":⟨f 12⟩}"#);
    check(r#"{"ToolCall_V2":{"name":"f","args":null}}"#, r#"{"ToolCall_V2":⟨f null⟩}"#);
    check(r#"{"ToolCall_V2":{"name":"f"}}"#, r#"{"ToolCall_V2":⟨f ⟩}"#);
    check(
        r#"{"ToolCall_V2":{"name":"f","name":"g","arguments":1,"arguments":[2]}}"#,
        r#"{"ToolCall_V2":⟨f !duplicate_key!1!duplicate_key!⟩}"#,
    );
}

#[test]
fn values_that_are_not_calls() {
    check(
        r#"{"ToolCall_V2":{"q":[1,"é"]},"b":2}"#,
        r#"{"ToolCall_V2":{"q":[1,"é"]}!malformed_call!,"b":2}"#,
    );
    check(
        r#"{"ToolCall_V2":"text","tool_calls":null}"#,
        r#"{"ToolCall_V2":"!malformed_call!text","tool_calls":null}"#,
    );
    check(r#"{"tool_calls":[1,[],"x"]}"#, r#"{"tool_calls":[1,[],"x"]}"#);
    check(
        r#"["ToolCall_V2",{"name":"f","arguments":{}}]"#,
        r#"["ToolCall_V2",{"name":"f","arguments":{}}]"#,
    );
}

#[test]
fn documents_that_break_off() {
    check(
        r#"{"ToolCall_V2":{"name":"f","arguments":{"q":"ab"#,
        r#"{"ToolCall_V2":⟨f {"q":"ab…⟩!truncated!!json!"#,
    );
    check(r#"{"ToolCall_V2":{"na"#, r#"{"ToolCall_V2":{"na!truncated!!json!"#);
    check(
        r#"{"ToolCall_V2":{"name":"f","arguments":{"q":1},x}}"#,
        r#"{"ToolCall_V2":⟨f {"q":1}…⟩!truncated!!json!"#,
    );
    check(
        r#"{"ToolCall_V2":{"arguments":{"q":1},x}}"#,
        r#"{"ToolCall_V2":{"arguments":{"q":1},!malformed_call!!json!"#,
    );
}

#[test]
fn paths() {
    let at = |paths: &[&str]| -> Vec<Path> {
        paths.iter().map(|path| Path::parse(path).unwrap()).collect()
    };
    let call = r#"{"name":"f","arguments":{}}"#;
    check_at(
        &at(&["$.a[].b"]),
        &format!(r#"{{"a":[{{"b":{call}}}],"b":{call}}}"#),
        &format!(r#"{{"a":[{{"b":⟨f {{}}⟩}}],"b":{call}}}"#),
    );
    check_at(
        &at(&["a.b"]),
        &format!(r#"{{"x":{{"a":{{"b":{call}}}}}}}"#),
        r#"{"x":{"a":{"b":⟨f {}⟩}}}"#,
    );
    check_at(&Path::legacy(), call, "⟨f {}⟩");
    check_at(&Path::legacy(), &format!("[{call},{call}]"), "[⟨f {}⟩,⟨f {}⟩]");
    check_at(&Path::legacy(), r#"{"name":"Bingo","age":30}"#, r#"{"name":"Bingo","age":30}"#);
    check_at(
        &Path::legacy(),
        r#"{"role":"assistant","function_call":{"name":"f","arguments":"{\"a\":1}"}}"#,
        r#"{"role":"assistant","function_call":⟨f {"a":1}⟩}"#,
    );
    check_at(
        &Path::legacy(),
        r#"{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}"#,
        r#"{"role":"assistant","tool_calls":[⟨f {}⟩]}"#,
    );
    // What is inside arguments is data, even before the name is known.
    let inner = r#"{"function_call":{"name":"g","arguments":{}}}"#;
    check_at(
        &Path::legacy(),
        &format!(r#"{{"arguments":{inner},"name":"f"}}"#),
        &format!("⟨f {inner}⟩"),
    );
    for (wrong, at) in [
        ("", 1),
        ("a..b", 3),
        ("[x]", 1),
        ("é[0]", 2),
        ("$a", 2),
        ("$.", 3),
        (".a", 1),
        ("a[]b", 4),
        ("a.", 3),
        ("$.a[", 4),
    ] {
        assert_eq!(Path::parse(wrong).map_err(|error| error.position()), Err(at), "{wrong}");
    }
}

#[test]
fn held_back_text_is_limited() {
    let long = "x".repeat(HELD_BYTES_MAX);
    for (before, after) in
        [("\"q\":\"", "\""), ("\"args\":\"", "\""), ("\"args\":[{\"a\":\"", "\"}]")]
    {
        let text = format!(r#"{{"ToolCall_V2":{{{before}{long}{after},"name":"f"}},"b":1}}"#);
        for size in [4096, text.len()] {
            let (shown, events) = read(&Path::built_in(), &text, size);
            assert!(shown.replace("!limit!", "") == text, "nothing is lost by {size}");
            assert_eq!(shown.matches("!limit!").count(), 1);
            assert!(events.ends_with("~b KeyEnd ~1 NumberEnd ObjectEnd"), "the document goes on");
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z\"\\\\é{}\\[\\] ]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec(("[a-c\"]{0,3}", inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    /// A document of plain JSON with large calls in between: the calls are found, the rest stays.
    #[test]
    fn calls_between_plain_json(
        parts in proptest::collection::vec((any_json(), any_json(), any::<bool>()), 1..5),
        size in 1usize..30,
    ) {
        let (mut items, mut want) = (Vec::new(), Vec::new());
        for (number, (plain, arguments, flip)) in parts.iter().enumerate() {
            items.push(plain.to_string());
            want.push(plain.to_string());
            let name = json!(format!("tool{number}"));
            let call = if *flip {
                format!(r#"{{"arguments":{arguments},"name":{name}}}"#)
            } else {
                format!(r#"{{"name":{name}, "arguments":{arguments}}}"#)
            };
            items.push(format!(r#"{{"ToolCall_V2":{call}}}"#));
            let shown = match arguments {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            want.push(format!(r#"{{"ToolCall_V2":⟨tool{number} {shown}⟩}}"#));
        }
        let (text, want) = (format!("[{}]", items.join(" , ")), format!("[{}]", want.join(" , ")));
        prop_assert_eq!(read(&Path::built_in(), &text, size).0, want);
    }

    #[test]
    fn any_text_parses_the_same_in_any_chunking(
        parts in proptest::collection::vec(prop_oneof![
            Just("{"), Just("}"), Just("["), Just("]"), Just(","), Just(":"), Just("\"ToolCall_V2\""),
            Just("\"name\""), Just("\"arguments\""), Just("\"tool_calls\""), Just("\"f\""), Just("1"),
            Just("\"id\""), Just(" "), Just("null"), Just("\"\\u00e9\""), Just("\"function\""),
        ], 0..40),
        size in 1usize..9,
    ) {
        let text = parts.concat();
        prop_assert_eq!(
            read(&Path::built_in(), &text, size), read(&Path::built_in(), &text, text.len().max(1)));
        prop_assert_eq!(
            read(&Path::legacy(), &text, size), read(&Path::legacy(), &text, text.len().max(1)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// The same with calls of hundreds of kilobytes, and nested deeper than any document may be.
    #[test]
    fn large_calls_between_plain_json(
        parts in proptest::collection::vec(
            (any_json(), 1usize..400_000, 0usize..3000, any::<bool>()), 1..4),
        size in 1usize..9000,
    ) {
        let (mut text, mut want) = ("[".to_owned(), "[".to_owned());
        for (number, (plain, length, depth, flip)) in parts.iter().enumerate() {
            let long = r#"a\n\"é} "#.repeat(length / 10);
            let (open, close) = (r#"{"a":["#.repeat(*depth), "]}".repeat(*depth));
            let arguments = format!(r#"{{"text":"{long}","deep":[{open}{plain}{close}]}}"#);
            let call = match flip {
                true => format!(r#"{{"arguments":{arguments},"name":"tool{number}"}}"#),
                false => format!(r#"{{"name":"tool{number}","arguments":{arguments}}}"#),
            };
            text += &format!(r#"{plain},{{"ToolCall_V2":{call},"k":{plain}}},"#);
            want += &format!(r#"{plain},{{"ToolCall_V2":⟨tool{number} {arguments}⟩,"k":{plain}}},"#);
        }
        let (text, want) = (text + "0]", want + "0]");
        let got = read(&Path::built_in(), &text, size).0;
        prop_assert!(got == want, "{} bytes by {}", text.len(), size);
    }
}
