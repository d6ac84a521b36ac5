//! The questions of turns that clients have not answered yet.
//!
//! A question comes up twice: as an event, upon which it is sent to clients, and as a call of [`Asked::ask`], which
//! waits for the answer. Either can come first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use heddle::approvals::{Answer, ApprovalFuture, Approver, Question};
use protocol::id::ApprovalId;
use tokio::sync::oneshot;

/// The open questions of a thread.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    open: Mutex<HashMap<ApprovalId, Open>>,
}

#[derive(Debug, Default)]
struct Open {
    /// The id of the request to the clients; none until it is sent.
    request: Option<i64>,
    answer: Option<Answer>,
    waiting: Option<oneshot::Sender<Answer>>,
}

impl Asked {
    /// Records the id of the request by which a question was sent to clients.
    pub(crate) fn note_request(&self, id: ApprovalId, request: i64) {
        self.lock().entry(id).or_default().request = Some(request);
    }

    /// Answers a question. The first answer counts.
    pub(crate) fn answer(&self, id: ApprovalId, answer: Answer) {
        let mut open = self.lock();
        let entry = open.entry(id).or_default();
        match entry.waiting.take() {
            Some(waiting) => drop(waiting.send(answer)),
            None if entry.answer.is_none() => entry.answer = Some(answer),
            None => {}
        }
    }

    /// Forgets a question that is settled. Returns the id of the request to clients, if it was sent.
    pub(crate) fn resolve(&self, id: ApprovalId) -> Option<i64> {
        self.lock().remove(&id)?.request
    }

    /// Answers all open questions as disconnected, when no client is left to answer or the thread closes.
    pub(crate) fn give_up(&self) {
        let ids: Vec<_> = self.lock().keys().copied().collect();
        ids.into_iter().for_each(|id| self.answer(id, Answer::Disconnected));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ApprovalId, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Approver for Asked {
    fn ask(&self, question: Question) -> ApprovalFuture<'_> {
        Box::pin(async move {
            let answer = {
                let mut open = self.lock();
                let entry = open.entry(question.id).or_default();
                if let Some(answer) = entry.answer.take() {
                    return answer;
                }
                let (sender, answer) = oneshot::channel();
                entry.waiting = Some(sender);
                answer
            };
            // The sender is dropped if the question is settled without an answer.
            answer.await.unwrap_or(Answer::Disconnected)
        })
    }
}
