//! Converts JSON Schemas to TypeScript types (pure).
//!
//! It knows the keywords that our own types produce. Constraints that TypeScript cannot express, such as the range of a
//! number, are left out.

use serde_json::{Map, Value};

use super::DEFINITIONS;

/// Formats schemas as a module that exports one type for each.
pub(super) fn module(schemas: &Map<String, Value>) -> String {
    let mut names: Vec<_> = schemas.keys().collect();
    names.sort();
    let mut text = String::from(
        "// The protocol of heddle app-server, as `heddle app-server generate-ts` prints it. Do not edit.\n",
    );
    for name in names {
        let schema = &schemas[name];
        text.push('\n');
        text.push_str(&comment(schema, ""));
        text.push_str(&format!("export type {name} = {};\n", type_of(schema, 0)));
    }
    text
}

/// Formats a schema as a type; lines after the first are indented by `depth`.
fn type_of(schema: &Value, depth: usize) -> String {
    let fields = match schema {
        Value::Bool(false) => return "never".to_owned(),
        Value::Object(fields) => fields,
        _ => return "unknown".to_owned(),
    };
    let mut parts = Vec::new();
    if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
        parts.push(name.strip_prefix(DEFINITIONS).unwrap_or(name).to_owned());
    }
    if let Some(constant) = fields.get("const") {
        parts.push(constant.to_string());
    } else if let Some(Value::Array(values)) = fields.get("enum") {
        parts.push(one_of(values.iter().map(Value::to_string)));
    } else if let Some(types) = fields.get("type") {
        let name = |name: &Value| name.as_str().map(|name| plain(name, fields, depth));
        match types {
            Value::Array(names) => parts.push(one_of(names.iter().filter_map(name))),
            one => parts.extend(name(one)),
        }
    } else if fields.contains_key("properties") {
        parts.push(object(fields, depth));
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(Value::Array(schemas)) = fields.get(keyword) {
            parts.push(one_of(schemas.iter().map(|it| type_of(it, depth))));
        }
    }
    if let Some(Value::Array(schemas)) = fields.get("allOf") {
        parts.extend(schemas.iter().map(|it| type_of(it, depth)));
    }
    if fields.get("not").is_some_and(|it| it.as_object().is_some_and(Map::is_empty)) {
        parts.push("never".to_owned());
    }
    // An object without fields of its own adds nothing to what else is said of it.
    if parts.len() > 1 {
        parts.retain(|part| part != EMPTY);
    }
    match parts.len() {
        0 => "unknown".to_owned(),
        1 => parts.remove(0),
        _ => {
            let inner = parts.into_iter().map(|part| match part.contains(" | ") {
                true => format!("({part})"),
                false => part,
            });
            inner.collect::<Vec<_>>().join(" & ")
        }
    }
}

const EMPTY: &str = "Record<string, never>";

/// Formats one of the types that JSON Schema has a name for.
fn plain(name: &str, fields: &Map<String, Value>, depth: usize) -> String {
    match name {
        "integer" => "number".to_owned(),
        "array" => match fields.get("items") {
            Some(Value::Array(places)) => {
                let places: Vec<_> = places.iter().map(|it| type_of(it, depth)).collect();
                format!("[{}]", places.join(", "))
            }
            Some(items) => format!("Array<{}>", type_of(items, depth)),
            None => "Array<unknown>".to_owned(),
        },
        "object" => object(fields, depth),
        name => name.to_owned(),
    }
}

fn object(fields: &Map<String, Value>, depth: usize) -> String {
    let properties = fields.get("properties").and_then(Value::as_object);
    let others = fields.get("additionalProperties").filter(|it| **it != Value::Bool(false));
    let Some(properties) = properties.filter(|it| !it.is_empty()) else {
        return match others {
            Some(others) => format!("{{ [key: string]: {} }}", type_of(others, depth)),
            None => EMPTY.to_owned(),
        };
    };
    let required = fields.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|it| it.iter().any(|it| it == name));
    let indent = "  ".repeat(depth + 1);
    let mut text = String::from("{\n");
    for (name, schema) in properties {
        text.push_str(&comment(schema, &indent));
        let mark = if is_required(name) { "" } else { "?" };
        let shown = match is_identifier(name) {
            true => name.clone(),
            false => Value::from(name.as_str()).to_string(),
        };
        text.push_str(&format!("{indent}{shown}{mark}: {};\n", type_of(schema, depth + 1)));
    }
    text.push_str(&"  ".repeat(depth));
    text.push('}');
    text
}

fn is_identifier(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_' || letter == '$';
    name.starts_with(is_letter)
        && name.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit())
}

fn one_of(types: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for one in types {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all.join(" | ")
}

fn comment(schema: &Value, indent: &str) -> String {
    let Some(words) = schema.get("description").and_then(Value::as_str) else {
        return String::new();
    };
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{indent}/** {} */\n", words.replace("*/", "* /"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: Value, want: &str) {
        assert_eq!(type_of(&schema, 0), want, "{schema}");
    }

    #[test]
    fn types() {
        check(json!(true), "unknown");
        check(json!(false), "never");
        check(json!({}), "unknown");
        check(json!({"not": {}}), "never");
        check(json!({"type": "integer", "format": "int64", "minimum": 0}), "number");
        check(json!({"type": ["string", "null"]}), "string | null");
        check(json!({"type": "string", "enum": ["a", "b\"c"]}), r#""a" | "b\"c""#);
        check(json!({"type": "string", "const": "a"}), r#""a""#);
        check(json!({"$ref": "#/definitions/A"}), "A");
        check(json!({"anyOf": [{"$ref": "#/definitions/A"}, {"type": "null"}]}), "A | null");
        check(json!({"allOf": [{"$ref": "#/definitions/A"}]}), "A");
        check(
            json!({"type": "array", "items": {"type": ["string", "null"]}}),
            "Array<string | null>",
        );
        check(json!({"type": "array", "items": [true, {"type": "null"}]}), "[unknown, null]");
        check(json!({"type": "array", "maxItems": 0}), "Array<unknown>");
        check(json!({"type": "object"}), "Record<string, never>");
        check(
            json!({"type": "object", "additionalProperties": true}),
            "{ [key: string]: unknown }",
        );
        check(json!({"type": "object", "oneOf": [{"$ref": "#/definitions/A"}]}), "A");
    }

    #[test]
    fn objects() {
        let object = json!({
            "type": "object",
            "required": ["b"],
            "properties": {
                "b": {"type": "object", "properties": {"c-d": true}, "description": "x */ y\nz"},
                "a": {"type": "null"},
            },
            "oneOf": [{"$ref": "#/definitions/A"}, {"$ref": "#/definitions/B"}],
        });
        let text = type_of(&object, 0);
        assert!(
            text.contains("  /** x * / y z */\n  b: {\n    \"c-d\"?: unknown;\n  };\n"),
            "{text}"
        );
        assert!(text.contains("  a?: null;\n") && text.ends_with("} & (A | B)"), "{text}");
    }

    #[test]
    fn modules() {
        let schemas =
            json!({"B": {"type": "string", "description": "b"}, "A": {"$ref": "#/definitions/B"}});
        let text = module(schemas.as_object().unwrap());
        assert!(
            text.ends_with("\nexport type A = B;\n\n/** b */\nexport type B = string;\n"),
            "{text}"
        );
    }
}
