//! What a scripted endpoint answers: the format of a script, and short ways to write one.
//!
//! A script is a list; request number i gets entry i and the last entry repeats. The functions
//! below build events and entries as plain JSON, so that a test can add a field the builders do not
//! know:
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

/// A checked script, rendered to bytes once; a clone is cheap and plays from the beginning.
#[derive(Clone, Debug)]
pub struct Script {
    answers: Arc<[Answer]>,
}

impl Script {
    /// Reads a list of entries from JSON.
    pub fn from_value(script: Value) -> Result<Self, ScriptError> {
        Self::from_entries(serde_json::from_value(script)?)
    }

    /// Takes entries that were built in code.
    pub fn from_entries(entries: Vec<Entry>) -> Result<Self, ScriptError> {
        let answers: Result<Vec<Answer>, ScriptError> = entries
            .into_iter()
            .enumerate()
            .map(|(number, entry)| Answer::new(number, entry))
            .collect();
        Ok(Self { answers: answers?.into() })
    }

    /// Finds what request `number` gets; `None` only in an empty script.
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
    /// Text written as it stands instead of `events`.
    pub raw: Option<String>,
    /// Bytes per write, to cut the stream at awkward places.
    pub chunk: Option<usize>,
    /// Wait after each event.
    pub delay_ms: f64,
    /// HTTP status; any but 200 answers with `body` instead of a stream.
    pub status: Option<u16>,
    /// Body of an answer that is no stream; anything but a string is written as JSON.
    pub body: Option<Value>,
    /// Further response headers.
    pub headers: BTreeMap<String, Value>,
    /// Answers with `body` even when the status is 200.
    pub json: bool,
    /// Holds the connection open after the last event.
    pub hang_ms: f64,
    /// Ends the stream with a TCP reset.
    pub reset: bool,
    /// Entries to play instead when their text is in the request body; the first match counts.
    #[serde(rename = "__match__")]
    pub choices: Vec<Choice>,
}

/// An entry that is played only for certain requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The text to look for in the request body.
    #[serde(rename = "if")]
    pub text: String,
    /// The entry to play; its own choices must be empty.
    #[serde(rename = "then")]
    pub entry: Entry,
}

/// Why a script cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// It is not a list of entries, or an entry has a field nobody reads.
    #[error("not a script: {0}")]
    Shape(#[from] serde_json::Error),
    /// An event lacks the `type` that names it on the wire.
    #[error("event {event} of entry {entry} has no type")]
    NoType {
        /// Number of the entry, from 0.
        entry: usize,
        /// Number of the event in it, from 0.
        event: usize,
    },
    /// A wait is negative or not finite.
    #[error("entry {entry} waits for {ms} ms")]
    Wait {
        /// Number of the entry, from 0.
        entry: usize,
        /// The wait as written.
        ms: f64,
    },
    /// An entry behind a choice has choices itself.
    #[error("a choice of entry {entry} has choices of its own")]
    NestedChoice {
        /// Number of the entry, from 0.
        entry: usize,
    },
}

/// Tokens a response claims to have used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// All input tokens.
    pub input: u64,
    /// Those of the input that came from the provider's cache.
    pub cached: u64,
    /// All output tokens.
    pub output: u64,
    /// Those of the output that were reasoning.
    pub reasoning: u64,
}

impl Default for Usage {
    /// The figures that recordings have in every response.
    fn default() -> Self {
        Self { input: 100, cached: 10, output: 20, reasoning: 5 }
    }
}

/// An entry: `events` between `response.created` and `response.completed`.
pub fn response(events: impl IntoIterator<Item = Value>) -> Value {
    response_with(events, Usage::default())
}

/// An entry like [`response`] with a usage of its own.
pub fn response_with(events: impl IntoIterator<Item = Value>, usage: Usage) -> Value {
    let mut all = vec![created()];
    all.extend(events);
    all.push(completed(usage));
    json!({ "events": all })
}

/// An entry: `events` and nothing around them, for streams that are cut short.
pub fn events(events: impl IntoIterator<Item = Value>) -> Value {
    json!({ "events": events.into_iter().collect::<Vec<_>>() })
}

/// An entry that is an HTTP error with a JSON body.
pub fn status(code: u16, body: Value) -> Value {
    json!({ "status": code, "body": body })
}

/// The event that opens a response.
pub fn created() -> Value {
    json!({ "type": "response.created", "response": { "id": RESPONSE_ID } })
}

/// The event that ends a response well.
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

/// The event that ends a response badly.
pub fn failed(code: &str, message: &str) -> Value {
    json!({
        "type": "response.failed",
        "response": { "id": RESPONSE_ID, "error": { "code": code, "message": message } },
    })
}

/// The event that brings a whole assistant message.
pub fn message(text: &str) -> Value {
    item(json!({
        "type": "message",
        "role": "assistant",
        "id": MESSAGE_ID,
        "content": [{ "type": "output_text", "text": text }],
    }))
}

/// The events of a message that arrives piece by piece: added, one delta each, done.
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

/// One piece of a message's text.
pub fn delta(text: &str) -> Value {
    json!({
        "type": "response.output_text.delta",
        "item_id": MESSAGE_ID,
        "output_index": 0,
        "content_index": 0,
        "delta": text,
    })
}

/// The event that asks for a function call; `arguments` goes out as a string, as on the wire.
pub fn call(call_id: &str, name: &str, arguments: Value) -> Value {
    call_text(call_id, name, &arguments.to_string())
}

/// The event of a function call whose arguments are this very text, valid JSON or not.
pub fn call_text(call_id: &str, name: &str, arguments: &str) -> Value {
    item(json!({
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }))
}

/// The event that asks for a free-form tool call, such as `apply_patch`.
pub fn custom_call(call_id: &str, name: &str, input: &str) -> Value {
    item(json!({
        "type": "custom_tool_call",
        "call_id": call_id,
        "name": name,
        "input": input,
    }))
}

/// The event that brings a finished output item of any type.
pub fn item(item: Value) -> Value {
    json!({ "type": "response.output_item.done", "item": item })
}

/// The same event, written only after a wait.
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
