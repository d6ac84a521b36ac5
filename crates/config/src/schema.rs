//! Is this text a JSON schema? A check of form, made before a provider refuses the request.
//!
//! Only the keywords that structure a schema are looked at, at every level: whether a value fits the
//! schema is the provider's to enforce and not decided here.

use serde_json::{Map, Value};

/// What is wrong with a schema.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// It is not JSON.
    #[error("not JSON: {0}")]
    Json(String),
    /// It is JSON, but not a schema.
    #[error("not a JSON schema: {place} {problem}")]
    Form {
        /// Where, as a JSON pointer, or `the document`.
        place: String,
        /// What is expected there.
        problem: &'static str,
    },
}

/// How deep a schema may nest.
const DEPTH_MAX: usize = 64;
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Checks the text of a schema for an answer, whose top level must be an object.
pub fn check_schema(text: &str) -> Result<(), SchemaError> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| SchemaError::Json(error.to_string()))?;
    let Value::Object(map) = &value else {
        return Err(form("", "must be an object such as {\"type\": \"object\", …}"));
    };
    check(map, "", 0)
}

fn check(schema: &Map<String, Value>, place: &str, depth: usize) -> Result<(), SchemaError> {
    if depth > DEPTH_MAX {
        return Err(form(place, "nests too deeply"));
    }
    let at = |key: &str| format!("{place}/{key}");
    let sub = |value: &Value, place: &str| match value {
        Value::Object(map) => check(map, place, depth + 1),
        Value::Bool(_) => Ok(()),
        _ => Err(form(place, "must be a schema: an object or a boolean")),
    };
    for (key, value) in schema {
        match key.as_str() {
            "type" => check_type(value, &at(key))?,
            "properties" | "$defs" | "definitions" | "patternProperties" => {
                let Value::Object(members) = value else {
                    return Err(form(&at(key), "must be an object of schemas"));
                };
                for (name, member) in members {
                    sub(member, &format!("{place}/{key}/{name}"))?;
                }
            }
            "items" | "additionalProperties" | "not" | "contains" => sub(value, &at(key))?,
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => {
                let Some(members) = value.as_array().filter(|members| !members.is_empty()) else {
                    return Err(form(&at(key), "must be a list of schemas"));
                };
                for (index, member) in members.iter().enumerate() {
                    sub(member, &format!("{place}/{key}/{index}"))?;
                }
            }
            "required" => {
                let words = value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
                if !words {
                    return Err(form(&at(key), "must be a list of property names"));
                }
            }
            "enum" if !value.is_array() => return Err(form(&at(key), "must be a list")),
            _ => {}
        }
    }
    Ok(())
}

fn check_type(value: &Value, place: &str) -> Result<(), SchemaError> {
    let known = |value: &Value| value.as_str().is_some_and(|word| TYPES.contains(&word));
    let fits = match value {
        Value::Array(list) => !list.is_empty() && list.iter().all(known),
        value => known(value),
    };
    let problem =
        "must be one of array, boolean, integer, null, number, object, string, or a list of them";
    if fits { Ok(()) } else { Err(form(place, problem)) }
}

fn form(place: &str, problem: &'static str) -> SchemaError {
    let place = if place.is_empty() { "the document".to_owned() } else { place.to_owned() };
    SchemaError::Form { place, problem }
}

#[cfg(test)]
mod tests {
    use super::check_schema;

    #[track_caller]
    fn check(text: &str, want: &str) {
        let got = check_schema(text).map_or_else(|error| error.to_string(), |()| String::new());
        assert!(got.starts_with(want) && got.is_empty() == want.is_empty(), "{text}: {got}");
    }

    #[test]
    fn schemas() {
        check(
            r#"{"type":"object","properties":{"a":{"type":["string","null"]}},"required":["a"]}"#,
            "",
        );
        check(r##"{"$defs":{"x":true},"anyOf":[{"$ref":"#/$defs/x"}]}"##, "");
        check("{}", "");
        check("{oops", "not JSON: key must be a string");
        check("[1]", "not a JSON schema: the document must be");
        check("\"object\"", "not a JSON schema: the document must be");
        check(r#"{"type":5}"#, "not a JSON schema: /type must be one of");
        check(r#"{"type":"text"}"#, "not a JSON schema: /type must be one of");
        check(r#"{"properties":{"a":{"items":7}}}"#, "not a JSON schema: /properties/a/items must");
        check(r#"{"properties":[]}"#, "not a JSON schema: /properties must");
        check(r#"{"required":"a"}"#, "not a JSON schema: /required must");
        check(r#"{"anyOf":[]}"#, "not a JSON schema: /anyOf must");
        check(r#"{"enum":1}"#, "not a JSON schema: /enum must");
        let deep = r#"{"not":"#.repeat(70) + "{}" + &"}".repeat(70);
        check(&deep, "not a JSON schema: /not");
    }
}
