//! Decodes a Chat Completions answer into the events of the Responses API.
//!
//! The wire engine finds text, reasoning and calls in the chunks; here they become items. An item ends where
//! the next one begins, or with the answer, and complete items are emitted in the order in which the model
//! began them: in this API calls end last, whatever follows them.
//!
//! Servers that do not know a model's call format leave calls in the text. With a dialect, the text is parsed
//! again, and the calls found there are added to the others.
//!
//! An answer is complete when the provider sends `[DONE]` or a finish reason. A stream that ends without
//! either broke off, and only its complete items are kept.

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
use crate::wire::{Chat, FrameResult, Listener};

mod items;

/// Size limit of all items of one answer: the same as for one event.
pub const ANSWER_BYTES_MAX: usize = EVENT_BYTES_MAX;

/// How to decode the answers of an endpoint; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// How the model writes calls in its text, for servers that leave them there.
    pub dialect: Option<Dialect>,
    /// Tools that take free text in their only argument, `input`.
    pub custom: Arc<[String]>,
}

/// Decodes one answer, incrementally.
#[derive(Debug)]
pub struct Decoder {
    utf8: utf8::Decoder,
    wire: Chat,
    offset: u64,
    answer: Answer,
}

impl Decoder {
    /// Creates a decoder for one answer.
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

    /// Decodes the next bytes and appends the events they complete.
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

    /// Ends the stream, and appends the events that complete or fail the answer.
    pub fn finish(&mut self, events: &mut Vec<StreamEvent>) {
        let Self { utf8, wire, offset, answer } = self;
        let mut listening = Listening { answer, events };
        utf8.finish(|piece| wire.push_to(piece.as_str(), *offset, &mut listening));
        wire.finish_to(*offset, &mut listening);
        answer.finish(events);
    }

    /// Returns how many events could not be parsed, for error messages about a broken stream.
    pub fn unreadable(&self) -> u64 {
        self.answer.unreadable
    }

    /// Returns how many events of any kind have arrived; keep-alives do not count.
    pub fn frames(&self) -> u64 {
        self.answer.frames
    }
}

#[derive(Debug)]
struct Answer {
    /// Parses the text, until the model has stopped.
    parser: Option<Parser>,
    items: Items,
    usage: Usage,
    has_begun: bool,
    /// The provider reported a normal stop.
    has_stopped: bool,
    /// It is complete, or has failed: nothing more is emitted.
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
    fn on_frame(&mut self, result: FrameResult) {
        let Self { answer, events } = self;
        answer.frames += 1;
        match result {
            FrameResult::Read => answer.begin(events),
            FrameResult::Done => {
                answer.begin(events);
                answer.complete(events);
            }
            FrameResult::Unreadable => {
                answer.unreadable += 1;
                if !answer.is_over {
                    events.push(StreamEvent::Unreadable);
                }
            }
            FrameResult::TooLong => answer.too_long = true,
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

    /// Ends the text: what the dialect has held back is emitted.
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
                // The text so far is all there will be.
                self.items.close(events);
                failure::incomplete(Some("max_output_tokens"))
            }
            FinishReason::ContentFilter => failure::incomplete(Some("content_filter")),
            FinishReason::Error => failure::classify(&WireError::default()),
            // The server gave up, in the terms of vLLM and DeepSeek.
            FinishReason::Other(word @ ("abort" | "insufficient_system_resource")) => {
                let message = Some(word.to_owned());
                failure::classify(&WireError { message, ..WireError::default() })
            }
            // Token counts may still arrive, so this is not the end yet.
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

/// Classifies a provider's error: an error object, or only a text.
fn upstream(detail: &str) -> SampleError {
    let error = match WireError::read(detail) {
        Ok(error) if error != WireError::default() => error,
        // An object in an unknown form is still better than nothing.
        _ => WireError { message: Some(detail.to_owned()), ..WireError::default() },
    };
    failure::classify(&error)
}

#[cfg(test)]
mod tests;
