//! Calls of kinds that only endpoints run: each item contains its result.

use protocol::item::{Status, ToolCall};
use protocol::open::Raw;
use protocol::responses::is_failure;
use serde_json::Value;

use crate::call;

/// The kinds: each with the name of its tool if the item does not state it, and with the fields of its
/// arguments and of its result.
const KINDS: &[(&str, &str, &[&str], &[&str])] = &[
    ("mcp_call", "call", &["arguments"], &["output"]),
    ("code_interpreter_call", "code_interpreter", &["code"], &["outputs"]),
    ("file_search_call", "file_search", &["queries"], &["results"]),
    // The image itself is too long to be shown.
    ("image_generation_call", "image_generation", &["prompt", "revised_prompt"], &[]),
];

/// Parses such a call; none if the item is of another kind.
pub(super) fn read(raw: &Raw, bytes_max: usize) -> Option<ToolCall> {
    let kind = raw.kind()?;
    let (_, tool, arguments, outputs) = KINDS.iter().find(|(name, ..)| *name == kind)?;
    let item: Value = serde_json::from_str(raw.as_str()).ok()?;
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        value => Some(value.to_string()),
    };
    let first = |names: &[&str]| names.iter().find_map(|name| text(&item[*name]));
    let error = text(&item["error"]);
    let failed = error.is_some() || is_failure(item["status"].as_str());
    let output = error.or_else(|| first(outputs)).unwrap_or_default();
    Some(ToolCall {
        server: first(&["server_label"]).unwrap_or_else(|| ToolCall::SERVER.to_owned()),
        tool: first(&["name"]).unwrap_or_else(|| (*tool).to_owned()),
        arguments: call::bound_text(first(arguments).unwrap_or_default(), bytes_max),
        output: call::bound_text(output, bytes_max),
        status: if failed { Status::Failed } else { Status::Completed },
    })
}
