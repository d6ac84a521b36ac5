//! Muse: messages whose recipient says what they are.
//!
//! ```text
//! <|start|>assistant to=R<|message|>…<|eom|>
//! ```
//!
//! `self` is reasoning, the user gets text, and a message to a tool holds calls in a grammar of its
//! own, a [`Body`]. Calls that are quoted in a message to the user are text.

use std::ops::Range;

use crate::dialect::body::{Body, Held, Out, Step};
use crate::dialect::markers::{Lexer, Piece, Table};
use crate::dialect::messages::{Close, Flavor, Header, Machine, Marker, Route, Source};
use crate::dialect::{Engine, Tools};
use crate::event::{Event, Sink};

/// Reads Muse.
#[derive(Clone, Debug)]
pub(crate) struct Muse<B> {
    lexer: Lexer<Marker>,
    machine: Machine<Bodies<B>>,
}

impl<B: Body> Muse<B> {
    /// Reads what follows the prompt's `<|start|>assistant`; `new` begins the calls of a message.
    pub(crate) fn new(tools: Tools, new: fn() -> B) -> Self {
        Self { lexer: Lexer::new(MARKERS), machine: Machine::new(Bodies::new(tools, new)) }
    }

    /// Reads what follows a prompt that has already opened the reasoning.
    pub(crate) fn in_reasoning(tools: Tools, new: fn() -> B) -> Self {
        let machine = Machine::inside(Bodies::new(tools, new), Route::Reasoning);
        Self { lexer: Lexer::new(MARKERS), machine }
    }
}

impl<B: Body> Engine for Muse<B> {
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        let machine = &mut self.machine;
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

/// The messages to tools.
#[derive(Clone, Debug)]
struct Bodies<B> {
    tools: Tools,
    new: fn() -> B,
    now: Now<B>,
    held: Held,
    next_index: u32,
}

/// What is read inside of a message to a tool.
#[derive(Clone, Debug)]
enum Now<B> {
    Calls(B),
    /// Calls are over; others may follow.
    Between,
    /// It was not all calls.
    Text,
}

impl<B: Body> Bodies<B> {
    fn new(tools: Tools, new: fn() -> B) -> Self {
        Self { tools, new, now: Now::Text, held: Held::default(), next_index: 0 }
    }

    /// Gives back what the calls have held.
    fn give_back(&mut self, sink: &mut dyn Sink) {
        if !self.held.text.is_empty() {
            let end = self.held.start + self.held.text.len() as u64;
            sink.event(Event::Text(&self.held.text), self.held.start..end);
            self.held.text.clear();
        }
    }
}

impl<B: Body> Flavor for Bodies<B> {
    fn route(&self, header: &Header) -> Route {
        match header.recipient.as_str() {
            "self" => Route::Reasoning,
            "" | "user" | "all" => Route::Text,
            _ => Route::Call,
        }
    }

    fn open(&mut self, _header: &Header, _range: Range<u64>, _sink: &mut dyn Sink) {
        self.now = Now::Calls((self.new)());
    }

    fn quotes(&self) -> bool {
        false
    }

    fn push(&mut self, mut text: &str, range: Range<u64>, sink: &mut dyn Sink) {
        let mut at = range.start;
        while !text.is_empty() {
            let used = match &mut self.now {
                Now::Calls(body) => {
                    let (tools, held) = (&self.tools, &mut self.held);
                    let mut out = Out { sink, tools, held, next_index: &mut self.next_index };
                    match body.push(text, at, &mut out) {
                        Step::More => return,
                        Step::Done(used) => {
                            self.held.text.clear();
                            self.now = Now::Between;
                            used
                        }
                        Step::Fail(used) => {
                            self.give_back(sink);
                            self.now = Now::Text;
                            used
                        }
                    }
                }
                Now::Between => {
                    let blank = text.len() - text.trim_start().len();
                    match text[blank..].chars().next() {
                        Some('<') => self.now = Now::Calls((self.new)()),
                        Some(_) => self.now = Now::Text,
                        None => {}
                    }
                    if blank > 0 {
                        sink.event(Event::Text(&text[..blank]), at..at + blank as u64);
                    }
                    blank
                }
                Now::Text => {
                    sink.event(Event::Text(text), at..at + text.len() as u64);
                    text.len()
                }
            };
            at += used as u64;
            text = &text[used..];
        }
    }

    fn close(&mut self, how: Close, range: Range<u64>, sink: &mut dyn Sink) {
        // After whole calls, half a marker is what was left of the end of the message.
        if let Close::Stream(rest) = how
            && !matches!(self.now, Now::Between)
        {
            self.push(rest, range.clone(), sink);
        }
        if let Now::Calls(mut body) = std::mem::replace(&mut self.now, Now::Text) {
            let (tools, held) = (&self.tools, &mut self.held);
            let mut out = Out { sink, tools, held, next_index: &mut self.next_index };
            body.finish(range.start, &mut out);
            self.give_back(sink);
        }
    }
}

const MARKERS: Table<Marker> =
    &[("<|start|>", Marker::Start), ("<|message|>", Marker::Message), ("<|eom|>", Marker::End)];

#[cfg(test)]
mod tests {
    use super::Muse;
    use crate::dialect::body::{Body, Out, Step};
    use crate::dialect::{Engine, Tools, trial};
    use crate::event::ErrorKind;

    /// Reads `<NAME>`, to which there are no arguments; everything else is no call.
    #[derive(Default)]
    struct Fake {
        name: String,
    }

    impl Body for Fake {
        fn push(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Step {
            for (used, letter) in text.char_indices() {
                let (here, end) = (at + used as u64, used + letter.len_utf8());
                let _ = out.held.push(&text[used..end], here);
                match (letter, self.name.is_empty()) {
                    ('<', true) | ('a'..='z', false) => self.name.push(letter),
                    ('>', false) => {
                        let index = out.start(&self.name[1..], None, here + 1);
                        out.end(index, true, here + 1);
                        return Step::Done(end);
                    }
                    _ => {
                        out.error(ErrorKind::MalformedCall, "not a name", here);
                        return Step::Fail(end);
                    }
                }
            }
            Step::More
        }

        fn finish(&mut self, at: u64, out: &mut Out<'_>) {
            out.error(ErrorKind::Truncated, "half a name", at);
        }
    }

    #[track_caller]
    fn check(input: &str, want: &[&str]) {
        trial::row(|| Box::new(Muse::new(Tools::default(), Fake::default)), input, want);
    }

    #[test]
    fn recipients() {
        check(" to=self<|message|>a<|eom|>", &["reasoning \"a\""]);
        check("<|start|>assistant to=self<|message|>a<|eom|>", &["reasoning \"a\""]);
        check(" to=user<|message|><f><|eom|>", &["text \"<f>\""]);
        check("<|message|><f><|eom|>", &["text \"<f>\""]);
        check(
            " to=self<|message|>a<|eom|><|start|>assistant to=user<|message|>b<|eom|>\
             <|start|>assistant to=f<|message|><f><|eom|>",
            &["reasoning \"a\"", "text \"b\"", "call 0 f", "end 0 true"],
        );
        check("<|start|>user<|message|>a<|eom|>", &["! unexpected_data"]);
        check("Just text", &["text \"Just text\"", "! malformed_header"]);
        trial::row(
            || Box::new(Muse::in_reasoning(Tools::default(), Fake::default)) as Box<dyn Engine>,
            "a<|eom|>",
            &["reasoning \"a\""],
        );
    }

    #[test]
    fn messages_to_tools() {
        let calls = ["call 0 f", "end 0 true", "text \"\\n\"", "call 1 g", "end 1 true"];
        check(" to=f<|message|><f>\n<g><|eom|>", &calls);
        check(" to=f<|message|><f>x<g><|eom|>", &["call 0 f", "end 0 true", "text \"x<g>\""]);
        check(" to=f<|message|>oh<f><|eom|>", &["text \"oh<f>\"", "! malformed_call"]);
        check(" to=f<|message|><f<|eom|>", &["text \"<f\"", "! truncated"]);
        check(" to=f<|message|><f", &["text \"<f\"", "! truncated"]);
        check(" to=f<|message|><f><|eo", &["call 0 f", "end 0 true"]);
        check(" to=f<|message|><f>", &["call 0 f", "end 0 true"]);
    }
}
