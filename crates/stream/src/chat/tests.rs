//! Streams of chunks, and the items they decode to, in chunks of every size.

use proptest::prelude::*;
use protocol::error::ErrorClass;
use protocol::open::Open;
use protocol::responses::{KnownItem, StreamEvent};
use serde_json::{Value, json};

use super::items::{Items, Source};
use super::{Decoder, Setup};
use crate::dialect::{Dialect, Format, Options, Tools};
use crate::event::Event;

/// Serializes chunks as a stream; a string is written verbatim.
fn stream(chunks: &[Value]) -> String {
    let write = |chunk: &Value| match chunk {
        Value::String(text) => format!("data: {text}\n\n"),
        chunk => format!("data: {chunk}\n\n"),
    };
    chunks.iter().map(write).collect()
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta }] })
}

fn text(text: &str) -> Value {
    delta(json!({ "content": text }))
}

fn call(index: u32, id: &str, name: &str, arguments: &str) -> Value {
    let function = json!({ "name": name, "arguments": arguments });
    delta(json!({ "tool_calls": [{ "index": index, "id": id, "function": function }] }))
}

fn stop(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

fn done() -> Value {
    json!("[DONE]")
}

/// Decodes a stream in pieces of a size; one word per event, pieces of one text merged.
fn read(dialect: Option<&str>, bytes: &[u8], size: usize) -> Vec<String> {
    let tools =
        json!([{ "name": "run", "parameters": { "properties": { "cmd": { "type": "string" } } } }]);
    let tools = Tools::from_json(&tools).expect("a list of tools");
    let format = dialect.map(|name| Format::named(name).expect("a format"));
    let setup = Setup {
        dialect: format.map(|format| Dialect::new(format, &Options::default(), &tools)),
        custom: ["patch".to_owned()].into(),
    };
    let (mut decoder, mut events) = (Decoder::new(&setup), Vec::new());
    for piece in bytes.chunks(size.max(1)) {
        decoder.push(piece, &mut events).expect("it is short");
    }
    decoder.finish(&mut events);
    let mut words: Vec<String> = Vec::new();
    for event in events {
        let word = brief(event);
        match words.last_mut() {
            Some(last) if last.starts_with('+') && last.get(..2) == word.get(..2) => {
                last.push_str(&word[2..]);
            }
            _ => words.push(word),
        }
    }
    words
}

fn brief(event: StreamEvent) -> String {
    let item = |item| match item {
        Open::Known(KnownItem::Message(message)) => format!("message({})", message.content.text()),
        Open::Known(KnownItem::Reasoning(reasoning)) => {
            let text: String = reasoning.summary.into_iter().map(|part| part.text).collect();
            let seal = reasoning.encrypted_content.map_or(String::new(), |seal| format!("#{seal}"));
            format!("reasoning({text}{seal})")
        }
        Open::Known(KnownItem::FunctionCall(call)) => {
            let half = if call.is_whole() { "" } else { "…" };
            format!("{}:{}({}{half})", call.call_id, call.name, call.arguments)
        }
        Open::Known(KnownItem::CustomToolCall(call)) => {
            let half = if call.is_whole() { "" } else { "…" };
            format!("{}:{}<{}{half}>", call.call_id, call.name, call.input)
        }
        other => panic!("{other:?}"),
    };
    match event {
        StreamEvent::Created => "created".to_owned(),
        StreamEvent::Unreadable => "unreadable".to_owned(),
        StreamEvent::ItemAdded(added) => format!("added {}", item(added)),
        StreamEvent::TextDelta(text) => format!("+t{text}"),
        StreamEvent::SummaryDelta { text, .. } => format!("+r{text}"),
        StreamEvent::ReasoningDelta { text, .. } => format!("+raw {text}"),
        StreamEvent::ItemDone(done) => item(done),
        StreamEvent::Completed(completion) => format!("completed {}", completion.total_tokens),
        StreamEvent::Failed(error) => format!("failed {:?}: {error}", error.class),
    }
}

/// Decodes a stream whole and in pieces of every size; compares the completed items and the end.
#[track_caller]
fn check_as(dialect: Option<&str>, chunks: &[Value], want: &[&str]) {
    let bytes = stream(chunks).into_bytes();
    let whole = read(dialect, &bytes, bytes.len());
    for size in 1..=bytes.len().min(64) {
        assert_eq!(read(dialect, &bytes, size), whole, "by {size}");
    }
    assert_eq!(whole.first().map(String::as_str), Some("created"));
    let shown = |word: &&String| !word.starts_with("added ") && !word.starts_with('+');
    let got: Vec<&String> = whole[1..].iter().filter(shown).collect();
    assert_eq!(got, want, "{whole:#?}");
    // The deltas add up to the final text.
    let pieces: String = whole.iter().filter_map(|word| word.strip_prefix("+t")).collect();
    let messages = whole.iter().filter_map(|word| word.strip_prefix("message("));
    let messages: String = messages.filter_map(|word| word.strip_suffix(')')).collect();
    assert!(pieces.starts_with(&messages), "{pieces:?} {messages:?}");
}

#[track_caller]
fn check(chunks: &[Value], want: &[&str]) {
    check_as(None, chunks, want);
}

#[test]
fn answers() {
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 7, "completion_tokens": 3 } });
    check(
        &[text("Hel"), text("lo"), stop("stop"), usage, done()],
        &["message(Hello)", "completed 10"],
    );
    // All possible ends.
    check(&[text("a"), stop("stop"), done()], &["message(a)", "completed 0"]);
    check(&[text("a"), stop("stop")], &["message(a)", "completed 0"]);
    check(&[text("a"), done()], &["message(a)", "completed 0"]);
    check(&[text("a"), stop("eos_found")], &["message(a)", "completed 0"]);
    check(&[done()], &["completed 0"]);
    check(
        &[text("a"), done(), text("b"), json!({ "error": "late" })],
        &["message(a)", "completed 0"],
    );
    check(&[text("a")], &[]);
    // Whitespace counts only next to other text.
    check(&[text("\n"), text("\n a"), text(" "), done()], &["message( a )", "completed 0"]);
    check(&[text("\n\n"), stop("stop")], &["completed 0"]);
    check(
        &[delta(json!({ "content": "no: ", "refusal": "I will not" })), done()],
        &["message(no: I will not)", "completed 0"],
    );
}

#[test]
fn order() {
    let think = |text: &str| delta(json!({ "reasoning_content": text }));
    check(
        &[
            think("hm"),
            think("m"),
            text("\n"),
            text("so"),
            call(0, "a", "run", "{}"),
            stop("tool_calls"),
        ],
        &["reasoning(hmm)", "message(so)", "a:run({})", "completed 0"],
    );
    check(&[think("\n\n"), text("a"), done()], &["message(a)", "completed 0"]);
    // What follows a call waits for it.
    check(
        &[
            call(0, "a", "run", "{"),
            text("then"),
            think("hm"),
            call(0, "", "", "}"),
            text("and"),
            done(),
        ],
        &["a:run({})", "message(then)", "reasoning(hm)", "message(and)", "completed 0"],
    );
    let sealed = json!({ "reasoning_details": [{ "type": "reasoning.text", "text": "x", "signature": "S" }] });
    check(&[delta(sealed), text("a"), done()], &["reasoning(x#S)", "message(a)", "completed 0"]);
}

#[test]
fn calls() {
    check(
        &[
            call(0, "a", "run", "{\"x\""),
            call(1, "", "run", "{}"),
            call(0, "", "", ":1}"),
            stop("tool_calls"),
        ],
        &["a:run({\"x\":1})", "call_1:run({})", "completed 0"],
    );
    check(&[call(0, "a", "run", ""), stop("stop")], &["a:run({})", "completed 0"]);
    check(
        &[call(0, "a", "patch", "{\"input\":\"*** Begin\\n\"}"), stop("stop")],
        &["a:patch<*** Begin\n>", "completed 0"],
    );
    check(
        &[call(0, "a", "patch", "{\"text\":1}"), stop("stop")],
        &["a:patch<{\"text\":1}>", "completed 0"],
    );
    // Half a call is marked if the answer is complete without the rest of it.
    check(
        &[call(0, "a", "run", "{\"x\":"), call(1, "b", "run", "{}"), stop("tool_calls"), done()],
        &["a:run({\"x\":…)", "b:run({})", "completed 0"],
    );
    check(
        &[call(0, "a", "patch", "{\"input\":\"*** Be"), stop("stop")],
        &["a:patch<{\"input\":\"*** Be…>", "completed 0"],
    );
    // Complete items of a broken answer are kept.
    let cut = [text("so"), call(0, "a", "run", "{\"x\":"), call(1, "b", "run", "{}")];
    check(&cut, &["message(so)", "b:run({})"]);
}

#[test]
fn failures() {
    let length =
        "failed Incomplete: the answer reached the provider's token limit before it was complete";
    check(&[text("half"), stop("length"), done()], &["message(half)", length]);
    check(&[text("a"), call(0, "a", "run", "{\"x"), stop("length")], &["message(a)", length]);
    let filter = "failed Disconnected: the provider's content filter cut the answer short";
    check(&[text("half"), stop("content_filter"), done()], &[filter]);
    let ended = |text: &str| {
        format!("failed Disconnected: the provider ended the answer before it was complete: {text}")
    };
    check(
        &[text("a"), json!({ "error": { "code": 502, "message": "oh" } }), done()],
        &[&ended("oh")],
    );
    check(&[json!({ "error": "oh" })], &[&ended("oh")]);
    check(&[json!({ "error": { "why": 1 } })], &[&ended("{\"why\":1}")]);
    check(&[text("a"), stop("error")], &[&ended("the provider gave no reason")]);
    check(&[text("a"), stop("abort")], &[&ended("abort")]);
    check(
        &[json!({ "object": "error", "message": "no", "code": 400 })],
        &["failed InvalidRequest: no"],
    );
    let busy = json!({ "error": { "code": 429, "message": "slow" }, "choices": [{ "delta": { "content": "" }, "finish_reason": "error" }] });
    check(&[busy], &["failed RateLimited: rate limit reached: slow"]);
}

#[test]
fn calls_in_the_text() {
    let hermes = |chunks: &[Value], want: &[&str]| check_as(Some("hermes"), chunks, want);
    let markup = "<tool_call>\n{\"name\": \"run\", \"arguments\": {\"cmd\": \"ls\"}}\n</tool_call>";
    let (head, tail) = markup.split_at(20);
    hermes(
        &[text("<think>hm</think>\n\nLook: "), text(head), text(tail), stop("stop"), done()],
        &["reasoning(hm)", "message(Look: )", "call_0:run({\"cmd\": \"ls\"})", "completed 0"],
    );
    // Both kinds of calls in one answer.
    hermes(
        &[text(markup), call(0, "a", "run", "{}"), text(markup), stop("tool_calls")],
        &[
            "call_0:run({\"cmd\": \"ls\"})",
            "a:run({})",
            "call_2:run({\"cmd\": \"ls\"})",
            "completed 0",
        ],
    );
    hermes(&[text(&markup[..50]), stop("stop")], &["call_0:run({\"cmd\": \"…)", "completed 0"]);
    // Arguments that look complete do not make a call complete.
    hermes(
        &[text(&markup[..markup.len() - 14]), stop("stop")],
        &["call_0:run({\"cmd\": \"ls\"}…)", "completed 0"],
    );
    hermes(&[text("a <"), stop("stop")], &["message(a <)", "completed 0"]);
    hermes(&[text("a"), text(&markup[..50])], &["message(a)"]);
    check_as(
        Some("qwen3_coder"),
        &[
            text(
                "<tool_call>\n<function=run>\n<parameter=cmd>\n1\n</parameter>\n</function>\n</tool_call>",
            ),
            done(),
        ],
        &["call_0:run({\"cmd\":\"1\"})", "completed 0"],
    );
    // Commentary is a separate item, and not the answer.
    let channels = [
        "<|channel|>analysis<|message|>Hm.<|end|>",
        "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>",
        "<|start|>assistant<|channel|>final<|message|>Done.<|return|>",
    ];
    check_as(
        Some("harmony"),
        &[text(&channels.concat()), done()],
        &["reasoning(Hm.)", "reasoning(I look.)", "message(Done.)", "completed 0"],
    );
    check_as(Some("harmony"), &[text(channels[1]), done()], &["reasoning(I look.)", "completed 0"]);
    // Without a dialect it is text.
    check(&[text(markup), done()], &[&format!("message({markup})"), "completed 0"]);
}

#[test]
fn frames_are_counted() {
    let (mut decoder, mut events) = (Decoder::new(&Setup::default()), Vec::new());
    for (text, frames, unreadable) in [
        (": ping\n\n", 0, 0),
        ("data: {\"choices\":[]}\n\n", 1, 0),
        ("data: no JSON\n\n: ping\n\n", 2, 1),
        ("data: {\"choices\":", 2, 1),
    ] {
        decoder.push(text.as_bytes(), &mut events).expect("it is short");
        assert_eq!((decoder.frames(), decoder.unreadable()), (frames, unreadable), "{text}");
    }
    decoder.finish(&mut events);
    assert_eq!((decoder.frames(), decoder.unreadable()), (3, 2));
    let unreadable = StreamEvent::Unreadable;
    assert_eq!(events, [StreamEvent::Created, unreadable.clone(), unreadable]);
}

#[test]
fn an_endless_answer_is_refused() {
    for event in [Event::Text("12345"), Event::ToolArgs { index: 0, text: "12345" }] {
        let (mut items, mut events) = (Items::new([].into(), 10), Vec::new());
        items.take(Source::Wire, event, &mut events);
        items.take(Source::Wire, event, &mut events);
        assert!(!items.is_full());
        items.take(Source::Wire, event, &mut events);
        assert!(items.is_full());
    }
    let class = ErrorClass::NotAnEndpoint;
    assert!(!class.can_retry(), "an endless answer is not asked for again");
}

fn any_chunk() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "a",
        " ",
        "\n",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "{\"name\":\"run\",",
        "\"arguments\":{}}",
        "é",
        "<",
        "</",
    ]);
    let reasons = prop::sample::select(vec!["stop", "length", "tool_calls", "error", "odd"]);
    let arguments = prop::sample::select(vec!["{", "}", "{}", "\"a\":1", ""]);
    let names = prop::sample::select(vec!["run", "patch", ""]);
    prop_oneof![
        6 => words.clone().prop_map(text),
        2 => words.prop_map(|word| delta(json!({ "reasoning_content": word }))),
        4 => (0u32..3, names, arguments).prop_map(|(index, name, text)| call(index, "", name, text)),
        1 => reasons.prop_map(stop),
        1 => Just(done()),
        1 => Just(json!({ "error": { "message": "oh" } })),
        1 => Just(json!("{not json")),
    ]
}

proptest! {
    #[test]
    fn any_answer_decodes_the_same_in_any_chunking(
        chunks in prop::collection::vec(any_chunk(), 0..20),
        size in 1usize..40,
        dialect in prop::sample::select(vec![None, Some("hermes"), Some("qwen3_coder")]),
    ) {
        let bytes = stream(&chunks).into_bytes();
        let whole = read(dialect, &bytes, bytes.len());
        prop_assert_eq!(&read(dialect, &bytes, size), &whole);
        // Nothing is emitted after the end.
        let end = |word: &String| word.starts_with("completed") || word.starts_with("failed");
        prop_assert!(whole.iter().rev().skip(1).all(|word| !end(word)), "{:?}", whole);
    }

    #[test]
    fn any_bytes_decode_the_same_in_any_chunking(bytes: Vec<u8>, size in 1usize..9) {
        prop_assert_eq!(read(None, &bytes, size), read(None, &bytes, bytes.len()));
    }
}
