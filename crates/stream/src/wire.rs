//! Parses providers' HTTP answers into events, with one engine per wire format.
//!
//! An answer is a sequence of frames, and a frame is one JSON object; `framing` finds them. A [`Provider`]
//! knows what its frames mean. What all have in common is here: an unreadable frame is only an error, an
//! unknown one is skipped, an answer that was not streamed is one large frame, and token counts come once and
//! last, as does the report that the stream broke off.
//!
//! Frames are held until they are complete, so their size is limited; their content is passed on piece by
//! piece and not kept.

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

/// Parses Chat Completions, current and former.
pub(crate) type Chat = Wire<chat::Chat>;

pub(crate) type Anthropic = Wire<anthropic::Anthropic>;

pub(crate) type Gemini = Wire<gemini::Gemini>;

pub(crate) type Responses = Wire<responses::Responses>;

/// Most calls of one answer; a provider that sends more is not trusted with memory.
const CALLS_MAX: usize = 1024;

/// Knows what the frames of one kind of provider mean.
trait Provider {
    /// Reads one frame.
    ///
    /// A refused frame must not have emitted any event.
    fn read(&mut self, name: &str, json: &str, out: &mut Out<'_>) -> serde_json::Result<()>;

    /// Handles the end marker `[DONE]`, which most do not have.
    fn done(&mut self, _out: &mut Out<'_>) {}

    /// Ends the stream.
    fn finish(&mut self, out: &mut Out<'_>);
}

/// Parses the answer of one kind of provider.
#[derive(Debug, Default)]
pub(crate) struct Wire<P> {
    frames: Frames,
    provider: P,
    reported: Reported,
}

/// What was reported in one stream, where it matters later.
#[derive(Debug, Default)]
struct Reported {
    calls: u32,
    usage: Option<Usage>,
    truncated: bool,
    failed: bool,
    finished: bool,
}

/// Where a provider emits its events.
struct Out<'a> {
    sink: &'a mut dyn Sink,
    range: Range<u64>,
    reported: &'a mut Reported,
}

/// The result of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameResult {
    /// It was read, whether it contained anything or not.
    Read,
    /// It is not what the provider should send.
    Unreadable,
    /// It was the end marker.
    Done,
    /// It exceeds the size limit; nothing comes after it.
    TooLong,
}

/// Receives events, and the result of every frame after its events.
pub(crate) trait Listener: Sink {
    /// Receives the result of a frame.
    fn on_frame(&mut self, result: FrameResult);
}

impl Chat {
    /// Reads the next text like an engine, for a listener to every frame.
    pub(crate) fn push_to(&mut self, text: &str, at: u64, listener: &mut impl Listener) {
        let Self { frames, provider, reported } = self;
        frames.push(text, at, |frame, range| {
            let result = read(provider, frame, &mut Out { sink: listener, range, reported });
            listener.on_frame(result);
        });
    }

    /// Ends the stream like an engine, for a listener to every frame.
    pub(crate) fn finish_to(&mut self, at: u64, listener: &mut impl Listener) {
        let Self { frames, provider, reported } = self;
        frames.finish(at, |frame, range| {
            let result = read(provider, frame, &mut Out { sink: listener, range, reported });
            listener.on_frame(result);
        });
        self.finish(at, listener);
    }
}

impl<P: Provider> Engine for Wire<P> {
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        let Self { frames, provider, reported } = self;
        frames.push(text, at, |frame, range| {
            read(provider, frame, &mut Out { sink, range, reported });
        });
    }

    fn finish(&mut self, at: u64, sink: &mut dyn Sink) {
        let Self { frames, provider, reported } = self;
        frames.finish(at, |frame, range| {
            read(provider, frame, &mut Out { sink, range, reported });
        });
        let mut out = Out { sink, range: at..at, reported };
        provider.finish(&mut out);
        out.give_usage();
    }
}

fn read(provider: &mut impl Provider, frame: Frame<'_>, out: &mut Out<'_>) -> FrameResult {
    let (name, data, last) = match frame {
        Frame::Data { name, data, last } => (name, data.trim(), last),
        Frame::Cut => {
            out.truncated("the stream ended inside a message");
            return FrameResult::Unreadable;
        }
        Frame::Garbage => {
            out.error(ErrorKind::InvalidJson, "there is something between the messages");
            return FrameResult::Unreadable;
        }
        Frame::TooLong => {
            out.error(ErrorKind::Limit, "a message of the stream is too long to be held");
            return FrameResult::TooLong;
        }
    };
    match data {
        "" => {}
        "[DONE]" => {
            provider.done(out);
            out.give_usage();
            return FrameResult::Done;
        }
        json => match provider.read(name, json, out) {
            Ok(()) => {}
            // Failures are reported by whatever breaks, and not all of it writes JSON.
            Err(_) if name == "error" => out.upstream(data),
            Err(error) => {
                match last {
                    true => out.truncated("the stream ended inside a message"),
                    false => out.error(ErrorKind::InvalidJson, &error.to_string()),
                }
                return FrameResult::Unreadable;
            }
        },
    }
    FrameResult::Read
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

    /// Reports that the stream broke off, once, whatever was affected.
    fn truncated(&mut self, detail: &str) {
        if !self.reported.truncated {
            self.reported.truncated = true;
            self.error(ErrorKind::Truncated, detail);
        }
    }

    /// Reports a provider's error.
    fn upstream(&mut self, detail: &str) {
        self.reported.failed = true;
        self.error(ErrorKind::Upstream, detail);
    }

    /// Reports why the model stopped; only the first reason counts.
    fn finish(&mut self, reason: FinishReason<'_>) {
        if !self.reported.finished {
            self.reported.finished = true;
            self.event(Event::Finish(reason));
        }
    }

    /// Returns the reason for a normal stop: most providers do not distinguish a call from an answer.
    fn stopped(&self) -> FinishReason<'static> {
        if self.reported.calls > 0 { FinishReason::ToolCalls } else { FinishReason::Stop }
    }

    /// Reports that a stream without its end marker broke off, unless the reason is known.
    fn finish_without_last_word(&mut self) {
        if !self.reported.finished && !self.reported.failed {
            self.truncated("the stream ended before the answer did");
        }
    }

    fn give_usage(&mut self) {
        if let Some(usage) = self.reported.usage.take() {
            self.event(Event::Usage(usage));
        }
    }

    fn next_index(&mut self) -> u32 {
        let index = self.reported.calls;
        self.reported.calls = index.saturating_add(1);
        index
    }
}

/// Reads a string; anything else counts as empty.
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

/// Reads arguments: a string contains their text, anything else is their text.
fn arguments(raw: Option<&RawValue>) -> Cow<'_, str> {
    match raw.map_or("", RawValue::get) {
        "null" => Cow::Borrowed(""),
        json if json.starts_with('"') => text(raw),
        json => Cow::Borrowed(json),
    }
}

/// Reads a count or index; some write it as a string.
fn number(raw: Option<&RawValue>) -> Option<u64> {
    let json = raw?.get();
    let digits = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(json);
    digits.parse().ok().or_else(|| match digits.parse::<f64>() {
        // Some write `0.0`; the conversion saturates.
        Ok(number) if number >= 0.0 => Some(number as u64),
        _ => None,
    })
}

/// Returns the error in a field, if there is one: the text, or the object as written.
fn failure(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    match raw?.get() {
        "null" | "false" | "{}" | "\"\"" => None,
        json if json.starts_with('"') => Some(text(raw)),
        json => Some(Cow::Borrowed(json)),
    }
}

/// Reads a part of a frame whose form may vary: an unreadable one counts as missing.
fn part<'a, T: serde::Deserialize<'a> + Default>(raw: Option<&'a RawValue>) -> T {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}
