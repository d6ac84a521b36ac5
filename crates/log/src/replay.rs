//! Converts the lines of a thread to steps for readers.
//!
//! A [`Replay`] tracks the turns of a thread: where they start and end, what the user said in them, which of
//! them a rollback removes. Every reader of logs uses one, so that all of them count the same. Payloads are
//! parsed only on demand: a log consists mostly of outputs and items that a given reader does not need.

use std::borrow::Cow;
use std::marker::PhantomData;

use protocol::json;
use protocol::open;
use protocol::persist::{CallReturned, Compacted};
use protocol::responses::{KnownItem, Message};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::event::{EventKind, LogEvent};
use crate::history_item::{self, ItemError};
use crate::item::ItemHead;
use crate::line::{Line, SessionMeta, TokenUsage, TurnContext, kind};
use crate::turns::{TurnEnd, Turns};
use crate::words::{self, Author};

/// Tracks the turns of a thread through its lines. Pass it every line in order, starting with those of files
/// that this one continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    turns: Turns,
    /// The id of the open turn. Without one, a message of the user starts a turn: older logs mark none.
    open: Option<String>,
}

/// The meaning of a line.
#[derive(Debug)]
pub enum Step<'a> {
    /// The head of a file.
    Head(Unread<'a, SessionMeta>),
    /// An item of the history.
    Item(ItemStep<'a>),
    /// An original item, before the repaired one that is sent.
    Original(&'a str),
    /// The settings of a turn.
    Context(Unread<'a, TurnContext>),
    TurnBegan {
        /// Its id; empty if the log does not name it.
        id: Cow<'a, str>,
        event: EventStep<'a>,
    },
    /// The open turn ended.
    TurnEnded { end: TurnEnd, event: EventStep<'a> },
    /// Turns were rolled back: [`Replay::turns`] has the remaining ones.
    RolledBack {
        /// The number of turns, counting only those with a message of the user.
        count: u64,
    },
    /// Any other event.
    Event(EventStep<'a>),
    /// Tokens of one answer.
    Usage(Unread<'a, TokenUsage>),
    /// A history that replaces everything before it.
    Compacted(Unread<'a, Compacted>),
    /// The output of a call, before it enters the history.
    Returned(Unread<'a, CallReturned>),
    /// A damaged line was here.
    Tombstone,
    /// A line of an unknown kind, or an invalid one.
    Unknown,
}

impl Replay {
    /// Processes the next line.
    pub fn line<'a>(&mut self, line: &'a Line<'_>) -> Step<'a> {
        let json = line.payload.get();
        // Serde would accept a list as the fields of an object, in order.
        if !json.starts_with('{') && line.kind != kind::RESPONSE_ITEM {
            return Step::Unknown;
        }
        match &*line.kind {
            kind::RESPONSE_ITEM => Step::Item(self.item(json, line.ordinal)),
            kind::EVENT_MSG => self.event(EventStep::new(json), line.ordinal),
            kind::TURN_CONTEXT => Step::Context(Unread::new(json)),
            kind::TOKEN_USAGE => Step::Usage(Unread::new(json)),
            kind::SESSION_META => Step::Head(Unread::new(json)),
            kind::COMPACTED => Step::Compacted(Unread::new(json)),
            kind::CALL_RETURNED => Step::Returned(Unread::new(json)),
            kind::ORIGINAL_ITEM | kind::ORIGINAL_ITEM_OLD => Step::Original(json),
            kind::TOMBSTONE => Step::Tombstone,
            _ => Step::Unknown,
        }
    }

    /// Returns the turns so far, without those that were rolled back.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    pub fn into_turns(self) -> Turns {
        self.turns
    }

    /// Returns the id of the open turn.
    pub fn open_turn(&self) -> Option<&str> {
        self.open.as_deref()
    }

    fn item<'a>(&mut self, json: &'a str, ordinal: Option<u64>) -> ItemStep<'a> {
        let mut begins_turn = false;
        let content = match history_item::plain_output(json) {
            // Outputs are most of a log, and ours are already in the form that is sent.
            Some(call_id) => ItemContent::PlainOutput { call_id },
            None if history_item::is_models(json) => ItemContent::Model,
            None => match history_item::read(json) {
                Ok(KnownItem::Message(message)) if message.role == history_item::USER => {
                    let opening = history_item::opening(&message);
                    let author = words::author(opening, &words::kinds(json));
                    if author == Author::User {
                        begins_turn = self.said(opening, ordinal);
                    }
                    ItemContent::Message { message: Box::new(message), author }
                }
                Ok(item) => ItemContent::Read(Box::new(item)),
                Err(error) => ItemContent::Unreadable(error),
            },
        };
        ItemStep { json, content, begins_turn }
    }

    /// Records a message of the user, and returns whether it starts a turn.
    fn said(&mut self, text: &str, ordinal: Option<u64>) -> bool {
        // A file without turn markers, or something inserted between turns.
        let begins = self.open.is_none();
        if begins {
            self.turns.begin("", ordinal, TurnEnd::Unknown);
        }
        self.turns.said(text);
        begins
    }

    fn event<'a>(&mut self, event: EventStep<'a>, ordinal: Option<u64>) -> Step<'a> {
        match event.kind {
            EventKind::ThreadRolledBack => match event.read() {
                Some(LogEvent::ThreadRolledBack(back)) => {
                    self.turns.roll_back(back.num_turns);
                    Step::RolledBack { count: back.num_turns }
                }
                _ => Step::Unknown,
            },
            EventKind::TaskStarted | EventKind::TaskComplete | EventKind::TurnAborted => {
                let Some(mark) = event.turn_mark() else { return Step::Unknown };
                match mark {
                    TurnMark::Began(id) => {
                        let id = id.unwrap_or_default();
                        self.turns.begin(&id, ordinal, TurnEnd::Open);
                        self.open = Some(id.clone().into_owned());
                        Step::TurnBegan { id, event }
                    }
                    TurnMark::Ended { id, end } => {
                        let is_open =
                            |open: &mut String| id.is_none_or(|id| open.is_empty() || *open == id);
                        if self.open.take_if(is_open).is_none() {
                            return Step::Event(event);
                        }
                        self.turns.end(end);
                        Step::TurnEnded { end, event }
                    }
                }
            }
            _ => Step::Event(event),
        }
    }

    /// Serializes the state for [`Replay::restored`].
    pub fn saved(&self) -> Vec<u8> {
        let mut saved = self.turns.saved();
        if let Some(open) = &self.open {
            saved.push(OPEN);
            saved.extend_from_slice(open.as_bytes());
        }
        saved
    }

    /// Continues from the state of another replay; none if that is invalid. Ids and words of earlier turns
    /// are not known any more, but they are still counted.
    pub fn restored(saved: &[u8]) -> Option<Self> {
        let (mut turns, rest) = Turns::restored(saved)?;
        let open = match rest {
            [] => None,
            [OPEN, id @ ..] => Some(std::str::from_utf8(id).ok()?.to_owned()),
            _ => return None,
        };
        if open.is_some() {
            turns.end(TurnEnd::Open);
        }
        Some(Self { turns, open })
    }
}

/// Precedes the id of the open turn.
const OPEN: u8 = 1;

/// The start or the end of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnMark<'a> {
    Began(Option<Cow<'a, str>>),
    Ended {
        /// The turn, if the line names it.
        id: Option<Cow<'a, str>>,
        end: TurnEnd,
    },
}

/// Returns the turn that the lines after this one belong to, if that changes here: the inner option is none
/// where a turn ends. For naming the turn of a line without counting turns.
pub fn turn_after<'a>(line: &'a Line<'_>) -> Option<Option<Cow<'a, str>>> {
    let json = line.payload.get();
    match &*line.kind {
        kind::TURN_CONTEXT => {
            let named = serde_json::from_str::<Mark<'a>>(json).ok();
            named.and_then(|named| named.turn_id).map(Some)
        }
        kind::EVENT_MSG => match EventStep::new(json).turn_mark()? {
            TurnMark::Began(id) => Some(id),
            TurnMark::Ended { .. } => Some(None),
        },
        _ => None,
    }
}

/// A payload that is parsed on demand.
#[derive(Debug)]
pub struct Unread<'a, T> {
    json: &'a str,
    read: PhantomData<fn() -> T>,
}

impl<'a, T: DeserializeOwned> Unread<'a, T> {
    fn new(json: &'a str) -> Self {
        Self { json, read: PhantomData }
    }

    pub fn json(&self) -> &'a str {
        self.json
    }

    /// Parses it; none if it is invalid.
    pub fn read(&self) -> Option<T> {
        read_mended(self.json)
    }
}

/// Parses a value, if necessary after repairing unpaired surrogates.
fn read_mended<T: DeserializeOwned>(json: &str) -> Option<T> {
    serde_json::from_str(json).ok().or_else(|| match json::mend(json) {
        Cow::Borrowed(_) => None,
        Cow::Owned(mended) => serde_json::from_str(&mended).ok(),
    })
}

#[derive(Clone, Copy, Debug)]
pub struct EventStep<'a> {
    json: &'a str,
    kind: EventKind,
}

impl<'a> EventStep<'a> {
    /// Wraps the payload of an `event_msg` line.
    pub fn new(json: &'a str) -> Self {
        Self { json, kind: kind_of(json) }
    }

    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// Parses the event; none if its kind is unknown, or if it is invalid.
    pub fn read(&self) -> Option<LogEvent> {
        match LogEvent::read_kind(self.kind, self.json)? {
            Ok(event) => Some(event),
            Err(_) => match json::mend(self.json) {
                Cow::Borrowed(_) => None,
                Cow::Owned(mended) => LogEvent::read_kind(self.kind, &mended)?.ok(),
            },
        }
    }

    /// Returns which turn starts or ends here, and how.
    pub fn turn_mark(&self) -> Option<TurnMark<'a>> {
        let end = match self.kind {
            EventKind::TaskStarted => None,
            EventKind::TaskComplete => Some(TurnEnd::Completed),
            EventKind::TurnAborted => Some(TurnEnd::Interrupted),
            _ => return None,
        };
        let Mark { turn_id: id, error } = serde_json::from_str(self.json).ok()?;
        Some(match end {
            None => TurnMark::Began(id),
            Some(TurnEnd::Completed) if error.is_some() => {
                TurnMark::Ended { id, end: TurnEnd::Failed }
            }
            Some(end) => TurnMark::Ended { id, end },
        })
    }

    /// Returns the fields of an item that can be read without parsing all of it.
    pub fn item_head(&self) -> Option<ItemHead<'a>> {
        #[derive(Deserialize)]
        struct Completed<'a> {
            #[serde(borrow)]
            item: ItemHead<'a>,
        }
        let completed = serde_json::from_str::<Completed<'a>>(self.json).ok();
        completed.filter(|_| self.kind == EventKind::ItemCompleted).map(|completed| completed.item)
    }

    /// Returns how many tokens the thread has used, if the line says so.
    pub fn total_tokens(&self) -> Option<u64> {
        #[derive(Deserialize)]
        struct Count {
            info: Option<Info>,
        }
        #[derive(Deserialize)]
        struct Info {
            total_token_usage: Total,
        }
        let count = serde_json::from_str::<Count>(self.json).ok();
        let count = count.filter(|_| self.kind == EventKind::TokenCount)?;
        Some(count.info?.total_token_usage.total_tokens)
    }
}

impl<'a> Unread<'a, TurnContext> {
    /// Returns the working directory and the model without parsing the rest.
    pub fn place(&self) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
        #[derive(Deserialize)]
        struct Place<'a> {
            #[serde(default, borrow)]
            cwd: Cow<'a, str>,
            #[serde(default, borrow)]
            model: Cow<'a, str>,
        }
        let place = serde_json::from_str::<Place<'a>>(self.json).ok()?;
        Some((place.cwd, place.model))
    }
}

impl Unread<'_, TokenUsage> {
    /// Returns how many tokens the thread has used. Other programs may omit the other fields.
    pub fn total_tokens(&self) -> Option<u64> {
        #[derive(Deserialize)]
        struct Usage {
            thread_token_usage: Total,
        }
        let usage = serde_json::from_str::<Usage>(self.json).ok()?;
        Some(usage.thread_token_usage.total_tokens)
    }
}

#[derive(Deserialize)]
struct Total {
    #[serde(default)]
    total_tokens: u64,
}

#[derive(Deserialize)]
struct Mark<'a> {
    #[serde(default, borrow)]
    turn_id: Option<Cow<'a, str>>,
    #[serde(default)]
    error: Option<IgnoredAny>,
}

/// Determines the kind of an event; ours have it first.
fn kind_of(json: &str) -> EventKind {
    match history_item::leading_kind(json) {
        Some(name) => EventKind::from_name(name),
        None => open::kind(json).map_or(EventKind::Unknown, |name| EventKind::from_name(&name)),
    }
}

/// An item of the history.
#[derive(Debug)]
pub struct ItemStep<'a> {
    json: &'a str,
    content: ItemContent<'a>,
    begins_turn: bool,
}

/// What is known about an item of the history after counting turns.
#[derive(Debug)]
pub enum ItemContent<'a> {
    /// The output of a call, as it is sent, if it is JSON at all: it has not been parsed.
    PlainOutput {
        /// Id of the call.
        call_id: &'a str,
    },
    /// An item of the model, judging by how it begins.
    Model,
    /// A user-role message.
    Message {
        message: Box<Message>,
        /// Who wrote it, which need not be the user.
        author: Author,
    },
    /// Any other valid item.
    Read(Box<KnownItem>),
    /// An invalid item.
    Unreadable(ItemError),
}

impl<'a> ItemStep<'a> {
    /// Returns the unparsed item.
    pub fn json(&self) -> &'a str {
        self.json
    }

    /// Returns whether it is reasoning, judging by how it begins. That is long, and mostly encrypted.
    pub fn is_reasoning(&self) -> bool {
        self.json.starts_with(r#"{"type":"reasoning","#)
    }

    /// Returns whether it starts a turn that the log does not mark.
    pub fn begins_turn(&self) -> bool {
        self.begins_turn
    }

    pub fn into_content(self) -> ItemContent<'a> {
        self.content
    }

    /// Returns the call that it is the output of.
    pub fn output_of(&self) -> Option<&str> {
        match &self.content {
            ItemContent::PlainOutput { call_id } => Some(call_id),
            ItemContent::Read(item) => match &**item {
                KnownItem::FunctionCallOutput(output) | KnownItem::CustomToolCallOutput(output) => {
                    Some(&output.call_id)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the message if it is from the user.
    pub fn said(&self) -> Option<&Message> {
        match &self.content {
            ItemContent::Message { message, author: Author::User } => Some(message),
            _ => None,
        }
    }

    pub fn read(self) -> Result<KnownItem, ItemError> {
        match self.content {
            ItemContent::PlainOutput { .. } | ItemContent::Model => history_item::read(self.json),
            ItemContent::Message { message, .. } => Ok(KnownItem::Message(*message)),
            ItemContent::Read(item) => Ok(*item),
            ItemContent::Unreadable(error) => Err(error),
        }
    }
}
