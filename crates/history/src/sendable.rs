//! Makes any history one that an endpoint takes.
//!
//! Four passes, each linear:
//!
//! 1. every item on its own ([`item`]): kinds, roles, parts, texts, images, arguments;
//! 2. what the endpoint must be able to read: reasoning, searches and ids (Responses only, as the other
//!    API takes none of them);
//! 3. calls and outputs find each other, and call ids become unique;
//! 4. outputs come to stand right after the answer with their calls, which Chat Completions ask for and
//!    Responses do not mind.
//!
//! What a model wrote is changed as little as can be. Not reported, because nothing is lost by it: keys
//! that no endpoint takes, values of a phase, a detail or a search that none knows, and ids that another
//! provider gave.

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

/// What an endpoint takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The form of its requests.
    pub wire: Wire,
    /// The provider and the model.
    pub model_id: ModelId,
}

/// The form of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The Responses API.
    Responses,
    /// Chat Completions.
    Chat,
}

impl Wire {
    /// Returns how many characters a call id can have.
    pub fn call_id_chars_max(self) -> usize {
        match self {
            Self::Responses => 64,
            Self::Chat => 40,
        }
    }
}

/// A history that can be sent, and what it took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    /// The items to send.
    pub entries: Vec<Entry>,
    /// What was done, in the order of the history.
    pub repairs: Vec<Repair>,
}

/// Makes `entries` sendable to the endpoint of `profile`. A history that already is comes back as it was.
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

/// Makes one item sendable that enters a live history, with what was wrong; none if nothing of it is
/// left. Whoever drops a call must not add its output.
pub fn item(mut item: KnownItem) -> (Option<KnownItem>, Vec<RepairKind>) {
    let mut found = Vec::new();
    let keep = one::repair(&mut item, &mut found);
    (keep.then_some(item), found)
}

/// An item on its way through the passes.
#[derive(Debug)]
struct Kept {
    /// Its place in the history that is checked.
    index: usize,
    entry: Entry,
    part: Part,
    id: Option<String>,
}

/// What part an item plays; as much as the passes over all of them need.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// A message to the model.
    Told,
    /// A message from it.
    Said,
    /// Its reasoning.
    Thought {
        /// Whether there is something in it that can be sent.
        usable: bool,
    },
    /// Reasoning that could not be read; it is only here until the ids of its answer are gone.
    LostThought,
    /// A search.
    Searched,
    /// A call.
    Call { id: String, custom: bool },
    /// An output.
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

    /// Tells whether the model made it.
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

/// Reads an item and repairs what is wrong with it alone.
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
    // Chat Completions take no reasoning and no searches, so nothing can be wrong with them.
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

/// Names an item to a person, in a few words.
fn named(what: &str, name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
    if name.is_empty() { what.to_owned() } else { format!("{what} {name}") }
}

/// Characters of an id that are shown to a person.
const NAME_CHARS_MAX: usize = 64;
