//! Logs of threads, for homes that have many of them.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::Lab;

/// Writes a thread of one small turn, and returns its log; a day has as many threads as a busy user creates.
pub fn write_thread(lab: &Lab, number: u32) -> io::Result<PathBuf> {
    let (day, second) = (number / THREADS_A_DAY, number % THREADS_A_DAY);
    let date = (2020 + day / 336, day / 28 % 12 + 1, day % 28 + 1);
    let folder = format!("sessions/{:04}/{:02}/{:02}", date.0, date.1, date.2);
    let id = format!("01a1e26e-{:04x}-7690-abfb-{number:012x}", number % 0xffff);
    let stamp = format!(
        "{:04}-{:02}-{:02}T12-{:02}-{:02}",
        date.0,
        date.1,
        date.2,
        second / 60 % 60,
        second % 60
    );
    let name = format!("{folder}/rollout-{stamp}-{id}.jsonl");
    let cwd = lab.workspace.path();
    let said = |role: &str, kind: &str, text: &str| json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] });
    let question = format!("question rare{number} about the flaky test in the parser");
    let records = [
        (
            "session_meta",
            json!({ "id": id, "timestamp": TIME, "cwd": cwd, "originator": "bench",
            "cli_version": "0", "source": "exec", "model_provider": "mock", "history_mode": "paginated",
            "base_instructions": { "text": "You are a coding agent. ".repeat(40) } }),
        ),
        ("event_msg", json!({ "type": "task_started", "turn_id": "t" })),
        (
            "response_item",
            said("user", "input_text", "<environment_context>\n</environment_context>"),
        ),
        ("turn_context", json!({ "turn_id": "t", "cwd": cwd, "model": "gpt-5.5" })),
        ("response_item", said("user", "input_text", &question)),
        (
            "response_item",
            json!({ "type": "function_call", "name": "exec_command", "call_id": "c",
            "arguments": "{\"cmd\":\"cargo test -p parser\"}" }),
        ),
        (
            "response_item",
            json!({ "type": "function_call_output", "call_id": "c",
            "output": "test result: ok. ".repeat(50) }),
        ),
        (
            "response_item",
            said(
                "assistant",
                "output_text",
                "The test waits for luck; it waits for a condition now.",
            ),
        ),
        ("token_usage_record", json!({ "thread_token_usage": { "total_tokens": 1234 } })),
        ("event_msg", json!({ "type": "task_complete", "turn_id": "t" })),
    ];
    let mut text = String::new();
    for (ordinal, (kind, payload)) in (0..).zip(&records) {
        text.push_str(&line(ordinal, kind, payload));
    }
    lab.home.write(&name, text)?;
    Ok(lab.home.path().join(name))
}

/// Returns a line of a log.
pub fn line(ordinal: u32, kind: &str, payload: &Value) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{}",
        json!({ "timestamp": TIME, "ordinal": ordinal, "type": kind, "payload": payload })
    );
    text
}

const TIME: &str = "2026-11-16T03:37:16.888Z";
const THREADS_A_DAY: u32 = 30;
