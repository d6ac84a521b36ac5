//! Questions of turns that no client has answered yet.
//!
//! A question is seen twice: as an event, which sends it to the clients, and as a call of [`Asked::ask`], which waits for
//! the answer. Either can come first.

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
    /// The id of the request that was sent to the clients; `None` until it is sent.
    request: Option<i64>,
    answer: Option<Answer>,
    waiting: Option<oneshot::Sender<Answer>>,
}

impl Asked {
    /// Records which request carries a question to the clients.
    pub(crate) fn note_request(&self, id: ApprovalId, request: i64) {
        self.lock().entry(id).or_default().request = Some(request);
    }

    /// Answers a question. Only the first answer counts.
    pub(crate) fn answer(&self, id: ApprovalId, answer: Answer) {
        let mut open = self.lock();
        let entry = open.entry(id).or_default();
        match entry.waiting.take() {
            Some(waiting) => drop(waiting.send(answer)),
            None if entry.answer.is_none() => entry.answer = Some(answer),
            None => {}
        }
    }

    /// Removes a settled question. Returns the id of its request, if one was sent.
    pub(crate) fn resolve(&self, id: ApprovalId) -> Option<i64> {
        self.lock().remove(&id)?.request
    }

    /// Answers all open questions as disconnected, because no client is left to answer or the thread is closing.
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
