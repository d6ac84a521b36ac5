//! Writes arguments that arrive value by value, each with its path, as one JSON text.
//!
//! A value is written as soon as it arrives, a string piece by piece, and containers are closed once a path
//! leads elsewhere. So only the path to the current value is kept, and the keys that a later path must not
//! return to.

use std::collections::HashSet;

use crate::dialect::{DEPTH_MAX, HELD_BYTES_MAX, NAME_BYTES_MAX};
use crate::escape::escape;

/// Writes the arguments of one call.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The open containers, outermost first; the content of each is at its step.
    levels: Vec<Level>,
    /// The current value is an unfinished string.
    in_text: bool,
    key_bytes: usize,
}

#[derive(Debug)]
struct Level {
    /// Where the current value is in this container.
    at: Step,
    /// The keys before it.
    keys: HashSet<String>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Item(u64),
}

/// A value, or a piece of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// A piece of a string.
    Text(&'a str),
    /// Anything that is written verbatim.
    Raw(&'a str),
    /// None was given: the end of a string, or `null`.
    Missing,
}

/// Why a value cannot be written at a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Misplaced {
    Path,
    /// The path leads back to a closed place.
    Again,
    /// It is too long, or there are too many.
    Limit,
}

impl Writer {
    /// Writes a value at a path; `goes_on` if more of it follows.
    pub(super) fn value(
        &mut self,
        path: &str,
        value: Value<'_>,
        goes_on: bool,
        json: &mut String,
    ) -> Result<(), Misplaced> {
        let path = steps(path)?;
        let is_here = self.levels.iter().map(|level| &level.at).eq(&path);
        if !(is_here && self.in_text) {
            if let (Value::Missing, true) = (value, goes_on) {
                // Nothing is known about the value yet.
                return Ok(());
            }
            self.go_to(path, json)?;
            match value {
                Value::Text(_) => json.push('"'),
                Value::Raw(raw) => json.push_str(raw),
                Value::Missing => json.push_str("null"),
            }
            self.in_text = matches!(value, Value::Text(_));
        }
        if let Value::Text(piece) = value {
            escape(piece, |text| json.push_str(text));
        }
        if self.in_text && !goes_on {
            json.push('"');
            self.in_text = false;
        }
        Ok(())
    }

    /// Closes what is open; an unfinished string stays open, and so does everything around it.
    pub(super) fn finish(&mut self, json: &mut String) {
        if !self.in_text {
            self.close_to(0, json);
        }
    }

    /// Leaves the current value for another one.
    fn go_to(&mut self, path: Vec<Step>, json: &mut String) -> Result<(), Misplaced> {
        let common =
            self.levels.iter().zip(&path).take_while(|(level, step)| level.at == **step).count();
        if let Some(level) = self.levels.get(common) {
            match (&level.at, &path.get(common)) {
                (Step::Key(_), Some(Step::Key(key))) if level.keys.contains(key) => {
                    return Err(Misplaced::Again);
                }
                (Step::Key(_), Some(Step::Key(_))) => {}
                (Step::Item(before), Some(Step::Item(item))) if *item == before + 1 => {}
                (Step::Item(before), Some(Step::Item(item))) if item <= before => {
                    return Err(Misplaced::Again);
                }
                (_, None) => return Err(Misplaced::Again),
                _ => return Err(Misplaced::Path),
            }
        } else if common == self.levels.len() && !self.levels.is_empty() {
            // The current value would have to become a container, or be written twice.
            return Err(Misplaced::Again);
        }
        // An array must be written from its first item on.
        let new = path.get(common + usize::from(common < self.levels.len())..).unwrap_or_default();
        if path.is_empty() || new.iter().any(|step| matches!(step, Step::Item(1..))) {
            return Err(Misplaced::Path);
        }
        if path.len() > DEPTH_MAX {
            return Err(Misplaced::Limit);
        }
        let bytes: usize = path[common..].iter().map(Step::key_bytes).sum();
        if self.key_bytes + bytes > HELD_BYTES_MAX {
            return Err(Misplaced::Limit);
        }
        self.key_bytes += bytes;

        if self.in_text {
            json.push('"');
            self.in_text = false;
        }
        let mut path = path.into_iter().skip(common);
        if common < self.levels.len() {
            self.close_to(common + 1, json);
            json.push(',');
            if let (Some(level), Some(step)) = (self.levels.last_mut(), path.next()) {
                step.write(json);
                if let Step::Key(key) = std::mem::replace(&mut level.at, step) {
                    level.keys.insert(key);
                }
            }
        }
        for step in path {
            json.push(if matches!(step, Step::Key(_)) { '{' } else { '[' });
            step.write(json);
            self.levels.push(Level { at: step, keys: HashSet::new() });
        }
        Ok(())
    }

    fn close_to(&mut self, depth: usize, json: &mut String) {
        while self.levels.len() > depth
            && let Some(level) = self.levels.pop()
        {
            json.push(if matches!(level.at, Step::Key(_)) { '}' } else { ']' });
            // Nothing can return to a closed container, so its keys can be dropped.
            let keys: usize = level.keys.iter().map(String::len).sum();
            self.key_bytes -= keys + level.at.key_bytes();
        }
    }
}

impl Step {
    fn key_bytes(&self) -> usize {
        match self {
            Self::Key(key) => key.len(),
            Self::Item(_) => 0,
        }
    }

    fn write(&self, json: &mut String) {
        if let Self::Key(key) = self {
            json.push('"');
            escape(key, |text| json.push_str(text));
            json.push_str("\":");
        }
    }
}

/// Parses a path such as `$.rooms[0]['the light']`.
fn steps(path: &str) -> Result<Vec<Step>, Misplaced> {
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = if let Some(inner) = rest.strip_prefix('[') {
            match inner.chars().next() {
                Some(quote @ ('\'' | '"')) => {
                    let (key, after) = quoted(&inner[1..], quote).ok_or(Misplaced::Path)?;
                    (Step::Key(key), after.strip_prefix(']').ok_or(Misplaced::Path)?)
                }
                _ => {
                    let (digits, after) = inner.split_once(']').ok_or(Misplaced::Path)?;
                    (Step::Item(digits.trim().parse().map_err(|_| Misplaced::Path)?), after)
                }
            }
        } else {
            // Only the first key may lack its dot, for paths without the dollar sign.
            let name = match rest.strip_prefix('.') {
                Some(name) => name,
                None if steps.is_empty() => rest,
                None => return Err(Misplaced::Path),
            };
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return Err(Misplaced::Path);
            }
            (Step::Key(name[..end].to_owned()), &name[end..])
        };
        if step.key_bytes() > NAME_BYTES_MAX || steps.len() > DEPTH_MAX {
            return Err(Misplaced::Limit);
        }
        steps.push(step);
        rest = after;
    }
    Ok(steps)
}

/// Reads a quoted key up to its quote; returns what follows it.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut end = 0;
    let mut is_escape = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escape => is_escape = false,
            '\\' => is_escape = true,
            c if c == quote => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    let after = text.get(end..)?.strip_prefix(quote)?;
    Some((crate::json::unescape(&text[..end]), after))
}

#[cfg(test)]
mod tests {
    use super::Misplaced::{self, Again, Path};
    use super::Value::{Missing, Raw, Text};
    use super::{Value, Writer};

    #[track_caller]
    fn check(values: &[(&str, Value<'_>, bool)], want: &str) {
        let (mut writer, mut json) = (Writer::default(), String::new());
        for (path, value, goes_on) in values {
            writer.value(path, *value, *goes_on, &mut json).expect("a place");
        }
        writer.finish(&mut json);
        assert_eq!(json, want);
    }

    #[track_caller]
    fn check_misplaced(paths: &[&str], want: Misplaced) {
        let (mut writer, mut json) = (Writer::default(), String::new());
        let results: Vec<_> =
            paths.iter().map(|path| writer.value(path, Raw("1"), false, &mut json)).collect();
        let (last, before) = results.split_last().expect("a path");
        assert!(before.iter().all(Result::is_ok), "{paths:?}");
        assert_eq!(*last, Err(want), "{paths:?}");
    }

    #[test]
    fn values() {
        check(&[], "");
        check(&[("$.a", Raw("50"), false)], r#"{"a":50}"#);
        check(
            &[("$.a", Text("x"), false), ("$.b", Missing, false), ("$.c", Raw("true"), false)],
            r#"{"a":"x","b":null,"c":true}"#,
        );
        check(
            &[("$.a", Text(""), true), ("$.a", Text("l1\n\""), true), ("$.a", Text("é"), false)],
            r#"{"a":"l1\n\"é"}"#,
        );
        check(&[("$.a", Text("x"), true), ("$.a", Missing, false)], r#"{"a":"x"}"#);
        check(&[("$.a", Text("x"), true), ("$.b", Raw("1"), false)], r#"{"a":"x","b":1}"#);
        check(&[("$.a", Text("x"), true)], r#"{"a":"x"#);
        check(&[("$.a", Missing, true), ("$.a", Text("x"), false)], r#"{"a":"x"}"#);
        check(
            &[
                ("$.a.b[0].c", Raw("1"), false),
                ("$.a.b[0].d", Raw("2"), false),
                ("$.a.b[1].c", Raw("3"), false),
                ("$.a.e", Raw("4"), false),
                ("$.f[0][0]", Raw("5"), false),
                ("$.f[0][1]", Raw("6"), false),
                ("$['g h'][\"i.j\"]", Raw("7"), false),
            ],
            r#"{"a":{"b":[{"c":1,"d":2},{"c":3}],"e":4},"f":[[5,6]],"g h":{"i.j":7}}"#,
        );
        check(&[("a.b", Raw("1"), false)], r#"{"a":{"b":1}}"#);
    }

    #[test]
    fn misplaced() {
        check_misplaced(&["$.a", "$.a"], Again);
        check_misplaced(&["$.a", "$.b", "$.a"], Again);
        check_misplaced(&["$.a.b", "$.c", "$.a.d"], Again);
        check_misplaced(&["$.a", "$.a.b"], Again);
        check_misplaced(&["$.a.b", "$.a"], Again);
        check_misplaced(&["$.a[0]", "$.a[1]", "$.a[0]"], Again);
        check_misplaced(&["$.a[0]", "$.a[2]"], Path);
        check_misplaced(&["$.a[1]"], Path);
        check_misplaced(&["$.a[0]", "$.a.b"], Path);
        check_misplaced(&["$"], Path);
        check_misplaced(&["$."], Path);
        check_misplaced(&["$.a["], Path);
        check_misplaced(&["$['a"], Path);
        check_misplaced(&["$['a'"], Path);
        check_misplaced(&["$[0]b"], Path);
        check_misplaced(&["$.a[x]"], Path);
    }
}
