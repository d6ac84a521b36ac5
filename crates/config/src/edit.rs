//! Changes single keys of a configuration file, and leaves everything else as it was written.
//!
//! The document is changed, not written anew: comments, order and spacing stay. The changed text is read again and compared
//! with what the edits ask for before it is given out, so no edit can break a file, whatever that looks like.

use std::fmt;

use serde_json::{Map, Value as Json};
use toml_edit::{
    Array, ArrayOfTables, Decor, DocumentMut, InlineTable, Item, Table, TableLike, Value,
};

use crate::error::ConfigError;
use crate::load::Layer;
use crate::unknown;
use crate::view;

/// The path of a setting: keys, outermost first. There is one at least, and none is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPath(Vec<String>);

impl KeyPath {
    /// Parses keys with dots between them, such as `model` or `projects."/a.b".trust_level`.
    pub fn parse(text: &str) -> Result<Self, EditError> {
        let mut keys = Vec::new();
        let mut rest = text;
        loop {
            let (key, after) = first_key(rest).ok_or_else(|| EditError::BadQuotes(shown(text)))?;
            if key.is_empty() {
                return Err(EditError::EmptyKey(shown(text)));
            }
            keys.push(key);
            if keys.len() > KEY_PARTS_MAX {
                return Err(EditError::TooDeep(shown(text)));
            }
            match after.strip_prefix('.') {
                Some(next) => rest = next,
                None if after.is_empty() => return Ok(Self(keys)),
                None => return Err(EditError::BadQuotes(shown(text))),
            }
        }
    }

    /// Returns the keys, outermost first.
    pub fn keys(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&unknown::dotted(&self.0))
    }
}

/// Splits the first key off; none if its quotes are not closed.
fn first_key(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find('.').unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut key = String::new();
    let mut chars = quoted.char_indices();
    loop {
        match chars.next()? {
            (at, '"') => return Some((key, &quoted[at + 1..])),
            (_, '\\') => key.push(chars.next()?.1),
            (_, c) => key.push(c),
        }
    }
}

/// Cuts a path for a message: it comes from a client, and has no bound of its own.
fn shown(path: &str) -> String {
    path.chars().take(PATH_CHARS_SHOWN).collect()
}

/// What becomes of a table that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// It has the keys of the new value afterwards, and no others.
    Replace,
    /// It keeps the keys that the new value does not have.
    Upsert,
}

/// A change of one setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    pub path: KeyPath,
    /// The new value; null removes the setting.
    pub value: Json,
    pub merge: Merge,
}

/// Why a text was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The path, or a part of it, is empty.
    #[error("keyPath `{0}` has an empty part: name the setting, as in model or tools.web_search")]
    EmptyKey(String),
    /// A part of the path is not quoted as a whole.
    #[error(
        "keyPath `{0}` has a badly quoted part: quote a whole part between dots, as in \
         projects.\"/a.b\".trust_level"
    )]
    BadQuotes(String),
    /// The path has more parts than any setting.
    #[error("keyPath `{0}` has more than {KEY_PARTS_MAX} parts: shorten it")]
    TooDeep(String),
    /// Something inside of the value is null.
    #[error("`{0}` is null, and TOML has no null: leave it out, or set it to null by itself")]
    Null(String),
    /// A number that TOML does not have.
    #[error("`{0}` is a number that TOML does not have: use one of 64 bits with a sign")]
    Number(String),
    /// The setting would be inside of something that is no table.
    #[error("`{parent}` is not a table, so nothing can be set in it: set `{parent}` itself")]
    NotATable { parent: String },
    /// The text is not TOML.
    #[error(transparent)]
    Syntax(ConfigError),
    /// The text is written in a way that cannot be changed without changing its meaning.
    #[error("{name} cannot be changed here without breaking it: change it in an editor")]
    Unfaithful { name: String },
}

/// Returns the text of a layer with all edits made, in their order; or says why none is.
pub fn apply(layer: &Layer, edits: &[Edit]) -> Result<String, EditError> {
    let before = view::read(layer).map_err(EditError::Syntax)?;
    let mut wanted = before.clone();
    for edit in edits {
        check(&edit.value, edit.path.keys(), true)?;
        set(&mut wanted, edit)?;
    }
    // So that a text is not touched for nothing.
    if wanted == before {
        return Ok(layer.text.clone());
    }
    let unfaithful = || EditError::Unfaithful { name: layer.name.clone() };
    // It was parsed just now, by a parser with the same grammar.
    let mut document: DocumentMut = layer.text.parse().map_err(|_| unfaithful())?;
    for edit in edits {
        put(document.as_table_mut(), false, edit.path.keys(), edit);
    }
    let plain = document.to_string();
    let says_so = |text: &String| {
        let changed = Layer { name: layer.name.clone(), text: text.clone() };
        view::read(&changed).is_ok_and(|found| found == wanted)
    };
    as_before(&layer.text, plain).into_iter().find(says_so).ok_or_else(unfaithful)
}

/// Returns a changed text as its lines ended before and it began, if that can be, and as it is.
fn as_before(before: &str, plain: String) -> Vec<String> {
    let mark = if before.starts_with(MARK) && !plain.starts_with(MARK) { MARK } else { "" };
    let ended = match before.contains("\r\n") {
        true => plain.replace("\r\n", "\n").replace('\n', "\r\n"),
        false => plain.clone(),
    };
    vec![format!("{mark}{ended}"), plain]
}

/// Refuses what TOML does not have.
fn check(value: &Json, path: &[String], top: bool) -> Result<(), EditError> {
    let below = |key: String| [path, &[key]].concat();
    match value {
        Json::Null if !top => Err(EditError::Null(unknown::dotted(path))),
        Json::Number(number) if number.as_i64().is_none() && !number.is_f64() => {
            Err(EditError::Number(unknown::dotted(path)))
        }
        Json::Array(items) => (0..)
            .zip(items)
            .try_for_each(|(n, item): (usize, _)| check(item, &below(n.to_string()), false)),
        Json::Object(fields) => {
            fields.iter().try_for_each(|(key, value)| check(value, &below(key.clone()), false))
        }
        _ => Ok(()),
    }
}

/// Makes an edit in plain values: what the changed text has to say.
fn set(root: &mut Map<String, Json>, edit: &Edit) -> Result<(), EditError> {
    let Some((last, parents)) = edit.path.keys().split_last() else { return Ok(()) };
    let mut table = root;
    for (n, key) in parents.iter().enumerate() {
        if edit.value.is_null() && !table.get(key).is_some_and(Json::is_object) {
            // There is nothing to remove.
            return Ok(());
        }
        match table.entry(key.clone()).or_insert_with(|| Json::Object(Map::new())) {
            Json::Object(inner) => table = inner,
            _ => {
                let parent = unknown::dotted(&parents[..=n]);
                return Err(EditError::NotATable { parent });
            }
        }
    }
    match &edit.value {
        Json::Null => drop(table.remove(last)),
        value => merge(table, last, value, edit.merge),
    }
    Ok(())
}

fn merge(table: &mut Map<String, Json>, key: &str, value: &Json, how: Merge) {
    match (table.get_mut(key), value) {
        (Some(Json::Object(below)), Json::Object(above)) if how == Merge::Upsert => {
            above.iter().for_each(|(key, value)| merge(below, key, value, how));
        }
        (_, value) => drop(table.insert(key.to_owned(), value.clone())),
    }
}

/// Makes an edit in a table of the document; `inline` says that headers cannot be used there.
fn put(table: &mut dyn TableLike, inline: bool, path: &[String], edit: &Edit) {
    let (key, inner) = match path {
        [] => return,
        [key] if edit.value.is_null() => return remove(table, key),
        [key] => return put_value(table, inline, key, &edit.value, edit.merge),
        [key, inner @ ..] => (key, inner),
    };
    if !table.contains_key(key) {
        if edit.value.is_null() {
            return;
        }
        drop(table.insert(key, if inline { inline_table() } else { header_table() }));
    }
    let Some(item) = table.get_mut(key) else { return };
    let inline = inline || is_inline(item);
    // What is no table was refused before.
    let Some(below) = item.as_table_like_mut() else { return };
    put(below, inline, inner, edit);
    keep(item);
}

/// Gives a key of a table a value.
fn put_value(table: &mut dyn TableLike, inline: bool, key: &str, value: &Json, how: Merge) {
    match (table.get_mut(key), value) {
        (Some(item), Json::Object(fields)) if item.is_table_like() => {
            let inline = inline || is_inline(item);
            let Some(below) = item.as_table_like_mut() else { return };
            if how == Merge::Replace {
                let names: Vec<_> = below.iter().map(|(name, _)| name.to_owned()).collect();
                names.iter().filter(|name| !fields.contains_key(*name)).for_each(|name| {
                    remove(below, name);
                });
            }
            fields.iter().for_each(|(name, value)| put_value(below, inline, name, value, how));
            keep(item);
        }
        // It stays as it is written.
        (Some(item), value) if is_same(item, value) => {}
        (Some(Item::Value(old)), value) => {
            let mut new = to_value(value);
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        (Some(Item::ArrayOfTables(old)), Json::Array(items)) if is_tables(items) => {
            *old = tables(old, items);
        }
        (Some(_), value) => {
            table.remove(key);
            table.insert(key, Item::Value(to_value(value)));
        }
        (None, Json::Object(fields)) if !inline => drop(table.insert(key, to_table(fields))),
        (None, value) => {
            let mut value = to_value(value);
            // The space before a closing brace stays there.
            if let Some(space) = last_space(table) {
                *value.decor_mut() = Decor::new(" ", space);
            }
            table.insert(key, Item::Value(value));
        }
    }
}

fn remove(table: &mut dyn TableLike, key: &str) {
    let is_last = table.iter().last().is_some_and(|(name, _)| name == key);
    let space = if is_last { last_space(table) } else { None };
    table.remove(key);
    if let Some((_, Item::Value(last))) = table.iter_mut().last()
        && let Some(space) = space
        && last.decor().suffix().is_none_or(|it| it.as_str() == Some(""))
    {
        last.decor_mut().set_suffix(space);
    }
}

/// Takes the space after the last value of a table, if nothing else is there.
fn last_space(table: &mut dyn TableLike) -> Option<String> {
    let (_, Item::Value(last)) = table.iter_mut().last()? else { return None };
    let space = last.decor().suffix()?.as_str()?.to_owned();
    if space.is_empty() || !space.trim().is_empty() {
        return None;
    }
    last.decor_mut().set_suffix("");
    Some(space)
}

/// Lets a table that has become empty be written, as it would vanish otherwise.
fn keep(item: &mut Item) {
    match item {
        Item::Table(table) if table.is_empty() && table.is_dotted() => *item = inline_table(),
        Item::Table(table) if table.is_empty() => table.set_implicit(false),
        Item::Value(Value::InlineTable(table)) if table.is_empty() => table.set_dotted(false),
        _ => {}
    }
}

/// Returns whether a table is written without a header.
fn is_inline(item: &Item) -> bool {
    match item {
        Item::Table(table) => table.is_dotted(),
        item => item.is_value(),
    }
}

fn inline_table() -> Item {
    Item::Value(Value::InlineTable(InlineTable::new()))
}

/// Returns a table whose header is written only if something is in it.
fn header_table() -> Item {
    let mut table = Table::new();
    table.set_implicit(true);
    Item::Table(table)
}

fn to_table(fields: &Map<String, Json>) -> Item {
    let mut table = Table::new();
    // A header of its own would say nothing.
    table.set_implicit(!fields.is_empty() && fields.values().all(Json::is_object));
    for (key, value) in fields {
        let item = match value {
            Json::Object(inner) => to_table(inner),
            value => Item::Value(to_value(value)),
        };
        table.insert(key, item);
    }
    Item::Table(table)
}

/// Converts a value that was checked.
fn to_value(value: &Json) -> Value {
    match value {
        Json::Null => Value::InlineTable(InlineTable::new()),
        Json::Bool(on) => (*on).into(),
        Json::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64().unwrap_or_default().into(),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(items) => {
            let mut array = Array::new();
            items.iter().for_each(|item| array.push(to_value(item)));
            array.into()
        }
        Json::Object(fields) => {
            let mut table = InlineTable::new();
            fields.iter().for_each(|(key, value)| drop(table.insert(key, to_value(value))));
            table.into()
        }
    }
}

fn is_tables(items: &[Json]) -> bool {
    !items.is_empty() && items.iter().all(Json::is_object)
}

/// Returns tables for items; those that are there already stay as they are written.
fn tables(old: &ArrayOfTables, items: &[Json]) -> ArrayOfTables {
    let mut new = ArrayOfTables::new();
    for item in items {
        let Json::Object(fields) = item else { continue };
        let same = old.iter().find(|table| is_same_table(*table, fields)).cloned();
        let Some(mut table) = same.or_else(|| to_table(fields).into_table().ok()) else { continue };
        // They are written in the order that they have now.
        table.set_position(None);
        table.set_implicit(false);
        new.push(table);
    }
    new
}

fn is_same(item: &Item, value: &Json) -> bool {
    match (item, value) {
        (Item::Value(found), value) => is_same_value(found, value),
        (Item::Table(found), Json::Object(fields)) => is_same_table(found, fields),
        (Item::ArrayOfTables(found), Json::Array(items)) => {
            found.len() == items.len()
                && found.iter().zip(items).all(|(table, item)| {
                    item.as_object().is_some_and(|fields| is_same_table(table, fields))
                })
        }
        _ => false,
    }
}

fn is_same_value(found: &Value, value: &Json) -> bool {
    match (found, value) {
        (Value::String(text), Json::String(wanted)) => text.value() == wanted,
        (Value::Boolean(on), Json::Bool(wanted)) => on.value() == wanted,
        (Value::Integer(number), Json::Number(wanted)) => wanted.as_i64() == Some(*number.value()),
        (Value::Float(number), Json::Number(wanted)) => {
            wanted.is_f64() && wanted.as_f64() == Some(*number.value())
        }
        (Value::Array(found), Json::Array(items)) => {
            found.len() == items.len()
                && found.iter().zip(items).all(|(found, item)| is_same_value(found, item))
        }
        (Value::InlineTable(found), Json::Object(fields)) => is_same_table(found, fields),
        _ => false,
    }
}

fn is_same_table(found: &dyn TableLike, fields: &Map<String, Json>) -> bool {
    found.len() == fields.len()
        && fields.iter().all(|(key, value)| found.get(key).is_some_and(|item| is_same(item, value)))
}

/// Much deeper than any setting.
pub const KEY_PARTS_MAX: usize = 32;
/// How much of a path a message shows.
const PATH_CHARS_SHOWN: usize = 200;
/// The mark that some editors begin a file with.
const MARK: &str = "\u{feff}";
