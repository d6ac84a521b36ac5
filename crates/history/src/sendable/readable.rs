//! What only some endpoints can read: reasoning, searches, and ids that refer to either.

use std::collections::HashSet;

use protocol::repair::{Repair, RepairKind};

use super::{Kept, Part};
use crate::fold::{Entry, ModelId};

/// Removes reasoning and searches that the endpoint cannot read, and ids that it would refuse.
///
/// If an answer loses its reasoning, the ids of its items are removed, too: the provider knows that they
/// belong together, and refuses one without the other.
pub(super) fn check(
    kept: &mut Vec<Kept>,
    model_ids: &[ModelId],
    own: &ModelId,
    repairs: &mut Vec<Repair>,
) {
    let model_id =
        |entry: &Entry| entry.model_id.and_then(|index| model_ids.get(usize::from(index)));
    let mut bereft = false;
    let mut ids = HashSet::new();
    kept.retain_mut(|item| {
        bereft &= item.part.is_models();
        let model_id = model_id(&item.entry);
        // An unknown provider counts as ours if the model matches.
        let other = |model_id: &ModelId| {
            model_id.provider != own.provider
                && !(model_id.provider.is_empty() && model_id.model == own.model)
        };
        let is_foreign = model_id.is_some_and(other);
        let refused = match item.part {
            Part::LostThought => {
                bereft = true;
                return false;
            }
            Part::Thought { .. }
                if model_id
                    .is_some_and(|model_id| other(model_id) || model_id.model != own.model) =>
            {
                Some(RepairKind::ReasoningForeign)
            }
            Part::Thought { usable: false } => Some(RepairKind::ReasoningEmpty),
            Part::Searched if is_foreign => Some(RepairKind::SearchForeign),
            _ => None,
        };
        if let Some(kind) = refused {
            bereft |= kind != RepairKind::SearchForeign;
            repairs.push(item.repair(kind));
            return false;
        }
        let Some(id) = &item.id else { return true };
        let wrong = if !is_id(id) {
            Some(RepairKind::IdInvalid)
        } else if ids.contains(id) {
            Some(RepairKind::IdRepeated)
        } else {
            None
        };
        if bereft || is_foreign || wrong.is_some() {
            repairs.extend(wrong.map(|kind| item.repair(kind)));
            item.edit(|mut item| {
                if let Some(id) = item.id_mut() {
                    *id = None;
                }
                item
            });
            item.id = None;
        } else {
            ids.insert(id.clone());
        }
        true
    });
}

/// Removes reasoning that nothing of the model follows, as after an interruption: a provider requires the
/// item that it led to.
pub(super) fn drop_dangling(kept: &mut Vec<Kept>, repairs: &mut Vec<Repair>) {
    let mut leads_on = false;
    let mut dangling = vec![false; kept.len()];
    for (item, dangles) in kept.iter().zip(&mut dangling).rev() {
        match item.part {
            Part::Thought { .. } => *dangles = !leads_on,
            _ => leads_on = item.part.is_models(),
        }
    }
    let mut dangling = dangling.into_iter();
    kept.retain(|item| {
        let dangles = dangling.next() == Some(true);
        if dangles {
            repairs.push(item.repair(RepairKind::ReasoningDangling));
        }
        !dangles
    });
}

fn is_id(id: &str) -> bool {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=ID_CHARS_MAX).contains(&id.len()) && id.chars().all(is_fit)
}

/// Longest id, in characters.
const ID_CHARS_MAX: usize = 64;
