//! Threads with histories that an endpoint refuses: the binary can resume each of them.
//!
//! The histories are those of the crate `history`; the endpoint is strict and answers 400 to anything
//! invalid. The file on disk is not changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use testkit::{ModelServer, Strict, script};

use crate::run::{Run, exec, lab_for};

/// Runs side by side.
const PARALLEL: usize = 4;

#[derive(Deserialize)]
struct Row {
    name: String,
    wire: String,
    model_ids: Option<Value>,
    #[serde(default)]
    requires: BTreeMap<String, String>,
    /// Verbatim: not all of it is valid text.
    items: Vec<Box<RawValue>>,
    #[serde(default)]
    repairs: Vec<String>,
}

#[test]
fn every_broken_history_can_be_resumed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../history/tests/data/broken");
    let mut rows: Vec<Row> = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        rows.append(&mut serde_json::from_str::<Vec<Row>>(&text).unwrap());
    }
    // The items do not record who made them; those rows are checked in their own crate.
    rows.retain(|row| row.wire != "chat" && row.model_ids.is_none());
    assert!(rows.len() >= 60, "only {} histories", rows.len());
    let queue = Mutex::new(rows.into_iter());
    thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                loop {
                    let Some(row) = queue.lock().unwrap().next() else { return };
                    check(&row);
                }
            });
        }
    });
}

fn check(row: &Row) {
    let name = &row.name;
    let requires = row.requires.clone();
    let sealed_by = Some("own:".to_owned());
    let rules = Strict { sealed_by, requires, ..Strict::default() };
    let answer = script::response([script::message("fine")]);
    let server = ModelServer::strict(json!([answer]), rules).unwrap();
    let lab = lab_for(&server);
    let id = "01a1e26e-392c-7690-abfb-eb0dc0cda447";
    let file = format!("sessions/2026/11/16/rollout-2026-11-16T03-37-16-{id}.jsonl");
    let text = log(id, &row.items);
    lab.home.write(&file, &text).unwrap();
    let ended = Run::start(exec(&lab, &["resume", id, "go on"])).end();
    assert_eq!(ended.code, Some(0), "{name}: {}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("fine"), "{name}: {}", ended.stdout);
    let told = ended.stdout.contains("the history was repaired");
    let repaired = !row.repairs.is_empty();
    assert_eq!(told, repaired, "{name}: {}", ended.stdout);
    let after = fs::read_to_string(lab.home.path().join(&file)).unwrap();
    assert!(after.starts_with(&text), "{name}: the log was changed");
}

/// Writes items as the log of a thread that ended cleanly.
fn log(id: &str, items: &[Box<RawValue>]) -> String {
    let head = json!({
        "id": id, "timestamp": TIME, "cwd": "/w", "originator": "test", "cli_version": "0",
        "source": "exec", "history_mode": "paginated",
    });
    let line = |ordinal: usize, kind: &str, payload: &str| {
        let envelope = format!(r#""timestamp":"{TIME}","ordinal":{ordinal},"type":"{kind}""#);
        format!("{{{envelope},\"payload\":{payload}}}\n")
    };
    let mut text = line(0, "session_meta", &head.to_string());
    for (index, item) in items.iter().enumerate() {
        // A row may span several lines.
        text += &line(index + 1, "response_item", &item.get().replace('\n', " "));
    }
    text
}

const TIME: &str = "2026-11-16T03:37:16.888Z";
