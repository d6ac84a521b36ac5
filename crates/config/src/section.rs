//! Reads typed values from the configuration tree: checks what a key must hold, and collects keys that no
//! setting reads.

use crate::error::{ConfigError, Warning};
use crate::position::Place;
use crate::settings::{ACCEPTED, UNSUPPORTED};
use crate::tree::{Entry, Node, Origin, Source, Table, Value};
use crate::unknown::{self, UnknownKey};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A type that a configuration value can be read as.
pub(crate) trait Read: Sized {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError>;
}

/// What was noticed while reading and is not an error.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) warnings: Vec<Warning>,
    /// Keyed by origin, because a profile's key is visited twice: in its own table and where it is applied.
    pub(crate) unknown: BTreeMap<Origin, UnknownKey>,
    /// Known keys that have no effect, also keyed by origin.
    pub(crate) unsupported: BTreeMap<Origin, (String, Place)>,
}

/// One value with its path.
#[derive(Debug)]
pub(crate) struct Field<'a> {
    pub(crate) sources: &'a [Source<'a>],
    pub(crate) path: Vec<String>,
    pub(crate) node: &'a Node,
}

impl<'a> Field<'a> {
    pub(crate) fn section<'n>(&self, notes: &'n mut Notes) -> Result<Section<'a, 'n>, ConfigError> {
        let Value::Table(table) = &self.node.value else {
            return Err(self.wrong_type("a table", "Write it as a table: [name] or { … }."));
        };
        Ok(Section::new(self.sources, self.path.clone(), table, notes))
    }

    pub(crate) fn wrong_type(&self, expected: &'static str, help: &'static str) -> ConfigError {
        ConfigError::WrongType {
            at: Box::new(self.node.origin.place(self.sources)),
            key: unknown::dotted(&self.path),
            expected,
            found: self.node.value.kind(),
            help,
        }
    }

    pub(crate) fn bad_value(&self, problem: &str, help: &str) -> ConfigError {
        ConfigError::BadValue {
            at: Box::new(self.node.origin.place(self.sources)),
            key: unknown::dotted(&self.path),
            problem: problem.to_owned(),
            help: help.to_owned(),
        }
    }

    fn child(&self, name: String, node: &'a Node) -> Self {
        let mut path = self.path.clone();
        path.push(name);
        Self { sources: self.sources, path, node }
    }
}

/// A table whose keys are read by name; [`Section::finish`] reports the rest.
#[derive(Debug)]
pub(crate) struct Section<'a, 'n> {
    sources: &'a [Source<'a>],
    path: Vec<String>,
    table: &'a Table,
    asked: Vec<&'static str>,
    notes: &'n mut Notes,
}

impl<'a, 'n> Section<'a, 'n> {
    pub(crate) fn new(
        sources: &'a [Source<'a>],
        path: Vec<String>,
        table: &'a Table,
        notes: &'n mut Notes,
    ) -> Self {
        Self { sources, path, table, asked: Vec::new(), notes }
    }

    /// Reads an optional key.
    pub(crate) fn value<T: Read>(&mut self, key: &'static str) -> Result<Option<T>, ConfigError> {
        self.asked.push(key);
        let Some(Entry { node, .. }) = self.table.get(key) else {
            return Ok(None);
        };
        let mut path = self.path.clone();
        path.push(key.to_owned());
        T::read(&Field { sources: self.sources, path, node }, self.notes).map(Some)
    }

    /// Reads a key that has a default.
    pub(crate) fn or<T: Read>(&mut self, key: &'static str, default: T) -> Result<T, ConfigError> {
        Ok(self.value(key)?.unwrap_or(default))
    }

    /// Records every key that was not read and is not on the list of accepted ones.
    pub(crate) fn finish(self) {
        for (name, entry) in self.table {
            if self.asked.contains(&name.as_str()) {
                continue;
            }
            let mut path = self.path.clone();
            path.push(name.clone());
            if unknown::is_in(ACCEPTED, &path) || self.notes.unknown.contains_key(&entry.key) {
                continue;
            }
            let place = entry.key.place(self.sources);
            if unknown::is_in(UNSUPPORTED, &path) {
                let key = unknown::dotted(&path);
                self.notes.unsupported.entry(entry.key.clone()).or_insert((key, place));
                continue;
            }
            let key = UnknownKey {
                suggestion: unknown::nearest(&path, &self.asked),
                path: unknown::dotted(&path),
                layer: place.file,
                line: place.position.line,
                column: place.position.column,
            };
            self.notes.unknown.insert(entry.key.clone(), key);
        }
    }
}

impl Read for String {
    fn read(field: &Field<'_>, _: &mut Notes) -> Result<Self, ConfigError> {
        match &field.node.value {
            Value::String(text) => Ok(text.clone()),
            _ => Err(field.wrong_type("a string", "Put the value in quotes.")),
        }
    }
}

impl Read for PathBuf {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        String::read(field, notes).map(Self::from)
    }
}

impl Read for bool {
    fn read(field: &Field<'_>, _: &mut Notes) -> Result<Self, ConfigError> {
        match field.node.value {
            Value::Boolean(on) => Ok(on),
            _ => Err(field.wrong_type("a boolean", "Write true or false, without quotes.")),
        }
    }
}

impl Read for u64 {
    fn read(field: &Field<'_>, _: &mut Notes) -> Result<Self, ConfigError> {
        match field.node.value {
            Value::Integer(number) => Self::try_from(number).map_err(|_| {
                let problem = if number < 0 { "must not be negative" } else { "is too large" };
                field.bad_value(problem, "Write a whole number of zero or more.")
            }),
            _ => Err(field.wrong_type("an integer", "Write a whole number, without quotes.")),
        }
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let Value::Array(items) = &field.node.value else {
            return Err(field.wrong_type("a list", "Write a list, such as [\"a\", \"b\"]."));
        };
        let numbered = items.iter().enumerate();
        numbered.map(|(n, node)| T::read(&field.child(n.to_string(), node), notes)).collect()
    }
}

impl<T: Read> Read for BTreeMap<String, T> {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let Value::Table(table) = &field.node.value else {
            return Err(field.wrong_type("a table", "Write it as a table: [name] or { … }."));
        };
        let entries = table.iter().map(|(name, entry)| {
            Ok((name.clone(), T::read(&field.child(name.clone(), &entry.node), notes)?))
        });
        entries.collect()
    }
}
