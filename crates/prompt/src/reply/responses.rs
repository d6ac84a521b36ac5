//! Serializes an answer for the Responses API.
//!
//! Commentary is a reasoning item whose text is its summary: clients show summaries as progress, and do not
//! mistake them for the answer.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{End, Entry, FrameEvent, Id, Item, Reply, Status, to_json};
use crate::request::Usage;

/// Writes the frames for an event; returns the number of the next frame.
pub(super) fn write(reply: &Reply, sequence: u64, said: FrameEvent<'_>, out: &mut Vec<u8>) -> u64 {
    let mut frames = Frames { sequence, out };
    match said {
        FrameEvent::Began => {
            for kind in ["response.created", "response.in_progress"] {
                frames.push(Event { response: Some(response(reply)), ..Event::new(kind) });
            }
        }
        FrameEvent::Added(at) => added(reply, at, &mut frames),
        FrameEvent::Piece(at, text) => {
            let (mut content_index, mut summary_index) = (None, None);
            let of = match &reply.entries[at].item {
                Item::Message(_) => {
                    content_index = Some(0);
                    "response.output_text.delta"
                }
                Item::Reasoning(_) => {
                    content_index = Some(0);
                    "response.reasoning_text.delta"
                }
                Item::Commentary(_) => {
                    summary_index = Some(0);
                    "response.reasoning_summary_text.delta"
                }
                Item::Call(call) if reply.slots[*call].free => {
                    "response.custom_tool_call_input.delta"
                }
                Item::Call(_) => "response.function_call_arguments.delta",
                Item::Output { .. } => return frames.sequence,
            };
            let logprobs = matches!(reply.entries[at].item, Item::Message(_)).then_some([]);
            let delta = Some(text);
            let event = Event { content_index, summary_index, delta, logprobs, ..Event::new(of) };
            frames.push(event.for_item(reply, at));
        }
        FrameEvent::Done(at) => done(reply, at, &mut frames),
        FrameEvent::Ended => {
            let kind = match &reply.end {
                None | Some(End::Whole) => "response.completed",
                Some(End::Cut) => "response.incomplete",
                Some(End::Failed(_)) => "response.failed",
            };
            frames.push(Event { response: Some(response(reply)), ..Event::new(kind) });
        }
    }
    frames.sequence
}

/// Writes the whole answer.
pub(super) fn body(reply: &Reply) -> Vec<u8> {
    let mut out = Vec::new();
    to_json(&response(reply), &mut out);
    out
}

fn added(reply: &Reply, at: usize, frames: &mut Frames<'_>) {
    let event = Event {
        output_index: Some(at),
        item: Some(item(reply, at, true)),
        ..Event::new("response.output_item.added")
    };
    frames.push(event);
    if let Some(part) = part(&reply.entries[at], true) {
        frames.push(Event::for_part(part, [PART_ADDED, SUMMARY_ADDED]).for_item(reply, at));
    }
}

fn done(reply: &Reply, at: usize, frames: &mut Frames<'_>) {
    let entry = &reply.entries[at];
    let event = match &entry.item {
        Item::Message(text) => Some(Event {
            content_index: Some(0),
            text: Some(text),
            logprobs: Some([]),
            ..Event::new("response.output_text.done")
        }),
        Item::Reasoning(text) => Some(Event {
            content_index: Some(0),
            text: Some(text),
            ..Event::new("response.reasoning_text.done")
        }),
        Item::Commentary(text) => Some(Event {
            summary_index: Some(0),
            text: Some(text),
            ..Event::new("response.reasoning_summary_text.done")
        }),
        Item::Call(call) => {
            let text = Some(reply.calls[*call].arguments.as_str());
            Some(match reply.slots[*call].free {
                true => Event { input: text, ..Event::new("response.custom_tool_call_input.done") },
                false => {
                    Event { arguments: text, ..Event::new("response.function_call_arguments.done") }
                }
            })
        }
        Item::Output { .. } => None,
    };
    if let Some(event) = event {
        frames.push(event.for_item(reply, at));
    }
    if let Some(part) = part(entry, false) {
        frames.push(Event::for_part(part, [PART_DONE, SUMMARY_DONE]).for_item(reply, at));
    }
    frames.push(Event {
        output_index: Some(at),
        item: Some(item(reply, at, false)),
        ..Event::new("response.output_item.done")
    });
}

const PART_ADDED: &str = "response.content_part.added";
const PART_DONE: &str = "response.content_part.done";
const SUMMARY_ADDED: &str = "response.reasoning_summary_part.added";
const SUMMARY_DONE: &str = "response.reasoning_summary_part.done";

struct Frames<'a> {
    sequence: u64,
    out: &'a mut Vec<u8>,
}

impl Frames<'_> {
    fn push(&mut self, event: Event<'_>) {
        self.out.extend_from_slice(b"event: ");
        self.out.extend_from_slice(event.kind.as_bytes());
        self.out.extend_from_slice(b"\ndata: ");
        to_json(&Event { sequence_number: self.sequence, ..event }, self.out);
        self.out.extend_from_slice(b"\n\n");
        self.sequence += 1;
    }
}

/// An event of any kind; each uses some of the fields.
#[derive(Default, Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    item_id: Option<Id<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<[(); 0]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<WirePart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<WireItem<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<WireResponse<'a>>,
}

impl<'a> Event<'a> {
    fn new(kind: &'static str) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Reports the only part of an item; content and summary parts have different event names.
    fn for_part(part: WirePart<'a>, [content, summary]: [&'static str; 2]) -> Self {
        let is_summary = matches!(part, WirePart::Summary { .. });
        Self {
            content_index: (!is_summary).then_some(0),
            summary_index: is_summary.then_some(0),
            part: Some(part),
            ..Self::new(if is_summary { summary } else { content })
        }
    }

    /// Sets the item that the event is about.
    fn for_item(self, reply: &'a Reply, at: usize) -> Self {
        Self { item_id: Some(item_id(reply, at)), output_index: Some(at), ..self }
    }
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum WirePart<'a> {
    #[serde(rename = "output_text")]
    Output { annotations: [(); 0], logprobs: [(); 0], text: &'a str },
    #[serde(rename = "reasoning_text")]
    Reasoning { text: &'a str },
    #[serde(rename = "summary_text")]
    Summary { text: &'a str },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WireItem<'a> {
    Message {
        id: Id<'a>,
        status: Status,
        role: &'static str,
        content: Vec<WirePart<'a>>,
    },
    Reasoning {
        id: Id<'a>,
        status: Status,
        summary: Vec<WirePart<'a>>,
        content: Vec<WirePart<'a>>,
    },
    FunctionCall {
        id: Id<'a>,
        status: Status,
        call_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<&'a str>,
        name: &'a str,
        arguments: &'a str,
    },
    CustomToolCall {
        id: Id<'a>,
        status: Status,
        call_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<&'a str>,
        name: &'a str,
        input: &'a str,
    },
    FunctionCallOutput {
        id: Id<'a>,
        status: Status,
        call_id: &'a str,
        /// Not a field of the API; clients ignore unknown fields. It lets a client show a call with its
        /// output without looking the call up.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
        output: &'a str,
    },
}

fn item_id(reply: &Reply, at: usize) -> Id<'_> {
    let prefix = match &reply.entries[at].item {
        Item::Message(_) => "msg_",
        Item::Reasoning(_) | Item::Commentary(_) => "rs_",
        Item::Call(call) if reply.slots[*call].free => "ctc_",
        Item::Call(_) => "fc_",
        Item::Output { .. } => "fco_",
    };
    Id(prefix, &reply.stamp.id, Some(at))
}

/// Serializes an item in its current state, or as it was at the beginning, without any text.
fn item(reply: &Reply, at: usize, is_new: bool) -> WireItem<'_> {
    let entry = &reply.entries[at];
    let (id, status) = (item_id(reply, at), entry.status);
    let content = || if is_new { Vec::new() } else { part(entry, false).into_iter().collect() };
    match &entry.item {
        Item::Message(_) => WireItem::Message { id, status, role: "assistant", content: content() },
        Item::Reasoning(_) => {
            WireItem::Reasoning { id, status, summary: Vec::new(), content: content() }
        }
        Item::Commentary(_) => {
            WireItem::Reasoning { id, status, summary: content(), content: Vec::new() }
        }
        Item::Call(number) => {
            let (call, slot) = (&reply.calls[*number], &reply.slots[*number]);
            let call_id = &*call.id;
            // The client knows the namespace and the name separately.
            let split = call.name.split_once('.').filter(|_| reply.tools.contains_key(&call.name));
            let (namespace, name) = match split {
                Some((namespace, name)) => (Some(namespace), name),
                None => (None, &*call.name),
            };
            let text = if is_new { "" } else { &*call.arguments };
            match slot.free {
                true => {
                    WireItem::CustomToolCall { id, status, call_id, namespace, name, input: text }
                }
                false => {
                    WireItem::FunctionCall { id, status, call_id, namespace, name, arguments: text }
                }
            }
        }
        Item::Output { call_id, name, text } => {
            let name = name.as_deref();
            WireItem::FunctionCallOutput { id, status, call_id, name, output: text }
        }
    }
}

fn part(entry: &Entry, is_new: bool) -> Option<WirePart<'_>> {
    let shown = |text| if is_new { "" } else { text };
    match &entry.item {
        Item::Message(text) => {
            Some(WirePart::Output { annotations: [], logprobs: [], text: shown(text) })
        }
        Item::Reasoning(text) => Some(WirePart::Reasoning { text: shown(text) }),
        Item::Commentary(text) => Some(WirePart::Summary { text: shown(text) }),
        Item::Call(_) | Item::Output { .. } => None,
    }
}

#[derive(Serialize)]
struct WireResponse<'a> {
    id: Id<'a>,
    object: &'static str,
    created_at: u64,
    status: Status,
    error: Option<WireError<'a>>,
    incomplete_details: Option<WireIncomplete>,
    model: &'a str,
    output: Vec<WireItem<'a>>,
    #[serde(flatten)]
    echo: &'a Map<String, Value>,
    usage: Option<WireUsage>,
}

#[derive(Serialize)]
struct WireError<'a> {
    code: &'static str,
    message: &'a str,
}

#[derive(Serialize)]
struct WireIncomplete {
    reason: &'static str,
}

#[derive(Serialize)]
struct WireUsage {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
}

#[derive(Serialize)]
struct InputDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

#[derive(Serialize)]
struct OutputDetails {
    reasoning_tokens: u64,
}

fn response(reply: &Reply) -> WireResponse<'_> {
    let (status, error, incomplete_details) = match &reply.end {
        None => (Status::InProgress, None, None),
        Some(End::Whole) => (Status::Completed, None, None),
        Some(End::Cut) => {
            (Status::Incomplete, None, Some(WireIncomplete { reason: "max_output_tokens" }))
        }
        Some(End::Failed(message)) => {
            (Status::Failed, Some(WireError { code: "server_error", message }), None)
        }
    };
    let is_counted = matches!(reply.end, Some(End::Whole | End::Cut));
    WireResponse {
        id: Id("resp_", &reply.stamp.id, None),
        object: "response",
        created_at: reply.stamp.created_at,
        status,
        error,
        incomplete_details,
        model: &reply.stamp.model,
        output: (0..reply.entries.len()).map(|at| item(reply, at, false)).collect(),
        echo: &reply.echo,
        usage: is_counted.then(|| WireUsage::from(reply.usage)),
    }
}

impl From<Usage> for WireUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input,
            input_tokens_details: InputDetails {
                cached_tokens: usage.cached,
                cache_write_tokens: 0,
            },
            output_tokens: usage.output,
            output_tokens_details: OutputDetails { reasoning_tokens: usage.reasoning },
            total_tokens: usage.input.saturating_add(usage.output),
        }
    }
}
