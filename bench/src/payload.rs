//! The payloads of the benchmarks, and the tool they call.

use serde_json::{Value as Json, json};
use stream::dialect::{Dialect, Format, Options, Tools};

use crate::render::Value;

pub(crate) const TOOL: &str = "write_file";

/// Describes the tools, as a request does.
pub(crate) fn tools() -> Json {
    json!([{
        "type": "function",
        "function": {
            "name": TOOL,
            "parameters": {
                "type": "object",
                "properties": {
                    "path": { "type": "string" },
                    "content": { "type": "string" },
                    "rows": { "type": "array" },
                },
            },
        },
    }])
}

/// Builds the dialect of a format with the tool.
pub(crate) fn dialect(format: &'static Format) -> Dialect {
    let tools = Tools::from_json(&tools()).expect("it is a list of tools");
    Dialect::new(format, &Options::default(), &tools)
}

/// Builds one long text, such as a source file: about one character in seventy needs an escape.
pub(crate) fn source(bytes: usize) -> Vec<(&'static str, Value)> {
    let line = "    let total = items.iter().map(|item| item.price * item.count).sum();\n";
    let quoted =
        "    println!(\"the total of all of the items in the basket is {total}, in cents\");\n";
    let text = format!("{}{quoted}", line.repeat(3));
    let source = text.repeat(bytes / text.len() + 1)[..bytes].to_owned();
    vec![("path", Value::Text("src/main.rs".to_owned())), ("content", Value::Text(source))]
}

/// Builds many small rows.
pub(crate) fn rows(bytes: usize) -> Vec<(&'static str, Value)> {
    let mut rows = String::from("[");
    for id in 0.. {
        if rows.len() > bytes {
            break;
        }
        let comma = if id == 0 { "" } else { "," };
        rows += &format!("{comma}{{\"id\":{id},\"name\":\"row {id}\",\"ok\":true,\"at\":[1,2.5]}}");
    }
    rows.push(']');
    vec![("rows", Value::Json(rows))]
}

/// Builds an answer without calls.
pub(crate) fn prose(bytes: usize) -> String {
    let text = "The parser reads what the network brings, in whatever pieces that comes, and says what it \
        found. A comparison such as a < b is no markup, nor is a list [1, 2, 3] or a word in `code`.\n\n";
    text.repeat(bytes / text.len() + 1)[..bytes].to_owned()
}
