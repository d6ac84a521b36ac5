//! The history that requests carry.
//!
//! An item is serialised once, when it enters, and never again. A request's input is the entries in
//! order, so request n+1 begins with the very bytes of request n, which is what lets a provider
//! cache the prefix. Compaction is the one exception, and starts a new prefix.

use std::collections::{HashMap, HashSet};

use protocol::open::Open;
use protocol::responses::{Content, KnownItem, KnownPart, Message, ResponseItem};
use serde_json::value::{RawValue, to_raw_value};

use crate::{call, prompt};

/// Bytes of the user's own messages that survive a compaction, newest first.
pub const RETAINED_BYTES_MAX: usize = 80_000;

/// The history.
#[derive(Debug, Default)]
pub struct Context {
    entries: Vec<Entry>,
    /// Ids of items that the history holds: a provider refuses one that comes twice.
    ids: HashSet<String>,
    /// Call ids likewise, each with the number that its next repetition gets.
    call_ids: HashMap<String, u32>,
}

#[derive(Debug)]
struct Entry {
    origin: Origin,
    wire: Box<RawValue>,
}

/// Where an item of the history comes from; decides what survives compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Set up by us before the first turn: environment, rules of the project.
    Setup,
    /// Said by the user.
    User,
    /// Everything else.
    Turn,
}

impl Context {
    /// Appends an item. An id that the history already has is left out, because it is optional.
    pub fn push(&mut self, origin: Origin, mut item: KnownItem) {
        if let Some(id) = id_of(&mut item)
            && id.as_ref().is_some_and(|id| !self.ids.insert(id.clone()))
        {
            *id = None;
        }
        let wire = to_raw_value(&item).expect("items are plain data with string keys");
        self.entries.push(Entry { origin, wire });
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
        self.entries.iter().map(|entry| &*entry.wire).collect()
    }

    /// Returns how many items there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Replaces the history: set-up, the user's newest messages, and the summary stay.
    pub fn compact(&mut self, summary: Option<&str>) {
        let mut room = RETAINED_BYTES_MAX;
        let mut kept: Vec<Entry> = Vec::new();
        for entry in self.entries.drain(..).rev() {
            match entry.origin {
                Origin::Setup => kept.push(entry),
                Origin::User if entry.wire.get().len() <= room => {
                    room -= entry.wire.get().len();
                    kept.push(entry);
                }
                // Of the first message that does not fit, what fits of its text is kept: it may be the
                // task itself. Nothing older than it, or the order would lie.
                Origin::User => {
                    kept.extend(shortened(&entry, room));
                    room = 0;
                }
                Origin::Turn => {}
            }
        }
        kept.reverse();
        self.entries = kept;
        let text = match summary {
            Some(summary) => format!("{}\n\n{summary}", prompt::SUMMARY_PREFIX),
            None => prompt::SUMMARY_MISSING.to_owned(),
        };
        self.push(Origin::Turn, user_message(text));
    }
}

/// Makes a message of the beginning and the end of another's text; none if there is no room for it.
fn shortened(entry: &Entry, bytes_max: usize) -> Option<Entry> {
    let KnownItem::Message(message) =
        serde_json::from_str::<ResponseItem>(entry.wire.get()).ok()?.known()?
    else {
        return None;
    };
    let text = call::bound_text(message.content.text(), bytes_max);
    if bytes_max == 0 || text.is_empty() {
        return None;
    }
    let wire = to_raw_value(&user_message(text)).ok()?;
    Some(Entry { origin: Origin::User, wire })
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

fn id_of(item: &mut KnownItem) -> Option<&mut Option<String>> {
    match item {
        KnownItem::Message(message) => Some(&mut message.id),
        KnownItem::Reasoning(reasoning) => Some(&mut reasoning.id),
        KnownItem::FunctionCall(call) => Some(&mut call.id),
        KnownItem::CustomToolCall(call) => Some(&mut call.id),
        KnownItem::WebSearchCall(call) => Some(&mut call.id),
        KnownItem::FunctionCallOutput(_) | KnownItem::CustomToolCallOutput(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Context, Origin, RETAINED_BYTES_MAX, user_message};

    /// Pushes `(origin letter, text)`, compacts, and lists what is left, shortened.
    #[track_caller]
    fn check(entries: &[(char, &str)], want: &[&str]) {
        let mut context = Context::default();
        for (origin, text) in entries {
            let origin = match origin {
                's' => Origin::Setup,
                'u' => Origin::User,
                _ => Origin::Turn,
            };
            context.push(origin, user_message(*text));
        }
        context.compact(Some("SUM"));
        let got: Vec<_> = context.input().iter().map(|raw| raw.get().to_owned()).collect();
        assert_eq!(got.len(), want.len(), "{got:?}");
        for (got, want) in got.iter().zip(want) {
            assert!(got.contains(want), "{got} lacks {want}");
        }
    }

    #[test]
    fn compaction_keeps_what_was_set_up_and_said() {
        check(&[('s', "env"), ('u', "ask"), ('t', "work")], &["env", "ask", "SUM"]);
        // The task may be in a message that is too long: its beginning and its end stay.
        let long = format!("THE TASK {}", "x".repeat(RETAINED_BYTES_MAX));
        check(
            &[('s', "env"), ('u', "old"), ('u', &long), ('u', "new")],
            &["env", "THE TASK", "new", "SUM"],
        );
        check(&[('u', &long), ('u', &long)], &["THE TASK", "SUM"]);
    }

    #[test]
    fn ids_are_made_unique() {
        let mut context = Context::default();
        let ids: Vec<_> =
            ["c1", "c1", "", "", "c1_2"].iter().map(|id| context.unique_call_id(id)).collect();
        assert_eq!(ids, ["c1", "c1_2", "call", "call_2", "c1_2_2"]);
    }
}
