//! Reads JSON into the same tree as TOML, so that errors in either are reported with their position.

use std::ops::Range;

use crate::error::ConfigError;
use crate::strict_json;
use crate::tree::{Entry, Node, Origin, Source, Table, Value};

/// Parses the source numbered `index`. A key that is twice in one object is refused.
pub(crate) fn parse(sources: &[Source<'_>], index: usize) -> Result<Node, ConfigError> {
    let text = sources[index].text;
    if let Err(error) = strict_json::parse(text) {
        let offset = offset(text, error.line(), error.column());
        let at = Box::new(Origin::new(index, offset..offset).place(sources));
        let problem = error.to_string();
        // The error has the position already.
        let problem = problem.split(" at line ").next().unwrap_or_default().to_owned();
        return Err(ConfigError::SyntaxJson { at, problem });
    }
    Ok(Reader { text, at: 0, source: index }.value())
}

/// Returns the byte offset of a line and a column of serde_json, which counts columns in bytes.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let before = text.split_inclusive('\n').take(line.saturating_sub(1));
    let start: usize = before.map(str::len).sum();
    (start + column.saturating_sub(1)).min(text.len())
}

/// Reads a text that serde_json has accepted, so that it is valid JSON with at most 128 levels. So it may recurse, and
/// need not handle invalid input; even then it would not read beyond the end.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    source: usize,
}

impl Reader<'_> {
    fn value(&mut self) -> Node {
        self.blanks();
        let start = self.at;
        let value = match self.peek() {
            b'{' => Value::Table(self.members()),
            b'[' => Value::Array(self.items()),
            b'"' => Value::String(self.string()),
            _ => self.word(),
        };
        Node { origin: self.origin(start..self.at), value }
    }

    fn members(&mut self) -> Table {
        let mut table = Table::new();
        self.at += 1;
        while self.goes_on(b'}') {
            let start = self.at;
            let name = self.string();
            let key = self.origin(start..self.at);
            self.blanks();
            self.at += 1; // the colon
            let node = self.value();
            table.insert(name, Entry { key, node });
        }
        table
    }

    fn items(&mut self) -> Vec<Node> {
        let mut items = Vec::new();
        self.at += 1;
        while self.goes_on(b']') {
            items.push(self.value());
        }
        items
    }

    /// Skips white space and a comma. At the end of the object or list, skips that, too, and returns false.
    fn goes_on(&mut self, end: u8) -> bool {
        self.blanks();
        if self.peek() == b',' {
            self.at += 1;
            self.blanks();
        }
        if self.at < self.text.len() && self.peek() != end {
            return true;
        }
        self.at += 1;
        false
    }

    fn string(&mut self) -> String {
        let start = self.at;
        self.at += 1;
        while self.at < self.text.len() && self.peek() != b'"' {
            self.at += if self.peek() == b'\\' { 2 } else { 1 };
        }
        self.at = self.text.len().min(self.at + 1);
        self.text
            .get(start..self.at)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// Reads a number, a boolean or null.
    fn word(&mut self) -> Value {
        let rest = &self.text[self.at.min(self.text.len())..];
        let ends = |c: char| matches!(c, ',' | ']' | '}') || c.is_ascii_whitespace();
        let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
        // At least one byte, so that reading always ends.
        self.at += word.len().max(1);
        match word {
            "true" => Value::Boolean(true),
            "false" => Value::Boolean(false),
            "null" => Value::Null,
            // Numbers are read by serde_json, as in all other places that read the file.
            number => match serde_json::from_str::<serde_json::Number>(number) {
                Ok(number) => number
                    .as_i128()
                    .map(Value::Integer)
                    .unwrap_or_else(|| Value::Float(number.as_f64().unwrap_or(f64::NAN))),
                Err(_) => Value::Float(f64::NAN),
            },
        }
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
        }
    }

    /// Returns the next byte; zero at the end.
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or_default()
    }

    fn origin(&self, span: Range<usize>) -> Origin {
        Origin::new(self.source, span)
    }
}

/// Converts a value to JSON; none if it has a date, or a number that is not finite.
pub(crate) fn to_json(node: &Node) -> Option<serde_json::Value> {
    Some(match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Boolean(on) => (*on).into(),
        Value::String(text) => text.clone().into(),
        Value::Integer(number) => match (u64::try_from(*number), i64::try_from(*number)) {
            (Ok(number), _) => number.into(),
            (_, Ok(number)) => number.into(),
            // serde_json reads such an integer as a floating point number, too.
            _ => serde_json::Number::from_f64(*number as f64)?.into(),
        },
        Value::Float(number) => serde_json::Number::from_f64(*number)?.into(),
        Value::Datetime(_) => return None,
        Value::Array(items) => items.iter().map(to_json).collect::<Option<Vec<_>>>()?.into(),
        Value::Table(table) => {
            // In the order of the text: local models write arguments in the order of the schema.
            let mut entries: Vec<_> = table.iter().collect();
            entries.sort_by_key(|(_, entry)| &entry.key);
            let members = entries
                .into_iter()
                .map(|(key, entry)| to_json(&entry.node).map(|value| (key.clone(), value)));
            serde_json::Value::Object(members.collect::<Option<_>>()?)
        }
    })
}

/// Returns the value at a JSON pointer, or the nearest value around it if there is none.
pub(crate) fn at_pointer<'a>(node: &'a Node, pointer: &str) -> &'a Node {
    let mut node = node;
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        let child = match &node.value {
            Value::Table(table) => table.get(&part).map(|entry| &entry.node),
            Value::Array(items) => part.parse().ok().and_then(|index: usize| items.get(index)),
            _ => None,
        };
        match child {
            Some(child) => node = child,
            None => break,
        }
    }
    node
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Node, ConfigError> {
        parse(&[Source { name: "f.json", text }], 0)
    }

    #[test]
    fn places() {
        let text = "{\n  \"a\": [1, -2.5e1, \"ä\\\"}\"],\n  \"b\": {\"~/\": null, \"c\": true}\n}";
        let node = read(text).unwrap();
        let check = |pointer: &str, want: &str| {
            let found = at_pointer(&node, pointer);
            assert_eq!(&text[found.origin.start..found.origin.end], want, "{pointer}");
        };
        check("", text);
        check("/a", "[1, -2.5e1, \"ä\\\"}\"]");
        check("/a/1", "-2.5e1");
        check("/a/2", "\"ä\\\"}\"");
        check("/b/~0~1", "null");
        check("/b/c", "true");
        check("/b/none/deeper", "{\"~/\": null, \"c\": true}");
    }

    #[test]
    fn mistakes_have_a_place() {
        let check = |text: &str, line: usize, column: usize, problem: &str| {
            let error = read(text).unwrap_err();
            let at = error.place().position;
            assert_eq!((at.line, at.column), (line, column), "{error}");
            assert!(error.to_string().contains(problem), "{error}");
        };
        check("{\n \"a\": }", 2, 7, "expected value");
        check("", 1, 1, "EOF");
        check("[1, 2", 1, 5, "EOF");
        check("{\"a\": 1,\n\"a\": 2}", 2, 3, "twice");
        check(&"[".repeat(1000), 1, 128, "recursion");
    }

    /// Any JSON value.
    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            (-1e300..1e300).prop_map(|number: f64| number.into()),
            ".{0,8}".prop_map(serde_json::Value::String),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map(".{0,6}", inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// The tree has the value that was written, with and without white space.
        #[test]
        fn a_tree_is_what_was_written(value in json(), pretty: bool) {
            let text = if pretty { format!("{value:#}") } else { value.to_string() };
            let want = strict_json::parse(&text).unwrap();
            let got = to_json(&read(&text).unwrap()).unwrap();
            // As text, which has the order of keys.
            prop_assert_eq!(got.to_string(), want.to_string());
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]{}\",:\\\\ u0-9a-fnulltrue.e\\-+\n]{0,60}") {
            match (read(&text), strict_json::parse(&text)) {
                (Ok(node), Ok(value)) => prop_assert_eq!(to_json(&node), Some(value)),
                (Err(_), Err(_)) => {}
                (tree, value) => prop_assert!(false, "{:?} {:?}", tree, value),
            }
        }
    }
}
