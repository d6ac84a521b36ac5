//! Each engine against the vectors of its formats and against its own rows, in chunks of every size.

use proptest::prelude::*;
use serde_json::Value;

use crate::canonical::{Collector, Kind};
use crate::dialect::Engine;
use crate::event::{Event, Sink};
use crate::utf8;
use crate::wire::{Anthropic, Chat, Gemini, Responses};

mod anthropic;
mod chat;
mod gemini;
mod responses;

const VECTORS: [&str; 5] = [
    include_str!("../../tests/vectors/openai_chat.json"),
    include_str!("../../tests/vectors/openai_chat_legacy.json"),
    include_str!("../../tests/vectors/openai_responses.json"),
    include_str!("../../tests/vectors/anthropic.json"),
    include_str!("../../tests/vectors/gemini.json"),
];

fn engine(format: &str) -> Box<dyn Engine> {
    match format {
        "openai_chat" | "openai_chat_legacy" => Box::new(Chat::default()),
        "openai_responses" => Box::new(Responses::default()),
        "anthropic" => Box::new(Anthropic::default()),
        "gemini" => Box::new(Gemini::default()),
        other => panic!("no engine for {other}"),
    }
}

/// Feeds the bytes in these pieces.
fn run<'a>(format: &str, pieces: impl IntoIterator<Item = &'a [u8]>, sink: &mut dyn Sink) {
    let (mut engine, mut decoder, mut at) = (engine(format), utf8::Decoder::default(), 0);
    for piece in pieces {
        decoder.push(piece, |piece| {
            engine.push(piece.as_str(), at, sink);
            at += piece.as_str().len() as u64;
        });
    }
    decoder.finish(|piece| {
        engine.push(piece.as_str(), at, sink);
        at += piece.as_str().len() as u64;
    });
    engine.finish(at, sink);
}

fn collect<'a>(format: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> Collector {
    let mut collector = Collector::default();
    run(format, pieces, &mut collector);
    collector
}

/// Splits `bytes` into pieces of these lengths, repeatedly.
fn cut<'a>(bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut pieces) = (bytes, Vec::new());
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*length).clamp(1, rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// The chunkings that every input is tried with: even ones, and some that look random.
fn cuts() -> Vec<Vec<usize>> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |max: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        1 + (seed % max) as usize
    };
    let fixed = [vec![usize::MAX], vec![1], vec![2], vec![7]];
    fixed
        .into_iter()
        .chain([3, 10, 40, 200].map(|max| (0..97).map(|_| random(max)).collect()))
        .collect()
}

/// Returns comparable events: errors have no position, so they come last and in order.
fn comparable(collector: Collector) -> Vec<Value> {
    let events = collector.into_events(false);
    let (mut errors, mut rest): (Vec<_>, Vec<_>) = events
        .into_iter()
        .map(|event| serde_json::to_value(event).expect("an event is JSON"))
        .partition(|event| event["type"] == "error");
    errors.sort_by_key(Value::to_string);
    rest.append(&mut errors);
    rest
}

/// Arguments that the provider did not write as JSON are compared by value.
fn with_args_read(mut events: Vec<Value>) -> Vec<Value> {
    for event in events.iter_mut().filter(|event| event["type"] == "tool_args") {
        let read = event["text"].as_str().and_then(|text| serde_json::from_str(text).ok());
        if let Some(read) = read {
            event["text"] = read;
        }
    }
    events
}

#[test]
fn vectors() {
    let mut count = 0;
    for vector in VECTORS.iter().flat_map(|file| read_vectors(file)) {
        let (format, id) = (text(&vector["format"]), text(&vector["id"]));
        let input = text(&vector["input"]);
        let mut want = vector["expected"].as_array().expect("a list").clone();
        want.sort_by_key(|event| event["type"] == "error");
        let mut pieces: Vec<_> =
            cuts().iter().map(|lengths| cut(input.as_bytes(), lengths)).collect();
        if let Some(chunks) = vector["chunks"].as_array() {
            pieces.push(chunks.iter().map(|chunk| text(chunk).as_bytes()).collect());
        }
        for pieces in pieces {
            let mut got = comparable(collect(format, pieces.iter().copied()));
            let mut want = want.clone();
            if vector["args_mode"] == "json" {
                (got, want) = (with_args_read(got), with_args_read(want));
            }
            assert_eq!(got, want, "{id} in {} pieces", pieces.len());
        }
        count += 1;
    }
    assert!(count > 30, "{count}");
}

fn read_vectors(file: &str) -> Vec<Value> {
    serde_json::from_str(file).expect("a list of vectors")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

/// Plays an input and compares the events, written as lines; errors come last.
#[track_caller]
fn check(format: &str, input: &str, want: &[&str]) {
    let mut whole = None;
    for lengths in cuts() {
        let events = collect(format, cut(input.as_bytes(), &lengths)).into_events(true);
        let lines: Vec<String> =
            events.iter().filter_map(|event| line(&event.kind, false)).collect();
        let errors = events.iter().filter_map(|event| line(&event.kind, true));
        let lines: Vec<String> = lines.into_iter().chain(errors).collect();
        assert_eq!(lines, want, "{input}");
        // Ranges, and error details, must not depend on the chunking either.
        assert_eq!(*whole.get_or_insert_with(|| events.clone()), events, "{input}");
    }
}

fn line(kind: &Kind, errors: bool) -> Option<String> {
    let line = match kind {
        Kind::Error { kind, .. } => return errors.then(|| format!("error {kind}")),
        _ if errors => return None,
        Kind::Text { text } => format!("text {text}"),
        Kind::Reasoning { text } => format!("reasoning {text}"),
        Kind::ReasoningSignature { text } => format!("signature {text}"),
        Kind::Refusal { text } => format!("refusal {text}"),
        Kind::ToolStart { index, name, id, signature } => {
            let of = |part: &Option<String>, mark| {
                part.as_ref().map_or(String::new(), |part| format!(" {mark}{part}"))
            };
            format!("start {index} {name}{}{}", of(id, "#"), of(signature, "~"))
        }
        Kind::ToolArgs { index, text } => format!("args {index} {text}"),
        Kind::ToolEnd { index, complete } => {
            format!("end {index}{}", if *complete { "" } else { " incomplete" })
        }
        Kind::Finish { reason } => format!("finish {reason}"),
        other => unreachable!("{other:?}"),
    };
    Some(line)
}

/// Returns the details of the errors of an input.
fn details(format: &str, input: &str) -> Vec<String> {
    let events = collect(format, [input.as_bytes()]).into_events(false);
    let detail = |event: crate::canonical::Canonical| match event.kind {
        Kind::Error { detail, .. } => Some(detail),
        _ => None,
    };
    events.into_iter().filter_map(detail).collect()
}

/// Returns the token counts of an input: request, cached, written, answer, reasoning; once per event.
fn usages(format: &str, input: &str) -> Vec<[u64; 5]> {
    let mut usages = Vec::new();
    run(format, [input.as_bytes()], &mut |event: Event<'_>, _: std::ops::Range<u64>| {
        if let Event::Usage(usage) = event {
            usages.push([
                usage.input_tokens,
                usage.cached_input_tokens,
                usage.cache_write_input_tokens,
                usage.output_tokens,
                usage.reasoning_output_tokens,
            ]);
        }
    });
    usages
}

/// Serializes each frame as an event.
fn events(frames: &[&str]) -> String {
    frames.iter().map(|frame| format!("data: {frame}\n\n")).collect()
}

const FORMATS: [&str; 4] = ["openai_chat", "openai_responses", "anthropic", "gemini"];

#[test]
fn unreadable_frames() {
    for format in FORMATS {
        let ending: &[&str] = match format {
            "openai_responses" | "anthropic" => &["error truncated"],
            _ => &[],
        };
        check(format, "", ending);
        check(format, "<html>502</html>", ending);
        check(format, ": keep-alive\n\n", ending);
        check(format, &events(&["{}", "[DONE]", "{\"type\":\"x.y\",\"new\":[1]}"]), ending);
        let bad = |count: usize| {
            let bad = std::iter::repeat_n("error invalid_json", count);
            bad.chain(ending.iter().copied()).collect::<Vec<_>>()
        };
        check(format, &events(&["{oops", "5"]), &bad(2));
        check(format, "{\"a\" 1}\n{}", &bad(1));
        check(format, "{} nonsense {}", &bad(1));
        // Truncated inside a frame, in each framing.
        check(format, "data: {\"choi", &["error truncated"]);
        check(format, "{\"choi", &["error truncated"]);
        check(format, "[{}", &["error truncated"]);
    }
}

#[test]
fn failures_in_every_framing() {
    for format in FORMATS {
        for input in [
            "{\"error\":{\"message\":\"no\",\"code\":500}}",
            "{\"error\":\"no\"}\n",
            "[{\"error\":{\"message\":\"no\"}}]",
            "data: {\"error\":{\"message\":\"no\"}}\n\n",
            "data: {\"error\":\"no\"}\n\n",
            "event: error\ndata: {\"message\":\"no\"}\n\n",
            "event: error\r\ndata: no such model\r\n\r\n",
            "error: {\"code\":500,\"message\":\"no\"}\n\n",
        ] {
            check(format, input, &["error upstream"]);
        }
        let detail = |input| details(format, input);
        assert_eq!(detail("{\"error\":{\"message\":\"no\"}}"), ["{\"message\":\"no\"}"]);
        assert_eq!(detail("data: {\"error\":\"no\"}\n\n"), ["no"]);
        assert_eq!(detail("event: error\ndata: down\n\n"), ["down"]);
    }
}

/// Fragments that are almost frames: random bytes never get past the first one.
const WORDS: &[&str] = &[
    "data: ",
    "event: error\n",
    "\n\n",
    "\r\n",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\ud83d",
    "null",
    "1",
    "[DONE]",
    "\u{feff}",
    "é",
    "{}",
    "\"index\":0,",
    "\"type\":",
    "\"content_block\"",
];

fn vector_inputs() -> Vec<(String, String)> {
    let vectors = VECTORS.iter().flat_map(|file| read_vectors(file));
    vectors
        .map(|vector| (text(&vector["format"]).to_owned(), text(&vector["input"]).to_owned()))
        .collect()
}

proptest! {
    #[test]
    fn damaged_streams_parse_the_same_in_any_chunking(
        which in any::<prop::sample::Index>(),
        spoils in prop::collection::vec(
            (any::<prop::sample::Index>(), 0usize..60, prop::sample::select(WORDS)), 0..6),
        lengths in prop::collection::vec(1usize..60, 1..20),
        other in prop::sample::select(&FORMATS[..]),
    ) {
        let inputs = vector_inputs();
        let (format, input) = &inputs[which.index(inputs.len())];
        let mut bytes = input.clone().into_bytes();
        for (at, length, word) in &spoils {
            let at = at.index(bytes.len() + 1);
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, word.bytes());
        }
        // Also parsed by an engine for another format.
        for format in [format.as_str(), other] {
            let whole = collect(format, [bytes.as_slice()]).into_events(true);
            let pieces = collect(format, cut(&bytes, &lengths)).into_events(true);
            prop_assert_eq!(&whole, &pieces, "{}", String::from_utf8_lossy(&bytes));
            let mut ends = 0;
            for event in whole {
                match event.kind {
                    Kind::ToolStart { .. } => ends += 1,
                    Kind::ToolEnd { .. } => ends -= 1,
                    _ => {}
                }
            }
            prop_assert_eq!(ends, 0, "every call that starts ends");
        }
    }

    #[test]
    fn lists_of_words_parse_the_same_in_any_chunking(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..60),
        lengths in prop::collection::vec(1usize..20, 1..20),
        format in prop::sample::select(&FORMATS[..]),
    ) {
        let input = words.concat();
        let whole = collect(format, [input.as_bytes()]).into_events(true);
        let pieces = collect(format, cut(input.as_bytes(), &lengths)).into_events(true);
        prop_assert_eq!(whole, pieces, "{}", input);
    }
}
