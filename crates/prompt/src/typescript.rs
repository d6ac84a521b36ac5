//! Renders tool schemas as TypeScript-like types, which the Harmony family was trained on.
//!
//! Every blank and comment matches OpenAI's own renderer; `tests/data/harmony` contains its output.

use std::fmt::Write as _;

use serde_json::Value;

use crate::request::{DEPTH_MAX, Input, Tool};

/// Renders the section that describes tools.
pub(crate) fn tools_section(tools: &[Tool]) -> String {
    let mut out = String::from("# Tools\n\n## functions\n\nnamespace functions {\n");
    for tool in tools {
        for line in tool.description.lines() {
            let _ = write!(out, "\n// {line}");
        }
        let _ = match &tool.input {
            Input::Json(schema) => {
                write!(out, "\ntype {} = (_: {}) => any;\n", tool.name, type_of(schema, "", 0))
            }
            // A function of a string, which is the input itself.
            Input::Text { .. } => write!(out, "\ntype {} = (_: string) => any;\n", tool.name),
        };
    }
    out.push_str("\n} // namespace functions");
    out
}

/// Returns the type of a schema; lines are indented by `indent`.
fn type_of(schema: &Value, indent: &str, depth: usize) -> String {
    // No request that was accepted has such a schema.
    if depth > DEPTH_MAX {
        return "any".to_owned();
    }
    if let Some(variants) = schema.get("oneOf").and_then(Value::as_array) {
        let variants = variants.iter().map(|variant| {
            let of = nullable(variant, type_of(variant, &format!("{indent}   "), depth + 1));
            let mut comments: Vec<_> =
                text(variant, "description").map(str::to_owned).into_iter().collect();
            comments.extend(default(variant, Bare::Never));
            format!("\n{indent} | {of}{}", trailing(&comments))
        });
        return variants.collect();
    }
    match schema.get("type") {
        Some(Value::Array(kinds)) if kinds.iter().any(Value::is_string) => {
            let kinds = kinds.iter().filter_map(Value::as_str);
            kinds
                .map(|kind| if kind == "integer" { "number" } else { kind })
                .collect::<Vec<_>>()
                .join(" | ")
        }
        Some(Value::String(kind)) => match kind.as_str() {
            "object" => object(schema, indent, depth),
            "string" => {
                let values = schema.get("enum").and_then(Value::as_array);
                let values = values.into_iter().flatten().filter_map(Value::as_str);
                let values: Vec<_> = values.map(|value| format!("\"{value}\"")).collect();
                if values.is_empty() { "string".to_owned() } else { values.join(" | ") }
            }
            "number" | "integer" => "number".to_owned(),
            "boolean" => "boolean".to_owned(),
            "array" => match schema.get("items") {
                Some(items) => format!("{}[]", type_of(items, indent, depth + 1)),
                None => "Array<any>".to_owned(),
            },
            _ => "any".to_owned(),
        },
        _ => "any".to_owned(),
    }
}

fn object(schema: &Value, indent: &str, depth: usize) -> String {
    let mut out = comment(schema, "description", indent);
    out.push_str("{\n");
    let required = schema.get("required").and_then(Value::as_array);
    let is_required =
        |key: &str| required.is_some_and(|list| list.iter().any(|name| name.as_str() == Some(key)));
    for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten()
    {
        if let Some(title) = text(property, "title") {
            let _ = writeln!(out, "{indent}// {title}\n{indent}//");
        }
        if property.get("oneOf").is_none() {
            out += &comment(property, "description", indent);
        }
        out += &examples(property, indent);
        let mark = if is_required(key) { "" } else { "?" };
        if let Some(variants) = property.get("oneOf").and_then(Value::as_array) {
            out += &union(key, mark, property, variants, indent, depth);
            continue;
        }
        let of = nullable(property, type_of(property, &format!("{indent}    "), depth + 1));
        let _ = write!(out, "{indent}{key}{mark}: {of},");
        if property.get("oneOf").is_none()
            && let Some(default) = default(property, Bare::Enums)
        {
            let _ = write!(out, " // {default}");
        }
        out.push('\n');
    }
    out + indent + "}"
}

/// Renders a property with several alternatives, one per line.
fn union(
    key: &str,
    mark: &str,
    property: &Value,
    variants: &[Value],
    indent: &str,
    depth: usize,
) -> String {
    let mut out = String::new();
    let about = text(property, "description");
    let first = variants.first().and_then(|first| text(first, "description"));
    // If the first variant has the same description, it is shown there.
    let above = about.is_some() && about != first;
    if above {
        out += &comment(property, "description", indent);
    }
    if let Some(default) = default(property, Bare::Enums) {
        let _ = writeln!(out, "{indent}// {default}");
    }
    let _ = writeln!(out, "{indent}{key}{mark}:");
    for (at, variant) in variants.iter().enumerate() {
        let of = nullable(variant, type_of(variant, &format!("{indent}   "), depth + 1));
        let own = text(variant, "description");
        let own = own.filter(|own| !(at == 0 && above) && Some(*own) != about);
        let mut comments: Vec<_> = own.map(str::to_owned).into_iter().collect();
        comments.extend(default(variant, Bare::Enums));
        let _ = writeln!(out, "{indent} | {of}{}", trailing(&comments));
    }
    let _ = writeln!(out, "{indent},");
    out
}

fn examples(property: &Value, indent: &str) -> String {
    let mut out = String::new();
    let list = property.get("examples").and_then(Value::as_array).filter(|list| !list.is_empty());
    if let Some(list) = list {
        let _ = writeln!(out, "{indent}// Examples:");
        for example in list.iter().filter_map(Value::as_str) {
            let _ = writeln!(out, "{indent}// - \"{example}\"");
        }
    }
    out
}

/// Where a string default is written without quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bare {
    Never,
    Enums,
}

fn default(schema: &Value, bare: Bare) -> Option<String> {
    let default = schema.get("default")?;
    let list = schema.get("enum").and_then(Value::as_array);
    let is_enum = list.is_some_and(|list| !list.is_empty());
    Some(match default.as_str() {
        Some(text) if !is_enum => format!("default: \"{text}\""),
        Some(text) if bare == Bare::Enums => format!("default: {text}"),
        _ => format!("default: {default}"),
    })
}

fn nullable(schema: &Value, of: String) -> String {
    let nullable = schema.get("nullable").and_then(Value::as_bool) == Some(true);
    if nullable && !of.contains("null") { format!("{of} | null") } else { of }
}

fn text<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    schema.get(key).and_then(Value::as_str)
}

fn comment(schema: &Value, key: &str, indent: &str) -> String {
    text(schema, key).map_or_else(String::new, |text| format!("{indent}// {text}\n"))
}

fn trailing(comments: &[String]) -> String {
    if comments.is_empty() { String::new() } else { format!(" // {}", comments.join(" ")) }
}
