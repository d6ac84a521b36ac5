//! Schemas for answers: validates a schema, and validates an answer against it.
//!
//! A schema is checked before anything is sent: its form at every level, that its references are local, and
//! that validating an answer against it terminates. Nothing is fetched from anywhere.

use std::collections::{HashMap, HashSet};
use std::fmt;

use jsonschema::Validator;
use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind};
use serde_json::{Map, Value};

use crate::{schema_effort, schema_exact, strict_json};

/// Why a schema cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    #[error("longer than {SCHEMA_BYTES_MAX} bytes: make it shorter")]
    TooLong,
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
    /// A keyword has an invalid value.
    #[error("not a JSON schema: {place}: {problem}")]
    Keyword {
        /// Where, as a JSON pointer, or `the document`.
        place: String,
        /// What is wrong there.
        problem: String,
    },
}

/// A schema to validate answers against.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    /// The schema as the validator has it.
    document: Value,
}

/// One difference between an answer and its schema, in texts of bounded length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where in the answer, as a JSON pointer; empty for the whole answer.
    pub path: String,
    /// What the schema requires there.
    pub expected: String,
    /// What the answer has there.
    pub got: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the whole answer" } else { &self.path };
        write!(f, "at {path}: expected {}, got {}", self.expected, self.got)
    }
}

/// The differences between an answer and its schema; of very many, only the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations {
    /// Never empty.
    pub list: Vec<Violation>,
    /// Whether there are more.
    pub more: bool,
}

impl From<Violation> for Violations {
    fn from(one: Violation) -> Self {
        Self { list: vec![one], more: false }
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, one) in self.list.iter().enumerate() {
            let between = if index > 0 { "; " } else { "" };
            write!(f, "{between}{one}")?;
        }
        f.write_str(if self.more { "; and more" } else { "" })
    }
}

impl Schema {
    /// Parses a schema, whose top level must be an object.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        if text.len() > SCHEMA_BYTES_MAX {
            return Err(SchemaError::TooLong);
        }
        let value: Value =
            serde_json::from_str(text).map_err(|error| SchemaError::Json(error.to_string()))?;
        let Value::Object(map) = &value else {
            return Err(form("", "must be an object such as {\"type\": \"object\", …}"));
        };
        check(map, "", 0)?;
        let mut cost = Cost { root: &value, known: HashMap::new(), ending: HashSet::new() };
        cost.visit(&value, "", 0)?;
        let document = schema_effort::cheap_first(&value);
        let options = schema_exact::exact(jsonschema::options());
        let validator = options.build(&document).map_err(|error| {
            let place = place(&error.instance_path.to_string());
            SchemaError::Keyword { place, problem: shorten(&error.to_string()) }
        })?;
        Ok(Self { validator, document })
    }

    /// Validates an answer; the first [`VIOLATIONS_MAX`] differences are reported.
    pub fn check(&self, answer: Option<&str>) -> Result<(), Violations> {
        let whole = |got: String| Violation {
            path: String::new(),
            expected: "one JSON value that follows the schema, and nothing around it".to_owned(),
            got,
        };
        let text = answer.unwrap_or_default();
        if text.trim().is_empty() {
            return Err(whole("no answer".to_owned()).into());
        }
        let value = strict_json::parse(text)
            .map_err(|error| whole(format!("{} ({error})", shorten(&format!("{text:?}")))))?;
        let Some(steps) = schema_effort::steps(&self.document, &value) else {
            return Err(Violation {
                path: String::new(),
                expected: "an answer that the schema allows to be checked".to_owned(),
                got: "one with too many ways to match its alternatives: nest it less".to_owned(),
            }
            .into());
        };
        if self.validator.is_valid(&value) {
            return Ok(());
        }
        let violation = |error: ValidationError<'_>| Violation {
            path: shorten(&error.instance_path.to_string()),
            expected: shorten(&expected(&error)),
            got: shorten(&got(&error)),
        };
        if steps > LISTED_STEPS_MAX {
            // The validator collects all before it gives out the first.
            let first = self.validator.validate(&value).err().map(violation);
            return first.map_or(Ok(()), |first| Err(Violations { list: vec![first], more: true }));
        }
        let mut errors = self.validator.iter_errors(&value).map(violation);
        let list: Vec<_> = errors.by_ref().take(VIOLATIONS_MAX).collect();
        let more = errors.next().is_some();
        if list.is_empty() { Ok(()) } else { Err(Violations { list, more }) }
    }
}

/// Describes what a schema requires.
fn expected(error: &ValidationError<'_>) -> String {
    use ValidationErrorKind as Kind;
    match &error.kind {
        Kind::Type { kind: TypeKind::Single(one) } => one.to_string(),
        Kind::Type { kind: TypeKind::Multiple(several) } => {
            let names: Vec<_> = (*several).into_iter().map(|one| one.to_string()).collect();
            names.join(" or ")
        }
        Kind::Required { property } => format!("the property {property}"),
        Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => {
            "no other properties than those of the schema".to_owned()
        }
        Kind::Enum { options } => format!("one of {options}"),
        Kind::Constant { expected_value } => expected_value.to_string(),
        Kind::Pattern { pattern } => format!("text that matches {pattern}"),
        Kind::BacktrackLimitExceeded { .. } => {
            "text that can be matched with the pattern in reasonable time".to_owned()
        }
        Kind::Minimum { limit } => format!("at least {limit}"),
        Kind::Maximum { limit } => format!("at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("at least {limit} characters"),
        Kind::MaxLength { limit } => format!("at most {limit} characters"),
        Kind::MinItems { limit } => format!("at least {limit} items"),
        Kind::MaxItems { limit } => format!("at most {limit} items"),
        Kind::AdditionalItems { limit } => format!("at most {limit} items"),
        Kind::MinProperties { limit } => format!("at least {limit} properties"),
        Kind::MaxProperties { limit } => format!("at most {limit} properties"),
        Kind::UniqueItems => "items that all differ".to_owned(),
        Kind::AnyOf | Kind::OneOfNotValid => "what one of the given schemas describes".to_owned(),
        Kind::OneOfMultipleValid => "what only one of the given schemas describes".to_owned(),
        Kind::Format { format } => format!("the format {format}"),
        // One of `schema_exact`, which says what is expected.
        Kind::Custom { message } => message.clone(),
        Kind::FalseSchema => "nothing".to_owned(),
        _ => format!("otherwise, since {}", error.masked_with("this")),
    }
}

fn got(error: &ValidationError<'_>) -> String {
    use ValidationErrorKind as Kind;
    match &error.kind {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            format!("{unexpected:?} as well")
        }
        _ => error.instance.to_string(),
    }
}

/// Truncates a text for a report.
fn shorten(text: &str) -> String {
    if text.len() <= REPORT_BYTES_MAX {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(REPORT_BYTES_MAX);
    format!("{}… ({} bytes)", &text[..end], text.len())
}

/// Estimates the cost of validating an answer: a schema that refers to itself without descending into the
/// answer would never terminate, and one that refers to others twice at every step would take exponential
/// time.
struct Cost<'a> {
    root: &'a Value,
    /// By JSON pointer; `None` while the cost is being computed.
    known: HashMap<String, Option<u64>>,
    /// Schemas known not to lead back to themselves.
    ending: HashSet<String>,
}

impl<'a> Cost<'a> {
    /// Computes the cost of a schema and everything it refers to.
    fn visit(&mut self, schema: &'a Value, place: &str, depth: usize) -> Result<u64, SchemaError> {
        let Value::Object(map) = schema else { return Ok(1) };
        match self.known.get(place) {
            Some(Some(cost)) => return Ok(*cost),
            // A cycle, but one that descends into the answer.
            Some(None) => return Ok(1),
            None => {}
        }
        if depth > VISIT_DEPTH_MAX {
            return Err(form(place, "leads through too many schemas"));
        }
        self.known.insert(place.to_owned(), None);
        self.ends(schema, place, &mut Vec::new())?;
        let mut cost = 1u64;
        for (keyword, value) in map {
            for (child, at) in children(keyword, value, &format!("{place}/{}", escaped(keyword))) {
                cost = cost.saturating_add(self.visit(child, &at, depth + 1)?);
            }
        }
        if let Some((target, at)) = self.target(map, place)? {
            cost = cost.saturating_add(self.visit(target, &at, depth + 1)?);
        }
        if cost > COST_MAX {
            return Err(form(place, "leads through too many schemas"));
        }
        self.known.insert(place.to_owned(), Some(cost));
        Ok(cost)
    }

    /// Follows all schemas that apply to the same part of an answer; a cycle among them never terminates.
    fn ends(
        &mut self,
        schema: &'a Value,
        place: &str,
        path: &mut Vec<String>,
    ) -> Result<(), SchemaError> {
        let Value::Object(map) = schema else { return Ok(()) };
        if self.ending.contains(place) {
            return Ok(());
        }
        if path.iter().any(|before| before == place) || path.len() > VISIT_DEPTH_MAX {
            return Err(form(place, "refers to itself without end"));
        }
        path.push(place.to_owned());
        if let Some((target, at)) = self.target(map, place)? {
            self.ends(target, &at, path)?;
        }
        for (keyword, value) in
            map.iter().filter(|(keyword, _)| SAME_PART.contains(&keyword.as_str()))
        {
            for (child, at) in children(keyword, value, &format!("{place}/{}", escaped(keyword))) {
                self.ends(child, &at, path)?;
            }
        }
        self.ending.extend(path.pop());
        Ok(())
    }

    fn target(
        &self,
        map: &'a Map<String, Value>,
        place: &str,
    ) -> Result<Option<(&'a Value, String)>, SchemaError> {
        let Some(reference) = map.get("$ref") else { return Ok(None) };
        let pointer = reference.as_str().and_then(|reference| reference.strip_prefix('#'));
        let pointer = pointer.filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let at = format!("{place}/$ref");
        let Some(pointer) = pointer else {
            return Err(form(&at, "must lead to a place in the same document: # or #/…"));
        };
        match self.root.pointer(pointer) {
            Some(target) => Ok(Some((target, pointer.to_owned()))),
            None => Err(form(&at, "leads to a place that is not there")),
        }
    }
}

/// Returns the schemas nested in a keyword.
pub(crate) fn children<'a>(keyword: &str, value: &'a Value, at: &str) -> Vec<(&'a Value, String)> {
    match (keyword, value) {
        (
            "properties" | "$defs" | "definitions" | "patternProperties" | "dependentSchemas",
            Value::Object(members),
        ) => members
            .iter()
            .map(|(name, member)| (member, format!("{at}/{}", escaped(name))))
            .collect(),
        ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Value::Array(members)) => members
            .iter()
            .enumerate()
            .map(|(index, member)| (member, format!("{at}/{index}")))
            .collect(),
        (keyword, value) if ONE_SCHEMA.contains(&keyword) => vec![(value, at.to_owned())],
        _ => Vec::new(),
    }
}

/// Escapes a name as a segment of a JSON pointer.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Keywords whose value is one schema.
const ONE_SCHEMA: [&str; 12] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "contains",
    "contentSchema",
    "not",
    "if",
    "then",
    "else",
];
/// Keywords whose schemas apply to the same part of an answer as the schema that contains them.
pub(crate) const SAME_PART: [&str; 8] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"];
/// Keywords that change what references resolve to.
const SCOPES: [&str; 6] =
    ["$id", "id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"];
/// Longest schema, in bytes.
pub const SCHEMA_BYTES_MAX: usize = 1 << 20;
/// Most differences reported for an answer.
pub const VIOLATIONS_MAX: usize = 8;
/// Most steps of a check whose differences are listed; of a longer one the first is reported.
const LISTED_STEPS_MAX: u64 = 100_000;
/// Longest text in a report, in bytes.
const REPORT_BYTES_MAX: usize = 300;
/// Longest chain from schema to schema.
const VISIT_DEPTH_MAX: usize = 256;
/// Largest number of schemas in the expanded form of one.
const COST_MAX: u64 = 100_000;
/// Deepest nesting of a schema.
const DEPTH_MAX: usize = 64;
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

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
            "properties" | "$defs" | "definitions" | "patternProperties" | "dependentSchemas" => {
                let Value::Object(members) = value else {
                    return Err(form(&at(key), "must be an object of schemas"));
                };
                for (name, member) in members {
                    sub(member, &format!("{place}/{key}/{name}"))?;
                }
            }
            // Older drafts allow a list of schemas here.
            "items" if value.is_array() => {}
            key if ONE_SCHEMA.contains(&key) => sub(value, &at(key))?,
            // The document may have an id; nested schemas must not redirect references.
            key if SCOPES.contains(&key)
                && value.is_string()
                && !(place.is_empty() && key == "$id") =>
            {
                return Err(form(&at(key), "is not supported here: use $ref with #/…"));
            }
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
            "const" | "enum" if schema_exact::is_rounded(value) => {
                let problem = "has an integer of more than 64 bits, which cannot be compared exactly: make it text, \
                               or describe it with a pattern";
                return Err(form(&at(key), problem));
            }
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

fn form(at: &str, problem: &'static str) -> SchemaError {
    SchemaError::Form { place: place(at), problem }
}

fn place(at: &str) -> String {
    if at.is_empty() { "the document".to_owned() } else { shorten(at) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Schema, VIOLATIONS_MAX};

    #[track_caller]
    fn check(text: &str, want: &str) {
        let got = Schema::parse(text).map_or_else(|error| error.to_string(), |_| String::new());
        assert!(got.starts_with(want) && got.is_empty() == want.is_empty(), "{text}: {got}");
        assert!(got.len() < 1000, "{got}");
    }

    #[test]
    fn schemas() {
        check(
            r#"{"type":"object","properties":{"a":{"type":["string","null"]}},"required":["a"]}"#,
            "",
        );
        check(r##"{"$defs":{"x":true},"anyOf":[{"$ref":"#/$defs/x"}]}"##, "");
        check("{}", "");
        check(
            r#"{"$id":"https://example.com/a","$schema":"https://json-schema.org/draft/2020-12/schema"}"#,
            "",
        );
        check(
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"null"}]}"#,
            "",
        );
        check(r#"{"properties":{"$id":{"type":"string"},"$ref":{"type":"string"}}}"#, "");
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
        check(r#"{"minLength":-1}"#, "not a JSON schema: /minLength: -1 is");
        check(r#"{"multipleOf":0}"#, "not a JSON schema: /multipleOf: 0 is");
        check(r#"{"uniqueItems":1}"#, "not a JSON schema: /uniqueItems: 1 is");
        let rounded = "not a JSON schema: /properties/a/const has an integer of more than 64 bits";
        check(r#"{"properties":{"a":{"const":18446744073709551616}}}"#, rounded);
        check(
            r#"{"enum":["a",[-9223372036854775809]]}"#,
            "not a JSON schema: /enum has an integer",
        );
        check(r#"{"const":18446744073709551615}"#, "");
        check(r#"{"pattern":"("}"#, "not a JSON schema: ");
        check(r#"{"if":3}"#, "not a JSON schema: /if must");
        let deep = r#"{"not":"#.repeat(70) + "{}" + &"}".repeat(70);
        check(&deep, "not a JSON schema: /not");
        check(&" ".repeat(2 << 20), "longer than");
    }

    /// Nothing is fetched, and no schema refers to itself endlessly or too often.
    #[test]
    fn references() {
        let elsewhere = "must lead to a place in the same document";
        for reference in ["https://example.com/x", "file:///etc/passwd", "x.json", "#name", "//x/y"]
        {
            let text = format!(r#"{{"properties":{{"a":{{"$ref":"{reference}"}}}}}}"#);
            check(&text, &format!("not a JSON schema: /properties/a/$ref {elsewhere}"));
        }
        check(
            r##"{"$ref":"#/$defs/no"}"##,
            "not a JSON schema: /$ref leads to a place that is not",
        );
        check(
            r##"{"$defs":{"a":{"$id":"b"}}}"##,
            "not a JSON schema: /$defs/a/$id is not supported",
        );
        check(r##"{"$dynamicRef":"#x"}"##, "not a JSON schema: /$dynamicRef is not supported");
        for text in [
            r##"{"$ref":"#"}"##,
            r##"{"allOf":[{"$ref":"#"}]}"##,
            r##"{"properties":{"a":{"not":{"$ref":"#/properties/a"}}}}"##,
            r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"if":{"$ref":"#/$defs/a"}}}}"##,
        ] {
            let error = Schema::parse(text).unwrap_err().to_string();
            assert!(error.ends_with("refers to itself without end"), "{text} {error}");
        }
        // A list or a tree descends with every step.
        let list = r##"{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["next"]}"##;
        let schema = Schema::parse(list).unwrap();
        assert_eq!(schema.check(Some(r#"{"next":{"next":null}}"#)), Ok(()));
        assert!(schema.check(Some(r#"{"next":{"next":3}}"#)).is_err());
        // Doubles at every step.
        for keyword in ["allOf", "prefixItems"] {
            let step = |n: u32| {
                format!(
                    r##""d{n}":{{"{keyword}":[{{"$ref":"#/$defs/d{0}"}},{{"$ref":"#/$defs/d{0}"}}]}}"##,
                    n + 1
                )
            };
            let steps: Vec<_> = (0..40).map(step).collect();
            let text =
                format!(r##"{{"$defs":{{{},"d40":{{}}}},"$ref":"#/$defs/d0"}}"##, steps.join(","));
            let error = Schema::parse(&text).unwrap_err().to_string();
            assert!(error.ends_with("leads through too many schemas"), "{error}");
        }
    }

    #[track_caller]
    fn answer(schema: &str, answer: &str, want: &str) {
        let got = Schema::parse(schema).unwrap().check(Some(answer));
        let got = got.map_or_else(|violation| violation.to_string(), |()| String::new());
        assert!(got.starts_with(want) && got.is_empty() == want.is_empty(), "{answer}: {got}");
        assert!(got.len() < 8000, "{got}");
    }

    #[test]
    fn answers() {
        let ok = r#"{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false}"#;
        for text in [r#"{"ok":true}"#, " {\n\"ok\" : false}\n"] {
            answer(ok, text, "");
        }
        let whole = "at the whole answer: expected one JSON value that follows the schema, and nothing around it, got ";
        for (text, got) in [
            ("", "no answer"),
            (" \n", "no answer"),
            ("not json", "\"not json\" ("),
            ("```json\n{\"ok\":true}\n```", "\"```json"),
            ("Here: {\"ok\":true}", "\"Here"),
            (r#"{"ok":true} as you wished"#, "\"{"),
            (r#"{"ok":true}{"ok":true}"#, "\"{"),
            (r#"{"ok":true,"ok":false}"#, "\"{"),
            (r#"{"ok":1e999}"#, "\"{"),
            (r#"{"ok":tru"#, "\"{"),
        ] {
            answer(ok, text, &format!("{whole}{got}"));
        }
        answer(ok, r#"{"ok":"yes"}"#, "at /ok: expected boolean, got \"yes\"");
        answer(ok, "{}", "at the whole answer: expected the property \"ok\", got {}");
        answer(
            ok,
            r#"{"ok":true,"x":1}"#,
            "at the whole answer: expected no other properties than those of the schema, got [\"x\"] as well",
        );
        answer(ok, "[]", "at the whole answer: expected object, got []");
        let several = r#"{"properties":{"a":{"type":"null"},"b":{"type":"null"}}}"#;
        let both = "at /a: expected null, got 1; at /b: expected null, got 2";
        answer(several, r#"{"a":1,"b":2}"#, both);
        let nulls = r#"{"items":{"type":"null"}}"#;
        let got = Schema::parse(nulls).unwrap().check(Some("[1,2,3,4,5,6,7,8,9]")).unwrap_err();
        assert_eq!((got.list.len(), got.more), (VIOLATIONS_MAX, true));
        assert!(got.to_string().ends_with("at /7: expected null, got 8; and more"), "{got}");
        let one = |keyword: &str| format!(r#"{{"properties":{{"a":{keyword}}}}}"#);
        for (keyword, value, want) in [
            (r#"{"type":["string","null"]}"#, "3", "null or string, got 3"),
            (r#"{"enum":["a","b"]}"#, "\"c\"", "one of [\"a\",\"b\"], got \"c\""),
            (r#"{"const":1}"#, "2", "1, got 2"),
            (r#"{"pattern":"^a+$"}"#, "\"b\"", "text that matches ^a+$, got \"b\""),
            (r#"{"minimum":3}"#, "2", "at least 3, got 2"),
            (r#"{"maxItems":1}"#, "[1,2]", "at most 1 items, got [1,2]"),
            (
                r#"{"anyOf":[{"type":"null"},{"type":"string"}]}"#,
                "1",
                "what one of the given schemas describes, got 1",
            ),
            ("false", "1", "nothing, got 1"),
        ] {
            let text = format!(r#"{{"a":{value}}}"#);
            answer(&one(keyword), &text, &format!("at /a: expected {want}"));
        }
        let large = one(r#"{"const":9007199254740993}"#);
        answer(&large, r#"{"a":9007199254740993}"#, "");
        answer(&large, r#"{"a":9007199254740992}"#, "at /a: expected 9007199254740993, got 900719");
        answer(&large, r#"{"a":9007199254740992.0}"#, "at /a: expected 9007199254740993, got 900");
        answer(&one(r#"{"const":-9223372036854775808}"#), r#"{"a":-9223372036854775807}"#, "at /a");
        let several = one(r#"{"enum":[1,18446744073709551615]}"#);
        answer(&several, r#"{"a":1.0}"#, "");
        answer(&several, r#"{"a":18446744073709551615}"#, "");
        answer(&several, r#"{"a":18446744073709551614}"#, "at /a: expected one of [1,1844674");
        answer(&several, r#"{"a":18446744073709551616}"#, "at /a: expected one of [1,1844674");
        answer(&one(r#"{"const":0}"#), r#"{"a":1e-17}"#, "at /a: expected 0, got 1e-17");
        // The members of an object have no order.
        let object = one(r#"{"const":{"x":1,"y":[2]}}"#);
        answer(&object, r#"{"a":{"y":[2.0],"x":1}}"#, "");
        answer(&object, r#"{"a":{"y":[2],"x":1,"z":1}}"#, "at /a: expected {");
        let unique = one(r#"{"uniqueItems":true}"#);
        answer(&unique, r#"{"a":[9007199254740993,9007199254740992,"1",1,[1],{"x":1}]}"#, "");
        answer(&unique, r#"{"a":[{"x":1,"y":2},{"y":2.0,"x":1}]}"#, "at /a: expected items that");
        answer(&one(r#"{"uniqueItems":false}"#), r#"{"a":[1,1]}"#, "");
        let even = one(r#"{"multipleOf":2}"#);
        answer(&even, r#"{"a":9007199254740994}"#, "");
        answer(&even, r#"{"a":9007199254740993}"#, "at /a: expected a multiple of 2, got 900");
        answer(&one(r#"{"multipleOf":0.1}"#), r#"{"a":0.3}"#, "");
        answer(&one(r#"{"multipleOf":0.1}"#), r#"{"a":0.35}"#, "at /a: expected a multiple of 0.1");
        answer(&one(r#"{"multipleOf":1.5}"#), r#"{"a":"text"}"#, "");
        answer(&one(r#"{"maximum":9007199254740992}"#), r#"{"a":9007199254740993}"#, "at /a: exp");
        let integer = one(r#"{"type":"integer"}"#);
        answer(&integer, r#"{"a":123456789012345678901234567890}"#, "");
        answer(&integer, r#"{"a":1.5}"#, "at /a: expected integer, got 1.5");
        // Reports are short, whatever the answer contains.
        answer(
            ok,
            &format!(r#"{{"ok":"{}"}}"#, "é".repeat(100_000)),
            "at /ok: expected boolean, got \"é",
        );
        answer(ok, &format!(r#"{{"{}":1,"ok":true}}"#, "k".repeat(100_000)), "at the whole answer");
        answer(ok, &"[".repeat(100_000), "at the whole answer");
        // A pattern that backtracks too much is abandoned.
        let costly = one(r#"{"pattern":"^(?=(a+)+$)(a|a)*b\\1$"}"#);
        answer(
            &costly,
            &format!(r#"{{"a":"{}!"}}"#, "a".repeat(5000)),
            "at /a: expected text that",
        );
        assert!(Schema::parse(ok).unwrap().check(None).is_err());
    }

    proptest! {
        /// Any text from a file or a model is either accepted or refused.
        #[test]
        fn any_text(schema in "[\\[\\]{}:,\"$#/a-d0-9]{0,40}|\\PC{0,40}", answer in "\\PC{0,60}") {
            if let Ok(schema) = Schema::parse(&schema) {
                let _ = schema.check(Some(&answer));
            }
            let ok = Schema::parse(r#"{"type":"object"}"#).unwrap();
            let _ = ok.check(Some(&answer));
        }
    }
}
