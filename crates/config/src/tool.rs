//! The rules for every tool that a model can call: those of host programs, and those in the settings of the daemon.

use serde_json::Value;

use crate::schema::{Schema, SchemaError};

/// Longest name of a tool that endpoints accept, in bytes.
pub const TOOL_NAME_BYTES_MAX: usize = 64;
/// Longest description of a tool, in bytes, as it is part of every request.
pub const TOOL_DESCRIPTION_BYTES_MAX: usize = 16 * 1024;
/// Largest schema of a tool's arguments, in bytes, as it is part of every request.
pub const TOOL_SCHEMA_BYTES_MAX: usize = 256 * 1024;
/// Deepest nesting of a schema of arguments, in levels of JSON.
pub const TOOL_SCHEMA_DEPTH_MAX: usize = 64;

/// What is wrong with a tool, phrased to follow the name of the [`field`](ToolProblem::field).
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolProblem {
    /// Endpoints would refuse the name.
    #[error("cannot be used: write 1 to {TOOL_NAME_BYTES_MAX} letters, digits, `_` and `-`")]
    Name,
    /// The model would not know what the tool is for.
    #[error("is empty: say what the tool does and when to call it")]
    NoDescription,
    /// The description would take too much of every request.
    #[error("has {bytes} bytes: use at most {TOOL_DESCRIPTION_BYTES_MAX}")]
    LongDescription { bytes: usize },
    /// The schema would take too much of every request.
    #[error("have a schema of {bytes} bytes: use at most {TOOL_SCHEMA_BYTES_MAX}")]
    LongSchema { bytes: usize },
    /// The schema nests too deeply.
    #[error("have a schema that nests deeper than {TOOL_SCHEMA_DEPTH_MAX} levels: make it flatter")]
    DeepSchema,
    /// The schema is not that of an object, but arguments always are an object.
    #[error("must have the schema of an object: {{\"type\": \"object\", \"properties\": {{…}}}}")]
    NoObject,
    /// The schema is not a valid JSON schema.
    #[error("have no usable schema: {0}")]
    Schema(SchemaError),
}

impl ToolProblem {
    /// Returns the field that has the problem: `name`, `description` or `parameters`.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::NoDescription | Self::LongDescription { .. } => "description",
            Self::LongSchema { .. } | Self::DeepSchema | Self::NoObject | Self::Schema(_) => {
                "parameters"
            }
        }
    }
}

/// Checks the name of a tool.
pub fn check_tool_name(name: &str) -> Result<(), ToolProblem> {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let fits = (1..=TOOL_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(usable);
    if fits { Ok(()) } else { Err(ToolProblem::Name) }
}

/// Checks the description of a tool.
pub fn check_tool_description(description: &str) -> Result<(), ToolProblem> {
    match description.len() {
        _ if description.trim().is_empty() => Err(ToolProblem::NoDescription),
        bytes if bytes > TOOL_DESCRIPTION_BYTES_MAX => Err(ToolProblem::LongDescription { bytes }),
        _ => Ok(()),
    }
}

/// Checks the schema of a tool's arguments, and prepares to check arguments against it.
pub fn check_tool_parameters(schema: &Value) -> Result<Schema, ToolProblem> {
    if !is_shallow(schema) {
        return Err(ToolProblem::DeepSchema);
    }
    let text = schema.to_string();
    if text.len() > TOOL_SCHEMA_BYTES_MAX {
        return Err(ToolProblem::LongSchema { bytes: text.len() });
    }
    // Endpoints refuse schemas without this type, even if they allow only objects.
    if schema["type"] != "object" {
        return Err(ToolProblem::NoObject);
    }
    Schema::parse(&text).map_err(ToolProblem::Schema)
}

/// Returns whether a value nests no deeper than [`TOOL_SCHEMA_DEPTH_MAX`], without recursion.
fn is_shallow(value: &Value) -> bool {
    let mut open = vec![(value, 1)];
    while let Some((value, depth)) = open.pop() {
        let children: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(members) => members.values().collect(),
            _ => continue,
        };
        if depth > TOOL_SCHEMA_DEPTH_MAX {
            return false;
        }
        open.extend(children.into_iter().map(|child| (child, depth + 1)));
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check<T>(done: Result<T, ToolProblem>, want: Option<(&str, &str)>) {
        match (done, want) {
            (Ok(_), None) => {}
            (Err(problem), Some((field, says))) => {
                let text = problem.to_string();
                assert!(problem.field() == field && text.contains(says), "{text}");
            }
            (Ok(_), Some(want)) => panic!("accepted, but {want:?}"),
            (Err(problem), None) => panic!("{problem}"),
        }
    }

    #[test]
    fn names() {
        let long = "n".repeat(TOOL_NAME_BYTES_MAX);
        for name in ["a", "look_up", "A-9", &long] {
            check(check_tool_name(name), None);
        }
        let longer = format!("{long}n");
        for name in ["", " ", "a b", "a.b", "a/b", "ä", "a\n", &longer] {
            check(check_tool_name(name), Some(("name", "letters, digits")));
        }
    }

    #[test]
    fn descriptions() {
        let long = "d".repeat(TOOL_DESCRIPTION_BYTES_MAX);
        for description in ["Says a word.", &long] {
            check(check_tool_description(description), None);
        }
        for description in ["", " \n"] {
            check(check_tool_description(description), Some(("description", "is empty")));
        }
        let longer = format!("{long}d");
        check(check_tool_description(&longer), Some(("description", "has 16385 bytes")));
    }

    fn nested(levels: usize) -> Value {
        let mut inner = json!(true);
        for _ in 1..levels {
            inner = json!([inner]);
        }
        json!({"type": "object", "default": inner})
    }

    #[test]
    fn parameters() {
        let size = |bytes: usize| {
            let empty = json!({"type": "object", "description": ""}).to_string().len();
            json!({"type": "object", "description": "x".repeat(bytes - empty)})
        };
        for schema in [
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}}),
            nested(TOOL_SCHEMA_DEPTH_MAX),
            size(TOOL_SCHEMA_BYTES_MAX),
        ] {
            check(check_tool_parameters(&schema), None);
        }
        for (schema, says) in [
            (json!({}), "schema of an object"),
            (json!([]), "schema of an object"),
            (json!(null), "schema of an object"),
            (json!({"type": "string"}), "schema of an object"),
            (json!({"type": ["object", "null"]}), "schema of an object"),
            (json!({"type": "object", "properties": 7}), "properties must be an object"),
            (json!({"type": "object", "properties": {"a": {"type": "text"}}}), "must be one of"),
            (json!({"type": "object", "$ref": "http://elsewhere"}), "in the same document"),
            (nested(TOOL_SCHEMA_DEPTH_MAX + 1), "nests deeper"),
            (nested(500), "nests deeper"),
            (size(TOOL_SCHEMA_BYTES_MAX + 1), "262145 bytes"),
        ] {
            check(check_tool_parameters(&schema), Some(("parameters", says)));
        }
    }
}
