//! The interface through which a front end or a program answers approval requests.

use std::future::Future;
use std::pin::Pin;

use engine::Question;
use protocol::approval::Answer;

/// Asks a person, or a program that answers for one.
///
/// Several questions may be open at once. The driver enforces [`Question::timeout`] for each.
pub trait Approver: Send + Sync {
    /// Asks, and waits for the answer. If the future is dropped, the question is withdrawn.
    fn ask(&self, question: Question) -> ApprovalFuture<'_>;
}

/// A pending answer.
pub type ApprovalFuture<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;
