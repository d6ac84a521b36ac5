//! The lines of a thread, one after the other, as steps that a reader takes.
//!
//! A [`Replay`] follows the turns of a thread: where they begin and end, what the user said in them, which of them a
//! rollback takes back. Every reader of logs goes through one, so that all of them count alike. What a line holds
//! is not read before somebody asks: a log is mostly outputs and items that a given reader does not want.

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

/// Follows the turns of a thread through its lines. Give it every line in order, those of files that this one
/// continues first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    turns: Turns,
    /// The id of the turn that is open. Without one, what the user says begins a turn: older logs mark none.
    open: Option<String>,
}

/// What a line comes to.
#[derive(Debug)]
pub enum Step<'a> {
    /// The head of a file.
    Head(Unread<'a, SessionMeta>),
    /// An item of the history.
    Item(ItemStep<'a>),
    /// An item as it came, before the one that is sent in its place.
    Original(&'a str),
    /// What a turn runs with.
    Context(Unread<'a, TurnContext>),
    /// A turn began.
    TurnBegan {
        /// Its id; empty if the log does not name it.
        id: Cow<'a, str>,
        /// The line.
        event: EventStep<'a>,
    },
    /// The turn that was open ended.
    TurnEnded {
        /// How.
        end: TurnEnd,
        /// The line.
        event: EventStep<'a>,
    },
    /// Turns were taken back: [`Replay::turns`] has those that are left.
    RolledBack {
        /// How many, of those in which the user spoke.
        count: u64,
    },
    /// Something else happened.
    Event(EventStep<'a>),
    /// Tokens of one answer.
    Usage(Unread<'a, TokenUsage>),
    /// A history that replaces all before it.
    Compacted(Unread<'a, Compacted>),
    /// The output of a call, before it enters the history.
    Returned(Unread<'a, CallReturned>),
    /// A damaged line was here.
    Tombstone,
    /// A line of a kind that this build does not know, or that makes no sense.
    Unknown,
}

impl Replay {
    /// Takes the next line in.
    pub fn line<'a>(&mut self, line: &'a Line<'_>) -> Step<'a> {
        let json = line.payload.get();
        // A list would pass for the fields of an object, in order.
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

    /// Returns the turns so far, without those that were taken back.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Returns the turns.
    pub fn into_turns(self) -> Turns {
        self.turns
    }

    /// Returns the id of the turn that has begun and not ended.
    pub fn open_turn(&self) -> Option<&str> {
        self.open.as_deref()
    }

    fn item<'a>(&mut self, json: &'a str, ordinal: Option<u64>) -> ItemStep<'a> {
        let mut begins_turn = false;
        let content = match history_item::plain_output(json) {
            // Outputs are most of what a log holds, and ours are already as they are sent.
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

    /// Notes what the user said, and tells whether that begins a turn.
    fn said(&mut self, text: &str, ordinal: Option<u64>) -> bool {
        // A file without marks of turns, or something put in between them.
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

    /// Writes down where the replay stands, for [`Replay::restored`].
    pub fn saved(&self) -> Vec<u8> {
        let mut saved = self.turns.saved();
        if let Some(open) = &self.open {
            saved.push(OPEN);
            saved.extend_from_slice(open.as_bytes());
        }
        saved
    }

    /// Goes on where another replay stood; none if what was written down makes no sense. Ids and words of the turns
    /// before are not known any more, and counted all the same.
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

/// Stands before the id of the turn that is open.
const OPEN: u8 = 1;

/// Where a turn begins or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnMark<'a> {
    /// It begins.
    Began(Option<Cow<'a, str>>),
    /// It ends.
    Ended {
        /// The turn, if the line names it.
        id: Option<Cow<'a, str>>,
        /// How it ended.
        end: TurnEnd,
    },
}

/// Tells which turn the lines after this one belong to, if that changes here: the inner option is none where a turn
/// ends. For whoever wants to name the turn of a line, and not to count turns.
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

/// A payload that is read if somebody asks.
#[derive(Debug)]
pub struct Unread<'a, T> {
    json: &'a str,
    read: PhantomData<fn() -> T>,
}

impl<'a, T: DeserializeOwned> Unread<'a, T> {
    fn new(json: &'a str) -> Self {
        Self { json, read: PhantomData }
    }

    /// Returns the text.
    pub fn json(&self) -> &'a str {
        self.json
    }

    /// Reads it; none if it makes no sense.
    pub fn read(&self) -> Option<T> {
        read_mended(self.json)
    }
}

/// Reads a value, if need be after half surrogate pairs were put right.
fn read_mended<T: DeserializeOwned>(json: &str) -> Option<T> {
    serde_json::from_str(json).ok().or_else(|| match json::mend(json) {
        Cow::Borrowed(_) => None,
        Cow::Owned(mended) => serde_json::from_str(&mended).ok(),
    })
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub struct EventStep<'a> {
    json: &'a str,
    kind: EventKind,
}

impl<'a> EventStep<'a> {
    /// Takes the payload of an `event_msg` line for one.
    pub fn new(json: &'a str) -> Self {
        Self { json, kind: kind_of(json) }
    }

    /// Returns what happened.
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// Reads what the line says about it; none if its kind is not known, or it makes no sense.
    pub fn read(&self) -> Option<LogEvent> {
        match LogEvent::read_kind(self.kind, self.json)? {
            Ok(event) => Some(event),
            Err(_) => match json::mend(self.json) {
                Cow::Borrowed(_) => None,
                Cow::Owned(mended) => LogEvent::read_kind(self.kind, &mended)?.ok(),
            },
        }
    }

    /// Tells which turn begins or ends here, and how.
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

    /// Returns what can be told of an item without reading it.
    pub fn item_head(&self) -> Option<ItemHead<'a>> {
        #[derive(Deserialize)]
        struct Completed<'a> {
            #[serde(borrow)]
            item: ItemHead<'a>,
        }
        let completed = serde_json::from_str::<Completed<'a>>(self.json).ok();
        completed.filter(|_| self.kind == EventKind::ItemCompleted).map(|completed| completed.item)
    }

    /// Returns how many tokens the thread has used, if the line counts them.
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
    /// Returns the working directory and the model, for whoever wants no more.
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
    /// Returns how many tokens the thread has used. Other programs leave out what else there is to read.
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

/// Finds out what an event is; ours say so first.
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

/// What is known of an item of the history once the turns were counted.
#[derive(Debug)]
pub enum ItemContent<'a> {
    /// The output of a call, as it is sent, if it is JSON at all: it has not been looked into.
    PlainOutput {
        /// The call.
        call_id: &'a str,
    },
    /// Something of the model's, by how it begins.
    Model,
    /// A message in the user's place.
    Message {
        /// The message.
        message: Box<Message>,
        /// Who wrote it.
        author: Author,
    },
    /// Any other item that can be read.
    Read(Box<KnownItem>),
    /// One that cannot.
    Unreadable(ItemError),
}

impl<'a> ItemStep<'a> {
    /// Returns the item as it stands.
    pub fn json(&self) -> &'a str {
        self.json
    }

    /// Tells, by how it begins, whether it is what the model thought. That is long, and mostly encrypted.
    pub fn is_reasoning(&self) -> bool {
        self.json.starts_with(r#"{"type":"reasoning","#)
    }

    /// Tells whether a turn begins with it that the log does not mark.
    pub fn begins_turn(&self) -> bool {
        self.begins_turn
    }

    /// Returns what is known of it.
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

    /// Returns the message if the user said it.
    pub fn said(&self) -> Option<&Message> {
        match &self.content {
            ItemContent::Message { message, author: Author::User } => Some(message),
            _ => None,
        }
    }

    /// Reads it.
    pub fn read(self) -> Result<KnownItem, ItemError> {
        match self.content {
            ItemContent::PlainOutput { .. } | ItemContent::Model => history_item::read(self.json),
            ItemContent::Message { message, .. } => Ok(KnownItem::Message(*message)),
            ItemContent::Read(item) => Ok(*item),
            ItemContent::Unreadable(error) => Err(error),
        }
    }
}
