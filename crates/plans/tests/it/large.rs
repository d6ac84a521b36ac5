//! The cost is linear, whatever the document has much of.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use plans::{Edit, Plan, merge};

use crate::{command, time};

const MB: usize = 1 << 20;

/// A plan of some size as people write them.
fn plan(bytes: usize) -> String {
    let mut text = "# Large\n\n## Purpose\n\nIt is large.\n\n## Steps\n\n".to_owned();
    let mut number = 0;
    while text.len() < bytes {
        number += 1;
        writeln!(text, "- [x] step {number} with some words that say what has to be done").unwrap();
        writeln!(text, "  - evidence: `cargo test -p part_{number}` exits 0").unwrap();
        writeln!(text, "  - [ ] part of step {number}\n    that goes on in a second line").unwrap();
    }
    text
}

/// Text made of one piece again and again: what could be expensive.
fn repeated(piece: &str, bytes: usize) -> String {
    format!("# T\n\n## Steps\n\n{}", piece.repeat(bytes / piece.len()))
}

fn best_of<T>(count: usize, work: impl Fn() -> T) -> Duration {
    let once = || {
        let start = Instant::now();
        drop(std::hint::black_box(work()));
        start.elapsed()
    };
    (0..count).map(|_| once()).min().unwrap_or_default()
}

/// Ten times a plan costs at most so many times as much.
const OF_PLANS: u32 = 12;
/// The same of text that nobody writes, where caches and page faults count; what is quadratic costs 100 times as
/// much.
const OF_ODD_TEXT: u32 = 25;

/// Checks that ten times the text costs at most `factor` times as much.
#[track_caller]
fn check(factor: u32, name: &str, small: &str, large: &str, work: impl Fn(&str)) {
    // A machine that is busy for a moment is tried again.
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (one, ten) = (best_of(3, || work(small)), best_of(2, || work(large)));
        // What takes no time at all cannot be compared.
        if ten <= one * factor + Duration::from_millis(20) {
            return;
        }
        seen.push((one, ten));
    }
    panic!("{name}: {seen:?}");
}

#[test]
fn reading_is_linear() {
    let read = |text: &str| {
        let plan = Plan::parse(text);
        assert_eq!(plan.text().len(), text.len());
        std::hint::black_box((plan.problems(), plan.pinned(1500)));
    };
    check(OF_PLANS, "plan", &plan(MB / 4), &plan(MB * 10 / 4), read);
    let pieces = [
        "- [ ] a\n",
        "- a\n",
        "a\n",
        "\n",
        "# a\n",
        "a\n=\n",
        "| a | b |\n",
        "```\n",
        "<!--\n",
        "-->\n",
        "> a\n",
        "|",
        "`",
        "- ",
        "**Log**\n",
        "- [ ] a\n  - [ ] b\n    - [ ] c\n",
        "1. a\n",
        "- evidence: `a` exits 0\n",
        "\t- a\n",
        "- [ ] ",
        "Status: a\n\n",
        "  evidence: a\n",
        "a: ",
        "---\n",
        "| what | state |\n| --- | --- |\n| a | done |\n\n",
        "## Decisions\n\n- 2026-01-01: a\n",
        "\r",
    ];
    for piece in pieces {
        check(OF_ODD_TEXT, piece, &repeated(piece, MB / 20), &repeated(piece, MB / 2), read);
    }
}

#[test]
fn nesting_is_linear() {
    // Deeper and deeper, and then lines that belong to the deepest.
    let deep = |depth: usize, lines: usize| {
        let mut text = String::new();
        (0..depth).for_each(|at| writeln!(text, "{}- [ ] a", "\t".repeat(at)).unwrap());
        text + &"lazy\n".repeat(lines)
    };
    let read = |text: &str| drop(Plan::parse(text));
    check(OF_ODD_TEXT, "deep", &deep(300, 9_000), &deep(950, 90_000), read);
    // A header of many columns over many rows.
    let wide = |count: usize| {
        let rows = "|x|\n".repeat(count);
        format!("# T\n\n## Log\n\n|{}\n|{}\n{rows}", "date|".repeat(count), "-|".repeat(count))
    };
    check(OF_ODD_TEXT, "wide", &wide(2_000), &wide(20_000), read);
}

#[test]
fn edits_and_merges_are_linear() {
    let (small, large) = (plan(MB / 20), plan(MB / 2));
    let tick = |step: &str| Edit::Tick { step: step.into(), evidence: vec![command("true")] };
    let decide = Edit::Decide { time: time("2026-01-01"), what: "a".into(), reason: "b".into() };
    check(OF_PLANS, "edit", &small, &large, |text| {
        let plan = Plan::parse(text);
        plan.apply(&tick("part of step 99")).unwrap();
        plan.apply(&decide).unwrap();
    });
    check(OF_PLANS, "merge", &small, &large, |text| {
        let ours = Plan::parse(text).apply(&tick("part of step 99")).unwrap();
        let theirs = text.replace("step 7", "stair 7");
        std::hint::black_box(merge(text, ours.plan.text(), &theirs));
    });
    check(OF_ODD_TEXT, "nothing in common", &small, &large, |text| {
        let ours: String = text.lines().map(|line| format!("{line} we\n")).collect();
        let theirs: String = text.lines().rev().map(|line| format!("{line} they\n")).collect();
        std::hint::black_box(merge(text, &ours, &theirs));
    });
    check(
        OF_ODD_TEXT,
        "the same lines again and again",
        &repeated("a\nb\n", MB / 20),
        &repeated("a\nb\n", MB / 2),
        |text| {
            let ours = text.replacen("a\nb", "b\na", 500);
            std::hint::black_box(merge(text, &ours, &text.replace("b\n", "a\n")));
        },
    );
}

/// The bound for builds that are optimised; others only have to be linear.
#[test]
#[cfg_attr(debug_assertions, ignore = "a bound for release builds")]
fn a_megabyte_takes_20_ms() {
    let text = plan(MB);
    let took = best_of(10, || Plan::parse(&*text).text().len());
    assert!(took <= Duration::from_millis(20), "{took:?}");
}
