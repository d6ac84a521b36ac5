//! Pairs outputs with calls, and assigns call ids.

use std::collections::{HashMap, HashSet, VecDeque};

use protocol::repair::{Repair, RepairKind};
use protocol::responses::KnownItem;

use super::{Kept, Part, Wire};

/// Paired calls and outputs, by index.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pub(super) output_of: HashMap<usize, usize>,
    /// The call of an output. An output that is missing here is not sent.
    pub(super) call_of: HashMap<usize, usize>,
}

/// The calls with one id, while walking through the history.
#[derive(Default)]
struct Same {
    /// Those without an output, oldest first.
    waiting: VecDeque<usize>,
    any: bool,
}

/// Finds the pairs. Calls get unique ids, outputs the ids and kinds of their calls.
///
/// An output belongs to the oldest waiting call before it with the same id; if there is no such call at all,
/// to a later one.
pub(super) fn find(kept: &mut [Kept], wire: Wire, repairs: &mut Vec<Repair>) -> Pairs {
    let mut pairs = Pairs::default();
    let mut same: HashMap<String, Same> = HashMap::new();
    let mut early = Vec::new();
    for (place, item) in kept.iter().enumerate() {
        match &item.part {
            Part::Call { id, .. } => {
                let same = same.entry(id.clone()).or_default();
                same.any = true;
                same.waiting.push_back(place);
            }
            Part::Output { id, .. } => {
                let same = same.entry(id.clone()).or_default();
                match same.waiting.pop_front() {
                    Some(call) => pairs.join(call, place),
                    None if same.any => repairs.push(item.repair(RepairKind::OutputRepeated)),
                    None => early.push(place),
                }
            }
            _ => {}
        }
    }
    for place in early {
        let Part::Output { id, .. } = &kept[place].part else { continue };
        let same = same.entry(id.clone()).or_default();
        match same.waiting.pop_front() {
            Some(call) => pairs.join(call, place),
            None if same.any => repairs.push(kept[place].repair(RepairKind::OutputRepeated)),
            None => repairs.push(kept[place].repair(RepairKind::OutputWithoutCall)),
        }
    }
    give_ids(kept, wire, repairs);
    for (&output, &call) in &pairs.call_of {
        let Part::Call { id, custom } = kept[call].part.clone() else { continue };
        fit(&mut kept[output], id, custom, repairs);
    }
    pairs
}

impl Pairs {
    fn join(&mut self, call: usize, output: usize) {
        self.output_of.insert(call, output);
        self.call_of.insert(output, call);
    }
}

/// Gives every call a unique id that the endpoint accepts.
fn give_ids(kept: &mut [Kept], wire: Wire, repairs: &mut Vec<Repair>) {
    let chars_max = wire.call_id_chars_max();
    let is_fit = |id: &str| !id.is_empty() && id.chars().count() <= chars_max;
    let ids = kept.iter().filter_map(|item| match &item.part {
        Part::Call { id, .. } if is_fit(id) => Some(id.clone()),
        _ => None,
    });
    let wanted: HashSet<String> = ids.collect();
    let mut taken = HashSet::new();
    // A counter keeps this fast for models that number calls from zero in every answer.
    let mut next: HashMap<String, u64> = HashMap::new();
    for item in kept {
        let Part::Call { id, .. } = &item.part else { continue };
        let kind = if id.is_empty() {
            RepairKind::CallIdMissing
        } else if !is_fit(id) {
            RepairKind::CallIdInvalid
        } else if taken.contains(id) {
            RepairKind::CallIdRepeated
        } else {
            taken.insert(id.clone());
            continue;
        };
        let base: String = id.chars().take(BASE_CHARS_MAX).collect();
        let base = if base.is_empty() { "call".to_owned() } else { base };
        let number = next.entry(base.clone()).or_insert(2);
        let fresh = loop {
            let candidate = format!("{base}_{number}");
            *number += 1;
            if !wanted.contains(&candidate) && !taken.contains(&candidate) {
                break candidate;
            }
        };
        repairs.push(item.repair(kind));
        taken.insert(fresh.clone());
        item.rename(fresh);
    }
}

/// Adapts an output to its call.
fn fit(output: &mut Kept, call_id: String, call_custom: bool, repairs: &mut Vec<Repair>) {
    let Part::Output { id, custom } = &output.part else { return };
    let (same_id, same_kind) = (*id == call_id, *custom == call_custom);
    if !same_kind {
        repairs.push(output.repair(RepairKind::OutputKindChanged));
        output.edit(|item| match item {
            KnownItem::FunctionCallOutput(output) => KnownItem::CustomToolCallOutput(output),
            KnownItem::CustomToolCallOutput(output) => KnownItem::FunctionCallOutput(output),
            item => item,
        });
    }
    if !same_id {
        output.rename(call_id);
    }
}

impl Kept {
    /// Changes the call id of a call or an output.
    fn rename(&mut self, call_id: String) {
        self.edit(|mut item| {
            match &mut item {
                KnownItem::FunctionCall(call) => call.call_id.clone_from(&call_id),
                KnownItem::CustomToolCall(call) => call.call_id.clone_from(&call_id),
                KnownItem::FunctionCallOutput(output) | KnownItem::CustomToolCallOutput(output) => {
                    output.call_id.clone_from(&call_id);
                }
                _ => {}
            }
            item
        });
        match &mut self.part {
            Part::Call { id, .. } | Part::Output { id, .. } => *id = call_id,
            _ => {}
        }
    }
}

/// How many characters of an id a derived id starts with; a number follows.
const BASE_CHARS_MAX: usize = 24;
