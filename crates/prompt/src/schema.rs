//! Reduces client schemas to what constrains a value.
//!
//! Annotations are dropped, along with what endpoints put next to them (`$schema`, `strict`, formats that are
//! not checked), and what allows everything. Constraints are kept even if no grammar can express them: where
//! a schema is a promise, they are refused ([`check`]), not ignored. Arguments of tools that are not strict
//! are constrained as far as a grammar can; whoever runs the tool validates them anyway. Objects with listed
//! properties get no others: what satisfies the narrower schema satisfies the wider one.

use serde_json::{Map, Value, json};

pub(crate) use self::check::{Fault, check};
pub(crate) use self::cost::{Budget, CHOICES_MAX, choices_of};

mod check;
mod cost;
mod cycle;
mod endless;

/// Returns what a grammar can enforce of the schema of a tool's arguments, which are always an object.
pub(crate) fn arguments(schema: &Value) -> Value {
    let mut schema = match walk(schema, Place::Value, Unbound::Dropped) {
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

/// Removes everything from a schema that constrains nothing.
pub(crate) fn normalise(schema: &Value) -> Value {
    walk(schema, Place::Value, Unbound::Kept)
}

/// Reduces a schema to its required properties.
pub(crate) fn required_only(schema: &Value) -> Value {
    let mut schema = arguments(schema);
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.retain(|key, _| required.iter().any(|name| name.as_str() == Some(key)));
    }
    schema
}

/// Where a schema applies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It alone describes the value.
    Value,
    /// Other schemas may also describe the same value.
    Part,
}

/// What to do with keywords that no grammar can enforce.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unbound {
    Kept,
    Dropped,
}

fn walk(schema: &Value, place: Place, unbound: Unbound) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut out = Map::new();
    for (key, value) in fields {
        let is_left = unbound == Unbound::Dropped && UNBOUND.contains(&key.as_str());
        if is_left || is_vacuous(key, value, fields) {
            continue;
        }
        let value = match key.as_str() {
            "properties" | "patternProperties" => each(value, Place::Value, unbound),
            "$defs" | "definitions" | "dependentSchemas" => each(value, Place::Part, unbound),
            "items"
            | "additionalProperties"
            | "additionalItems"
            | "contains"
            | "propertyNames"
            | "unevaluatedProperties"
            | "unevaluatedItems" => match value {
                Value::Array(_) => list(value, Place::Value, unbound),
                one => walk(one, Place::Value, unbound),
            },
            "prefixItems" => list(value, Place::Value, unbound),
            "anyOf" | "oneOf" | "allOf" => list(value, Place::Part, unbound),
            "not" | "if" | "then" | "else" => walk(value, Place::Part, unbound),
            "format" => match value.as_str() {
                Some(format) if FORMATS.contains(&format) => value.clone(),
                _ => continue,
            },
            key if COUNTS.contains(&key) => count(value),
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

/// Tells whether a keyword constrains nothing next to the others; null counts as missing.
fn is_vacuous(key: &str, value: &Value, beside: &Map<String, Value>) -> bool {
    let is_none = |value: &Value| value.as_f64() == Some(0.0);
    let has = |key: &str| beside.get(key).is_some_and(|value| !value.is_null());
    let bounds = |key: &str| beside.get(key).is_some_and(|value| !allows_all(value));
    match key {
        "const" => false,
        _ if value.is_null() => true,
        "uniqueItems" => *value == Value::Bool(false),
        // Keys are always strings.
        "propertyNames" => allows_all(value) || *value == json!({"type": "string"}),
        // Older drafts put it on the property instead of the object.
        "required" => value.is_boolean(),
        "unevaluatedProperties" | "unevaluatedItems" => allows_all(value),
        "minItems" | "minLength" | "minProperties" => is_none(value),
        "contains" => beside.get("minContains").is_some_and(is_none) && !has("maxContains"),
        "minContains" => is_none(value) || !has("contains"),
        "maxContains" => !has("contains"),
        "if" => !bounds("then") && !bounds("else"),
        "then" | "else" => allows_all(value) || !has("if"),
        "not" => *value == Value::Bool(false),
        "dependentRequired" | "dependentSchemas" => value.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

fn allows_all(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.is_empty(),
        other => matches!(other, Value::Bool(true) | Value::Null),
    }
}

/// Rewrites a count with a decimal point as an integer.
fn count(value: &Value) -> Value {
    match value.as_f64() {
        Some(number)
            if !value.is_u64() && number.fract() == 0.0 && (0.0..1e15).contains(&number) =>
        {
            Value::from(number as u64)
        }
        _ => value.clone(),
    }
}

fn each(schemas: &Value, place: Place, unbound: Unbound) -> Value {
    let Value::Object(fields) = schemas else { return schemas.clone() };
    let fields = fields.iter().map(|(key, value)| (key.clone(), walk(value, place, unbound)));
    Value::Object(fields.collect())
}

fn list(schemas: &Value, place: Place, unbound: Unbound) -> Value {
    let Value::Array(list) = schemas else { return schemas.clone() };
    list.iter().map(|schema| walk(schema, place, unbound)).collect()
}

/// Disallows further properties in an object that lists its own.
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
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    // Without the required properties that are not listed, no such object would exist.
    let is_listed = properties.is_some_and(|properties| {
        let mut required = required.into_iter().flatten().filter_map(Value::as_str);
        required.all(|key| properties.contains_key(key))
    });
    if is_listed && !OPEN.iter().any(|key| schema.contains_key(*key)) {
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
}

/// Formats that grammars support.
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

/// Keywords whose values are counts.
const COUNTS: [&str; 6] =
    ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"];

/// Keywords that constrain a value, but that no grammar can express.
const UNBOUND: [&str; 13] = [
    "not",
    "if",
    "then",
    "else",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "dependentRequired",
    "dependentSchemas",
];

/// Keywords that constrain a value and contain no schema.
const KEPT: [&str; 17] = [
    "$ref",
    "$id",
    "$anchor",
    "type",
    "enum",
    "const",
    "required",
    "uniqueItems",
    "minContains",
    "maxContains",
    "dependentRequired",
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
    fn annotations_are_dropped() {
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
    fn unconstrained_schemas_are_dropped() {
        for vacuous in [
            json!({"propertyNames": {"type": "string"}}),
            json!({"propertyNames": {}}),
            json!({"uniqueItems": false, "unevaluatedItems": true, "unevaluatedProperties": {}}),
            json!({"contains": {"type": "null"}, "minContains": 0}),
            json!({"minContains": 2, "maxContains": 3, "minLength": 0, "minItems": 0.0}),
            json!({"if": {"type": "null"}, "then": true}),
            json!({"then": {"type": "null"}, "not": false, "dependentRequired": {}}),
            json!({"required": true, "enum": null, "pattern": null, "properties": null}),
        ] {
            check(normalise, vacuous, json!({}));
        }
        check(normalise, json!({"const": null}), json!({"const": null}));
        check(normalise, json!({"maxLength": 3.0}), json!({"maxLength": 3}));
        let kept = json!({"contains": {}, "maxContains": 1, "uniqueItems": true, "minLength": 1.5});
        check(normalise, kept.clone(), kept);
    }

    #[test]
    fn unlisted_required_fields_stay_allowed() {
        let open = json!({"type": "object", "properties": {"a": {}}, "required": ["a", "b"]});
        check(normalise, open.clone(), open);
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
            arguments,
            json!({"not": {}, "if": {}, "then": false, "properties": {"not": {
                "uniqueItems": true, "contains": {}, "minContains": 2, "items": {"not": {}}
            }}, "propertyNames": {"pattern": "a"}, "dependentRequired": {"a": ["b"]}}),
            json!({"properties": {"not": {"items": {}}}, "additionalProperties": false, "type": "object"}),
        );
        check(
            required_only,
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
                "additionalProperties": false}),
        );
    }
}
