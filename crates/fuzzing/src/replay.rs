//! Any lines as a log: every valid line is a record that survives a round trip, and a replay that is saved and
//! restored after every line counts the same turns.

use log::{EventKind, Line, Record, Replay, Step};

/// Panics if that does not hold.
pub fn check(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    let (mut replay, mut restored) = (Replay::default(), Replay::default());
    for text in text.lines() {
        let Ok(line) = serde_json::from_str::<Line<'_>>(text) else { continue };
        check_record(&line);
        read(replay.line(&line));
        restored.line(&line);
        restored = Replay::restored(&restored.saved()).expect("a saved replay can be restored");
        assert_eq!(restored.turns().len(), replay.turns().len());
        assert_eq!(restored.open_turn(), replay.open_turn());
    }
}

fn check_record(line: &Line<'_>) {
    let record = Record::from_line(line).expect("the payload of a line that was parsed is JSON");
    let text = serde_json::to_string(&record).expect("records are plain data");
    let again = serde_json::from_str::<Line<'_>>(&text).expect("a record is a line");
    assert_eq!(Record::from_line(&again).expect("so is its payload"), record);
}

fn read(step: Step<'_>) {
    match step {
        Step::Head(head) => drop(head.read()),
        Step::Context(context) => drop(context.read()),
        Step::Usage(usage) => drop((usage.read(), usage.total_tokens())),
        Step::Compacted(compacted) => drop(compacted.read()),
        Step::Returned(returned) => drop(returned.read()),
        Step::TurnBegan { event, .. } | Step::TurnEnded { event, .. } => {
            assert!(event.turn_mark().is_some());
        }
        Step::Event(event) => {
            let head = event.item_head();
            assert!(head.is_none() || event.kind() == EventKind::ItemCompleted);
            drop((event.read(), event.total_tokens()));
        }
        Step::Item(item) => drop(item.read()),
        Step::Original(_) | Step::RolledBack { .. } | Step::Tombstone | Step::Unknown => {}
    }
}
