//! What all call grammars share: the bytes between a marker and the end of its calls.
//!
//! A body gets the text after its marker. Until a call is started it holds everything it reads, so that a
//! block without a call can be returned as text, byte for byte.

use std::ops::Range;

use crate::dialect::{HELD_BYTES_MAX, Tools};
use crate::event::{ErrorKind, Event, Sink};

/// What a body made of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It consumed everything and continues.
    More,
    /// It is finished; this many bytes belong to it, the rest is text again.
    Done(usize),
    /// Like `Done`, and an error was reported.
    Broken(usize),
    /// Like `Done`, and those bytes include the close marker of the block around the calls.
    Closed(usize),
    /// Like `Done`, but there was no call: the body has emitted its input as text.
    Text(usize),
    /// It is not a call after all: held text goes back as text, and parsing continues as text after this many
    /// bytes, which the body has already held.
    Fail(usize),
}

impl Step {
    /// Counts from `pos` bytes earlier.
    pub(crate) fn after(self, pos: usize) -> Self {
        match self {
            Self::More => Self::More,
            Self::Done(used) => Self::Done(pos + used),
            Self::Broken(used) => Self::Broken(pos + used),
            Self::Closed(used) => Self::Closed(pos + used),
            Self::Text(used) => Self::Text(pos + used),
            Self::Fail(used) => Self::Fail(pos + used),
        }
    }
}

/// Where a body emits its results.
pub(crate) struct Out<'a> {
    pub(crate) sink: &'a mut dyn Sink,
    pub(crate) tools: &'a Tools,
    /// The text since the marker, including it, while no call is started.
    pub(crate) held: &'a mut HeldText,
    /// The index of the next call.
    pub(crate) next_index: &'a mut u32,
    /// Whether text outside calls is reasoning.
    pub(crate) reasoning: bool,
}

/// Held-back text, and where it began in the input.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldText {
    pub(crate) text: String,
    pub(crate) start: u64,
    /// Whether a limit was reached; reported once, instead of a malformed call.
    pub(crate) limit: bool,
    /// What a body read although it was not its own, and where it began: it is parsed again.
    pub(crate) again: String,
    pub(crate) again_start: u64,
    /// Whether the close marker of the block came before that.
    pub(crate) closed: bool,
    /// Up to where the input has been in doubt and was confirmed.
    pub(crate) settled: u64,
}

impl HeldText {
    /// Holds a piece that is at `at`; tells whether there was room for it.
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

    /// Keeps text that is to be parsed again after the body; more of it follows directly.
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

    /// Emits text around the calls of a body, which ends at `end`; before the first call it has the kind of
    /// the text before the body.
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

/// A call grammar.
pub(crate) trait Body {
    /// Reads text that only continues streamed arguments, if that is all it does.
    ///
    /// This is the common case, and skips everything that a change of state needs.
    #[inline]
    fn pass(&mut self, _text: &str, _at: u64, _sink: &mut dyn Sink) -> bool {
        false
    }

    /// Reads the next text, which is at `at` in the input.
    fn push(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Step;

    /// Tells whether the next text is inside a value, where message markers are quoted.
    fn quotes(&self) -> bool {
        false
    }

    /// Ends the stream inside the body: an open call is closed, and what is missing is reported.
    ///
    /// What is still held afterwards goes back as text.
    fn finish(&mut self, at: u64, out: &mut Out<'_>);
}
