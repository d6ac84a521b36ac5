//! Serializes an answer for Chat Completions. Commentary is part of `reasoning_content`, the only field for
//! what is not the answer.

use serde::Serialize;

use super::{End, FrameEvent, Id, Item, Reply, to_json};
use crate::reader::GAP;
use crate::refusal::error_body;
use crate::request::Usage;

/// Writes the chunks for an event.
pub(super) fn write(reply: &Reply, said: FrameEvent<'_>, out: &mut Vec<u8>) {
    let delta = match said {
        FrameEvent::Began => {
            Delta { role: Some("assistant"), content: Some(""), ..Delta::default() }
        }
        FrameEvent::Added(at) => match &reply.entries[at].item {
            Item::Call(call) => Delta::of_call(Call::whole(reply, *call, "")),
            Item::Reasoning(_) | Item::Commentary(_)
                if reply.entries[..at].iter().any(|entry| thought(&entry.item).is_some()) =>
            {
                Delta { reasoning_content: Some(GAP), ..Delta::default() }
            }
            Item::Message(_) | Item::Reasoning(_) | Item::Commentary(_) | Item::Output { .. } => {
                return;
            }
        },
        FrameEvent::Piece(at, text) => match &reply.entries[at].item {
            Item::Message(_) => Delta { content: Some(text), ..Delta::default() },
            Item::Reasoning(_) | Item::Commentary(_) => {
                Delta { reasoning_content: Some(text), ..Delta::default() }
            }
            Item::Call(call) => Delta::of_call(Call::more(reply, *call, text)),
            Item::Output { .. } => return,
        },
        FrameEvent::Done(_) => return,
        FrameEvent::Ended => return end(reply, out),
    };
    chunk(reply, Some(Choice { delta, ..Choice::default() }), None, out);
}

fn end(reply: &Reply, out: &mut Vec<u8>) {
    if let Some(body) = failure(reply) {
        frame(|out| out.extend_from_slice(&body), out);
        return;
    }
    let finish_reason = Some(finish_reason(reply));
    chunk(reply, Some(Choice { finish_reason, ..Choice::default() }), None, out);
    if reply.stream_usage {
        chunk(reply, None, Some(reply.usage.into()), out);
    }
    frame(|out| out.extend_from_slice(b"[DONE]"), out);
}

/// Writes the whole answer.
pub(super) fn body(reply: &Reply) -> Vec<u8> {
    if let Some(body) = failure(reply) {
        return body;
    }
    let mut content = None::<String>;
    for entry in &reply.entries {
        if let Item::Message(text) = &entry.item {
            content.get_or_insert_default().push_str(text);
        }
    }
    let thoughts: Vec<&str> =
        reply.entries.iter().filter_map(|entry| thought(&entry.item)).collect();
    let thought = (!thoughts.is_empty()).then(|| thoughts.join(GAP));
    let calls = (0..reply.calls.len())
        .map(|call| Call { index: None, ..Call::whole(reply, call, &reply.calls[call].arguments) });
    let message = Message {
        role: "assistant",
        content: content.as_deref(),
        refusal: None,
        reasoning_content: thought.as_deref(),
        tool_calls: calls.collect(),
    };
    let choice =
        WholeChoice { index: 0, message, logprobs: None, finish_reason: finish_reason(reply) };
    let mut out = Vec::new();
    let completion = Completion {
        id: Id("chatcmpl-", &reply.stamp.id, None),
        object: "chat.completion",
        created: reply.stamp.created_at,
        model: &reply.stamp.model,
        choices: [choice],
        usage: reply.usage.into(),
    };
    to_json(&completion, &mut out);
    out
}

/// Returns the text of an item that is not part of the answer.
fn thought(item: &Item) -> Option<&str> {
    match item {
        Item::Reasoning(text) | Item::Commentary(text) => Some(text),
        Item::Message(_) | Item::Call(_) | Item::Output { .. } => None,
    }
}

fn failure(reply: &Reply) -> Option<Vec<u8>> {
    match &reply.end {
        Some(End::Failed(message)) => {
            Some(error_body(message, "server_error", None, Some("server_error")))
        }
        None | Some(End::Whole | End::Cut) => None,
    }
}

fn finish_reason(reply: &Reply) -> &'static str {
    match reply.end {
        Some(End::Cut) => "length",
        _ if reply.slots.iter().any(|slot| !slot.answered) => "tool_calls",
        _ => "stop",
    }
}

fn frame(write: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: ");
    write(out);
    out.extend_from_slice(b"\n\n");
}

fn chunk(reply: &Reply, choice: Option<Choice<'_>>, usage: Option<WireUsage>, out: &mut Vec<u8>) {
    let chunk = Chunk {
        id: Id("chatcmpl-", &reply.stamp.id, None),
        object: "chat.completion.chunk",
        created: reply.stamp.created_at,
        model: &reply.stamp.model,
        choices: choice.as_slice(),
        // A client that wants usage at the end gets the field in every chunk.
        usage: reply.stream_usage.then_some(usage),
    };
    frame(|out| to_json(&chunk, out), out);
}

#[derive(Serialize)]
struct Chunk<'a> {
    id: Id<'a>,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [Choice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<WireUsage>>,
}

#[derive(Default, Serialize)]
struct Choice<'a> {
    index: u32,
    delta: Delta<'a>,
    logprobs: Option<()>,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[Call<'a>; 1]>,
}

impl<'a> Delta<'a> {
    fn of_call(call: Call<'a>) -> Self {
        Self { tool_calls: Some([call]), ..Self::default() }
    }
}

/// A call, or a piece of one.
#[derive(Serialize)]
struct Call<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(flatten)]
    called: Called<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Called<'a> {
    Function {
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
        arguments: &'a str,
    },
    Custom {
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
        input: &'a str,
    },
}

impl<'a> Call<'a> {
    fn whole(reply: &'a Reply, call: usize, text: &'a str) -> Self {
        let (id, name) = (Some(&*reply.calls[call].id), Some(&*reply.calls[call].name));
        let (kind, called) = match reply.slots[call].free {
            true => ("custom", Called::Custom { name, input: text }),
            false => ("function", Called::Function { name, arguments: text }),
        };
        Self { index: Some(call), id, kind: Some(kind), called }
    }

    fn more(reply: &'a Reply, call: usize, text: &'a str) -> Self {
        let called = match reply.slots[call].free {
            true => Called::Custom { name: None, input: text },
            false => Called::Function { name: None, arguments: text },
        };
        Self { index: Some(call), id: None, kind: None, called }
    }
}

#[derive(Serialize)]
struct Completion<'a> {
    id: Id<'a>,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [WholeChoice<'a>; 1],
    usage: WireUsage,
}

#[derive(Serialize)]
struct WholeChoice<'a> {
    index: u32,
    message: Message<'a>,
    logprobs: Option<()>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Option<&'a str>,
    refusal: Option<()>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

#[derive(Serialize)]
struct WireUsage {
    prompt_tokens: u64,
    prompt_tokens_details: PromptDetails,
    completion_tokens: u64,
    completion_tokens_details: CompletionDetails,
    total_tokens: u64,
}

#[derive(Serialize)]
struct PromptDetails {
    cached_tokens: u64,
}

#[derive(Serialize)]
struct CompletionDetails {
    reasoning_tokens: u64,
}

impl From<Usage> for WireUsage {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.input,
            prompt_tokens_details: PromptDetails { cached_tokens: usage.cached },
            completion_tokens: usage.output,
            completion_tokens_details: CompletionDetails { reasoning_tokens: usage.reasoning },
            total_tokens: usage.input.saturating_add(usage.output),
        }
    }
}
