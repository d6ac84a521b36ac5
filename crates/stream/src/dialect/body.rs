//! What is common to all grammars of calls: the bytes between a marker and the end of its calls.
//!
//! A body is given text from the byte after its marker on. Until a call is started it holds
//! whatever it reads, so that a block that turns out to be none goes back as text, byte for byte.

use std::ops::Range;

use crate::dialect::{HELD_BYTES_MAX, Tools};
use crate::event::{ErrorKind, Event, Sink};

/// What a body made of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// All of it is the body's, and the body goes on.
    More,
    /// The body is over; this many bytes were its own, the rest is text again.
    Done(usize),
    /// As `Done`, and it was said that something is wrong.
    Broken(usize),
    /// As `Done`, and what closes the block around the calls was among those bytes.
    Closed(usize),
    /// As `Done`, and there was no call: what the body read is text, and it has given it.
    Text(usize),
    /// It is no call after all: what is held goes back as text, and reading goes on as text after
    /// this many bytes. The body has held those already.
    Fail(usize),
}

/// Where a body says what it found.
pub(crate) struct Out<'a> {
    pub(crate) sink: &'a mut dyn Sink,
    pub(crate) tools: &'a Tools,
    /// The text since the marker, the marker included, while no call is started.
    pub(crate) held: &'a mut HeldText,
    /// The index that the next call gets.
    pub(crate) next_index: &'a mut u32,
    /// Whether what is no call is reasoning.
    pub(crate) reasoning: bool,
}

/// Text that is held back, and where it began in the input.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldText {
    pub(crate) text: String,
    pub(crate) start: u64,
    /// Whether a bound was reached; said once, instead of calling the call malformed.
    pub(crate) limit: bool,
    /// What a body took and found not to be its own, and where it began: it is read again.
    pub(crate) again: String,
    pub(crate) again_start: u64,
    /// Whether what closes the block around the calls was before that.
    pub(crate) closed: bool,
    /// Up to where the input has been doubted and found to be what it seems.
    pub(crate) settled: u64,
}

impl HeldText {
    /// Holds a piece that stands at `at`; tells whether there was room for it.
    ///
    /// The piece is held in any case: nothing is lost, and the caller gives up.
    #[must_use]
    pub(crate) fn push(&mut self, piece: &str, at: u64) -> bool {
        if self.text.is_empty() {
            self.start = at;
        }
        self.text.push_str(piece);
        self.limit |= self.text.len() > HELD_BYTES_MAX;
        !self.limit
    }

    /// Keeps text that is to be read again after the body; more of it follows directly.
    pub(crate) fn again(&mut self, text: &str, at: u64) {
        if self.again.is_empty() {
            self.again_start = at;
        }
        self.again.push_str(text);
    }
}

impl Out<'_> {
    /// Starts a call: what was held is its beginning, and is no longer held.
    pub(crate) fn start(&mut self, name: &str, id: Option<&str>, end: u64) -> u32 {
        let index = *self.next_index;
        *self.next_index += 1;
        let start = if self.held.text.is_empty() { end } else { self.held.start };
        self.held.text.clear();
        self.event(Event::ToolStart { index, name, id, signature: None }, start..end);
        index
    }

    /// Gives text that a body has around its calls, which ends at `end`; before the first of them it is
    /// what the stream was before the body.
    pub(crate) fn text(&mut self, text: &str, before: bool, end: u64) {
        let range = end.saturating_sub(text.len() as u64)..end;
        match self.reasoning && before {
            true => self.event(Event::Reasoning(text), range),
            false => self.event(Event::Text(text), range),
        }
    }

    pub(crate) fn args(&mut self, index: u32, text: &str, range: Range<u64>) {
        if !text.is_empty() {
            self.event(Event::ToolArgs { index, text }, range);
        }
    }

    pub(crate) fn end(&mut self, index: u32, complete: bool, at: u64) {
        self.event(Event::ToolEnd { index, complete }, at..at);
    }

    pub(crate) fn error(&mut self, kind: ErrorKind, detail: &str, at: u64) {
        self.event(Event::Error { kind, detail }, at..at);
    }

    pub(crate) fn event(&mut self, event: Event<'_>, range: Range<u64>) {
        self.sink.event(event, range);
    }
}

/// A grammar of calls.
pub(crate) trait Body {
    /// Takes text that only continues arguments which are being passed on, if that is all it does.
    ///
    /// Most of what comes is that; it goes without everything that a change of state needs.
    #[inline]
    fn pass(&mut self, _text: &str, _at: u64, _sink: &mut dyn Sink) -> bool {
        false
    }

    /// Takes the next text, which stands at `at` in the input.
    fn push(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Step;

    /// Tells whether what comes next is inside of a value, where the markers of messages are quoted.
    fn quotes(&self) -> bool {
        false
    }

    /// Ends the stream inside of the body: a call that is open is closed, and what is missing is said.
    ///
    /// What is still held afterwards goes back as text.
    fn finish(&mut self, at: u64, out: &mut Out<'_>);
}
