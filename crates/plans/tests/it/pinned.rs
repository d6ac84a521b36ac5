//! What a model is shown: within its limit, with every open step or the number of those that are missing.

use std::fmt::Write as _;

use plans::{Plan, template};

use crate::time;

/// A plan of `open` steps that are open and `done` ones that are not, with texts of `length` bytes.
fn plan(open: usize, done: usize, length: usize) -> Plan {
    let mut text = template("A long task", time("2026-03-01 10:00Z")).unwrap();
    let mut steps = String::new();
    for at in 0..done + open {
        let mark = if at < done { 'x' } else { ' ' };
        let words = format!("number {at} ").repeat(length / 10 + 1);
        writeln!(steps, "- [{mark}] {}", &words.trim_end()[..length.min(words.len() - 1)]).unwrap();
    }
    text = text.replace("## Progress log", &format!("{steps}\n## Progress log"));
    Plan::parse(text)
}

/// Checks the size of what is shown, and that open steps are shown or counted.
#[track_caller]
fn check(plan: &Plan, tokens: usize) -> String {
    let pinned = plan.pinned(tokens);
    assert!(pinned.len() <= tokens * 4, "{} bytes of {}", pinned.len(), tokens * 4);
    let open: Vec<_> = plan.steps().iter().filter(|step| step.is_open()).collect();
    if tokens < 64 {
        return pinned;
    }
    let list = pinned
        .split_once("\nOpen")
        .map_or("", |(_, list)| list.split("):\n").nth(1).unwrap_or(list));
    let after =
        list.split_inclusive('\n').take_while(|line| line.trim_start().starts_with("- ")).count();
    let hidden = open.len() - after;
    if hidden > 0 {
        assert!(pinned.contains(&format!("({hidden} more are not shown)")), "{hidden} in {pinned}");
    }
    pinned
}

#[test]
fn everything_fits_or_is_counted() {
    let shown = check(&plan(3, 2, 20), 1500);
    for part in [
        "# A long task",
        "Status: (2026-03-01 10:00Z)",
        "Steps: 3 open, 2 done",
        "Done (2):",
        "plan written",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(!shown.contains("not shown"), "{shown}");
    // A plan of 500 steps, of which all, some or none are open.
    for (open, done) in [(500, 0), (60, 440), (0, 500), (499, 1)] {
        for length in [10, 60, 400, 5000] {
            check(&plan(open, done, length), 1500);
        }
    }
    // With room for few words, too.
    for tokens in (0..200).chain([400, 1000, 100_000]) {
        check(&plan(500, 500, 60), tokens);
        check(&Plan::parse(""), tokens);
    }
}

#[test]
fn open_steps_come_in_full_and_done_ones_are_folded() {
    let shown = check(&plan(20, 480, 60), 1500);
    assert!(shown.contains("Open (20):"), "{shown}");
    assert!(shown.contains("Steps: 20 open, 480 done"));
    // The last of those that are done are the ones to know.
    assert!(shown.contains("- 480 number 479"), "{shown}");
    assert!(shown.contains("Done (480):\n("), "{shown}");
}

#[test]
fn what_cannot_be_seen_is_escaped() {
    let shown = check(&Plan::parse("# a\u{1b}[2J\n\n- [ ] b\u{202e}c\n- [ ] d\u{7}\n"), 1500);
    assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
    assert!(shown.contains("\\u{202e}"));
}
