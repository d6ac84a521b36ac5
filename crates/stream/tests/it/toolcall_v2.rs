//! All readers of ToolCall_V2 agree: the text dialect, `legacy_json`, `auto` and `Document` find the same
//! calls in the same input, and everything else stays.

use proptest::prelude::*;
use serde_json::Value;
use stream::dialect::{Options, Tools};
use stream::document::{Document, Found, Path};
use stream::event::Event;
use stream::toolcall::{Adapted, LegacyToolCallAdapter, ToolCallV2};

use crate::short::read;

/// The formats that read text with envelopes in it.
const FORMATS: &[&str] = &["toolcall_v2", "legacy_json", "auto"];

/// Splits calls written as `⟨name#id(arguments)⟩`.
fn calls(shown: &str) -> Vec<&str> {
    let starts = shown.match_indices('⟨').map(|(at, _)| &shown[at..]);
    starts
        .map(|rest| &rest[..rest.find('⟩').map_or(rest.len(), |end| end + '⟩'.len_utf8())])
        .collect()
}

/// Formats what `Document` finds like the dialects; the text outside is left out.
fn document(input: &str, size: usize) -> Vec<String> {
    document_with(input, size, false)
}

/// Like [`document`], optionally with the calls in arguments.
fn document_with(input: &str, size: usize, nested: bool) -> Vec<String> {
    let (mut found, mut ids): (Vec<String>, Vec<Option<String>>) = (Vec::new(), Vec::new());
    let mut reader = Document::new(Path::built_in(), 0);
    if nested {
        reader = reader.with_calls_in_arguments();
    }
    let mut sink = |event: Found<'_>, _| match event {
        Found::Call(Event::ToolStart { name, id, .. }) => {
            found.push(format!("⟨{name}\0("));
            ids.push(id.map(str::to_owned));
        }
        Found::Call(Event::ToolId { index, id }) => ids[index as usize] = Some(id.to_owned()),
        Found::Call(Event::ToolArgs { index, text }) => found[index as usize].push_str(text),
        Found::Call(Event::ToolEnd { index, complete }) => {
            found[index as usize].push_str(if complete { ")⟩" } else { "…⟩" });
        }
        _ => {}
    };
    for piece in cut(input, size) {
        if reader.push(piece, &mut sink).is_err() {
            break;
        }
    }
    let _ = reader.finish(&mut sink);
    let id = |id: &Option<String>| id.as_ref().map(|id| format!("#{id}")).unwrap_or_default();
    found.iter().zip(&ids).map(|(call, name)| call.replace('\0', &id(name))).collect()
}

/// Splits a text into pieces of about a size, between characters.
fn cut(text: &str, size: usize) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rest.ceil_char_boundary(size.min(rest.len())));
        pieces.push(piece);
        rest = more;
    }
    pieces
}

/// Checks one document with all readers; `want` is the result of those that show text.
#[track_caller]
fn check(input: &str, want: &str) {
    for size in [input.len().max(1), 1, 2, 3, 7] {
        for name in FORMATS {
            let got = read(name, &Options::default(), &Tools::default(), input, size);
            assert_eq!(got, want, "{name} by {size}: {input}");
        }
        assert_eq!(document(input, size), calls(want), "document by {size}: {input}");
    }
}

/// Like [`check`], for text with documents in it, which `Document` does not read.
#[track_caller]
fn check_text(input: &str, want: &str) {
    for size in [input.len().max(1), 1, 2, 3, 7] {
        for name in FORMATS {
            let got = read(name, &Options::default(), &Tools::default(), input, size);
            assert_eq!(got, want, "{name} by {size}: {input}");
        }
    }
}

#[test]
fn all_readers_find_the_same_calls() {
    // Alone; the envelope belongs to the call and is not shown.
    check(r#"{"ToolCall_V2":{"name":"f","arguments":{"q":"}"}}}"#, r#"⟨f({"q":"}"})⟩"#);
    check(r#"{"ToolCall_V2":{"id":"7","arguments":[1],"name":"f"}}"#, "⟨f#7([1])⟩");
    check(r#"{ "ToolCall_V2" : { "name" : "f" , "arguments" : { } , "id" : "7" } }"#, "⟨f#7({ })⟩");
    check(r#"{"ToolCall_V2":{"name":"f"}}"#, "⟨f()⟩");
    check(r#"{"\u0054oolCall_V2":{"n\u0061me":"f","arguments":{}}}"#, "⟨f({})⟩");
    // Arguments that are text, and arguments that are not JSON: what a model wrote is passed on.
    check(r#"{"ToolCall_V2":{"name":"f","arguments":"{\"a\":\"\u00e9\"}"}}"#, r#"⟨f({"a":"é"})⟩"#);
    check(
        "{\"ToolCall_V2\":{\"name\":\"f\",\"arguments\":{\"a\":\"1\n2\"}}}",
        "⟨f({\"a\":\"1\n2\"})⟩",
    );
    check("{\"ToolCall_V2\":{\"name\":\"f\",\"arguments\":\"1\n2\"}}", "⟨f(1\n2)⟩");
    check(r#"{"ToolCall_V2":{"name":"f","arguments":12}}"#, "⟨f(12)⟩");
    check(r#"{"ToolCall_V2":{"name":"f","arguments":null}}"#, "⟨f(null)⟩");
}

#[test]
fn siblings_stay() {
    let call = r#""ToolCall_V2":{"name":"f","arguments":{}}"#;
    check(&format!(r#"{{"id":"7",{call},"after":true}}"#), r#"{"id":"7"⟨f({})⟩,"after":true}"#);
    check(&format!(r#"{{{call},"after":true}}"#), r#"⟨f({})⟩{"after":true}"#);
    check(&format!(r#"{{"before":[1],{call}}}"#), r#"{"before":[1]⟨f({})⟩}"#);
    check(
        &format!(r#"{{{call},"after":true,"deep":{{"x":{{}}}}}}"#),
        r#"⟨f({})⟩{"after":true,"deep":{"x":{}}}"#,
    );
    check(&format!(r#"{{{call},{call}}}"#), "⟨f({})⟩⟨f({})⟩");
    check(&format!(r#"{{"a":1, {call} , {call} , "b":2 }}"#), r#"{"a":1⟨f({})⟩⟨f({})⟩ , "b":2 }"#);
    // What does not belong into a call is reported.
    check(r#"{"ToolCall_V2":{"name":"f","arguments":{},"meta":[{}]}}"#, "⟨f({})⟩ !unexpected_data");
}

#[test]
fn the_document_around_stays() {
    let envelope = r#"{"ToolCall_V2":{"name":"f","arguments":{}}}"#;
    check(&format!(r#"{{"a":[1,{envelope}],"b":true}}"#), r#"{"a":[1⟨f({})⟩],"b":true}"#);
    check(&format!(r#"{{"a":[{envelope},1],"b":true}}"#), r#"⟨f({})⟩{"a":[1],"b":true}"#);
    check(&format!(r#"{{"a":{envelope},"b":"x"}}"#), r#"⟨f({})⟩{"a":{},"b":"x"}"#);
    check(&format!(r#"{{"a":[{envelope},{envelope}]}}"#), r#"⟨f({})⟩⟨f({})⟩{"a":[]}"#);
    check(&format!("[{envelope} , {envelope}]"), "⟨f({})⟩⟨f({})⟩");
    check(&format!(r#"{{"x":[[{envelope}]],"y":{{}}}}"#), r#"⟨f({})⟩{"x":[],"y":{}}"#);
    check(&format!(r#"{{"tool_calls":[{envelope}]}}"#), "⟨f({})⟩");
    // A document without a call is unchanged.
    for plain in
        [r#"{"a":[1, {"b": "ToolCall_V2"}] }"#, r#"{ }"#, r#"[[],{"a":{}}]"#, "{\"a\"\n:\t1e5 }"]
    {
        check(plain, plain);
    }
}

#[test]
fn envelopes_in_envelopes() {
    let call = r#"{"name":"ping","arguments":{}}"#;
    check(&format!(r#"{{"ToolCall_V2":{{"ToolCall_V2":{call}}}}}"#), "⟨ping({})⟩");
    check(
        &format!(r#"{{"ToolCall_V2":{{"id":"1","ToolCall_V2":{{"ToolCall_V2":{call}}}}}}}"#),
        "⟨ping#1({})⟩",
    );
    // In arguments an envelope is data.
    let inner = format!(r#"{{"x":{{"ToolCall_V2":{call}}}}}"#);
    check(
        &format!(r#"{{"ToolCall_V2":{{"name":"f","arguments":{inner}}}}}"#),
        &format!("⟨f({inner})⟩"),
    );
    check(
        &format!(r#"{{"ToolCall_V2":{{"arguments":{inner},"name":"f"}}}}"#),
        &format!("⟨f({inner})⟩"),
    );
}

#[test]
fn invalid_envelopes_are_reported_and_stay() {
    check(r#"{"ToolCall_V2":5}"#, r#"{"ToolCall_V2":5} !malformed_call"#);
    check(r#"{"ToolCall_V2":"f","a":1}"#, r#"{"ToolCall_V2":"f","a":1} !malformed_call"#);
    check(r#"{"ToolCall_V2":[{"name":"f"}]}"#, r#"{"ToolCall_V2":[{"name":"f"}]} !malformed_call"#);
    check(
        r#"{"ToolCall_V2":{"arguments":{}}}"#,
        r#"{"ToolCall_V2":{"arguments":{}}} !malformed_call"#,
    );
    check(r#"{"ToolCall_V2":{"na"#, r#"{"ToolCall_V2":{"na !truncated"#);
    check(r#"{"ToolCall_V2":{"name":"f","arguments":{"q":"ab"#, r#"⟨f({"q":"ab…⟩ !truncated"#);
    check(r#"{"ToolCall_V2":{"name":"f","arguments":{}}"#, "⟨f({})⟩ !truncated");
    check(r#"{"q":{"ToolCall_V2":{"name":"f","arg"#, r#"⟨f(…⟩{"q":{ !truncated"#);
    check(r#"{"ToolCall_V2":{"name":"f","arguments":{}},"a":[1"#, r#"⟨f({})⟩{"a":[1 !truncated"#);
    check(
        r#"{"ToolCall_V2":{"name":"f","arguments":{}},"a":1 oops}"#,
        r#"⟨f({})⟩{"a":1 oops} !invalid_json"#,
    );
}

#[test]
fn documents_in_text() {
    let call = r#""ToolCall_V2":{"name":"f","arguments":{}}"#;
    check_text(
        &format!(r#"Text {{{call},"after":true,"deep":{{"a":[]}}}} more"#),
        r#"Text ⟨f({})⟩{"after":true,"deep":{"a":[]}} more"#,
    );
    check_text(&format!(r#"Text {{"id":"7",{call}}} more"#), r#"Text {"id":"7"⟨f({})⟩} more"#);
    check_text(&format!("a {{ b {{{call}}} c {{{call}}}"), "a { b ⟨f({})⟩ c ⟨f({})⟩");
    check_text(&format!("{{{call}}}{{{call}}}"), "⟨f({})⟩⟨f({})⟩");
    check_text(&format!(r#"A brace, "{{", then {{{call}}}."#), r#"A brace, "{", then ⟨f({})⟩."#);
    check_text(&format!("x {{\"a\": nope}} {{{call}}}"), "x {\"a\": nope} ⟨f({})⟩");
    check_text(&format!("Calls: [{{{call}}}, {{{call}}}]"), "Calls: ⟨f({})⟩⟨f({})⟩");
    check_text("fn main() { let x = [1]; }", "fn main() { let x = [1]; }");
}

#[test]
fn envelopes_inside_other_call_formats() {
    let call = r#""ToolCall_V2":{"name":"f","arguments":{}}"#;
    for (open, close) in [
        ("```json\n", "\n```"),
        ("```\n", "\n```"),
        ("```json\n", ""),
        ("<tool_call>", "</tool_call>"),
        ("<tool_call>\n", "\n</tool_call>"),
        ("<tool_call>\n", ""),
    ] {
        for (document, want) in [
            (format!("{{{call}}}"), "⟨f({})⟩"),
            (format!("[{{{call}}}, {{{call}}}]"), "⟨f({})⟩⟨f({})⟩"),
            (format!(r#"{{"a":[1],{call},"b":2}}"#), r#"{"a":[1]⟨f({})⟩,"b":2}"#),
        ] {
            for (before, after) in [("", ""), ("Look:\n", ""), ("Look:\n", "\nDone")] {
                check_text(
                    &format!("{before}{open}{document}{close}{after}"),
                    &format!("{before}{open}{want}{close}{after}"),
                );
            }
        }
    }
    // A call in there stays one, and everything else stays text.
    let auto = |input: &str| read("auto", &Options::default(), &Tools::default(), input, 3);
    assert_eq!(auto("```json\n{\"name\":\"f\",\"arguments\":{}}\n```"), "⟨f({})⟩");
    assert_eq!(auto("```json\n{\"a\":1}\n```\nx"), "```json\n{\"a\":1}\n```\nx");
    assert_eq!(auto("<tool_call>{\"a\":1} x"), "<tool_call>{\"a\":1} x !malformed_call");
}

#[test]
fn arrays_of_anything() {
    let envelope = r#"{"ToolCall_V2":{"name":"f","arguments":{}}}"#;
    for first in ["1", "-2.5", "\"a\"", "true", "false", "null", "[]", "{}", "[1]"] {
        check(&format!("[{first},{envelope}]"), &format!("[{first}⟨f({{}})⟩]"));
        check(&format!("[{first}, {envelope}, 2]"), &format!("[{first}⟨f({{}})⟩, 2]"));
        check_text(&format!("a [{first},{envelope}] b"), &format!("a [{first}⟨f({{}})⟩] b"));
    }
    check_text("a [1] [note] [x] [] [nul] b", "a [1] [note] [x] [] [nul] b");
}

#[test]
fn documents_one_after_the_other() {
    let envelope = r#"{"ToolCall_V2":{"name":"f","arguments":{}}}"#;
    for between in ["", "\n", ", ", " ; ", "\n\n,"] {
        check_text(
            &format!("{envelope}{between}{{\"a\":1}}{between}[2]{between}{envelope}{between}"),
            &format!("⟨f({{}})⟩{between}{{\"a\":1}}{between}[2]{between}⟨f({{}})⟩{between}"),
        );
        check_text(
            &format!("{{\"a\":1}}{between}{envelope}{between}and"),
            &format!("{{\"a\":1}}{between}⟨f({{}})⟩{between}and"),
        );
    }
    // Between calls of older kinds there is no text.
    let older = r#"{"name":"f","arguments":{}}"#;
    for (input, want) in [
        (format!("{older}\n{older},\n{older}\n"), "⟨f({})⟩⟨f({})⟩⟨f({})⟩".to_owned()),
        (format!("{older}, {{\"a\":1}}"), "⟨f({})⟩, {\"a\":1}".to_owned()),
        (format!("{older}\nand"), "⟨f({})⟩\nand".to_owned()),
        (format!("{older}\n{envelope}"), "⟨f({})⟩\n⟨f({})⟩".to_owned()),
    ] {
        for size in [1, 3, input.len()] {
            let got = read("legacy_json", &Options::default(), &Tools::default(), &input, size);
            assert_eq!(got, want, "by {size}: {input}");
        }
    }
}

#[test]
fn envelopes_beside_calls() {
    let f = r#"{"name":"f","arguments":{"a":1}}"#;
    for (input, want) in [
        (format!(r#"{{"name":"g","arguments":{{}},"ToolCall_V2":{f}}}"#), r#"⟨g({})⟩⟨f({"a":1})⟩"#),
        (
            format!(r#"{{"name":"g","arguments":{{}},"x":[1,{{"ToolCall_V2":{f}}}]}}"#),
            r#"⟨g({})⟩⟨f({"a":1})⟩ !unexpected_data"#,
        ),
        (
            format!(r#"{{"name":"g","arguments":{{}},"tool_calls":[{f},{f}]}}"#),
            r#"⟨g({})⟩⟨f({"a":1})⟩⟨f({"a":1})⟩ !unexpected_data"#,
        ),
        (
            format!(r#"{{"ToolCall_V2":{f},"name":"g","arguments":{{}}}}"#),
            r#"⟨f({"a":1})⟩{"name":"g","arguments":{}}"#,
        ),
        (format!(r#"{{"function_call":{f},"ToolCall_V2":{f}}}"#), r#"⟨f({"a":1})⟩⟨f({"a":1})⟩"#),
        (
            r#"{"name":"g","arguments":{},"ToolCall_V2":{"name":"f","arguments":{"a"#.to_owned(),
            r#"⟨g({}…⟩⟨f({"a…⟩ !truncated !truncated"#,
        ),
    ] {
        for size in [1, 3, input.len()] {
            for name in ["legacy_json", "auto"] {
                let got = read(name, &Options::default(), &Tools::default(), &input, size);
                assert_eq!(got, want, "{name} by {size}: {input}");
            }
        }
    }
}

/// Like [`check`], with options, and for the formats alone.
#[track_caller]
fn check_with(options: &Options, input: &str, want: &str) {
    for size in [input.len().max(1), 1, 2, 3, 7] {
        for name in FORMATS {
            let got = read(name, options, &Tools::default(), input, size);
            assert_eq!(got, want, "{name} by {size}: {input}");
        }
    }
}

#[test]
fn calls_in_arguments_are_calls_if_asked_for() {
    let options = Options { calls_in_arguments: true, ..Options::default() };
    let g = r#"{"ToolCall_V2":{"name":"g","arguments":{"y":1}}}"#;
    let f = format!(r#"{{"x":[{g}]}}"#);
    check_with(
        &options,
        &format!(r#"{{"ToolCall_V2":{{"name":"f","arguments":{f}}}}}and"#),
        &format!(r#"⟨f({f})⟩⟨g({{"y":1}})⟩and"#),
    );
    check_with(
        &options,
        &format!(r#"{{"a":1,"ToolCall_V2":{{"arguments":{f},"name":"f"}}}}"#),
        &format!(r#"{{"a":1⟨f({f})⟩⟨g({{"y":1}})⟩}}"#),
    );
    // Text that is JSON contains calls too, and truncation is reported everywhere.
    check_with(
        &options,
        &format!(r#"{{"ToolCall_V2":{{"name":"f","arguments":{}}}}}"#, serde_json::json!(f)),
        &format!(r#"⟨f({f})⟩⟨g({{"y":1}})⟩"#),
    );
    check_with(
        &options,
        r#"{"ToolCall_V2":{"name":"f","arguments":{"x":{"ToolCall_V2":{"name":"g","arguments":{"#,
        r#"⟨f({"x":{"ToolCall_V2":{"name":"g","arguments":{…⟩⟨g({…⟩ !truncated !truncated"#,
    );
    // At any depth the work is bounded, and deeper calls are data.
    let mut deep = r#"{"ToolCall_V2":{"name":"f","arguments":{}}}"#.to_owned();
    for _ in 0..100 {
        deep = format!(r#"{{"ToolCall_V2":{{"name":"f","arguments":{deep}}}}}"#);
    }
    let got = read("toolcall_v2", &options, &Tools::default(), &deep, deep.len());
    assert_eq!(got.matches("⟨").count(), 1 + usize::from(stream::document::NESTED_CALLS_MAX));
}

#[test]
fn paths_say_where_calls_are() {
    let at = |paths: &[&str]| Options {
        paths: paths.iter().map(|path| Path::parse(path).unwrap()).collect(),
        ..Options::default()
    };
    let call = r#"{"name":"f","arguments":{}}"#;
    check_with(
        &at(&["$.choices[].message.tool_calls[]"]),
        &format!(r#"{{"choices":[{{"message":{{"tool_calls":[{call},{call}]}}}}]}}"#),
        "⟨f({})⟩⟨f({})⟩",
    );
    check_with(
        &at(&["$.do[]"]),
        &format!(r#"{{"why":"so","do":[{call}]}}"#),
        r#"{"why":"so"⟨f({})⟩}"#,
    );
    // Only there.
    check_with(
        &at(&["$.do"]),
        &format!(r#"{{"x":{{"do":{call},"ToolCall_V2":{call}}}}}"#),
        &format!(r#"{{"x":{{"do":{call},"ToolCall_V2":{call}}}}}"#),
    );
}

#[test]
fn older_calls_keep_what_messages_do_not_have() {
    let call = r#"{"name":"f","arguments":{}}"#;
    for (input, want) in [
        (format!(r#"{{"function_call":{call},"after":true}}"#), r#"⟨f({})⟩{"after":true}"#),
        (
            format!(r#"{{"role":"assistant","content":null,"mine":[1],"tool_calls":[{call}]}}"#),
            r#"{"mine":[1]⟨f({})⟩}"#,
        ),
        (
            format!(
                r#"{{"id":"x","choices":[{{"index":0,"message":{{"role":"assistant","tool_calls":[{call}]}}}}],"usage":{{"a":1}}}}"#
            ),
            "⟨f({})⟩",
        ),
    ] {
        for size in [input.len(), 1, 3] {
            let got = read("legacy_json", &Options::default(), &Tools::default(), &input, size);
            assert_eq!(got, want, "by {size}: {input}");
        }
    }
}

#[test]
fn an_envelope_is_a_value() {
    for (text, want) in [
        (
            r#"{"ToolCall_V2":{"name":"f","arguments":{"a":[1]},"id":"7"}}"#,
            Ok(("f", r#"{"a":[1]}"#, Some("7"))),
        ),
        (r#" {"ToolCall_V2":{"arguments":"{}","name":"f"}} "#, Ok(("f", "{}", None))),
        (r#"{"ToolCall_V2":{"name":"f"}}"#, Ok(("f", "", None))),
        (r#"{"ToolCall_V2":{"name":"f"},"a":1}"#, Err("something else")),
        (r#"{"ToolCall_V2":{"name":"f","x":1}}"#, Err("not a key of a call")),
        (r#"{"ToolCall_V2":{"arguments":{}}}"#, Err("no name")),
        (r#"{"name":"f"}"#, Err("no call is in it")),
        (r#"{"ToolCall_V2":"#, Err("ends inside")),
        ("nonsense", Err("unexpected character at byte 1")),
    ] {
        match (text.parse::<ToolCallV2>(), want) {
            (Ok(call), Ok((name, arguments, id))) => {
                assert_eq!(
                    (call.name.as_str(), call.arguments.as_str(), call.id.as_deref()),
                    (name, arguments, id)
                );
            }
            (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{text}: {error}"),
            (got, want) => panic!("{text}: {got:?}, not {want:?}"),
        }
    }
}

/// Rewrites a stream as envelopes and text.
fn adapt(input: &str, size: usize) -> String {
    let mut adapter = LegacyToolCallAdapter::new(&Options::default(), &Tools::default()).unwrap();
    let mut shown = String::new();
    let mut sink = |adapted: Adapted<'_>| match adapted {
        Adapted::Call(call) => shown.push_str(&call.to_json()),
        Adapted::Error(error) => shown.push_str(&format!("!{}", error.kind().as_str())),
        Adapted::Other(Event::Text(text)) => shown.push_str(text),
        Adapted::Other(other) => panic!("{other:?}"),
    };
    for piece in input.as_bytes().chunks(size) {
        adapter.push(piece, &mut sink).unwrap();
    }
    adapter.finish(&mut sink).unwrap();
    shown
}

#[test]
fn legacy_in_envelopes_out() {
    let want = r#"{"ToolCall_V2":{"name":"f","arguments":{"a":1}}}"#;
    for input in [
        r#"{"function_call":{"name":"f","arguments":"{\"a\":1}"}}"#,
        r#"{"name":"f","parameters":{"a":1}}"#,
        r#"<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>"#,
        "```json\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n```",
        want,
    ] {
        for size in [1, 7, input.len()] {
            assert_eq!(adapt(input, size), want, "{input} by {size}");
        }
    }
    assert_eq!(adapt(r#"Hi. {"ToolCall_V2":{"name":"f","arguments":{"a":"#, 5), "Hi. !truncated");
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
            proptest::collection::vec(("[a-c\"]{1,3}", inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// What may surround a document, at the places of `\0`.
fn any_surroundings() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a \0 b",
        "\0\0",
        "\0, \0\n;\0 ",
        "```json\n\0\n```",
        "Look:\n```json\n\0\n```\nDone",
        "<tool_call>\0</tool_call>",
        "a <tool_call>\n\0\n</tool_call> b",
        "{\"x\": nope} \0",
        "\0 and \0.",
    ])
}

/// Generates a document with calls anywhere, as text.
fn any_document() -> impl Strategy<Value = String> {
    // Arguments may contain others.
    let arguments = prop_oneof![
        3 => any_json().prop_map(|value| value.to_string()),
        1 => ("[a-z]{1,3}", any_json())
            .prop_map(|(name, a)| format!(r#"{{"x":[{{"ToolCall_V2":{{"name":"{name}","arguments":{a}}}}}]}}"#)),
    ];
    let call =
        (arguments, "[a-z]{1,6}", proptest::option::of("[0-9a-f]{1,4}"), 0..3u8, any::<bool>());
    let call = call.prop_map(|(arguments, name, id, order, twice)| {
        let id = id.map(|id| format!(r#""id":"{id}","#)).unwrap_or_default();
        let inner = match order {
            0 => format!(r#"{{{id}"name":"{name}","arguments":{arguments}}}"#),
            1 => format!(r#"{{"arguments":{arguments},{id}"name":"{name}"}}"#),
            _ => format!(r#"{{ "name" : "{name}" , {id} "arguments" : {arguments} }}"#),
        };
        let inner = if twice { format!(r#"{{"ToolCall_V2":{inner}}}"#) } else { inner };
        format!(r#""ToolCall_V2":{inner}"#)
    });
    let call = call.boxed();
    let envelope = call.clone().prop_map(|call| format!("{{{call}}}"));
    let leaf = prop_oneof![2 => any_json().prop_map(|value| value.to_string()), 1 => envelope];
    let tree = leaf.prop_recursive(3, 24, 4, move |inner| {
        let member = prop_oneof![
            3 => ("[a-c]{1,3}|id|type|name|content|role", inner.clone())
                .prop_map(|(key, value)| format!(r#""{key}": {value}"#)),
            1 => call.clone(),
        ];
        prop_oneof![
            proptest::collection::vec(inner, 0..4)
                .prop_map(|items| format!("[{}]", items.join(" ,"))),
            proptest::collection::vec(member, 0..4)
                .prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    });
    // Only these count as documents in text.
    tree.prop_filter("an object or an array", |text| text.starts_with(['{', '[']))
}

proptest! {
    /// All readers find the same calls, whatever surrounds them, and what surrounds them is still JSON.
    #[test]
    fn all_readers_agree_about_any_document(
        text in any_document(),
        around in any_surroundings(),
        nested in any::<bool>(),
        size in 1usize..30,
    ) {
        let options = Options { calls_in_arguments: nested, ..Options::default() };
        let want = document_with(&text, text.len(), nested);
        prop_assert_eq!(&document_with(&text, size, nested), &want);
        let shown = read("toolcall_v2", &options, &Tools::default(), &text, text.len());
        let found: Vec<String> = calls(&shown).into_iter().map(str::to_owned).collect();
        prop_assert_eq!(&found, &want, "{}", text);
        let mut rest = shown.clone();
        for call in &found {
            rest = rest.replacen(call.as_str(), "", 1);
        }
        let rest = rest.split(" !").next().unwrap();
        if !rest.is_empty() {
            prop_assert!(serde_json::from_str::<Value>(rest).is_ok(), "{} of {}", rest, text);
        }
        for name in FORMATS {
            let got = read(name, &options, &Tools::default(), &text, size);
            prop_assert_eq!(&got, &shown, "{} on {}", name, text);
        }
        // And in text, in fences, in tags, and one after the other.
        let announced = around.contains("<tool_call>") || around.contains("```");
        if announced && (want.is_empty() || text.contains("\"name\": ")) {
            // Where calls are announced, a name alone may be a call, and so may an empty list.
            return Ok(());
        }
        let text = around.replace('\0', &text);
        let shown = read("toolcall_v2", &options, &Tools::default(), &text, text.len());
        for name in FORMATS {
            let got = read(name, &options, &Tools::default(), &text, size);
            // And they report it if there is none.
            let got = if announced { got.trim_end_matches(" !malformed_call") } else { &got };
            let shown = if announced { shown.trim_end_matches(" !malformed_call") } else { &shown };
            prop_assert_eq!(got, shown, "{} on {}", name, text);
        }
    }

    #[test]
    fn envelopes_round_trip(name in ".{1,20}", arguments in ".{0,60}", id in proptest::option::of(".{0,10}")) {
        let call = ToolCallV2 { name, arguments, id };
        prop_assert_eq!(&call.to_json().parse::<ToolCallV2>().unwrap(), &call);
        let value: ToolCallV2 = serde_json::from_str(&serde_json::to_string(&call).unwrap()).unwrap();
        prop_assert_eq!(value, call);
    }

    #[test]
    fn json_arguments_are_written_as_they_are(arguments in any_json(), id in proptest::option::of("[a-z]{1,4}")) {
        let call = ToolCallV2 { name: "f".to_owned(), arguments: arguments.to_string(), id };
        prop_assert_eq!(&call.to_json().parse::<ToolCallV2>().unwrap(), &call);
        if !arguments.is_string() {
            prop_assert!(call.to_json().contains(&call.arguments));
        }
    }
}
