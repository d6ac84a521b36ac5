//! An approver whose questions are answered elsewhere, such as in the loop of a user interface.

use engine::Question;
use protocol::approval::Answer;
use tokio::sync::{mpsc, oneshot};

use super::{ApprovalFuture, Approver};

/// Most questions that wait to be taken; further questions wait for room.
pub const QUESTIONS_MAX: usize = 64;

/// Creates an approver, and the receiver of its questions.
pub fn approver_channel() -> (ChannelApprover, Questions) {
    let (sender, receiver) = mpsc::channel(QUESTIONS_MAX);
    (ChannelApprover(sender), Questions(receiver))
}

/// Sends its questions to [`Questions`]. Once that is dropped, every answer is [`Answer::Disconnected`].
#[derive(Clone, Debug)]
pub struct ChannelApprover(mpsc::Sender<OpenQuestion>);

/// Receives the questions of a [`ChannelApprover`].
#[derive(Debug)]
pub struct Questions(mpsc::Receiver<OpenQuestion>);

/// A question that waits for its answer. Dropping it refuses.
#[derive(Debug)]
pub struct OpenQuestion {
    /// The question to answer.
    pub question: Question,
    reply: oneshot::Sender<Answer>,
}

impl Questions {
    /// Waits for the next question; none once all clones of the approver are dropped.
    pub async fn next(&mut self) -> Option<OpenQuestion> {
        self.0.recv().await
    }
}

impl OpenQuestion {
    /// Answers the question. An answer to a question that was withdrawn or has timed out is dropped.
    pub fn answer(self, answer: Answer) {
        let _ = self.reply.send(answer);
    }

    /// Returns whether the question was withdrawn or has timed out, so that no answer is needed any more.
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
