//! Checks in advance whether a grammar can be built from a schema.
//!
//! The grammar compiler relies on well-formed keywords in places, and sees all tools as parts of one text. So
//! errors are reported here, with their path in the schema.

use std::collections::HashSet;
use std::fmt::Write as _;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::cycle::{Same, path_of};
use super::endless;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The path relative to the schema, such as `.properties.a.minimum`.
    pub(crate) path: String,
    /// The problem, phrased to follow the path.
    pub(crate) why: String,
}

/// Checks a schema that has been reduced to its constraints.
pub(crate) fn check(schema: &Value) -> Result<(), Fault> {
    let mut checker = Checker {
        root: schema,
        seen: HashSet::new(),
        targets: HashSet::new(),
        pending: Vec::new(),
        same: Same::default(),
        path: String::new(),
    };
    checker.schema(schema)?;
    while let Some((path, target)) = checker.pending.pop() {
        checker.path = path;
        checker.schema(target)?;
    }
    if let Some(from) = checker.same.cycle() {
        let path = path_of(from, schema).unwrap_or_default() + ".$ref";
        return Err(Fault { path, why: "refers to itself with nothing in between".to_owned() });
    }
    match endless::find(schema) {
        Some(at) => {
            let path = path_of(at, schema).unwrap_or_default();
            Err(Fault {
                path,
                why: "has itself in every value of it, which so has no end".to_owned(),
            })
        }
        None => Ok(()),
    }
}

struct Checker<'a> {
    root: &'a Value,
    /// Schemas that were visited: references may lead to the same one repeatedly.
    seen: HashSet<*const Value>,
    /// Those that are targets of references.
    targets: HashSet<*const Value>,
    /// Targets of references still to be visited, since a chain of them may be long.
    pending: Vec<(String, &'a Value)>,
    /// Which schemas apply to the same value.
    same: Same<'a>,
    path: String,
}

impl<'a> Checker<'a> {
    fn schema(&mut self, schema: &'a Value) -> Result<(), Fault> {
        match schema {
            Value::Bool(_) => Ok(()),
            Value::Object(fields) if self.seen.insert(schema) => self.fields(schema, fields),
            Value::Object(_) => Ok(()),
            _ => Err(self.fault("must be a schema: an object or a boolean")),
        }
    }

    fn fields(&mut self, schema: &'a Value, fields: &'a Map<String, Value>) -> Result<(), Fault> {
        // Elsewhere it would change what references are relative to.
        let is_root = self.path.is_empty();
        for (key, value) in fields {
            let length = self.path.len();
            let _ = write!(self.path, ".{key}");
            self.keyword(schema, key, value, is_root)?;
            self.path.truncate(length);
        }
        Ok(())
    }

    fn keyword(
        &mut self,
        schema: &'a Value,
        key: &str,
        value: &'a Value,
        is_root: bool,
    ) -> Result<(), Fault> {
        match key {
            "properties" | "patternProperties" | "$defs" | "definitions" => self.each(value),
            "anyOf" | "oneOf" | "allOf" => {
                for part in value.as_array().into_iter().flatten() {
                    self.same.part(schema, part);
                }
                self.list(value)
            }
            "prefixItems" => self.list(value),
            "items" if value.is_array() => self.list(value),
            "items" | "additionalItems" | "additionalProperties" => self.schema(value),
            "type" => self.kind(value),
            "enum" => self.need(value.is_array(), "a list"),
            "required" => {
                let names = value.as_array();
                let is_names = names.is_some_and(|list| list.iter().all(Value::is_string));
                self.need(is_names, "a list of strings")
            }
            "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties"
            | "maxProperties" => {
                self.need(value.is_u64(), "a whole number that is not negative")?;
                let fits = value.as_u64().is_some_and(|count| count <= COUNT_MAX);
                self.need(fits, &format!("at most {COUNT_MAX}"))
            }
            "minimum" | "maximum" => self.bound(value),
            // In older drafts a boolean makes the other limit exclusive.
            "exclusiveMinimum" | "exclusiveMaximum" if value.is_boolean() => Ok(()),
            "exclusiveMinimum" | "exclusiveMaximum" => self.bound(value),
            "multipleOf" => {
                let fits = value.as_f64().is_some_and(|step| (STEP_MIN..=STEP_MAX).contains(&step));
                self.need(fits, &format!("a number from {STEP_MIN} to {STEP_MAX}"))
            }
            "$anchor" => {
                if let Some(name) = value.as_str() {
                    self.same.name(name, schema);
                }
                self.need(value.is_string(), "a string")
            }
            "pattern" | "format" => self.need(value.is_string(), "a string"),
            "$id" if is_root => self.need(value.is_string(), "a string"),
            "$ref" => self.reference(schema, value),
            "const" => Ok(()),
            _ => Err(self.fault("is not supported here, since no grammar can express it")),
        }
    }

    /// Checks a numeric limit.
    fn bound(&self, value: &Value) -> Result<(), Fault> {
        self.need(value.is_number(), "a number")?;
        let size = value.as_f64().unwrap_or_default().abs();
        let fits = size == 0.0 || (BOUND_MIN..=BOUND_MAX).contains(&size);
        self.need(fits, &format!("0, or a number between {BOUND_MIN} and {BOUND_MAX} in size"))
    }

    fn each(&mut self, schemas: &'a Value) -> Result<(), Fault> {
        let Value::Object(schemas) = schemas else { return self.need(false, "an object") };
        for (key, schema) in schemas {
            let length = self.path.len();
            let _ = write!(self.path, ".{key}");
            self.schema(schema)?;
            self.path.truncate(length);
        }
        Ok(())
    }

    fn list(&mut self, schemas: &'a Value) -> Result<(), Fault> {
        let Value::Array(schemas) = schemas else { return self.need(false, "a list") };
        for (at, schema) in schemas.iter().enumerate() {
            let length = self.path.len();
            let _ = write!(self.path, "[{at}]");
            self.schema(schema)?;
            self.path.truncate(length);
        }
        Ok(())
    }

    fn kind(&self, value: &Value) -> Result<(), Fault> {
        let is_kind = |kind: &Value| kind.as_str().is_some_and(|kind| KINDS.contains(&kind));
        let is_fine =
            value.as_array().map_or_else(|| is_kind(value), |list| list.iter().all(is_kind));
        self.need(is_fine, &format!("one or a list of `{}`", KINDS.join("`, `")))
    }

    /// Follows a reference, whose target may be anywhere in the document.
    fn reference(&mut self, schema: &'a Value, value: &'a Value) -> Result<(), Fault> {
        let Some(reference) = value.as_str() else { return self.need(false, "a string") };
        if !self.is_within(reference) {
            return Err(self.fault("leads out of this schema, and nothing is fetched"));
        }
        let name = name_of(reference);
        let pointer = unescaped(name);
        match self.root.pointer(&pointer) {
            Some(target) => {
                self.same.reference(schema, target);
                if self.targets.insert(target) {
                    self.pending.push((pointer.replace('/', "."), target));
                }
                match self.targets.len() > REFERENCES_MAX {
                    true => Err(self.fault(&format!(
                        "exceeds the limit of {REFERENCES_MAX} distinct references"
                    ))),
                    false => Ok(()),
                }
            }
            // The grammar compiler resolves a name that a schema gives itself.
            None if !pointer.starts_with('/') => {
                self.same.reference_by_name(schema, name);
                Ok(())
            }
            None => Err(self.fault("leads nowhere in this schema")),
        }
    }

    /// Tells whether a reference is local: it names no document, or this one.
    fn is_within(&self, reference: &str) -> bool {
        let document = reference.split('#').next().unwrap_or_default();
        let own = self.root.get("$id").and_then(Value::as_str);
        let own = own.map(|id| id.split('#').next().unwrap_or_default());
        let is_own = |own: &str| own == document || own.ends_with(&format!("/{document}"));
        document.is_empty() || own.is_some_and(is_own)
    }

    fn need(&self, is_so: bool, what: &str) -> Result<(), Fault> {
        if is_so { Ok(()) } else { Err(self.fault(&format!("must be {what}"))) }
    }

    fn fault(&self, why: &str) -> Fault {
        Fault { path: self.path.clone(), why: why.to_owned() }
    }
}

/// Returns the target of a reference within its schema: a pointer, or a name.
pub(super) fn name_of(reference: &str) -> &str {
    reference.split_once('#').map_or("", |(_, name)| name)
}

/// Decodes percent escapes.
pub(super) fn unescaped(pointer: &str) -> String {
    percent_decode_str(pointer).decode_utf8_lossy().into_owned()
}

const KINDS: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

/// Most schemas that references may lead to: the grammar compiler follows them recursively.
pub(crate) const REFERENCES_MAX: usize = 256;

const COUNT_MAX: u64 = 1_000_000_000;

/// Numeric limits between which the grammar compiler can express numbers digit by digit.
const BOUND_MIN: f64 = 1e-9;
const BOUND_MAX: f64 = 9e18;

/// Step sizes that the grammar compiler supports.
const STEP_MIN: f64 = 1e-6;
const STEP_MAX: f64 = 1e9;
