//! Chat Completions, and compatible endpoints.
//!
//! Which call a delta belongs to is the hard part. The index may be missing, or be reused for the next call;
//! the id may come with every delta, late, or new each time; the name may come in pieces or be repeated. So a
//! call begins with a name and an id other than those of the current call, or with a name after complete
//! arguments.
//!
//! The older `function_call` has neither index nor id: there is one at a time.

use std::borrow::Cow;

use protocol::usage::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::{HELD_BYTES_MAX, NAME_BYTES_MAX};
use crate::event::{ErrorKind, FinishReason};
use crate::wire::call::{Call, End};
use crate::wire::{self, CALLS_MAX, Out, Provider, arguments, failure, number, part, text, word};

/// Parses the chunks of one answer.
#[derive(Debug, Default)]
pub(crate) struct Chat {
    slots: Vec<Slot>,
    /// The call of the last delta.
    last: Option<usize>,
    /// The call that `function_call` refers to.
    legacy: Option<usize>,
    /// How many calls are not started yet.
    waiting: usize,
    /// Bytes of arguments that wait for a name, over all calls.
    held_bytes: usize,
    limit_reported: bool,
    done: bool,
}

/// A call, from the first mention.
#[derive(Debug, Default)]
struct Slot {
    index: Option<u64>,
    /// Another call had this index first, so the provider may later count by position.
    index_taken: bool,
    is_legacy: bool,
    is_free: bool,
    id: String,
    name: String,
    signature: String,
    /// Arguments that came before the name.
    held: String,
    /// Whether an unrelated part was already reported.
    extra_reported: bool,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// The name is unknown, or may be incomplete.
    #[default]
    Waiting,
    Started(Call),
    /// It ended, or was given up.
    Over,
}

/// What a delta says about a call.
struct Entry<'a> {
    index: Option<u64>,
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    arguments: Cow<'a, str>,
    signature: Cow<'a, str>,
    is_free: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    /// In place of `delta` if the answer was not streamed.
    #[serde(borrow)]
    message: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// From the time before messages.
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_details: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    function_call: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
}

/// A part of a content list, or of reasoning details.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Part<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    signature: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolCall<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
    #[serde(borrow)]
    custom: Option<Custom<'a>>,
    #[serde(borrow)]
    extra_content: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Custom<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// Where Gemini, through this API, puts the signature of a call.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Extra<'a> {
    #[serde(borrow)]
    google: Option<Google<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Google<'a> {
    #[serde(borrow)]
    thought_signature: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

impl Provider for Chat {
    fn read(&mut self, name: &str, json: &str, out: &mut Out<'_>) -> serde_json::Result<()> {
        let chunk: Chunk<'_> = serde_json::from_str(json)?;
        if let Some(error) = failure(chunk.error) {
            out.upstream(&error);
        } else if name == "error"
            || text(chunk.object) == "error"
            || text(chunk.kind) == "error"
            || chunk.choices.is_none() && !text(chunk.message).is_empty()
        {
            out.upstream(json);
        }
        for choice in chunk.choices.iter().flatten() {
            if number(choice.index).unwrap_or_default() == 0 {
                self.choice(choice, out);
            }
        }
        if let Some(usage) = chunk.usage
            && let Ok(usage) = serde_json::from_str::<WireUsage>(usage.get())
        {
            out.reported.usage = Some(usage.into());
        }
        Ok(())
    }

    fn done(&mut self, out: &mut Out<'_>) {
        self.done = true;
        self.end_all(End::Said, out);
    }

    fn finish(&mut self, out: &mut Out<'_>) {
        let end = if self.done || out.reported.finished { End::Said } else { End::Cut };
        self.end_all(end, out);
    }
}

impl Chat {
    fn choice(&mut self, choice: &Choice<'_>, out: &mut Out<'_>) {
        if let Some(error) = failure(choice.error) {
            out.upstream(&error);
        }
        let said = text(choice.text);
        if !said.is_empty() {
            self.start_waiting(out);
            out.text(&said);
        }
        if let Some(delta) = choice.delta.as_ref().or(choice.message.as_ref()) {
            self.delta(delta, out);
        }
        let reason = text(choice.finish_reason);
        if reason.is_empty() {
            return;
        }
        let reason = match &*reason {
            "stop" | "end_turn" | "eos" | "eos_token" | "stop_sequence" => None,
            "tool_calls" | "function_call" => Some(FinishReason::ToolCalls),
            "length" | "max_tokens" => Some(FinishReason::Length),
            "content_filter" => Some(FinishReason::ContentFilter),
            "error" => Some(FinishReason::Error),
            word => Some(FinishReason::Other(word)),
        };
        use FinishReason::{ContentFilter, Error, Length};
        let cut = matches!(reason, Some(Length | ContentFilter | Error));
        self.end_all(if cut { End::Cut } else { End::Said }, out);
        out.finish(reason.unwrap_or_else(|| out.stopped()));
    }

    fn delta(&mut self, delta: &Delta<'_>, out: &mut Out<'_>) {
        self.reasoning(delta, out);
        match delta.content.map(RawValue::get) {
            Some(json) if json.starts_with('[') => self.parts(delta.content, out),
            _ => {
                let said = text(delta.content);
                if !said.is_empty() {
                    self.start_waiting(out);
                    out.text(&said);
                }
            }
        }
        let refusal = text(delta.refusal);
        if !refusal.is_empty() {
            self.start_waiting(out);
            out.refusal(&refusal);
        }
        let calls = match delta.tool_calls {
            None => Vec::new(),
            Some(raw) => serde_json::from_str(raw.get()).unwrap_or_else(|_| {
                out.error(ErrorKind::MalformedCall, raw.get());
                Vec::<ToolCall<'_>>::new()
            }),
        };
        if let Some(raw) = delta.function_call {
            let Function { name, arguments } = part(Some(raw));
            self.function_call(&text(name), &wire::arguments(arguments), &calls, out);
        }
        for (position, call) in calls.iter().enumerate() {
            let entry = Entry::from(call);
            self.tool_call(entry, (calls.len() > 1).then_some(position as u64), out);
        }
    }

    /// Some send the same reasoning in two fields, some in a third one with more details.
    fn reasoning(&mut self, delta: &Delta<'_>, out: &mut Out<'_>) {
        let (first, second) = (text(delta.reasoning_content), text(delta.reasoning));
        let again = first == second;
        let details: Vec<Part<'_>> = part(delta.reasoning_details);
        if !first.is_empty() || !second.is_empty() || !details.is_empty() {
            self.start_waiting(out);
        }
        out.reasoning(&first);
        if !again {
            out.reasoning(&second);
        }
        for detail in &details {
            if first.is_empty() && second.is_empty() {
                out.reasoning(&text(detail.text));
                out.reasoning(&text(detail.summary));
            }
            out.signature(&text(detail.signature));
            out.signature(&text(detail.data));
        }
    }

    fn parts(&mut self, content: Option<&RawValue>, out: &mut Out<'_>) {
        let parts: Vec<Part<'_>> = part(content);
        if !parts.is_empty() {
            self.start_waiting(out);
        }
        for item in &parts {
            match &*text(item.kind) {
                "thinking" | "reasoning" => {
                    out.reasoning(&text(item.thinking));
                    out.reasoning(&text(item.text));
                    for inner in part::<Vec<Part<'_>>>(item.thinking) {
                        out.reasoning(&text(inner.text));
                    }
                }
                "refusal" => out.refusal(&text(item.refusal)),
                _ => out.text(&text(item.text)),
            }
        }
    }

    fn function_call(
        &mut self,
        name: &str,
        arguments: &str,
        calls: &[ToolCall<'_>],
        out: &mut Out<'_>,
    ) {
        if name.is_empty() && arguments.is_empty() {
            return;
        }
        let open = self.legacy.filter(|at| !matches!(self.slots[*at].state, State::Over));
        // Some write each call both ways, for readers of either kind.
        let is_mirror = calls.iter().any(|call| {
            let function = call.function.as_ref();
            open.is_none() && (name.is_empty() || text(function.and_then(|f| f.name)) == name)
        });
        if is_mirror {
            return;
        }
        let at = match open {
            Some(at) if !self.slots[at].begins_anew(name, arguments) => Some(at),
            _ => self.open(Slot { is_legacy: true, ..Slot::default() }, out),
        };
        self.legacy = at;
        if let Some(at) = at {
            self.feed(at, "", name, arguments, out);
        }
    }

    fn tool_call(&mut self, entry: Entry<'_>, position: Option<u64>, out: &mut Out<'_>) {
        let at = match self.find(&entry, position) {
            Some(at) => at,
            None => {
                let index = entry.index.or(position);
                let index_taken =
                    index.is_some() && self.slots.iter().any(|slot| slot.index == index);
                let is_free = entry.is_free;
                let slot = Slot { index, index_taken, is_free, ..Slot::default() };
                let Some(at) = self.open(slot, out) else { return };
                at
            }
        };
        self.last = Some(at);
        let slot = &mut self.slots[at];
        if slot.signature.is_empty() && matches!(slot.state, State::Waiting) {
            slot.signature.push_str(&entry.signature);
        }
        self.feed(at, &entry.id, &entry.name, &entry.arguments, out);
    }

    /// Finds the call that an entry continues.
    fn find(&mut self, entry: &Entry<'_>, position: Option<u64>) -> Option<usize> {
        let Entry { id, name, arguments, .. } = entry;
        let known = (!id.is_empty())
            .then(|| self.slots.iter().rposition(|slot| slot.id == **id))
            .flatten()
            // The same id for all calls is no id.
            .filter(|at| {
                let of_slot = self.slots[*at].index;
                name.is_empty()
                    || entry.index.is_none()
                    || of_slot.is_none()
                    || of_slot == entry.index
            });
        if known.is_some() {
            return known;
        }
        let at = match entry.index.or(position) {
            Some(index) => self.at_index(index)?,
            None => self.last.filter(|at| !self.slots[*at].is_legacy)?,
        };
        let slot = &self.slots[at];
        let is_other = !id.is_empty() && !slot.id.is_empty() && **id != slot.id;
        let is_new = if is_other {
            // Some generate a new id for every delta, but only the first has the name.
            !name.is_empty() || slot.is_closed()
        } else {
            slot.begins_anew(name, arguments)
        };
        (!is_new).then_some(at)
    }

    /// Finds the call of an index: the last that had it, or the one at that position.
    fn at_index(&mut self, index: u64) -> Option<usize> {
        let modern = || self.slots.iter().enumerate().filter(|(_, slot)| !slot.is_legacy);
        let known = modern().rev().find(|(_, slot)| slot.index == Some(index));
        if let Some((at, _)) = known {
            return Some(at);
        }
        let (at, slot) = modern().nth(usize::try_from(index).ok()?)?;
        if slot.index.is_some() && !slot.index_taken {
            return None;
        }
        self.slots[at].index = Some(index);
        Some(at)
    }

    fn open(&mut self, slot: Slot, out: &mut Out<'_>) -> Option<usize> {
        if self.slots.len() >= CALLS_MAX {
            self.tell_limit("the answer has too many calls", out);
            return None;
        }
        // Calls are numbered in the order of their names, not of their arguments.
        self.start_waiting(out);
        self.slots.push(slot);
        self.waiting += 1;
        Some(self.slots.len() - 1)
    }

    fn feed(&mut self, at: usize, id: &str, name: &str, arguments: &str, out: &mut Out<'_>) {
        let slot = &mut self.slots[at];
        if slot.name.len() + name.len() > NAME_BYTES_MAX || id.len() > NAME_BYTES_MAX {
            return self.give_up(at, "the name or the id of a call is too long", out);
        }
        if slot.id.is_empty() && !id.is_empty() {
            slot.id.push_str(id);
            if let State::Started(call) = &slot.state {
                call.id(id, out);
            }
        }
        // A repeated name is the same name, not more of it.
        if !name.is_empty() && name != slot.name {
            if let State::Waiting = slot.state {
                slot.name.push_str(name);
            } else if !slot.extra_reported {
                slot.extra_reported = true;
                out.error(ErrorKind::UnexpectedData, "a call that has begun got another name");
            }
        }
        if arguments.is_empty() {
            return;
        }
        if slot.name.is_empty() && matches!(slot.state, State::Waiting) {
            if self.held_bytes + arguments.len() > HELD_BYTES_MAX {
                return self.give_up(at, "a call without a name has too many arguments", out);
            }
            self.held_bytes += arguments.len();
            slot.held.push_str(arguments);
            return;
        }
        self.start(at, out);
        let slot = &mut self.slots[at];
        if let State::Started(call) = &mut slot.state {
            call.args(arguments, out);
        } else if !slot.extra_reported && !arguments.trim().is_empty() {
            slot.extra_reported = true;
            out.error(ErrorKind::UnexpectedData, "a call that has ended got more arguments");
        }
    }

    /// Starts a call whose name is complete.
    fn start(&mut self, at: usize, out: &mut Out<'_>) {
        let slot = &mut self.slots[at];
        if !matches!(slot.state, State::Waiting) || slot.name.is_empty() {
            return;
        }
        self.waiting -= 1;
        let id = (!slot.id.is_empty()).then_some(slot.id.as_str());
        let signature = (!slot.signature.is_empty()).then_some(slot.signature.as_str());
        let mut call = if slot.is_free {
            Call::start_free(&slot.name, id, out)
        } else {
            Call::start(&slot.name, id, signature, out)
        };
        let held = std::mem::take(&mut slot.held);
        self.held_bytes -= held.len();
        call.args(&held, out);
        slot.state = State::Started(call);
    }

    /// Something else has arrived: a name that was not extended is complete.
    fn start_waiting(&mut self, out: &mut Out<'_>) {
        if self.waiting > 0 {
            (0..self.slots.len()).for_each(|at| self.start(at, out));
        }
    }

    fn end_all(&mut self, end: End, out: &mut Out<'_>) {
        self.start_waiting(out);
        for slot in &mut self.slots {
            match std::mem::replace(&mut slot.state, State::Over) {
                State::Started(call) => call.end(end, out),
                // What cannot be called is not lost.
                State::Waiting => {
                    out.text(&std::mem::take(&mut slot.held));
                    out.error(ErrorKind::MalformedCall, "a call has no name");
                }
                State::Over => {}
            }
        }
        (self.waiting, self.held_bytes) = (0, 0);
    }

    fn give_up(&mut self, at: usize, why: &str, out: &mut Out<'_>) {
        let slot = &mut self.slots[at];
        slot.extra_reported = true;
        match std::mem::replace(&mut slot.state, State::Over) {
            State::Waiting => {
                self.waiting -= 1;
                self.held_bytes -= slot.held.len();
                slot.held = String::new();
            }
            State::Started(call) => call.end(End::Cut, out),
            State::Over => {}
        }
        self.tell_limit(why, out);
    }

    fn tell_limit(&mut self, why: &str, out: &mut Out<'_>) {
        if !self.limit_reported {
            self.limit_reported = true;
            out.error(ErrorKind::Limit, why);
        }
    }
}

impl Slot {
    fn is_closed(&self) -> bool {
        match &self.state {
            State::Started(call) => call.is_closed(),
            State::Waiting => false,
            State::Over => true,
        }
    }

    /// Tells whether a name belongs to the next call.
    fn begins_anew(&self, name: &str, arguments: &str) -> bool {
        !name.is_empty() && self.is_closed() && (!arguments.is_empty() || name != self.name)
    }
}

impl<'a> From<&ToolCall<'a>> for Entry<'a> {
    fn from(call: &ToolCall<'a>) -> Self {
        let (name, written, is_free) = match (&call.function, &call.custom) {
            (Some(function), _) => (function.name, arguments(function.arguments), false),
            (None, Some(custom)) => (custom.name, arguments(custom.input), true),
            (None, None) => (None, Cow::Borrowed(""), false),
        };
        let extra: Extra<'a> = part(call.extra_content);
        Self {
            index: number(call.index),
            id: word(call.id),
            name: text(name),
            arguments: written,
            signature: text(extra.google.and_then(|google| google.thought_signature)),
            is_free,
        }
    }
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let prompt = wire.prompt_tokens_details.unwrap_or_default();
        let completion = wire.completion_tokens_details.unwrap_or_default();
        Self {
            input_tokens: wire.prompt_tokens.unwrap_or_default(),
            cached_input_tokens: prompt
                .cached_tokens
                .or(wire.prompt_cache_hit_tokens)
                .unwrap_or_default(),
            cache_write_input_tokens: prompt.cache_write_tokens.unwrap_or_default(),
            output_tokens: wire.completion_tokens.unwrap_or_default(),
            reasoning_output_tokens: completion.reasoning_tokens.unwrap_or_default(),
        }
    }
}
