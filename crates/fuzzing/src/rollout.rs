//! Any bytes as the file of a thread: every byte belongs to exactly one line or damaged range, and a valid
//! line in the middle is found. Such a file can be opened, continued and repaired.

#[path = "../../store/tests/it/disk.rs"]
#[expect(
    dead_code,
    reason = "the module contains more than the disk, which is all that is needed here"
)]
mod disk;

use std::sync::Arc;

use disk::MemDisk;
use store::{FileStore, Reading, stretches};

use crate::Given;

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let mut given = Given(data);
    let input = (given.number(), given.rest());
    let (at, bytes) = input;
    check_lines(bytes);
    let (head, tail) = bytes.split_at(usize::from(at).min(bytes.len()));
    let mut line = Vec::new();
    let raw = serde_json::from_str("{\"type\":\"x\"}").expect("this is JSON");
    store::encode("t", Some(1), &log::Record::raw_event(raw), &mut line);
    let whole = [head, b"\n", &line, tail].concat();
    let (start, end) = (head.len() as u64 + 1, (head.len() + 1 + line.len()) as u64);
    let found = check_lines(&whole).into_iter().any(|stretch| stretch.range == (start..end));
    assert!(found, "the line in the middle is lost");
    exercise(bytes);
    exercise(&whole);
}

/// Reads, continues and repairs a file.
fn exercise(bytes: &[u8]) {
    let disk = MemDisk::default();
    disk.put(format!("/h/sessions/2026/11/16/rollout-2026-11-16T03-37-16-{ID}.jsonl"), bytes);
    let store = FileStore::with_disk("/h", Arc::new(disk));
    let id = ID.parse().expect("this is an id");
    let mut before = 0;
    let (mut log, report) = store.open(id, &mut |_| before += 1).expect("any file can be opened");
    let raw = serde_json::from_str("{\"type\":\"x\"}").expect("this is JSON");
    log.append(&[log::Record::raw_event(raw)]).expect("the disk is fine");
    log.close();
    let mut after = 0;
    store.read(id, &mut |_| after += 1).expect("any file can be read");
    assert!(after > before.max(1) - 1, "{report:?}");
    let fixed = store.fsck(None, true, &mut |_, _| {}).expect("any file can be checked");
    assert!(fixed.files.iter().all(|file| file.error.is_none()), "{fixed:?}");
    let left = fixed.files.iter().flat_map(|file| &file.damage);
    let left: Vec<_> = left.filter(|damage| !elsewhere(damage.what)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Tells whether damage concerns another file.
fn elsewhere(what: store::DamageKind) -> bool {
    matches!(what, store::DamageKind::Base | store::DamageKind::Changed)
}

fn check_lines(bytes: &[u8]) -> Vec<store::Stretch> {
    let stretches = stretches(bytes);
    let mut at = 0;
    for stretch in &stretches {
        assert_eq!(stretch.range.start, at);
        assert!(stretch.range.end > at);
        at = stretch.range.end;
        let part = &bytes[stretch.range.start as usize..stretch.range.end as usize];
        if stretch.what == Reading::Checked {
            assert!(part.starts_with(b"{"), "a line is not a line");
        }
    }
    assert_eq!(at, bytes.len() as u64);
    stretches
}

const ID: &str = "01a1e26e-392c-7690-abfb-eb0dc0cda447";
