//! Opinions about what a model wants to do, from a program that hosts us.

use std::future::Future;
use std::pin::Pin;

use policy::{Decision, Effect, Grants, Policy};

/// Somebody with opinions about what a model wants to do, who may take their time.
pub trait Judge: Send + Sync {
    /// Gives an opinion, or none. Dropping the future asks no longer.
    fn judge<'a>(&'a self, effect: &'a Effect) -> Opinion<'a>;
}

/// An opinion that is being formed.
pub type Opinion<'a> = Pin<Box<dyn Future<Output = Option<Decision>> + Send + 'a>>;

/// A policy is a judge that always has an opinion, at once, and remembers no acceptance.
impl Judge for Policy {
    fn judge<'a>(&'a self, effect: &'a Effect) -> Opinion<'a> {
        let decision = Policy::judge(self, effect, &Grants::default());
        Box::pin(std::future::ready(Some(decision)))
    }
}
