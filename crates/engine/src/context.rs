//! The history that requests carry.
//!
//! An item is serialised once, when it enters, and never again. A request's input is the entries in
//! order, so request n+1 begins with the very bytes of request n, which is what lets a provider
//! cache the prefix. Compaction is the one exception, and starts a new prefix (`compaction`).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use history::sendable;
pub use history::{Entry, Origin};
use protocol::open::{Open, Raw};
use protocol::persist::Compacted;
use protocol::repair::RepairKind;
use protocol::responses::{Content, KnownItem, KnownPart, Message};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use history::words;

use crate::compaction::{self, Ending, Room};
use crate::prompt;

/// The history.
#[derive(Debug, Default)]
pub struct Context {
    entries: Vec<Entry>,
    /// Where the current turn begins.
    turn: usize,
    /// Ids of items that the history holds: a provider refuses one that comes twice.
    ids: HashSet<String>,
    /// Call ids likewise, each with the number that its next repetition gets.
    call_ids: HashMap<String, u32>,
}

impl Context {
    /// Takes up a history that can be sent as it is.
    pub fn resume(entries: Vec<Entry>) -> Self {
        let mut context = Self { entries, ..Self::default() };
        context.note_ids();
        context
    }

    /// Appends an item, and returns it as it will be sent; none if there is nothing in it that could
    /// be. An id that the history already has is left out, because it is optional.
    ///
    /// One item that an endpoint refuses would make every later request fail, so what is wrong with
    /// it by itself is put right here.
    pub fn push(&mut self, origin: Origin, item: KnownItem) -> Option<Raw> {
        self.push_repaired(origin, item).sent
    }

    /// Does the same, and says what was put right.
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

    /// Notes that a turn begins here.
    pub(crate) fn begin_turn(&mut self) {
        self.turn = self.entries.len();
    }

    /// Returns what of `setup` the model does not know: what differs from the newest of its kind, and
    /// that rules are gone.
    pub fn news(&self, setup: Vec<KnownItem>, cwd: &str) -> Vec<KnownItem> {
        let mut newest: HashMap<Kind, String> = HashMap::new();
        for entry in &self.entries {
            if let Some((kind, text)) = kind_of(entry) {
                newest.insert(kind, text);
            }
        }
        let rules = |item: &KnownItem| matches!(item, KnownItem::Message(message) if Kind::from_message(message) == Some(Kind::Rules));
        let mut setup = setup;
        if newest.contains_key(&Kind::Rules) && !setup.iter().any(rules) {
            setup.push(user_message(prompt::agents_md_gone(cwd)));
        }
        setup.retain(|item| {
            let KnownItem::Message(message) = item else { return true };
            let kind = Kind::from_message(message);
            kind.is_none_or(|kind| newest.get(&kind) != Some(&message.content.text()))
        });
        setup
    }

    /// Returns a call id that no call of the history has: the model's own if it is new.
    pub fn unique_call_id(&mut self, wanted: &str) -> String {
        let base = if wanted.is_empty() { "call" } else { wanted };
        let mut candidate = base.to_owned();
        while self.call_ids.contains_key(&candidate) {
            // Models that number from zero in every answer are common: counting on keeps this short.
            let next = self.call_ids.entry(base.to_owned()).or_insert(2);
            candidate = format!("{base}_{next}");
            *next += 1;
        }
        self.call_ids.insert(candidate.clone(), 2);
        candidate
    }

    /// Returns the items in order, as they are sent.
    pub fn input(&self) -> Vec<&RawValue> {
        self.entries.iter().map(|entry| entry.wire.as_raw()).collect()
    }

    /// Returns how many items there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Tells whether there is something of earlier turns that a summary could tell.
    pub(crate) fn has_past(&self) -> bool {
        self.past().iter().any(|entry| entry.origin == Origin::Turn)
    }

    /// Tells whether there is anything that a summary could tell.
    pub(crate) fn has_work(&self) -> bool {
        self.entries.iter().any(|entry| entry.origin == Origin::Turn)
    }

    /// Tells whether there is anything of earlier turns, but for what was set up.
    pub(crate) fn has_turns(&self) -> bool {
        self.past().iter().any(|entry| entry.origin != Origin::Setup)
    }

    fn past(&self) -> &[Entry] {
        &self.entries[..self.turn.min(self.entries.len())]
    }

    /// Returns how much of the window the history takes, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.entries.iter().map(|entry| compaction::weight(&entry.wire)).sum()
    }

    /// Returns what can be summarised of a history that is too long to be summarised whole, if anything.
    pub(crate) fn abridged(&self, window: Option<usize>) -> Option<Vec<Raw>> {
        // A part must be shorter than the whole.
        let weight = self.weight();
        let window = window.map_or(weight, |window| window.min(weight));
        compaction::abridge(&self.entries, self.turn, window)
    }

    /// Replaces the history by what is pinned and by what `ending` brings; returns what the log keeps
    /// of it, or none if the history was left as it was, because what is pinned would have been lost.
    ///
    /// Also tells whether something that the user said in the turn that runs had to be shortened.
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

/// What became of an item that entered the history.
pub(crate) struct Pushed {
    /// The item as it came.
    pub(crate) came: Raw,
    /// The item as it will be sent; none if there is nothing in it that could be.
    pub(crate) sent: Option<Raw>,
    /// What was put right.
    pub(crate) repairs: Vec<RepairKind>,
}

/// What something that was set up is about. The newest of a kind counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Environment,
    Rules,
    /// What the user wants every thread to begin with.
    Instructions,
}

impl Kind {
    fn from_message(message: &Message) -> Option<Self> {
        let text = message.content.text();
        let opens = |words: &str| text.trim_start().starts_with(words);
        match message.role.as_str() {
            "user" if opens(words::ENVIRONMENT) => Some(Self::Environment),
            "user" if opens(words::AGENTS_MD) => Some(Self::Rules),
            "developer" if !opens(prompt::PREFIX_SAVED) => Some(Self::Instructions),
            _ => None,
        }
    }
}

/// Tells what an entry is about that was set up, and what it says.
pub(crate) fn kind_of(entry: &Entry) -> Option<(Kind, String)> {
    // Most entries are something else, and need not be read to see that.
    let json = entry.wire.as_str();
    if entry.origin != Origin::Setup && !json.contains(r#""role":"developer""#) {
        return None;
    }
    let parsed = serde_json::from_str::<Open<KnownItem>>(json).ok()?;
    let KnownItem::Message(message) = parsed.known()? else { return None };
    Some((Kind::from_message(&message)?, message.content.text()))
}

/// Returns an item as it is sent.
pub(crate) fn wire(item: &KnownItem) -> Raw {
    Raw::from(to_raw_value(item).expect("items are plain data with string keys"))
}

/// Makes a message from the user.
pub fn user_message(text: impl Into<String>) -> KnownItem {
    user_parts(vec![KnownPart::input_text(text)])
}

/// Makes a message from the user of several parts.
pub fn user_parts(parts: Vec<protocol::responses::ContentPart>) -> KnownItem {
    message("user", parts)
}

/// Makes a message from us to the model, above the user's.
pub fn developer_message(text: impl Into<String>) -> KnownItem {
    message("developer", vec![KnownPart::input_text(text)])
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
