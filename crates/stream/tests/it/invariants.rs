//! Properties of every stream in every dialect, whatever its content. Shared with the fuzz targets.

use std::collections::HashMap;
use std::ops::Range;

use stream::canonical::{Canonical, Collector, Kind};
use stream::dialect::{Dialect, Format, Options, Parser, Tools};
use stream::event::{Event, Sink};
use stream::json::{Progress, Reader};

/// The families of dialects, by their call format.
pub(crate) const FAMILIES: &[(&str, &[&str])] = &[
    (
        "json",
        &[
            "hermes",
            "granite",
            "granite4",
            "granite_20b_fc",
            "mistral",
            "mistral_v11",
            "llama3_json",
            "xlam",
            "jamba",
            "hunyuan_a13b",
            "command_a",
            "phi4_mini",
            "apertus",
            "internlm2",
            "longcat",
            "ernie45",
            "inkling",
            "gigachat3",
            "json_fence",
            "toolcall_v2",
            "deepseek_v3",
            "deepseek_v31",
            "kimi_k2",
        ],
    ),
    (
        "tagged",
        &[
            "qwen3_coder",
            "seed_oss",
            "claude_xml",
            "minimax_m2",
            "minimax_m3",
            "dots",
            "deepseek_v32",
            "deepseek_v4",
            "step3",
            "minicpm5",
            "glm45",
            "glm47",
            "hy_v3",
            "kimi_k3",
        ],
    ),
    ("literals", &["pythonic", "olmo3", "lfm2", "gemma3", "gemma4", "functiongemma"]),
    ("channels", &["harmony", "muse", "react", "plan"]),
    ("wire", &["openai_chat", "openai_chat_legacy", "openai_responses", "anthropic", "gemini"]),
    ("detected", &["auto", "legacy", "legacy_json"]),
];

/// Parses an input whole and chunked, and checks the properties.
pub(crate) fn check(name: &str, options: &Options, tools: &Tools, input: &[u8], seed: u64) {
    let Some(format) = Format::named(name) else { return };
    let dialect = Dialect::new(format, options, tools);
    let (whole, spans) = read(&dialect, input, || usize::MAX);
    let (single, _) = read(&dialect, input, || 1);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let (random, _) = read(&dialect, input, || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % 17) as usize
    });
    let shown = String::from_utf8_lossy(input);
    assert_eq!(single, whole, "{name} by one byte: {shown:?}");
    assert_eq!(random, whole, "{name} by random cuts {seed}: {shown:?}");
    nothing_is_lost(name, &whole, &spans, &shown);
    complete_calls_have_objects(name, &whole, &shown);
}

/// Where arguments are rewritten, those of a complete call are a JSON object. Elsewhere they are what the
/// model wrote, which need not be JSON: vectors have code, words and raw line feeds there.
fn complete_calls_have_objects(name: &str, events: &[Canonical], input: &str) {
    let written = |(family, names): &&(&str, &[&str])| {
        ["tagged", "literals"].contains(family) && names.contains(&name)
    };
    if !FAMILIES.iter().any(|family| written(&family)) {
        return;
    }
    let mut arguments = "";
    for event in events {
        match &event.kind {
            Kind::ToolStart { .. } => arguments = "",
            Kind::ToolArgs { text, .. } => arguments = text,
            Kind::ToolEnd { complete: true, .. } => {
                let mut reader = Reader::default();
                let all = |read: Progress| arguments[read.consumed..].trim().is_empty();
                let read = reader.push(arguments, |_| ()).is_ok_and(all);
                let object = arguments.starts_with('{') && read && reader.finish(|_| ()).is_ok();
                // What was written as JSON is passed through.
                let passed = arguments.len() > 1 && input.contains(arguments);
                assert!(object || passed, "{name}: {arguments:?} of {input:?}");
            }
            _ => {}
        }
    }
}

fn read(
    dialect: &Dialect,
    input: &[u8],
    mut cut: impl FnMut() -> usize,
) -> (Vec<Canonical>, Vec<Range<u64>>) {
    let (mut parser, mut rest) = (Parser::new(dialect), input);
    // Invalid UTF-8 counts as its replacement.
    let len = String::from_utf8_lossy(input).len() as u64;
    let mut sink = Watch { len, ..Watch::default() };
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(cut().clamp(1, rest.len()));
        parser.push(piece, &mut sink);
        rest = more;
    }
    parser.finish(&mut sink);
    sink.is_over();
    let spans = sink.spans.into_values().collect();
    let mut events = sink.collector.into_events(true);
    // The range of a text is that of its pieces; other events have one range.
    for event in &mut events {
        if !matches!(event.kind, Kind::Error { .. }) {
            event.range = None;
        }
    }
    (events, spans)
}

/// Checks the order of events.
#[derive(Default)]
struct Watch {
    len: u64,
    collector: Collector,
    /// The calls, and whether they have ended.
    calls: HashMap<u32, bool>,
    /// The input range of each call.
    spans: HashMap<u32, Range<u64>>,
    in_plan: bool,
}

impl Sink for Watch {
    fn event(&mut self, event: Event<'_>, range: Range<u64>) {
        assert!(range.start <= range.end && range.end <= self.len, "{event:?} at {range:?}");
        match event {
            Event::Text(text) | Event::Reasoning(text) | Event::Commentary(text) => {
                assert!(!text.is_empty(), "{range:?}");
            }
            Event::ToolStart { index, name, .. } => {
                assert_eq!(index as usize, self.calls.len(), "calls are counted");
                assert!(!name.is_empty(), "a call without a name");
                self.spans.insert(index, range.clone());
                self.calls.insert(index, false);
            }
            Event::ToolId { index, .. } | Event::ToolArgs { index, .. } => {
                assert_eq!(self.calls.get(&index), Some(&false), "{event:?} outside of its call");
            }
            Event::ToolEnd { index, .. } => {
                assert_eq!(self.calls.insert(index, true), Some(false), "{event:?}");
                if let Some(span) = self.spans.get_mut(&index) {
                    span.end = span.end.max(range.end);
                }
            }
            Event::PlanStart => assert!(!std::mem::replace(&mut self.in_plan, true)),
            Event::PlanEnd { .. } => assert!(std::mem::replace(&mut self.in_plan, false)),
            Event::Plan(_) => assert!(self.in_plan),
            _ => {}
        }
        self.collector.event(event, range);
    }
}

impl Watch {
    fn is_over(&self) {
        assert!(self.calls.values().all(|over| *over), "a call is open at the end");
        assert!(!self.in_plan, "a plan is open at the end");
    }
}

/// Where all markup is known, an input without calls is unchanged; one with calls loses only them and the
/// markup around them.
fn nothing_is_lost(name: &str, events: &[Canonical], spans: &[Range<u64>], input: &str) {
    let plain =
        ["hermes", "granite_20b_fc", "qwen3_coder", "claude_xml", "minimax_m2", "toolcall_v2"];
    if !plain.contains(&name) {
        return;
    }
    let (mut text, mut wrong, mut truncated) = (String::new(), false, false);
    for event in events {
        match &event.kind {
            Kind::Text { text: piece } | Kind::Reasoning { text: piece } => text.push_str(piece),
            Kind::Error { kind, .. } => {
                (wrong, truncated) = (true, truncated || *kind == "truncated");
            }
            _ => {}
        }
    }
    if spans.is_empty() {
        let (text, input) = (strip(&text), strip(input));
        // The header of a truncated call is not shown.
        let torn = truncated && input.starts_with(&text);
        return assert!(text == input || torn, "{name}: {text:?} of {input:?}");
    }
    let mut outside = String::new();
    for (at, c) in input.char_indices() {
        if !spans.iter().any(|span| span.contains(&(at as u64))) {
            outside.push(c);
        }
    }
    match name {
        // Only an envelope is removed with its call.
        "toolcall_v2" => {
            let (text, outside) = (bare(&text), bare(&outside));
            // A truncated member after a call is not shown, but reported as missing.
            let torn = truncated && outside.starts_with(&text);
            assert!(text == outside || torn, "{name}: {text:?} of {outside:?}: {input}");
        }
        // An error in a block is reported, and may hide some of it.
        "hermes" if !wrong => {
            let (text, outside) = (bare(&text), bare(&outside));
            // A token limit leaves half a close tag.
            let torn =
                outside.strip_prefix(&text).is_some_and(|end| "</tool_call>".starts_with(end));
            assert!(torn, "{name}: {text:?} of {outside:?}: {input}");
        }
        _ => {}
    }
}

/// Removes from a text what may be removed with a call: its keys and tags, brackets, commas, quotes and
/// blanks.
fn bare(text: &str) -> String {
    let mut text = strip(text);
    text.retain(|c| !c.is_whitespace());
    // Also those that become adjacent when others are removed.
    const MARKS: [&str; 4] = ["<tool_call>", "</tool_call>", "ToolCall_V2", "tool_calls"];
    while let Some(mark) = MARKS.iter().find(|mark| text.contains(**mark)) {
        text = text.replace(mark, "");
    }
    text.retain(|c| !"{}[],:;\"".contains(c));
    text
}

/// Removes the marks of reasoning from a text, also those that become adjacent when others are removed.
fn strip(text: &str) -> String {
    const MARKS: &[&str] = &[
        "<think>",
        "</think>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|im_end|>",
        "Here is my thought process:",
        "Here is my response:",
        "Here's my thought process:",
        "Here's my response:",
    ];
    // Blanks in a tag do not keep it from being recognized.
    const TIGHT: &[&str] = &["<think", "</think", "<", "</"];
    let mut text = text.to_owned();
    for tag in TIGHT {
        let mut at = 0;
        while let Some(found) = text[at..].find(tag) {
            at += found + tag.len();
            let after = text[at..].trim_start();
            if after.starts_with(['>', '/']) || after.starts_with("think") {
                let blanks = text.len() - at - after.len();
                text.replace_range(at..at + blanks, "");
            }
        }
    }
    while let Some(mark) = MARKS.iter().find(|mark| text.contains(**mark)) {
        text = text.replace(mark, "");
    }
    text
}
