//! Threads to damage: one of ours, and one of the reference's.

use std::sync::Arc;

use log::{Record, SessionMeta, TurnContext};
use protocol::id::ThreadId;
use protocol::open::Raw;
use store::{FileStore, NewThread};

use crate::disk::{MemDisk, Random};

/// A file of a thread, with its lines.
pub(crate) struct Sample {
    pub(crate) id: ThreadId,
    /// Relative to the home.
    pub(crate) path: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) items: Vec<Item>,
    /// Whether its lines have checksums.
    pub(crate) checked: bool,
}

/// A line of a sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    pub(crate) start: usize,
    /// After the line break.
    pub(crate) end: usize,
    pub(crate) ordinal: Option<u64>,
    pub(crate) kind: String,
    pub(crate) payload: String,
}

pub(crate) const HOME: &str = "/h";
const ID: &str = "01a1e26e-392c-7690-abfb-eb0dc0cda447";
const PATH: &str =
    "/h/sessions/2026/11/16/rollout-2026-11-16T03-37-16-01a1e26e-392c-7690-abfb-eb0dc0cda447.jsonl";

pub(crate) fn id() -> ThreadId {
    ID.parse().unwrap()
}

pub(crate) fn raw(value: &serde_json::Value) -> Raw {
    serde_json::from_str(&value.to_string()).unwrap()
}

pub(crate) fn message(text: &str) -> Record {
    let content = serde_json::json!([{"type": "output_text", "text": text}]);
    let item = serde_json::json!({"type": "message", "role": "assistant", "content": content});
    Record::ResponseItem(raw(&item))
}

pub(crate) fn new_thread(id: ThreadId) -> NewThread {
    let meta = SessionMeta {
        id: Some(id),
        timestamp: "2026-11-16T03:37:16.844Z".to_owned(),
        cwd: "/w".to_owned(),
        originator: "heddle_exec".to_owned(),
        cli_version: "0.1.0".to_owned(),
        ..SessionMeta::default()
    };
    NewThread { id, meta }
}

pub(crate) fn store(disk: &MemDisk) -> FileStore {
    FileStore::with_disk(HOME, Arc::new(disk.clone()))
}

/// Creates a disk with an empty home.
pub(crate) fn empty_home() -> MemDisk {
    let disk = MemDisk::default();
    disk.put("/h/config.toml", b"");
    disk
}

/// Creates a thread of ours with `turns` turns.
pub(crate) fn ours(turns: usize) -> Sample {
    let disk = empty_home();
    let mut log = store(&disk).create(new_thread(id())).unwrap();
    let mut random = Random(turns as u64);
    for turn in 0..turns {
        let id = format!("turn-{turn}");
        let event =
            |kind: &str| Record::raw_event(raw(&serde_json::json!({"type": kind, "turn_id": id})));
        let context =
            TurnContext { turn_id: Some(id.clone()), cwd: "/w".into(), ..TurnContext::default() };
        log.append(&[event("task_started"), Record::TurnContext(Box::new(context))]).unwrap();
        for step in 0..4 {
            let words =
                "lines of output ü \"quoted\" {\"timestamp\":\"no\"}\n".repeat(random.below(20));
            log.append(&[message(&format!("turn {turn} step {step} {words}"))]).unwrap();
        }
        log.append(&[event("task_complete")]).unwrap();
    }
    let path = log.path().to_owned();
    log.close();
    sample(disk.bytes(path).unwrap(), true)
}

/// Returns a thread that the reference wrote, with its long texts shortened.
pub(crate) fn theirs() -> Sample {
    sample(include_bytes!("../data/reference.jsonl").to_vec(), false)
}

fn sample(bytes: Vec<u8>, checked: bool) -> Sample {
    let mut items = Vec::new();
    let mut start = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let line_of: log::Line<'_> = serde_json::from_slice(line).unwrap();
        items.push(Item {
            start,
            end: start + line.len(),
            ordinal: line_of.ordinal,
            kind: line_of.kind.to_string(),
            payload: line_of.payload.get().to_owned(),
        });
        start += line.len();
    }
    Sample { id: id(), path: PATH, bytes, items, checked }
}
