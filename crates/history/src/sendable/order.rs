//! Moves outputs right after the answer that has their calls, before any other message.

use protocol::repair::{Repair, RepairKind};
use protocol::responses::{CallOutput, KnownItem, OutputBody};

use super::pairs::Pairs;
use super::{Kept, Part};
use crate::fold::{Entry, Origin};
use crate::item;

/// Moves outputs to where they belong and adds missing ones.
pub(super) fn check(kept: Vec<Kept>, pairs: &Pairs, repairs: &mut Vec<Repair>) -> Vec<Kept> {
    let mut sorted = Sorted {
        out: Vec::with_capacity(kept.len()),
        pending: Vec::new(),
        open: 0,
        settling: false,
    };
    let mut slots: Vec<Option<Kept>> = kept.into_iter().map(Some).collect();
    for place in 0..slots.len() {
        let Some(item) = &slots[place] else { continue };
        match &item.part {
            Part::Told => sorted.settle(&mut slots, pairs, repairs),
            // The model's items belong to the open answer until its first output.
            Part::Said
            | Part::Thought { .. }
            | Part::LostThought
            | Part::Searched
            | Part::Call { .. } => {
                if sorted.settling {
                    sorted.settle(&mut slots, pairs, repairs);
                }
            }
            Part::Output { .. } => {
                // An output before its call waits for it, and one without a call is dropped.
                let call = pairs.call_of.get(&place);
                if !call.is_some_and(|call| sorted.is_pending(*call)) {
                    continue;
                }
                sorted.returned();
            }
        }
        let Some(item) = slots[place].take() else { continue };
        if let Part::Call { id, custom } = &item.part {
            let (index, id, custom) = (item.index, id.clone(), *custom);
            sorted.open += 1;
            sorted.pending.push(Pending { place, index, id, custom });
        }
        sorted.out.push(item);
        // An output that came before its call has waited for it.
        let early = pairs.output_of.get(&place).filter(|output| **output < place);
        if let Some(output) = early.and_then(|output| slots[*output].take()) {
            repairs.push(output.repair(RepairKind::OutputMoved));
            sorted.out.push(output);
            sorted.returned();
        }
    }
    sorted.settle(&mut slots, pairs, repairs);
    sorted.out
}

/// The history in its new order, and the calls of the open answer.
struct Sorted {
    out: Vec<Kept>,
    pending: Vec<Pending>,
    /// How many of the pending calls have no output yet.
    open: usize,
    /// Whether their outputs have started.
    settling: bool,
}

struct Pending {
    place: usize,
    index: usize,
    id: String,
    custom: bool,
}

impl Sorted {
    /// Returns whether the call at an index belongs to the open answer.
    fn is_pending(&self, place: usize) -> bool {
        self.pending.first().is_some_and(|first| first.place <= place)
            && self.pending.last().is_some_and(|last| place <= last.place)
    }

    fn returned(&mut self) {
        self.open -= 1;
        self.settling = self.open > 0;
        if self.open == 0 {
            self.pending.clear();
        }
    }

    /// Ends the open answer: every call of it without an output gets one.
    fn settle(&mut self, slots: &mut [Option<Kept>], pairs: &Pairs, repairs: &mut Vec<Repair>) {
        for call in self.pending.drain(..) {
            let own = pairs.output_of.get(&call.place);
            let Some(output) = own.map(|place| slots[*place].take()) else {
                let kept = call.lost();
                let mut repair = kept.repair(RepairKind::OutputAdded);
                repair.item = super::named("call", &call.id);
                repairs.push(repair);
                self.out.push(kept);
                continue;
            };
            // None if it was already moved.
            if let Some(output) = output {
                repairs.push(output.repair(RepairKind::OutputMoved));
                self.out.push(output);
            }
        }
        (self.open, self.settling) = (0, false);
    }
}

impl Pending {
    /// Creates an output that says that the real one is missing.
    fn lost(&self) -> Kept {
        let lost = OutputBody::Text(OUTPUT_LOST.to_owned());
        let output = CallOutput::new(self.id.clone(), lost);
        let output = if self.custom {
            KnownItem::CustomToolCallOutput(output)
        } else {
            KnownItem::FunctionCallOutput(output)
        };
        let entry = Entry { wire: item::write(&output), origin: Origin::Turn, model_id: None };
        Kept { index: self.index, entry, part: Part::from_item(&output), id: None }
    }
}

/// What the model reads instead of a missing output.
pub const OUTPUT_LOST: &str = "\
The output of this call was lost. The call may have run in part, in whole or not at all: check what it has done \
before you do it again.";
