//! Assembles pieces of an answer into its items.
//!
//! The text of an item is kept until it is complete, and copied once for those who watch it arrive.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use protocol::chat::TextInput;
use protocol::json;
use protocol::open::Open;
use protocol::responses::{
    Content, ContentPart, CustomToolCall, FunctionCall, INCOMPLETE, KnownItem, KnownPart, Message,
    Reasoning, StreamEvent, SummaryPart,
};

use crate::event::Event;

/// Where an event was found; each source numbers its calls from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// In the chunks of the answer.
    Wire,
    /// In the text of the answer.
    Text,
}

#[derive(Debug)]
pub(super) struct Items {
    /// Items that are not emitted yet, in the order in which they began.
    list: VecDeque<Entry>,
    /// How many items were emitted.
    given: usize,
    /// The item of each call, counted from the first of the answer.
    calls: HashMap<(Source, u32), usize>,
    /// Whitespace that begins an item only if more follows.
    blank: Option<(Kind, String)>,
    /// Tools that take free text.
    custom: Arc<[String]>,
    /// Bytes that may still arrive.
    room: usize,
    is_full: bool,
}

#[derive(Debug)]
struct Entry {
    item: Item,
    state: State,
}

#[derive(Debug)]
enum Item {
    Message(Vec<ContentPart>),
    /// Reasoning, or commentary, which is a separate item.
    Reasoning {
        kind: Kind,
        text: String,
        seal: Option<String>,
    },
    Call {
        number: usize,
        name: String,
        id: Option<String>,
        arguments: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Whole,
    /// A call that ended before it was complete.
    Half,
}

/// The kind of item that a piece belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Reasoning,
    Commentary,
}

impl Items {
    /// Starts an answer with this size limit.
    pub(super) fn new(custom: Arc<[String]>, bytes_max: usize) -> Self {
        Self {
            list: VecDeque::new(),
            given: 0,
            calls: HashMap::new(),
            blank: None,
            custom,
            room: bytes_max,
            is_full: false,
        }
    }

    /// Tells whether the size limit was exceeded; the excess is not kept.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Takes an event found in the answer.
    pub(super) fn take(&mut self, source: Source, event: Event<'_>, events: &mut Vec<StreamEvent>) {
        match event {
            // A plan is part of the answer's text.
            Event::Text(text) | Event::Plan(text) => self.piece(Kind::Text, text, events),
            Event::Reasoning(text) => self.piece(Kind::Reasoning, text, events),
            Event::Commentary(text) => self.piece(Kind::Commentary, text, events),
            Event::Refusal(text) => self.piece(Kind::Refusal, text, events),
            Event::ReasoningSignature(text) => self.seal(text, events),
            Event::ToolStart { index, name, id, .. } => {
                self.close(events);
                let number = self.calls.len();
                self.calls.insert((source, index), self.given + self.list.len());
                let (name, id) = (name.to_owned(), id.map(str::to_owned));
                self.begin(Item::Call { number, name, id, arguments: String::new() });
            }
            Event::ToolId { index, id: late } => {
                if let Some(Entry { item: Item::Call { id, .. }, .. }) = self.call(source, index) {
                    *id = Some(late.to_owned());
                }
            }
            Event::ToolArgs { index, text } => {
                if !self.fits(text) {
                    return;
                }
                if let Some(Entry { item: Item::Call { arguments, .. }, .. }) =
                    self.call(source, index)
                {
                    arguments.push_str(text);
                }
            }
            Event::ToolEnd { index, complete } => {
                if let Some(entry) = self.call(source, index) {
                    entry.state = if complete { State::Whole } else { State::Half };
                }
                self.give(events);
            }
            // Errors are visible in the result. The rest concerns the whole answer, which a dialect does not
            // know.
            Event::PlanStart
            | Event::PlanEnd { .. }
            | Event::Error { .. }
            | Event::Usage(_)
            | Event::Finish(_) => {}
        }
    }

    /// Ends the open message or reasoning.
    pub(super) fn close(&mut self, events: &mut Vec<StreamEvent>) {
        self.blank = None;
        if let Some(Entry { item: Item::Message(_) | Item::Reasoning { .. }, state }) =
            self.list.back_mut()
        {
            *state = State::Whole;
        }
        self.give(events);
    }

    /// Emits everything: the answer is complete. An incomplete call is marked as such.
    pub(super) fn complete(&mut self, events: &mut Vec<StreamEvent>) {
        self.close(events);
        while let Some(entry) = self.list.pop_front() {
            self.given += 1;
            events.push(self.done(entry));
        }
    }

    /// Emits what is complete, and drops the rest: no more of it will arrive.
    pub(super) fn keep_whole(&mut self, events: &mut Vec<StreamEvent>) {
        self.list.retain(|entry| entry.state == State::Whole);
        self.give(events);
    }

    /// Emits the complete items that are not preceded by an incomplete one.
    fn give(&mut self, events: &mut Vec<StreamEvent>) {
        while let Some(entry) = self.list.pop_front_if(|entry| entry.state == State::Whole) {
            self.given += 1;
            events.push(self.done(entry));
        }
    }

    fn piece(&mut self, kind: Kind, piece: &str, events: &mut Vec<StreamEvent>) {
        if piece.is_empty() || !self.fits(piece) {
            return;
        }
        let is_open = match self.list.back() {
            Some(Entry { item: Item::Message(_), .. }) => {
                matches!(kind, Kind::Text | Kind::Refusal)
            }
            Some(Entry { item: Item::Reasoning { kind: open, .. }, .. }) => kind == *open,
            Some(Entry { item: Item::Call { .. }, .. }) | None => false,
        };
        let blank = self.blank.take().filter(|(of, _)| *of == kind).map(|(_, text)| text);
        // Whitespace between calls, or around empty reasoning, is not an item.
        if !is_open && piece.trim().is_empty() {
            self.blank = Some((kind, blank.unwrap_or_default() + piece));
            return;
        }
        let mut piece = match blank {
            Some(blank) => blank + piece,
            None => piece.to_owned(),
        };
        if !is_open {
            // Templates put line breaks between reasoning and answer, and strip them again when the answer
            // becomes part of a prompt. They are not part of the answer.
            let line_ends = piece.len() - piece.trim_start_matches(['\r', '\n']).len();
            piece.drain(..line_ends);
            self.close(events);
            let item = match kind {
                Kind::Text | Kind::Refusal => Item::Message(Vec::new()),
                Kind::Reasoning | Kind::Commentary => {
                    Item::Reasoning { kind, text: String::new(), seal: None }
                }
            };
            self.begin(item);
            events.push(added(kind));
        }
        match self.list.back_mut().map(|entry| &mut entry.item) {
            Some(Item::Message(parts)) => extend(parts, kind, &piece),
            Some(Item::Reasoning { text, .. }) => text.push_str(&piece),
            // An item of this kind was begun above.
            Some(Item::Call { .. }) | None => return,
        }
        events.push(match kind {
            Kind::Text | Kind::Refusal => StreamEvent::TextDelta(piece),
            Kind::Reasoning | Kind::Commentary => {
                StreamEvent::SummaryDelta { part: 0, text: piece }
            }
        });
    }

    fn seal(&mut self, piece: &str, events: &mut Vec<StreamEvent>) {
        if !self.fits(piece) {
            return;
        }
        if !matches!(self.list.back(), Some(Entry { item: Item::Reasoning { .. }, .. })) {
            self.close(events);
            let kind = Kind::Reasoning;
            self.begin(Item::Reasoning { kind, text: String::new(), seal: None });
            events.push(added(Kind::Reasoning));
        }
        if let Some(Entry { item: Item::Reasoning { seal, .. }, .. }) = self.list.back_mut() {
            seal.get_or_insert_default().push_str(piece);
        }
    }

    fn begin(&mut self, item: Item) {
        self.list.push_back(Entry { item, state: State::Open });
    }

    fn call(&mut self, source: Source, index: u32) -> Option<&mut Entry> {
        let number = *self.calls.get(&(source, index))?;
        self.list.get_mut(number.checked_sub(self.given)?)
    }

    fn fits(&mut self, text: &str) -> bool {
        match self.room.checked_sub(text.len()) {
            Some(room) if !self.is_full => self.room = room,
            _ => self.is_full = true,
        }
        !self.is_full
    }

    fn done(&self, entry: Entry) -> StreamEvent {
        let status = (entry.state != State::Whole).then(|| INCOMPLETE.to_owned());
        StreamEvent::ItemDone(Open::Known(match entry.item {
            Item::Message(parts) => message(parts),
            Item::Reasoning { text, seal, .. } => reasoning(text, seal),
            Item::Call { number, name, id, arguments } => {
                // Unique within the answer; the history ensures the rest.
                let call_id = id.unwrap_or_else(|| format!("call_{number}"));
                if self.custom.contains(&name) {
                    let input = input_text(arguments);
                    let call = CustomToolCall { id: None, call_id, name, input, status };
                    KnownItem::CustomToolCall(call)
                } else {
                    KnownItem::FunctionCall(FunctionCall {
                        id: None,
                        namespace: None,
                        name,
                        // A tool without parameters is often called without arguments.
                        arguments: if arguments.trim().is_empty() {
                            "{}".to_owned()
                        } else {
                            json::mend(&arguments).into_owned()
                        },
                        call_id,
                        status,
                    })
                }
            }
        }))
    }
}

/// Returns the free text of a call; if it is not in the agreed form, all of it is the text.
fn input_text(arguments: String) -> String {
    match serde_json::from_str(&json::mend(&arguments)) {
        Ok(TextInput { input }) => input,
        Err(_) => arguments,
    }
}

fn extend(parts: &mut Vec<ContentPart>, kind: Kind, piece: &str) {
    match (parts.last_mut(), kind) {
        (Some(Open::Known(KnownPart::Refusal { refusal: text })), Kind::Refusal)
        | (Some(Open::Known(KnownPart::OutputText { text })), Kind::Text) => text.push_str(piece),
        (_, kind) => parts.push(Open::Known(match kind {
            Kind::Refusal => KnownPart::Refusal { refusal: piece.to_owned() },
            Kind::Text | Kind::Reasoning | Kind::Commentary => {
                KnownPart::OutputText { text: piece.to_owned() }
            }
        })),
    }
}

fn added(kind: Kind) -> StreamEvent {
    StreamEvent::ItemAdded(Open::Known(match kind {
        Kind::Text | Kind::Refusal => message(Vec::new()),
        Kind::Reasoning | Kind::Commentary => reasoning(String::new(), None),
    }))
}

fn message(parts: Vec<ContentPart>) -> KnownItem {
    let (id, role, phase) = (None, "assistant".to_owned(), None);
    KnownItem::Message(Message { id, role, content: Content(parts), phase })
}

/// Builds a reasoning item. Its text goes where people see it, though it is not a summary.
fn reasoning(text: String, encrypted_content: Option<String>) -> KnownItem {
    let has_text = !text.is_empty();
    let part = SummaryPart { kind: "summary_text".to_owned(), text };
    let summary = if has_text { vec![part] } else { Vec::new() };
    KnownItem::Reasoning(Reasoning { id: None, summary, content: None, encrypted_content })
}
