//! The strict form of a schema, for providers that enforce a schema while the model writes.
//!
//! Such providers accept only a subset of JSON Schema, and refuse the whole request otherwise. A schema becomes two:
//! the one that is sent, and the one that answers are checked against, which keeps the constraints that the first one
//! lacks.
//!
//! | in the schema | sent | checked |
//! | --- | --- | --- |
//! | an object | closed, every property required | the same |
//! | a property that is not required | required and nullable, or just required | the same |
//! | a bound, a pattern, a format | as words in the description | as it is |
//! | an example, a default, a version | not | as it is |
//! | `oneOf` | `anyOf` | `oneOf` |
//! | a fixed list (`prefixItems`) | a list of any of its items | as it is |
//! | a reference with keywords beside it | `anyOf` with one member | the same |
//! | objects that are combined (`allOf`, or a reference and properties) | one object | the same |
//! | everything else | an error that lists all such places | |
//!
//! The first schema accepts every answer that the second one accepts.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::schema::escaped;

/// A schema in two forms.
#[derive(Clone, Debug, PartialEq)]
pub struct StrictForm {
    /// The schema that is sent to the provider.
    pub sent: Value,
    /// The schema that answers are checked against.
    pub checked: Value,
}

/// How properties that are not required are converted, since a strict provider requires all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optional {
    /// They may be null.
    Nullable,
    /// They must have a value: for Rust types that would not accept null.
    Required,
}

/// A part of a schema that has no strict form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// JSON pointer to the schema with the keyword; empty for the document.
    pub place: String,
    /// The keyword that is not supported.
    pub keyword: String,
    /// Advice what to write instead.
    pub instead: &'static str,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, keyword, instead } = self;
        let place = if place.is_empty() { "the document" } else { place };
        write!(f, "at {place}: `{keyword}`: {instead}")
    }
}

/// Why a schema has no strict form: everything in it that is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotStrict {
    /// The unsupported parts, at least one and at most [`UNSUPPORTED_MAX`].
    pub list: Vec<Unsupported>,
    /// Whether there are more than the list has.
    pub more: bool,
}

impl fmt::Display for NotStrict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the schema has no strict form: ")?;
        for (index, one) in self.list.iter().enumerate() {
            let between = if index > 0 { "; " } else { "" };
            write!(f, "{between}{one}")?;
        }
        f.write_str(if self.more { "; and more" } else { "" })
    }
}

impl std::error::Error for NotStrict {}

/// Converts a schema into its strict form.
pub fn strict_form(schema: &Value, optional: Optional) -> Result<StrictForm, NotStrict> {
    let mut conversion =
        Conversion { root: schema, optional, found: Vec::new(), more: false, schemas: 0 };
    let form = conversion.document();
    let Conversion { found: list, more, .. } = conversion;
    if list.is_empty() { Ok(form) } else { Err(NotStrict { list, more }) }
}

/// Most unsupported parts that an error lists.
pub const UNSUPPORTED_MAX: usize = 32;
/// Most nested schemas in a schema, after objects were combined.
const SCHEMAS_MAX: usize = 10_000;
/// Deepest nesting of schemas.
const DEPTH_MAX: usize = 64;

const ANY: &str = "say what the value is, with a `type`, an `enum` or `anyOf`";
const OPEN: &str = "name all properties, or use a list of objects with a key and a value";
const TOP: &str = "the answer must be an object: put this into a property of one";
const ALTERNATIVES: &str = "put the alternatives into a property of their own";
const CASES: &str = "use `anyOf` with an object for each case";
const TOGETHER: &str = "write one object with all properties";
const ELSEWHERE: &str = "move the schema to `$defs` and refer to it there";
const ITEMS: &str = "say what the items of the list are";
const TUPLE: &str = "use `prefixItems`";
const NO_PROPERTY: &str = "name properties that the object has";
const TOO_LARGE: &str = "the schema is too large or nests too deeply: make it smaller";

/// How a keyword is converted.
enum Rule {
    /// It is sent.
    Sent,
    /// It describes the structure, and is converted.
    Structure,
    /// It is not sent, but answers are checked against it. The function describes it in words for the model.
    Checked(fn(&Value) -> Option<String>),
    /// It cannot be sent, and leaving it out would change the meaning. Has advice what to write instead.
    Refused(&'static str),
}

/// Returns how a keyword is converted. Unknown keywords count as annotations.
fn rule(keyword: &str) -> Rule {
    match keyword {
        "type" | "title" | "description" | "enum" | "const" => Rule::Sent,
        "properties"
        | "required"
        | "additionalProperties"
        | "unevaluatedProperties"
        | "items"
        | "prefixItems"
        | "anyOf"
        | "oneOf"
        | "allOf"
        | "$ref"
        | "$defs"
        | "definitions" => Rule::Structure,
        "minimum" => Rule::Checked(|limit| Some(format!("at least {limit}"))),
        "maximum" => Rule::Checked(|limit| Some(format!("at most {limit}"))),
        "exclusiveMinimum" => Rule::Checked(|limit| Some(format!("more than {limit}"))),
        "exclusiveMaximum" => Rule::Checked(|limit| Some(format!("less than {limit}"))),
        "multipleOf" => Rule::Checked(|of| Some(format!("a multiple of {of}"))),
        "minLength" => Rule::Checked(|limit| Some(format!("at least {limit} characters"))),
        "maxLength" => Rule::Checked(|limit| Some(format!("at most {limit} characters"))),
        "minItems" => Rule::Checked(|limit| Some(format!("at least {limit} items"))),
        "maxItems" => Rule::Checked(|limit| Some(format!("at most {limit} items"))),
        "uniqueItems" => {
            Rule::Checked(|unique| (unique == true).then(|| "items that all differ".to_owned()))
        }
        "pattern" => Rule::Checked(|pattern| {
            pattern.as_str().map(|pattern| format!("text that matches {pattern}"))
        }),
        "format" => Rule::Checked(|format| {
            let format = format.as_str().filter(|format| FORMATS.contains(format))?;
            Some(format!("in the format {format}"))
        }),
        "patternProperties" => Rule::Refused(OPEN),
        "if" | "then" | "else" | "dependentSchemas" | "dependencies" => Rule::Refused(CASES),
        "additionalItems" | "unevaluatedItems" => Rule::Refused(TUPLE),
        _ => Rule::Checked(|_| None),
    }
}

/// Formats that a model knows. Others, such as `uint32`, are for programs.
const FORMATS: [&str; 10] =
    ["date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// Returns the range of a number format, which derived schemas may name without giving bounds.
fn range(format: &str) -> Option<(i64, u64)> {
    Some(match format {
        "int32" => (i32::MIN.into(), i32::MAX as u64),
        "int64" | "int" => (i64::MIN, i64::MAX as u64),
        "uint32" => (0, u32::MAX.into()),
        "uint64" | "uint" => (0, u64::MAX),
        _ => return None,
    })
}

struct Conversion<'a> {
    root: &'a Value,
    optional: Optional,
    found: Vec<Unsupported>,
    more: bool,
    /// How many schemas were converted.
    schemas: usize,
}

impl StrictForm {
    fn new(sent: Map<String, Value>, checked: Map<String, Value>) -> Self {
        Self { sent: Value::Object(sent), checked: Value::Object(checked) }
    }

    /// Also allows null.
    fn nullable(self) -> Self {
        Self { sent: nullable(self.sent), checked: nullable(self.checked) }
    }

    /// Splits forms into the schemas to send and the schemas to check.
    fn split(several: Vec<Self>) -> (Vec<Value>, Vec<Value>) {
        several.into_iter().map(|one| (one.sent, one.checked)).unzip()
    }
}

impl Conversion<'_> {
    fn document(&mut self) -> StrictForm {
        let root = self.root;
        let form = match root {
            Value::Object(map) if map.contains_key("$ref") && !map.contains_key("properties") => {
                let root = self.resolve_root(map);
                self.schema(&root, "", 0)
            }
            root => self.schema(root, "", 0),
        };
        if self.found.is_empty() && form.sent["type"] != "object" {
            let keyword = ["anyOf", "$ref", "type"].into_iter().find(|it| !form.sent[it].is_null());
            self.refuse("", keyword.unwrap_or("type"), TOP);
        }
        form
    }

    /// Replaces a reference at the top, as no provider accepts one there.
    fn resolve_root(&mut self, map: &Map<String, Value>) -> Value {
        let Some(Value::Object(target)) = self.target(map, "") else { return json!({}) };
        let mut root = map.clone();
        root.shift_remove("$ref");
        for (key, value) in target {
            root.entry(key.as_str()).or_insert_with(|| value.clone());
        }
        Value::Object(root)
    }

    fn refuse(&mut self, place: &str, keyword: &str, instead: &'static str) {
        let one = Unsupported { place: place.to_owned(), keyword: keyword.to_owned(), instead };
        if self.found.len() == UNSUPPORTED_MAX {
            self.more = true;
        } else if !self.found.contains(&one) {
            self.found.push(one);
        }
    }

    fn schema(&mut self, schema: &Value, place: &str, depth: usize) -> StrictForm {
        self.schemas += 1;
        let Value::Object(map) = schema else {
            self.refuse(place, if *schema == false { "false" } else { "true" }, ANY);
            return StrictForm::new(Map::new(), Map::new());
        };
        if depth > DEPTH_MAX || self.schemas > SCHEMAS_MAX {
            self.refuse("", "$defs", TOO_LARGE);
            return StrictForm::new(Map::new(), Map::new());
        }
        let map = self.put_together(map, place);
        let (mut sent, mut checked) = (Map::new(), Map::new());
        let mut words = Vec::new();
        for (keyword, value) in map.iter() {
            match rule(keyword) {
                Rule::Sent => {
                    sent.insert(keyword.clone(), value.clone());
                    checked.insert(keyword.clone(), value.clone());
                }
                Rule::Checked(say) => {
                    words.extend(say(value));
                    checked.insert(keyword.clone(), value.clone());
                }
                Rule::Refused(instead) => self.refuse(place, keyword, instead),
                Rule::Structure => {
                    let nested = Nested { keyword, value, place, depth };
                    self.structure(&nested, &map, &mut sent, &mut checked);
                }
            }
        }
        if let Some((least, greatest)) = map.get("format").and_then(Value::as_str).and_then(range) {
            checked.entry("minimum").or_insert_with(|| least.into());
            checked.entry("maximum").or_insert_with(|| greatest.into());
        }
        self.close(place, &mut sent, &mut checked);
        if !words.is_empty() {
            let own = sent.get("description").and_then(Value::as_str).unwrap_or_default();
            let words = words.join(", ");
            let text = if own.is_empty() { words } else { format!("{own} ({words})") };
            sent.insert("description".to_owned(), text.into());
        }
        if sent.len() > 1
            && let Some(reference) = sent.shift_remove("$ref")
        {
            if sent.contains_key("anyOf") {
                self.refuse(place, "$ref", ALTERNATIVES);
            }
            sent.insert("anyOf".to_owned(), json!([{ "$ref": reference }]));
        }
        StrictForm::new(sent, checked)
    }

    /// Converts a keyword that describes the structure.
    fn structure(
        &mut self,
        nested: &Nested<'_>,
        map: &Map<String, Value>,
        sent: &mut Map<String, Value>,
        checked: &mut Map<String, Value>,
    ) {
        let Nested { keyword, value, place, depth } = *nested;
        let at = format!("{place}/{keyword}");
        match (keyword, value) {
            ("properties", Value::Object(members)) => {
                let required: HashSet<_> = names(map.get("required")).collect();
                let (mut to_send, mut to_check) = (Map::new(), Map::new());
                for (name, member) in members {
                    let place = format!("{at}/{}", escaped(name));
                    let mut form = self.schema(member, &place, depth + 1);
                    let optional = !required.contains(name.as_str());
                    if optional
                        && self.optional == Optional::Nullable
                        && !self.allows_null(member, 0)
                    {
                        form = form.nullable();
                    }
                    to_send.insert(name.clone(), form.sent);
                    to_check.insert(name.clone(), form.checked);
                }
                sent.insert(keyword.to_owned(), to_send.into());
                checked.insert(keyword.to_owned(), to_check.into());
            }
            ("required", _) => {
                let known = map.get("properties").and_then(Value::as_object);
                if names(Some(value)).any(|name| !known.is_some_and(|it| it.contains_key(name))) {
                    self.refuse(place, keyword, NO_PROPERTY);
                }
            }
            ("additionalProperties" | "unevaluatedProperties", Value::Bool(false)) => {}
            ("additionalProperties" | "unevaluatedProperties", _) => {
                self.refuse(place, keyword, OPEN);
            }
            ("items", Value::Bool(false)) if map.contains_key("prefixItems") => {}
            ("items", Value::Array(_)) => self.refuse(place, keyword, TUPLE),
            ("items", _) => {
                let StrictForm { sent: to_send, checked: to_check } =
                    self.schema(value, &at, depth + 1);
                add_item(sent, to_send);
                checked.insert(keyword.to_owned(), to_check);
            }
            ("$ref", _) => {
                let known = value.as_str().is_some_and(is_definition);
                if !known {
                    self.refuse(place, keyword, ELSEWHERE);
                }
                sent.insert(keyword.to_owned(), value.clone());
                checked.insert(keyword.to_owned(), value.clone());
            }
            ("$defs" | "definitions", Value::Object(members)) => {
                let (mut to_send, mut to_check) = (Map::new(), Map::new());
                for (name, member) in members {
                    let place = format!("{at}/{}", escaped(name));
                    let form = self.schema(member, &place, depth + 1);
                    to_send.insert(name.clone(), form.sent);
                    to_check.insert(name.clone(), form.checked);
                }
                sent.insert(keyword.to_owned(), to_send.into());
                checked.insert(keyword.to_owned(), to_check.into());
            }
            ("anyOf" | "oneOf" | "prefixItems", Value::Array(members)) => {
                let forms = members.iter().enumerate();
                let forms = forms.map(|(index, member)| {
                    self.schema(member, &format!("{at}/{index}"), depth + 1)
                });
                let (to_send, to_check) = StrictForm::split(forms.collect());
                checked.insert(keyword.to_owned(), to_check.into());
                if keyword == "prefixItems" {
                    to_send.into_iter().for_each(|item| add_item(sent, item));
                    checked.entry("items").or_insert(Value::Bool(false));
                } else if sent.contains_key("anyOf") || map.contains_key("properties") {
                    self.refuse(place, keyword, ALTERNATIVES);
                } else {
                    sent.insert("anyOf".to_owned(), to_send.into());
                }
            }
            _ => self.refuse(place, keyword, TOGETHER),
        }
    }

    /// Closes objects, and adds the type where it follows from other keywords.
    fn close(
        &mut self,
        place: &str,
        sent: &mut Map<String, Value>,
        checked: &mut Map<String, Value>,
    ) {
        let alternatives = sent.contains_key("anyOf") || sent.contains_key("$ref");
        if alternatives {
            // The alternatives have types of their own, and an object without properties would contradict them.
            sent.shift_remove("type");
            return;
        }
        if !sent.contains_key("type") {
            let inferred = if sent.contains_key("properties") {
                Some("object".into())
            } else if sent.contains_key("items") {
                Some("array".into())
            } else {
                types_of(sent)
            };
            let Some(inferred) = inferred else { return self.refuse(place, "type", ANY) };
            for form in [&mut *sent, &mut *checked] {
                form.insert("type".to_owned(), inferred.clone());
            }
        }
        let kinds = sent.get("type").cloned().unwrap_or_default();
        let is = |wanted: &str| match &kinds {
            Value::Array(several) => several.iter().any(|one| one == wanted),
            one => one == wanted,
        };
        if is("array") && !sent.contains_key("items") {
            self.refuse(place, "items", ITEMS);
        }
        if is("object") {
            for form in [sent, checked] {
                let properties = form.entry("properties").or_insert_with(|| json!({}));
                let names: Vec<_> =
                    properties.as_object().into_iter().flat_map(Map::keys).cloned().collect();
                form.insert("required".to_owned(), names.into());
                form.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
        }
    }

    /// Combines several objects that all apply to one: members of `allOf`, and a reference beside properties.
    fn put_together<'b>(
        &mut self,
        map: &'b Map<String, Value>,
        place: &str,
    ) -> Cow<'b, Map<String, Value>> {
        let beside = map.contains_key("properties");
        let all = map.get("allOf").and_then(Value::as_array);
        let (reference, all) = match (map.contains_key("$ref") && (beside || all.is_some()), all) {
            (false, None) => return Cow::Borrowed(map),
            (reference, all) => (reference, all.map(Vec::as_slice).unwrap_or_default()),
        };
        let mut merged = map.clone();
        merged.shift_remove("allOf");
        if let ([only], false) = (all, beside || reference || map.contains_key("anyOf")) {
            merged.insert("anyOf".to_owned(), json!([only]));
            return Cow::Owned(merged);
        }
        let own = reference.then(|| self.target(map, place));
        merged.shift_remove("$ref");
        let others: Vec<_> = all
            .iter()
            .map(|member| match member.as_object().filter(|member| member.contains_key("$ref")) {
                Some(member) => self.target(member, place),
                None => Some(member.clone()),
            })
            .collect();
        for part in own.into_iter().chain(others) {
            let Some(Value::Object(part)) = part else { continue };
            let apart = ["anyOf", "oneOf", "allOf", "$ref"].iter().any(|it| part.contains_key(*it));
            if apart || !part.get("properties").is_some_and(Value::is_object) {
                self.refuse(place, "allOf", TOGETHER);
                continue;
            }
            for (keyword, value) in part {
                match (merged.get_mut(&keyword), value) {
                    (Some(Value::Object(own)), Value::Object(more)) => {
                        for (name, value) in more {
                            let known = own.entry(name).or_insert_with(|| value.clone());
                            if *known != value {
                                self.refuse(place, "allOf", TOGETHER);
                            }
                        }
                    }
                    (Some(Value::Array(own)), Value::Array(more)) if keyword == "required" => {
                        own.extend(more);
                    }
                    (Some(own), value) => {
                        if *own != value && !["title", "description"].contains(&&*keyword) {
                            self.refuse(place, "allOf", TOGETHER);
                        }
                    }
                    (None, value) => {
                        merged.insert(keyword, value);
                    }
                }
            }
        }
        Cow::Owned(merged)
    }

    /// Returns the schema that a reference refers to.
    fn target(&mut self, map: &Map<String, Value>, place: &str) -> Option<Value> {
        let reference = map.get("$ref").and_then(Value::as_str).filter(|it| is_definition(it));
        let pointer = reference.and_then(|reference| reference.strip_prefix('#'));
        let target = pointer.and_then(|pointer| self.root.pointer(pointer));
        if target.is_none() {
            self.refuse(place, "$ref", ELSEWHERE);
        }
        target.cloned()
    }

    /// Returns whether a schema allows null. In doubt it returns false, and null is then allowed twice.
    fn allows_null(&self, schema: &Value, depth: usize) -> bool {
        let Value::Object(map) = schema else { return false };
        if depth > DEPTH_MAX {
            return false;
        }
        let has_null = |value: &Value, null: &Value| match value {
            Value::Array(several) => several.contains(null),
            one => one == null,
        };
        if let Some(several) = map.get("enum") {
            return has_null(several, &Value::Null);
        }
        if let Some(kind) = map.get("type") {
            return has_null(kind, &"null".into());
        }
        ["anyOf", "oneOf"]
            .iter()
            .filter_map(|keyword| map.get(*keyword)?.as_array())
            .any(|members| members.iter().any(|member| self.allows_null(member, depth + 1)))
    }
}

/// A keyword whose value has schemas, and its position.
struct Nested<'a> {
    keyword: &'a str,
    value: &'a Value,
    place: &'a str,
    depth: usize,
}

/// Adds a schema of items; a strict list has one schema for all of its items.
fn add_item(sent: &mut Map<String, Value>, item: Value) {
    let merged = match sent.shift_remove("items") {
        None => item,
        Some(one) if one == item => one,
        Some(Value::Object(mut several)) if several.len() == 1 && several.contains_key("anyOf") => {
            if let Some(Value::Array(members)) = several.get_mut("anyOf")
                && !members.contains(&item)
            {
                members.push(item);
            }
            Value::Object(several)
        }
        Some(one) => json!({ "anyOf": [one, item] }),
    };
    sent.insert("items".to_owned(), merged);
}

fn nullable(schema: Value) -> Value {
    if let Value::Object(map) = &schema
        && let Some(Value::String(kind)) = map.get("type")
        && !["object", "array"].contains(&kind.as_str())
        && !map.contains_key("enum")
        && !map.contains_key("const")
    {
        let kinds = json!([kind, "null"]);
        let mut map = map.clone();
        map.insert("type".to_owned(), kinds);
        return Value::Object(map);
    }
    json!({ "anyOf": [schema, { "type": "null" }] })
}

/// Returns the types of an `enum` or a `const`.
fn types_of(schema: &Map<String, Value>) -> Option<Value> {
    let values = match (schema.get("const"), schema.get("enum")) {
        (Some(one), _) => std::slice::from_ref(one),
        (None, Some(Value::Array(several))) => several.as_slice(),
        _ => return None,
    };
    let mut types: Vec<Value> = Vec::new();
    for value in values {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            // They would need a schema of their structure, too.
            Value::Array(_) | Value::Object(_) => return None,
        };
        if !types.iter().any(|known| known == kind) {
            types.push(kind.into());
        }
    }
    match types.len() {
        0 => None,
        1 => types.pop(),
        _ => Some(types.into()),
    }
}

/// Returns whether a reference refers to the document or to one of its definitions. The conversion may move or change
/// all other targets.
fn is_definition(reference: &str) -> bool {
    let name = ["#/$defs/", "#/definitions/"].iter().find_map(|it| reference.strip_prefix(it));
    reference == "#" || name.is_some_and(|name| !name.contains('/'))
}

fn names(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{Optional, UNSUPPORTED_MAX, strict_form};
    use crate::Schema;

    /// Compares what is sent.
    #[track_caller]
    fn sent(schema: Value, want: Value) {
        let form =
            strict_form(&schema, Optional::Nullable).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(form.sent, want, "{:#}", form.sent);
        Schema::parse(&form.sent.to_string()).unwrap();
        Schema::parse(&form.checked.to_string()).unwrap();
    }

    /// Compares what is sent for the property `a` of an object.
    #[track_caller]
    fn property(schema: Value, want: Value) {
        let object = |a| json!({"type": "object", "properties": {"a": a}, "required": ["a"], "additionalProperties": false});
        let defs = json!({"x": {"type": "string"}});
        let mut given = object(schema);
        given["$defs"] = defs.clone();
        let mut wanted = object(want);
        wanted["$defs"] = defs;
        let form =
            strict_form(&given, Optional::Nullable).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(form.sent["properties"], wanted["properties"], "{:#}", form.sent);
    }

    #[test]
    fn objects_are_closed_and_properties_required() {
        sent(
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "T", "type": "object",
                "properties": {"a": {"type": "string", "default": "x"}, "b": {"type": "integer"}}, "required": ["b"]}),
            json!({"title": "T", "type": "object",
                "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "integer"}},
                "required": ["a", "b"], "additionalProperties": false}),
        );
        let given = json!({"properties": {"a": {"type": "string"}}});
        let form = strict_form(&given, Optional::Required).unwrap();
        assert_eq!(form.sent["properties"]["a"], json!({"type": "string"}));
        assert_eq!((&form.sent["type"], &form.sent["required"]), (&json!("object"), &json!(["a"])));
        sent(
            json!({"type": "object"}),
            json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false}),
        );
    }

    #[test]
    fn optional_properties_may_be_null() {
        let optional = |schema: Value, want: Value| {
            let given = json!({"type": "object", "properties": {"a": schema}, "$defs": {"x": {"type": "null"}}});
            let form = strict_form(&given, Optional::Nullable).unwrap();
            assert_eq!(form.sent["properties"]["a"], want);
        };
        let none = || json!({"type": "null"});
        optional(json!({"type": ["string", "null"]}), json!({"type": ["string", "null"]}));
        optional(
            json!({"enum": ["a", null]}),
            json!({"enum": ["a", null], "type": ["string", "null"]}),
        );
        optional(
            json!({"anyOf": [{"type": "string"}, none()]}),
            json!({"anyOf": [{"type": "string"}, none()]}),
        );
        optional(
            json!({"type": "string", "enum": ["a"]}),
            json!({"anyOf": [{"type": "string", "enum": ["a"]}, none()]}),
        );
        optional(json!({"$ref": "#/$defs/x"}), json!({"anyOf": [{"$ref": "#/$defs/x"}, none()]}));
        optional(
            json!({"type": "array", "items": {"type": "string"}}),
            json!({"anyOf": [{"type": "array", "items": {"type": "string"}}, none()]}),
        );
    }

    #[test]
    fn constraints_become_words() {
        property(
            json!({"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}),
            json!({"type": "integer", "description": "at least 0, at most 255"}),
        );
        property(
            json!({"type": "string", "description": "When.", "format": "date", "examples": ["2020-01-01"]}),
            json!({"type": "string", "description": "When. (in the format date)"}),
        );
        property(
            json!({"type": "array", "items": {"type": "string", "pattern": "^a"}, "minItems": 1, "uniqueItems": true}),
            json!({"type": "array", "items": {"type": "string", "description": "text that matches ^a"},
                "description": "at least 1 items, items that all differ"}),
        );
        property(json!({"const": 1, "x-mine": 2}), json!({"const": 1, "type": "integer"}));
        // A number that does not fit `u32` is refused, although the schema only names the format.
        let given = json!({"type": "object", "properties": {"a": {"type": ["integer", "null"], "format": "uint32"}}, "required": ["a"]});
        let form = strict_form(&given, Optional::Nullable).unwrap();
        assert_eq!(form.sent["properties"]["a"], json!({"type": ["integer", "null"]}));
        let checked = Schema::parse(&form.checked.to_string()).unwrap();
        for (value, fits) in
            [("4294967295", true), ("null", true), ("4294967296", false), ("-1", false)]
        {
            assert_eq!(checked.check(Some(&format!("{{\"a\":{value}}}"))).is_ok(), fits, "{value}");
        }
        // Answers are checked against the whole schema.
        let given = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]});
        let form = strict_form(&given, Optional::Nullable).unwrap();
        let checked = Schema::parse(&form.checked.to_string()).unwrap();
        assert!(checked.check(Some(r#"{"a":3}"#)).is_ok());
        let wrong = checked.check(Some(r#"{"a":2}"#)).unwrap_err().to_string();
        assert_eq!(wrong, "at /a: expected at least 3, got 2");
    }

    #[test]
    fn what_derives_write_has_a_strict_form() {
        property(
            json!({"oneOf": [{"type": "string", "const": "A", "description": "First."}, {"type": "string", "const": "B"}]}),
            json!({"anyOf": [{"type": "string", "const": "A", "description": "First."}, {"type": "string", "const": "B"}]}),
        );
        property(json!({"$ref": "#/$defs/x"}), json!({"$ref": "#/$defs/x"}));
        property(
            json!({"$ref": "#/$defs/x", "description": "D."}),
            json!({"description": "D.", "anyOf": [{"$ref": "#/$defs/x"}]}),
        );
        property(
            json!({"allOf": [{"$ref": "#/$defs/x"}]}),
            json!({"anyOf": [{"$ref": "#/$defs/x"}]}),
        );
        property(
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}, {"type": "string"}], "minItems": 3, "maxItems": 3}),
            json!({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "description": "at least 3 items, at most 3 items"}),
        );
        // A variant of an enum with a tag.
        sent(
            json!({"type": "object", "properties": {"kind": {"type": "string", "const": "a"}}, "required": ["kind"], "$ref": "#/$defs/A",
                "$defs": {"A": {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}}}),
            json!({"type": "object",
                "properties": {"kind": {"type": "string", "const": "a"}, "b": {"type": "string"}},
                "required": ["kind", "b"],
                "$defs": {"A": {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"], "additionalProperties": false}},
                "additionalProperties": false}),
        );
        // A type that refers to itself.
        let node = json!({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}, "required": ["next"], "additionalProperties": false});
        sent(
            json!({"$ref": "#/$defs/Node", "$defs": {"Node": node}}),
            json!({"$defs": {"Node": node}, "type": "object", "properties": node["properties"], "required": ["next"], "additionalProperties": false}),
        );
    }

    #[track_caller]
    fn refused(schema: Value, want: &[(&str, &str)]) {
        let error = strict_form(&schema, Optional::Nullable).unwrap_err();
        let found: Vec<_> =
            error.list.iter().map(|it| (it.place.as_str(), it.keyword.as_str())).collect();
        assert_eq!(found, want, "{error}");
    }

    #[test]
    fn everything_unsupported_is_named() {
        refused(
            json!({"type": "object", "properties": {
                "any": {}, "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "list": {"type": "array"}, "a/b": {"patternProperties": {"^x": {}}, "type": "object"},
                "case": {"type": "object", "if": {}, "then": {}}, "free": true,
                "where": {"$ref": "#/properties/any"},
            }}),
            &[
                ("/properties/any", "type"),
                ("/properties/map", "additionalProperties"),
                ("/properties/list", "items"),
                ("/properties/a~1b", "patternProperties"),
                ("/properties/case", "if"),
                ("/properties/case", "then"),
                ("/properties/free", "true"),
                ("/properties/where", "$ref"),
            ],
        );
        refused(json!({"type": "array", "items": {"type": "string"}}), &[("", "type")]);
        refused(json!({"anyOf": [{"type": "object"}]}), &[("", "anyOf")]);
        refused(
            json!({"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"maxLength": 3}}}]}),
            &[("", "allOf")],
        );
        refused(json!({"type": "object", "required": ["a"]}), &[("", "required")]);
        refused(
            json!({"type": "object", "properties": {"a": {"type": "null"}}, "oneOf": [{"type": "object"}]}),
            &[("", "oneOf")],
        );
        let error = strict_form(&json!({"type": "string"}), Optional::Nullable).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the schema has no strict form: at the document: `type`: the answer must be an object: put this into a property of one"
        );
        let many: serde_json::Map<_, _> =
            (0..100).map(|number| (number.to_string(), json!({}))).collect();
        let error = strict_form(&json!({"properties": many}), Optional::Nullable).unwrap_err();
        assert_eq!((error.list.len(), error.more), (UNSUPPORTED_MAX, true));
    }

    /// Combining objects ends, whatever they refer to.
    #[test]
    fn schemas_that_grow_without_end_are_refused() {
        let again = json!({"$ref": "#/$defs/A", "properties": {}});
        let schema = json!({"$ref": "#/$defs/A", "properties": {},
            "$defs": {"A": {"type": "object", "properties": {"a": again, "b": again}}}});
        refused(schema, &[("", "$defs")]);
    }

    /// A schema and values that conform to its strict form.
    fn schemas() -> impl Strategy<Value = (Value, Vec<Value>)> {
        let leaf = prop_oneof![
            prop::collection::vec("\\PC{0,6}", 3).prop_map(|texts| (
                json!({"type": "string", "maxLength": 6}),
                texts.into_iter().map(Value::from).collect()
            )),
            prop::collection::vec(-5i64..5, 3).prop_map(|numbers| {
                (
                    json!({"type": "integer", "minimum": -5, "exclusiveMaximum": 5}),
                    numbers.into_iter().map(Value::from).collect(),
                )
            }),
            Just((
                json!({"type": ["boolean", "null"]}),
                vec![json!(true), json!(false), json!(null)]
            )),
            Just((json!({"enum": ["a", 1, null]}), vec![json!("a"), json!(1), json!(null)])),
            Just((json!({"const": "k"}), vec![json!("k")])),
            Just((json!({"$ref": "#/$defs/x", "description": "d"}), vec![json!("in")])),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::btree_map("[a-c/~]{1,2}", (inner.clone(), any::<bool>()), 0..4)
                    .prop_map(object),
                inner.clone().prop_map(|(schema, values)| {
                    let lists = vec![json!([]), json!([values[0]]), Value::Array(values)];
                    (json!({"type": "array", "items": schema, "maxItems": 3}), lists)
                }),
                (inner.clone(), inner.clone()).prop_map(|((first, values), (second, others))| {
                    (json!({"anyOf": [first, second]}), vec![values[0].clone(), others[0].clone()])
                }),
                (inner.clone(), inner).prop_map(|((first, values), (second, others))| {
                    let list = json!([values[0], others[0]]);
                    (
                        json!({"prefixItems": [first, second], "minItems": 2, "maxItems": 2}),
                        vec![list],
                    )
                }),
            ]
        })
        .prop_map(|one| {
            let (mut schema, values) = object([("top".to_owned(), (one, true))].into());
            schema["$defs"] = json!({"x": {"type": "string", "minLength": 2}});
            (schema, values)
        })
    }

    type Members = std::collections::BTreeMap<String, ((Value, Vec<Value>), bool)>;

    fn object(members: Members) -> (Value, Vec<Value>) {
        let value = |index: usize| {
            let member = |(name, ((_, values), _)): (&String, &((Value, Vec<Value>), bool))| {
                (name.clone(), values[index % values.len()].clone())
            };
            Value::Object(members.iter().map(member).collect())
        };
        let values = (0..3).map(value).collect();
        let required: Vec<_> =
            members.iter().filter(|(_, (_, required))| *required).map(|(name, _)| name).collect();
        let properties: serde_json::Map<_, _> =
            members.iter().map(|(name, ((schema, _), _))| (name.clone(), schema.clone())).collect();
        (json!({"type": "object", "properties": properties, "required": required}), values)
    }

    /// Lists all places of a value, as JSON pointers.
    fn places(value: &Value, at: String, into: &mut Vec<String>) {
        into.push(at.clone());
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    places(item, format!("{at}/{index}"), into);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    places(member, format!("{at}/{}", crate::schema::escaped(name)), into);
                }
            }
            _ => {}
        }
    }

    proptest! {
        /// An answer that conforms is accepted by both forms; for another one, the errors have places that are in the
        /// answer.
        #[test]
        fn conforming_answers_only((schema, values) in schemas(), pick: prop::sample::Index) {
            let form = strict_form(&schema, Optional::Nullable).unwrap();
            let sent = Schema::parse(&form.sent.to_string()).unwrap();
            let checked = Schema::parse(&form.checked.to_string()).unwrap();
            for value in values {
                let text = value.to_string();
                prop_assert_eq!(checked.check(Some(&text)), Ok(()), "{}", form.checked);
                prop_assert_eq!(sent.check(Some(&text)), Ok(()), "{}", form.sent);
                let mut all = Vec::new();
                places(&value, String::new(), &mut all);
                // No schema has a place for this.
                let mut wrong = value.clone();
                let place: &String = pick.get(&all);
                *wrong.pointer_mut(place).unwrap() = json!({"no such property": 1});
                let violations = checked.check(Some(&wrong.to_string())).unwrap_err();
                prop_assert!(!violations.list.is_empty());
                for one in &violations.list {
                    prop_assert!(wrong.pointer(&one.path).is_some(), "{one} in {wrong}");
                }
                // A checked answer is one that the provider could have enforced.
                if sent.check(Some(&wrong.to_string())).is_ok() {
                    prop_assert!(false, "{wrong} conforms to {}", form.sent);
                }
            }
        }
    }
}
