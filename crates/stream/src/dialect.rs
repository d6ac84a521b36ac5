//! All formats in which models write reasoning, answers and calls, parsed into the same events.
//!
//! A [`Format`] is one entry of the table. A [`Dialect`] is a format prepared with options and the tools that
//! a model may call; it is cheap to clone. A [`Parser`] reads one stream: push bytes as they arrive, then
//! finish. The events do not depend on how the input is chunked.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;

use crate::document::Path;
use crate::error::ParserError;
use crate::event::{ErrorKind, Event, Sink};
use crate::utf8;

pub use crate::dialect::detect::{Detection, detect};
pub use crate::dialect::tools::{Tools, ToolsError};
pub use crate::json::DEPTH_MAX;

pub mod blocks;
mod body;
mod code;
mod detect;
mod ends;
mod envelope;
mod fence;
mod gemma;
pub mod harmony;
mod head;
pub(crate) mod json_calls;
mod legacy;
pub(crate) mod lexical;
mod literal;
mod machine;
mod markers;
mod messages;
mod muse;
mod nested;
#[cfg(test)]
mod play;
mod python;
mod react;
mod rest;
mod spec;
mod table;
mod tag;
mod tagged;
mod tools;
#[cfg(test)]
mod trial;
mod value;

/// Longest name of a tool, key or id, in bytes.
pub const NAME_BYTES_MAX: usize = 4096;

/// How many bytes are held back at most until their meaning is known.
pub const HELD_BYTES_MAX: usize = 1 << 20;

/// How to parse a stream, where a format leaves a choice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Options {
    /// The prompt has already opened the reasoning.
    pub start_in_reasoning: bool,
    /// A call inside unclosed reasoning ends the reasoning.
    pub tool_call_ends_reasoning: bool,
    /// A prefix that tags may have, such as `ns:`.
    pub namespace: Option<String>,
    /// A suffix that tokens may have, such as `:opensource`.
    pub token_suffix: Option<String>,
    /// The name of an alternative way to mark reasoning.
    pub reasoning: Option<String>,
    /// A Python list of calls may begin in the middle of text.
    pub pythonic_anywhere: bool,
    /// Reasoning begins only before any other text; later its mark is text.
    pub reasoning_at_start: bool,
    /// Where calls are in JSON documents, instead of the default paths; see [`Path`].
    pub paths: Vec<Path>,
    /// Calls inside the arguments of ToolCall_V2 calls are additional calls.
    pub calls_in_arguments: bool,
}

impl Options {
    /// Parses options from a JSON object; also returns the names of unknown ones.
    pub fn from_json(json: &str) -> Result<(Self, Vec<String>), ParserError> {
        let given: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json)?;
        let unknown = given.keys().filter(|name| !OPTIONS.contains(&name.as_str())).cloned();
        let unknown = unknown.collect();
        Ok((serde_json::from_value(given.into())?, unknown))
    }
}

const OPTIONS: &[&str] = &[
    "start_in_reasoning",
    "tool_call_ends_reasoning",
    "namespace",
    "token_suffix",
    "reasoning",
    "pythonic_anywhere",
    "reasoning_at_start",
    "paths",
    "calls_in_arguments",
];

/// An entry of the format table.
pub struct Format {
    name: &'static str,
    title: &'static str,
    reader: Reader,
}

/// How a format is parsed.
enum Reader {
    /// Marks in text, and what follows them.
    Text(&'static spec::Spec),
    /// An engine of its own, for formats that the table cannot describe.
    Other(fn(&Options, &Tools) -> Box<dyn Engine + Send>),
}

impl Format {
    /// Returns all formats, in the order of the table.
    pub fn all() -> &'static [Format] {
        table::FORMATS
    }

    /// Finds a format by its name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().iter().find(|format| format.name == name)
    }

    /// Returns the name by which it is selected.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Tells whether models write this format, as opposed to a provider's wire format.
    pub fn is_of_text(&self) -> bool {
        !WIRES.contains(&self.name)
    }

    /// Tells whether it reads JSON documents, in which [`Options::paths`] locate calls.
    pub fn reads_documents(&self) -> bool {
        DOCUMENTS.contains(&self.name)
    }

    /// Returns a name for people, such as in lists of formats.
    pub fn title(&self) -> &'static str {
        self.title
    }
}

/// Formats that are a provider's API.
const WIRES: &[&str] =
    &["openai_chat", "openai_chat_legacy", "openai_responses", "anthropic", "gemini"];

/// Formats that are, or may be, JSON documents with calls inside.
const DOCUMENTS: &[&str] = &["auto", "legacy", "legacy_json", "toolcall_v2"];

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A format prepared with options and tools; cheap to clone.
#[derive(Clone, Debug)]
pub struct Dialect {
    format: &'static Format,
    ready: Ready,
}

#[derive(Clone, Debug)]
enum Ready {
    Text(Arc<spec::Compiled>),
    Other(Arc<(Options, Tools)>, fn(&Options, &Tools) -> Box<dyn Engine + Send>),
}

impl Dialect {
    /// Prepares a format for parsing with these options and tools.
    pub fn new(format: &'static Format, options: &Options, tools: &Tools) -> Self {
        let ready = match format.reader {
            Reader::Text(spec) => {
                Ready::Text(Arc::new(spec::Compiled::new(spec, options, tools.clone())))
            }
            Reader::Other(engine) => {
                Ready::Other(Arc::new((options.clone(), tools.clone())), engine)
            }
        };
        Self { format, ready }
    }

    /// Returns the format that was prepared.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// Creates an engine for a stream, or for the rest of one that already contained calls.
    fn engine(&self, next_index: u32) -> Box<dyn Engine + Send> {
        match &self.ready {
            Ready::Text(compiled) => {
                Box::new(machine::Machine::new(Arc::clone(compiled), next_index))
            }
            Ready::Other(given, engine) => engine(&given.0, &given.1),
        }
    }
}

/// Parses one stream: push bytes as they arrive, then finish.
pub struct Parser {
    utf8: utf8::Decoder,
    engine: Either,
    offset: u64,
}

/// The engine of a stream. The first variant is by far the most common, and avoids dynamic dispatch.
#[expect(clippy::large_enum_variant, reason = "most streams are of the large variant")]
enum Either {
    Text(machine::Machine),
    Other(Box<dyn Engine + Send>),
}

impl Parser {
    /// Creates a parser for a stream of this dialect.
    pub fn new(dialect: &Dialect) -> Self {
        let engine = match &dialect.ready {
            Ready::Text(compiled) => Either::Text(machine::Machine::new(Arc::clone(compiled), 0)),
            Ready::Other(..) => Either::Other(dialect.engine(0)),
        };
        Self { utf8: utf8::Decoder::default(), engine, offset: 0 }
    }

    /// Parses the next bytes, chunked anywhere.
    ///
    /// Invalid UTF-8 becomes U+FFFD, and counts as its three bytes in the ranges of events.
    #[inline]
    pub fn push(&mut self, bytes: &[u8], sink: &mut dyn Sink) {
        // One character of ASCII needs no validation, which would take a fifth of its time.
        if let &[byte @ ..=0x7f] = bytes
            && self.utf8.held().is_empty()
        {
            return self.push_str(char::from(byte).encode_utf8(&mut [0]), sink);
        }
        match self.utf8.whole(bytes) {
            Some(text) => self.push_str(text, sink),
            None => self.push_cut(bytes, sink),
        }
    }

    /// Handles bytes that are not, or not entirely, valid text. Out of line, since it is rare.
    #[cold]
    fn push_cut(&mut self, bytes: &[u8], sink: &mut dyn Sink) {
        let Self { utf8, engine, offset } = self;
        utf8.push(bytes, |piece| give(engine, offset, piece, sink));
    }

    /// Parses the next text. Do not mix it with bytes that end inside a character.
    #[inline]
    pub fn push_str(&mut self, text: &str, sink: &mut dyn Sink) {
        let at = self.offset;
        self.offset += text.len() as u64;
        self.engine.push(text, at, sink);
    }

    /// Returns the detected format of the stream, if it had to be detected.
    pub fn detected(&self) -> Option<Detection> {
        match &self.engine {
            Either::Text(_) => None,
            Either::Other(engine) => engine.detected(),
        }
    }

    /// Ends the stream: held-back text is emitted, and open calls are closed.
    pub fn finish(&mut self, sink: &mut dyn Sink) {
        let Self { utf8, engine, offset } = self;
        if engine.awaits(utf8.held()) {
            // It belongs to a mark that is not shown, so the rest of the character is not shown either.
            utf8.finish(|_| invalid(*offset..*offset, sink));
        }
        utf8.finish(|piece| give(engine, offset, piece, sink));
        self.engine.finish(self.offset, sink);
    }
}

impl fmt::Debug for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parser").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl Either {
    #[inline]
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        match self {
            Self::Text(machine) => machine.push(text, at, sink),
            Self::Other(engine) => engine.push(text, at, sink),
        }
    }

    fn awaits(&self, half: &[u8]) -> bool {
        match self {
            Self::Text(machine) => machine.awaits(half),
            Self::Other(engine) => engine.awaits(half),
        }
    }

    fn finish(&mut self, at: u64, sink: &mut dyn Sink) {
        match self {
            Self::Text(machine) => machine.finish(at, sink),
            Self::Other(engine) => engine.finish(at, sink),
        }
    }
}

fn give(engine: &mut Either, offset: &mut u64, piece: utf8::Piece<'_>, sink: &mut dyn Sink) {
    let range = *offset..*offset + piece.as_str().len() as u64;
    *offset = range.end;
    if let utf8::Piece::Invalid(_) = piece {
        invalid(range.clone(), sink);
    }
    engine.push(piece.as_str(), range.start, sink);
}

fn invalid(range: Range<u64>, sink: &mut dyn Sink) {
    let detail = "bytes that are not UTF-8";
    sink.event(Event::Error { kind: ErrorKind::InvalidUtf8, detail }, range);
}

/// Parses the text of one stream.
pub(crate) trait Engine {
    /// Parses the next text, which is at `at` in the input.
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink);

    /// Ends the stream, which is `at` bytes long.
    fn finish(&mut self, at: u64, sink: &mut dyn Sink);

    /// Tells whether a hidden mark has begun and continues with these bytes of a character.
    fn awaits(&self, _half: &[u8]) -> bool {
        false
    }

    /// Returns the detected format of the stream, if it had to be detected.
    fn detected(&self) -> Option<Detection> {
        None
    }
}
