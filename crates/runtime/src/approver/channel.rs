//! An approver whose questions are answered elsewhere, such as in the loop of a user interface.

use engine::Question;
use protocol::approval::Answer;
use tokio::sync::{mpsc, oneshot};

use super::{ApprovalFuture, Approver};

/// Most questions that wait to be taken; when there are as many, calls wait.
pub const QUESTIONS_MAX: usize = 64;

/// Creates an approver, and the other end of it, where the questions arrive.
pub fn approver_channel() -> (ChannelApprover, Questions) {
    let (sender, receiver) = mpsc::channel(QUESTIONS_MAX);
    (ChannelApprover(sender), Questions(receiver))
}

/// Hands questions to whoever has the [`Questions`]. Once that is dropped, there is nobody to ask.
#[derive(Clone, Debug)]
pub struct ChannelApprover(mpsc::Sender<OpenQuestion>);

/// The questions that arrive.
#[derive(Debug)]
pub struct Questions(mpsc::Receiver<OpenQuestion>);

/// A question that waits for its answer. Dropping it is a refusal.
#[derive(Debug)]
pub struct OpenQuestion {
    /// The question.
    pub question: Question,
    reply: oneshot::Sender<Answer>,
}

impl Questions {
    /// Waits for the next question; none once the approver is gone.
    pub async fn next(&mut self) -> Option<OpenQuestion> {
        self.0.recv().await
    }
}

impl OpenQuestion {
    /// Answers the question. An answer to a question that was withdrawn or has timed out is dropped.
    pub fn answer(self, answer: Answer) {
        let _ = self.reply.send(answer);
    }

    /// Returns whether nobody waits for the answer any more.
    pub fn is_withdrawn(&self) -> bool {
        self.reply.is_closed()
    }
}

impl Approver for ChannelApprover {
    fn ask(&self, question: Question) -> ApprovalFuture<'_> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            if self.0.send(OpenQuestion { question, reply }).await.is_err() {
                return Answer::Disconnected;
            }
            let dropped =
                |_| Answer::Failed("the question was dropped without an answer".to_owned());
            answer.await.unwrap_or_else(dropped)
        })
    }
}
