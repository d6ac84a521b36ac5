//! How several opinions about an effect become one decision.
//!
//! The opinions are collected elsewhere, since that can take time: `runtime` asks the judges of a host program.

use crate::decision::{Decision, Place, Verdict};

/// Returns the strictest opinion; among equals, the first.
pub fn strictest(opinions: impl IntoIterator<Item = Option<Decision>>) -> Option<Decision> {
    opinions.into_iter().flatten().reduce(|kept, next| {
        if next.verdict.strictness() > kept.verdict.strictness() { next } else { kept }
    })
}

/// Returns the most lenient opinion; among equals, the first.
pub fn mildest(opinions: impl IntoIterator<Item = Option<Decision>>) -> Option<Decision> {
    opinions.into_iter().flatten().reduce(|kept, next| {
        if next.verdict.strictness() < kept.verdict.strictness() { next } else { kept }
    })
}

/// How strict a verdict is, most lenient first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strictness {
    RunOutside,
    RunSandbox,
    /// A person is asked whether it may run outside the sandbox.
    AskOutside,
    /// A person is asked whether it may run in the sandbox.
    AskSandbox,
    Refuse,
}

impl Verdict {
    pub fn strictness(&self) -> Strictness {
        match self {
            Self::Run(Place::Outside) => Strictness::RunOutside,
            Self::Run(Place::Sandbox) => Strictness::RunSandbox,
            Self::Ask(ask) if ask.place == Place::Outside => Strictness::AskOutside,
            Self::Ask(_) => Strictness::AskSandbox,
            Self::Refuse(_) => Strictness::Refuse,
        }
    }
}
