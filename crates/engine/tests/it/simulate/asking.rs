//! Calls that ask for approval, and users that answer, cancel or never come back.

use engine::{Input, Outcome, Question, Report, prompt};
use protocol::approval::{Answer, ApprovalRequest, Scope, Subject};
use protocol::event::Event;

use super::World;

impl World<'_> {
    /// A call asks for approval, unless it has already asked.
    pub(super) fn ask(&mut self) {
        let key = self.running_key();
        let prefix = vec![format!("p{}", self.rng.next_u64())];
        let subject = Subject::Command { argv: Vec::new(), cwd: "/".into(), outside: false };
        let mut scopes = vec![Scope::Session, Scope::Prefix(prefix)];
        scopes.truncate(self.rng.below(3) as usize);
        let request = ApprovalRequest { subject, reason: None, scopes };
        if self.questions.values().any(|(call, _)| *call == key) {
            return self.refuse(Input::Asked(key, request));
        }
        self.asking = Some(key);
        let open = self.questions.len();
        self.accept(Input::Asked(key, request));
        assert_eq!(self.questions.len(), open + 1, "nobody was asked");
        self.happened.push("question");
        if open > 0 {
            self.happened.push("question beside another");
        }
    }

    /// A question is answered, or it is certain that it never will be.
    pub(super) fn answer(&mut self, wild: bool) {
        let ids: Vec<_> = self.questions.keys().copied().collect();
        let id = ids[self.rng.below(ids.len() as u64) as usize];
        let (key, request) = self.questions.remove(&id).unwrap();
        let offered = request.scopes.iter().find_map(|scope| match scope {
            Scope::Prefix(prefix) => Some(prefix.clone()),
            Scope::Session => None,
        });
        let session = request.scopes.contains(&Scope::Session);
        let (answer, want) = match if wild { self.rng.below(18) } else { 0 } {
            0..=2 => (Answer::Accept, Answer::Accept),
            3 | 4 => {
                let want = if session { Answer::AcceptForSession } else { Answer::Accept };
                (Answer::AcceptForSession, want)
            }
            5..=7 if offered.is_some() => {
                let answer = Answer::AcceptAndRemember(offered.unwrap());
                (answer.clone(), answer)
            }
            5..=7 => (Answer::AcceptAndRemember(vec!["all".into()]), Answer::Accept),
            8 | 9 => (Answer::Decline, Answer::Decline),
            10 | 11 => (Answer::TimedOut, Answer::TimedOut),
            12 | 13 => (Answer::Disconnected, Answer::Disconnected),
            14 => (Answer::Invalid, Answer::Invalid),
            _ => {
                for call in self.running.values() {
                    self.returned.insert(call.call_id.clone(), "aborted by user".into());
                }
                let before = self.questions.len();
                self.accept(Input::Answered(id, Answer::Cancel));
                assert_eq!(self.finished, Some(Outcome::Interrupted), "a cancel ends the turn");
                self.happened.push("cancel");
                if before > 0 {
                    self.happened.push("cancel beside another question");
                }
                return;
            }
        };
        self.resuming = Some((key, want.clone()));
        self.accept(Input::Answered(id, answer.clone()));
        assert_eq!(self.resuming, None, "{key:?} was not let go on");
        if self.rng.one_in(3) {
            // Answering again has no effect.
            self.drop(Input::Answered(id, answer));
        }
        if let Answer::AcceptAndRemember(prefix) = want {
            self.told.push(prompt::prefix_saved(&prefix));
            self.accept(Input::Reported(key, Report::Remembered(prefix)));
            self.happened.push("prefix remembered");
        }
    }

    pub(super) fn observe_question(&mut self, question: Question) {
        let Question { id, item, request, timeout } = question;
        assert_eq!(timeout, self.options.limits.approval_timeout);
        assert_eq!(id.0, self.next_approval, "questions are numbered in order");
        self.next_approval += 1;
        assert!(item.is_none_or(|item| self.items.open.contains_key(&item)), "{item:?}");
        let told = Event::ApprovalRequested { id, item, request: request.clone() };
        assert_eq!(self.last_event, Some(told), "a question that nobody was told of");
        let key = self.asking.take().expect("somebody asks");
        self.questions.insert(id, (key, request));
        let limit = self.options.limits.calls_parallel_max.max(1);
        assert!(self.questions.len() <= limit, "more questions than calls can run");
    }
}
