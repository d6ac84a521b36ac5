//! Any three texts and any words: they are plans, edits change what they say and forge nothing, and a merge
//! has no tick that neither side has.

use plans::{Edit, Evidence, Plan, State, Time, merge};

/// Panics if a property does not hold. Texts follow each other after zero bytes: the plan, what the person
/// made of it, what is written into it.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut texts = text.split('\0');
    let [base, theirs, words] = [0; 3].map(|_| texts.next().unwrap_or("words"));
    let plan = Plan::parse(base);
    assert_eq!(plan.text(), base);
    let _ = plan.problems();
    assert!(plan.pinned(100).len() <= 400);
    for (index, step) in plan.steps().iter().enumerate() {
        assert_eq!(plan.step(&step.handle), Ok(index));
    }
    let mut ours = plan;
    for edit in edits(words) {
        let Ok(change) = ours.apply(&edit) else { continue };
        let (old, new) = (done(&ours), done(&change.plan));
        let ticks = usize::from(matches!(edit, Edit::Tick { .. }));
        assert!(new.len() <= old.len() + ticks, "{edit:?}");
        ours = change.plan;
    }
    let sides = [done(&ours), done(&Plan::parse(theirs))].concat();
    let merged = merge(base, ours.text(), theirs).plan;
    assert!(done(&merged).iter().all(|step| sides.contains(step)));
    assert_eq!(merge(base, base, theirs).plan.text(), theirs);
    assert_eq!(merge(base, ours.text(), base).plan.text(), ours.text());
}

fn done(plan: &Plan) -> Vec<(String, Vec<Evidence>)> {
    let done = plan.steps().iter().filter(|step| step.state == State::Done);
    done.map(|step| (step.text.clone(), step.evidence.clone())).collect()
}

fn edits(words: &str) -> [Edit; 9] {
    let time: Time = "2026-01-02 03:04Z".parse().unwrap();
    let words = || words.to_owned();
    let command = |command: &str| vec![Evidence::Command { command: command.to_owned(), exit: 0 }];
    [
        Edit::Tick { step: "#1".into(), evidence: command("true") },
        Edit::Tick { step: words(), evidence: command(&words()) },
        Edit::Untick { step: "#2".into(), reason: words() },
        Edit::AddStep { after: Some("#1".into()), text: words() },
        Edit::Log { time, what: words(), change: Some(words()) },
        Edit::Decide { time, what: words(), reason: words() },
        Edit::Surprise { what: words() },
        Edit::Status { time, text: words() },
        Edit::Finish { outcome: words() },
    ]
}
