//! Where outputs stand: right after the answer that has their calls, before anything else is said.

use protocol::repair::{Repair, RepairKind};
use protocol::responses::{CallOutput, KnownItem, OutputBody};

use super::pairs::Pairs;
use super::{Kept, Part};
use crate::fold::{Entry, Origin};
use crate::item;

/// Moves outputs to where they belong and adds those that are missing.
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
            // What the model says goes into the answer that is open, until its first output.
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
                // One that comes before its call waits for it, and one without a call is gone.
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

/// The history in its new order, and the calls of the answer that is open.
struct Sorted {
    out: Vec<Kept>,
    pending: Vec<Pending>,
    /// How many of the pending have no output yet.
    open: usize,
    /// Whether outputs of them have begun.
    settling: bool,
}

struct Pending {
    place: usize,
    index: usize,
    id: String,
    custom: bool,
}

impl Sorted {
    /// Tells whether the call at a place belongs to the answer that is open.
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

    /// Ends the open answer: every call of it that has no output yet gets one.
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
            // None if it has come already.
            if let Some(output) = output {
                repairs.push(output.repair(RepairKind::OutputMoved));
                self.out.push(output);
            }
        }
        (self.open, self.settling) = (0, false);
    }
}

impl Pending {
    /// Makes an output that says that there is none.
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

/// What the model reads in place of an output that is missing.
pub const OUTPUT_LOST: &str = "\
The output of this call was lost. The call may have run in part, in whole or not at all: check what it has done \
before you do it again.";
