//! Documents with calls inside, in the middle of text: the calls become calls, the rest stays text.
//!
//! A document begins with a bracket followed by something that JSON allows there. If it is not JSON after
//! all, it is text from there on. ToolCall_V2 is parsed like this: `docs/parser.md` has its definition.

use std::ops::Range;
use std::sync::Arc;

use crate::dialect::Options;
use crate::dialect::body::{Body, Out, Step};
use crate::dialect::rest::Rest;
use crate::document::{Document, Found, Path};
use crate::event::{ErrorKind, Event, Sink};
use crate::json;

/// Where calls are in documents, and whether calls in arguments count; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    paths: Arc<[Path]>,
    calls_in_arguments: bool,
}

impl Lookup {
    /// Takes the paths of the options, or these defaults.
    pub(crate) fn new(options: &Options, usual: fn() -> Vec<Path>) -> Self {
        let paths = match options.paths.is_empty() {
            true => usual(),
            false => options.paths.clone(),
        };
        Self { paths: paths.into(), calls_in_arguments: options.calls_in_arguments }
    }

    /// Creates a reader for one document.
    pub(crate) fn document(&self, next_index: u32) -> Document {
        let document = Document::new(Arc::clone(&self.paths), next_index);
        match self.calls_in_arguments {
            true => document.with_calls_in_arguments(),
            false => document,
        }
    }
}

/// Parses one document in text, as the body of a mark.
pub(crate) struct Enveloped {
    lookup: Lookup,
    reading: Option<Reading>,
}

struct Reading {
    document: Document,
    rest: Rest,
    /// Where the document begins.
    base: u64,
    has_call: bool,
    /// Whether its truncation was reported.
    truncated: bool,
}

impl Enveloped {
    pub(crate) fn new(lookup: Lookup) -> Self {
        Self { lookup, reading: None }
    }
}

impl Reading {
    fn new(lookup: &Lookup, next_index: u32, base: u64) -> Self {
        Self {
            document: lookup.document(next_index),
            rest: Rest::default(),
            base,
            has_call: false,
            truncated: false,
        }
    }

    fn push(&mut self, text: &str, out: &mut Out<'_>) -> Result<json::Progress, json::JsonError> {
        let Self { document, rest, base, has_call, truncated } = self;
        let mut taker = Taker { rest, base: *base, has_call, truncated, out };
        let read = document.push(text, |found, range| taker.take(found, range));
        *out.next_index = document.next_index();
        read
    }

    /// Ends the document, whether complete or not; pending text is emitted.
    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        let Self { document, rest, base, has_call, truncated } = self;
        let mut taker = Taker { rest, base: *base, has_call, truncated, out };
        // Truncation is reported below, or it is text.
        let _ = document.finish(|found, range| taker.take(found, range));
        taker.finish(at);
        *out.next_index = document.next_index();
    }
}

/// Takes what is found in a document: calls are passed through, the rest becomes text.
struct Taker<'a, 'o> {
    rest: &'a mut Rest,
    base: u64,
    has_call: &'a mut bool,
    truncated: &'a mut bool,
    out: &'a mut Out<'o>,
}

impl Taker<'_, '_> {
    fn take(&mut self, found: Found<'_>, range: Range<u64>) {
        let range = self.base + range.start..self.base + range.end;
        match found {
            Found::Json(event) => self.rest.event(event),
            Found::Outside(text) => {
                let Self { rest, has_call, out, .. } = self;
                rest.text(text, &mut |text| out.text(text, !**has_call, range.end));
            }
            Found::Call(event) => {
                if let Event::ToolStart { .. } = event {
                    *self.has_call = true;
                }
                *self.truncated |= matches!(event, Event::Error { kind: ErrorKind::Truncated, .. });
                self.out.event(event, range);
            }
            Found::At(path) => self.rest.call(path.len()),
        }
    }

    fn finish(&mut self, at: u64) {
        let Self { rest, has_call, out, .. } = self;
        rest.finish(&mut |text| out.text(text, !**has_call, at));
    }
}

impl Body for Enveloped {
    #[inline]
    fn pass(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> bool {
        let Some(reading) = &mut self.reading else { return false };
        reading.document.pass(text, |event| sink.event(event, at..at + text.len() as u64))
    }

    fn push(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Step {
        let mut pos = 0;
        loop {
            let (next_index, here) = (*out.next_index, at + pos as u64);
            let reading =
                self.reading.get_or_insert_with(|| Reading::new(&self.lookup, next_index, here));
            let error = match reading.push(&text[pos..], out) {
                Ok(progress) if !progress.done => return Step::More,
                Ok(progress) => return reading.step(pos + progress.consumed),
                Err(error) => error,
            };
            let place = reading.base + error.offset;
            pos = (place.saturating_sub(at) as usize).min(text.len());
            // In prose a quote may follow a brace: what ends a key there begins an object here.
            let again = reading.rest.take_object(&text[pos..]);
            let (had_call, truncated) = (reading.has_call, reading.truncated);
            reading.finish(place, out);
            // The error of an unfinished call has been reported.
            if had_call && truncated == reading.truncated {
                out.error(ErrorKind::InvalidJson, &error.to_string(), place);
            }
            let Some(again) = again else { return reading.step(pos) };
            let base = place.saturating_sub(again.len() as u64);
            let mut next = Reading::new(&self.lookup, *out.next_index, base);
            next.has_call = had_call;
            // This begins an object, which cannot fail.
            let _begun = next.push(&again, out);
            self.reading = Some(next);
        }
    }

    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        let Some(reading) = &mut self.reading else { return };
        reading.finish(at, out);
        if reading.has_call && !reading.truncated {
            out.error(ErrorKind::Truncated, "the stream ends inside a document with calls", at);
        }
    }
}

impl Reading {
    fn step(&self, used: usize) -> Step {
        if self.has_call { Step::Done(used) } else { Step::Text(used) }
    }
}
