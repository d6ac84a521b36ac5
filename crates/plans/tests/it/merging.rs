//! What an agent and a person changed comes together; where both changed the same, the person's stays and the
//! rest is named.

use plans::{Edit, Place, Plan, merge};

use crate::{command, time};

const BASE: &str = "\
# Plan

Status: (2026-01-01) begun

## Steps

- [ ] one that is
  wrapped
- [ ] two
- [x] three
  - evidence: `true` exits 0

## Log

- 2026-01-01: begun

## Notes

Words.
";

/// Merges edits with a replaced text, and compares the outcome: what is in it, what not, and what was left.
#[track_caller]
fn check(edits: &[Edit], replaced: &[(&str, &str)], want: &[&str], not: &[&str], left: &[&str]) {
    let ours = edits.iter().fold(Plan::parse(BASE), |plan, edit| plan.apply(edit).unwrap().plan);
    let theirs = replaced.iter().fold(BASE.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "{old}");
        text.replace(old, new)
    });
    let merged = merge(BASE, ours.text(), &theirs);
    let text = merged.plan.text();
    for part in want {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    for part in not {
        assert!(!text.contains(part), "{part} is in\n{text}");
    }
    let places: Vec<_> = merged.conflicts.iter().map(|conflict| place(&conflict.place)).collect();
    assert_eq!(places, left, "{text}");
}

fn place(place: &Place) -> String {
    match place {
        Place::Step { handle, text } => format!("step {handle}: {text}"),
        Place::Section { title } => title.clone(),
        Place::Beginning => "beginning".to_owned(),
        Place::Document => "document".to_owned(),
    }
}

fn tick(step: &str) -> Edit {
    Edit::Tick { step: step.into(), evidence: vec![command("make")] }
}

fn log() -> Edit {
    Edit::Log { time: time("2026-01-02"), what: "ours".into(), change: None }
}

fn status() -> Edit {
    Edit::Status { time: time("2026-01-02"), text: "ours".into() }
}

fn add() -> Edit {
    Edit::AddStep { after: None, text: "ours".into() }
}

fn surprise() -> Edit {
    Edit::Surprise { what: "ours".into() }
}

#[test]
fn changes_of_different_places_come_together() {
    let ticked = "- [x] two\n  - evidence: `make` exits 0\n";
    check(
        &[tick("two"), log(), status()],
        &[("Words.", "More words.")],
        &[ticked, "ours", "More words."],
        &[],
        &[],
    );
    // Neighbors do not meet.
    check(
        &[tick("two")],
        &[("- [ ] one that is", "- [ ] 1 that is")],
        &[ticked, "1 that is"],
        &[],
        &[],
    );
    check(
        &[tick("two")],
        &[("- [x] three", "- [x] 3")],
        &[&format!("{ticked}- [x] 3\n")],
        &[],
        &[],
    );
    // A note of the person goes below the evidence of the tick, both belong to the step.
    check(
        &[tick("two")],
        &[("two\n", "two\n  - note\n")],
        &[&format!("{ticked}  - note\n")],
        &[],
        &[],
    );
    // Both add a step, or an entry; the person's comes first.
    let new = ("- evidence: `true` exits 0\n", "- evidence: `true` exits 0\n- [ ] theirs\n");
    check(&[add()], &[new], &["- [ ] theirs\n- [ ] ours\n"], &[], &[]);
    check(
        &[log()],
        &[("begun\n\n## Notes", "begun\n- 2026-01-02: theirs\n\n## Notes")],
        &["theirs\n- 2026-01-02: ours\n"],
        &[],
        &[],
    );
    // Evidence is below its own step, not below one that the person added there.
    check(
        &[tick("three")],
        &[new],
        &["- [x] three\n  - evidence: `make` exits 0\n- [ ] theirs\n"],
        &[],
        &[],
    );
    check(
        &[tick("two")],
        &[("two\n", "two\n- [ ] theirs\n")],
        &[&format!("{ticked}- [ ] theirs\n")],
        &[],
        &[],
    );
    // An entry stays in its section when the person adds a section behind it.
    check(
        &[log()],
        &[("begun\n\n## Notes", "begun\n\n## Theirs\n\nText.\n\n## Notes")],
        &["- 2026-01-02: ours\n\n## Theirs\n"],
        &[],
        &[],
    );
    let next = ("  wrapped\n", "  wrapped\n- [ ] theirs\n");
    let ticked_one = "  wrapped\n  - evidence: `make` exits 0\n- [ ] theirs\n";
    check(&[tick("one")], &[next], &[ticked_one], &[], &[]);
    let section = ("01: begun\n", "01: begun\n## Theirs\n");
    check(&[log()], &[section], &["- 2026-01-02: ours\n## Theirs\n"], &[], &[]);
    // Both ticked the same step, and one of them says why.
    check(&[tick("two")], &[("- [ ] two", "- [x] two")], &[ticked], &[], &[]);
    let wrapped = "- [x] one that is\n  wrapped\n  - evidence: `make` exits 0\n";
    check(&[tick("one")], &[("- [ ] one", "- [x] one")], &[wrapped], &[], &[]);
    check(&[log()], &[("\n", "\r\n")], &["begun\r\n- 2026-01-02: ours\r\n"], &[], &[]);
}

#[test]
fn the_person_wins() {
    check(
        &[tick("two")],
        &[("- [ ] two", "- [ ] 2")],
        &["- [ ] 2\n- [x] three"],
        &["make"],
        &["step 2: two"],
    );
    check(
        &[tick("two")],
        &[("- [ ] two\n", "")],
        &["wrapped\n- [x] three"],
        &["make"],
        &["step 2: two"],
    );
    // A tick and its evidence are left as one, also if the person changed another line of the step.
    check(
        &[tick("one")],
        &[("  wrapped", "  rewritten")],
        &["- [ ] one that is\n  rewritten"],
        &["make"],
        &["step 1: one that is wrapped"],
    );
    // New evidence of a step that was reworded would be that of something else.
    check(
        &[tick("three")],
        &[("- [x] three", "- [x] 3")],
        &["- [x] 3\n  - evidence: `true`"],
        &["make"],
        &["step 3: three"],
    );
    check(
        &[status()],
        &[("begun\n\n## Steps", "theirs\n\n## Steps")],
        &["(2026-01-01) theirs"],
        &["ours"],
        &["Plan"],
    );
    // A section that is gone or named otherwise takes no entries.
    check(&[log()], &[("## Log\n\n- 2026-01-01: begun\n\n", "")], &[], &["ours"], &["Log"]);
    check(&[log(), tick("two")], &[("## Log", "## Diary")], &["make"], &["ours"], &["Log"]);
    // Both make the same section.
    check(
        &[surprise()],
        &[("begun\n\n## Notes", "begun\n\n## Surprises\n\n- theirs\n\n## Notes")],
        &["## Surprises\n\n- theirs\n"],
        &["ours"],
        &["Surprises"],
    );
}

#[test]
fn what_was_left_is_shown() {
    let ours = Plan::parse(BASE).apply(&tick("two")).unwrap().plan;
    let merged = merge(BASE, ours.text(), &BASE.replace("two", "2"));
    let [conflict] = &*merged.conflicts else { panic!("{:?}", merged.conflicts) };
    assert_eq!(conflict.ours, "- [x] two\n  - evidence: `make` exits 0\n");
    assert_eq!(conflict.theirs, "- [ ] 2\n");
}
