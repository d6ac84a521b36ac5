//! Values that grow: what a JSON text says so far, while it arrives.
//!
//! ```
//! use stream::partial::PartialJson;
//!
//! let mut json = PartialJson::default();
//! json.push(r#"{"title": "Tea", "steps": ["Boil wat"#)?;
//! assert_eq!(json.value().unwrap().to_string(), r#"{"title":"Tea","steps":["Boil wat"]}"#);
//! json.push(r#"er"], "minutes": 1"#)?;
//! // The number may go on.
//! assert_eq!(json.value().unwrap().to_string(), r#"{"title":"Tea","steps":["Boil water"]}"#);
//! json.push("2}")?;
//! assert!(json.is_complete());
//! assert_eq!(json.value().unwrap()["minutes"], 12);
//! # Ok::<(), stream::partial::PartialError>(())
//! ```
//!
//! Every value is a *prefix* of the final one: a string is a beginning of it; a list has its first items, of which the
//! last may be a prefix; an object has its first properties, of which the last may be a prefix; numbers, `true`, `false`
//! and `null` are there once they are complete. Only a property that is there twice can take a value back.
//!
//! The value is built in place: a push costs what it adds, times the depth.

use serde_json::{Map, Value};

use crate::escape::Unescape;
use crate::json::{Event, JsonError, Reader};

/// Deepest nesting of a value.
pub const DEPTH_MAX: usize = 128;
/// Longest text, in bytes: a value takes many times the memory of its text.
pub const BYTES_MAX: usize = 32 << 20;

/// Why a text has no value. Permanent; the value stays as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartialError {
    /// It is not JSON.
    #[error("not JSON: {0}")]
    Json(JsonError),
    /// Something follows the value.
    #[error("something follows the value")]
    Trailing,
    /// A number is too large to be represented.
    #[error("a number is too large")]
    Number,
    /// The value nests too deeply.
    #[error("nested more than {DEPTH_MAX} levels deep")]
    Depth,
    /// The text is too long.
    #[error("longer than {BYTES_MAX} bytes")]
    TooLong,
}

/// Builds a value from a text that arrives in pieces.
#[derive(Clone, Debug, Default)]
pub struct PartialJson {
    reader: Reader,
    tree: Tree,
    bytes: usize,
    complete: bool,
    failed: Option<PartialError>,
}

impl PartialJson {
    /// Reads the next piece. An error is permanent: every later push fails with it again.
    pub fn push(&mut self, text: &str) -> Result<(), PartialError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.read(text).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn read(&mut self, text: &str) -> Result<(), PartialError> {
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > BYTES_MAX {
            return Err(PartialError::TooLong);
        }
        let tree = &mut self.tree;
        let read = self.reader.push(text, |event| tree.event(event));
        if let Some(problem) = tree.problem.take() {
            return Err(problem);
        }
        let progress = read.map_err(PartialError::Json)?;
        self.complete = progress.done;
        let rest = &text[progress.consumed..];
        let blank = |c: char| matches!(c, ' ' | '\n' | '\t' | '\r');
        if rest.trim_start_matches(blank).is_empty() { Ok(()) } else { Err(PartialError::Trailing) }
    }

    /// Ends the text, which a number at the top needs, and fails if the value is not complete.
    pub fn finish(&mut self) -> Result<(), PartialError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let tree = &mut self.tree;
        let read = self.reader.finish(|event| tree.event(event)).map_err(PartialError::Json);
        let ended = tree.problem.take().map_or(read, Err);
        self.complete = ended.is_ok();
        ended.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Returns the value so far; none before it has begun.
    pub fn value(&self) -> Option<&Value> {
        self.tree.root.as_ref()
    }

    /// Returns whether the value is complete.
    pub fn is_complete(&self) -> bool {
        self.complete && self.failed.is_none()
    }

    /// Returns the length of the text so far, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns how many parts of the value are open, one within the other: lists, objects, and the string at their end.
    pub fn open_parts(&self) -> usize {
        self.tree.open.len() + usize::from(self.tree.token == Token::Text)
    }

    /// Calls `look` with the value, without as many of its innermost open parts: for readers that need a part whole or not
    /// at all. The whole value cannot be left out.
    pub fn without_open_parts<T>(
        &mut self,
        parts: usize,
        look: impl FnOnce(&Value) -> T,
    ) -> Option<T> {
        let kept = self.open_parts().checked_sub(parts).filter(|kept| *kept > 0)?;
        self.tree.without(kept, look)
    }
}

/// A value, and the way to where it grows.
#[derive(Clone, Debug, Default)]
struct Tree {
    root: Option<Value>,
    /// The open containers, from the outside to the inside.
    open: Vec<Container>,
    token: Token,
    /// The raw text of a key or a number.
    raw: String,
    unescape: Unescape,
    problem: Option<PartialError>,
}

/// An open container, and which of its members came last.
#[derive(Clone, Debug)]
enum Container {
    List,
    Object(String),
}

/// What is open besides containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Token {
    #[default]
    None,
    Key,
    Text,
    Number,
}

impl Tree {
    fn event(&mut self, event: Event<'_>) {
        if self.problem.is_some() {
            return;
        }
        match event {
            Event::ObjectStart => self.begin(Container::Object(String::new())),
            Event::ArrayStart => self.begin(Container::List),
            Event::ObjectEnd | Event::ArrayEnd => {
                self.open.pop();
            }
            Event::KeyStart => {
                self.token = Token::Key;
                self.raw.clear();
            }
            Event::Key(piece) => {
                let raw = &mut self.raw;
                self.unescape.push(piece, |text| raw.push_str(text));
            }
            Event::KeyEnd => {
                let raw = &mut self.raw;
                self.unescape.finish(|text| raw.push_str(text));
                self.token = Token::None;
                if let Some(Container::Object(key)) = self.open.last_mut() {
                    *key = std::mem::take(&mut self.raw);
                }
            }
            Event::StringStart => {
                self.add(Value::String(String::new()));
                self.token = Token::Text;
            }
            Event::Str(piece) => self.text(|unescape, sink| {
                unescape.push(piece, sink);
            }),
            Event::StringEnd => {
                self.text(|unescape, sink| unescape.finish(sink));
                self.token = Token::None;
            }
            Event::Number(piece) => {
                if self.token != Token::Number {
                    self.token = Token::Number;
                    self.raw.clear();
                }
                self.raw.push_str(piece);
            }
            Event::NumberEnd => {
                self.token = Token::None;
                match serde_json::from_str(&self.raw) {
                    Ok(number) => self.add(number),
                    Err(_) => self.problem = Some(PartialError::Number),
                }
            }
            Event::Bool(value) => self.add(Value::Bool(value)),
            Event::Null => self.add(Value::Null),
        }
    }

    fn begin(&mut self, container: Container) {
        if self.open.len() == DEPTH_MAX {
            self.problem = Some(PartialError::Depth);
            return;
        }
        self.add(match container {
            Container::List => Value::Array(Vec::new()),
            Container::Object(_) => Value::Object(Map::new()),
        });
        self.open.push(container);
    }

    /// Adds a value where the text is.
    fn add(&mut self, value: Value) {
        let Some((last, outer)) = self.open.split_last() else {
            self.root = Some(value);
            return;
        };
        match (last, descend(self.root.as_mut(), outer)) {
            (Container::List, Some(Value::Array(items))) => items.push(value),
            (Container::Object(key), Some(Value::Object(members))) => {
                members.insert(key.clone(), value);
            }
            _ => {}
        }
    }

    /// Adds to the open string.
    fn text(&mut self, read: impl FnOnce(&mut Unescape, &mut dyn FnMut(&str))) {
        if let Some(Value::String(text)) = descend(self.root.as_mut(), &self.open) {
            read(&mut self.unescape, &mut |piece| text.push_str(piece));
        }
    }

    /// Takes the last member out of the `kept`th open container while `look` looks.
    fn without<T>(&mut self, kept: usize, look: impl FnOnce(&Value) -> T) -> Option<T> {
        let (last, outer) = self.open.get(..kept)?.split_last()?;
        let taken = match (last, descend(self.root.as_mut(), outer)?) {
            (Container::List, Value::Array(items)) => items.pop()?,
            (Container::Object(key), Value::Object(members)) => members.shift_remove(key)?,
            _ => return None,
        };
        let seen = look(self.root.as_ref()?);
        match (last, descend(self.root.as_mut(), outer)?) {
            (Container::List, Value::Array(items)) => items.push(taken),
            (Container::Object(key), Value::Object(members)) => {
                members.insert(key.clone(), taken);
            }
            _ => {}
        }
        Some(seen)
    }
}

/// Follows the last member of each of these containers.
fn descend<'a>(root: Option<&'a mut Value>, through: &[Container]) -> Option<&'a mut Value> {
    through.iter().try_fold(root?, |value, container| match (container, value) {
        (Container::List, Value::Array(items)) => items.last_mut(),
        (Container::Object(key), Value::Object(members)) => members.get_mut(key),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{DEPTH_MAX, PartialError, PartialJson};

    /// Returns whether `part` is a prefix of `whole`, as the documentation says.
    fn is_prefix(part: &Value, whole: &Value) -> bool {
        match (part, whole) {
            (Value::String(part), Value::String(whole)) => whole.starts_with(part.as_str()),
            (Value::Array(part), Value::Array(whole)) => {
                let Some((last, before)) = part.split_last() else { return true };
                whole.starts_with(before)
                    && whole.get(before.len()).is_some_and(|whole| is_prefix(last, whole))
            }
            (Value::Object(part), Value::Object(whole)) => {
                let same_order = part.keys().zip(whole.keys()).all(|(a, b)| a == b);
                let last = part.len().saturating_sub(1);
                let values = part.values().zip(whole.values()).enumerate();
                part.len() <= whole.len() && same_order && { values }.all(
                    |(index, (part, whole))| {
                        if index == last { is_prefix(part, whole) } else { part == whole }
                    },
                )
            }
            (part, whole) => part == whole,
        }
    }

    #[track_caller]
    fn check(pieces: &[&str], want: &[Value]) {
        let mut json = PartialJson::default();
        for (piece, want) in pieces.iter().zip(want) {
            json.push(piece).unwrap();
            assert_eq!(json.value().unwrap_or(&Value::Null), want, "{piece}");
        }
    }

    #[test]
    fn values_grow() {
        check(
            &[" ", "\"", "a\\", "n", "\""],
            &[json!(null), json!(""), json!("a"), json!("a\n"), json!("a\n")],
        );
        check(
            &["{", "\"a", "\":", "tr", "ue"],
            &[json!({}), json!({}), json!({}), json!({}), json!({"a": true})],
        );
        check(&["[1", "2", ",", "3]"], &[json!([]), json!([]), json!([12]), json!([12, 3])]);
        check(
            &["[{\"a\":[\"x", "y\"]},[", "]]"],
            &[json!([{"a": ["x"]}]), json!([{"a": ["xy"]}, []]), json!([{"a": ["xy"]}, []])],
        );
        // Half of a character is not shown.
        check(&["\"\\ud83d", "\\ude00", "\""], &[json!(""), json!("😀"), json!("😀")]);
        check(&["{\"a\":1,\"a\":\"", "x"], &[json!({"a": ""}), json!({"a": "x"})]);
    }

    #[test]
    fn what_is_no_json_fails_for_good() {
        let deep = "[".repeat(DEPTH_MAX + 1);
        for (text, want) in [
            ("{\"a\":}", "not JSON: unexpected character at byte 5"),
            ("```json", "not JSON: unexpected character at byte 0"),
            ("{} x", "something follows the value"),
            ("[1e999,", "a number is too large"),
            (&deep, "nested more than 128 levels deep"),
        ] {
            let mut json = PartialJson::default();
            let error = json.push(text).unwrap_err();
            assert_eq!(error.to_string(), want);
            assert_eq!((json.push("1"), json.finish()), (Err(error.clone()), Err(error)));
            assert!(!json.is_complete());
        }
        let mut json = PartialJson::default();
        json.push("[").unwrap();
        assert_eq!(json.push(&" ".repeat(super::BYTES_MAX)), Err(PartialError::TooLong));
        let mut json = PartialJson::default();
        json.push("{} \n").unwrap();
        json.push(" ").unwrap();
        assert!(json.is_complete());
        assert_eq!(json.push("}"), Err(PartialError::Trailing));
    }

    #[test]
    fn open_parts_can_be_left_out() {
        let mut json = PartialJson::default();
        json.push(r#"{"a": 1, "b": [2, {"c": "x"#).unwrap();
        assert_eq!(json.open_parts(), 4);
        let wants = [json!({"a": 1, "b": [2, {}]}), json!({"a": 1, "b": [2]}), json!({"a": 1})];
        for (parts, want) in wants.iter().enumerate() {
            assert_eq!(json.without_open_parts(parts + 1, Value::clone).as_ref(), Some(want));
        }
        assert_eq!(json.without_open_parts(4, Value::clone), None);
        assert_eq!(json.value(), Some(&json!({"a": 1, "b": [2, {"c": "x"}]})));
        json.push("y\"").unwrap();
        // Only the object, the list and the object are open.
        assert_eq!(json.without_open_parts(1, Value::clone), Some(json!({"a": 1, "b": [2]})));
        json.push("}]}").unwrap();
        assert_eq!(json.value(), Some(&json!({"a": 1, "b": [2, {"c": "xy"}]})));
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,8}|[\"\\\\\n\u{1f600}]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-c\"\u{1f600}]{0,3}", inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Writes characters beyond ASCII as escapes.
    fn escaped(text: &str) -> String {
        let mut units = [0; 2];
        let escape = |c: char| match c.is_ascii() {
            true => c.to_string(),
            false => {
                c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
            }
        };
        text.chars().map(escape).collect()
    }

    proptest! {
        /// However the text is cut, every value is a prefix of the next and of the last, which is the whole.
        #[test]
        fn every_value_is_a_prefix(value in values(), pretty: bool, ascii: bool, sizes in prop::collection::vec(1usize..9, 1..50)) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap();
            let text = if ascii { escaped(&text) } else { text };
            let whole: Value = serde_json::from_str(&text).unwrap();
            let mut json = PartialJson::default();
            let (mut before, mut rest) = (None, text.as_str());
            for size in sizes.iter().cycle() {
                let (piece, more) = rest.split_at(rest.ceil_char_boundary(*size));
                rest = more;
                json.push(piece).unwrap();
                if let Some(value) = json.value() {
                    prop_assert!(is_prefix(value, &whole), "{value} of {whole}");
                    let grown = before.as_ref().is_none_or(|before| is_prefix(before, value));
                    prop_assert!(grown, "{before:?} of {value}");
                    before = Some(value.clone());
                }
                for parts in 0..json.open_parts() {
                    let part = json.without_open_parts(parts, Value::clone);
                    prop_assert!(part.is_none_or(|part| is_prefix(&part, &whole)));
                    prop_assert_eq!(json.value(), before.as_ref());
                }
                if rest.is_empty() {
                    break;
                }
            }
            json.finish().unwrap();
            prop_assert!(json.is_complete());
            prop_assert_eq!(json.value(), Some(&whole));
        }
    }
}
