//! The interface of all stream parsers.
//!
//! [`Parser`] and [`Document`] implement it, and other types can: [`face::Events`](crate::face::Events) turns
//! any of them into an asynchronous stream, and
//! [`LegacyToolCallAdapter`](crate::toolcall::LegacyToolCallAdapter) turns their calls into envelopes.

use crate::dialect::Parser;
use crate::document::{Document, Found};
use crate::error::ParserError;
use crate::event::{ErrorKind, Event, Sink};
use crate::json::{ErrorKind as JsonErrorKind, JsonError};
use crate::utf8;

/// Parses one stream, piece by piece.
///
/// The events must not depend on how the bytes are chunked. An error is for input that cannot be parsed at
/// all, and is permanent: later pushes fail again. Every other problem is an event.
pub trait StreamParser {
    /// Parses the next bytes, chunked anywhere.
    fn push(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> Result<(), ParserError>;

    /// Ends the stream: held-back text is emitted, and open calls are closed.
    fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), ParserError>;
}

/// Its methods never return an error.
impl StreamParser for Parser {
    #[inline]
    fn push(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> Result<(), ParserError> {
        Parser::push(self, bytes, sink);
        Ok(())
    }

    fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), ParserError> {
        Parser::finish(self, sink);
        Ok(())
    }
}

impl<P: StreamParser + ?Sized> StreamParser for Box<P> {
    fn push(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> Result<(), ParserError> {
        (**self).push(bytes, sink)
    }

    fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), ParserError> {
        (**self).finish(sink)
    }
}

/// Parses a document as a stream: the text outside its calls is [`Event::Text`], byte for byte.
#[derive(Debug)]
pub struct DocumentParser {
    document: Document,
    utf8: utf8::Decoder,
    done: bool,
    offset: u64,
    failed: Option<JsonError>,
}

impl DocumentParser {
    /// Creates a parser that reads a document from its beginning.
    pub fn new(document: Document) -> Self {
        let utf8 = utf8::Decoder::default();
        Self { document, utf8, done: false, offset: 0, failed: None }
    }

    fn text(&mut self, piece: &utf8::Piece<'_>, sink: &mut dyn Sink) {
        let text = piece.as_str();
        let at = self.offset;
        self.offset += text.len() as u64;
        if self.failed.is_some() {
            return;
        }
        if let utf8::Piece::Invalid(_) = piece {
            let detail = "bytes that are not UTF-8";
            let error = Event::Error { kind: ErrorKind::InvalidUtf8, detail };
            sink.event(error, at..self.offset);
        }
        let mut used = 0;
        if !self.done {
            match self.document.push(text, |found, range| give(found, range, sink)) {
                Ok(progress) => (self.done, used) = (progress.done, progress.consumed),
                Err(error) => return self.failed = Some(error),
            }
        }
        // Only blanks may follow a document.
        let rest = text[used..].trim_start_matches([' ', '\n', '\r', '\t']);
        if self.done && !rest.is_empty() {
            let offset = self.offset - rest.len() as u64;
            self.failed = Some(JsonError { kind: JsonErrorKind::Unexpected, offset });
        }
    }
}

fn give(found: Found<'_>, range: std::ops::Range<u64>, sink: &mut dyn Sink) {
    match found {
        Found::Outside(text) => sink.event(Event::Text(text), range),
        Found::Call(event) => sink.event(event, range),
        Found::Json(_) | Found::At(_) => {}
    }
}

impl StreamParser for DocumentParser {
    fn push(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> Result<(), ParserError> {
        let mut utf8 = std::mem::take(&mut self.utf8);
        utf8.push(bytes, |piece| self.text(&piece, sink));
        self.utf8 = utf8;
        self.failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), ParserError> {
        let mut utf8 = std::mem::take(&mut self.utf8);
        utf8.finish(|piece| self.text(&piece, sink));
        let ended = self.document.finish(|found, range| give(found, range, sink));
        self.failed.map_or(ended, Err).map_err(ParserError::from)
    }
}
