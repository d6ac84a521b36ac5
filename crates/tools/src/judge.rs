//! The interface for judges: code of the host program that can restrict what the model may do.

use std::future::Future;
use std::pin::Pin;

use policy::{Decision, Effect, Grants, Policy};

/// Restricts what the model may do, in addition to the policy.
pub trait Judge: Send + Sync {
    /// Returns a decision about an effect, or none to leave it to the policy. Dropping the future withdraws the question.
    fn judge<'a>(&'a self, effect: &'a Effect) -> Opinion<'a>;
}

/// A pending decision; none leaves it to the policy.
pub type Opinion<'a> = Pin<Box<dyn Future<Output = Option<Decision>> + Send + 'a>>;

/// A policy is a judge that always decides, immediately, and ignores earlier approvals.
impl Judge for Policy {
    fn judge<'a>(&'a self, effect: &'a Effect) -> Opinion<'a> {
        let decision = Policy::judge(self, effect, &Grants::default());
        Box::pin(std::future::ready(Some(decision)))
    }
}
