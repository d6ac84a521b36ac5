//! Muse: messages whose recipient says what they are.
//!
//! ```text
//! <|start|>assistant to=R<|message|>…<|eom|>
//! ```
//!
//! A message to `self` is reasoning, one to the user is text, and one to a tool contains calls, which are parsed
//! as text of another dialect. Calls quoted in a message to the user are text, and markers inside a value of a
//! call are part of it.

use std::ops::Range;
use std::sync::Arc;

use crate::dialect::Engine;
use crate::dialect::machine;
use crate::dialect::markers::{Lexer, Piece, Table};
use crate::dialect::messages::{Close, Flavor, Header, Machine, Marker, Route, Source};
use crate::dialect::spec::Compiled;
use crate::event::Sink;

pub(crate) struct Muse {
    lexer: Lexer<Marker>,
    machine: Machine<Calls>,
}

impl Muse {
    /// Parses what follows the prompt's `<|start|>assistant`; `calls` is the format of calls.
    pub(crate) fn new(calls: Arc<Compiled>) -> Self {
        Self { lexer: Lexer::new(MARKERS), machine: Machine::new(Calls::new(calls)) }
    }

    /// Parses what follows a prompt that has already opened the reasoning.
    pub(crate) fn in_reasoning(calls: Arc<Compiled>) -> Self {
        let machine = Machine::inside(Calls::new(calls), Route::Reasoning);
        Self { lexer: Lexer::new(MARKERS), machine }
    }
}

impl Engine for Muse {
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
struct Calls {
    compiled: Arc<Compiled>,
    /// Parses the current message.
    machine: Option<machine::Machine>,
    next_index: u32,
}

impl Calls {
    fn new(compiled: Arc<Compiled>) -> Self {
        Self { compiled, machine: None, next_index: 0 }
    }
}

impl Flavor for Calls {
    fn route(&self, header: &Header) -> Route {
        match header.recipient.as_str() {
            "self" => Route::Reasoning,
            "" | "user" | "all" => Route::Text,
            _ => Route::Call,
        }
    }

    fn open(&mut self, _header: &Header, _range: Range<u64>, _sink: &mut dyn Sink) {
        let compiled = Arc::clone(&self.compiled);
        self.machine = Some(machine::Machine::new(compiled, self.next_index));
    }

    fn quotes(&self) -> bool {
        self.machine.as_ref().is_some_and(machine::Machine::quotes)
    }

    fn push(&mut self, text: &str, range: Range<u64>, sink: &mut dyn Sink) {
        if let Some(machine) = &mut self.machine {
            machine.push(text, range.start, sink);
        }
    }

    fn close(&mut self, how: Close, range: Range<u64>, sink: &mut dyn Sink) {
        let Some(mut machine) = self.machine.take() else { return };
        // After complete calls, half a marker is the rest of the end of the message.
        if let Close::Stream(rest) = how
            && !machine.is_between_calls()
        {
            machine.push(rest, range.start, sink);
        }
        machine.finish(range.end, sink);
        self.next_index = machine.next_index();
    }
}

const MARKERS: Table<Marker> = &[
    ("<|start|>", Marker::Start),
    ("<|message|>", Marker::Message),
    ("<|eom|>", Marker::End),
    ("<|eot|>", Marker::Return),
    ("<|end_of_text|>", Marker::EndOfText),
];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Muse;
    use crate::dialect::spec::Compiled;
    use crate::dialect::{Engine, Options, Tools, table, trial};

    fn calls() -> Arc<Compiled> {
        Arc::new(Compiled::new(&table::MUSE_CALLS, &Options::default(), Tools::default()))
    }

    #[track_caller]
    fn check(input: &str, want: &[&str]) {
        trial::row(|| Box::new(Muse::new(calls())), input, want);
    }

    const PING: &str = "<atem:function_calls>\n<atem:invoke name=\"ping\">\n</atem:invoke>\n\
                        </atem:function_calls>";

    #[test]
    fn recipients() {
        check(" to=self<|message|>a<|eom|>", &["reasoning \"a\""]);
        check("<|start|>assistant to=self<|message|>a<|eom|>", &["reasoning \"a\""]);
        let quoted = format!("text {}", serde_json::json!(PING));
        check(&format!(" to=user<|message|>{PING}<|eom|>"), &[&quoted]);
        check(&format!("<|message|>{PING}<|eom|>"), &[&quoted]);
        check(
            &format!(
                " to=self<|message|>a<|eom|><|start|>assistant to=user<|message|>b<|eom|>\
                 <|start|>assistant to=ping<|message|>{PING}<|eom|>\
                 <|start|>assistant to=ping<|message|>{PING}<|eom|>"
            ),
            &[
                "reasoning \"a\"",
                "text \"b\"",
                "call 0 ping",
                "args 0 \"{}\"",
                "end 0 true",
                "call 1 ping",
                "args 1 \"{}\"",
                "end 1 true",
            ],
        );
        check("<|start|>user<|message|>a<|eom|>", &["! unexpected_data"]);
        check("Just text", &["text \"Just text\"", "! malformed_header"]);
        trial::row(
            || Box::new(Muse::in_reasoning(calls())) as Box<dyn Engine>,
            "a<|eom|>",
            &["reasoning \"a\""],
        );
    }

    #[test]
    fn streams_that_break_off() {
        check(
            " to=f<|message|><atem:function_calls><atem:invoke name=\"f\">\
             <atem:parameter name=\"q\">ab",
            &["call 0 f", "args 0 \"{\\\"q\\\":\\\"ab\"", "end 0 false", "! truncated"],
        );
        let ping = ["call 0 ping", "args 0 \"{}\"", "end 0 true"];
        check(&format!(" to=ping<|message|>{PING}"), &ping);
        check(&format!(" to=ping<|message|>{PING}<|eo"), &ping);
        check(" to=f<|message|>no call<|eom|>", &["text \"no call\""]);
    }
}
