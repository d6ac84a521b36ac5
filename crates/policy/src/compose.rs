//! Policies as values that can be combined.
//!
//! Anything with an opinion about an effect is a [`Judge`]; having no opinion is valid too. The folds are
//! separate functions, so that opinions collected elsewhere, over a connection or one by one, are combined in
//! the same way.

use crate::decision::{Decision, Place, Verdict};
use crate::grants::Grants;
use crate::judge::Policy;
use crate::request::Effect;

/// Something that may have an opinion about an effect.
pub trait Judge {
    /// Returns the opinion, if there is one.
    fn opinion(&self, effect: &Effect, grants: &Grants) -> Option<Decision>;
}

pub type Judges = Vec<Box<dyn Judge + Send + Sync>>;

impl Judge for Policy {
    /// Always has an opinion.
    fn opinion(&self, effect: &Effect, grants: &Grants) -> Option<Decision> {
        Some(self.judge(effect, grants))
    }
}

impl<F: Fn(&Effect, &Grants) -> Option<Decision>> Judge for F {
    fn opinion(&self, effect: &Effect, grants: &Grants) -> Option<Decision> {
        self(effect, grants)
    }
}

/// Several judges, and how their opinions are combined.
pub struct Combined {
    judges: Judges,
    fold: Fold,
}

#[derive(Clone, Copy)]
enum Fold {
    First,
    Strictest,
    Mildest,
}

/// Combines judges so that the first opinion counts; judges after it are not asked.
pub fn first_match(judges: Judges) -> Combined {
    Combined { judges, fold: Fold::First }
}

/// Combines judges so that the strictest opinion counts: all must agree to let something happen.
pub fn all_of(judges: Judges) -> Combined {
    Combined { judges, fold: Fold::Strictest }
}

/// Combines judges so that the most lenient opinion counts: one is enough to let something happen.
pub fn any_of(judges: Judges) -> Combined {
    Combined { judges, fold: Fold::Mildest }
}

impl Judge for Combined {
    fn opinion(&self, effect: &Effect, grants: &Grants) -> Option<Decision> {
        let opinions = self.judges.iter().map(|judge| judge.opinion(effect, grants));
        match self.fold {
            Fold::First => first(opinions),
            Fold::Strictest => strictest(opinions),
            Fold::Mildest => mildest(opinions),
        }
    }
}

/// A judge with a fallback for cases in which it has no opinion.
pub struct WithFallback<J, K> {
    judge: J,
    fallback: K,
}

/// Adds a fallback to a judge.
pub fn with_fallback<J: Judge, K: Judge>(judge: J, fallback: K) -> WithFallback<J, K> {
    WithFallback { judge, fallback }
}

impl<J: Judge, K: Judge> Judge for WithFallback<J, K> {
    fn opinion(&self, effect: &Effect, grants: &Grants) -> Option<Decision> {
        self.judge.opinion(effect, grants).or_else(|| self.fallback.opinion(effect, grants))
    }
}

pub fn first(opinions: impl IntoIterator<Item = Option<Decision>>) -> Option<Decision> {
    opinions.into_iter().flatten().next()
}

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
