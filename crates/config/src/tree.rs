//! A TOML or JSON document that remembers where each key and value was written, and can be merged with another.

use crate::error::ConfigError;
use crate::position::Place;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// A named text that values come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
}

/// Which source, and which bytes of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin {
    pub(crate) source: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Origin {
    pub(crate) fn new(source: usize, span: Range<usize>) -> Self {
        Self { source, start: span.start, end: span.end }
    }

    pub(crate) fn place(&self, sources: &[Source<'_>]) -> Place {
        let source = &sources[self.source];
        Place::new(source.name, source.text, &(self.start..self.end))
    }
}

pub(crate) type Table = BTreeMap<String, Entry>;

/// A key of a table with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: Origin,
    pub(crate) node: Node,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) origin: Origin,
    pub(crate) value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    String(String),
    /// An integer too large for this type becomes its largest value: no setting allows either.
    Integer(i128),
    /// No setting is one, but schemas of tools have them.
    Float(f64),
    Boolean(bool),
    /// No setting is a date; it is shown as it was written.
    Datetime(String),
    Array(Vec<Node>),
    Table(Table),
    /// Only JSON has it.
    Null,
}

impl Value {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::String(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number with a fraction",
            Self::Boolean(_) => "a boolean",
            Self::Datetime(_) => "a date or time",
            Self::Array(_) => "a list",
            Self::Table(_) => "a table",
            Self::Null => "null",
        }
    }
}

/// Parses the source numbered `index` as a document.
pub(crate) fn parse(sources: &[Source<'_>], index: usize) -> Result<Table, ConfigError> {
    match DeTable::parse(sources[index].text) {
        Ok(document) => Ok(table(document.into_inner(), index, 0)),
        Err(error) => {
            let origin = Origin::new(index, error.span().unwrap_or_default());
            let problem = error.message().to_owned();
            Err(ConfigError::Syntax { at: Box::new(origin.place(sources)), problem })
        }
    }
}

/// Parses one value that starts `offset` bytes into source `index`; `None` if it is not TOML.
pub(crate) fn parse_value(text: &str, index: usize, offset: usize) -> Option<Node> {
    let value = DeValue::parse(text).ok()?;
    let span = value.span();
    Some(node(span, value.into_inner(), index, offset))
}

/// Merges `over` into `base`: tables are merged key by key, anything else is replaced.
pub(crate) fn merge(base: &mut Table, over: Table) {
    for (name, Entry { key, node }) in over {
        match (base.get_mut(&name), node) {
            (
                Some(Entry {
                    key: old_key,
                    node: Node { origin: old, value: Value::Table(below) },
                }),
                Node { origin, value: Value::Table(above) },
            ) => {
                *old_key = key;
                *old = origin;
                merge(below, above);
            }
            (_, node) => {
                base.insert(name, Entry { key, node });
            }
        }
    }
}

// Recursion is safe here and in `merge`: the TOML parser refuses documents nested deeper than 80.
fn table(table: DeTable<'_>, source: usize, offset: usize) -> Table {
    let entries = table.into_iter().map(|(key, value)| {
        let key_span = key.span();
        let span = value.span();
        let entry = Entry {
            key: Origin::new(source, key_span.start + offset..key_span.end + offset),
            node: node(span, value.into_inner(), source, offset),
        };
        (key.into_inner().into_owned(), entry)
    });
    entries.collect()
}

fn node(span: Range<usize>, value: DeValue<'_>, source: usize, offset: usize) -> Node {
    let value = match value {
        DeValue::String(text) => Value::String(text.into_owned()),
        DeValue::Integer(number) => Value::Integer(
            i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX),
        ),
        // TOML has underscores in numbers, and what is left is what Rust reads.
        DeValue::Float(number) => {
            Value::Float(number.as_str().replace('_', "").parse().unwrap_or(f64::NAN))
        }
        DeValue::Boolean(on) => Value::Boolean(on),
        DeValue::Datetime(time) => Value::Datetime(time.to_string()),
        DeValue::Array(items) => {
            let items = items.into_iter().map(|item| {
                let span = item.span();
                node(span, item.into_inner(), source, offset)
            });
            Value::Array(items.collect())
        }
        DeValue::Table(inner) => Value::Table(table(inner, source, offset)),
    };
    Node { origin: Origin::new(source, span.start + offset..span.end + offset), value }
}
