//! Turns are counted the same however a log marks them.

use log::{EventKind, Line, LogEvent, Record, Replay, Step, TurnEnd};
use serde_json::{Value, json};

fn said(text: &str) -> (&'static str, Value) {
    let part = json!({ "type": "input_text", "text": text });
    ("response_item", json!({ "type": "message", "role": "user", "content": [part] }))
}

fn event(payload: Value) -> (&'static str, Value) {
    ("event_msg", payload)
}

/// Replays lines, and again with the replay serialized and restored after every line. Compares the remaining
/// turns, each with its id and how it ended, and the open turn.
#[track_caller]
fn check(lines: &[(&str, Value)], want: &[(&str, TurnEnd)], open: Option<&str>) {
    let (mut replay, mut restored) = (Replay::default(), Replay::default());
    for (kind, payload) in lines {
        let text = json!({ "timestamp": "", "type": kind, "payload": payload }).to_string();
        let line: Line<'_> = serde_json::from_str(&text).unwrap();
        replay.line(&line);
        restored.line(&line);
        restored = Replay::restored(&restored.saved()).unwrap();
        assert_eq!(restored.turns().len(), replay.turns().len(), "{text}");
        assert_eq!(restored.open_turn(), replay.open_turn(), "{text}");
    }
    let turns: Vec<_> = replay.turns().iter().map(|turn| (turn.id, turn.end)).collect();
    assert_eq!((turns.as_slice(), replay.open_turn()), (want, open));
}

#[test]
fn both_names_of_an_event_mean_the_same() {
    for (started, complete) in
        [("task_started", "task_complete"), ("turn_started", "turn_complete")]
    {
        let start = event(json!({ "type": started, "turn_id": "a" }));
        let end = event(json!({ "type": complete, "turn_id": "a" }));
        let failed =
            event(json!({ "type": complete, "turn_id": "a", "error": { "message": "m" } }));
        check(std::slice::from_ref(&start), &[("a", TurnEnd::Open)], Some("a"));
        check(&[start.clone(), end], &[("a", TurnEnd::Completed)], None);
        check(&[start, failed], &[("a", TurnEnd::Failed)], None);
    }
}

#[test]
fn turns_end_once_and_by_their_name() {
    let start = |id: &str| event(json!({ "type": "task_started", "turn_id": id }));
    let aborted = |id: &str| event(json!({ "type": "turn_aborted", "turn_id": id }));
    check(&[start("a"), aborted("b")], &[("a", TurnEnd::Open)], Some("a"));
    check(
        &[start("a"), start("b"), aborted("b"), aborted("a")],
        &[("a", TurnEnd::Lost), ("b", TurnEnd::Interrupted)],
        None,
    );
    let unnamed = event(json!({ "type": "turn_aborted" }));
    check(&[start("a"), unnamed], &[("a", TurnEnd::Interrupted)], None);
}

#[test]
fn without_marks_the_user_begins_a_turn() {
    check(
        &[said("<environment_context>"), said("a"), said("b")],
        &[("", TurnEnd::Unknown), ("", TurnEnd::Unknown)],
        None,
    );
    let start = event(json!({ "type": "task_started", "turn_id": "a" }));
    check(&[start, said("a"), said("b")], &[("a", TurnEnd::Open)], Some("a"));
}

#[test]
fn a_rollback_takes_turns_in_which_the_user_spoke() {
    let start = |id: &str| event(json!({ "type": "task_started", "turn_id": id }));
    let end = || event(json!({ "type": "task_complete" }));
    let back = |count: u64| event(json!({ "type": "thread_rolled_back", "num_turns": count }));
    let turns = [start("a"), said("x"), end(), start("b"), said("x"), end(), start("c"), end()];
    let with = |last: (&'static str, Value)| [&turns[..], &[last]].concat();
    check(
        &with(back(0)),
        &[("a", TurnEnd::Completed), ("b", TurnEnd::Completed), ("c", TurnEnd::Completed)],
        None,
    );
    check(&with(back(1)), &[("a", TurnEnd::Completed)], None);
    check(&with(back(9)), &[], None);
    let odd = event(json!({ "type": "thread_rolled_back", "num_turns": "1" }));
    assert_eq!(with(odd).len(), 9);
}

#[test]
fn steps_parse_only_on_demand() {
    let text =
        r#"{"timestamp":"","type":"event_msg","payload":{"type":"item_completed","item":7}}"#;
    let line: Line<'_> = serde_json::from_str(text).unwrap();
    let Step::Event(event) = Replay::default().line(&line) else { panic!("not an event") };
    assert_eq!(event.kind(), EventKind::ItemCompleted);
    assert!(event.read().is_none() && event.item_head().is_none());
}

#[test]
fn items_of_the_reference() {
    let completed = json!({
        "type": "item_completed", "turn_id": "t", "started_at_ms": 5, "completed_at_ms": 9,
        "item": {
            "type": "CommandExecution", "id": "c", "command": ["bash", "-lc", "echo 'a b'"],
            "cwd": "file:///w%20x", "parsed_cmd": [], "source": "agent", "status": "failed",
            "aggregated_output": null, "formatted_output": "", "exit_code": 2, "process_id": "1",
            "duration": { "secs": 1, "nanos": 500_000_000 },
        },
    });
    let text = json!({ "timestamp": "", "type": "event_msg", "payload": completed }).to_string();
    let line: Line<'_> = serde_json::from_str(&text).unwrap();
    let Ok(Record::EventMsg(protocol::open::Open::Known(LogEvent::ItemCompleted(read)))) =
        Record::from_line(&line)
    else {
        panic!("not an item")
    };
    assert_eq!((read.started_at_ms, read.completed_at_ms), (Some(5), Some(9)));
    assert_eq!(read.item.duration.map(|time| time.as_millis()), Some(1500));
    let log::LoggedBody::Item(protocol::item::ItemBody::Command(command)) = read.item.body else {
        panic!("not a command")
    };
    assert_eq!(command.command, r#"bash -lc "echo 'a b'""#);
    assert_eq!((command.cwd.to_str(), command.exit_code), (Some("/w x"), Some(2)));
}
