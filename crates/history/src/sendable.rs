//! Turns any history into one that an endpoint accepts.
//!
//! Four passes, each linear:
//!
//! 1. every item on its own ([`item`]): kinds, roles, parts, texts, images, arguments;
//! 2. what the endpoint must be able to read: reasoning, searches and ids (Responses only, as the other API
//!    accepts none of them);
//! 3. calls and outputs are paired, and call ids become unique;
//! 4. outputs move right after the answer with their calls, which Chat Completions requires and Responses
//!    accepts.
//!
//! A model's text is changed as little as possible. Not reported, because nothing is lost: keys that no
//! endpoint accepts, unknown values of a phase, a detail or a search, and ids from another provider.

mod image;
mod one;
mod order;
mod pairs;
mod readable;

use log::history_item::{self, ItemError};
use protocol::repair::{Repair, RepairKind};
use protocol::responses::KnownItem;

use crate::fold::{Entry, ModelId};
use crate::item::{self as items, Class};

pub use image::IMAGE_BYTES_MAX;
pub use one::{TEXT_BYTES_MAX, depth};
pub use order::OUTPUT_LOST;

/// What an endpoint accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    pub wire: Wire,
    pub model_id: ModelId,
}

/// The form of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Responses,
    Chat,
}

impl Wire {
    /// Returns the maximum length of a call id in characters.
    pub fn call_id_chars_max(self) -> usize {
        match self {
            Self::Responses => 64,
            Self::Chat => 40,
        }
    }
}

/// A history that can be sent, and its repairs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    pub entries: Vec<Entry>,
    /// The repairs, in the order of the history.
    pub repairs: Vec<Repair>,
}

/// Makes `entries` sendable to the endpoint of `profile`. A history that already is sendable is returned
/// unchanged.
pub fn check(entries: Vec<Entry>, model_ids: &[ModelId], profile: &Profile) -> Checked {
    let mut repairs = Vec::new();
    let mut kept = Vec::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        kept.extend(read(index, entry, profile.wire, &mut repairs));
    }
    match profile.wire {
        Wire::Responses => readable::check(&mut kept, model_ids, &profile.model_id, &mut repairs),
        Wire::Chat => kept.retain(|item| item.part != Part::LostThought),
    }
    let pairs = pairs::find(&mut kept, profile.wire, &mut repairs);
    let mut kept = order::check(kept, &pairs, &mut repairs);
    if profile.wire == Wire::Responses {
        readable::drop_dangling(&mut kept, &mut repairs);
    }
    repairs.sort_by_key(|repair| repair.index);
    Checked { entries: kept.into_iter().map(|kept| kept.entry).collect(), repairs }
}

/// Makes one item for a live history sendable, and returns its defects; none if nothing of it remains. If a
/// call is dropped, its output must not be added either.
pub fn item(mut item: KnownItem) -> (Option<KnownItem>, Vec<RepairKind>) {
    let mut found = Vec::new();
    let keep = one::repair(&mut item, &mut found);
    (keep.then_some(item), found)
}

/// An item during the passes.
#[derive(Debug)]
struct Kept {
    /// Its index in the input.
    index: usize,
    entry: Entry,
    part: Part,
    id: Option<String>,
}

/// The role of an item, as far as the passes over all items need it.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// A message to the model.
    Told,
    /// A message from it.
    Said,
    /// Reasoning of the model.
    Thought {
        /// Whether it contains anything that can be sent.
        usable: bool,
    },
    /// Unreadable reasoning; kept only until the ids of its answer are removed.
    LostThought,
    /// A search that the provider ran.
    Searched,
    /// A call of a tool.
    Call { id: String, custom: bool },
    /// The output of a call.
    Output { id: String, custom: bool },
}

impl Part {
    fn from_item(item: &KnownItem) -> Self {
        match item {
            KnownItem::Message(_) if items::class(item) == Class::Told => Self::Told,
            KnownItem::Message(_) => Self::Said,
            KnownItem::Reasoning(reasoning) => {
                Self::Thought { usable: one::has_reasoning(reasoning) }
            }
            KnownItem::WebSearchCall(_) => Self::Searched,
            KnownItem::FunctionCall(call) => Self::Call { id: call.call_id.clone(), custom: false },
            KnownItem::CustomToolCall(call) => {
                Self::Call { id: call.call_id.clone(), custom: true }
            }
            KnownItem::FunctionCallOutput(output) => {
                Self::Output { id: output.call_id.clone(), custom: false }
            }
            KnownItem::CustomToolCallOutput(output) => {
                Self::Output { id: output.call_id.clone(), custom: true }
            }
        }
    }

    /// Returns whether the model made it.
    fn is_models(&self) -> bool {
        !matches!(self, Self::Told | Self::Output { .. })
    }
}

impl Kept {
    /// Changes the item as it is sent.
    fn edit(&mut self, change: impl FnOnce(KnownItem) -> KnownItem) {
        let item = history_item::read(self.entry.wire.as_str())
            .expect("it was read before, and written by us");
        self.entry.wire = items::write(&change(item));
    }

    fn repair(&self, kind: RepairKind) -> Repair {
        let (what, name) = match &self.part {
            Part::Told | Part::Said => ("message", self.id.as_deref()),
            Part::Thought { .. } | Part::LostThought => ("reasoning", self.id.as_deref()),
            Part::Searched => ("web_search_call", self.id.as_deref()),
            Part::Call { id, .. } => ("call", Some(id.as_str())),
            Part::Output { id, .. } => ("output", Some(id.as_str())),
        };
        Repair { kind, index: self.index, item: named(what, name.unwrap_or_default()) }
    }
}

/// Parses an item and repairs its own defects.
fn read(index: usize, mut entry: Entry, wire: Wire, repairs: &mut Vec<Repair>) -> Option<Kept> {
    let mut item = match history_item::read(entry.wire.as_str()) {
        Ok(item) => item,
        Err(unread) => {
            let kind = match unread {
                ItemError::Unknown => RepairKind::KindUnknown,
                ItemError::Malformed | ItemError::MalformedReasoning => RepairKind::Malformed,
            };
            let what = entry.wire.kind().unwrap_or_default();
            let item = named("item", &what);
            repairs.push(Repair { kind, index, item });
            let lost = unread == ItemError::MalformedReasoning;
            return lost.then_some(Kept { index, entry, part: Part::LostThought, id: None });
        }
    };
    let unsent = matches!(item, KnownItem::Reasoning(_) | KnownItem::WebSearchCall(_));
    let mut found = Vec::new();
    // Chat Completions requests contain no reasoning and no searches, so these cannot be wrong.
    let keep = (wire == Wire::Chat && unsent) || one::repair(&mut item, &mut found);
    let id = item.id_mut().and_then(|id| id.clone());
    let fresh = items::write(&item);
    if fresh != entry.wire {
        entry.wire = fresh;
    }
    let kept = Kept { index, entry, part: Part::from_item(&item), id };
    repairs.extend(found.into_iter().map(|kind| kept.repair(kind)));
    keep.then_some(kept)
}

/// Names an item for people, in a few words.
fn named(what: &str, name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
    if name.is_empty() { what.to_owned() } else { format!("{what} {name}") }
}

/// Most characters of an id that are shown.
const NAME_CHARS_MAX: usize = 64;
