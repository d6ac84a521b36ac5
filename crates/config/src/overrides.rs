//! One setting given as `key.path=value`, over those of files.

use crate::error::OverrideError;
use crate::tree::{self, Entry, Node, Origin, Table, Value};
use std::collections::BTreeMap;
use std::ops::Range;

/// A text such as `key.path=value`; its value is TOML, or else taken as a plain string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    name: String,
    text: String,
    keys: Vec<KeyPart>,
    value: Range<usize>,
}

impl Override {
    /// Parses a text such as `model=gpt-5.5`, `a."b.c".d=true` or `a=[1, 2]`.
    pub fn parse(text: &str) -> Result<Self, OverrideError> {
        let (keys, equals) = parse_key(text)?;
        let value = &text[equals + 1..];
        let start = text.len() - value.trim_start().len();
        let value = start..start + value.trim().len();
        // The value is left out of the name: it may be a secret, and messages end up in logs.
        let name = format!("setting {}", text[..equals].trim());
        Ok(Self { name, text: text.to_owned(), keys, value })
    }

    /// Returns the parts of the key, outermost first.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|part| part.name.as_str())
    }

    /// Returns the key as it was given, and the value as JSON. Dates become strings.
    pub fn to_json(&self) -> (&str, serde_json::Value) {
        let key = self.text.split_at(self.value.start).0.trim_end();
        let raw = &self.text[self.value.clone()];
        let read: Option<BTreeMap<String, serde_json::Value>> =
            toml::from_str(&format!("value = {raw}")).ok();
        let value = read.filter(|fields| fields.len() == 1).and_then(|mut it| it.remove("value"));
        (key.trim_end_matches('=').trim(), value.unwrap_or_else(|| raw.into()))
    }

    /// Returns the name used in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text that positions refer to.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns a document that contains only this setting, as if it were source number `source`.
    pub(crate) fn to_table(&self, source: usize) -> Table {
        let raw = &self.text[self.value.clone()];
        let plain = || Node {
            origin: Origin::new(source, self.value.clone()),
            value: Value::String(raw.to_owned()),
        };
        let mut node = tree::parse_value(raw, source, self.value.start).unwrap_or_else(plain);
        let mut table = Table::new();
        for KeyPart { name, span } in self.keys.iter().rev() {
            let key_origin = Origin::new(source, span.clone());
            table = Table::from([(name.clone(), Entry { key: key_origin.clone(), node })]);
            node = Node { origin: key_origin, value: Value::Table(table.clone()) };
        }
        table
    }
}

/// A part of a dotted key, unquoted, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyPart {
    name: String,
    span: Range<usize>,
}

/// Splits off the dotted key; returns its parts and the position of the `=`.
fn parse_key(text: &str) -> Result<(Vec<KeyPart>, usize), OverrideError> {
    let mut keys: Vec<KeyPart> = Vec::new();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        let end = part_end(text, at)?;
        let part = text[at..end].trim_end();
        keys.push(KeyPart { name: unquote(text, at, part)?, span: at..at + part.len() });
        match text[end..].chars().next() {
            None => return Err(OverrideError::MissingEquals { text: text.to_owned() }),
            Some('=') if keys.iter().any(|part| part.span.is_empty()) => {
                return Err(OverrideError::EmptyKey { text: text.to_owned() });
            }
            Some('=') => return Ok((keys, end)),
            // `part_end` stops at a dot, an equals sign or the end.
            Some(_) if keys.len() == KEY_PARTS_MAX => {
                return Err(OverrideError::TooDeep { text: text.to_owned(), max: KEY_PARTS_MAX });
            }
            Some(_) => at = end + 1,
        }
    }
}

/// Finds the dot or equals sign that ends the part at `start`, looking past a quoted one.
fn part_end(text: &str, start: usize) -> Result<usize, OverrideError> {
    let rest = &text[start..];
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
    let mut skip = 0;
    if let Some(quote) = quote {
        let mut escaped = false;
        let closing = rest.char_indices().skip(1).find(|(_, c)| {
            let closes = *c == quote && !escaped;
            escaped = quote == '"' && *c == '\\' && !escaped;
            closes
        });
        skip = closing.map(|(n, _)| n + 1).ok_or_else(|| bad_quotes(text, start))?;
    }
    Ok(rest[skip..].find(['.', '=']).map_or(text.len(), |n| start + skip + n))
}

fn unquote(text: &str, start: usize, part: &str) -> Result<String, OverrideError> {
    if !part.contains(['"', '\'']) {
        return Ok(part.to_owned());
    }
    match tree::parse_value(part, 0, 0) {
        Some(Node { value: Value::String(key), .. }) => Ok(key),
        _ => Err(bad_quotes(text, start)),
    }
}

fn bad_quotes(text: &str, start: usize) -> OverrideError {
    let column = text[..start].chars().count() + 1;
    OverrideError::BadQuotes { text: text.to_owned(), column }
}

/// Much deeper than any setting, and shallow enough for recursion.
const KEY_PARTS_MAX: usize = 32;
