//! Short ways to script answers of a Chat Completions endpoint.
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

/// An entry: `chunks`, then why the model stopped, token counts and the closing word.
pub fn answer(chunks: impl IntoIterator<Item = Value>) -> Value {
    let mut all: Vec<_> = chunks.into_iter().collect();
    let called = all.iter().any(|chunk| chunk.pointer("/choices/0/delta/tool_calls").is_some());
    all.extend([stop(if called { "tool_calls" } else { "stop" }), usage(Usage::default()), done()]);
    chunks_only(all)
}

/// An entry: `chunks` and nothing after them, for answers that end otherwise.
pub fn chunks_only(chunks: impl IntoIterator<Item = Value>) -> Value {
    let write = |chunk: Value| match chunk {
        Value::String(text) => format!("data: {text}\n\n"),
        chunk => format!("data: {chunk}\n\n"),
    };
    json!({ "raw": chunks.into_iter().map(write).collect::<String>() })
}

/// A piece of text.
pub fn text(text: &str) -> Value {
    delta(json!({ "content": text }))
}

/// A piece of reasoning.
pub fn reasoning(text: &str) -> Value {
    delta(json!({ "reasoning_content": text }))
}

/// A whole call; `arguments` goes out as a string, as on the wire.
pub fn call(index: u32, id: &str, name: &str, arguments: Value) -> Value {
    call_text(index, id, name, &arguments.to_string())
}

/// A call, or a piece of one, whose arguments are this very text.
pub fn call_text(index: u32, id: &str, name: &str, arguments: &str) -> Value {
    let function = json!({ "name": name, "arguments": arguments });
    let call = json!({ "index": index, "id": id, "type": "function", "function": function });
    delta(json!({ "tool_calls": [call] }))
}

/// A chunk with this delta.
pub fn delta(delta: Value) -> Value {
    chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }]))
}

/// The chunk that says why the model stopped.
pub fn stop(reason: &str) -> Value {
    chunk(json!([{ "index": 0, "delta": {}, "finish_reason": reason }]))
}

/// The chunk with the token counts.
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

/// The closing word.
pub fn done() -> Value {
    json!("[DONE]")
}

fn chunk(choices: Value) -> Value {
    json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": choices })
}
