//! Anthropic's Messages, and compatible endpoints.
//!
//! An answer is a list of blocks, each with a start, deltas and a stop. A delta shows its own type, so only
//! the blocks that are calls are tracked. Tools that the provider runs itself are not calls: nobody here
//! could answer them.

use protocol::usage::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::NAME_BYTES_MAX;
use crate::event::{ErrorKind, FinishReason};
use crate::wire::call::{Call, End};
use crate::wire::{CALLS_MAX, Out, Provider, arguments, failure, number, part, text, word};

/// Parses the events of one answer.
#[derive(Debug, Default)]
pub(crate) struct Anthropic {
    open: Vec<Open>,
    is_over: bool,
    usage: WireUsage,
}

#[derive(Debug)]
struct Open {
    index: Option<u64>,
    call: Call,
    /// The arguments came with the start, so deltas could only repeat them.
    is_whole: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// For an answer that was not streamed.
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    signature: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    signature: Option<&'a RawValue>,
    #[serde(borrow)]
    partial_json: Option<&'a RawValue>,
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
}

/// Counts as they arrive: with the start, and updated with the end.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

impl Provider for Anthropic {
    fn read(&mut self, name: &str, json: &str, out: &mut Out<'_>) -> serde_json::Result<()> {
        let wire: Wire<'_> = serde_json::from_str(json)?;
        let kind = text(wire.kind);
        match if kind.is_empty() { name } else { &kind } {
            "message_start" => {
                let message: Message<'_> = part(wire.message);
                self.count(message.usage, out);
            }
            "content_block_start" => self.start(&wire, out),
            "content_block_delta" => {
                if let Some(delta) = &wire.delta {
                    self.delta(number(wire.index), delta, out);
                }
            }
            "content_block_stop" => {
                if let Some(at) = self.find(number(wire.index)) {
                    self.open.remove(at).call.end(End::Said, out);
                }
            }
            "message_delta" => {
                self.count(wire.usage, out);
                self.stop(wire.delta.as_ref().and_then(|delta| delta.stop_reason), out);
            }
            "message_stop" => {
                self.end_all(End::Said, out);
                self.is_over = true;
                out.give_usage();
            }
            "message" => {
                for block in part::<Vec<Block<'_>>>(wire.content) {
                    self.block(None, &block, out);
                    self.end_all(End::Said, out);
                }
                self.count(wire.usage, out);
                self.stop(wire.stop_reason, out);
                self.is_over = true;
            }
            kind => match failure(wire.error) {
                Some(error) => out.upstream(&error),
                None if kind == "error" => out.upstream(json),
                None => {}
            },
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Out<'_>) {
        self.end_all(if self.is_over { End::Said } else { End::Cut }, out);
        if !self.is_over {
            out.finish_without_last_word();
        }
    }
}

impl Anthropic {
    fn start(&mut self, wire: &Wire<'_>, out: &mut Out<'_>) {
        let Some(raw) = wire.content_block else { return };
        let Ok(block) = serde_json::from_str(raw.get()) else {
            return out.error(ErrorKind::InvalidJson, "a block is not an object");
        };
        let index = number(wire.index);
        // A block that begins in place of another one ends it.
        if index.is_some()
            && let Some(at) = self.find(index)
        {
            self.open.remove(at).call.end(End::Said, out);
        }
        self.block(index, &block, out);
    }

    fn block(&mut self, index: Option<u64>, block: &Block<'_>, out: &mut Out<'_>) {
        match &*text(block.kind) {
            "text" => out.text(&text(block.text)),
            "thinking" => {
                out.reasoning(&text(block.thinking));
                out.signature(&text(block.signature));
            }
            "redacted_thinking" => out.signature(&text(block.data)),
            "tool_use" => self.call(index, block, out),
            _ => {}
        }
    }

    fn call(&mut self, index: Option<u64>, block: &Block<'_>, out: &mut Out<'_>) {
        let (name, id) = (text(block.name), word(block.id));
        if name.is_empty() {
            return out.error(ErrorKind::MalformedCall, "a call has no name");
        }
        if name.len() > NAME_BYTES_MAX || id.len() > NAME_BYTES_MAX || self.open.len() >= CALLS_MAX
        {
            return out.error(ErrorKind::Limit, "a call is too long, or there are too many");
        }
        let mut call = Call::start(&name, (!id.is_empty()).then_some(&*id), None, out);
        let input = arguments(block.input);
        // An empty object stands for what the deltas will contain.
        let is_whole = input.chars().any(|c| !matches!(c, '{' | '}') && !c.is_whitespace());
        if is_whole {
            call.args(&input, out);
        }
        self.open.push(Open { index, call, is_whole });
    }

    fn delta(&mut self, index: Option<u64>, delta: &Delta<'_>, out: &mut Out<'_>) {
        match &*text(delta.kind) {
            "text_delta" => out.text(&text(delta.text)),
            "thinking_delta" => out.reasoning(&text(delta.thinking)),
            "signature_delta" => out.signature(&text(delta.signature)),
            "input_json_delta" => {
                if let Some(at) = self.find(index)
                    && let Some(open) = self.open.get_mut(at)
                    && !open.is_whole
                {
                    open.call.args(&arguments(delta.partial_json), out);
                }
            }
            _ => {}
        }
    }

    fn stop(&mut self, reason: Option<&RawValue>, out: &mut Out<'_>) {
        let reason = text(reason);
        let reason = match &*reason {
            "" => return,
            "end_turn" | "stop_sequence" => None,
            "tool_use" => Some(FinishReason::ToolCalls),
            "max_tokens" | "model_context_window_exceeded" => Some(FinishReason::Length),
            "refusal" => Some(FinishReason::ContentFilter),
            word => Some(FinishReason::Other(word)),
        };
        let cut = matches!(reason, Some(FinishReason::Length | FinishReason::ContentFilter));
        self.end_all(if cut { End::Cut } else { End::Said }, out);
        out.finish(reason.unwrap_or_else(|| out.stopped()));
    }

    /// Finds the call of a block; without an index, the last one is meant.
    fn find(&self, index: Option<u64>) -> Option<usize> {
        match index {
            Some(_) => self.open.iter().rposition(|open| open.index == index),
            None => self.open.len().checked_sub(1),
        }
    }

    fn end_all(&mut self, end: End, out: &mut Out<'_>) {
        self.open.drain(..).for_each(|open| open.call.end(end, out));
    }

    fn count(&mut self, raw: Option<&RawValue>, out: &mut Out<'_>) {
        let Some(raw) = raw else { return };
        let new: WireUsage = part(Some(raw));
        let usage = &mut self.usage;
        usage.input_tokens = new.input_tokens.or(usage.input_tokens);
        usage.cache_read_input_tokens =
            new.cache_read_input_tokens.or(usage.cache_read_input_tokens);
        usage.cache_creation_input_tokens =
            new.cache_creation_input_tokens.or(usage.cache_creation_input_tokens);
        usage.output_tokens = new.output_tokens.or(usage.output_tokens);
        out.reported.usage = Some((*usage).into());
    }
}

impl From<WireUsage> for Usage {
    /// Cached tokens are not among the input tokens here, but are in ours.
    fn from(wire: WireUsage) -> Self {
        let cached = wire.cache_read_input_tokens.unwrap_or_default();
        let written = wire.cache_creation_input_tokens.unwrap_or_default();
        Self {
            input_tokens: wire
                .input_tokens
                .unwrap_or_default()
                .saturating_add(cached)
                .saturating_add(written),
            cached_input_tokens: cached,
            cache_write_input_tokens: written,
            output_tokens: wire.output_tokens.unwrap_or_default(),
            reasoning_output_tokens: 0,
        }
    }
}
