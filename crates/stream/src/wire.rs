//! What providers send over HTTP, read into events: one engine for each provider's way.
//!
//! An answer is a sequence of frames, and a frame is one JSON object; `framing` finds them. A
//! [`Provider`] knows what its frames mean. What all have in common is said here: a frame that nobody
//! can read is an error and nothing else, an unknown one is skipped, an answer that was not streamed
//! is one large frame, token counts come once and last, and so does the news that the stream broke
//! off.
//!
//! Frames are held until they are whole, so their size is bounded; what is in them is passed on piece
//! by piece and not kept.

use std::borrow::Cow;
use std::ops::Range;

use protocol::usage::Usage;
use serde_json::value::RawValue;

use crate::dialect::Engine;
use crate::event::{ErrorKind, Event, FinishReason, Sink};
use crate::json;
use crate::wire::framing::{Frame, Frames};

mod anthropic;
mod call;
mod chat;
mod framing;
mod gemini;
mod partial_args;
mod responses;
#[cfg(test)]
mod tests;

/// Reads Chat Completions, today's and yesterday's.
pub(crate) type Chat = Wire<chat::Chat>;

/// Reads the Messages of Anthropic.
pub(crate) type Anthropic = Wire<anthropic::Anthropic>;

/// Reads what Gemini generates.
pub(crate) type Gemini = Wire<gemini::Gemini>;

/// Reads Responses.
pub(crate) type Responses = Wire<responses::Responses>;

/// Calls that one answer may have; a provider that sends more is not to be trusted with memory.
const CALLS_MAX: usize = 1024;

/// Knows what the frames of one kind of provider mean.
trait Provider {
    /// Reads one frame.
    ///
    /// A frame that is refused must not have given any event.
    fn read(&mut self, name: &str, json: &str, out: &mut Out<'_>) -> serde_json::Result<()>;

    /// Takes the closing word `[DONE]`, which most do not have.
    fn done(&mut self, _out: &mut Out<'_>) {}

    /// Ends the stream.
    fn finish(&mut self, out: &mut Out<'_>);
}

/// Reads the answer of one kind of provider.
#[derive(Debug, Default)]
pub(crate) struct Wire<P> {
    frames: Frames,
    provider: P,
    told: Told,
}

/// What was said in one stream, where it matters to what is said later.
#[derive(Debug, Default)]
struct Told {
    calls: u32,
    usage: Option<Usage>,
    truncated: bool,
    failed: bool,
    finished: bool,
}

/// Where a provider says what it found.
struct Out<'a> {
    sink: &'a mut dyn Sink,
    range: Range<u64>,
    told: &'a mut Told,
}

/// What became of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It was read, whether it said anything or not.
    Read,
    /// It is not what the provider should send.
    Unreadable,
    /// It was the closing word.
    Done,
    /// It is longer than can be held; nothing comes after it.
    TooLong,
}

/// Takes events, and hears of every frame once all of its events have come.
pub(crate) trait Listener: Sink {
    /// Hears what became of a frame.
    fn heard(&mut self, heard: Heard);
}

impl Chat {
    /// Takes the next text as an engine does, for somebody who wants to know of every frame.
    pub(crate) fn push_to(&mut self, text: &str, at: u64, listener: &mut impl Listener) {
        let Self { frames, provider, told } = self;
        frames.push(text, at, |frame, range| {
            let heard = read(provider, frame, &mut Out { sink: listener, range, told });
            listener.heard(heard);
        });
    }

    /// Ends the stream as an engine does, for somebody who wants to know of every frame.
    pub(crate) fn finish_to(&mut self, at: u64, listener: &mut impl Listener) {
        let Self { frames, provider, told } = self;
        frames.finish(at, |frame, range| {
            let heard = read(provider, frame, &mut Out { sink: listener, range, told });
            listener.heard(heard);
        });
        self.finish(at, listener);
    }
}

impl<P: Provider> Engine for Wire<P> {
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        let Self { frames, provider, told } = self;
        frames.push(text, at, |frame, range| {
            read(provider, frame, &mut Out { sink, range, told });
        });
    }

    fn finish(&mut self, at: u64, sink: &mut dyn Sink) {
        let Self { frames, provider, told } = self;
        frames.finish(at, |frame, range| {
            read(provider, frame, &mut Out { sink, range, told });
        });
        let mut out = Out { sink, range: at..at, told };
        provider.finish(&mut out);
        out.give_usage();
    }
}

fn read(provider: &mut impl Provider, frame: Frame<'_>, out: &mut Out<'_>) -> Heard {
    let (name, data, last) = match frame {
        Frame::Data { name, data, last } => (name, data.trim(), last),
        Frame::Cut => {
            out.truncated("the stream ended inside of a message");
            return Heard::Unreadable;
        }
        Frame::Garbage => {
            out.error(ErrorKind::InvalidJson, "there is something between the messages");
            return Heard::Unreadable;
        }
        Frame::TooLong => {
            out.error(ErrorKind::Limit, "a message of the stream is too long to be held");
            return Heard::TooLong;
        }
    };
    match data {
        "" => {}
        "[DONE]" => {
            provider.done(out);
            out.give_usage();
            return Heard::Done;
        }
        json => match provider.read(name, json, out) {
            Ok(()) => {}
            // Failures are reported by whatever breaks, and not all of it writes JSON.
            Err(_) if name == "error" => out.upstream(data),
            Err(error) => {
                match last {
                    true => out.truncated("the stream ended inside of a message"),
                    false => out.error(ErrorKind::InvalidJson, &error.to_string()),
                }
                return Heard::Unreadable;
            }
        },
    }
    Heard::Read
}

impl Out<'_> {
    fn event(&mut self, event: Event<'_>) {
        self.sink.event(event, self.range.clone());
    }

    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.event(Event::Text(text));
        }
    }

    fn reasoning(&mut self, text: &str) {
        if !text.is_empty() {
            self.event(Event::Reasoning(text));
        }
    }

    fn signature(&mut self, text: &str) {
        if !text.is_empty() {
            self.event(Event::ReasoningSignature(text));
        }
    }

    fn refusal(&mut self, text: &str) {
        if !text.is_empty() {
            self.event(Event::Refusal(text));
        }
    }

    fn error(&mut self, kind: ErrorKind, detail: &str) {
        self.event(Event::Error { kind, detail });
    }

    /// Says that the stream broke off; that is one fact, whatever it broke.
    fn truncated(&mut self, detail: &str) {
        if !self.told.truncated {
            self.told.truncated = true;
            self.error(ErrorKind::Truncated, detail);
        }
    }

    /// Says what the provider said about its failure.
    fn upstream(&mut self, detail: &str) {
        self.told.failed = true;
        self.error(ErrorKind::Upstream, detail);
    }

    /// Says why the model stopped; only the first reason is one.
    fn finish(&mut self, reason: FinishReason<'_>) {
        if !self.told.finished {
            self.told.finished = true;
            self.event(Event::Finish(reason));
        }
    }

    /// Returns why a model stopped of its own will: most providers do not tell a call from an answer.
    fn stopped(&self) -> FinishReason<'static> {
        if self.told.calls > 0 { FinishReason::ToolCalls } else { FinishReason::Stop }
    }

    /// Says that a stream without its last word broke off, unless it is known why.
    fn finish_without_last_word(&mut self) {
        if !self.told.finished && !self.told.failed {
            self.truncated("the stream ended before the answer did");
        }
    }

    fn give_usage(&mut self) {
        if let Some(usage) = self.told.usage.take() {
            self.event(Event::Usage(usage));
        }
    }

    fn next_index(&mut self) -> u32 {
        let index = self.told.calls;
        self.told.calls = index.saturating_add(1);
        index
    }
}

/// Reads a string; whatever else it is counts as nothing.
fn text(raw: Option<&RawValue>) -> Cow<'_, str> {
    let json = raw.map_or("", RawValue::get);
    let Some(inner) = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return Cow::Borrowed("");
    };
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    // Half a surrogate pair is no reason to lose a piece of an answer.
    Cow::Owned(serde_json::from_str(json).unwrap_or_else(|_| json::unescape(inner)))
}

/// Reads a name or an id; some write ids as numbers.
fn word(raw: Option<&RawValue>) -> Cow<'_, str> {
    match raw.map_or("", RawValue::get) {
        json if json.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => Cow::Borrowed(json),
        _ => text(raw),
    }
}

/// Reads arguments: a string holds their text, anything else is their text.
fn arguments(raw: Option<&RawValue>) -> Cow<'_, str> {
    match raw.map_or("", RawValue::get) {
        "null" => Cow::Borrowed(""),
        json if json.starts_with('"') => text(raw),
        json => Cow::Borrowed(json),
    }
}

/// Reads a number that counts or orders things; some write it as a string.
fn number(raw: Option<&RawValue>) -> Option<u64> {
    let json = raw?.get();
    let digits = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(json);
    digits.parse().ok().or_else(|| match digits.parse::<f64>() {
        // Some write `0.0`; the conversion saturates.
        Ok(number) if number >= 0.0 => Some(number as u64),
        _ => None,
    })
}

/// Returns what a field says about a failure, if it does: the text, or the object as it stands.
fn failure(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    match raw?.get() {
        "null" | "false" | "{}" | "\"\"" => None,
        json if json.starts_with('"') => Some(text(raw)),
        json => Some(Cow::Borrowed(json)),
    }
}

/// Reads a part of a frame for which its shape may differ: what cannot be read counts as nothing.
fn part<'a, T: serde::Deserialize<'a> + Default>(raw: Option<&'a RawValue>) -> T {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}
