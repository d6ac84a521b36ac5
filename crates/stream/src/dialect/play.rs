//! Simulates the machine around a body, so that tests of bodies are tables of inputs and events.
//!
//! Markers are found in the whole input; only the body's input is chunked.

use std::ops::Range;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::canonical::{Canonical, Collector, Kind};
use crate::dialect::Tools;
use crate::dialect::body::{Body, HeldText, Out, Step};
use crate::event::{ErrorKind, Event, Sink};
use crate::json::Reader;

/// A marker, what ends its block, and the body in between.
pub(crate) struct Block {
    pub(crate) open: &'static str,
    pub(crate) close: &'static str,
    pub(crate) silent: bool,
    pub(crate) body: fn() -> Box<dyn Body>,
}

/// Plays an input whose pieces end at `cuts`.
pub(crate) fn play(blocks: &[Block], tools: &Tools, input: &str, cuts: &[usize]) -> Vec<Canonical> {
    let mut sink = Checked { length: input.len() as u64, ..Checked::default() };
    let (mut at, mut next_index) = (0, 0);
    while let Some((found, block)) = blocks
        .iter()
        .filter_map(|block| Some((at + input[at..].find(block.open)?, block)))
        .min_by_key(|(found, _)| *found)
    {
        text(&mut sink, input, at..found);
        at = found + block.open.len();
        let mut held = HeldText::default();
        assert!(held.push(block.open, found as u64), "a marker is short");
        let mut body = (block.body)();
        loop {
            let mut out = Out {
                sink: &mut sink,
                tools,
                held: &mut held,
                next_index: &mut next_index,
                reasoning: false,
            };
            if at == input.len() {
                body.finish(at as u64, &mut out);
                sink.event(Event::Text(&held.text), at as u64..at as u64);
                if !held.text.is_empty() && !block.silent {
                    sink.error(ErrorKind::Truncated, at);
                }
                return sink.collector.into_events(true);
            }
            let next = cuts.partition_point(|cut| *cut <= at);
            let end = cuts.get(next).copied().unwrap_or(input.len());
            if body.pass(&input[at..end], at as u64, out.sink) {
                at = end;
                continue;
            }
            match body.push(&input[at..end], at as u64, &mut out) {
                Step::More => at = end,
                Step::Done(length)
                | Step::Broken(length)
                | Step::Closed(length)
                | Step::Text(length) => {
                    at += length;
                    let rest = input[at..].trim_start();
                    if let Some(rest) = rest.strip_prefix(block.close)
                        && !block.close.is_empty()
                    {
                        at = input.len() - rest.len();
                    }
                    break;
                }
                Step::Fail(length) => {
                    at += length;
                    sink.event(Event::Text(&held.text), held.start..at as u64);
                    if held.limit {
                        sink.error(ErrorKind::Limit, at);
                    } else if !block.silent {
                        sink.error(ErrorKind::MalformedCall, at);
                    }
                    break;
                }
            }
        }
    }
    text(&mut sink, input, at..input.len());
    sink.collector.into_events(true)
}

fn text(sink: &mut Checked, input: &str, range: Range<usize>) {
    sink.event(Event::Text(&input[range.clone()]), range.start as u64..range.end as u64);
}

/// Checks that ranges are inside the input and ascending.
#[derive(Default)]
struct Checked {
    collector: Collector,
    length: u64,
    last: u64,
}

impl Checked {
    fn error(&mut self, kind: ErrorKind, at: usize) {
        self.event(Event::Error { kind, detail: "" }, at as u64..at as u64);
    }
}

impl Sink for Checked {
    fn event(&mut self, event: Event<'_>, range: Range<u64>) {
        assert!(range.start <= range.end && range.end <= self.length, "{event:?} at {range:?}");
        if matches!(event, Event::ToolStart { .. } | Event::ToolArgs { .. } | Event::ToolEnd { .. })
        {
            assert!(range.start >= self.last, "{event:?} at {range:?} after {}", self.last);
            self.last = range.end;
        }
        self.collector.event(event, range);
    }
}

/// Plays an input whole, in pieces of several sizes and cut at `cuts`; all must give the same result.
pub(crate) fn play_all(
    blocks: &[Block],
    tools: &Tools,
    input: &str,
    cuts: &[usize],
) -> Vec<Canonical> {
    let by = |size: usize| -> Vec<usize> {
        let floor = |at: usize| input.ceil_char_boundary(at * size);
        (1..=input.len() / size).map(floor).collect()
    };
    let whole = play(blocks, tools, input, &[]);
    let mut cuts: Vec<_> = cuts.iter().map(|cut| input.floor_char_boundary(*cut)).collect();
    cuts.sort_unstable();
    for cuts in [by(1), by(2), by(7), cuts] {
        let cut = play(blocks, tools, input, &cuts);
        assert_eq!(plain(&cut), plain(&whole), "{input:?} cut at {cuts:?}");
    }
    for (index, args, complete) in calls(&whole) {
        let mut reader = Reader::default();
        let read = reader.push(&args, |_| {});
        let is_whole = read.is_ok_and(|read| read.done && read.consumed == args.len());
        assert!(is_whole || (read.is_ok() && !complete), "{index}: {args} of {input:?}: {read:?}");
    }
    whole
}

/// The position of an error may depend on what is known at the time.
fn plain(events: &[Canonical]) -> Vec<Canonical> {
    let mut events = events.to_vec();
    for event in &mut events {
        if matches!(event.kind, Kind::Error { .. }) {
            event.range = None;
        }
    }
    events
}

/// Returns the calls: their names, their arguments, whether they are complete.
pub(crate) fn calls(events: &[Canonical]) -> Vec<(String, String, bool)> {
    let mut calls: Vec<(String, String, bool)> = Vec::new();
    for event in events {
        match (&event.kind, calls.last_mut()) {
            (Kind::ToolStart { name, .. }, _) => {
                calls.push((name.clone(), String::new(), false));
            }
            (Kind::ToolArgs { text, .. }, Some(call)) => call.1.push_str(text),
            (Kind::ToolEnd { complete, .. }, Some(call)) => call.2 = *complete,
            _ => {}
        }
    }
    calls
}

/// Formats events on a line: text in `⟨⟩`, calls with `;` or `…` at their end, errors last.
pub(crate) fn line(events: &[Canonical]) -> String {
    let (mut line, mut errors) = (String::new(), Vec::new());
    for event in events {
        match &event.kind {
            Kind::Text { text } => line.push_str(&format!("⟨{text}⟩")),
            Kind::ToolStart { name, .. } => line.push_str(name),
            Kind::ToolArgs { text, .. } => line.push_str(text),
            Kind::ToolEnd { complete, .. } => line.push(if *complete { ';' } else { '…' }),
            Kind::Error { kind, .. } => errors.push(format!(" !{kind}")),
            other => line.push_str(&format!("{other:?}")),
        }
    }
    errors.sort_unstable();
    line + &errors.concat()
}

/// Checks every vector of a file that has no reasoning, which a body does not handle.
pub(crate) fn check_vectors(blocks: &[Block], vectors: &str) {
    let vectors: Vec<Value> = serde_json::from_str(vectors).unwrap();
    for vector in vectors {
        let input = vector["input"].as_str().unwrap();
        if input.contains("<|channel>") {
            continue;
        }
        let tools = Tools::from_json(&vector["tools"]).unwrap();
        let got = play_all(blocks, &tools, input, &[]);
        let got = serde_json::to_value(got).unwrap();
        let want = Value::Array(vector["expected"].as_array().unwrap().clone());
        let exact = vector["args_mode"] == "exact";
        assert_eq!(comparable(got, exact), comparable(want, exact), "{}", vector["id"]);
    }
}

fn comparable(events: Value, exact: bool) -> Vec<Value> {
    let mut events: Vec<Value> = events.as_array().unwrap().clone();
    for event in &mut events {
        event.as_object_mut().unwrap().remove("range");
        if event["type"] == "tool_args" && !exact {
            event["text"] = serde_json::from_str(event["text"].as_str().unwrap()).unwrap();
        }
    }
    events.sort_by_key(|event| event["type"] == "error");
    events
}

/// The tools of the vectors, and one whose parameters have an order.
pub(crate) fn tools() -> Tools {
    let tools = json!([
        {"name": "search", "parameters": {"type": "object", "properties": {
            "q": {"type": "string"}, "limit": {"type": "integer"}, "exact": {"type": "boolean"}}}},
        {"name": "ping", "parameters": {"type": "object", "properties": {}}},
        {"name": "copy", "parameters": {"type": "object", "required": ["to", "from"],
            "properties": {"from": {}, "to": {}, "force": {}}}},
        {"name": "one", "parameters": {"type": "object", "properties": {"only": {}}}},
    ]);
    Tools::from_json(&tools).unwrap()
}

/// Generates arguments: any JSON object.
pub(crate) fn arguments(key: &'static str) -> impl Strategy<Value = Value> {
    let text = prop_oneof![any::<String>(), "[a-z ]{0,9}", "[\"'\\\\\n\r\t,(){}\\[\\]:=#<>|]{0,9}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(|number: f64| Value::from(number)),
        text.clone().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(key, inner, 0..4).prop_map(Value::from_iter),
        ]
    });
    prop::collection::hash_map("[a-zA-Z_][a-zA-Z0-9_]{0,8}", value, 0..4).prop_map(Value::from_iter)
}

pub(crate) fn has_errors(events: &[Canonical]) -> bool {
    events.iter().any(|event| matches!(event.kind, Kind::Error { .. }))
}

/// Chooses among the ways to write something, deterministically by seed.
pub(crate) struct Style(pub(crate) u64);

impl Style {
    pub(crate) fn choose(&mut self, ways: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % ways
    }

    pub(crate) fn pick<'a, T>(&mut self, ways: &'a [T]) -> &'a T {
        &ways[self.choose(ways.len())]
    }
}
