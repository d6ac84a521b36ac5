//! Estimates the cost of building a grammar from a schema, before it is built.
//!
//! The grammar compiler expands conjunctions: the alternatives of one part are multiplied by those of the
//! others, and patterns for the same value run side by side, in the worst case with every choice of one next
//! to every choice of the others. This follows the same steps with nothing but counts, as far as a [`Budget`]
//! allows.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::check::{Fault, name_of, unescaped};
use super::cycle::path_of;

/// What the schemas of a request may cost together.
#[derive(Debug)]
pub(crate) struct Budget {
    steps: usize,
    patterns: usize,
    /// Characters of literal texts.
    letters: usize,
    /// Remainders by which numbers are counted.
    remainders: u64,
    /// Values whose cost becomes apparent only when tried: their path, and their schema.
    pub(crate) hard: Vec<(String, Value)>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            steps: STEPS_MAX,
            patterns: PATTERNS_MAX,
            letters: LETTERS_MAX,
            remainders: REMAINDERS_MAX,
            hard: Vec::new(),
        }
    }
}

impl Budget {
    /// Charges the budget for a schema that was checked.
    pub(crate) fn pay(&mut self, schema: &Value) -> Result<(), Fault> {
        let mut bill = Bill {
            root: schema,
            budget: self,
            sizes: HashMap::new(),
            names: HashMap::new(),
            seen: HashSet::new(),
            pending: Vec::new(),
        };
        bill.size(schema);
        bill.literals(schema)?;
        bill.visit_value(&[schema], 0)?;
        while let Some(next) = bill.pending.pop() {
            bill.visit_schema(next)?;
        }
        Ok(())
    }
}

struct Bill<'a, 'b> {
    root: &'a Value,
    budget: &'b mut Budget,
    /// How many values each schema contains.
    sizes: HashMap<*const Value, usize>,
    /// Names that schemas give themselves.
    names: HashMap<&'a str, &'a Value>,
    /// Schemas that were visited separately, once each.
    seen: HashSet<*const Value>,
    /// Schemas still to be visited, since a chain of them may be long.
    pending: Vec<&'a Value>,
}

/// Schemas for the same value, none of which has alternatives.
type Parts<'a> = Vec<&'a Value>;

impl<'a> Bill<'a, '_> {
    /// Counts the values in a value; the cached count of a schema excludes its alternatives.
    fn size(&mut self, value: &'a Value) -> usize {
        let (mut own, mut rest) = (1, 0);
        match value {
            Value::Array(list) => own += list.iter().map(|inner| self.size(inner)).sum::<usize>(),
            Value::Object(fields) => {
                for (key, inner) in fields {
                    let is_apart = APART.contains(&key.as_str());
                    *(if is_apart { &mut rest } else { &mut own }) += self.size(inner);
                }
            }
            _ => {}
        }
        if let Some(name) = value.get("$anchor").and_then(Value::as_str) {
            self.names.insert(name, value);
        }
        self.sizes.insert(value, own);
        own + rest
    }

    /// Counts the characters of constants and names in a schema and everything inside it.
    fn literals(&mut self, schema: &'a Value) -> Result<(), Fault> {
        match schema {
            Value::Array(list) => return list.iter().try_for_each(|inner| self.literals(inner)),
            Value::Object(_) => {}
            _ => return Ok(()),
        }
        for (key, value) in schema.as_object().into_iter().flatten() {
            let mut texts = Vec::new();
            match (key.as_str(), value) {
                ("const" | "enum", value) => gather(value, &mut texts),
                ("required", Value::Array(names)) => {
                    texts.extend(names.iter().filter_map(Value::as_str).map(Cow::Borrowed));
                }
                ("properties", Value::Object(inner)) => {
                    texts.extend(inner.keys().map(|name| Cow::Borrowed(name.as_str())));
                    inner.values().try_for_each(|inner| self.literals(inner))?;
                }
                ("patternProperties" | "$defs" | "definitions", Value::Object(inner)) => {
                    inner.values().try_for_each(|inner| self.literals(inner))?;
                }
                (_, inner) => self.literals(inner)?,
            }
            match self.budget.letters.checked_sub(letters_of(&mut texts)) {
                Some(left) => self.budget.letters = left,
                None => {
                    let why = format!(
                        "brings the constants and names of this request to more than {LETTERS_MAX} letters"
                    );
                    return Err(self.fault(schema, key, &why));
                }
            }
        }
        Ok(())
    }

    /// Visits a schema that alone describes a value.
    fn visit_schema(&mut self, schema: &'a Value) -> Result<(), Fault> {
        if let Some(target) = self.lone_reference(schema) {
            return self.visit_value(&[target], 0);
        }
        if let Some(options) = only_options(schema) {
            // Each is kept as it is, including references.
            self.limit_alternatives(options.len(), schema)?;
            return options.iter().try_for_each(|option| self.visit_value(&[option], 0));
        }
        let ways = self.alternatives(schema, 0)?;
        self.limit_alternatives(ways.len(), schema)?;
        let is_plain = ways.len() == 1;
        ways.iter().try_for_each(|parts| self.visit_alternative(parts, schema, is_plain, 0))
    }

    /// Visits several schemas that describe the same value.
    fn visit_value(&mut self, schemas: &[&'a Value], depth: usize) -> Result<(), Fault> {
        if depth > DEPTH_MAX {
            return Err(self.fault(schemas[0], "", "leads too deep into conjunctions"));
        }
        if let [one] = schemas {
            if self.seen.insert(*one) {
                self.pending.push(one);
            }
            return Ok(());
        }
        let mut ways: Vec<Parts<'a>> = vec![Vec::new()];
        for schema in schemas {
            let more = self.alternatives(schema, 0)?;
            ways = self.multiplied(ways, &more, schema)?;
        }
        ways.iter().try_for_each(|parts| self.visit_alternative(parts, schemas[0], false, depth))
    }

    /// Visits one alternative for a value; anything that is not plain is copied for each of them.
    fn visit_alternative(
        &mut self,
        parts: &[&'a Value],
        of: &'a Value,
        is_plain: bool,
        depth: usize,
    ) -> Result<(), Fault> {
        let size = |part: &&Value| self.sizes.get(&std::ptr::from_ref(*part)).copied();
        let copied = parts.iter().filter_map(size).sum();
        self.step(if is_plain { 1 } else { copied }, of)?;
        self.visit_parts(parts, depth)
    }

    /// Returns the target of a schema that is just a reference.
    fn lone_reference(&self, schema: &'a Value) -> Option<&'a Value> {
        let fields = schema.as_object()?;
        let is_alone = fields.keys().all(|key| ASIDE.contains(&key.as_str()) || key == "$ref");
        if is_alone { self.target(fields) } else { None }
    }

    fn target(&self, fields: &Map<String, Value>) -> Option<&'a Value> {
        let name = name_of(fields.get("$ref")?.as_str()?);
        let named = || self.names.get(name).copied();
        self.root.pointer(&unescaped(name)).or_else(named)
    }

    /// Expands the alternatives of a schema.
    fn alternatives(&mut self, schema: &'a Value, level: usize) -> Result<Vec<Parts<'a>>, Fault> {
        let Value::Object(fields) = schema else { return Ok(vec![Vec::new()]) };
        self.step(1, schema)?;
        if level > DEPTH_MAX {
            return Err(self.fault(schema, "", "leads too deep into conjunctions"));
        }
        let mut ways = vec![vec![schema]];
        if let Some(target) = self.target(fields) {
            let more = self.alternatives(target, level + 1)?;
            ways = self.multiplied(ways, &more, schema)?;
        }
        for part in list(fields, "allOf") {
            let more = self.alternatives(part, level + 1)?;
            ways = self.multiplied(ways, &more, part)?;
        }
        for key in ["anyOf", "oneOf"] {
            let mut more = Vec::new();
            for part in list(fields, key) {
                more.extend(self.alternatives(part, level + 1)?);
            }
            if !more.is_empty() {
                ways = self.multiplied(ways, &more, schema)?;
            }
        }
        Ok(ways)
    }

    fn multiplied(
        &mut self,
        left: Vec<Parts<'a>>,
        right: &[Parts<'a>],
        at: &'a Value,
    ) -> Result<Vec<Parts<'a>>, Fault> {
        if let ([right], [left]) = (right, &left[..]) {
            return Ok(vec![[&left[..], right].concat()]);
        }
        let count = left.len() * right.len();
        if left.len() > 1 && right.len() > 1 && count > WAYS_MAX {
            let why = format!(
                "brings the alternatives for one value to {count}; the limit is {WAYS_MAX}"
            );
            return Err(self.fault(at, "", &why));
        }
        self.step(count, at)?;
        let pairs = left.iter().flat_map(|left| right.iter().map(move |right| (left, right)));
        Ok(pairs.map(|(left, right)| [&left[..], right].concat()).collect())
    }

    /// Visits what several parts require together.
    fn visit_parts(&mut self, parts: &[&'a Value], depth: usize) -> Result<(), Fault> {
        let parts: Vec<(&'a Value, &'a Map<String, Value>)> =
            parts.iter().filter_map(|part| Some((*part, part.as_object()?))).collect();
        self.texts(&parts)?;
        self.numbers(&parts)?;
        self.objects(&parts, depth)?;
        self.lists(&parts, depth)
    }

    /// Multiplies the choices of all patterns of a string.
    fn texts(&mut self, parts: &[(&'a Value, &'a Map<String, Value>)]) -> Result<(), Fault> {
        let mut choices = 1_u64;
        let mut words = 1_usize;
        let has = |key: &str| parts.iter().any(|(_, fields)| fields.contains_key(key));
        if has("minLength") || has("maxLength") {
            choices *= 2;
        }
        let mut is_pattern = false;
        for (part, fields) in parts {
            if let Some(list) = fields.get("enum").and_then(Value::as_array) {
                words = words.saturating_mul(list.len().max(1));
                self.step(words, part)?;
                let is_whole = |value: &&Value| value.is_object() || value.is_array();
                if list.iter().filter(is_whole).count() > WAYS_MAX {
                    let why = format!("has more than {WAYS_MAX} lists and objects in it");
                    return Err(self.fault(part, "enum", &why));
                }
            }
            let pattern = fields.get("pattern").and_then(Value::as_str).map(choices_of);
            let format = fields.contains_key("format").then_some(FORMAT_CHOICES);
            for (key, own) in [("pattern", pattern), ("format", format)] {
                let Some(own) = own else { continue };
                choices = choices.saturating_mul(1 + own);
                if choices > CHOICES_MAX && is_pattern {
                    return Err(self.fault(
                        part,
                        key,
                        "is one pattern too many for one value; say it in one, or simpler",
                    ));
                }
                is_pattern = true;
            }
            if let Some(pattern) = fields.get("pattern").and_then(Value::as_str) {
                let length = pattern.len();
                if length > PATTERN_BYTES_MAX {
                    let why = format!("has {length} bytes; a pattern can have {PATTERN_BYTES_MAX}");
                    return Err(self.fault(part, "pattern", &why));
                }
            }
        }
        let Some((part, _)) = parts.iter().find(|(_, fields)| fields.contains_key("pattern"))
        else {
            return Ok(());
        };
        self.hard(
            part,
            "string",
            parts,
            &["pattern", "format", "minLength", "maxLength", "enum", "const"],
        );
        self.patterns(words, part)
    }

    /// Records a value that has to be tried out.
    fn hard(
        &mut self,
        at: &'a Value,
        kind: &str,
        parts: &[(&'a Value, &'a Map<String, Value>)],
        keys: &[&str],
    ) {
        let own = |fields: &Map<String, Value>| {
            let own = fields.iter().filter(|(key, _)| keys.contains(&key.as_str()));
            Value::Object(own.map(|(key, value)| (key.clone(), value.clone())).collect())
        };
        let bounds: Vec<Value> = parts.iter().map(|(_, fields)| own(fields)).collect();
        self.try_out(at, json!({"type": kind, "allOf": bounds}));
    }

    fn try_out(&mut self, at: &'a Value, schema: Value) {
        let path = path_of(at, self.root).unwrap_or_default();
        self.budget.hard.push((path, schema));
    }

    /// Computes the common multiple of all steps of a number.
    fn numbers(&mut self, parts: &[(&'a Value, &'a Map<String, Value>)]) -> Result<(), Fault> {
        let mut whole = 1_u64;
        let mut digits = 0;
        for (part, fields) in parts {
            let Some(step) = fields.get("multipleOf").and_then(Value::as_f64) else { continue };
            let fault = || {
                self.fault(
                    part,
                    "multipleOf",
                    &format!("makes numbers be counted in steps of more than {STEP_MAX} parts"),
                )
            };
            let (own, own_digits) = decimal(step).ok_or_else(fault)?;
            let scale = |number: u64, by: u32| number.saturating_mul(10_u64.saturating_pow(by));
            let most = own_digits.max(digits);
            let (a, b) = (scale(whole, most - digits), scale(own, most - own_digits));
            whole = if digits == 0 && whole == 1 { own } else { (a / gcd(a, b)).saturating_mul(b) };
            digits = most;
            if whole > STEP_MAX || a > STEP_MAX || b > STEP_MAX {
                return Err(fault());
            }
        }
        if let Some((part, _)) = parts.iter().find(|(_, fields)| fields.contains_key("multipleOf"))
        {
            // They are counted again for every digit of a limit.
            let bounds = parts.iter().flat_map(|(_, fields)| BOUNDS.map(|key| fields.get(key)));
            let bounds = bounds.flatten().filter_map(Value::as_f64);
            let digits = bounds.map(|bound| format!("{:.0}", bound.abs()).len()).max();
            let remainders = whole.saturating_mul(digits.unwrap_or(1) as u64);
            match self.budget.remainders.checked_sub(remainders) {
                Some(left) => self.budget.remainders = left,
                None => {
                    let why = format!(
                        "brings the steps of numbers of this request, for each digit of their bounds, to more than \
                         {REMAINDERS_MAX} parts"
                    );
                    return Err(self.fault(part, "multipleOf", &why));
                }
            }
            let is_whole = |fields: &Map<String, Value>| {
                fields.get("type").and_then(Value::as_str) == Some("integer")
            };
            let kind =
                if parts.iter().any(|(_, fields)| is_whole(fields)) { "integer" } else { "number" };
            self.hard(part, kind, parts, &[&["multipleOf"], &BOUNDS[..]].concat());
            self.patterns(1, part)?;
        }
        Ok(())
    }

    fn objects(
        &mut self,
        parts: &[(&'a Value, &'a Map<String, Value>)],
        depth: usize,
    ) -> Result<(), Fault> {
        let properties =
            |fields: &'a Map<String, Value>| fields.get("properties").and_then(Value::as_object);
        let mut names = BTreeSet::new();
        let mut patterns: Vec<(&'a Value, &'a str, &'a Value)> = Vec::new();
        for (part, fields) in parts {
            names.extend(properties(fields).into_iter().flat_map(Map::keys).map(String::as_str));
            names.extend(list(fields, "required").filter_map(Value::as_str));
            if names.len() > PROPERTIES_MAX {
                let why = format!("bring an object to more than {PROPERTIES_MAX} properties");
                return Err(self.fault(part, "properties", &why));
            }
            let of = fields.get("patternProperties").and_then(Value::as_object);
            patterns.extend(
                of.into_iter().flatten().map(|(pattern, inner)| (*part, pattern.as_str(), inner)),
            );
        }
        for (at, (part, pattern, _)) in patterns.iter().enumerate() {
            if pattern.len() > PATTERN_BYTES_MAX {
                return Err(self.fault(
                    part,
                    "patternProperties",
                    &format!("has a pattern of more than {PATTERN_BYTES_MAX} bytes"),
                ));
            }
            // Each is compared with all others, and with all names.
            self.patterns(at + 1, part)?;
            self.step(names.len(), part)?;
            let before = patterns[..at].iter().map(|(_, other, _)| choices_of(other)).max();
            let both = (1 + before.unwrap_or_default()).saturating_mul(1 + choices_of(pattern));
            if both > CHOICES_MAX {
                return Err(self.fault(
                    part,
                    "patternProperties",
                    "has patterns that are too much beside each other",
                ));
            }
        }
        if let [(part, ..), ..] = patterns[..] {
            let names = patterns.iter().map(|(_, name, _)| ((*name).to_owned(), Value::Bool(true)));
            let names = Value::Object(names.collect());
            self.try_out(part, json!({"type": "object", "patternProperties": names}));
        }
        let additional = |fields: &'a Map<String, Value>| fields.get("additionalProperties");
        for name in names {
            let of = |(_, fields): &(&'a Value, &'a Map<String, Value>)| {
                properties(fields).and_then(|own| own.get(name)).or_else(|| additional(fields))
            };
            let mut inner: Vec<&'a Value> = parts.iter().filter_map(of).collect();
            inner.retain(|schema| schema.is_object());
            if !inner.is_empty() {
                self.visit_value(&inner, depth + 1)?;
            }
            for (_, _, of_pattern) in &patterns {
                let mut both = inner.clone();
                both.push(of_pattern);
                self.visit_value(&both, depth + 1)?;
            }
        }
        for (part, pattern, inner) in &patterns {
            let others = parts.iter().filter(|(other, _)| !std::ptr::eq(*other, *part));
            let mut both = vec![*inner];
            both.extend(others.filter_map(|(_, fields)| {
                let same = fields.get("patternProperties").and_then(|own| own.get(*pattern));
                same.or_else(|| additional(fields))
            }));
            self.visit_value(&both, depth + 1)?;
        }
        let rest: Vec<&'a Value> = parts
            .iter()
            .filter_map(|(_, fields)| additional(fields))
            .filter(|schema| schema.is_object())
            .collect();
        if rest.is_empty() { Ok(()) } else { self.visit_value(&rest, depth + 1) }
    }

    fn lists(
        &mut self,
        parts: &[(&'a Value, &'a Map<String, Value>)],
        depth: usize,
    ) -> Result<(), Fault> {
        let first = |fields: &'a Map<String, Value>| match fields.get("items") {
            Some(Value::Array(list)) => &list[..],
            _ => fields.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice),
        };
        let rest = |fields: &'a Map<String, Value>| match fields.get("items") {
            Some(Value::Array(_)) => fields.get("additionalItems"),
            items => items,
        };
        let most = parts.iter().map(|(_, fields)| first(fields).len()).max().unwrap_or_default();
        if most > PROPERTIES_MAX {
            let longest = parts.iter().max_by_key(|(_, fields)| first(fields).len());
            let part = longest.map_or(self.root, |(part, _)| *part);
            return Err(self.fault(
                part,
                "",
                &format!("lists more than {PROPERTIES_MAX} items one by one"),
            ));
        }
        for at in 0..=most {
            let of = |(_, fields): &(&'a Value, &'a Map<String, Value>)| {
                first(fields).get(at).or_else(|| rest(fields))
            };
            let inner: Vec<&'a Value> =
                parts.iter().filter_map(of).filter(|schema| schema.is_object()).collect();
            if !inner.is_empty() {
                self.visit_value(&inner, depth + 1)?;
            }
        }
        Ok(())
    }

    fn limit_alternatives(&mut self, ways: usize, at: &'a Value) -> Result<(), Fault> {
        if ways <= WAYS_MAX {
            return self.step(ways, at);
        }
        let why = format!("has {ways} alternatives for one value; the limit is {WAYS_MAX}");
        Err(self.fault(at, "", &why))
    }

    fn step(&mut self, count: usize, at: &'a Value) -> Result<(), Fault> {
        match self.budget.steps.checked_sub(count) {
            Some(left) => {
                self.budget.steps = left;
                Ok(())
            }
            None => Err(self.fault(at, "", TOO_MUCH)),
        }
    }

    fn patterns(&mut self, count: usize, at: &'a Value) -> Result<(), Fault> {
        match self.budget.patterns.checked_sub(count) {
            Some(left) => {
                self.budget.patterns = left;
                Ok(())
            }
            None => {
                let why = format!(
                    "brings the patterns of this request, in all their combinations, to more than {PATTERNS_MAX}"
                );
                Err(self.fault(at, "", &why))
            }
        }
    }

    fn fault(&self, at: &Value, key: &str, why: &str) -> Fault {
        let mut path = path_of(at, self.root).unwrap_or_default();
        if !key.is_empty() {
            path.push('.');
            path.push_str(key);
        }
        Fault { path, why: why.to_owned() }
    }
}

/// Returns the alternatives of a schema that contains nothing else.
fn only_options(schema: &Value) -> Option<&[Value]> {
    let mut own = schema.as_object()?.iter().filter(|(key, _)| !ASIDE.contains(&key.as_str()));
    let (key, options) = own.next()?;
    let is_only = own.next().is_none() && matches!(key.as_str(), "anyOf" | "oneOf");
    if is_only { options.as_array().map(Vec::as_slice) } else { None }
}

/// Collects the strings that a value is written with.
fn gather<'a>(value: &'a Value, texts: &mut Vec<Cow<'a, str>>) {
    match value {
        Value::String(text) => texts.push(Cow::Borrowed(text)),
        Value::Array(list) => list.iter().for_each(|inner| gather(inner, texts)),
        Value::Object(fields) => {
            for (key, inner) in fields {
                texts.push(Cow::Borrowed(key));
                gather(inner, texts);
            }
        }
        other => texts.push(Cow::Owned(other.to_string())),
    }
}

/// Counts the characters of strings; a shared prefix counts once, as in the automaton.
fn letters_of(texts: &mut [Cow<'_, str>]) -> usize {
    texts.sort_unstable();
    let mut before = &[][..];
    let mut letters = 0;
    for text in &*texts {
        let text = text.as_bytes();
        let shared = text.iter().zip(before).take_while(|(a, b)| a == b).count();
        letters += text.len() - shared;
        before = text;
    }
    letters
}

fn list<'a>(
    fields: &'a Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a Value> + use<'a> {
    fields.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// Counts the positions of a pattern where one character can lead to more than one state.
pub(crate) fn choices_of(pattern: &str) -> u64 {
    let count = pattern.bytes().filter(|byte| b"|*+?{[.\\".contains(byte)).count();
    count as u64
}

/// Splits a step into an integer and its number of decimal places.
fn decimal(step: f64) -> Option<(u64, u32)> {
    let mut step = step;
    let mut digits = 0;
    while step.fract() != 0.0 {
        step *= 10.0;
        digits += 1;
        if digits > DIGITS_MAX {
            return None;
        }
    }
    (step <= STEP_MAX as f64).then_some((step as u64, digits))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

/// Keywords whose schemas are expanded separately.
const APART: [&str; 5] = ["allOf", "anyOf", "oneOf", "$defs", "definitions"];

/// Keywords that do not constrain a value.
const ASIDE: [&str; 4] = ["$defs", "definitions", "$id", "$anchor"];

/// Values, and alternatives of values, visited for one request.
const STEPS_MAX: usize = 200_000;
/// Patterns of one request, in all their combinations: each may take a millisecond or two.
pub(crate) const PATTERNS_MAX: usize = 256;
/// Characters of the constants and names of one request, each of which is a state of the automaton.
const LETTERS_MAX: usize = 1 << 16;
/// Alternatives for one value when several lists are combined.
const WAYS_MAX: usize = 1024;
/// The product of the choices of the patterns of one value.
pub(crate) const CHOICES_MAX: u64 = 1 << 16;
/// How many choices a format counts for.
const FORMAT_CHOICES: u64 = 15;
pub(crate) const PATTERN_BYTES_MAX: usize = 4096;
/// Properties of one object, and items listed one by one: the grammar compiler visits them recursively.
pub(crate) const PROPERTIES_MAX: usize = 1024;
/// Numbers are counted by their remainders; this is how many there may be.
const STEP_MAX: u64 = 10_000;
const DIGITS_MAX: u32 = 6;
/// The same for all numbers of a request.
const REMAINDERS_MAX: u64 = 20_000;
const BOUNDS: [&str; 4] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
/// Deepest nesting of conjunctions.
const DEPTH_MAX: usize = 64;
const TOO_MUCH: &str = "is more than a grammar can be made of; use fewer alternatives";
