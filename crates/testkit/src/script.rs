//! The script format of a scripted endpoint, and builders for it.
//!
//! A script is a list; request number i gets entry i and the last entry repeats. The functions below build
//! events and entries as plain JSON, so that a test can add fields that the builders do not know:
//!
//! ```
//! use serde_json::json;
//! use testkit::script;
//!
//! let script = json!([
//!     script::response([script::call("c1", "exec_command", json!({ "cmd": "true" }))]),
//!     script::response([script::message("Done.")]),
//! ]);
//! assert!(testkit::Script::from_value(script).is_ok());
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::server::play::Answer;

/// A validated script, rendered to bytes once; a clone is cheap and plays from the beginning.
#[derive(Clone, Debug)]
pub struct Script {
    answers: Arc<[Answer]>,
}

impl Script {
    /// Parses a list of entries from JSON.
    pub fn from_value(script: Value) -> Result<Self, ScriptError> {
        Self::from_entries(serde_json::from_value(script)?)
    }

    /// Validates entries that were built in code.
    pub fn from_entries(entries: Vec<Entry>) -> Result<Self, ScriptError> {
        let answers: Result<Vec<Answer>, ScriptError> = entries
            .into_iter()
            .enumerate()
            .map(|(number, entry)| Answer::new(number, entry))
            .collect();
        Ok(Self { answers: answers?.into() })
    }

    /// Returns what request `number` gets; `None` only in an empty script.
    pub(crate) fn answer(&self, number: usize) -> Option<&Answer> {
        self.answers.get(number).or(self.answers.last())
    }
}

/// What one request gets.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Entry {
    /// Server-sent events; `__sleep_ms` inside one waits before it is written and is not sent.
    pub events: Vec<Value>,
    /// Text written verbatim instead of `events`.
    pub raw: Option<String>,
    /// Bytes per write, to chunk the stream at awkward places.
    pub chunk: Option<usize>,
    /// Delay after each event.
    pub delay_ms: f64,
    /// HTTP status; any other than 200 answers with `body` instead of a stream.
    pub status: Option<u16>,
    /// Body of an answer that is not a stream; anything but a string is written as JSON.
    pub body: Option<Value>,
    pub headers: BTreeMap<String, Value>,
    /// Answers with `body` even if the status is 200.
    pub json: bool,
    /// Keeps the connection open after the last event.
    pub hang_ms: f64,
    /// Ends the stream with a TCP reset.
    pub reset: bool,
    /// Entries to play instead if their text is in the request body; the first match counts.
    #[serde(rename = "__match__")]
    pub choices: Vec<Choice>,
}

/// An entry for certain requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The text to look for in the request body.
    #[serde(rename = "if")]
    pub text: String,
    /// The entry to play, which must not have choices.
    #[serde(rename = "then")]
    pub entry: Entry,
}

/// Why a script is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// It is not a list of entries, or an entry has an unknown field.
    #[error("not a script: {0}")]
    Shape(#[from] serde_json::Error),
    /// An event has no `type`.
    #[error("event {event} of entry {entry} has no type")]
    NoType { entry: usize, event: usize },
    /// A delay is negative or not finite.
    #[error("entry {entry} waits for {ms} ms")]
    Wait { entry: usize, ms: f64 },
    #[error("a choice of entry {entry} has choices of its own")]
    NestedChoice { entry: usize },
}

/// Tokens that a response claims to have used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    /// Input tokens from the provider's cache.
    pub cached: u64,
    pub output: u64,
    /// Output tokens that were reasoning.
    pub reasoning: u64,
}

impl Default for Usage {
    /// The numbers that recordings have in every response.
    fn default() -> Self {
        Self { input: 100, cached: 10, output: 20, reasoning: 5 }
    }
}

/// Builds an entry: `events` between `response.created` and `response.completed`.
pub fn response(events: impl IntoIterator<Item = Value>) -> Value {
    response_with(events, Usage::default())
}

/// Builds an entry like [`response`] with its own usage.
pub fn response_with(events: impl IntoIterator<Item = Value>, usage: Usage) -> Value {
    let mut all = vec![created()];
    all.extend(events);
    all.push(completed(usage));
    json!({ "events": all })
}

/// Builds an entry: `events` alone, for truncated streams.
pub fn events(events: impl IntoIterator<Item = Value>) -> Value {
    json!({ "events": events.into_iter().collect::<Vec<_>>() })
}

/// Builds an entry that is an HTTP error with a JSON body.
pub fn status(code: u16, body: Value) -> Value {
    json!({ "status": code, "body": body })
}

/// Builds the event that opens a response.
pub fn created() -> Value {
    json!({ "type": "response.created", "response": { "id": RESPONSE_ID } })
}

/// Builds the event that completes a response.
pub fn completed(usage: Usage) -> Value {
    json!({
        "type": "response.completed",
        "response": {
            "id": RESPONSE_ID,
            "usage": {
                "input_tokens": usage.input,
                "input_tokens_details": { "cached_tokens": usage.cached },
                "output_tokens": usage.output,
                "output_tokens_details": { "reasoning_tokens": usage.reasoning },
                "total_tokens": usage.input + usage.output,
            },
        },
    })
}

/// Builds the event that fails a response.
pub fn failed(code: &str, message: &str) -> Value {
    json!({
        "type": "response.failed",
        "response": { "id": RESPONSE_ID, "error": { "code": code, "message": message } },
    })
}

/// Builds the event with a complete assistant message.
pub fn message(text: &str) -> Value {
    item(json!({
        "type": "message",
        "role": "assistant",
        "id": MESSAGE_ID,
        "content": [{ "type": "output_text", "text": text }],
    }))
}

/// Builds the events of a streamed message: added, one delta each, done.
pub fn deltas<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Vec<Value> {
    let mut text = String::new();
    let mut all = vec![json!({
        "type": "response.output_item.added",
        "item": { "type": "message", "role": "assistant", "id": MESSAGE_ID, "content": [] },
    })];
    for piece in pieces {
        text.push_str(piece);
        all.push(delta(piece));
    }
    all.push(message(&text));
    all
}

/// Builds one piece of a message's text.
pub fn delta(text: &str) -> Value {
    json!({
        "type": "response.output_text.delta",
        "item_id": MESSAGE_ID,
        "output_index": 0,
        "content_index": 0,
        "delta": text,
    })
}

/// Builds the event with a function call; `arguments` is sent as a string, as on the wire.
pub fn call(call_id: &str, name: &str, arguments: Value) -> Value {
    call_text(call_id, name, &arguments.to_string())
}

/// Builds the event of a function call whose arguments are exactly this text, valid JSON or not.
pub fn call_text(call_id: &str, name: &str, arguments: &str) -> Value {
    item(json!({
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }))
}

/// Builds the event with a free-form tool call, such as `apply_patch`.
pub fn custom_call(call_id: &str, name: &str, input: &str) -> Value {
    item(json!({
        "type": "custom_tool_call",
        "call_id": call_id,
        "name": name,
        "input": input,
    }))
}

/// Builds the event with a completed output item of any type.
pub fn item(item: Value) -> Value {
    json!({ "type": "response.output_item.done", "item": item })
}

/// Delays an event.
pub fn after_ms(wait_ms: u64, mut event: Value) -> Value {
    event["__sleep_ms"] = wait_ms.into();
    event
}

const RESPONSE_ID: &str = "resp_1";
const MESSAGE_ID: &str = "msg_1";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(script: Value, want: Result<(), &str>) {
        let got = Script::from_value(script).map(|_| ()).map_err(|error| error.to_string());
        match (&got, want) {
            (Ok(()), Ok(())) => {}
            (Err(got), Err(want)) if got.contains(want) => {}
            _ => panic!("want {want:?} got {got:?}"),
        }
    }

    #[test]
    fn scripts_are_checked_before_they_play() {
        check(json!([]), Ok(()));
        check(json!([{}]), Ok(()));
        check(json!([response(deltas(["a", "b"])), status(500, json!({}))]), Ok(()));
        check(json!([{ "delay_ms": 0.5, "hang_ms": 10, "chunk": 1, "reset": true }]), Ok(()));
        check(json!([{ "__match__": [{ "if": "x", "then": { "raw": "y" } }] }]), Ok(()));
        check(json!({ "events": [] }), Err("not a script"));
        check(json!([{ "dealy_ms": 1 }]), Err("unknown field `dealy_ms`"));
        check(json!([{}, { "events": [{ "type": "a" }, {}] }]), Err("event 1 of entry 1"));
        check(json!([{ "hang_ms": -1 }]), Err("entry 0 waits for -1 ms"));
        check(json!([events([json!({ "type": "a", "__sleep_ms": -2 })])]), Err("for -2 ms"));
        let inner = json!({ "__match__": [{ "if": "a", "then": {} }] });
        check(json!([{ "__match__": [{ "if": "x", "then": inner }] }]), Err("choices of its own"));
    }

    #[track_caller]
    fn check_types(entry: Value, want: &[&str]) {
        let events = entry["events"].as_array().unwrap();
        let got: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn builders_make_whole_responses() {
        let done = "response.output_item.done";
        check_types(response([]), &["response.created", "response.completed"]);
        check_types(
            response([message("x"), call("c", "f", json!({})), custom_call("d", "g", "")]),
            &["response.created", done, done, done, "response.completed"],
        );
        let (added, delta) = ("response.output_item.added", "response.output_text.delta");
        check_types(events(deltas(["a", "b"])), &[added, delta, delta, done]);
        check_types(events([failed("server_error", "no")]), &["response.failed"]);
        assert_eq!(deltas(["a", "b"])[3]["item"]["content"][0]["text"], "ab");
        assert_eq!(call("c", "f", json!({ "a": 1 }))["item"]["arguments"], r#"{"a":1}"#);
        assert_eq!(after_ms(5, created())["__sleep_ms"], 5);
    }
}
