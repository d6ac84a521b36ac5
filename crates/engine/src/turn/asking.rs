//! The part of a turn that handles approvals.

use protocol::approval::{Answer, ApprovalRequest, Resolution};
use protocol::event::Event;
use protocol::id::{ApprovalId, CallKey};
use protocol::item::{Item, ItemBody, Status};

use super::{Action, Turn};
use crate::approval::{self, Question};
use crate::call::bound_text;

/// Longest reason of a refusal that an item has, in bytes.
const REFUSAL_BYTES_MAX: usize = 1024;

impl Turn {
    /// Asks the question of a waiting call.
    pub(super) fn ask(&mut self, key: CallKey, request: ApprovalRequest) {
        let id = ApprovalId(self.numbers.approval);
        self.numbers.approval += 1;
        let item = self.call_items.get(&key).map(|item| item.id);
        self.approvals.push(id, key, request.clone());
        self.emit(Event::ApprovalRequested { id, item, request: request.clone() });
        let timeout = self.options.limits.approval_timeout;
        self.actions.push_back(Action::Ask(Question { id, item, request, timeout }));
    }

    /// Lets the waiting call continue with the answer, or ends the turn; an answer without an open question
    /// is dropped.
    pub(super) fn on_answer(&mut self, id: ApprovalId, answer: Answer) {
        let Some((key, request)) = self.approvals.close(id) else { return };
        let answer = approval::within(&request, answer);
        if let Some(refusal) = answer.refusal()
            && let Some(decision) =
                self.call_items.get_mut(&key).and_then(|item| item.decision.as_mut())
        {
            decision.refusal = Some(bound_text(refusal.to_owned(), REFUSAL_BYTES_MAX));
        }
        let resolution = Resolution::Answered(answer.clone());
        self.emit(Event::ApprovalResolved { id, resolution });
        if answer != Answer::Cancel {
            return self.actions.push_back(Action::Resume(key, answer));
        }
        // Clients expect a cancelled command to be declined; a cancelled patch keeps its state.
        if let Some(Item { body: ItemBody::Command(_), .. }) = self.call_items.get(&key)
            && let Some(mut item) = self.call_items.remove(&key)
        {
            if let ItemBody::Command(command) = &mut item.body {
                command.status = Status::Declined;
            }
            self.emit(Event::ItemCompleted(item));
        }
        self.interrupt();
    }

    /// Withdraws a question that was closed without an answer.
    pub(super) fn withdraw(&mut self, id: ApprovalId) {
        self.emit(Event::ApprovalResolved { id, resolution: Resolution::Withdrawn });
        self.actions.push_back(Action::Withdraw(id));
    }
}
