//! Serializes a model's answer.
//!
//! A [`Reply`] collects the items of an answer and reports them in the format of the API that was used: as
//! frames of an event stream while they arrive, or as one body at the end.
//!
//! ```text
//! begin ──▶ push, tool_output … ──▶ finish | fail ──▶ into_body
//! ```
//!
//! Anything after the end is dropped, and so are deltas without an open call. An incomplete call is marked as
//! such, and so is the answer, unless the call already has an output.

use std::collections::HashMap;
use std::mem;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::request::{Choice, Format, Input, Request, Tool, Usage};
use crate::{Delta, Ending};

mod chat;
mod responses;

/// A frame without content, to keep a slow stream alive: a comment.
pub const KEEP_ALIVE: &[u8] = b": still here\n\n";

/// Which API the request used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Responses,
    Chat,
}

/// What identifies an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// A random word that all ids of the answer contain.
    pub id: String,
    /// Unix time in seconds.
    pub created_at: u64,
    pub model: String,
}

/// A call that the model made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// The id that its output must refer to.
    pub id: String,
    /// The tool, by its name in the request.
    pub name: String,
    /// The arguments so far.
    pub arguments: String,
    /// Whether the call is complete; an incomplete one must not be run.
    pub complete: bool,
}

/// An answer under construction.
#[derive(Debug)]
pub struct Reply {
    api: Api,
    stream: bool,
    stream_usage: bool,
    stamp: Stamp,
    /// Fields of the request that an answer of the Responses API repeats.
    echo: Map<String, Value>,
    /// Which tools take free text.
    tools: HashMap<String, Free>,
    entries: Vec<Entry>,
    calls: Vec<Called>,
    /// Further state of each call, in the same order.
    slots: Vec<Slot>,
    /// Indices of the open calls.
    open: Vec<usize>,
    /// The open message or reasoning item.
    open_text: Option<usize>,
    begun: bool,
    end: Option<End>,
    usage: Usage,
    sequence: u64,
}

/// Whether a tool takes free text instead of JSON.
type Free = bool;

#[derive(Debug)]
struct Slot {
    /// The index used by deltas.
    index: u32,
    entry: usize,
    free: Free,
    /// Whether its output is already known.
    answered: bool,
}

#[derive(Debug)]
struct Entry {
    item: Item,
    status: Status,
}

#[derive(Debug)]
enum Item {
    Message(String),
    Reasoning(String),
    /// Text on the way to the answer: a separate item, so that it is not mistaken for the answer.
    Commentary(String),
    /// A call, by index.
    Call(usize),
    Output {
        call_id: String,
        /// The name of the tool, as far as the call is known.
        name: Option<String>,
        text: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

#[derive(Debug)]
enum End {
    Whole,
    Cut,
    Failed(String),
}

/// What a frame reports; items by position.
#[derive(Clone, Copy)]
enum FrameEvent<'a> {
    Began,
    Added(usize),
    Piece(usize, &'a str),
    Done(usize),
    Ended,
}

impl Reply {
    /// Creates the answer to a request.
    pub fn new(api: Api, request: &Request, stamp: Stamp) -> Self {
        let tools = request.tools.iter();
        Self {
            api,
            stream: request.stream,
            stream_usage: request.stream_usage,
            stamp,
            echo: match api {
                Api::Responses => echo(request),
                Api::Chat => Map::new(),
            },
            tools: tools.map(|tool| (tool.name.clone(), is_free(tool))).collect(),
            entries: Vec::new(),
            calls: Vec::new(),
            slots: Vec::new(),
            open: Vec::new(),
            open_text: None,
            begun: false,
            end: None,
            usage: Usage::default(),
            sequence: 0,
        }
    }

    /// Writes the first frames, once.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if !mem::replace(&mut self.begun, true) {
            self.tell(FrameEvent::Began, out);
        }
    }

    /// Appends a piece of the answer.
    pub fn push(&mut self, delta: Delta<'_>, out: &mut Vec<u8>) {
        self.begin(out);
        if self.end.is_some() {
            return;
        }
        match delta {
            Delta::Text("")
            | Delta::Reasoning("")
            | Delta::Commentary("")
            | Delta::Arguments { text: "", .. } => {}
            Delta::Text(text) => self.say(text, Item::Message, out),
            Delta::Reasoning(text) => self.say(text, Item::Reasoning, out),
            Delta::Commentary(text) => self.say(text, Item::Commentary, out),
            Delta::Call { index, name } => {
                if let Some(call) = self.find(index) {
                    self.end_call(call, false, out);
                }
                self.close_text(Status::Completed, out);
                self.begin_call(index, name, out);
            }
            Delta::Arguments { index, text } => {
                if let Some(call) = self.find(index) {
                    self.arguments(call, text, out);
                }
            }
            Delta::CallEnd { index, complete } => {
                if let Some(call) = self.find(index) {
                    self.end_call(call, complete, out);
                }
            }
        }
    }

    /// Adds the output of one of the daemon's tools; Chat Completions has no field for it.
    pub fn tool_output(&mut self, call_id: &str, text: &str, completed: bool, out: &mut Vec<u8>) {
        self.begin(out);
        if self.end.is_some() {
            return;
        }
        self.close_text(Status::Completed, out);
        let call = self.calls.iter().rposition(|call| call.id == call_id);
        if let Some(call) = call {
            self.slots[call].answered = true;
        }
        let name = call.map(|call| self.calls[call].name.clone());
        let item = Item::Output { call_id: call_id.to_owned(), name, text: text.to_owned() };
        let entry = self.add(item, out);
        let status = if completed { Status::Completed } else { Status::Failed };
        self.done(entry, status, out);
    }

    pub fn finish(&mut self, ending: Ending, usage: Usage, out: &mut Vec<u8>) {
        self.begin(out);
        if self.end.is_some() {
            return;
        }
        self.usage = usage;
        for call in mem::take(&mut self.open) {
            self.end_call(call, false, out);
        }
        let is_half = |(call, slot): (&Called, &Slot)| !call.complete && !slot.answered;
        let has_half = self.calls.iter().zip(&self.slots).any(is_half);
        self.close_text(
            match ending {
                Ending::Stop => Status::Completed,
                Ending::Length => Status::Incomplete,
            },
            out,
        );
        let is_cut = ending == Ending::Length || has_half;
        self.end = Some(if is_cut { End::Cut } else { End::Whole });
        self.tell(FrameEvent::Ended, out);
    }

    /// Ends an answer with an error. Open items stay open, since clients should not keep them.
    pub fn fail(&mut self, message: &str, out: &mut Vec<u8>) {
        self.begin(out);
        if self.end.is_some() {
            return;
        }
        for entry in &mut self.entries {
            if entry.status == Status::InProgress {
                entry.status = Status::Incomplete;
            }
        }
        self.end = Some(End::Failed(message.to_owned()));
        self.tell(FrameEvent::Ended, out);
    }

    /// Returns the whole answer, for requests without streaming.
    pub fn into_body(self) -> Vec<u8> {
        match self.api {
            Api::Responses => responses::body(&self),
            Api::Chat => chat::body(&self),
        }
    }

    /// Returns the calls, in the order in which they began.
    pub fn calls(&self) -> &[Called] {
        &self.calls
    }

    fn say(&mut self, text: &str, new: fn(String) -> Item, out: &mut Vec<u8>) {
        let item = new(String::new());
        let is_same =
            |open: &usize| mem::discriminant(&self.entries[*open].item) == mem::discriminant(&item);
        let entry = match self.open_text.filter(is_same) {
            Some(entry) => entry,
            None => {
                self.close_text(Status::Completed, out);
                let entry = self.add(item, out);
                self.open_text = Some(entry);
                entry
            }
        };
        if let Item::Message(said) | Item::Reasoning(said) | Item::Commentary(said) =
            &mut self.entries[entry].item
        {
            said.push_str(text);
        }
        self.tell(FrameEvent::Piece(entry, text), out);
    }

    fn close_text(&mut self, status: Status, out: &mut Vec<u8>) {
        if let Some(entry) = self.open_text.take() {
            self.done(entry, status, out);
        }
    }

    fn begin_call(&mut self, index: u32, name: &str, out: &mut Vec<u8>) {
        let number = self.calls.len();
        self.calls.push(Called {
            id: format!("call_{}_{number}", self.stamp.id),
            name: name.to_owned(),
            arguments: String::new(),
            complete: false,
        });
        let free = self.tools.get(name).copied().unwrap_or_default();
        self.slots.push(Slot { index, entry: self.entries.len(), free, answered: false });
        self.open.push(number);
        self.add(Item::Call(number), out);
    }

    fn arguments(&mut self, call: usize, text: &str, out: &mut Vec<u8>) {
        self.calls[call].arguments.push_str(text);
        self.tell(FrameEvent::Piece(self.slots[call].entry, text), out);
    }

    fn end_call(&mut self, call: usize, complete: bool, out: &mut Vec<u8>) {
        self.open.retain(|open| *open != call);
        // A call without arguments has an empty text, which is not JSON.
        if complete && self.calls[call].arguments.is_empty() && !self.slots[call].free {
            self.arguments(call, "{}", out);
        }
        self.calls[call].complete = complete;
        let status = if complete { Status::Completed } else { Status::Incomplete };
        self.done(self.slots[call].entry, status, out);
    }

    /// Finds the open call that a delta refers to.
    fn find(&self, index: u32) -> Option<usize> {
        self.open.iter().copied().rfind(|call| self.slots[*call].index == index)
    }

    fn add(&mut self, item: Item, out: &mut Vec<u8>) -> usize {
        let entry = self.entries.len();
        self.entries.push(Entry { item, status: Status::InProgress });
        self.tell(FrameEvent::Added(entry), out);
        entry
    }

    fn done(&mut self, entry: usize, status: Status, out: &mut Vec<u8>) {
        self.entries[entry].status = status;
        self.tell(FrameEvent::Done(entry), out);
    }

    fn tell(&mut self, said: FrameEvent<'_>, out: &mut Vec<u8>) {
        if !self.stream {
            return;
        }
        match self.api {
            Api::Responses => self.sequence = responses::write(self, self.sequence, said, out),
            Api::Chat => chat::write(self, said, out),
        }
    }
}

/// An id made of a prefix, the word of the answer, and optionally the number of an item.
struct Id<'a>(&'static str, &'a str, Option<usize>);

impl Serialize for Id<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self(prefix, word, None) => serializer.collect_str(&format_args!("{prefix}{word}")),
            Self(prefix, word, Some(number)) => {
                serializer.collect_str(&format_args!("{prefix}{word}_{number}"))
            }
        }
    }
}

fn is_free(tool: &Tool) -> Free {
    matches!(tool.input, Input::Text { .. })
}

fn to_json(value: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("memory takes whatever has only strings as keys");
}

/// Returns the request fields that an answer of the Responses API repeats, as clients expect.
fn echo(request: &Request) -> Map<String, Value> {
    let asked = &request.asked;
    let format = match &request.format {
        Format::Text => json!({"type": "text"}),
        Format::Json => json!({"type": "json_object"}),
        Format::Schema(schema) => json!({
            "type": "json_schema",
            // Clients expect it; those that send none do not use it.
            "name": asked.title.name.as_deref().unwrap_or("answer"),
            "description": asked.title.description,
            "schema": schema,
            "strict": asked.title.strict,
        }),
    };
    let value = json!({
        "background": false,
        "instructions": asked.instructions,
        "max_output_tokens": request.output_tokens_max,
        "metadata": request.metadata,
        "parallel_tool_calls": request.parallel_calls,
        "previous_response_id": null,
        "prompt_cache_key": request.cache_key,
        "reasoning": {"effort": request.effort, "summary": null},
        "store": false,
        "temperature": asked.temperature,
        "text": {"format": format},
        "tool_choice": choice(request),
        // The client knows its own tools, and a stream would repeat them three times.
        "tools": [],
        "top_p": asked.top_p,
        "truncation": "disabled",
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Returns the tool choice in the format of the Responses API.
fn choice(request: &Request) -> Value {
    let mode = match &request.choice {
        Choice::Auto => "auto",
        Choice::Required => "required",
        Choice::None => "none",
        Choice::Named(name) => {
            let tool = request.tools.iter().find(|tool| tool.name == *name);
            return tool.map_or_else(|| json!({"type": "function", "name": name}), reference);
        }
    };
    if !request.asked.is_listed {
        return json!(mode);
    }
    let tools: Vec<_> = request.tools.iter().map(reference).collect();
    json!({"type": "allowed_tools", "mode": mode, "tools": tools})
}

/// References a tool as choices do.
fn reference(tool: &Tool) -> Value {
    let kind = if is_free(tool) { "custom" } else { "function" };
    match tool.name.split_once('.') {
        Some((namespace, name)) => json!({"type": kind, "namespace": namespace, "name": name}),
        None => json!({"type": kind, "name": tool.name}),
    }
}

/// A model that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCard {
    /// Its name in requests.
    pub id: String,
    /// When its file was created, in Unix seconds.
    pub created_at: u64,
    /// Its context size, in tokens.
    pub context_tokens: u32,
}

/// Serializes the answer to `/v1/models`.
pub fn models_body(cards: &[ModelCard]) -> Vec<u8> {
    #[derive(Serialize)]
    struct List<'a> {
        object: &'static str,
        data: Vec<Card<'a>>,
    }
    #[derive(Serialize)]
    struct Card<'a> {
        id: &'a str,
        object: &'static str,
        created: u64,
        owned_by: &'static str,
        context_length: u32,
    }
    let data = cards.iter().map(|card| Card {
        id: &card.id,
        object: "model",
        created: card.created_at,
        owned_by: "heddle",
        context_length: card.context_tokens,
    });
    let mut out = Vec::new();
    to_json(&List { object: "list", data: data.collect() }, &mut out);
    out
}
