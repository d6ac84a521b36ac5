//! Several decisions made into one. Stands in for `policy::compose` until that exists.

use policy::{Ask, Decision, Place, Verdict};

/// Returns the first decision.
pub fn first(decisions: impl IntoIterator<Item = Decision>) -> Option<Decision> {
    decisions.into_iter().next()
}

/// Returns the decision that allows least; of several that allow the same, the first.
pub fn strictest(decisions: impl IntoIterator<Item = Decision>) -> Option<Decision> {
    decisions.into_iter().reduce(|a, b| if rank(&b) > rank(&a) { b } else { a })
}

/// Returns the decision that allows most; of several that allow the same, the first.
pub fn mildest(decisions: impl IntoIterator<Item = Decision>) -> Option<Decision> {
    decisions.into_iter().reduce(|a, b| if rank(&b) < rank(&a) { b } else { a })
}

fn rank(decision: &Decision) -> u8 {
    match &decision.verdict {
        Verdict::Run(Place::Outside) => 0,
        Verdict::Run(Place::Sandbox) => 1,
        Verdict::Ask(Ask { .. }) => 2,
        Verdict::Refuse(_) => 3,
    }
}
