//! Writes a long thread to disk, in the form heddle writes: many turns with one command each.

use std::fs;
use std::io::Write as _;

use anyhow::Result;
use log::{Compacted, PAGINATED, Record, SessionMeta};
use protocol::open::Raw;
use serde_json::{Value, json};
use testkit::Lab;

pub(crate) const THREAD: &str = "01a1e26e-392c-7690-abfb-eb0dc0cda447";

/// The shape of a long thread.
#[derive(Clone, Copy)]
pub(crate) struct LongThread {
    pub(crate) bytes: u64,
    /// Turns between compactions; `None` without compactions.
    pub(crate) turns_between: Option<u64>,
}

const OUTPUT_BYTES: usize = 16_000;
const TIME: &str = "2026-11-16T03:37:16.888Z";

impl LongThread {
    /// Writes the thread into the home of a lab.
    pub(crate) fn write(self, lab: &Lab) -> Result<()> {
        let folder = lab.home.path().join("sessions/2026/11/16");
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("rollout-2026-11-16T03-37-16-{THREAD}.jsonl"));
        let mut out = std::io::BufWriter::new(fs::File::create(path)?);
        let (mut written, mut ordinal) = (0, 0);
        let mut put = |record: &Record, out: &mut dyn std::io::Write| -> Result<u64> {
            let mut line = Vec::new();
            store::encode(TIME, Some(ordinal), record, &mut line);
            ordinal += 1;
            out.write_all(&line)?;
            Ok(line.len() as u64)
        };
        let head = SessionMeta {
            id: Some(THREAD.parse()?),
            session_id: Some(THREAD.to_owned()),
            timestamp: TIME.to_owned(),
            cwd: lab.workspace.path().display().to_string(),
            originator: "heddle_exec".to_owned(),
            cli_version: "0.1.0".to_owned(),
            source: Some(raw(&json!("exec"))),
            model_provider: Some("mock".to_owned()),
            history_mode: Some(PAGINATED.to_owned()),
            ..SessionMeta::default()
        };
        written += put(&Record::SessionMeta(Box::new(head)), &mut out)?;
        let mut turn = 0;
        while written < self.bytes {
            if self.turns_between.is_some_and(|between| turn % between == between - 1) {
                let kept = [said("user", "go on"), said("user", "a summary of what was done")];
                let compacted = Compacted {
                    message: "a summary of what was done".to_owned(),
                    replacement_history: Some(kept.iter().map(raw).collect()),
                    heddle_cause: None,
                };
                written += put(&Record::Compacted(Box::new(compacted)), &mut out)?;
            }
            for record in records(turn, &lab.workspace.path().display().to_string()) {
                written += put(&record, &mut out)?;
            }
            turn += 1;
        }
        Ok(out.flush()?)
    }
}

/// Builds the lines of one turn.
fn records(turn: u64, cwd: &str) -> Vec<Record> {
    let turn_id = format!("01a1e26e-0000-7000-8000-{turn:012x}");
    let call = format!("call_{turn}");
    let line = format!("src/file_{turn}.rs:42: warning: unused variable `x` in turn {turn}\n");
    let output = line.repeat(OUTPUT_BYTES / line.len());
    let item = |item: Value| {
        Record::raw_event(raw(&json!({
            "type": "item_completed", "thread_id": THREAD, "turn_id": turn_id, "item": item,
            "started_at_ms": 1_794_800_236_948_u64, "completed_at_ms": 1_794_800_236_948_u64,
        })))
    };
    let context = json!({
        "turn_id": turn_id, "cwd": cwd, "approval_policy": "never",
        "sandbox_policy": { "type": "read-only" }, "model": "gpt-5.5", "summary": "auto",
    });
    let usage = json!({
        "input_tokens": 9_000, "cached_input_tokens": 0, "cache_write_input_tokens": 0,
        "output_tokens": 20, "reasoning_output_tokens": 0, "total_tokens": 9_020,
    });
    let text = json!([{ "type": "text", "text": "go on", "text_elements": [] }]);
    let answer = json!([{ "type": "Text", "text": "done" }]);
    let arguments = r#"{"cmd":"cargo check"}"#;
    vec![
        Record::raw_event(raw(&json!({ "type": "task_started", "turn_id": turn_id }))),
        Record::TurnContext(Box::new(serde_json::from_value(context).unwrap_or_default())),
        Record::ResponseItem(raw(&said("user", "go on"))),
        item(json!({ "type": "UserMessage", "id": format!("u{turn}"), "content": text })),
        Record::ResponseItem(raw(&json!({
            "type": "function_call", "name": "exec_command", "arguments": arguments,
            "call_id": call,
        }))),
        item(json!({
            "type": "CommandExecution", "id": call, "command": ["/bin/bash", "-lc", "cargo check"],
            "cwd": format!("file://{cwd}"), "parsed_cmd": [], "source": "unified_exec_startup",
            "status": "completed", "aggregated_output": &output[..600], "exit_code": 0,
            "duration": { "secs": 0, "nanos": 1 },
        })),
        Record::ResponseItem(raw(&json!({
            "type": "function_call_output", "call_id": call, "output": output,
        }))),
        Record::ResponseItem(raw(&said("assistant", "done"))),
        item(json!({ "type": "AgentMessage", "id": format!("m{turn}"), "content": answer })),
        Record::raw_event(raw(&json!({
            "type": "token_count",
            "info": { "total_token_usage": usage, "last_token_usage": usage },
        }))),
        Record::raw_event(raw(&json!({ "type": "task_complete", "turn_id": turn_id }))),
    ]
}

fn said(role: &str, text: &str) -> Value {
    let kind = if role == "assistant" { "output_text" } else { "input_text" };
    json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] })
}

/// Serializes a value as heddle does: the type of an object comes first, and the text of an output last.
fn raw(value: &Value) -> Raw {
    let mut rest = value.clone();
    let kind = rest.as_object_mut().and_then(|fields| fields.shift_remove("type"));
    let json = match kind {
        Some(kind) => format!("{{\"type\":{kind},{}", &rest.to_string()[1..]),
        None => value.to_string(),
    };
    serde_json::from_str(&json).expect("a value is JSON")
}
