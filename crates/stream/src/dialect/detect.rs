//! Detects the dialect of a stream, from its first bytes or its first mark.
//!
//! The beginning distinguishes a provider's wire format from what a model writes. In the latter, text is
//! passed through until something appears that only calls or reasoning have; what follows decides between
//! dialects that share it. From there on the stream is parsed in that dialect.

use std::borrow::Cow;

use crate::dialect::spec::{Compiled, Switch};
use crate::dialect::{Dialect, Engine, Format, Options, Reader, Tools};
use crate::dialect::{machine, table};
use crate::event::{Event, Sink};

mod marks;

/// The detected dialect of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Detection {
    /// The most likely format.
    pub format: &'static Format,
    /// The confidence in percent: 99 is a token that no other format has, 50 a guess.
    pub confidence: u8,
}

/// Detects the format from the first bytes of a stream, or from all of it.
///
/// Returns `None` for an answer without calls, marks or wire frames: that is text in any dialect.
pub fn detect(text: &str) -> Option<Detection> {
    let mut auto = Auto::new(&Options::default(), &Tools::default(), Scope::All);
    auto.push(text, 0, &mut |_: Event<'_>, _| ());
    if auto.found.is_none() {
        auto.finish(text.len() as u64, &mut |_: Event<'_>, _| ());
    }
    auto.detected()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    /// Only formats from before there were conventions.
    Legacy,
}

/// Parses a stream in whichever dialect it turns out to be.
pub(crate) struct Auto {
    options: Options,
    tools: Tools,
    scope: Scope,
    state: State,
    found: Option<Detection>,
}

enum State {
    /// The beginning is not sufficient yet.
    Start {
        held: String,
        start: u64,
    },
    /// Text, in which a mark may appear.
    Text(Box<machine::Machine>),
    /// A mark that several dialects, or plain text, share: what follows decides.
    Marked {
        machine: Box<machine::Machine>,
        mark: Marked,
    },
    Chosen(Box<dyn Engine + Send>),
}

/// A mark, and the text since.
struct Marked {
    switch: &'static Switch,
    /// The text from the mark on, and how much of it is the mark.
    held: String,
    marker: usize,
    start: u64,
}

impl Marked {
    fn guess(&self, ended: bool) -> Guess {
        let usual = Guess::Is(self.switch.usual, 50);
        let since = &self.held[self.marker..];
        match (self.switch.guess)(since, ended) {
            Guess::More if ended || since.len() > DECISION_BYTES_MAX => usual,
            guess => guess,
        }
    }
}

/// A conclusion about a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guess {
    /// More input is needed.
    More,
    /// It is this format, with this confidence.
    Is(&'static str, u8),
    /// It is none of them.
    No,
}

impl Auto {
    pub(crate) fn new(options: &Options, tools: &Tools, scope: Scope) -> Self {
        let (options, tools) = (options.clone(), tools.clone());
        // If the prompt has opened the reasoning, text certainly follows.
        let begun = options.start_in_reasoning && scope == Scope::All;
        let mut auto = Self {
            options,
            tools,
            scope,
            state: State::Start { held: String::new(), start: 0 },
            found: None,
        };
        if begun {
            auto.state = auto.text();
        }
        auto
    }

    fn text(&self) -> State {
        match self.scope {
            Scope::All => {
                let compiled = Compiled::new(&marks::AUTO, &self.options, self.tools.clone());
                State::Text(Box::new(machine::Machine::new(compiled.into(), 0)))
            }
            // Only a fence may still appear.
            Scope::Legacy => match Format::named("json_fence") {
                Some(format) => State::Chosen(self.engine(format, 0)),
                None => State::Start { held: String::new(), start: 0 },
            },
        }
    }

    fn engine(&self, format: &'static Format, next_index: u32) -> Box<dyn Engine + Send> {
        // The stream has been parsed up to here; what was open at its start no longer is.
        let options = Options { start_in_reasoning: false, ..self.options.clone() };
        match format.reader {
            // Whatever the dialect, an envelope is a call.
            Reader::Text(spec) => {
                let compiled = Compiled::new(spec, &options, self.tools.clone());
                let compiled = compiled.with_documents(table::DOCUMENTS);
                Box::new(machine::Machine::new(compiled.into(), next_index))
            }
            Reader::Other(_) => Dialect::new(format, &options, &self.tools).engine(next_index),
        }
    }

    fn choose(&mut self, name: &'static str, confidence: u8, next_index: u32) {
        // A test ensures that detection names formats of the table; anything else is text.
        let Some(format) = Format::named(name) else {
            let compiled = Compiled::new(&table::DOCUMENTS_ONLY, &self.options, self.tools.clone());
            let machine = machine::Machine::new(compiled.into(), next_index);
            return self.state = State::Chosen(Box::new(machine));
        };
        self.found = Some(Detection { format, confidence });
        self.state = State::Chosen(self.engine(format, next_index));
    }

    /// Decides about a stream by its beginning.
    fn settle(&mut self, guess: Guess) {
        match guess {
            Guess::Is(name, confidence) => self.choose(name, confidence, 0),
            _ => self.state = self.text(),
        }
    }

    /// Stops at a mark.
    fn mark(&mut self, mark: Marked) {
        let placeholder = State::Start { held: String::new(), start: 0 };
        self.state = match std::mem::replace(&mut self.state, placeholder) {
            State::Text(machine) => State::Marked { machine, mark },
            state => state,
        };
    }

    /// Examines a mark and the text since; if that is sufficient, returns what to parse again.
    fn look(&mut self, ended: bool, sink: &mut dyn Sink) -> Option<(String, u64)> {
        let State::Marked { mark, .. } = &self.state else { return None };
        let guess = mark.guess(ended);
        if guess == Guess::More {
            return None;
        }
        let placeholder = State::Start { held: String::new(), start: 0 };
        let State::Marked { mut machine, mark } = std::mem::replace(&mut self.state, placeholder)
        else {
            return None;
        };
        let Marked { mut held, marker, start, .. } = mark;
        if let Guess::Is(name, confidence) = guess {
            self.choose(name, confidence, machine.next_index());
            return Some((held, start));
        }
        machine.resume(&held[..marker], start, sink);
        self.state = State::Text(machine);
        held.drain(..marker);
        Some((held, start + marker as u64))
    }

    /// Reads until something is decided; returns how much was used, and what to parse again before the rest.
    fn step(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> (usize, Option<(String, u64)>) {
        match &mut self.state {
            State::Chosen(engine) => engine.push(text, at, sink),
            State::Start { held, start } => {
                if held.is_empty() {
                    *start = at;
                }
                // Character by character: the decision must not depend on the size of the push.
                for (pos, next) in text.char_indices() {
                    held.push(next);
                    let paths = !self.options.paths.is_empty();
                    let guess = beginning(held, Input::Open, self.scope, paths);
                    if guess != Guess::More {
                        let again = (std::mem::take(held), *start);
                        self.settle(guess);
                        return (pos + next.len_utf8(), Some(again));
                    }
                }
            }
            State::Text(machine) => {
                let used = machine.push_to_switch(text, at, sink);
                if let Some((switch, marker, held, start)) = machine.take_switch() {
                    self.mark(Marked { switch, held, marker, start });
                    return (used, self.look(false, sink));
                }
            }
            State::Marked { .. } => {
                for (pos, next) in text.char_indices() {
                    if let State::Marked { mark, .. } = &mut self.state {
                        mark.held.push(next);
                    }
                    if let Some(again) = self.look(false, sink) {
                        return (pos + next.len_utf8(), Some(again));
                    }
                }
            }
        }
        (text.len(), None)
    }
}

/// A pending text, and how much of it has been read.
struct Piece<'a> {
    text: Cow<'a, str>,
    pos: usize,
    at: u64,
}

impl Engine for Auto {
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        let (pos, again) = self.step(text, at, sink);
        if pos == text.len() && again.is_none() {
            return;
        }
        // What is parsed again precedes the rest of the push.
        let mut pieces = vec![Piece { text: Cow::Borrowed(text), pos, at }];
        pieces.extend(again.map(|(text, at)| Piece { text: Cow::Owned(text), pos: 0, at }));
        while let Some(piece) = pieces.last_mut() {
            if piece.pos == piece.text.len() {
                pieces.pop();
                continue;
            }
            let here = piece.at + piece.pos as u64;
            let (used, again) = self.step(&piece.text[piece.pos..], here, sink);
            piece.pos += used;
            if let Some((text, at)) = again {
                pieces.push(Piece { text: Cow::Owned(text), pos: 0, at });
            }
        }
    }

    fn finish(&mut self, at: u64, sink: &mut dyn Sink) {
        let again = match &mut self.state {
            State::Chosen(engine) => return engine.finish(at, sink),
            State::Text(machine) => {
                machine.finish(at, sink);
                let Some((switch, marker, held, start)) = machine.take_switch() else {
                    self.found = self.detected();
                    return;
                };
                self.mark(Marked { switch, held, marker, start });
                self.look(true, sink)
            }
            State::Start { held, start } => {
                let again = (std::mem::take(held), *start);
                let paths = !self.options.paths.is_empty();
                self.settle(beginning(&again.0, Input::Ended, self.scope, paths));
                Some(again)
            }
            State::Marked { .. } => self.look(true, sink),
        };
        if let Some((text, at)) = again {
            self.push(&text, at, sink);
        }
        // Each of these makes progress, so this terminates.
        self.finish(at, sink);
    }

    fn awaits(&self, half: &[u8]) -> bool {
        match &self.state {
            State::Chosen(engine) => engine.awaits(half),
            State::Text(machine) => machine.awaits(half),
            State::Start { .. } | State::Marked { .. } => false,
        }
    }

    fn detected(&self) -> Option<Detection> {
        let in_text = match &self.state {
            // All calls parsed before the dialect is known are in documents.
            State::Text(machine) if machine.next_index() > 0 => Format::named("toolcall_v2"),
            _ => None,
        };
        self.found.or(in_text.map(|format| Detection { format, confidence: 99 }))
    }
}

/// Whether more of a stream can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Open,
    Ended,
}

/// Judges a stream by its beginning.
fn beginning(text: &str, input: Input, scope: Scope, paths: bool) -> Guess {
    let body = text.trim_start_matches(['\u{feff}', ' ', '\n', '\r', '\t']);
    let decided = input == Input::Ended || text.len() > DECISION_BYTES_MAX;
    let more = |guess| if decided { guess } else { Guess::More };
    if body.is_empty() {
        return more(Guess::No);
    }
    for label in ["data:", "event:", "Thought:", "Action:", "Final Answer:"] {
        if body.len() < label.len() && label.starts_with(body) {
            return more(Guess::No);
        }
    }
    let wire = match body.as_bytes() {
        [b'd', ..] if body.starts_with("data:") => Some(body),
        [b'e', ..] if body.starts_with("event:") => Some(body),
        // Comments, which keep a connection alive, may come first.
        [b':', ..] => match body.split_once('\n') {
            None => return more(Guess::No),
            Some((_, rest)) => match rest.trim_start() {
                "" => return more(Guess::No),
                rest if rest.starts_with("data:") || rest.starts_with("event:") => Some(rest),
                rest if "data:".starts_with(rest) || "event:".starts_with(rest) => {
                    return more(Guess::No);
                }
                _ => None,
            },
        },
        _ => None,
    };
    if let Some(frames) = wire {
        return match wire_format(frames) {
            Some(name) => Guess::Is(name, 99),
            None => more(Guess::Is("openai_chat", 50)),
        };
    }
    if body.starts_with("Thought:") || body.starts_with("Action:") {
        return Guess::Is("react", 90);
    }
    if body.starts_with("Final Answer:") {
        return Guess::Is("react", 70);
    }
    match body.as_bytes() {
        [b'{' | b'[', ..] => json_beginning(body, input, scope, paths),
        _ => Guess::No,
    }
}

/// Judges a stream that begins like JSON.
fn json_beginning(body: &str, input: Input, scope: Scope, paths: bool) -> Guess {
    let inner = body[1..].trim_start();
    let decided = input == Input::Ended || body.len() > DECISION_BYTES_MAX;
    if inner.is_empty() {
        return if decided { Guess::No } else { Guess::More };
    }
    if let Some(first) = inner.chars().next().filter(|_| body.starts_with('['))
        && !matches!(first, '{' | '[' | '"')
    {
        // A list of Python calls, a marker in brackets, or a footnote.
        return match first {
            _ if scope == Scope::Legacy => Guess::No,
            first if first.is_alphabetic() || first == '_' => {
                let name =
                    inner.trim_start_matches(|c: char| c.is_alphanumeric() || "_.-".contains(c));
                match name.chars().next() {
                    Some('(') => Guess::Is("pythonic", 90),
                    None if !decided => Guess::More,
                    _ => Guess::No,
                }
            }
            _ => Guess::No,
        };
    }
    // With custom paths, the document is not a provider's frame.
    if let Some(name) = wire_format(body).filter(|_| scope == Scope::All && !paths) {
        return Guess::Is(name, 90);
    }
    let key = |key: &str| body.contains(&format!("\"{key}\""));
    if paths {
        return Guess::Is("legacy_json", 90);
    }
    if key("function_call") || key("tool_calls") || key("ToolCall_V2") {
        return Guess::Is("legacy_json", 95);
    }
    if key("name") && (key("arguments") || key("parameters")) {
        return Guess::Is("legacy_json", 85);
    }
    // The keys that frames and calls begin with; anything else is an answer, and is not delayed.
    let first = inner.trim_start_matches(['{', ' ', '\n', '\r', '\t']);
    let Some(first) = first.strip_prefix('"') else {
        return if decided || !first.is_empty() {
            Guess::Is("legacy_json", 50)
        } else {
            Guess::More
        };
    };
    let first_key = first.split('"').next().unwrap_or_default();
    let known = [
        "id",
        "object",
        "type",
        "model",
        "created",
        "role",
        "name",
        "responseId",
        "function",
        "function_call",
        "tool_call",
        "tool_calls",
        "ToolCall_V2",
    ];
    let may = known.iter().any(|word| match first.contains('"') {
        true => *word == first_key,
        false => word.starts_with(first_key),
    });
    if may && !decided { Guess::More } else { Guess::Is("legacy_json", 50) }
}

/// Returns the provider whose frames these seem to be.
fn wire_format(frames: &str) -> Option<&'static str> {
    let has = |words: &[&str]| words.iter().any(|word| frames.contains(word));
    if has(&["\"choices\"", "\"chat.completion"]) {
        Some("openai_chat")
    } else if has(&[
        "\"message_start\"",
        "\"content_block_",
        "\"message_delta\"",
        "event: message_",
    ]) {
        Some("anthropic")
    } else if has(&["\"response.", "event: response.", "\"object\":\"response\""]) {
        Some("openai_responses")
    } else if has(&["\"candidates\"", "\"usageMetadata\"", "\"promptFeedback\""]) {
        Some("gemini")
    } else {
        None
    }
}

/// How many bytes are examined before a guess is made.
const DECISION_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::{Auto, Guess, Scope, marks};
    use crate::dialect::spec::Effect;
    use crate::dialect::{Format, Options, Tools};

    #[test]
    fn detection_names_formats_of_the_table() {
        for mark in marks::AUTO.marks {
            let Effect::Switch(switch) = mark.effect else { continue };
            assert!(Format::named(switch.usual).is_some(), "{}", switch.usual);
            for rest in [
                "",
                "{",
                "[",
                "<",
                "<function=",
                "<tool_call>",
                "a",
                "=",
                " name=",
                "\n{",
                "json\n{",
            ] {
                for ended in [false, true] {
                    if let Guess::Is(name, _) = (switch.guess)(rest, ended) {
                        assert!(Format::named(name).is_some(), "{name}");
                    }
                }
            }
        }
        // Formats that are named in code.
        for name in ["json_fence", "legacy_json", "pythonic", "react", "toolcall_v2", "openai_chat"]
        {
            assert!(Format::named(name).is_some(), "{name}");
        }
        drop(Auto::new(&Options::default(), &Tools::default(), Scope::Legacy));
    }
}
