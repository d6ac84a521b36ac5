//! Policies as values that are put together.
//!
//! Whoever has something to say about an effect is a [`Judge`]; having no opinion is an answer too.
//! The folds are functions of their own, so that opinions that are asked for elsewhere, over a wire
//! or one after the other, are combined in the same way.

use crate::decision::{Decision, Place, Verdict};
use crate::grants::Grants;
use crate::judge::Policy;
use crate::request::Effect;

/// Something that may have an opinion about an effect.
pub trait Judge {
    /// Gives the opinion, or none.
    fn opinion(&self, effect: &Effect, grants: &Grants) -> Option<Decision>;
}

/// A list of judges of any kind.
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

/// Judges, and how their opinions become one.
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

/// The first opinion counts; judges after it are not asked.
pub fn first_match(judges: Judges) -> Combined {
    Combined { judges, fold: Fold::First }
}

/// The strictest opinion counts: all must agree to let something happen.
pub fn all_of(judges: Judges) -> Combined {
    Combined { judges, fold: Fold::Strictest }
}

/// The mildest opinion counts: one is enough to let something happen.
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

/// A judge that is asked only where another has no opinion.
pub struct WithFallback<J, K> {
    judge: J,
    fallback: K,
}

/// Puts a judge behind another.
pub fn with_fallback<J: Judge, K: Judge>(judge: J, fallback: K) -> WithFallback<J, K> {
    WithFallback { judge, fallback }
}

impl<J: Judge, K: Judge> Judge for WithFallback<J, K> {
    fn opinion(&self, effect: &Effect, grants: &Grants) -> Option<Decision> {
        self.judge.opinion(effect, grants).or_else(|| self.fallback.opinion(effect, grants))
    }
}

/// Returns the first opinion.
pub fn first(opinions: impl IntoIterator<Item = Option<Decision>>) -> Option<Decision> {
    opinions.into_iter().flatten().next()
}

/// Returns the strictest opinion, of equals the first.
pub fn strictest(opinions: impl IntoIterator<Item = Option<Decision>>) -> Option<Decision> {
    opinions.into_iter().flatten().reduce(|kept, next| {
        if next.verdict.strictness() > kept.verdict.strictness() { next } else { kept }
    })
}

/// Returns the mildest opinion, of equals the first.
pub fn mildest(opinions: impl IntoIterator<Item = Option<Decision>>) -> Option<Decision> {
    opinions.into_iter().flatten().reduce(|kept, next| {
        if next.verdict.strictness() < kept.verdict.strictness() { next } else { kept }
    })
}

/// How strict a verdict is, from the mildest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strictness {
    /// It runs without a sandbox.
    RunOutside,
    /// It runs in the sandbox.
    RunSandbox,
    /// A person is asked whether it runs without a sandbox.
    AskOutside,
    /// A person is asked whether it runs in the sandbox.
    AskSandbox,
    /// It does not run.
    Refuse,
}

impl Verdict {
    /// Tells how strict it is.
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
