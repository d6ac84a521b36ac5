//! Builders for scripted answers of a Chat Completions endpoint.
//!
//! Chunks are plain JSON, and an entry is the text of their stream:
//!
//! ```
//! use serde_json::json;
//! use testkit::chat;
//!
//! let script = json!([
//!     chat::answer([chat::call(0, "c1", "exec_command", json!({ "cmd": "true" }))]),
//!     chat::answer([chat::text("Done.")]),
//! ]);
//! assert!(testkit::Script::from_value(script).is_ok());
//! ```

use serde_json::{Value, json};

use crate::script::Usage;

/// Builds an entry: `chunks`, then the finish reason, token counts and the end marker.
pub fn answer(chunks: impl IntoIterator<Item = Value>) -> Value {
    let mut all: Vec<_> = chunks.into_iter().collect();
    let called = all.iter().any(|chunk| chunk.pointer("/choices/0/delta/tool_calls").is_some());
    all.extend([stop(if called { "tool_calls" } else { "stop" }), usage(Usage::default()), done()]);
    chunks_only(all)
}

/// Builds an entry: `chunks` and nothing after them, for answers that end otherwise.
pub fn chunks_only(chunks: impl IntoIterator<Item = Value>) -> Value {
    let write = |chunk: Value| match chunk {
        Value::String(text) => format!("data: {text}\n\n"),
        chunk => format!("data: {chunk}\n\n"),
    };
    json!({ "raw": chunks.into_iter().map(write).collect::<String>() })
}

/// Builds a chunk with a piece of text.
pub fn text(text: &str) -> Value {
    delta(json!({ "content": text }))
}

/// Builds a chunk with a piece of reasoning.
pub fn reasoning(text: &str) -> Value {
    delta(json!({ "reasoning_content": text }))
}

/// Builds a complete call; `arguments` is sent as a string, as on the wire.
pub fn call(index: u32, id: &str, name: &str, arguments: Value) -> Value {
    call_text(index, id, name, &arguments.to_string())
}

/// Builds a call, or a piece of one, whose arguments are exactly this text.
pub fn call_text(index: u32, id: &str, name: &str, arguments: &str) -> Value {
    let function = json!({ "name": name, "arguments": arguments });
    let call = json!({ "index": index, "id": id, "type": "function", "function": function });
    delta(json!({ "tool_calls": [call] }))
}

/// Builds a chunk with this delta.
pub fn delta(delta: Value) -> Value {
    chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }]))
}

/// Builds the chunk with the finish reason.
pub fn stop(reason: &str) -> Value {
    chunk(json!([{ "index": 0, "delta": {}, "finish_reason": reason }]))
}

/// Builds the chunk with the token counts.
pub fn usage(usage: Usage) -> Value {
    let mut last = chunk(json!([]));
    last["usage"] = json!({
        "prompt_tokens": usage.input,
        "prompt_tokens_details": { "cached_tokens": usage.cached },
        "completion_tokens": usage.output,
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning },
        "total_tokens": usage.input + usage.output,
    });
    last
}

/// Builds the end marker.
pub fn done() -> Value {
    json!("[DONE]")
}

fn chunk(choices: Value) -> Value {
    json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": choices })
}
