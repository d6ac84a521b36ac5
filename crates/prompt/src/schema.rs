//! Schemas of clients, reduced to what bounds a value.
//!
//! What only describes is dropped, and so is what endpoints put beside it (`$schema`, `strict`, formats
//! that nobody checks). What bounds a value stays even if a grammar cannot be made of it: that is refused
//! by whoever makes the grammar, not ignored here. Objects whose fields are listed get no others: what
//! follows the narrower schema follows the wider one.

use serde_json::{Map, Value, json};

/// Returns the schema of a tool's arguments, which are an object whatever the client says.
pub(crate) fn arguments(schema: &Value) -> Value {
    let mut schema = match normalise(schema) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let elsewhere = ["type", "anyOf", "oneOf", "allOf", "$ref", "enum", "const"];
    if !elsewhere.iter().any(|key| schema.contains_key(*key)) {
        schema.insert("type".to_owned(), "object".into());
        close(&mut schema);
    }
    Value::Object(schema)
}

/// Returns a schema without what bounds nothing.
pub(crate) fn normalise(schema: &Value) -> Value {
    walk(schema, Place::Value)
}

/// Returns the part of a schema that only its required fields are left of.
pub(crate) fn required_only(schema: &Value) -> Value {
    let mut schema = arguments(schema);
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.retain(|key, _| required.iter().any(|name| name.as_str() == Some(key)));
    }
    schema
}

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It alone says what a value is.
    Value,
    /// Others may say more about the same value.
    Part,
}

fn walk(schema: &Value, place: Place) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut out = Map::new();
    for (key, value) in fields {
        let value = match key.as_str() {
            "properties" | "patternProperties" => each(value, Place::Value),
            "$defs" | "definitions" | "dependentSchemas" => each(value, Place::Part),
            "items"
            | "additionalProperties"
            | "additionalItems"
            | "contains"
            | "propertyNames"
            | "unevaluatedProperties"
            | "unevaluatedItems" => match value {
                Value::Array(list) => list.iter().map(|item| walk(item, Place::Value)).collect(),
                one => walk(one, Place::Value),
            },
            "prefixItems" => list(value, Place::Value),
            "anyOf" | "oneOf" | "allOf" => list(value, Place::Part),
            "not" | "if" | "then" | "else" => walk(value, Place::Part),
            "format" => match value.as_str() {
                Some(format) if FORMATS.contains(&format) => value.clone(),
                _ => continue,
            },
            key if KEPT.contains(&key) => value.clone(),
            _ => continue,
        };
        out.insert(key.clone(), value);
    }
    if place == Place::Value {
        close(&mut out);
    }
    Value::Object(out)
}

fn each(schemas: &Value, place: Place) -> Value {
    let Value::Object(fields) = schemas else { return schemas.clone() };
    Value::Object(fields.iter().map(|(key, value)| (key.clone(), walk(value, place))).collect())
}

fn list(schemas: &Value, place: Place) -> Value {
    let Value::Array(list) = schemas else { return schemas.clone() };
    list.iter().map(|schema| walk(schema, place)).collect()
}

/// Lets no other fields into an object that lists them.
fn close(schema: &mut Map<String, Value>) {
    const OPEN: [&str; 7] = [
        "additionalProperties",
        "patternProperties",
        "unevaluatedProperties",
        "$ref",
        "anyOf",
        "oneOf",
        "allOf",
    ];
    let is_listed = schema.get("properties").is_some_and(Value::is_object);
    if is_listed && !OPEN.iter().any(|key| schema.contains_key(*key)) {
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
}

/// Formats that grammars are made of.
const FORMATS: [&str; 11] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
    "unknown",
];

/// Keywords that bound a value and hold no schema.
const KEPT: [&str; 23] = [
    "$ref",
    "$id",
    "$anchor",
    "type",
    "enum",
    "const",
    "required",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{arguments, normalise, required_only};

    #[track_caller]
    fn check(of: fn(&Value) -> Value, schema: Value, want: Value) {
        assert_eq!(of(&schema), want);
    }

    #[test]
    fn what_bounds_nothing_is_dropped() {
        check(
            normalise,
            json!({"$schema": "x", "title": "t", "strict": true, "type": "object", "properties": {
                "title": {"type": "string", "description": "d", "format": "binary", "default": "a"},
                "when": {"type": "string", "format": "date", "nullable": true}
            }}),
            json!({"type": "object", "properties": {
                "title": {"type": "string"}, "when": {"type": "string", "format": "date"}
            }, "additionalProperties": false}),
        );
        check(
            normalise,
            json!({"allOf": [{"properties": {"a": {"properties": {}}}}, {"uniqueItems": true}]}),
            json!({"allOf": [
                {"properties": {"a": {"properties": {}, "additionalProperties": false}}},
                {"uniqueItems": true}
            ]}),
        );
        check(normalise, json!(true), json!(true));
    }

    #[test]
    fn arguments_are_objects() {
        check(arguments, Value::Null, json!({"type": "object"}));
        check(arguments, json!({}), json!({"type": "object"}));
        check(
            arguments,
            json!({"properties": {"a": {}}}),
            json!({"properties": {"a": {}}, "additionalProperties": false, "type": "object"}),
        );
        check(arguments, json!({"$ref": "#/$defs/a"}), json!({"$ref": "#/$defs/a"}));
        check(
            required_only,
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
                "additionalProperties": false}),
        );
    }
}
