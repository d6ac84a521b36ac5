//! The open questions of one turn, and which call waits for each.
//!
//! A call has at most one open question, so there are never more than running calls.

use std::time::Duration;

use protocol::approval::{Answer, ApprovalRequest, Scope, Subject};
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
/// call. What does not answer this kind of question is no answer.
pub fn within(request: &ApprovalRequest, answer: Answer) -> Answer {
    let asks = matches!(request.subject, Subject::Questions { .. });
    if asks && answer.accepts() || !asks && matches!(answer, Answer::Replied(_)) {
        return Answer::Invalid;
    }
    let wanted = match &answer {
        Answer::AcceptForSession => Scope::Session,
        Answer::AcceptAndRemember(prefix) => Scope::Prefix(prefix.clone()),
        _ => return answer,
    };
    if request.scopes.contains(&wanted) { answer } else { Answer::Accept }
}

/// Returns what all of several answers to one question allow; none if there are none.
///
/// A refusal outweighs every acceptance: a cancel before a decline, and a decline before the lack of an answer. Among
/// acceptances the narrowest scope counts. Among equals, the first does.
pub fn strictest(answers: impl IntoIterator<Item = Answer>) -> Option<Answer> {
    answers.into_iter().reduce(|kept, next| {
        if kept.accepts() && next.accepts() {
            return narrower(kept, next);
        }
        if severity(&next) > severity(&kept) { next } else { kept }
    })
}

/// Returns what any of several answers to one question allows; none if there are none.
///
/// An acceptance outweighs every refusal, and among acceptances the widest scope counts. Without one, an answer outweighs
/// the lack of one, and a decline outweighs a cancel. Among equals, the first does.
pub fn mildest(answers: impl IntoIterator<Item = Answer>) -> Option<Answer> {
    answers.into_iter().reduce(|kept, next| match (kept.accepts(), next.accepts()) {
        (true, true) => wider(kept, next),
        (true, false) => kept,
        (false, true) => next,
        (false, false) => match (severity(&kept), severity(&next)) {
            (Severity::Unanswered | Severity::Decline | Severity::Cancel, Severity::Accept)
            | (Severity::Unanswered, Severity::Decline | Severity::Cancel)
            | (Severity::Cancel, Severity::Decline) => next,
            _ => kept,
        },
    })
}

/// How much an answer refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Accept,
    Unanswered,
    Decline,
    Cancel,
}

fn severity(answer: &Answer) -> Severity {
    match answer {
        Answer::Accept
        | Answer::AcceptForSession
        | Answer::AcceptAndRemember(_)
        | Answer::Replied(_) => Severity::Accept,
        Answer::TimedOut | Answer::Disconnected | Answer::Invalid | Answer::Failed(_) => {
            Severity::Unanswered
        }
        Answer::Decline => Severity::Decline,
        Answer::Cancel => Severity::Cancel,
    }
}

/// Returns what both acceptances allow. What is accepted for a prefix includes the same effect in this session.
fn narrower(left: Answer, right: Answer) -> Answer {
    match (left, right) {
        (Answer::AcceptAndRemember(left), Answer::AcceptAndRemember(right)) => {
            if left.starts_with(&right) {
                Answer::AcceptAndRemember(left)
            } else if right.starts_with(&left) {
                Answer::AcceptAndRemember(right)
            } else {
                Answer::Accept
            }
        }
        (Answer::AcceptForSession, other) | (other, Answer::AcceptForSession) => match other {
            Answer::AcceptAndRemember(_) => Answer::AcceptForSession,
            other => other,
        },
        _ => Answer::Accept,
    }
}

/// Returns what either acceptance allows, as far as one answer can say that.
fn wider(left: Answer, right: Answer) -> Answer {
    match (left, right) {
        (Answer::AcceptAndRemember(left), Answer::AcceptAndRemember(right)) => {
            let shorter = if left.starts_with(&right) { right } else { left };
            Answer::AcceptAndRemember(shorter)
        }
        (remembered @ Answer::AcceptAndRemember(_), _)
        | (_, remembered @ Answer::AcceptAndRemember(_)) => remembered,
        (Answer::Accept, other) | (other, _) => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use protocol::approval::{Answer, ApprovalRequest, Scope, Subject};

    use super::{mildest, strictest, within};

    /// Reads an answer: `once`, `session`, `git fetch` (for a prefix), `decline`, `cancel`, `late` or `gone`.
    fn answer(text: &str) -> Answer {
        match text {
            "once" => Answer::Accept,
            "session" => Answer::AcceptForSession,
            "decline" => Answer::Decline,
            "cancel" => Answer::Cancel,
            "late" => Answer::TimedOut,
            "gone" => Answer::Disconnected,
            "panic" => Answer::Failed("it panicked".to_owned()),
            words => Answer::AcceptAndRemember(words.split(' ').map(str::to_owned).collect()),
        }
    }

    #[test]
    fn several_answers() {
        for (answers, strict, mild) in [
            ("once", "once", "once"),
            ("once, session", "once", "session"),
            ("session, once", "once", "session"),
            ("session, session", "session", "session"),
            ("session, git", "session", "git"),
            ("git, session", "session", "git"),
            ("once, git", "once", "git"),
            ("git, git fetch", "git fetch", "git"),
            ("git fetch, git", "git fetch", "git"),
            ("git fetch, git push", "once", "git fetch"),
            ("git fetch, git push, session", "once", "git fetch"),
            ("once, decline", "decline", "once"),
            ("cancel, session", "cancel", "session"),
            ("decline, cancel", "cancel", "decline"),
            ("cancel, decline", "cancel", "decline"),
            // No answer is a refusal, and says less than a real one.
            ("once, late", "late", "once"),
            ("late, decline", "decline", "decline"),
            ("decline, late", "decline", "decline"),
            ("gone, cancel", "cancel", "cancel"),
            ("late, gone, panic", "late", "late"),
            ("panic, git, late", "panic", "git"),
        ] {
            let list = || answers.split(", ").map(answer);
            assert_eq!(strictest(list()), Some(answer(strict)), "the strictest of {answers}");
            assert_eq!(mildest(list()), Some(answer(mild)), "the mildest of {answers}");
        }
        assert_eq!((strictest([]), mildest([])), (None, None));
    }

    proptest! {
        /// The strictest allows nothing that any of them refuses, and the mildest something that one allows.
        #[test]
        fn none_and_any(answers in prop::collection::vec(0usize..9, 1..6)) {
            let names = ["once", "session", "git", "git fetch", "decline", "cancel", "late", "gone", "panic"];
            let answers: Vec<_> = answers.into_iter().map(|index| answer(names[index])).collect();
            let strict = strictest(answers.clone()).unwrap();
            let mild = mildest(answers.clone()).unwrap();
            prop_assert_eq!(strict.accepts(), answers.iter().all(Answer::accepts));
            prop_assert_eq!(mild.accepts(), answers.iter().any(Answer::accepts));
            prop_assert!(answers.contains(&mild));
        }
    }

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

    /// To accept is no answer to a question of the model, and to reply accepts nothing.
    #[test]
    fn answers_are_to_their_own_kind_of_question() {
        let replied = || Answer::Replied([("q".to_owned(), vec!["yes".to_owned()])].into());
        check(&[], replied(), Answer::Invalid);
        let subject = Subject::Questions { call_id: "c".to_owned(), questions: Vec::new() };
        let asked = ApprovalRequest { subject, reason: None, scopes: vec![Scope::Session] };
        for accepted in [Answer::Accept, Answer::AcceptForSession] {
            assert_eq!(within(&asked, accepted), Answer::Invalid);
        }
        for answer in [replied(), Answer::Decline, Answer::TimedOut] {
            assert_eq!(within(&asked, answer.clone()), answer);
        }
        assert_eq!(strictest([replied(), Answer::Decline]), Some(Answer::Decline));
        assert_eq!(mildest([Answer::Decline, replied()]), Some(replied()));
    }
}
