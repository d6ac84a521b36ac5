//! Detects schemas that no finite value satisfies, because each value contains another one of the same
//! schema.
//!
//! Such a schema can become a grammar, but a model constrained by it never stops. Constraints that only arise
//! from several schemas of an `allOf` together are not considered.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::check::{name_of, unescaped};

/// Finds a schema without finite values, the outermost if there are several.
pub(super) fn find(root: &Value) -> Option<&Value> {
    let mut names = HashMap::new();
    gather_names(root, &mut names);
    let schemas = Schemas { root, names };
    let mut pending = schemas.reachable();
    let mut ending: HashSet<*const Value> = HashSet::new();
    // From the innermost outwards, since schemas without nested ones are finite; repeated only if one refers
    // back.
    loop {
        let before = pending.len();
        let mut left = Vec::new();
        for schema in pending.into_iter().rev() {
            if schemas.ends(schema, &ending) {
                ending.insert(schema);
            } else {
                left.push(schema);
            }
        }
        left.reverse();
        pending = left;
        if pending.len() == before || pending.is_empty() {
            return pending.first().copied();
        }
    }
}

/// Collects the names that schemas give themselves. Recursion is safe, since the depth is limited.
fn gather_names<'a>(value: &'a Value, names: &mut HashMap<&'a str, &'a Value>) {
    match value {
        Value::Array(list) => list.iter().for_each(|inner| gather_names(inner, names)),
        Value::Object(fields) => {
            if let Some(name) = fields.get("$anchor").and_then(Value::as_str) {
                names.insert(name, value);
            }
            fields.values().for_each(|inner| gather_names(inner, names));
        }
        _ => {}
    }
}

struct Schemas<'a> {
    root: &'a Value,
    names: HashMap<&'a str, &'a Value>,
}

impl<'a> Schemas<'a> {
    /// Lists all schemas that apply to values or parts of them, each once, the outer ones first.
    fn reachable(&self) -> Vec<&'a Value> {
        let mut found = Vec::new();
        let mut seen: HashSet<*const Value> = HashSet::new();
        let mut pending = vec![self.root];
        while let Some(schema) = pending.pop() {
            let Some(fields) = schema.as_object() else { continue };
            if !seen.insert(schema) {
                continue;
            }
            found.push(schema);
            pending.extend(self.target(fields));
            for key in ["items", "additionalItems", "additionalProperties"] {
                pending.extend(fields.get(key).filter(|inner| inner.is_object()));
            }
            for key in ["allOf", "anyOf", "oneOf", "prefixItems", "items"] {
                pending.extend(fields.get(key).and_then(Value::as_array).into_iter().flatten());
            }
            for key in ["properties", "patternProperties"] {
                pending.extend(
                    fields.get(key).and_then(Value::as_object).into_iter().flat_map(Map::values),
                );
            }
        }
        found
    }

    fn target(&self, fields: &Map<String, Value>) -> Option<&'a Value> {
        let name = name_of(fields.get("$ref")?.as_str()?);
        self.root.pointer(&unescaped(name)).or_else(|| self.names.get(name).copied())
    }

    /// Tells whether a finite value can satisfy a schema, given which nested schemas are known to be finite.
    fn ends(&self, schema: &Value, ending: &HashSet<*const Value>) -> bool {
        let Some(fields) = schema.as_object() else { return true };
        // The grammar compiler detects schemas that allow nothing at all.
        let is_ending =
            |inner: &Value| !inner.is_object() || ending.contains(&std::ptr::from_ref(inner));
        let list =
            |key: &str| fields.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if !self.target(fields).is_none_or(is_ending) || !list("allOf").iter().all(is_ending) {
            return false;
        }
        let is_open = |key: &str| list(key).is_empty() || list(key).iter().any(is_ending);
        if !is_open("anyOf") || !is_open("oneOf") {
            return false;
        }
        if fields.contains_key("const") || fields.contains_key("enum") {
            return true;
        }
        let count =
            |key: &str| fields.get(key).and_then(Value::as_f64).unwrap_or_default() as usize;
        let may_end = |kind: &str| match kind {
            "array" => {
                let (first, rest) = match fields.get("items") {
                    Some(Value::Array(first)) => (&first[..], fields.get("additionalItems")),
                    rest => (list("prefixItems"), rest),
                };
                let least = count("minItems");
                first.iter().take(least).all(is_ending)
                    && (least <= first.len() || rest.is_none_or(is_ending))
            }
            "object" => {
                let properties = fields.get("properties").and_then(Value::as_object);
                let others = fields.get("additionalProperties");
                let property = |name: &str| properties.and_then(|own| own.get(name)).or(others);
                let mut required = list("required").iter().filter_map(Value::as_str);
                let needs_others = count("minProperties") > properties.map_or(0, Map::len)
                    && !fields.contains_key("patternProperties");
                required.all(|name| property(name).is_none_or(is_ending))
                    && (!needs_others || others.is_none_or(is_ending))
            }
            _ => true,
        };
        match fields.get("type") {
            Some(Value::String(kind)) => may_end(kind),
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).any(may_end),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::cycle::path_of;
    use super::find;

    #[track_caller]
    fn check(schema: Value, endless_at: Option<&str>) {
        let found = find(&schema).map(|at| path_of(at, &schema).unwrap());
        assert_eq!(found.as_deref(), endless_at, "{schema}");
    }

    #[test]
    fn values_without_an_end() {
        let again = || json!({"$ref": "#"});
        let object =
            |more: Value| json!({"type": "object", "properties": {"t": again()}, "required": more});
        check(object(json!(["t"])), Some(""));
        check(object(json!([])), None);
        check(object(json!(["u"])), None);
        check(
            json!({"type": ["object", "null"], "properties": {"t": again()}, "required": ["t"]}),
            None,
        );
        check(json!({"properties": {"t": again()}, "required": ["t"]}), None);
        let required =
            json!({"type": "object", "required": ["t"], "additionalProperties": again()});
        check(required, Some(""));
        let least = |count| json!({"type": "object", "minProperties": count, "additionalProperties": again()});
        check(least(1), Some(""));
        check(least(0), None);
        let items = |least| json!({"type": "array", "items": again(), "minItems": least});
        check(items(json!(1)), Some(""));
        check(items(json!(1.0)), Some(""));
        check(items(json!(0)), None);
        let first = |least| json!({"type": "array", "prefixItems": [{"type": "null"}, again()], "minItems": least});
        check(first(1), None);
        check(first(2), Some(""));
        check(json!({"type": "array", "items": [{}, again()], "minItems": 2}), Some(""));
        // One finite alternative is enough.
        check(json!({"anyOf": [object(json!(["t"])), {"type": "null"}]}), None);
        check(json!({"anyOf": [object(json!(["t"])), items(json!(1))]}), Some(""));
        check(json!({"allOf": [object(json!(["t"])), {"type": "object"}]}), Some(""));
        check(json!({"enum": [1], "anyOf": [{"type": "integer"}, object(json!(["t"]))]}), None);
        // An unused one is harmless; one that may be used is not.
        let node = json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]});
        check(json!({"type": "string", "$defs": {"n": node}}), None);
        check(
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}}),
            Some(".properties.a"),
        );
        // A tree, a list, a value: common schemas.
        check(
            json!({"type": "object", "required": ["value", "children"], "properties": {
            "value": {"type": "string"}, "children": {"type": "array", "items": again()}}}),
            None,
        );
        check(
            json!({"type": "object", "required": ["next"], "properties": {
            "next": {"anyOf": [again(), {"type": "null"}]}}}),
            None,
        );
        check(
            json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/b"}, "minItems": 1},
            "b": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}}),
            Some(""),
        );
        // Through a name that it gives itself.
        check(
            json!({"$anchor": "a", "type": "array", "minItems": 1, "items": {"$ref": "#a"}}),
            Some(""),
        );
        check(json!(true), None);
    }
}
