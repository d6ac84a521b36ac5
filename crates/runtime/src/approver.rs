//! Approvers: code of the host program that answers approval requests, alone or put together.
//!
//! ```text
//! first_match   the first that has an opinion, asked one after the other
//! all_of        all are asked at once; a refusal settles it, otherwise the narrowest scope counts
//! any_of        all are asked at once; an acceptance settles it, otherwise the mildest refusal counts
//! with_fallback the second is asked only if the first has no opinion
//! with_timeout  what counts if there is no answer in time
//! ```
//!
//! How several answers become one is decided by [`engine::approval::strictest`] and [`engine::approval::mildest`]. An
//! approver that panics, takes too long or drops the question has refused, and the reason says so. If none of those that
//! were asked has an opinion, that is a refusal, too.

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

/// Asks a person, or a program that answers for one.
///
/// Several questions may be open at once. [`Question::timeout`] is enforced for each.
pub trait Approver: Send + Sync {
    /// Asks, and waits for the answer. If the future is dropped, the question is withdrawn.
    fn ask(&self, question: Question) -> ApprovalFuture<'_>;

    /// Asks like [`Approver::ask`]; none leaves the question to the next approver. By default there always is an answer.
    fn consider(&self, question: Question) -> OpinionFuture<'_> {
        Box::pin(async move { Some(self.ask(question).await) })
    }
}

/// A pending answer.
pub type ApprovalFuture<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// A pending answer, or none of an approver that has no opinion.
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

/// Puts a question to an approver. Whatever it does, there is an answer within [`Question::timeout`].
pub async fn ask(approver: &dyn Approver, question: Question) -> Answer {
    let patience = question.timeout;
    match timeout(patience, contained(approver, question)).await {
        Ok(opinion) => opinion.unwrap_or_else(|| Answer::Failed(NO_OPINION.to_owned())),
        Err(_) => Answer::TimedOut,
    }
}

/// The reason of a refusal when no approver has an opinion.
const NO_OPINION: &str = "no approver has an opinion about it";

/// Asks an approver, whose panic is a refusal.
async fn contained(approver: &dyn Approver, question: Question) -> Option<Answer> {
    let asking = AssertUnwindSafe(async { approver.consider(question).await }).catch_unwind();
    asking.await.unwrap_or_else(|panic| {
        let why = panics::message(&*panic);
        Some(Answer::Failed(format!("the approver panicked: {why}")))
    })
}
