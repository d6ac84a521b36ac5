//! Whoever questions are put to.

use std::future::Future;
use std::pin::Pin;

use engine::Question;
use protocol::approval::Answer;

/// Puts questions to a person, or to a program that answers for one.
///
/// Several may be open at once. Each is kept open for [`Question::timeout`] by the driver.
pub trait Approver: Send + Sync {
    /// Asks, and waits for the answer. The future is dropped when nobody needs it any more: the
    /// question is withdrawn then.
    fn ask(&self, question: Question) -> ApprovalFuture<'_>;
}

/// An answer that is waited for.
pub type ApprovalFuture<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;
