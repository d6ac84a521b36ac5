//! Runs engines over vectors and test rows, chunked in every way; for tests only.

use serde_json::{Value, json};

use crate::canonical::Collector;
use crate::dialect::Engine;
use crate::utf8::{Decoder, Piece};

/// Runs an engine over bytes in pieces of the sizes that `cut` returns, and returns its events with their
/// ranges.
pub(crate) fn run(
    engine: &mut dyn Engine,
    mut bytes: &[u8],
    mut cut: impl FnMut() -> usize,
) -> Vec<Value> {
    let (mut decoder, mut collector, mut at) = (Decoder::default(), Collector::default(), 0);
    let mut push = |piece: Piece<'_>| {
        engine.push(piece.as_str(), at, &mut collector);
        at += piece.as_str().len() as u64;
    };
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(cut().clamp(1, bytes.len()));
        decoder.push(piece, &mut push);
        bytes = rest;
    }
    decoder.finish(&mut push);
    engine.finish(at, &mut collector);
    let events = collector.into_events(true);
    events.iter().map(|event| serde_json::to_value(event).unwrap()).collect()
}

/// Runs an engine whole and chunked in many ways, which must make no difference, and returns its events
/// without ranges.
#[track_caller]
pub(crate) fn run_cut(mut engine: impl FnMut() -> Box<dyn Engine>, input: &[u8]) -> Vec<Value> {
    let whole = run(&mut *engine(), input, || usize::MAX);
    for size in [1, 2, 3, 7] {
        let cut = run(&mut *engine(), input, || size);
        assert_eq!(cut, whole, "{:?} by {size}", String::from_utf8_lossy(input));
    }
    for seed in 1..20 {
        let mut random = Random(seed);
        let cut = run(&mut *engine(), input, || random.below(12));
        assert_eq!(cut, whole, "{:?}, seed {seed}", String::from_utf8_lossy(input));
    }
    let mut events = whole;
    for event in &mut events {
        event.as_object_mut().unwrap().remove("range");
    }
    events
}

/// Compares events; the position of errors does not matter.
#[track_caller]
pub(crate) fn compare(got: &[Value], want: &[Value], what: &str) {
    let split = |events: &[Value]| {
        let (mut errors, others): (Vec<_>, Vec<_>) =
            events.iter().cloned().partition(|event| event["type"] == "error");
        errors.sort_by_key(|error| error["kind"].as_str().unwrap().to_owned());
        (others, errors)
    };
    assert_eq!(split(got), split(want), "{what}");
}

/// Runs the vectors of a file.
pub(crate) fn vectors(file: &str, mut engine: impl FnMut(&Value) -> Box<dyn Engine>) {
    let vectors: Vec<Value> = serde_json::from_str(file).unwrap();
    assert!(!vectors.is_empty());
    for vector in &vectors {
        let input = vector["input"].as_str().unwrap();
        let got = run_cut(|| engine(&vector["options"]), input.as_bytes());
        compare(&got, vector["expected"].as_array().unwrap(), vector["id"].as_str().unwrap());
    }
}

/// Formats events briefly: `text "a"`, `call 0 name`, `args 0 "…"`, `end 0 true`, `! kind`.
pub(crate) fn short(events: &[Value]) -> Vec<String> {
    let line = |event: &Value| match event["type"].as_str().unwrap() {
        "tool_start" => format!("call {} {}", event["index"], event["name"].as_str().unwrap()),
        "tool_args" => format!("args {} {}", event["index"], event["text"]),
        "tool_end" => format!("end {} {}", event["index"], event["complete"]),
        "error" => format!("! {}", event["kind"].as_str().unwrap()),
        "plan_end" => format!("plan_end {}", event["implicit"]),
        kind if event.get("text").is_some() => format!("{kind} {}", event["text"]),
        kind => kind.to_owned(),
    };
    let (errors, others): (Vec<_>, Vec<_>) =
        events.iter().partition(|event| event["type"] == "error");
    let mut errors: Vec<_> = errors.into_iter().map(line).collect();
    errors.sort();
    others.into_iter().map(line).chain(errors).collect()
}

/// Checks one row: an input and its events in brief, errors last and sorted.
#[track_caller]
pub(crate) fn row(engine: impl FnMut() -> Box<dyn Engine>, input: &str, want: &[&str]) {
    assert_eq!(short(&run_cut(engine, input.as_bytes())), want, "{input:?}");
}

/// Returns an event as `short` formats it, for a generated text.
pub(crate) fn text(kind: &str, text: &str) -> String {
    format!("{kind} {}", json!(text))
}

/// A repeatable random generator (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit).unwrap()
    }
}
