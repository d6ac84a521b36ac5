//! Approvers: code of the host program that answers approval requests, alone or in combination.
//!
//! ```text
//! first_match   asks approvers one after the other; the first opinion counts
//! all_of        asks all at once; the first refusal counts, otherwise the narrowest scope
//! any_of        asks all at once; the first acceptance counts, otherwise the mildest refusal
//! with_fallback asks the second approver only if the first has no opinion
//! with_timeout  sets the answer that counts if there is none in time
//! ```
//!
//! [`engine::approval::strictest`] and [`engine::approval::mildest`] decide how several answers become one. If an
//! approver panics, takes too long or drops the question, that is a refusal with the reason. If no approver has an
//! opinion, that is a refusal, too.

mod channel;
mod compose;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use engine::Question;
use futures_util::FutureExt as _;
use protocol::approval::Answer;
use stdx::panics;
use tokio::time::timeout;

pub use channel::{ChannelApprover, OpenQuestion, QUESTIONS_MAX, Questions, approver_channel};
pub use compose::{
    all_of, any_of, approver_async, approver_fn, first_match, with_fallback, with_timeout,
};

/// Answers approval requests: asks a person, or decides by itself.
///
/// Several questions may be open at once. [`Question::timeout`] is enforced for each.
pub trait Approver: Send + Sync {
    /// Returns the answer to a question. If the future is dropped, the question is withdrawn.
    fn ask(&self, question: Question) -> ApprovalFuture<'_>;

    /// Returns the answer like [`Approver::ask`], or none to leave the question to the next approver. By default, there
    /// is always an answer.
    fn consider(&self, question: Question) -> OpinionFuture<'_> {
        Box::pin(async move { Some(self.ask(question).await) })
    }
}

/// A pending answer.
pub type ApprovalFuture<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// A pending answer; none if the approver has no opinion.
pub type OpinionFuture<'a> = Pin<Box<dyn Future<Output = Option<Answer>> + Send + 'a>>;

impl<A: Approver + ?Sized> Approver for Arc<A> {
    fn ask(&self, question: Question) -> ApprovalFuture<'_> {
        (**self).ask(question)
    }

    fn consider(&self, question: Question) -> OpinionFuture<'_> {
        (**self).consider(question)
    }
}

impl<A: Approver + ?Sized> Approver for Box<A> {
    fn ask(&self, question: Question) -> ApprovalFuture<'_> {
        (**self).ask(question)
    }

    fn consider(&self, question: Question) -> OpinionFuture<'_> {
        (**self).consider(question)
    }
}

/// Passes a question to an approver. There is an answer within [`Question::timeout`], whatever the approver does.
pub async fn ask(approver: &dyn Approver, question: Question) -> Answer {
    let patience = question.timeout;
    match timeout(patience, contained(approver, question)).await {
        Ok(opinion) => opinion.unwrap_or_else(|| Answer::Failed(NO_OPINION.to_owned())),
        Err(_) => Answer::TimedOut,
    }
}

/// The reason of a refusal when no approver has an opinion.
const NO_OPINION: &str = "no approver has an opinion about it";

/// Asks an approver; a panic counts as a refusal.
async fn contained(approver: &dyn Approver, question: Question) -> Option<Answer> {
    let asking = AssertUnwindSafe(async { approver.consider(question).await }).catch_unwind();
    asking.await.unwrap_or_else(|panic| {
        let why = panics::message(&*panic);
        Some(Answer::Failed(format!("the approver panicked: {why}")))
    })
}
