//! The tools that a model may call, and the parameter types in their schemas.
//!
//! Dialects with raw text parameters leave it to the schema whether `5` is a number.

use std::sync::Arc;

use serde_json::Value;

/// The tools of a conversation; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    list: Arc<[Tool]>,
}

#[derive(Debug)]
struct Tool {
    name: String,
    schema: Value,
}

/// Why a list of tools cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error(
    "the tools must be a JSON array of objects with a `name` and, as `parameters`, a JSON schema; \
     entry {entry} has no name"
)]
pub struct ToolsError {
    entry: usize,
}

/// What a schema says about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Nothing: JSON if it is valid JSON, otherwise text.
    Any,
    /// Text, whatever it looks like.
    Text,
    /// Text, or the word `null`.
    TextOrNull,
    /// `true` or `false`, or the word `null` if the flag is set.
    Bool,
    Number,
    Object,
    Array,
}

impl Tools {
    /// Parses a list of tools: `{name, parameters}`, `{name, input_schema}` or `{function: {…}}`.
    pub fn from_json(list: &Value) -> Result<Self, ToolsError> {
        let entries = list.as_array().ok_or(ToolsError { entry: 0 })?;
        let tools = entries.iter().enumerate().map(|(entry, value)| {
            let inner = value.get("function").filter(|inner| inner.is_object()).unwrap_or(value);
            let name = inner.get("name").and_then(Value::as_str).ok_or(ToolsError { entry })?;
            let schema = ["parameters", "input_schema", "inputSchema"]
                .iter()
                .find_map(|key| inner.get(key))
                .cloned()
                .unwrap_or(Value::Null);
            Ok(Tool { name: name.to_owned(), schema })
        });
        Ok(Self { list: tools.collect::<Result<_, _>>()? })
    }

    /// Tells whether a tool of this name is known.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.list.iter().any(|tool| tool.name == name)
    }

    /// Tells whether the tools are known, and none of them has this name.
    pub(crate) fn lack(&self, name: &str) -> bool {
        !self.list.is_empty() && !self.knows(name)
    }

    /// Returns the name of the parameter for a positional argument.
    ///
    /// Required parameters come first, in the order of the schema, as in a signature. The others have no
    /// order, so at most one of them has a position.
    pub(crate) fn positional(&self, tool: &str, place: usize) -> Option<&str> {
        let schema = &self.list.iter().find(|known| known.name == tool)?.schema;
        let properties = schema.get("properties")?.as_object()?;
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let required =
            required.filter_map(Value::as_str).filter(|key| properties.contains_key(*key));
        if let Some(key) = required.clone().nth(place) {
            return Some(key);
        }
        let mut others =
            properties.keys().filter(|key| !required.clone().any(|known| known == *key));
        match (others.next(), others.next()) {
            (Some(key), None) if place == required.count() => Some(key),
            _ => None,
        }
    }

    /// Tells whether a raw text parameter of a tool is text, whatever it looks like.
    pub fn takes_text(&self, tool: &str, parameter: &str) -> bool {
        matches!(self.hint(tool, [parameter]), Hint::Text | Hint::TextOrNull)
    }

    /// Tells whether a tool has a parameter of this name, as far as known.
    pub(crate) fn declares(&self, tool: &str, parameter: &str) -> Option<bool> {
        let schema = &self.list.iter().find(|known| known.name == tool)?.schema;
        let mut listed = Listed::default();
        listed.look(schema, schema, parameter, 0);
        match listed {
            Listed { named: true, .. } => Some(true),
            Listed { others: false, any: true, .. } => Some(false),
            _ => None,
        }
    }

    /// Returns what the schema of a tool says about the value at `path`; an empty part of the path stands for
    /// an array item.
    pub(crate) fn hint<'p>(&self, tool: &str, path: impl IntoIterator<Item = &'p str>) -> Hint {
        let Some(tool) = self.list.iter().find(|known| known.name == tool) else {
            return Hint::Any;
        };
        let mut schema = &tool.schema;
        for part in path {
            let Some(next) = step(schema, &tool.schema, part) else { return Hint::Any };
            schema = next;
        }
        let mut seen = Seen::default();
        seen.look(schema, &tool.schema, 0);
        seen.hint()
    }
}

/// Follows references and unions to the schema of a property or an item.
fn step<'a>(schema: &'a Value, root: &'a Value, part: &str) -> Option<&'a Value> {
    find(schema, root, part, 0, &mut 0)
}

fn find<'a>(
    schema: &'a Value,
    root: &'a Value,
    part: &str,
    depth: usize,
    steps: &mut usize,
) -> Option<&'a Value> {
    *steps += 1;
    if depth > REFERENCES_MAX || *steps > STEPS_MAX {
        return None;
    }
    let here = if part.is_empty() {
        schema.get("items").filter(|items| items.is_object())
    } else {
        schema
            .get("properties")
            .and_then(|properties| properties.get(part))
            .or_else(|| schema.get("additionalProperties").filter(|other| other.is_object()))
    };
    here.or_else(|| find(reference(schema, root)?, root, part, depth + 1, steps))
        .or_else(|| branches(schema).find_map(|branch| find(branch, root, part, depth + 1, steps)))
}

fn reference<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
}

fn branches(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten()
}

/// What a schema says about property names.
#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    /// It has the one we look for.
    named: bool,
    /// It has some.
    any: bool,
    /// It allows others, or was not examined completely.
    others: bool,
    steps: usize,
}

impl Listed {
    fn look(&mut self, schema: &Value, root: &Value, name: &str, depth: usize) {
        self.steps += 1;
        if depth > REFERENCES_MAX || self.steps > STEPS_MAX {
            self.others = true;
            return;
        }
        if let Some(properties) = schema.get("properties") {
            self.any = true;
            self.named |= properties.get(name).is_some();
        }
        let more = schema.get("additionalProperties");
        self.others |= more.is_some_and(|more| *more != Value::Bool(false))
            || schema.get("patternProperties").is_some();
        if let Some(target) = reference(schema, root) {
            self.look(target, root, name, depth + 1);
        }
        branches(schema).for_each(|branch| self.look(branch, root, name, depth + 1));
    }
}

/// The types that a schema admits.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    text: bool,
    null: bool,
    boolean: bool,
    number: bool,
    object: bool,
    array: bool,
    steps: usize,
}

impl Seen {
    fn look(&mut self, schema: &Value, root: &Value, depth: usize) {
        self.steps += 1;
        if depth > REFERENCES_MAX || self.steps > STEPS_MAX {
            return;
        }
        match schema.get("type") {
            Some(Value::String(name)) => self.name(name),
            Some(Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).for_each(|name| self.name(name));
            }
            _ => {
                let fixed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
                fixed.chain(schema.get("const")).for_each(|value| self.value(value));
                if schema.get("properties").is_some() {
                    self.object = true;
                }
                if schema.get("items").is_some() {
                    self.array = true;
                }
            }
        }
        if let Some(target) = reference(schema, root) {
            self.look(target, root, depth + 1);
        }
        branches(schema).for_each(|branch| self.look(branch, root, depth + 1));
    }

    fn name(&mut self, name: &str) {
        match name {
            "string" => self.text = true,
            "null" => self.null = true,
            "boolean" => self.boolean = true,
            "number" | "integer" => self.number = true,
            "object" => self.object = true,
            "array" => self.array = true,
            _ => {}
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::String(_) => self.text = true,
            Value::Null => self.null = true,
            Value::Bool(_) => self.boolean = true,
            Value::Number(_) => self.number = true,
            Value::Object(_) => self.object = true,
            Value::Array(_) => self.array = true,
        }
    }

    fn hint(self) -> Hint {
        match self {
            Self { text: true, null: true, .. } => Hint::TextOrNull,
            Self { text: true, .. } => Hint::Text,
            Self { boolean: true, number: false, object: false, array: false, .. } => Hint::Bool,
            Self { number: true, boolean: false, object: false, array: false, .. } => Hint::Number,
            Self { object: true, number: false, boolean: false, array: false, .. } => Hint::Object,
            Self { array: true, number: false, boolean: false, object: false, .. } => Hint::Array,
            _ => Hint::Any,
        }
    }
}

/// How many references and unions are followed before a schema counts as unconstrained.
const REFERENCES_MAX: usize = 16;

/// How many schemas are visited for one value: branches can refer to what contains them.
const STEPS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Hint, Tools};

    #[track_caller]
    fn check(schema: Value, want: Hint) {
        let tools = Tools::from_json(&json!([{"name": "f", "parameters": schema}])).unwrap();
        assert_eq!(tools.hint("f", ["a"]), want);
        assert_eq!(tools.takes_text("f", "a"), matches!(want, Hint::Text | Hint::TextOrNull));
    }

    #[test]
    fn what_a_tool_declares() {
        for (schema, want) in [
            (json!({"properties": {"a": {}}}), Some(true)),
            (json!({"properties": {"b": {}}}), Some(false)),
            (json!({"properties": {}}), Some(false)),
            (json!({"properties": {"b": {}}, "additionalProperties": false}), Some(false)),
            (json!({"properties": {"b": {}}, "additionalProperties": true}), None),
            (json!({"additionalProperties": {"type": "string"}}), None),
            (json!({"anyOf": [{"properties": {"b": {}}}, {"properties": {"a": {}}}]}), Some(true)),
            (json!({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {}}}}}), Some(true)),
            (json!({"$ref": "#"}), None),
            (json!({}), None),
            (Value::Null, None),
        ] {
            let tools = Tools::from_json(&json!([{"name": "f", "parameters": schema}])).unwrap();
            assert_eq!(tools.declares("f", "a"), want, "{schema}");
            assert_eq!(tools.declares("g", "a"), None, "{schema}");
        }
    }

    #[test]
    fn what_a_schema_says() {
        check(json!({"properties": {"a": {"type": "string"}}}), Hint::Text);
        check(json!({"properties": {"a": {"enum": ["x", 1, null]}}}), Hint::TextOrNull);
        check(json!({"properties": {"a": {"const": 1}}}), Hint::Number);
        check(json!({"properties": {}}), Hint::Any);
        // Self-references terminate.
        let again = vec![json!({"$ref": "#"}); 30];
        check(json!({ "anyOf": again }), Hint::Any);
        let again = vec![json!({"$ref": "#/properties/a"}); 30];
        check(json!({"properties": {"a": {"anyOf": again, "type": "string"}}}), Hint::Text);
    }
}
