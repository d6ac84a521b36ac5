//! OpenAI Harmony: messages with a role, a channel and optionally a recipient.
//!
//! ```text
//! <|start|>ROLE[ to=R]<|channel|>CHANNEL[ to=R][ <|constrain|>TYPE]<|message|>…<|end|>
//! ```
//!
//! A stream begins after the prompt's `<|start|>assistant`. A message to a recipient is a call, with its exact
//! text as arguments; analysis is reasoning; the final channel is the answer, and so is a message without a
//! channel; any other channel is commentary, and never part of the answer. Nothing here needs a vocabulary: text
//! is searched for markers, and [`Tokens`] knows the few ids that are markers and asks for the bytes of all
//! others. Only the latter can tell a marker from its quotation, but in text, too, a marker inside a JSON string
//! of arguments counts as quoted.
//!
//! The end of a stream also ends a call if its arguments are one complete JSON value, because servers omit the
//! stop token. Any other message without an end is truncated.

use std::ops::Range;
use std::sync::Arc;

use crate::dialect::Engine;
use crate::dialect::markers::{Lexer, Piece, Table};
use crate::dialect::messages::{
    Channel, Close, ContentType, Flavor, Header, Machine, Marker, Route, Source,
};
use crate::event::{ErrorKind, Event, Sink};
use crate::shape::{Shape, Verdict};
use crate::utf8::{self, Decoder};

#[derive(Clone, Debug)]
pub(crate) struct Harmony {
    lexer: Lexer<Marker>,
    machine: Machine<Calls>,
}

impl Harmony {
    /// Parses what follows the prompt's `<|start|>assistant`.
    pub(crate) fn new() -> Self {
        Self { lexer: Lexer::new(MARKERS), machine: Machine::new(Calls::default()) }
    }

    /// Parses what follows a prompt that has already opened the reasoning.
    pub(crate) fn in_reasoning() -> Self {
        let machine = Machine::inside(Calls::default(), Route::Reasoning);
        Self { lexer: Lexer::new(MARKERS), machine }
    }
}

impl Engine for Harmony {
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        let machine = &mut self.machine;
        // Most pushes contain no marker.
        if self.lexer.is_text(text) {
            return machine.text(text, at..at + text.len() as u64, sink);
        }
        self.lexer.push(text, at, |piece, range| match piece {
            Piece::Text(text) => machine.text(text, range, sink),
            Piece::Marker(marker, word) => {
                machine.marker(marker, word, Source::Text, range, sink);
            }
        });
    }

    fn finish(&mut self, at: u64, sink: &mut dyn Sink) {
        let rest = self.lexer.finish();
        self.machine.finish(rest, at, sink);
    }
}

/// Returns the bytes of tokens of `o200k_harmony` that are not markers.
pub trait Vocabulary {
    /// Returns the bytes of a token, which need not be whole characters.
    fn bytes(&self, id: u32) -> Option<&[u8]>;
}

/// An empty vocabulary, for callers that have the bytes of tokens themselves.
impl Vocabulary for () {
    fn bytes(&self, _: u32) -> Option<&[u8]> {
        None
    }
}

/// Parses Harmony as token ids of `o200k_harmony`.
///
/// Here a marker is a token; the same characters spelled with other tokens are text. The ranges of events
/// count the bytes of the tokens, including markers.
#[derive(Clone, Debug)]
pub struct Tokens<V> {
    vocabulary: V,
    decoder: Decoder,
    machine: Machine<Calls>,
    at: u64,
}

impl<V: Vocabulary> Tokens<V> {
    /// Parses what follows the prompt's `<|start|>assistant`.
    pub fn new(vocabulary: V) -> Self {
        let machine = Machine::new(Calls::default());
        Self { vocabulary, decoder: Decoder::default(), machine, at: 0 }
    }

    /// Sets the tools that take free text, which may begin like JSON without being JSON.
    #[must_use]
    pub fn with_free_tools(mut self, names: &[String]) -> Self {
        self.machine = Machine::new(Calls { free: names.into(), ..Calls::default() });
        self
    }

    /// Parses the next token, given by its id.
    pub fn push(&mut self, id: u32, sink: &mut dyn Sink) {
        let special = SPECIAL.iter().find(|(known, _)| *known == id);
        // Both tables list all markers; a test ensures that.
        let word =
            special.and_then(|(_, marker)| MARKERS.iter().find(|(_, known)| known == marker));
        if let Some(&(word, marker)) = word {
            self.end_text(sink);
            let range = self.at..self.at + word.len() as u64;
            self.at = range.end;
            return self.machine.marker(marker, word, Source::Token, range, sink);
        }
        let Some(bytes) = self.vocabulary.bytes(id) else {
            let detail = "a token that is not in the vocabulary";
            let event = Event::Error { kind: ErrorKind::UnexpectedData, detail };
            return sink.event(event, self.at..self.at);
        };
        let (machine, at) = (&mut self.machine, &mut self.at);
        self.decoder.push(bytes, |piece| give(machine, piece, at, sink));
    }

    /// Parses the bytes of an ordinary token, whatever its id in the model's vocabulary.
    pub fn push_bytes(&mut self, bytes: &[u8], sink: &mut dyn Sink) {
        let (machine, at) = (&mut self.machine, &mut self.at);
        self.decoder.push(bytes, |piece| give(machine, piece, at, sink));
    }

    /// Parses a special token by its name; returns false if it is not a marker, which has no effect.
    ///
    /// Inside a string of JSON arguments a header marker counts as quoted: llama.cpp has those four as
    /// ordinary tokens, so a byte-level grammar allows a model to write them there.
    pub fn push_named(&mut self, name: &[u8], sink: &mut dyn Sink) -> bool {
        let known = MARKERS.iter().find(|(word, _)| word.as_bytes() == name);
        let Some((word, marker)) = known.copied() else { return false };
        self.end_text(sink);
        let range = self.at..self.at + word.len() as u64;
        self.at = range.end;
        let source = match marker {
            Marker::Start | Marker::Channel | Marker::Message | Marker::Constrain => Source::Text,
            _ => Source::Token,
        };
        self.machine.marker(marker, word, source, range, sink);
        true
    }

    /// Ends the stream: emits what was held back, and closes an open call.
    pub fn finish(&mut self, sink: &mut dyn Sink) {
        self.end_text(sink);
        self.machine.finish("", self.at, sink);
    }

    /// A character cannot continue after a marker.
    fn end_text(&mut self, sink: &mut dyn Sink) {
        let (machine, at) = (&mut self.machine, &mut self.at);
        self.decoder.finish(|piece| give(machine, piece, at, sink));
    }
}

fn give(machine: &mut Machine<Calls>, piece: utf8::Piece<'_>, at: &mut u64, sink: &mut dyn Sink) {
    let range = *at..*at + piece.as_str().len() as u64;
    *at = range.end;
    if let utf8::Piece::Invalid(_) = piece {
        let detail = "a token that is not UTF-8";
        sink.event(Event::Error { kind: ErrorKind::InvalidUtf8, detail }, range.clone());
    }
    machine.text(piece.as_str(), range, sink);
}

/// The calls of a stream; each is a message to a tool.
#[derive(Clone, Debug, Default)]
struct Calls {
    next_index: u32,
    /// Number of the open call.
    index: u32,
    arguments: Arguments,
    /// Tools that take free text.
    free: Arc<[String]>,
}

impl Flavor for Calls {
    fn route(&self, header: &Header) -> Route {
        match (header.recipient.as_str(), header.channel) {
            ("" | "all" | "user" | "assistant", channel) => match channel {
                Channel::Analysis => Route::Reasoning,
                Channel::Final | Channel::None => Route::Text,
                Channel::Commentary | Channel::Other => Route::Commentary,
            },
            _ => Route::Call,
        }
    }

    fn open(&mut self, header: &Header, range: Range<u64>, sink: &mut dyn Sink) {
        self.index = self.next_index;
        self.next_index += 1;
        let function = header.recipient.strip_prefix("functions.");
        let name = function.unwrap_or(&header.recipient);
        let event = Event::ToolStart { index: self.index, name, id: None, signature: None };
        sink.event(event, range);
        self.arguments = Arguments::new(match (header.content_type, function) {
            (ContentType::Json, _) => Expect::Json,
            _ if self.free.iter().any(|free| free == name) => Expect::Text,
            (ContentType::None, Some(_)) => Expect::Object,
            _ => Expect::Anything,
        });
    }

    fn quotes(&self) -> bool {
        self.arguments.in_string()
    }

    fn push(&mut self, text: &str, range: Range<u64>, sink: &mut dyn Sink) {
        self.arguments.push(text);
        sink.event(Event::ToolArgs { index: self.index, text }, range);
    }

    fn close(&mut self, how: Close, range: Range<u64>, sink: &mut dyn Sink) {
        if let Close::Stream(rest) = how
            && !rest.is_empty()
            && self.arguments.verdict() != Verdict::Closed
        {
            self.push(rest, range.clone(), sink);
        }
        let verdict = self.arguments.verdict();
        let strict = self.arguments.is_strict();
        let (complete, error) = match (verdict, how) {
            (Verdict::Broken, _) if strict => (
                false,
                Some((ErrorKind::InvalidJson, "the arguments of a call are not a JSON value")),
            ),
            (Verdict::Closed, _) => (true, None),
            (Verdict::Open, Close::Marker) if strict => (false, Some(CUT_OFF)),
            (_, Close::Marker) => (true, None),
            (_, Close::Stream(_)) => (false, Some(CUT_OFF)),
        };
        self.arguments = Arguments::default();
        let end = range.end;
        sink.event(Event::ToolEnd { index: self.index, complete }, range);
        if let Some((kind, detail)) = error {
            sink.event(Event::Error { kind, detail }, end..end);
        }
    }
}

const CUT_OFF: (ErrorKind, &str) = (ErrorKind::Truncated, "a call ended inside its arguments");

/// The state of arguments: their text is passed on, not kept.
#[derive(Clone, Debug, Default)]
struct Arguments {
    expect: Expect,
    shape: Shape,
    /// Whether their end can be detected: they should be JSON, or begin like an object.
    is_json: Option<bool>,
}

/// What arguments should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expect {
    /// Anything the tool accepts; if it is JSON, its end can be detected.
    #[default]
    Anything,
    /// Text, whatever it looks like.
    Text,
    /// An object; but a function may also take text.
    Object,
    /// The header says JSON.
    Json,
}

impl Arguments {
    fn new(expect: Expect) -> Self {
        Self { expect, ..Self::default() }
    }

    fn push(&mut self, text: &str) {
        if self.is_json.is_none() {
            let Some(first) = text.trim_start_matches(JSON_BLANKS).bytes().next() else { return };
            let is_json = first == b'{' || self.expect == Expect::Json;
            self.is_json = Some(is_json && self.expect != Expect::Text);
        }
        if self.is_json == Some(true) {
            self.shape.push(text);
        }
    }

    /// Tells whether anything but JSON is an error.
    fn is_strict(&self) -> bool {
        match self.expect {
            Expect::Json => true,
            Expect::Object => self.is_json == Some(true),
            Expect::Anything | Expect::Text => false,
        }
    }

    fn in_string(&self) -> bool {
        self.shape.in_string()
    }

    fn verdict(&self) -> Verdict {
        match self.is_json {
            None => Verdict::Empty,
            Some(true) => self.shape.verdict(),
            // It cannot be determined whether it is complete.
            Some(false) => Verdict::Open,
        }
    }
}

const MARKERS: Table<Marker> = &[
    ("<|start|>", Marker::Start),
    ("<|end|>", Marker::End),
    ("<|message|>", Marker::Message),
    ("<|channel|>", Marker::Channel),
    ("<|constrain|>", Marker::Constrain),
    ("<|return|>", Marker::Return),
    ("<|call|>", Marker::Call),
    ("<|endoftext|>", Marker::EndOfText),
];

/// The ids of the markers in `o200k_harmony`.
const SPECIAL: [(u32, Marker); 8] = [
    (199_999, Marker::EndOfText),
    (200_002, Marker::Return),
    (200_003, Marker::Constrain),
    (200_005, Marker::Channel),
    (200_006, Marker::Start),
    (200_007, Marker::End),
    (200_008, Marker::Message),
    (200_012, Marker::Call),
];

/// What may precede a JSON value; other blanks do not.
const JSON_BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::{Harmony, MARKERS, SPECIAL, Tokens, Vocabulary};
    use crate::canonical::Collector;
    use crate::dialect::messages::HEADER_BYTES_MAX;
    use crate::dialect::{Engine, NAME_BYTES_MAX, trial};
    use crate::event::Event;

    fn engine() -> Box<dyn Engine> {
        Box::new(Harmony::new())
    }

    /// Parses text as token ids: markers by id, every other byte as a token.
    fn by_tokens(text: &str) -> Vec<Value> {
        let bytes = Bytes::default();
        let (mut tokens, mut collector) = (Tokens::new(&bytes), Collector::default());
        let mut rest = text;
        while !rest.is_empty() {
            let marker = MARKERS.iter().find(|(word, _)| rest.starts_with(word));
            if let Some((word, marker)) = marker {
                let (id, _) = SPECIAL.iter().find(|(_, known)| known == marker).unwrap();
                tokens.push(*id, &mut collector);
                rest = &rest[word.len()..];
            } else {
                let next = rest.chars().next().unwrap().len_utf8();
                for byte in rest[..next].bytes() {
                    tokens.push(u32::from(byte), &mut collector);
                }
                rest = &rest[next..];
            }
        }
        tokens.finish(&mut collector);
        let events = collector.into_events(false);
        events.iter().map(|event| serde_json::to_value(event).unwrap()).collect()
    }

    /// A vocabulary whose tokens are bytes, except one that spells a marker.
    struct Bytes(Vec<[u8; 1]>);

    const SPELLED: u32 = 300;

    impl Default for Bytes {
        fn default() -> Self {
            Self((0..=255).map(|byte| [byte]).collect())
        }
    }

    impl Vocabulary for &Bytes {
        fn bytes(&self, id: u32) -> Option<&[u8]> {
            match id {
                SPELLED => Some(b"<|end|>"),
                _ => self.0.get(id as usize).map(|byte| &byte[..]),
            }
        }
    }

    #[track_caller]
    fn check(input: &str, want: &[&str]) {
        trial::row(engine, input, want);
        assert_eq!(trial::short(&by_tokens(input)), want, "{input:?} as tokens");
    }

    #[test]
    fn vectors() {
        let file = include_str!("../../tests/vectors/harmony.json");
        trial::vectors(file, |_| engine());
        for vector in serde_json::from_str::<Vec<Value>>(file).unwrap() {
            let got = by_tokens(vector["input"].as_str().unwrap());
            let want = vector["expected"].as_array().unwrap();
            trial::compare(&got, want, vector["id"].as_str().unwrap());
        }
    }

    #[test]
    fn where_a_stream_begins() {
        check("", &[]);
        check("<|start|>assistant<|channel|>final<|message|>a<|return|>", &["text \"a\""]);
        check("<|channel|>final<|message|>a<|return|>", &["text \"a\""]);
        check("<|message|>a<|end|>", &["text \"a\""]);
        check("assistant<|channel|>final<|message|>a<|end|>", &["text \"a\""]);
        check(
            " to=functions.f<|channel|>commentary<|message|>{}<|call|>",
            &["call 0 f", "args 0 \"{}\"", "end 0 true"],
        );
        check(" to=functions.f<|message|>{}<|call|>", &["call 0 f", "args 0 \"{}\"", "end 0 true"]);
        // A server that omits the headers.
        check("Just an answer.", &["text \"Just an answer.\"", "! malformed_header"]);
        check("Just <|this", &["text \"Just <|this\"", "! malformed_header"]);
        check("Just this<|return|>", &["text \"Just this\"", "! malformed_header"]);
        check(" \n", &["text \" \\n\""]);
        check(" <|return|>", &[]);
        check("json", &["text \"json\"", "! malformed_header"]);
        check(" to=functions.sea", &["! truncated"]);
        check(
            "a <|start|>assistant<|channel|>final<|message|>b<|end|>",
            &["text \"b\"", "! malformed_header"],
        );
        let long = "long ".repeat(HEADER_BYTES_MAX);
        check(&long, &[&trial::text("text", &long), "! malformed_header"]);
        let then = format!("{long}<|channel|>analysis<|message|>b<|end|>");
        check(&then, &[&trial::text("text", &long), "reasoning \"b\"", "! malformed_header"]);
    }

    #[test]
    fn a_prompt_may_open_the_reasoning() {
        trial::row(
            || Box::new(Harmony::in_reasoning()),
            "a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>",
            &["reasoning \"a\"", "text \"b\""],
        );
    }

    #[test]
    fn headers() {
        let call = &["call 0 f", "args 0 \"{}\"", "end 0 true"];
        for header in [
            "<|channel|>commentary to=functions.f<|constrain|>json",
            "<|channel|>commentary to=functions.f <|constrain|>json",
            "<|channel|>commentary to=functions.f <|constrain|> json ",
            "<|channel|>commentary  to=functions.f\njson",
            "<|channel|> commentary to= functions.f",
            "<|channel|>commentary\u{202f}to=functions.f",
            "<|channel|>commentary <|constrain|>json to=functions.f",
            "<|channel|>final to=functions.f",
            "<|channel|>commentary to=f",
            "<|start|>assistant to=functions.f<|channel|>analysis code",
            "<|start|>assistant to=functions.f json",
            "<|start|>assistant:x to=functions.f<|channel|>commentary",
        ] {
            check(&format!("{header}<|message|>{{}}<|call|>"), call);
        }
        let call = &["call 0 f", "args 0 \"{}\"", "end 0 true", "! malformed_header"];
        for header in [
            "<|channel|>commentary to=functions.f to=functions.g",
            "<|start|>assistant to=functions.f<|channel|>commentary to=functions.f",
            "<|channel|>commentary to=functions.f<|channel|>commentary",
            "<|channel|>commentary functions.f",
            "<|channel|>commentaryto=functions.f",
            "<|channel|> to=functions.f",
            "<|channel|>commentary?? to=functions.f",
            "<|channel|>odd to=functions.f",
            "<|channel|>commentary 2? to=functions.f",
            "<|start|>assistantassistant to=functions.f<|channel|>commentary",
            "<|start|>assistantto=functions.f<|channel|>commentary",
            "<|start|> to=functions.f<|channel|>commentary",
            "<|start|>commentary to=functions.f",
            "<|start|>assistant<|start|>assistant<|channel|>commentary to=functions.f",
        ] {
            check(&format!("{header}<|message|>{{}}<|call|>"), call);
        }
        for (header, kind, error) in [
            ("<|channel|>analysis to=assistant", "reasoning", false),
            ("<|channel|>commentary", "reasoning", false),
            ("<|channel|>commentary to=all", "reasoning", false),
            ("<|channel|>commentary to=user", "reasoning", false),
            ("<|channel|>commentary json", "reasoning", false),
            ("<|channel|>final to=user", "text", false),
            ("<|channel|>final <|constrain|>json", "text", false),
            ("<|channel|>analysis?", "reasoning", true),
            ("<|channel|>odd", "reasoning", true),
            ("<|channel|>commentary?", "reasoning", true),
            ("<|channel|>analysis free words", "reasoning", true),
            ("<|channel|>", "text", true),
            ("<|channel|>commentary to=", "reasoning", true),
            ("<|channel|>commentary to=functions.", "reasoning", true),
            ("<|channel|>analysis<|channel|>final", "text", true),
            ("<|channel|>final<|channel|>commentary", "reasoning", true),
            ("<|start|><|channel|>analysis", "reasoning", true),
            ("<|start|>analysis", "reasoning", true),
        ] {
            let (text, error) = (format!("{kind} \"a\""), error.then_some("! malformed_header"));
            let want: Vec<_> = [Some(&*text), error].into_iter().flatten().collect();
            check(&format!("{header}<|message|>a<|end|>"), &want);
        }
    }

    /// The text of a stream is exactly its final channel.
    #[test]
    fn only_the_final_channel_is_text() {
        let say = |channel: &str, text: &str| {
            format!("<|start|>assistant<|channel|>{channel}<|message|>{text}<|end|>")
        };
        let call = "<|start|>assistant to=functions.f<|channel|>commentary<|message|>{}<|call|>";
        let called = ["call 0 f", "args 0 \"{}\"", "end 0 true"];
        let (look, done) = (say("commentary", "I look."), say("final", "Done."));
        let (looked, said) = ("reasoning \"I look.\"", "text \"Done.\"");
        check(&format!("{look}{done}"), &[looked, said]);
        check(&format!("{done}{look}"), &[said, looked]);
        check(&look, &[looked]);
        check(&format!("{look}{call}"), &[&[looked], &called[..]].concat());
        check(&format!("{look}{call}{done}"), &[&[looked], &called[..], &[said]].concat());
        let cut = "<|channel|>commentary<|message|>I look.";
        check(cut, &[looked, "! truncated"]);
        let hm = say("analysis", "Hm. ");
        check(&format!("{hm}{look}{done}"), &["reasoning \"Hm. I look.\"", said]);
    }

    /// Observers can distinguish commentary from reasoning.
    #[test]
    fn commentary_is_an_event_of_its_own() {
        let mut kinds = Vec::new();
        let mut engine = Harmony::new();
        let input =
            "<|channel|>analysis<|message|>a<|end|><|channel|>commentary<|message|>b<|end|>";
        engine.push(input, 0, &mut |event: Event<'_>, _: Range<u64>| match event {
            Event::Reasoning(text) => kinds.push(format!("reasoning {text}")),
            Event::Commentary(text) => kinds.push(format!("commentary {text}")),
            other => panic!("{other:?}"),
        });
        assert_eq!(kinds, ["reasoning a", "commentary b"]);
    }

    #[test]
    fn a_header_that_is_no_header_is_dropped() {
        let rest = "<|start|>assistant<|channel|>final<|message|>b<|return|>";
        for garbage in [
            "<|channel|>free text without end<|end|>",
            "<|channel|>??<|end|>",
            "<|channel|>commentary to=functions.f<|end|>",
            "<|channel|>commentary to=assistant<|channel|>commentary?<|end|>",
            "<|start|>assistant",
        ] {
            check(&format!("{garbage}{rest}"), &["text \"b\"", "! malformed_header"]);
        }
        check(
            "<|channel|>commentary to=functions.f<|call|>",
            &["call 0 f", "end 0 true", "! malformed_header"],
        );
    }

    #[test]
    fn a_name_is_bounded() {
        let name = "f".repeat(NAME_BYTES_MAX - "to=".len());
        let input = format!("<|channel|>commentary to={name}<|message|>{{}}<|call|>");
        check(&input, &[&*format!("call 0 {name}"), "args 0 \"{}\"", "end 0 true"]);
        let input = format!("<|channel|>commentary to={name}f<|message|>a<|call|>");
        check(&input, &["reasoning \"a\"", "! limit"]);
        let input = format!("<|start|>{name}{name}<|message|>a<|end|>");
        check(&input, &["! unexpected_data"]);
    }

    #[test]
    fn between_messages() {
        for (input, want) in [
            ("<|message|>a<|end|>\n<|start|>assistant<|message|>b<|end|>", ""),
            ("<|message|>a<|end|><|channel|>final<|message|>b<|end|>", ""),
            ("<|message|>a<|end|>assistant<|channel|>final<|message|>b<|end|>", ""),
            ("<|message|>a<|channel|>final<|message|>b<|return|>", ""),
            ("<|message|>a<|start|>assistant<|message|>b<|end|>", ""),
            ("<|message|>a<|end|><|start|>assistant<|message|>b<|end|><|return|>", ""),
            ("<|message|>a<|call|><|start|>assistant<|message|>b<|endoftext|>", ""),
            ("<|message|>a<|end|>x<|start|>assistant<|message|>b<|end|>", "unexpected_data"),
            ("<|message|>a<|end|>x<|channel|>final<|message|>b<|end|>", "unexpected_data"),
            ("<|message|>a<|end|><|message|>b<|end|>", "malformed_header"),
            ("<|message|>a<|start|>assistant<|message|>b<|end|>x", "unexpected_data"),
            ("<|message|>a<|start|>assistant<|message|>b<|end|><|end|>", "unexpected_data"),
            ("<|message|>a<|start|>assistant<|message|>b<|return|><|start|>", "unexpected_data"),
            ("<|message|>a<|start|>assistant<|message|>b<|return|> \n<|endoftext|>", ""),
            ("<|message|>a<|start|>assistant<|message|>b<|return|> x<|end|>y", "unexpected_data"),
            ("<|message|>a<|start|>assistant<|message|>b<|endoftext|>x", "unexpected_data"),
        ] {
            let error = format!("! {want}");
            let all = ["text \"ab\"", &error];
            check(input, if want.is_empty() { &all[..1] } else { &all });
        }
    }

    #[test]
    fn messages_of_other_roles_are_ignored() {
        for role in ["user", "system", "developer", "functions.f to=assistant", "tool", "odd"] {
            for channel in ["", "<|channel|>commentary", "<|channel|>analysis<|constrain|>json"] {
                check(
                    &format!(
                        "<|message|>a<|end|><|start|>{role}{channel}<|message|>made up<|end|>\
                         <|start|>assistant<|message|>b<|return|>"
                    ),
                    &["text \"ab\"", "! unexpected_data"],
                );
            }
        }
        check("<|start|>user<|message|>made", &["! unexpected_data"]);
    }

    #[test]
    fn ends_of_calls() {
        let of =
            |header: &str, rest: &str| format!("<|channel|>commentary {header}<|message|>{rest}");
        let args = |text: &str| format!("args 0 {}", serde_json::json!(text));
        let (json, none, code) =
            ("to=functions.f <|constrain|>json", "to=functions.f", "to=f code");
        for (header, text, end, complete, error) in [
            // A server that omits the stop token.
            (json, "{\"a\":1}", "", true, ""),
            (none, " {\"a\":1}\n", "", true, ""),
            (code, "{\"a\":1}", "", true, ""),
            (json, "{\"a\":1}", "<|ca", true, ""),
            (json, "{\"a\":1", "", false, "truncated"),
            (code, "print(1)", "", false, "truncated"),
            (none, "*** Begin", "", false, "truncated"),
            (json, "{\"a\":1}", "<|end|>", true, ""),
            (json, "{\"a\":1}", "<|start|>assistant<|message|><|end|>", true, ""),
            (json, "5", "<|call|>", true, ""),
            (json, "\"a <b>\"", "<|call|>", true, ""),
            (none, "*** Begin", "<|call|>", true, ""),
            (code, "{1, 2", "<|call|>", true, ""),
            // The scanner decides, as when providers send an end after half of the arguments.
            (json, "{\"a\":[", "<|call|>", false, "truncated"),
            (none, "{\"a\":[", "<|start|>assistant<|message|><|end|>", false, "truncated"),
            (json, "{\"a\":1} x", "<|call|>", false, "invalid_json"),
            // Models write raw line feeds into strings, and forget quotes.
            (json, "{\"a\":\"\n\"}", "<|call|>", true, ""),
            (none, "{a:1}", "<|call|>", true, ""),
            (json, "no", "<|call|>", false, "invalid_json"),
            (code, "{a:1}", "<|call|>", true, ""),
        ] {
            let (args, end_event) = (args(text), format!("end 0 {complete}"));
            let error = format!("! {error}");
            let all = ["call 0 f", &args, &end_event, &error];
            let input = of(header, &format!("{text}{end}"));
            let want = if error == "! " { &all[..3] } else { &all[..] };
            if end == "<|ca" {
                // Half a marker cannot occur among tokens.
                trial::row(engine, &input, want);
            } else {
                check(&input, want);
            }
        }
        check(&of(json, "<|call|>"), &["call 0 f", "end 0 true"]);
        check(&of(json, ""), &["call 0 f", "end 0 false", "! truncated"]);
        let deep = "[".repeat(600);
        let cut = &["call 0 f", &args(&deep), "end 0 false", "! truncated"];
        check(&of(json, &format!("{deep}<|call|>")), cut);
        trial::row(
            engine,
            &of(json, "{\"a\":1<|ca"),
            &["call 0 f", &args("{\"a\":1<|ca"), "end 0 false", "! truncated"],
        );
    }

    #[test]
    fn quoted_markers_are_data() {
        let quoted = "{\"a\":\"<|end|> \\\"<|start|>user<|message|>\"}";
        let args = format!("args 0 {}", serde_json::json!(quoted));
        let input = format!("<|channel|>commentary to=functions.f<|message|>{quoted}<|call|>");
        trial::row(engine, &input, &["call 0 f", &args, "end 0 true"]);
        check(
            "<|channel|>final<|message|>a <|constrain|>b <|message|>c<|end|>",
            &["text \"a b c\"", "! unexpected_data", "! unexpected_data"],
        );
        // Among tokens a marker is a marker even there, and its characters are text everywhere.
        let bytes = Bytes::default();
        let (mut tokens, mut collector) = (Tokens::new(&bytes), Collector::default());
        for id in [200_008, u32::from(b'a'), SPELLED, 200_002] {
            tokens.push(id, &mut collector);
        }
        tokens.finish(&mut collector);
        let events = collector.into_events(true);
        assert_eq!(
            serde_json::to_value(&events).unwrap(),
            serde_json::json!([{"type": "text", "text": "a<|end|>", "range": [11, 19]}])
        );
    }

    #[test]
    fn tokens_that_are_not_text() {
        let bytes = Bytes::default();
        let (mut tokens, mut collector) = (Tokens::new(&bytes), Collector::default());
        // Half a character before a marker, an unknown id, half a character at the end.
        for id in [200_008, 0xc3, 200_007, 200_006, 200_008, 200_020, 0xe2, 0x82] {
            tokens.push(id, &mut collector);
        }
        tokens.finish(&mut collector);
        let events = collector.into_events(false);
        let events: Vec<_> =
            events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
        assert_eq!(
            trial::short(&events),
            [
                "text \"\u{fffd}\u{fffd}\"",
                "! invalid_utf8",
                "! invalid_utf8",
                "! malformed_header",
                "! truncated",
                "! unexpected_data",
            ]
        );
    }

    #[test]
    fn ends_of_streams() {
        check("<|channel|>final<|message|>a", &["text \"a\"", "! truncated"]);
        check("<|channel|>commentary<|message|>", &["! truncated"]);
        check("<|channel|>", &["! truncated"]);
        check("<|start|>", &["! truncated"]);
        check("<|message|>a<|end|><|start|>assist", &["text \"a\"", "! truncated"]);
        check("<|channel|>commentary to=functions.f", &["! truncated"]);
        trial::row(engine, "<|channel|>final<|message|>a<|en", &["text \"a<|en\"", "! truncated"]);
        trial::row(engine, "<|message|>a<|end|><|st", &["text \"a\""]);
    }

    proptest! {
        #[test]
        fn nothing_panics_and_chunking_does_not_matter(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>",
                    "<|return|>", "<|endoftext|>", "<|", "assistant", "user", " to=", "functions.f",
                    "analysis", "final", "commentary", " ", "json", "{\"a\":", "\"", "}", "é👩", "\n",
                ]),
                0..30,
            ),
            seed in 1u64..1000,
        ) {
            let text = parts.concat();
            let whole = trial::run(&mut *engine(), text.as_bytes(), || usize::MAX);
            let mut random = trial::Random(seed);
            let cut = trial::run(&mut *engine(), text.as_bytes(), || random.below(9));
            prop_assert_eq!(whole, cut);
        }

        /// Message content is passed through unchanged, and so are arguments.
        #[test]
        fn content_is_lossless(
            messages in prop::collection::vec((0usize..4, "[a-z<|>é \\n]{0,12}"), 0..6),
        ) {
            let headers = ["analysis", "final", "commentary to=functions.f code", "commentary"];
            let (mut input, mut want) = (String::new(), String::new());
            for (kind, content) in &messages {
                prop_assume!(!MARKERS.iter().any(|(word, _)| content.contains(word)));
                input += &format!(
                    "<|start|>assistant<|channel|>{}<|message|>{content}<|end|>", headers[*kind]
                );
                want += content;
            }
            let got: String = trial::run(&mut *engine(), input.as_bytes(), || 3)
                .iter()
                .filter_map(|event| event["text"].as_str())
                .collect();
            prop_assert_eq!(got, want);
        }
    }
}
