//! The events of a Chat Completions answer, in the form of those of the Responses API.
//!
//! The wire engine finds text, reasoning and calls in the chunks; here they become items. An item
//! ends where the next one begins, or where the answer does, and whole items are given in the order
//! in which the model began them: in this API calls end last, whatever was said after them.
//!
//! Servers that do not know a model's way of writing calls leave them in the text. With a dialect,
//! the text is read once more, and what that finds joins what came as calls.
//!
//! An answer is complete when the provider says `[DONE]`, or why the model stopped. A stream that
//! ends without either broke off, and only what came whole is kept of it.

use std::ops::Range;
use std::sync::Arc;

use protocol::error::{ErrorClass, SampleError};
use protocol::responses::{Completion, StreamEvent};
use protocol::usage::Usage;

use crate::chat::items::{Items, Source};
use crate::dialect::{Dialect, Parser};
use crate::event::{ErrorKind, Event, FinishReason, Sink};
use crate::failure::{self, WireError};
use crate::sse::{EVENT_BYTES_MAX, EventTooLong};
use crate::utf8;
use crate::wire::{Chat, Heard, Listener};

mod items;

/// The most bytes that the items of one answer may have together: as many as one event may.
pub const ANSWER_BYTES_MAX: usize = EVENT_BYTES_MAX;

/// How the answers of an endpoint are to be read; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// How the model writes calls into its text, for servers that leave them there.
    pub dialect: Option<Dialect>,
    /// The tools that take a text: their only argument, `input`.
    pub custom: Arc<[String]>,
}

/// An incremental decoder.
#[derive(Debug)]
pub struct Decoder {
    utf8: utf8::Decoder,
    wire: Chat,
    offset: u64,
    answer: Answer,
}

impl Decoder {
    /// Makes a decoder for one answer.
    pub fn new(setup: &Setup) -> Self {
        Self {
            utf8: utf8::Decoder::default(),
            wire: Chat::default(),
            offset: 0,
            answer: Answer {
                parser: setup.dialect.as_ref().map(Parser::new),
                items: Items::new(Arc::clone(&setup.custom), ANSWER_BYTES_MAX),
                usage: Usage::default(),
                has_begun: false,
                has_stopped: false,
                is_over: false,
                frames: 0,
                unreadable: 0,
                too_long: false,
            },
        }
    }

    /// Takes the next bytes and appends the events that they complete.
    pub fn push(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), EventTooLong> {
        let Self { utf8, wire, offset, answer } = self;
        let mut listening = Listening { answer, events };
        let mut read = |text: &str| {
            wire.push_to(text, *offset, &mut listening);
            *offset += text.len() as u64;
        };
        match utf8.whole(bytes) {
            Some(text) => read(text),
            None => utf8.push(bytes, |piece| read(piece.as_str())),
        }
        if self.answer.too_long { Err(EventTooLong) } else { Ok(()) }
    }

    /// Ends the stream.
    pub fn finish(&mut self, events: &mut Vec<StreamEvent>) {
        let Self { utf8, wire, offset, answer } = self;
        let mut listening = Listening { answer, events };
        utf8.finish(|piece| wire.push_to(piece.as_str(), *offset, &mut listening));
        wire.finish_to(*offset, &mut listening);
        answer.finish(events);
    }

    /// Returns how many events could not be read; useful in the message about a stream that broke off.
    pub fn unreadable(&self) -> u64 {
        self.answer.unreadable
    }

    /// Returns how many events have come, of whatever kind; a keep-alive is none.
    pub fn frames(&self) -> u64 {
        self.answer.frames
    }
}

/// An answer, as far as it has come.
#[derive(Debug)]
struct Answer {
    /// Reads the text, until the model has stopped.
    parser: Option<Parser>,
    items: Items,
    usage: Usage,
    has_begun: bool,
    /// The provider said that the model has stopped, and that all is well.
    has_stopped: bool,
    /// It is complete, or has failed: nothing more is said.
    is_over: bool,
    frames: u64,
    unreadable: u64,
    too_long: bool,
}

/// An answer, and where its events go.
struct Listening<'a> {
    answer: &'a mut Answer,
    events: &'a mut Vec<StreamEvent>,
}

impl Sink for Listening<'_> {
    fn event(&mut self, event: Event<'_>, _range: Range<u64>) {
        let Self { answer, events } = self;
        answer.begin(events);
        if answer.is_over {
            return;
        }
        match event {
            Event::Text(text) => answer.text(text, events),
            Event::Finish(reason) => answer.stop(reason, events),
            Event::Usage(usage) => answer.usage = usage,
            Event::Error { kind: ErrorKind::Upstream, detail } => {
                answer.fail(upstream(detail), events);
            }
            event => answer.items.take(Source::Wire, event, events),
        }
        if answer.items.is_full() && !answer.is_over {
            let message = format!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
            answer.fail(SampleError::new(ErrorClass::NotAnEndpoint, message), events);
        }
    }
}

impl Listener for Listening<'_> {
    fn heard(&mut self, heard: Heard) {
        let Self { answer, events } = self;
        answer.frames += 1;
        match heard {
            Heard::Read => answer.begin(events),
            Heard::Done => {
                answer.begin(events);
                answer.complete(events);
            }
            Heard::Unreadable => {
                answer.unreadable += 1;
                if !answer.is_over {
                    events.push(StreamEvent::Unreadable);
                }
            }
            Heard::TooLong => answer.too_long = true,
        }
    }
}

impl Answer {
    fn begin(&mut self, events: &mut Vec<StreamEvent>) {
        if !self.has_begun {
            self.has_begun = true;
            events.push(StreamEvent::Created);
        }
    }

    fn text(&mut self, text: &str, events: &mut Vec<StreamEvent>) {
        let items = &mut self.items;
        match &mut self.parser {
            Some(parser) => parser.push_str(text, &mut |event: Event<'_>, _: Range<u64>| {
                items.take(Source::Text, event, events);
            }),
            None => items.take(Source::Wire, Event::Text(text), events),
        }
    }

    /// Ends the text: what the dialect has held back comes out.
    fn end_text(&mut self, events: &mut Vec<StreamEvent>) {
        let items = &mut self.items;
        if let Some(mut parser) = self.parser.take() {
            parser.finish(&mut |event: Event<'_>, _: Range<u64>| {
                items.take(Source::Text, event, events);
            });
        }
    }

    fn stop(&mut self, reason: FinishReason<'_>, events: &mut Vec<StreamEvent>) {
        self.end_text(events);
        let error = match reason {
            FinishReason::Length => {
                // What was said up to here was said, and is all that there will be.
                self.items.close(events);
                failure::incomplete(Some("max_output_tokens"))
            }
            FinishReason::ContentFilter => failure::incomplete(Some("content_filter")),
            FinishReason::Error => failure::classify(&WireError::default()),
            // The server gave up, in the words of vLLM and DeepSeek.
            FinishReason::Other(word @ ("abort" | "insufficient_system_resource")) => {
                let message = Some(word.to_owned());
                failure::classify(&WireError { message, ..WireError::default() })
            }
            // Token counts may still come, so this is not the end yet.
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other(_) => {
                self.has_stopped = true;
                return;
            }
        };
        self.fail(error, events);
    }

    fn complete(&mut self, events: &mut Vec<StreamEvent>) {
        if self.is_over {
            return;
        }
        self.end_text(events);
        self.items.complete(events);
        self.is_over = true;
        let usage = self.usage;
        events.push(StreamEvent::Completed(Completion {
            usage,
            total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
            end_turn: None,
        }));
    }

    fn fail(&mut self, error: SampleError, events: &mut Vec<StreamEvent>) {
        self.items.keep_whole(events);
        self.is_over = true;
        events.push(StreamEvent::Failed(error));
    }

    fn finish(&mut self, events: &mut Vec<StreamEvent>) {
        if self.has_stopped {
            return self.complete(events);
        }
        if !self.is_over {
            self.end_text(events);
            self.items.keep_whole(events);
        }
    }
}

/// Classifies what a provider says about its failure: an error object, or only a text.
fn upstream(detail: &str) -> SampleError {
    let error = match WireError::read(detail) {
        Ok(error) if error != WireError::default() => error,
        // An object in a form that nobody knows still says more than nothing.
        _ => WireError { message: Some(detail.to_owned()), ..WireError::default() },
    };
    failure::classify(&error)
}

#[cfg(test)]
mod tests;
