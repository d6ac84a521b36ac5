//! Estimates the cost of checking an answer against a schema, before it is checked.
//!
//! Where alternatives of a schema apply to the same part of an answer, each of them is tried, and where they also refer
//! to themselves, the tries multiply with every level of the answer. So cheap keywords are put first, which ends most
//! tries at once, and the remaining steps are counted here: an answer that needs too many is refused unchecked.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Map, Value};

use crate::schema::{SAME_PART, children};

/// Most steps of a check, in addition to [`STEPS_OF_A_VALUE`] for each value of the answer.
const STEPS_MAX: u64 = 1_000_000;
/// Additional steps that are allowed for each value of the answer.
const STEPS_OF_A_VALUE: u64 = 32;
/// Most schema nodes that references may be compiled to. A reference is compiled once for each path to it.
const COMPILED_MAX: u64 = 50_000;

/// Deepest nesting of schemas while an answer is checked, as each level takes a call on the stack.
const WITHIN_MAX: usize = 1_000;

/// Puts keywords that are cheap to check before those with nested schemas, in every schema of a document.
pub(crate) fn cheap_first(schema: &Value) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    let mut sorted: Vec<_> = map.iter().collect();
    sorted.sort_by_key(|(keyword, _)| match keyword.as_str() {
        "type" | "const" | "enum" | "required" => 0,
        "properties" => 1,
        _ => 2,
    });
    let members = sorted.into_iter().map(|(keyword, value)| {
        let value = match (keyword.as_str(), value) {
            (name, Value::Object(members)) if NAMED.contains(&name) => {
                let mut members: Vec<_> = members.iter().collect();
                // Properties that tell alternatives apart come before the others.
                members.sort_by_key(|(_, member)| !is_told(member));
                let members = members.into_iter();
                Value::Object(members.map(|(name, it)| (name.clone(), cheap_first(it))).collect())
            }
            (name, Value::Array(list)) if LISTS.contains(&name) => {
                list.iter().map(cheap_first).collect()
            }
            (_, value) if !children(keyword, value, "").is_empty() => cheap_first(value),
            (_, value) => value.clone(),
        };
        (keyword.clone(), value)
    });
    Value::Object(members.collect())
}

/// Keywords whose value has schemas by name.
const NAMED: [&str; 5] =
    ["properties", "$defs", "definitions", "patternProperties", "dependentSchemas"];
/// Keywords whose value may be a list of schemas.
const LISTS: [&str; 5] = ["anyOf", "oneOf", "allOf", "prefixItems", "items"];

/// Keywords that apply to the members and items that no other keyword applies to.
const UNEVALUATED: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];

fn is_told(schema: &Value) -> bool {
    schema.get("const").is_some() || schema.get("enum").is_some()
}

/// Returns an upper bound of the steps of a check; none if there are too many.
pub(crate) fn steps(root: &Value, answer: &Value) -> Option<u64> {
    let steps_max = STEPS_MAX.saturating_add(values(answer).saturating_mul(STEPS_OF_A_VALUE));
    let mut walk = Walk { root, steps: 0, steps_max, ways: HashSet::new(), compiled: 0, depth: 0 };
    walk.visit(root, answer, 0).map(|()| walk.steps)
}

/// Counts the values of an answer. It may recurse, as the parser bounds the nesting.
fn values(answer: &Value) -> u64 {
    match answer {
        Value::Array(items) => 1 + items.iter().map(values).sum::<u64>(),
        Value::Object(members) => 1 + members.values().map(values).sum::<u64>(),
        _ => 1,
    }
}

struct Walk<'a> {
    root: &'a Value,
    steps: u64,
    steps_max: u64,
    /// Hashes of the paths to references: the validator compiles the target once for each path.
    ways: HashSet<u64>,
    compiled: u64,
    /// Number of nested visits.
    depth: usize,
}

impl Walk<'_> {
    /// Visits the schemas that a check would visit, and tries every alternative that is not ruled out at once.
    fn visit(&mut self, schema: &Value, answer: &Value, way: u64) -> Option<()> {
        self.steps += 1;
        if self.steps > self.steps_max || self.depth > WITHIN_MAX {
            return None;
        }
        self.depth += 1;
        let done = self.follow(schema, answer, way);
        self.depth -= 1;
        done
    }

    fn follow(&mut self, schema: &Value, answer: &Value, way: u64) -> Option<()> {
        let Value::Object(map) = schema else { return Some(()) };
        // To find unevaluated members, the validator tries all schemas a second time.
        let tries =
            if UNEVALUATED.iter().any(|keyword| map.contains_key(*keyword)) { 2 } else { 1 };
        // The validator may follow a reference before it checks the keywords beside it.
        if let Some(pointer) = map.get("$ref").and_then(Value::as_str)
            && let Some(target) = self.root.pointer(pointer.trim_start_matches('#'))
        {
            let way = next(way, "$ref", 0);
            if self.ways.insert(way) {
                self.compiled = self.compiled.saturating_add(values(target));
            }
            if self.compiled > COMPILED_MAX {
                return None;
            }
            for _ in 0..tries {
                self.visit(target, answer, way)?;
            }
        }
        if is_ruled_out(map, answer) {
            return Some(());
        }
        for (keyword, value) in map {
            if SAME_PART.contains(&keyword.as_str()) {
                for (number, (child, _)) in children(keyword, value, "").into_iter().enumerate() {
                    for _ in 0..tries {
                        self.visit(child, answer, next(way, keyword, number))?;
                    }
                }
                continue;
            }
            match answer {
                Value::Object(members) => self.members(keyword, value, members, way)?,
                Value::Array(items) => self.items(keyword, value, items, way)?,
                _ => {}
            }
        }
        Some(())
    }

    fn members(
        &mut self,
        keyword: &str,
        value: &Value,
        members: &Map<String, Value>,
        way: u64,
    ) -> Option<()> {
        match (keyword, value) {
            ("properties", Value::Object(schemas)) => {
                for (number, (name, schema)) in schemas.iter().enumerate() {
                    if let Some(member) = members.get(name) {
                        self.visit(schema, member, next(way, keyword, number))?;
                    }
                }
            }
            ("patternProperties", Value::Object(schemas)) => {
                for (number, schema) in schemas.values().enumerate() {
                    for member in members.values() {
                        self.visit(schema, member, next(way, keyword, number))?;
                    }
                }
            }
            ("additionalProperties" | "unevaluatedProperties", schema) => {
                for member in members.values() {
                    self.visit(schema, member, next(way, keyword, 0))?;
                }
            }
            _ => {}
        }
        Some(())
    }

    fn items(&mut self, keyword: &str, value: &Value, items: &[Value], way: u64) -> Option<()> {
        match (keyword, value) {
            ("prefixItems" | "items", Value::Array(schemas)) => {
                for (number, (schema, item)) in schemas.iter().zip(items).enumerate() {
                    self.visit(schema, item, next(way, keyword, number))?;
                }
            }
            ("items" | "additionalItems" | "unevaluatedItems" | "contains", schema) => {
                for item in items {
                    self.visit(schema, item, next(way, keyword, 0))?;
                }
            }
            _ => {}
        }
        Some(())
    }
}

fn next(way: u64, keyword: &str, number: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    (way, keyword, number).hash(&mut hasher);
    hasher.finish()
}

/// Returns whether the keywords that are checked first refuse an answer.
fn is_ruled_out(schema: &Map<String, Value>, answer: &Value) -> bool {
    let wrong_type = schema.get("type").and_then(Value::as_str).is_some_and(|kind| match kind {
        "object" => !answer.is_object(),
        "array" => !answer.is_array(),
        "string" => !answer.is_string(),
        "boolean" => !answer.is_boolean(),
        "null" => !answer.is_null(),
        _ => !answer.is_number(),
    });
    let lacks = || {
        let (Some(required), Value::Object(members)) = (schema.get("required"), answer) else {
            return false;
        };
        let mut names = required.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.any(|name| !members.contains_key(name))
    };
    let told_otherwise = || {
        let (Some(Value::Object(properties)), Value::Object(members)) =
            (schema.get("properties"), answer)
        else {
            return false;
        };
        properties.iter().filter(|(_, schema)| is_told(schema)).any(|(name, schema)| {
            members.get(name).is_some_and(|member| is_another(schema, member))
        })
    };
    wrong_type || is_another_map(schema, answer) || lacks() || told_otherwise()
}

fn is_another(schema: &Value, answer: &Value) -> bool {
    schema.as_object().is_some_and(|schema| is_another_map(schema, answer))
}

/// Compares strings only, which usually tell alternatives apart; the validator decides about the equality of other
/// values.
fn is_another_map(schema: &Map<String, Value>, answer: &Value) -> bool {
    let Some(text) = answer.as_str() else { return false };
    let constant = schema.get("const").and_then(Value::as_str).is_some_and(|it| it != text);
    let options = schema.get("enum").and_then(Value::as_array);
    constant || options.is_some_and(|options| options.iter().all(|it| it.as_str() != Some(text)))
}

#[cfg(test)]
mod tests {
    use super::cheap_first;
    use crate::schema::{Schema, Violations};

    /// Returns objects nested to this depth.
    fn nested(depth: usize) -> String {
        r#"{"c":"#.repeat(depth) + "{}" + &"}".repeat(depth)
    }

    fn check(schema: &str, answer: &str) -> Result<(), Violations> {
        Schema::parse(schema).unwrap().check(Some(answer))
    }

    /// Alternatives that a constant tells apart cost nothing, however deep the answer is.
    #[test]
    fn alternatives_that_are_ruled_out_are_not_followed() {
        let branch = |more: &str| {
            format!(r##"{{"properties":{{"c":{{"$ref":"#"}}}},"required":["c"{more}]}}"##)
        };
        let schema = format!(
            r#"{{"type":"object","anyOf":[{},{},{}]}}"#,
            branch(r#","x""#),
            branch(r#","y""#),
            branch("")
        );
        assert!(check(&schema, &nested(60)).is_err());
        let expression = r##"{"oneOf":[
            {"properties":{"left":{"$ref":"#"},"right":{"$ref":"#"},"kind":{"const":"add"}},"required":["kind","left","right"]},
            {"properties":{"left":{"$ref":"#"},"right":{"$ref":"#"},"kind":{"const":"mul"}},"required":["kind","left","right"]},
            {"properties":{"value":{"type":"number"},"kind":{"const":"number"}},"required":["kind","value"]}]}"##;
        let mut text = r#"{"kind":"number","value":1}"#.to_owned();
        for depth in 0..7 {
            let kind = if depth % 2 == 0 { "add" } else { "mul" };
            text = format!(r#"{{"kind":"{kind}","left":{text},"right":{text}}}"#);
        }
        assert_eq!(check(expression, &text), Ok(()));
    }

    /// Alternatives that differ only deep in the answer are refused in time.
    #[test]
    fn tries_that_multiply_are_refused() {
        let schema = r##"{"type":"object","anyOf":[
            {"properties":{"c":{"$ref":"#"},"x":{"minLength":3}}},
            {"properties":{"c":{"$ref":"#"},"y":{"minLength":3}}},
            {"properties":{"c":{"$ref":"#"}},"minProperties":9}]}"##;
        assert_eq!(check(schema, &nested(4)), Ok(()));
        let refused = check(schema, &nested(60)).unwrap_err();
        assert!(refused.to_string().contains("too many ways"), "{refused}");
    }

    #[test]
    fn references_and_leftovers_are_counted() {
        let refused = |schema: &str| {
            let refused = check(schema, &nested(60)).unwrap_err();
            assert!(refused.to_string().contains("too many ways"), "{refused}");
        };
        // A keyword beside the reference rules it out, but the reference is followed first.
        let branch = r##"{"$ref":"#/$defs/node","required":["x"]}"##;
        refused(&format!(
            r##"{{"$defs":{{"node":{{"properties":{{"c":{{"anyOf":[{branch},{branch},{{"$ref":"#/$defs/node"}}]}}}}}}}},"$ref":"#/$defs/node"}}"##
        ));
        refused(r##"{"anyOf":[{"properties":{"c":{"$ref":"#"}}}],"unevaluatedProperties":false}"##);
    }

    /// A long chain of schemas for each level of a deep answer takes too much of the stack.
    #[test]
    fn long_chains_in_deep_answers_are_refused() {
        let chain: Vec<_> = (0..60)
            .map(|n| format!(r##""d{n}":{{"allOf":[{{"$ref":"#/$defs/d{}"}}]}}"##, n + 1))
            .collect();
        let schema = format!(
            r##"{{"$defs":{{{},"d60":{{"properties":{{"c":{{"$ref":"#/$defs/d0"}}}}}}}},"$ref":"#/$defs/d0"}}"##,
            chain.join(",")
        );
        assert_eq!(check(&schema, &nested(3)), Ok(()));
        assert!(check(&schema, &nested(100)).is_err());
    }

    /// If there are very many differences, only the first is reported.
    #[test]
    fn long_lists_of_differences() {
        let schema = r#"{"type":"array","items":{"type":"string"}}"#;
        let list = |count: usize| format!("[{}1]", "1,".repeat(count - 1));
        let few = check(schema, &list(20)).unwrap_err();
        assert!(few.list.len() == crate::VIOLATIONS_MAX && few.more);
        let many = check(schema, &list(300_000)).unwrap_err();
        assert!(many.list.len() == 1 && many.more, "{many}");
        let right = format!("[{}\"\"]", "\"\",".repeat(300_000));
        assert_eq!(check(schema, &right), Ok(()));
    }

    #[test]
    fn cheap_keywords_come_first() {
        let check = |schema: &str, want: &str| {
            let schema = serde_json::from_str(schema).unwrap();
            assert_eq!(cheap_first(&schema).to_string(), want);
        };
        check(
            r#"{"not":{},"properties":{"a":{},"k":{"const":1}},"type":"object"}"#,
            r#"{"type":"object","properties":{"k":{"const":1},"a":{}},"not":{}}"#,
        );
        // Names of properties are no keywords.
        check(
            r#"{"properties":{"not":{"x":1},"type":{"pattern":"a","type":"string"}}}"#,
            r#"{"properties":{"not":{"x":1},"type":{"type":"string","pattern":"a"}}}"#,
        );
        check(
            r#"{"default":{"b":1,"type":2},"anyOf":[{"not":true,"const":{"z":1,"a":2}}]}"#,
            r#"{"default":{"b":1,"type":2},"anyOf":[{"const":{"z":1,"a":2},"not":true}]}"#,
        );
    }
}
