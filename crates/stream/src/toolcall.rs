//! ToolCall_V2: one format for calls, and an adapter that rewrites all others in it.
//!
//! ```text
//! {"ToolCall_V2": {"name": "search", "arguments": {"q": "x"}, "id": "7"}}
//! ```
//!
//! There is no public definition of ToolCall_V2. This one is a proposal: an object with one key, whose value has
//! the `name` of a tool, its `arguments` as any JSON value or as the text of one, and optionally an `id`, in any
//! order. `docs/parser.md` describes what it means in text and in documents.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::dialect::{Dialect, Format, Options, Parser, Tools};
use crate::document::{Document, ENVELOPE, Found, Path};
use crate::error::ParserError;
use crate::escape;
use crate::event::{ErrorKind, Event, Sink};
use crate::json;
use crate::parser::StreamParser;

/// A complete call, in the format ToolCall_V2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ToolCallV2 {
    /// The name of the tool.
    pub name: String,
    /// The text of the arguments, as written; empty if there are none.
    pub arguments: String,
    /// The id that its output refers to.
    pub id: Option<String>,
}

impl ToolCallV2 {
    /// Serializes it as an envelope, which parses back to the same call.
    pub fn to_json(&self) -> String {
        let mut json = format!("{{\"{ENVELOPE}\":{{\"name\":");
        quote(&self.name, &mut json);
        if !self.arguments.is_empty() {
            json.push_str(",\"arguments\":");
            match self.stands_for_itself() {
                true => json.push_str(&self.arguments),
                false => quote(&self.arguments, &mut json),
            }
        }
        if let Some(id) = &self.id {
            json.push_str(",\"id\":");
            quote(id, &mut json);
        }
        json.push_str("}}");
        json
    }

    /// Tells whether the arguments can be written without quotes: a string would be indistinguishable from
    /// text that is not JSON, and blanks around a value are not part of it.
    fn stands_for_itself(&self) -> bool {
        let blank = |c| matches!(c, ' ' | '\n' | '\r' | '\t');
        if self.arguments.starts_with(['"', ' ', '\n', '\r', '\t'])
            || self.arguments.ends_with(blank)
        {
            return false;
        }
        let mut reader = json::Reader::default();
        let whole = reader.push(&self.arguments, |_| ());
        whole.is_ok_and(|progress| progress.consumed == self.arguments.len())
            && reader.finish(|_| ()).is_ok()
    }
}

fn quote(text: &str, json: &mut String) {
    json.push('"');
    escape::escape(text, |piece| json.push_str(piece));
    json.push('"');
}

/// Formats the call as an envelope, like [`ToolCallV2::to_json`].
impl fmt::Display for ToolCallV2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

/// Parses one envelope, surrounded only by blanks.
impl FromStr for ToolCallV2 {
    type Err = ParserError;

    fn from_str(text: &str) -> Result<Self, ParserError> {
        let path = Path::parse(&format!("$.{ENVELOPE}"))?;
        let (mut document, mut calls) = (Document::new(vec![path], 0), Gathered::default());
        let (mut keys, mut wrong) = (0, None);
        let mut sink = |found: Found<'_>, _| match found {
            Found::Call(event) => {
                wrong = wrong.take().or_else(|| ParserError::from_event(&event));
                calls.take(&event);
            }
            Found::Json(json::Event::KeyStart) => keys += 1,
            _ => {}
        };
        let progress = document.push(text.trim(), &mut sink)?;
        document.finish(&mut sink)?;
        match (wrong, calls.whole.pop()) {
            (Some(error), _) => Err(error),
            (None, Some(call)) if keys == 1 && progress.consumed == text.trim().len() => Ok(call),
            (None, Some(_)) => Err(ParserError::NoEnvelope("there is something else next to it")),
            (None, None) => Err(ParserError::NoEnvelope("no call is in it")),
        }
    }
}

impl Serialize for ToolCallV2 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.to_json())
            .map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ToolCallV2 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        raw.get().parse().map_err(serde::de::Error::custom)
    }
}

/// Assembles complete calls from their events.
#[derive(Debug, Default)]
struct Gathered {
    open: BTreeMap<u32, ToolCallV2>,
    whole: Vec<ToolCallV2>,
}

impl Gathered {
    /// Takes an event; tells whether it belonged to a call.
    fn take(&mut self, event: &Event<'_>) -> bool {
        match *event {
            Event::ToolStart { index, name, id, .. } => {
                let (name, id) = (name.to_owned(), id.map(str::to_owned));
                self.open.insert(index, ToolCallV2 { name, arguments: String::new(), id });
            }
            Event::ToolId { index, id } => {
                if let Some(call) = self.open.get_mut(&index) {
                    call.id = Some(id.to_owned());
                }
            }
            Event::ToolArgs { index, text } => {
                if let Some(call) = self.open.get_mut(&index) {
                    call.arguments.push_str(text);
                }
            }
            Event::ToolEnd { index, complete } => {
                let call = self.open.remove(&index);
                self.whole.extend(call.filter(|_| complete));
            }
            _ => return false,
        }
        true
    }
}

/// The output of a [`LegacyToolCallAdapter`].
#[derive(Debug)]
pub enum Adapted<'a> {
    /// A call that is complete, with its arguments.
    Call(ToolCallV2),
    /// An error; an incomplete call is only this.
    Error(ParserError),
    /// Everything else: text, reasoning, counts.
    Other(Event<'a>),
}

/// Reads calls in any older format, and emits them as ToolCall_V2.
///
/// Arguments are kept in memory until their call is complete, up to [`ARGUMENTS_BYTES_MAX`] together.
#[derive(Debug)]
pub struct LegacyToolCallAdapter<P = Parser> {
    parser: P,
    calls: Gathered,
    bytes: usize,
}

/// Most argument bytes that an adapter holds; calls that need more are refused.
pub const ARGUMENTS_BYTES_MAX: usize = 64 << 20;

impl LegacyToolCallAdapter {
    /// Detects how the calls are written: in text, in JSON documents, or in a provider's frames.
    pub fn new(options: &Options, tools: &Tools) -> Result<Self, ParserError> {
        let format = Format::named("auto");
        let format = format.ok_or_else(|| ParserError::UnknownFormat("auto".to_owned()))?;
        Ok(Self::with_parser(Parser::new(&Dialect::new(format, options, tools))))
    }
}

impl<P: StreamParser> LegacyToolCallAdapter<P> {
    /// Adapts the calls that a parser finds.
    pub fn with_parser(parser: P) -> Self {
        Self { parser, calls: Gathered::default(), bytes: 0 }
    }

    /// Parses the next bytes, chunked anywhere.
    pub fn push(
        &mut self,
        bytes: &[u8],
        sink: &mut dyn FnMut(Adapted<'_>),
    ) -> Result<(), ParserError> {
        let Self { parser, calls, bytes: held } = self;
        parser.push(bytes, &mut Adapting { calls, held, sink })
    }

    /// Ends the stream: emits what was held back. An open call becomes an error.
    pub fn finish(&mut self, sink: &mut dyn FnMut(Adapted<'_>)) -> Result<(), ParserError> {
        let Self { parser, calls, bytes: held } = self;
        parser.finish(&mut Adapting { calls, held, sink })
    }
}

struct Adapting<'a> {
    calls: &'a mut Gathered,
    held: &'a mut usize,
    sink: &'a mut dyn FnMut(Adapted<'_>),
}

impl Sink for Adapting<'_> {
    fn event(&mut self, event: Event<'_>, _: Range<u64>) {
        if let Event::ToolArgs { index, text } = event {
            *self.held += text.len();
            if *self.held > ARGUMENTS_BYTES_MAX && self.calls.open.remove(&index).is_some() {
                let detail = "the arguments of a call grew beyond what is held".to_owned();
                let kind = ErrorKind::Limit;
                (self.sink)(Adapted::Error(ParserError::Stream { kind, detail }));
            }
        }
        if let Some(error) = ParserError::from_event(&event) {
            return (self.sink)(Adapted::Error(error));
        }
        if !self.calls.take(&event) {
            return (self.sink)(Adapted::Other(event));
        }
        if self.calls.open.is_empty() {
            *self.held = 0;
        }
        for call in self.calls.whole.drain(..) {
            (self.sink)(Adapted::Call(call));
        }
    }
}
