//! The open questions of one turn, and which call waits for each.
//!
//! A call has at most one open question, so there are never more than running calls.

use std::time::Duration;

use protocol::approval::{Answer, ApprovalRequest, Scope};
use protocol::id::{ApprovalId, CallKey, ItemId};

/// A question for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub id: ApprovalId,
    /// The item that waits for the answer.
    pub item: Option<ItemId>,
    pub request: ApprovalRequest,
    /// How long it stays open; after that it counts as unanswered.
    pub timeout: Duration,
}

/// The open questions, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Approvals {
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    id: ApprovalId,
    call: CallKey,
    request: ApprovalRequest,
}

impl Approvals {
    /// Returns whether a call waits for an answer.
    pub(crate) fn has(&self, call: CallKey) -> bool {
        self.open.iter().any(|open| open.call == call)
    }

    pub(crate) fn push(&mut self, id: ApprovalId, call: CallKey, request: ApprovalRequest) {
        self.open.push(Open { id, call, request });
    }

    /// Closes a question; none if it is not open, because an answer may come late or twice.
    pub(crate) fn close(&mut self, id: ApprovalId) -> Option<(CallKey, ApprovalRequest)> {
        let index = self.open.iter().position(|open| open.id == id)?;
        let Open { call, request, .. } = self.open.remove(index);
        Some((call, request))
    }

    pub(crate) fn close_of(&mut self, call: CallKey) -> Option<ApprovalId> {
        let index = self.open.iter().position(|open| open.call == call)?;
        Some(self.open.remove(index).id)
    }

    pub(crate) fn close_all(&mut self) -> Vec<ApprovalId> {
        std::mem::take(&mut self.open).into_iter().map(|open| open.id).collect()
    }
}

/// Limits an answer to what was offered: an acceptance with a larger scope counts as one for this single
/// call.
pub(crate) fn within(request: &ApprovalRequest, answer: Answer) -> Answer {
    let wanted = match &answer {
        Answer::AcceptForSession => Scope::Session,
        Answer::AcceptAndRemember(prefix) => Scope::Prefix(prefix.clone()),
        _ => return answer,
    };
    if request.scopes.contains(&wanted) { answer } else { Answer::Accept }
}

#[cfg(test)]
mod tests {
    use protocol::approval::{Answer, ApprovalRequest, Scope, Subject};

    use super::within;

    #[track_caller]
    fn check(scopes: &[Scope], answer: Answer, want: Answer) {
        let subject = Subject::Write { paths: Vec::new() };
        let request = ApprovalRequest { subject, reason: None, scopes: scopes.to_vec() };
        assert_eq!(within(&request, answer), want);
    }

    #[test]
    fn no_answer_exceeds_the_offered_scopes() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let remember = |text: &str| Answer::AcceptAndRemember(words(text));
        let offered = [Scope::Session, Scope::Prefix(words("git fetch"))];
        check(&offered, remember("git fetch"), remember("git fetch"));
        check(&offered, Answer::AcceptForSession, Answer::AcceptForSession);
        for wider in ["git", "git fetch x", "rm"] {
            check(&offered, remember(wider), Answer::Accept);
        }
        check(&offered, Answer::AcceptAndRemember(Vec::new()), Answer::Accept);
        check(&[], remember("git fetch"), Answer::Accept);
        check(&[], Answer::AcceptForSession, Answer::Accept);
        for other in [Answer::Decline, Answer::Cancel, Answer::TimedOut, Answer::Invalid] {
            check(&offered, other.clone(), other);
        }
    }
}
