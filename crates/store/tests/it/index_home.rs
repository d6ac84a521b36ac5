//! A home with threads, written line by line, and a list of them made the simple way.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use protocol::id::ThreadId;
use serde_json::{Value, json};
use store::index::{Direction, Filter, Index, List, Sort, Summary};
use tempfile::TempDir;

pub(crate) struct Home {
    dir: TempDir,
}

/// A thread to be written.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) id: ThreadId,
    pub(crate) cwd: &'static str,
    pub(crate) provider: &'static str,
    /// When it was created, in seconds.
    pub(crate) made: i64,
    /// The user's messages, one per turn, a minute apart; the agent repeats them.
    pub(crate) said: Vec<String>,
}

/// Creates the id of thread number `number`.
pub(crate) fn id(number: u64) -> ThreadId {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&number.to_be_bytes());
    ThreadId::new(1_790_000_000_000 + number * 1000, random)
}

/// Creates a small thread.
pub(crate) fn script(number: u64) -> Script {
    Script {
        id: id(number),
        cwd: "/work",
        provider: "mock",
        made: 1_790_000_000 + i64::try_from(number).unwrap() * 60,
        said: vec![format!("question {number} of the user")],
    }
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path().join("thread-index/index.sqlite")
    }

    /// Writes a complete thread, and returns its file.
    pub(crate) fn write(&self, script: &Script) -> PathBuf {
        let made = jiff::Timestamp::from_second(script.made).unwrap();
        let folder = self.path().join(made.strftime("sessions/%Y/%m/%d").to_string());
        fs::create_dir_all(&folder).unwrap();
        let stamp = made.strftime("%Y-%m-%dT%H-%M-%S");
        let path = folder.join(format!("rollout-{stamp}-{}.jsonl", script.id));
        fs::write(&path, "").unwrap();
        let meta = json!({
            "id": script.id, "timestamp": made.to_string(), "cwd": script.cwd, "originator": "test",
            "cli_version": "0", "source": "exec", "model_provider": script.provider,
            "history_mode": "paginated", "git": { "branch": "main" },
        });
        append(&path, script.made, 0, "session_meta", &meta);
        let setup = message("user", "<environment_context>\n</environment_context>");
        append(&path, script.made, 1, "response_item", &setup);
        for (turn, text) in script.said.iter().enumerate() {
            say(&path, script.made + 60 * i64::try_from(turn).unwrap(), 2 + turn as u64 * 10, text);
        }
        path
    }

    pub(crate) fn index(&self) -> Index {
        Index::open(self.path(), |_| {}).unwrap()
    }

    /// Lists everything that is not archived, newest first.
    #[track_caller]
    pub(crate) fn list(&self) -> Vec<Summary> {
        self.index().list(&all()).unwrap().threads
    }
}

/// Queries everything that is not archived.
pub(crate) fn all() -> List {
    List {
        filter: Filter::default(),
        sort: Sort::Updated,
        direction: Direction::Newest,
        limit: 1000,
        cursor: None,
    }
}

/// Appends one turn: the user says `text`, the agent runs a command and repeats it.
pub(crate) fn say(path: &Path, at: i64, ordinal: u64, text: &str) {
    let turn = format!("turn-{ordinal}");
    append(path, at, ordinal, "event_msg", &json!({ "type": "task_started", "turn_id": turn }));
    let context = json!({ "turn_id": turn, "cwd": "/work", "model": "gpt-test" });
    append(path, at, ordinal + 1, "turn_context", &context);
    append(path, at, ordinal + 2, "response_item", &message("user", text));
    let call = json!({
        "type": "function_call", "name": "exec_command", "call_id": "c",
        "arguments": "{\"cmd\":\"cargo build\"}",
    });
    append(path, at, ordinal + 3, "response_item", &call);
    let output = json!({ "type": "function_call_output", "call_id": "c", "output": "outputword" });
    append(path, at, ordinal + 4, "response_item", &output);
    append(
        path,
        at,
        ordinal + 5,
        "response_item",
        &message("assistant", &format!("you said {text}")),
    );
    let usage = json!({ "thread_token_usage": { "total_tokens": ordinal * 100 } });
    append(path, at, ordinal + 6, "token_usage_record", &usage);
}

/// Appends one line.
pub(crate) fn append(path: &Path, at: i64, ordinal: u64, kind: &str, payload: &Value) {
    let timestamp = jiff::Timestamp::from_second(at).unwrap().to_string();
    let line =
        json!({ "timestamp": timestamp, "ordinal": ordinal, "type": kind, "payload": payload });
    let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    writeln!(file, "{line}").unwrap();
}

fn message(role: &str, text: &str) -> Value {
    let kind = if role == "assistant" { "output_text" } else { "input_text" };
    json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] })
}

/// What a list shows of a thread.
pub(crate) type Shown = (ThreadId, i64, i64, String, u64);

/// Reads every file of the home from its start, and lists the content, newest first.
pub(crate) fn scan(home: &Path) -> Vec<Shown> {
    let mut shown = Vec::new();
    let mut folders = vec![home.join("sessions")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                shown.push(scan_file(&path));
            }
        }
    }
    shown.sort_by_key(|(id, _, updated, ..)| std::cmp::Reverse((*updated, *id)));
    shown
}

fn scan_file(path: &Path) -> Shown {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let time = |value: &Value| {
        value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond()
    };
    let said = lines
        .iter()
        .filter(|line| line["payload"]["role"] == "user")
        .map(|line| line["payload"]["content"][0]["text"].as_str().unwrap())
        .find(|text| !text.starts_with('<'));
    let turns = lines.iter().filter(|line| line["payload"]["type"] == "task_started").count();
    (
        lines[0]["payload"]["id"].as_str().unwrap().parse().unwrap(),
        time(&lines[0]["payload"]["timestamp"]),
        time(&lines.last().unwrap()["timestamp"]),
        said.unwrap_or_default().to_owned(),
        turns as u64,
    )
}

/// Reduces rows of the index to what a scan finds.
pub(crate) fn shown(threads: &[Summary]) -> Vec<Shown> {
    let threads = threads.iter();
    threads.map(|t| (t.id, t.created_ms, t.updated_ms, t.preview.clone(), t.turns)).collect()
}
