//! Opinions of the host program about what a model wants to do.

use std::future::Future;
use std::pin::Pin;

use policy::{Decision, Effect, Grants, Policy};

/// Gives opinions about what a model wants to do, asynchronously.
pub trait Judge: Send + Sync {
    /// Gives an opinion, or none. Dropping the future withdraws the question.
    fn judge<'a>(&'a self, effect: &'a Effect) -> Opinion<'a>;
}

/// A future opinion.
pub type Opinion<'a> = Pin<Box<dyn Future<Output = Option<Decision>> + Send + 'a>>;

/// A policy is a judge that always has an opinion, immediately, and remembers no acceptance.
impl Judge for Policy {
    fn judge<'a>(&'a self, effect: &'a Effect) -> Opinion<'a> {
        let decision = Policy::judge(self, effect, &Grants::default());
        Box::pin(std::future::ready(Some(decision)))
    }
}
