//! Reads the text of an answer as a value of a type, and finds the place of the problem if that fails.

use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use stream::json::{Event, Reader};

use crate::error::{Error, ErrorKind};

/// Why an answer is not a value of the requested type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The turn has no message: ask for one.
    #[error("the turn has no answer: ask for one")]
    Missing,
    /// The answer is text: give the turn a schema.
    #[error("the answer is not JSON: {reason}; give the turn a schema")]
    NotJson {
        /// The message of the parser, with line and column.
        reason: String,
    },
    /// The answer is JSON of another shape: give the turn the schema of the type.
    #[error(
        "the answer does not fit: at {}: {reason}; give the turn the schema of the type",
        Shown(path)
    )]
    Mismatch {
        /// Where in the answer, as a JSON pointer; empty for the whole answer.
        path: String,
        /// The message of the parser: what was expected, and what the answer has.
        reason: String,
    },
}

impl From<AnswerError> for Error {
    fn from(error: AnswerError) -> Self {
        Self::new(ErrorKind::Answer, error)
    }
}

struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "the whole answer" } else { self.0 })
    }
}

/// Reads an answer as a value of a type.
pub(crate) fn decode<T: DeserializeOwned>(answer: Option<&str>) -> Result<T, AnswerError> {
    let text = answer.filter(|text| !text.trim().is_empty()).ok_or(AnswerError::Missing)?;
    serde_json::from_str(text).or_else(|error| {
        let whole = serde_json::from_str(text).ok().map(whole_numbers);
        if let Some(value) = whole.and_then(|value| T::deserialize(value).ok()) {
            return Ok(value);
        }
        let reason = error.to_string();
        // serde_json can report a value of an unexpected kind as a syntax error.
        Err(match serde_json::from_str::<IgnoredAny>(text) {
            Ok(IgnoredAny) => {
                AnswerError::Mismatch { path: path_at(text, error.line(), error.column()), reason }
            }
            Err(_) => AnswerError::NotJson { reason },
        })
    })
}

/// Writes whole numbers without a fraction: `2.0` is an integer to a JSON schema, but not to serde.
fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|it| number.is_f64() && it.fract() == 0.0);
            match whole {
                Some(it) if it.abs() < EXACT_MAX => Value::from(it as i64),
                _ => Value::Number(number),
            }
        }
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, member)| (name, whole_numbers(member))).collect()
        }
        other => other,
    }
}

/// Whole numbers up to here are exact with a fraction, too.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Returns the JSON pointer of the last value that begins or ends at a place or before it.
fn path_at(text: &str, line: usize, column: usize) -> String {
    let lines_before = text.split_inclusive('\n').take(line.saturating_sub(1));
    let end = lines_before.map(str::len).sum::<usize>() + column;
    let (mut path, mut last) = (Path::default(), 0);
    // The text after the place does not matter, and may not be JSON.
    let _ = Reader::default().push_located(text, |event, at| {
        if at <= end {
            path.follow(event);
            last = at;
        }
    });
    // Some errors have the place before their value, of which nothing was read yet.
    let gap = text.as_bytes().get(last..end).unwrap_or_default();
    if gap.contains(&b':') || gap.contains(&b',') {
        path.value();
    }
    path.to_pointer()
}

/// The path to the value that was read last.
#[derive(Default)]
struct Path {
    open: Vec<Segment>,
    /// Whether the last value is the innermost open container itself.
    begins: bool,
    /// Whether a number is being read.
    number: bool,
    key: String,
}

enum Segment {
    /// The raw key of the last member, if there was one.
    Key(Option<String>),
    /// The number of items so far.
    Items(usize),
}

impl Path {
    fn follow(&mut self, event: Event<'_>) {
        match event {
            Event::ObjectStart => self.begin(Segment::Key(None)),
            Event::ArrayStart => self.begin(Segment::Items(0)),
            Event::ObjectEnd | Event::ArrayEnd => {
                self.open.pop();
                self.begins = false;
            }
            Event::KeyStart => self.key.clear(),
            Event::Key(piece) => self.key.push_str(piece),
            Event::KeyEnd => {
                if let Some(Segment::Key(key)) = self.open.last_mut() {
                    *key = Some(self.key.clone());
                }
                // An error at a key, such as an unknown one, is an error of the object.
                self.begins = true;
            }
            Event::StringStart | Event::Bool(_) | Event::Null => self.value(),
            Event::Number(_) if !self.number => {
                self.value();
                self.number = true;
            }
            Event::NumberEnd => self.number = false,
            Event::Str(_) | Event::StringEnd | Event::Number(_) => {}
        }
    }

    fn value(&mut self) {
        if let Some(Segment::Items(count)) = self.open.last_mut() {
            *count += 1;
        }
        self.begins = false;
    }

    fn begin(&mut self, segment: Segment) {
        self.value();
        self.open.push(segment);
        self.begins = true;
    }

    fn to_pointer(&self) -> String {
        let shown = self.open.len() - usize::from(self.begins && !self.open.is_empty());
        let mut pointer = String::new();
        for segment in &self.open[..shown] {
            match segment {
                Segment::Key(Some(raw)) => {
                    let name: String =
                        serde_json::from_str(&format!("\"{raw}\"")).unwrap_or_else(|_| raw.clone());
                    pointer.push('/');
                    pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                }
                Segment::Items(count) => {
                    pointer.push('/');
                    pointer.push_str(&count.saturating_sub(1).to_string());
                }
                Segment::Key(None) => {}
            }
        }
        pointer
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::{AnswerError, decode};

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Report {
        ok: bool,
        #[serde(default)]
        rows: Vec<Row>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Row {
        #[serde(rename = "a/b")]
        size: u8,
        kind: Kind,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Small,
        Large(u8),
    }

    #[track_caller]
    fn check(answer: &str, path: &str, reason: &str) {
        match decode::<Report>(Some(answer)).unwrap_err() {
            AnswerError::Mismatch { path: at, reason: why } => {
                assert_eq!(at, path, "{why}");
                assert!(why.contains(reason), "{why}");
            }
            error => panic!("{error}"),
        }
    }

    #[test]
    fn errors_say_where() {
        check("[]", "", "struct Report");
        check("7", "", "struct Report");
        check(r#"{"ok": "yes"}"#, "/ok", "a boolean");
        check("{\n \"ok\": 1\n}", "/ok", "a boolean");
        check("{}", "", "missing field `ok`");
        check(r#"{"ok": true, "no": 1}"#, "", "unknown field `no`");
        check(r#"{"ok": true, "rows": {}}"#, "/rows", "a sequence");
        check(
            r#"{"ok": true, "rows": [{"a/b": 1, "kind": "small"}, {"a/b": 300}]}"#,
            "/rows/1/a~1b",
            "300",
        );
        check(r#"{"ok": true, "rows": [{"kind": "small"}]}"#, "/rows/0", "missing field `a/b`");
        check(
            r#"{"ok": true, "rows": [{"a/b": 1, "kind": "huge"}]}"#,
            "/rows/0/kind",
            "unknown variant",
        );
        check(
            r#"{"ok": true, "rows": [{"a/b": 1, "kind": {"large": "é"}}]}"#,
            "/rows/0/kind/large",
            "u8",
        );
        check(r#"{"ok": true, "rows": [[1, null]]}"#, "/rows/0/1", "expected value");
        assert_eq!(decode::<Report>(None), Err(AnswerError::Missing));
        assert_eq!(decode::<Report>(Some(" ")), Err(AnswerError::Missing));
        for text in ["fine", "{\"ok\": tr", "{\"ok\": true} and more"] {
            assert!(
                matches!(decode::<Report>(Some(text)), Err(AnswerError::NotJson { .. })),
                "{text}"
            );
        }
    }
}
