//! Calls in JSON as they were written before there were conventions: `function_call`, a flat `name`
//! with `parameters`, arguments as a JSON string, wrapped in arrays and objects of any kind.
//!
//! The document around a call is its wrapping and is not shown, but for the text that it has to say.
//! A document without a call is an answer and comes out as it stands.

use std::ops::Range;

use crate::dialect::{Engine, HELD_BYTES_MAX};
use crate::document::{Document, Found, Path};
use crate::event::{ErrorKind, Event, Sink};
use crate::json;

/// Reads documents that are calls, or answers.
pub(crate) struct Legacy {
    state: State,
    next_index: u32,
}

enum State {
    /// Before a document, or between two.
    Between,
    Document(Box<Reading>),
    /// What follows is no JSON.
    Text,
}

struct Reading {
    document: Document,
    rest: Rest,
}

/// What is not a call.
#[derive(Default)]
struct Rest {
    /// The text of the document, while no call was found in it.
    held: String,
    start: u64,
    has_call: bool,
    depth: usize,
    key: String,
    /// What the document says beside its calls.
    content: Option<String>,
}

impl Legacy {
    pub(crate) fn new() -> Self {
        Self { state: State::Between, next_index: 0 }
    }
}

impl Rest {
    /// Takes something that was found at `at` in the input.
    fn take(&mut self, found: Found<'_>, range: Range<u64>, sink: &mut dyn Sink) {
        match found {
            Found::Outside(text) if !self.has_call => {
                if self.held.is_empty() {
                    self.start = range.start;
                }
                self.held.push_str(text);
            }
            Found::Outside(_) => {}
            Found::Json(event) => self.json(event, range, sink),
            Found::Call(event) => {
                if let Event::ToolStart { .. } = event {
                    self.has_call = true;
                    self.held = String::new();
                    self.say(range.clone(), sink);
                }
                sink.event(event, range);
            }
        }
    }

    /// Finds the text that a message carries beside its calls.
    fn json(&mut self, event: json::Event<'_>, range: Range<u64>, sink: &mut dyn Sink) {
        match event {
            json::Event::ObjectStart | json::Event::ArrayStart => self.depth += 1,
            json::Event::ObjectEnd | json::Event::ArrayEnd => {
                self.depth = self.depth.saturating_sub(1);
            }
            json::Event::KeyStart if self.depth == 1 => self.key.clear(),
            // Longer keys are not the one that is looked for.
            json::Event::Key(piece) if self.depth == 1 && self.key.len() < CONTENT.len() + 1 => {
                self.key.push_str(piece);
            }
            json::Event::StringStart if self.depth == 1 && self.key == CONTENT => {
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

    fn say(&mut self, range: Range<u64>, sink: &mut dyn Sink) {
        if let Some(raw) = self.content.take()
            && !raw.is_empty()
        {
            sink.event(Event::Text(&json::unescape(&raw)), range);
        }
    }

    /// Gives what was held back as text.
    fn give_back(&mut self, sink: &mut dyn Sink) {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            sink.event(Event::Text(&held), self.start..self.start + held.len() as u64);
        }
    }
}

impl Engine for Legacy {
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        let mut pos = 0;
        while pos < text.len() {
            let (rest, here) = (&text[pos..], at + pos as u64);
            match &mut self.state {
                State::Text => {
                    sink.event(Event::Text(rest), here..here + rest.len() as u64);
                    return;
                }
                State::Between => {
                    let blank = rest.len()
                        - rest.trim_start_matches([' ', '\n', '\r', '\t', ',', ';']).len();
                    // Before the first call blanks may be part of an answer.
                    if blank > 0 && self.next_index == 0 {
                        let end = here + blank as u64;
                        sink.event(Event::Text(&rest[..blank]), here..end);
                    }
                    pos += blank;
                    match rest[blank..].bytes().next() {
                        None => {}
                        Some(b'{' | b'[') => {
                            self.state = State::Document(Box::new(Reading {
                                document: Document::new(Path::legacy(), self.next_index),
                                rest: Rest::default(),
                            }));
                        }
                        Some(_) => self.state = State::Text,
                    }
                }
                State::Document(reading) => {
                    let Reading { document, rest: other } = &mut **reading;
                    // The document counts from its own beginning.
                    let base = here - document.offset();
                    let read = document.push(rest, |found, range| {
                        other.take(found, base + range.start..base + range.end, sink);
                    });
                    self.next_index = document.next_index();
                    match read {
                        Ok(progress) => {
                            pos += progress.consumed;
                            if progress.done {
                                other.give_back(sink);
                                self.state = State::Between;
                            } else if other.held.len() > HELD_BYTES_MAX {
                                other.give_back(sink);
                                self.state = State::Text;
                            }
                        }
                        Err(error) => {
                            let used = (base + error.offset - here) as usize;
                            let had_call = other.has_call;
                            let done = document.finish(|found, range| {
                                other.take(found, base + range.start..base + range.end, sink);
                            });
                            debug_assert!(done.is_err(), "an error stays");
                            other.give_back(sink);
                            if had_call {
                                let detail = error.to_string();
                                let kind = ErrorKind::InvalidJson;
                                sink.event(Event::Error { kind, detail: &detail }, here..here);
                            }
                            self.state = State::Text;
                            pos += used;
                        }
                    }
                }
            }
        }
    }

    fn finish(&mut self, at: u64, sink: &mut dyn Sink) {
        let State::Document(reading) = &mut self.state else { return };
        let Reading { document, rest } = &mut **reading;
        let base = at - document.offset();
        // That it ends too early is said with the call it ends in, or it is an answer.
        let _ = document.finish(|found, range| {
            rest.take(found, base + range.start..base + range.end, sink);
        });
        rest.give_back(sink);
    }
}

/// The key of what a message says.
const CONTENT: &str = "content";
