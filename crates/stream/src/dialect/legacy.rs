//! Calls in JSON from before there were conventions: `function_call`, a flat `name` with `parameters`,
//! arguments as a JSON string, wrapped in arrays and objects of any kind.
//!
//! A message around a call is its wrapping and is not shown, except for its text content and keys that
//! messages do not have. A document around an envelope stays. A document without a call is an answer and is
//! passed through; text after documents may contain others.

use std::ops::Range;
use std::sync::Arc;

use crate::dialect::envelope::Lookup;
use crate::dialect::machine::Machine;
use crate::dialect::rest::Rest;
use crate::dialect::spec::Compiled;
use crate::dialect::table::DOCUMENTS_ONLY;
use crate::dialect::{Engine, HELD_BYTES_MAX, Options, Tools};
use crate::document::{Document, Found, Path};
use crate::event::{ErrorKind, Event, Sink};
use crate::json;

/// Parses documents that are calls, or answers.
pub(crate) struct Legacy {
    state: State,
    next_index: u32,
    /// What follows a message with calls: it is not text if another one follows, or nothing.
    gap: Gap,
    lookup: Lookup,
    /// How text is parsed.
    text: Arc<Compiled>,
}

/// Blanks, commas and semicolons between documents, and where they begin.
#[derive(Default)]
struct Gap {
    /// Whether they follow a message with calls.
    after_message: bool,
    held: String,
    start: u64,
}

impl Gap {
    fn give(&mut self, sink: &mut dyn Sink) {
        if !self.held.is_empty() {
            sink.event(Event::Text(&self.held), self.start..self.start + self.held.len() as u64);
            self.held.clear();
        }
    }
}

enum State {
    /// Before a document, or between two.
    Between,
    Document(Box<Reading>),
    /// What follows is not JSON, but may contain some.
    Text(Box<Machine>),
}

struct Reading {
    document: Document,
    rest: Wrapping,
}

/// The part of a document that is not a call.
#[derive(Default)]
struct Wrapping {
    /// The text of the document, while no call was found in it.
    held: String,
    start: u64,
    has_call: bool,
    /// Whether its truncation was reported.
    truncated: bool,
    /// What remains of the document, once a call is known.
    rest: Rest,
    depth: usize,
    key: String,
    /// The text content of the document next to its calls.
    content: Option<String>,
}

impl Legacy {
    pub(crate) fn new(options: &Options, tools: &Tools) -> Self {
        Self {
            state: State::Between,
            next_index: 0,
            gap: Gap::default(),
            lookup: Lookup::new(options, Path::legacy),
            text: Arc::new(Compiled::new(&DOCUMENTS_ONLY, options, tools.clone())),
        }
    }

    /// Parses the rest as text.
    fn text(&self) -> State {
        State::Text(Box::new(Machine::new(Arc::clone(&self.text), self.next_index)))
    }
}

impl Wrapping {
    /// Takes something that was found at `at` in the input.
    fn take(&mut self, found: Found<'_>, range: Range<u64>, gap: &mut Gap, sink: &mut dyn Sink) {
        match found {
            Found::Outside(text) if !self.has_call => {
                if self.held.is_empty() {
                    self.start = range.start;
                }
                self.held.push_str(text);
            }
            Found::Outside(text) => {
                self.rest.text(text, &mut |text| give(text, range.end, sink));
            }
            Found::Json(event) => {
                if self.has_call {
                    self.rest.event(event);
                }
                self.json(event, range, sink);
            }
            Found::At(path) => {
                if !self.has_call {
                    match path.is_envelope() {
                        true => gap.give(sink),
                        false => gap.held.clear(),
                    }
                    self.begin(path.is_envelope(), sink);
                    self.say(range, sink);
                }
                self.rest.call(path.len());
            }
            Found::Call(event) => {
                self.truncated |= matches!(event, Event::Error { kind: ErrorKind::Truncated, .. });
                sink.event(event, range);
            }
        }
    }

    /// A call is known: what was held is split, and what remains of it is emitted.
    fn begin(&mut self, envelope: bool, sink: &mut dyn Sink) {
        self.has_call = true;
        let held = std::mem::take(&mut self.held);
        if envelope {
            // Its content is part of it.
            self.content = None;
        } else {
            self.rest = Rest::of_message();
        }
        let (rest, start) = (&mut self.rest, self.start);
        let mut from = 0;
        // If the document is broken, it is text from there on.
        let _ = json::Reader::default().push_located(&held, |event, end| {
            rest.event(event);
            if from < end {
                rest.text(&held[from..end], &mut |text| give(text, start + end as u64, sink));
            }
            from = end;
        });
        let end = start + held.len() as u64;
        if from < held.len() {
            rest.text(&held[from..], &mut |text| give(text, end, sink));
        }
    }

    /// Finds the text content of a message next to its calls.
    fn json(&mut self, event: json::Event<'_>, range: Range<u64>, sink: &mut dyn Sink) {
        match event {
            json::Event::ObjectStart | json::Event::ArrayStart => self.depth += 1,
            json::Event::ObjectEnd | json::Event::ArrayEnd => {
                self.depth = self.depth.saturating_sub(1);
            }
            json::Event::KeyStart if self.depth == 1 => self.key.clear(),
            // Longer keys are not the one we look for.
            json::Event::Key(piece) if self.depth == 1 && self.key.len() < CONTENT.len() + 1 => {
                self.key.push_str(piece);
            }
            json::Event::StringStart
                if self.depth == 1 && self.key == CONTENT && !self.is_kept() =>
            {
                self.content = Some(String::new());
            }
            json::Event::Str(piece) => {
                if let Some(content) = self.content.as_mut().filter(|_| self.depth == 1) {
                    content.push_str(piece);
                }
            }
            json::Event::StringEnd if self.depth == 1 => {
                self.key.clear();
                if self.has_call {
                    self.say(range, sink);
                }
            }
            _ => {}
        }
    }

    /// Tells whether the document around the calls is kept, including its own content.
    fn is_kept(&self) -> bool {
        self.has_call && !self.rest.is_of_message()
    }

    fn say(&mut self, range: Range<u64>, sink: &mut dyn Sink) {
        if let Some(raw) = self.content.take()
            && !raw.is_empty()
        {
            sink.event(Event::Text(&json::unescape(&raw)), range);
        }
    }

    /// The document is over: what was held back is text.
    fn give_back(&mut self, at: u64, gap: &mut Gap, sink: &mut dyn Sink) {
        gap.give(sink);
        gap.after_message = self.has_call && self.rest.is_of_message();
        self.rest.finish(&mut |text| give(text, at, sink));
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            sink.event(Event::Text(&held), self.start..self.start + held.len() as u64);
        }
    }
}

/// Emits text that ends at `end`.
fn give(text: &str, end: u64, sink: &mut dyn Sink) {
    sink.event(Event::Text(text), end.saturating_sub(text.len() as u64)..end);
}

impl Engine for Legacy {
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        let mut pos = 0;
        while pos < text.len() {
            let (rest, here) = (&text[pos..], at + pos as u64);
            match &mut self.state {
                State::Text(machine) => return machine.push(rest, here, sink),
                State::Between => {
                    let blank = rest.len()
                        - rest.trim_start_matches([' ', '\n', '\r', '\t', ',', ';']).len();
                    if self.gap.held.is_empty() {
                        self.gap.start = here;
                    }
                    self.gap.held.push_str(&rest[..blank]);
                    if !self.gap.after_message || self.gap.held.len() > HELD_BYTES_MAX {
                        self.gap.give(sink);
                    }
                    pos += blank;
                    match rest[blank..].bytes().next() {
                        None => {}
                        Some(b'{' | b'[') => {
                            self.state = State::Document(Box::new(Reading {
                                document: self.lookup.document(self.next_index),
                                rest: Wrapping::default(),
                            }));
                        }
                        Some(_) => {
                            self.gap.give(sink);
                            self.state = self.text();
                        }
                    }
                }
                State::Document(reading) => {
                    let (Reading { document, rest: other }, gap) = (&mut **reading, &mut self.gap);
                    // The document counts from its own beginning.
                    let base = here - document.offset();
                    let read = document.push(rest, |found, range| {
                        other.take(found, base + range.start..base + range.end, gap, sink);
                    });
                    self.next_index = document.next_index();
                    match read {
                        Ok(progress) => {
                            pos += progress.consumed;
                            if progress.done {
                                other.give_back(at + pos as u64, gap, sink);
                                self.state = State::Between;
                            } else if other.held.len() > HELD_BYTES_MAX {
                                other.give_back(at + pos as u64, gap, sink);
                                self.state = self.text();
                            }
                        }
                        Err(error) => {
                            let place = base + error.offset;
                            let (had_call, truncated) = (other.has_call, other.truncated);
                            let done = document.finish(|found, range| {
                                other.take(found, base + range.start..base + range.end, gap, sink);
                            });
                            debug_assert!(done.is_err(), "an error stays");
                            other.give_back(place, gap, sink);
                            // The error of an unfinished call has been reported.
                            if had_call && truncated == other.truncated {
                                let detail = error.to_string();
                                let kind = ErrorKind::InvalidJson;
                                sink.event(Event::Error { kind, detail: &detail }, place..place);
                            }
                            self.state = self.text();
                            pos = (place - at) as usize;
                        }
                    }
                }
            }
        }
    }

    fn finish(&mut self, at: u64, sink: &mut dyn Sink) {
        let reading = match &mut self.state {
            State::Between => return,
            State::Text(machine) => return machine.finish(at, sink),
            State::Document(reading) => reading,
        };
        let (Reading { document, rest }, gap) = (&mut **reading, &mut self.gap);
        let base = at - document.offset();
        // Truncation is reported below, or it is an answer.
        let _ = document.finish(|found, range| {
            rest.take(found, base + range.start..base + range.end, gap, sink);
        });
        rest.give_back(at, gap, sink);
        if rest.has_call && !rest.truncated {
            let detail = "the stream ends inside a document with calls";
            sink.event(Event::Error { kind: ErrorKind::Truncated, detail }, at..at);
        }
    }
}

/// The key of a message's text.
const CONTENT: &str = "content";
