//! The history that requests contain.
//!
//! An item is serialized once, when it is added, and never again. The input of a request is the entries in
//! order, so request n+1 starts with exactly the bytes of request n, which lets a provider cache the prefix.
//! Compaction is the one exception, and starts a new prefix (`compaction`).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use history::sendable;
pub use history::{Entry, Origin};
use protocol::open::{Open, Raw};
use protocol::persist::Compacted;
use protocol::repair::RepairKind;
use protocol::responses::{Content, KnownItem, KnownPart, Message};
use protocol::user::UserMessage;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use history::words;

use crate::compaction::{self, Ending, Room};
use crate::prompt;
use crate::turn::LeftOut;

#[derive(Debug, Default)]
pub struct Context {
    entries: Vec<Entry>,
    /// Index at which the current turn starts.
    turn: usize,
    /// Ids of the items in the history: a provider refuses duplicates.
    ids: HashSet<String>,
    /// Likewise call ids, each with the number for its next repetition.
    call_ids: HashMap<String, u32>,
    /// Attached files that the user knows are not sent.
    left_out: LeftOut,
}

impl Context {
    /// Resumes a history that can be sent as it is.
    pub fn resume(entries: Vec<Entry>) -> Self {
        let mut context = Self { entries, ..Self::default() };
        context.note_ids();
        context
    }

    /// Appends an item and returns it as it will be sent; none if nothing in it can be sent. A duplicate id
    /// is omitted, because ids are optional.
    ///
    /// One item that an endpoint refuses would make every later request fail, so its defects are repaired
    /// here.
    pub fn push(&mut self, origin: Origin, item: KnownItem) -> Option<Raw> {
        self.push_repaired(origin, item).sent
    }

    /// Like [`Self::push`], and also returns the repairs.
    pub(crate) fn push_repaired(&mut self, origin: Origin, item: KnownItem) -> Pushed {
        let came = wire(&item);
        let (item, repairs) = sendable::item(item);
        let Some(mut item) = item else { return Pushed { came, sent: None, repairs } };
        if let Some(id) = item.id_mut()
            && id.as_ref().is_some_and(|id| !self.ids.insert(id.clone()))
        {
            *id = None;
        }
        let sent = wire(&item);
        self.entries.push(Entry { wire: sent.clone(), origin, model_id: None });
        Pushed { came, sent: Some(sent), repairs }
    }

    /// Adds items that a program brings, between turns; `check` makes the history sendable with them.
    pub fn adopt(&mut self, items: Vec<Raw>, check: impl FnOnce(Vec<Entry>) -> Vec<Entry>) {
        let mut entries = std::mem::take(&mut self.entries);
        let mut before_user = !entries.iter().any(|entry| entry.origin == Origin::User);
        for wire in items {
            let origin = history::origin_of(&wire, before_user);
            before_user &= origin != Origin::User;
            entries.push(Entry { wire, origin, model_id: None });
        }
        let left_out = std::mem::take(&mut self.left_out);
        *self = Self { left_out, ..Self::resume(check(entries)) };
    }

    /// Creates an empty history beside this one. Call ids stay unique across both, until it [rejoins](Self::rejoin).
    pub(crate) fn apart(&mut self) -> Self {
        Self { call_ids: std::mem::take(&mut self.call_ids), ..Self::default() }
    }

    /// Takes the call ids back, and drops the rest of a history beside this one.
    pub(crate) fn rejoin(&mut self, other: Self) {
        self.call_ids = other.call_ids;
    }

    /// Records that a turn starts here.
    pub(crate) fn begin_turn(&mut self) {
        self.turn = self.entries.len();
    }

    /// Returns the part of `setup` that is new to the model: what differs from the newest of its kind, and
    /// that rules are gone.
    pub fn news(&self, setup: Vec<KnownItem>, cwd: &str) -> Vec<KnownItem> {
        let mut newest: HashMap<Kind, String> = HashMap::new();
        for entry in &self.entries {
            if let Some((kind, text)) = kind_of(entry) {
                newest.insert(kind, text);
            }
        }
        let is_of = |item: &KnownItem, kind| matches!(item, KnownItem::Message(message) if Kind::from_message(message) == Some(kind));
        let mut setup = setup;
        if newest.contains_key(&Kind::Rules) && !setup.iter().any(|item| is_of(item, Kind::Rules)) {
            setup.push(user_message(prompt::agents_md_gone(cwd)));
        }
        // Without a word the model would go on as before.
        if newest.contains_key(&Kind::Mode) && !setup.iter().any(|item| is_of(item, Kind::Mode)) {
            setup.push(developer_message(prompt::mode(prompt::DEFAULT_MODE)));
        }
        setup.retain(|item| {
            let KnownItem::Message(message) = item else { return true };
            let kind = Kind::from_message(message);
            kind.is_none_or(|kind| newest.get(&kind) != Some(&message.content.text()))
        });
        setup
    }

    /// Returns a call id that is unique in the history: the model's own if possible.
    pub fn unique_call_id(&mut self, wanted: &str) -> String {
        let base = if wanted.is_empty() { "call" } else { wanted };
        let mut candidate = base.to_owned();
        while self.call_ids.contains_key(&candidate) {
            // Models that number calls from zero in every answer are common; a counter keeps this loop short.
            let next = self.call_ids.entry(base.to_owned()).or_insert(2);
            candidate = format!("{base}_{next}");
            *next += 1;
        }
        self.call_ids.insert(candidate.clone(), 2);
        candidate
    }

    pub(crate) fn left_out_files(&mut self) -> &mut LeftOut {
        &mut self.left_out
    }

    /// Returns the items in order, as they are sent.
    pub fn input(&self) -> Vec<&RawValue> {
        self.entries.iter().map(|entry| entry.wire.as_raw()).collect()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether earlier turns contain anything to summarise.
    pub(crate) fn has_past(&self) -> bool {
        self.past().iter().any(|entry| entry.origin == Origin::Turn)
    }

    /// Returns whether there is anything to summarise.
    pub(crate) fn has_work(&self) -> bool {
        self.entries.iter().any(|entry| entry.origin == Origin::Turn)
    }

    /// Returns whether there is anything from earlier turns, apart from the setup.
    pub(crate) fn has_turns(&self) -> bool {
        self.past().iter().any(|entry| entry.origin != Origin::Setup)
    }

    fn past(&self) -> &[Entry] {
        &self.entries[..self.turn.min(self.entries.len())]
    }

    /// Returns the size of the history in bytes, with images counted as their tokens are worth.
    pub(crate) fn weight(&self) -> usize {
        self.entries.iter().map(|entry| compaction::weight(&entry.wire)).sum()
    }

    /// Returns the part to summarise of a history that is too long to be summarised whole, if any.
    pub(crate) fn abridged(&self, window: Option<usize>) -> Option<Vec<Raw>> {
        // A part must be shorter than the whole.
        let weight = self.weight();
        let window = window.map_or(weight, |window| window.min(weight));
        compaction::abridge(&self.entries, self.turn, window)
    }

    /// Replaces the history by its pinned items and `ending`. Returns what the log records, or none if the
    /// history was left unchanged because something pinned would have been lost.
    ///
    /// Also returns whether a message of the current turn was shortened.
    pub(crate) fn compact(&mut self, ending: Ending<'_>, room: Room) -> Option<(Compacted, bool)> {
        let compacted = compaction::compact(&self.entries, self.turn, ending, room)?;
        let history = compacted.entries.iter().map(|entry| entry.wire.clone()).collect();
        self.entries = compacted.entries;
        self.turn = compacted.turn;
        self.note_ids();
        let record = Compacted {
            message: compacted.message,
            replacement_history: Some(history),
            heddle_cause: ending.cause().map(str::to_owned),
        };
        Some((record, compacted.shortened_now))
    }

    fn note_ids(&mut self) {
        #[derive(Deserialize)]
        struct Ids<'a> {
            #[serde(borrow, default)]
            id: Option<Cow<'a, str>>,
            #[serde(borrow, default)]
            call_id: Option<Cow<'a, str>>,
        }
        for entry in &self.entries {
            let Ok(Ids { id, call_id }) = serde_json::from_str(entry.wire.as_str()) else {
                continue;
            };
            self.ids.extend(id.map(Cow::into_owned));
            if let Some(call_id) = call_id {
                self.call_ids.entry(call_id.into_owned()).or_insert(2);
            }
        }
    }
}

/// The result of adding an item to the history.
pub(crate) struct Pushed {
    /// The original item.
    pub(crate) came: Raw,
    /// The item as it will be sent; none if nothing in it can be sent.
    pub(crate) sent: Option<Raw>,
    pub(crate) repairs: Vec<RepairKind>,
}

/// Kinds of setup. The newest of a kind applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Environment,
    Rules,
    /// What the user wants at the start of every thread.
    Instructions,
    /// How the user and the model work together.
    Mode,
}

impl Kind {
    fn from_message(message: &Message) -> Option<Self> {
        let text = message.content.text();
        let opens = |words: &str| text.trim_start().starts_with(words);
        match message.role.as_str() {
            "user" if opens(words::ENVIRONMENT) => Some(Self::Environment),
            "user" if opens(words::AGENTS_MD) => Some(Self::Rules),
            "developer" if opens(prompt::MODE_BEGINS) => Some(Self::Mode),
            "developer" if !opens(prompt::PREFIX_SAVED) => Some(Self::Instructions),
            _ => None,
        }
    }
}

/// Returns the kind and the text of an entry that is setup.
pub(crate) fn kind_of(entry: &Entry) -> Option<(Kind, String)> {
    // A cheap test first: most entries are something else.
    let json = entry.wire.as_str();
    if entry.origin != Origin::Setup && !json.contains(r#""role":"developer""#) {
        return None;
    }
    let parsed = serde_json::from_str::<Open<KnownItem>>(json).ok()?;
    let KnownItem::Message(message) = parsed.known()? else { return None };
    Some((Kind::from_message(&message)?, message.content.text()))
}

pub(crate) fn wire(item: &KnownItem) -> Raw {
    Raw::from(to_raw_value(item).expect("items are plain data with string keys"))
}

/// What a user gives a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct UserTurnInput {
    /// As the model reads it.
    pub item: KnownItem,
    /// As the user gave it.
    pub message: UserMessage,
    /// Whether it is the user's; what a program says instead of the user is shown to nobody.
    pub is_users: bool,
}

impl UserTurnInput {
    /// Creates input that consists of a text.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { item: user_message(text.clone()), message: UserMessage::text(text), is_users: true }
    }
}

/// Creates a message from the user.
pub fn user_message(text: impl Into<String>) -> KnownItem {
    user_parts(vec![KnownPart::input_text(text)])
}

/// Creates a message from the user with several parts.
pub fn user_parts(parts: Vec<protocol::responses::ContentPart>) -> KnownItem {
    message("user", parts)
}

/// Creates a message from us to the model, which takes precedence over the user's.
pub fn developer_message(text: impl Into<String>) -> KnownItem {
    message("developer", vec![KnownPart::input_text(text)])
}

/// Creates a message of the model.
pub(crate) fn assistant_message(text: String) -> KnownItem {
    message("assistant", vec![Open::Known(KnownPart::OutputText { text })])
}

fn message(role: &str, parts: Vec<Open<KnownPart>>) -> KnownItem {
    KnownItem::Message(Message {
        id: None,
        role: role.to_owned(),
        content: Content(parts),
        phase: None,
    })
}

#[cfg(test)]
mod tests {
    use super::Context;

    #[test]
    fn ids_are_made_unique() {
        let mut context = Context::default();
        let ids: Vec<_> =
            ["c1", "c1", "", "", "c1_2"].iter().map(|id| context.unique_call_id(id)).collect();
        assert_eq!(ids, ["c1", "c1_2", "call", "call_2", "c1_2_2"]);
    }
}
