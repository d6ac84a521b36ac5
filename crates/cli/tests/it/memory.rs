//! Memory use of long answers: a few times their size, and no larger factor for longer ones.

use serde_json::{Value, json};
use testkit::{ModelServer, script};

use crate::run::{Run, exec, lab_for};

/// Runs a turn with an answer of `bytes`; returns the memory beyond that of a short one, in bytes per byte of
/// the answer.
#[track_caller]
fn check(bytes: usize, pieces: usize, args: &[&str]) -> f64 {
    let short = peak(&"x".repeat(10), 1, args);
    let long = peak(&"words ".repeat(bytes / 6), pieces, args);
    (long - short) as f64 * 1024.0 / bytes as f64
}

/// Returns the peak memory of a turn with this answer, in KiB.
fn peak(answer: &str, pieces: usize, args: &[&str]) -> u64 {
    let mut events: Vec<Value> = Vec::new();
    if pieces > 1 {
        let step = answer.len() / pieces;
        let pieces: Vec<_> = (0..pieces).map(|n| &answer[n * step..(n + 1) * step]).collect();
        events = script::deltas(pieces);
        events.pop();
    }
    events.push(script::message(answer));
    let server = ModelServer::start(json!([script::response(events)])).unwrap();
    let lab = lab_for(&server);
    let mut command = exec(&lab, args);
    command.arg("go");
    let (ended, peak) = Run::start(command).end_watched();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.len() > answer.len(), "{}", ended.stdout.len());
    assert!(peak > 0);
    peak
}

/// The answer, its log event, the serialized line and the copy in the history exist at the same time.
#[test]
fn long_answers() {
    for (bytes, pieces, args) in
        [(36_000_000, 1, &["-o", "answer.txt"][..]), (36_000_000, 600, &["--include-deltas"])]
    {
        let times = check(bytes, pieces, args);
        assert!(
            times < 5.0,
            "{bytes} bytes in {pieces} pieces, {args:?}: {times:.1} times the answer"
        );
    }
}
