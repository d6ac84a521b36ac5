//! Detects schemas that refer to themselves with nothing in between.
//!
//! A list may contain lists, so its schema may refer to itself. But what a reference, `allOf`, `anyOf` and
//! `oneOf` lead to applies to the same value: a schema that returns to itself through these alone constrains
//! nothing, and cannot become a grammar.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::Value;

/// Which schemas apply to the same value as another.
#[derive(Default)]
pub(super) struct Same<'a> {
    /// All schemas with outgoing edges, in the order in which they were found.
    from: Vec<&'a Value>,
    to: HashMap<*const Value, Vec<Step<'a>>>,
    /// Names that schemas give themselves.
    names: HashMap<&'a str, &'a Value>,
    /// References to such a name, which may be defined later.
    named: Vec<(&'a Value, &'a str)>,
}

#[derive(Clone, Copy)]
struct Step<'a> {
    to: &'a Value,
    is_reference: bool,
}

impl<'a> Same<'a> {
    /// Records a part of a schema.
    pub(super) fn part(&mut self, from: &'a Value, to: &'a Value) {
        self.step(from, Step { to, is_reference: false });
    }

    /// Records the target of a reference.
    pub(super) fn reference(&mut self, from: &'a Value, to: &'a Value) {
        self.step(from, Step { to, is_reference: true });
    }

    /// Records a reference by name.
    pub(super) fn reference_by_name(&mut self, from: &'a Value, name: &'a str) {
        self.named.push((from, name));
    }

    /// Records the name of a schema.
    pub(super) fn name(&mut self, name: &'a str, schema: &'a Value) {
        self.names.insert(name, schema);
    }

    fn step(&mut self, from: &'a Value, step: Step<'a>) {
        let steps = self.to.entry(from).or_default();
        if steps.is_empty() {
            self.from.push(from);
        }
        steps.push(step);
    }

    /// Finds a schema whose reference leads back to it.
    pub(super) fn cycle(mut self) -> Option<&'a Value> {
        for (from, name) in std::mem::take(&mut self.named) {
            if let Some(to) = self.names.get(name).copied() {
                self.reference(from, to);
            }
        }
        let mut seen = HashMap::new();
        self.from.iter().find_map(|from| self.cycle_from(from, &mut seen))
    }

    /// Visits everything reachable that was not seen before; iterative, since a chain may be long.
    fn cycle_from(
        &self,
        from: &'a Value,
        seen: &mut HashMap<*const Value, Visit>,
    ) -> Option<&'a Value> {
        if seen.contains_key(&std::ptr::from_ref(from)) {
            return None;
        }
        seen.insert(from, Visit::Open);
        // Each schema on the path, with the index of its next edge.
        let mut way = vec![(from, 0)];
        while let Some((at, next)) = way.last_mut() {
            let Some(step) = self.steps(at).get(*next) else {
                seen.insert(*at, Visit::Done);
                way.pop();
                continue;
            };
            *next += 1;
            match seen.get(&std::ptr::from_ref(step.to)) {
                None => {
                    seen.insert(step.to, Visit::Open);
                    way.push((step.to, 0));
                }
                Some(Visit::Done) => {}
                Some(Visit::Open) => {
                    let begin = way.iter().rposition(|(at, _)| std::ptr::eq(*at, step.to));
                    // Parts are nested, so a reference must have closed the cycle.
                    let is_reference = |(at, next): &&(&'a Value, usize)| {
                        self.steps(at).get(next - 1).is_some_and(|step| step.is_reference)
                    };
                    let closing = way[begin.unwrap_or_default()..].iter().find(is_reference);
                    return closing.map(|(at, _)| *at);
                }
            }
        }
        None
    }

    fn steps(&self, from: &Value) -> &[Step<'a>] {
        self.to.get(&std::ptr::from_ref(from)).map_or(&[], Vec::as_slice)
    }
}

#[derive(Clone, Copy)]
enum Visit {
    /// It is on the current path.
    Open,
    /// No cycle is reachable from it.
    Done,
}

/// Returns the path of a part of a value.
pub(super) fn path_of(part: &Value, whole: &Value) -> Option<String> {
    let mut path = String::new();
    search(part, whole, &mut path).then_some(path)
}

/// Recursion is safe: the depth of values is limited when they are parsed.
fn search(part: &Value, whole: &Value, path: &mut String) -> bool {
    if std::ptr::eq(part, whole) {
        return true;
    }
    let length = path.len();
    let mut is_in = |inner: &Value, name: std::fmt::Arguments<'_>| {
        let _ = path.write_fmt(name);
        let found = search(part, inner, path);
        if !found {
            path.truncate(length);
        }
        found
    };
    match whole {
        Value::Array(list) => {
            list.iter().enumerate().any(|(at, inner)| is_in(inner, format_args!("[{at}]")))
        }
        Value::Object(fields) => {
            fields.iter().any(|(key, inner)| is_in(inner, format_args!(".{key}")))
        }
        _ => false,
    }
}
