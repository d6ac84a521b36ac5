//! What holds for any text, any edits and any two sides.

use plans::{Edit, Plan, State, merge};
use proptest::prelude::*;

use crate::{command, time};

/// Lines that mean something, and some that mean nothing.
fn line() -> impl Strategy<Value = String> {
    let known = prop::sample::select(&[
        "# Title",
        "## Steps",
        "## Progress",
        "## Log",
        "## Decisions",
        "## Surprises",
        "## Outcome",
        "## Purpose",
        "## Status",
        "## Success criteria",
        "### Part",
        "**Steps**",
        "- [ ] one",
        "- [x] two",
        "  - [ ] three",
        "\t- [~] four",
        "1. [ ] five",
        "* six",
        "- evidence: `true` exits 0",
        "  - evidence: `false` exits 1",
        "  Evidence: seen",
        "- 2026-01-01: begun",
        "  - reason: why not",
        "| what | state |",
        "| --- | --- |",
        "| seven | open |",
        "| eight | done: `true` exits 0 |",
        "| date | what |",
        "```",
        "~~~",
        "<!--",
        "-->",
        "",
        "",
        "---",
        "===",
        "Status: (2026-01-01) going on",
        "None yet.",
        "text",
        "> quote",
        "    code",
        "- ",
        "\u{feff}",
    ]);
    let ending = prop::sample::select(&["\n", "\n", "\n", "\r\n", "\r", ""]);
    let odd = prop_oneof![8 => known.prop_map(str::to_owned), 1 => "[-#|`\\[\\]x* :~<>!0-9a\t]{0,12}", 1 => any::<String>()];
    (odd, ending).prop_map(|(line, ending)| line + ending)
}

fn document() -> impl Strategy<Value = String> {
    prop::collection::vec(line(), 0..40).prop_map(|lines| lines.concat())
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof![line(), "[a-z ]{1,20}", document(), any::<String>()]
}

fn edit() -> impl Strategy<Value = Edit> {
    let name = || prop_oneof![(1usize..8).prop_map(|at| format!("#{at}")), words()];
    let time = || Just(time("2026-02-02 10:00Z"));
    prop_oneof![
        (name(), words()).prop_map(|(step, it)| Edit::Tick { step, evidence: vec![command(&it)] }),
        name().prop_map(|step| Edit::Tick { step, evidence: vec![command("true")] }),
        (name(), words()).prop_map(|(step, reason)| Edit::Untick { step, reason }),
        (prop::option::of(name()), words()).prop_map(|(after, text)| Edit::AddStep { after, text }),
        (time(), words(), prop::option::of(words())).prop_map(|(time, what, change)| Edit::Log {
            time,
            what,
            change
        }),
        (time(), words(), words()).prop_map(|(time, what, reason)| Edit::Decide {
            time,
            what,
            reason
        }),
        words().prop_map(|what| Edit::Surprise { what }),
        (time(), words()).prop_map(|(time, text)| Edit::Status { time, text }),
        words().prop_map(|outcome| Edit::Finish { outcome }),
    ]
}

/// A document and what became of it when lines went and came.
fn changed() -> impl Strategy<Value = (String, String, String)> {
    let side = || prop::collection::vec((any::<prop::sample::Index>(), 0usize..3, line()), 0..4);
    (prop::collection::vec(line(), 0..30), side(), side()).prop_map(|(lines, ours, theirs)| {
        let change = |side: Vec<(prop::sample::Index, usize, String)>| {
            let mut lines = lines.clone();
            for (at, kind, line) in side {
                let at = at.index(lines.len() + 1);
                match kind {
                    0 => lines.insert(at, line),
                    1 if at < lines.len() => lines[at] = line,
                    _ if at < lines.len() => drop(lines.remove(at)),
                    _ => {}
                }
            }
            lines.concat()
        };
        (lines.concat(), change(ours), change(theirs))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_plan(text in prop_oneof![document(), any::<String>()]) {
        let plan = Plan::parse(&*text);
        prop_assert_eq!(plan.text(), &text);
        for step in plan.steps() {
            prop_assert!(text.get(step.span.start..step.span.end).is_some());
            prop_assert_eq!(plan.steps()[plan.step(&step.handle).unwrap()].span, step.span);
        }
        prop_assert!(plan.pinned(300).len() <= 1200);
        for problem in plan.problems() {
            let said = problem.kind.to_string();
            prop_assert!(!said.contains(char::is_control), "{:?}", said);
        }
    }

    #[test]
    fn edits_change_what_they_say(text in document(), edits in prop::collection::vec(edit(), 1..6)) {
        let mut plan = Plan::parse(text);
        for edit in &edits {
            let Ok(change) = plan.apply(edit) else { continue };
            let mut at = 0;
            let mut put = String::new();
            for splice in &change.splices {
                prop_assert!(at <= splice.range.start);
                put.push_str(&plan.text()[at..splice.range.start]);
                put.push_str(&splice.text);
                at = splice.range.end;
            }
            put.push_str(&plan.text()[at..]);
            prop_assert_eq!(&put, change.plan.text());
            let (old, new) = (plan.outline(), change.plan.outline());
            if !matches!(edit, Edit::AddStep { .. }) {
                prop_assert_eq!(old.steps.len(), new.steps.len());
            }
            let done = |plan: &Plan| plan.steps().iter().filter(|it| it.state == State::Done).count();
            let more = usize::from(matches!(edit, Edit::Tick { .. }));
            prop_assert!(done(&change.plan) <= done(&plan) + more);
            // The same once more changes nothing, or is refused.
            if let Ok(again) = change.plan.apply(edit) {
                prop_assert_eq!(again.plan.text(), &put);
            }
            plan = change.plan;
        }
    }

    #[test]
    fn a_side_that_changed_nothing_decides_nothing((base, ours, theirs) in changed()) {
        for (base, ours, theirs, want) in [
            (&base, &base, &theirs, &theirs),
            (&base, &ours, &base, &ours),
            (&base, &ours, &ours, &ours),
        ] {
            let merged = merge(base, ours, theirs);
            prop_assert_eq!(merged.plan.text(), want);
            prop_assert!(merged.conflicts.is_empty());
        }
        let merged = merge(&base, &ours, &theirs);
        // Nothing is done in it that was done by nobody.
        let done = |text: &str| {
            let plan = Plan::parse(text);
            let done = plan.steps().iter().filter(|it| it.state == State::Done);
            done.map(|it| (it.text.clone(), it.evidence.clone())).collect::<Vec<_>>()
        };
        let known = [done(&ours), done(&theirs)].concat();
        for step in done(merged.plan.text()) {
            prop_assert!(known.contains(&step), "{step:?}");
        }
    }
}
