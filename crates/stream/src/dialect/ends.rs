//! Tokens that end a turn, for any model.
//!
//! Formats of a particular model have its tokens in the table. Formats that any model may be asked to write
//! use these; [`Unended`] removes them for engines without marks.

use crate::dialect::markers::{Lexer, Piece, Table};
use crate::dialect::{Detection, Engine, HELD_BYTES_MAX};
use crate::event::Sink;

/// End-of-turn tokens of common models. Those that people also write, such as `</s>`, are not included.
pub(crate) const ENDS: &[&str] = &[
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|end|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
];

const MARKERS: Table<()> = &{
    let mut table = [("", ()); ENDS.len()];
    let mut at = 0;
    while at < table.len() {
        table[at] = (ENDS[at], ());
        at += 1;
    }
    table
};

/// Hides the tokens at the end of a stream from an engine; earlier ones are quoted text.
pub(crate) struct Unended<E> {
    lexer: Lexer<()>,
    tail: Tail<E>,
}

struct Tail<E> {
    inner: E,
    /// Tokens, and blanks after them, and where they begin.
    held: String,
    start: u64,
}

impl<E: Engine> Unended<E> {
    pub(crate) fn new(inner: E) -> Self {
        let tail = Tail { inner, held: String::new(), start: 0 };
        Self { lexer: Lexer::new(MARKERS), tail }
    }
}

impl<E: Engine> Tail<E> {
    fn hold(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        if self.held.is_empty() {
            self.start = at;
        }
        self.held.push_str(text);
        if self.held.len() > HELD_BYTES_MAX {
            self.release(sink);
        }
    }

    fn text(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        if !self.held.is_empty() && text.trim_start().is_empty() {
            return self.hold(text, at, sink);
        }
        self.release(sink);
        self.inner.push(text, at, sink);
    }

    fn release(&mut self, sink: &mut dyn Sink) {
        if !self.held.is_empty() {
            self.inner.push(&self.held, self.start, sink);
            self.held.clear();
        }
    }
}

impl<E: Engine> Engine for Unended<E> {
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        let tail = &mut self.tail;
        self.lexer.push(text, at, |piece, range| match piece {
            Piece::Text(text) => tail.text(text, range.start, sink),
            Piece::Marker((), word) => tail.hold(word, range.start, sink),
        });
    }

    fn finish(&mut self, at: u64, sink: &mut dyn Sink) {
        let rest = self.lexer.finish();
        if !rest.is_empty() {
            self.tail.text(rest, at - rest.len() as u64, sink);
        }
        self.tail.inner.finish(at, sink);
    }

    fn detected(&self) -> Option<Detection> {
        self.tail.inner.detected()
    }
}
