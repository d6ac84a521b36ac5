//! Queries of the index.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use protocol::id::ThreadId;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Row, params_from_iter};

use super::scan::Role;
use super::{CatalogError, letters};
use crate::names::{folded, shown};

/// A thread in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub id: ThreadId,
    /// Its newest file, relative to the home.
    pub path: PathBuf,
    pub archived: bool,
    /// The name that the user gave it.
    pub name: Option<String>,
    /// The beginning of the user's first message, on one line.
    pub preview: String,
    /// The directory it was created in.
    pub cwd: String,
    pub provider: String,
    /// The model of the last turn.
    pub model: String,
    /// How it was created.
    pub source: String,
    /// The branch it was created on.
    pub branch: Option<String>,
    /// The thread that it was forked from.
    pub forked_from: Option<ThreadId>,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: i64,
    /// When its last line was written.
    pub updated_ms: i64,
    pub turns: u64,
    /// Number of tokens used.
    pub tokens: u64,
    /// Size of its newest file.
    pub bytes: u64,
}

/// Sort order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By the time of the last line.
    #[default]
    Updated,
    /// By the time of creation.
    Created,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    #[default]
    Newest,
    Oldest,
}

/// Filter of a list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only threads created in this directory.
    pub cwd: Option<String>,
    /// Only threads of this provider.
    pub provider: Option<String>,
    /// Only threads whose name contains this, ignoring case.
    pub name: Option<String>,
    /// Archived threads instead of the others.
    pub archived: bool,
    /// Not before this time, in milliseconds; compares the timestamp that the list is sorted by.
    pub since_ms: Option<i64>,
    /// Before this time.
    pub until_ms: Option<i64>,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub threads: Vec<Summary>,
    /// Where the next page starts, if there is one.
    pub next: Option<Cursor>,
}

/// A position in a list. It stays valid when threads are added or removed: it refers to the last thread of
/// the previous page, not to a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    sort: Sort,
    direction: Direction,
    time: i64,
    id: ThreadId,
}

/// The text is not a cursor.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a valid cursor; use the one at the end of the previous page")]
pub struct InvalidCursor(String);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sort = match self.sort {
            Sort::Updated => 'u',
            Sort::Created => 'c',
        };
        let direction = match self.direction {
            Direction::Newest => 'n',
            Direction::Oldest => 'o',
        };
        write!(f, "{sort}{direction}.{}.{}", self.time, self.id)
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let parse = || {
            let mut parts = text.splitn(3, '.');
            let (order, time, id) = (parts.next()?, parts.next()?, parts.next()?);
            let (sort, direction) = match order {
                "un" => (Sort::Updated, Direction::Newest),
                "uo" => (Sort::Updated, Direction::Oldest),
                "cn" => (Sort::Created, Direction::Newest),
                "co" => (Sort::Created, Direction::Oldest),
                _ => return None,
            };
            Some(Self { sort, direction, time: time.parse().ok()?, id: id.parse().ok()? })
        };
        parse().ok_or_else(|| InvalidCursor(text.to_owned()))
    }
}

impl Cursor {
    /// Returns the order of the list that it belongs to.
    pub fn order(&self) -> (Sort, Direction) {
        (self.sort, self.direction)
    }
}

/// A query for a list.
#[derive(Clone, Debug)]
pub struct List {
    pub filter: Filter,
    pub sort: Sort,
    pub direction: Direction,
    pub limit: usize,
    /// Where to continue. It must have the same order.
    pub cursor: Option<Cursor>,
}

impl Default for List {
    /// Asks for the first page of all threads that are not archived, the one written to last first.
    fn default() -> Self {
        Self { limit: PAGE_DEFAULT, ..Self::newest(None) }
    }
}

/// Threads on a page, unless the query says otherwise.
const PAGE_DEFAULT: usize = 50;

impl List {
    /// Asks for the thread that was last written to, of those made in `cwd` or of all.
    pub(crate) fn newest(cwd: Option<&str>) -> Self {
        Self {
            filter: Filter { cwd: cwd.map(str::to_owned), ..Filter::default() },
            sort: Sort::Updated,
            direction: Direction::Newest,
            limit: 1,
            cursor: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), CatalogError> {
        match self.cursor {
            Some(cursor) if cursor.order() != (self.sort, self.direction) => {
                Err(CatalogError::Order)
            }
            _ => Ok(()),
        }
    }
}

/// A full-text query.
#[derive(Clone, Debug)]
pub struct Search {
    pub words: String,
    /// Whether `words` is an FTS5 expression of SQLite. Otherwise all words must occur.
    pub raw: bool,
    /// Only threads created in this directory.
    pub cwd: Option<String>,
    /// Archived threads instead of the others.
    pub archived: bool,
    /// Most hits to return.
    pub limit: usize,
}

impl Search {
    pub(super) fn check(&self) -> Result<(), CatalogError> {
        match self.words.len() {
            0..=EXPRESSION_BYTES_MAX => Ok(()),
            _ => Err(CatalogError::TooLong),
        }
    }

    /// Finds out whether an expression is one.
    pub(super) fn check_expression(
        &self,
        db: &Connection,
    ) -> rusqlite::Result<Result<(), CatalogError>> {
        if !self.raw {
            return Ok(Ok(()));
        }
        Ok(match understands(db, &self.words) {
            Err(rusqlite::Error::SqliteFailure(error, Some(message)))
                if error.code == rusqlite::ErrorCode::Unknown =>
            {
                Err(CatalogError::Expression(message))
            }
            other => Ok(other?),
        })
    }
}

/// A search result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    pub thread: Summary,
    /// The turn, from 1; 0 before the first.
    pub turn: u64,
    /// The ordinal of the line, if lines have one.
    pub ordinal: Option<u64>,
    /// Who wrote it.
    pub role: Role,
    /// The surrounding text.
    pub snippet: Vec<Piece>,
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub text: String,
    /// Whether it matches the query.
    pub hit: bool,
}

pub(super) fn list(db: &Connection, list: &List) -> rusqlite::Result<Page> {
    let List { filter, sort, direction, limit, cursor } = list;
    let column = match sort {
        Sort::Updated => "updated",
        Sort::Created => "created",
    };
    let (order, after) = match direction {
        Direction::Newest => ("DESC", "<"),
        Direction::Oldest => ("ASC", ">"),
    };
    let mut clauses = Clauses::new(filter.archived);
    clauses.equal("t.cwd", filter.cwd.as_deref());
    clauses.equal("t.provider", filter.provider.as_deref());
    if let Some(name) = &filter.name {
        clauses.and("instr(n.folded, ?) > 0", [folded(name).into()]);
    }
    if let Some(since) = filter.since_ms {
        clauses.and(&format!("t.{column} >= ?"), [since.into()]);
    }
    if let Some(until) = filter.until_ms {
        clauses.and(&format!("t.{column} < ?"), [until.into()]);
    }
    if let Some(cursor) = cursor {
        let values = [cursor.time.into(), cursor.id.to_string().into()];
        clauses.and(&format!("(t.{column}, t.id) {after} (?, ?)"), values);
    }
    let limit = (*limit).clamp(1, LIMIT_MAX);
    let sql = format!(
        "SELECT {COLUMNS} FROM threads t LEFT JOIN names n ON n.id = t.id WHERE {} \
         ORDER BY t.{column} {order}, t.id {order} LIMIT {}",
        clauses.text,
        limit + 1
    );
    let mut statement = db.prepare(&sql)?;
    let rows = statement.query_map(params_from_iter(clauses.values), summary)?;
    let mut threads = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let more = threads.len() > limit;
    threads.truncate(limit);
    let next = threads.last().filter(|_| more).map(|last| Cursor {
        sort: *sort,
        direction: *direction,
        time: match sort {
            Sort::Updated => last.updated_ms,
            Sort::Created => last.created_ms,
        },
        id: last.id,
    });
    Ok(Page { threads, next })
}

pub(super) fn search(db: &Connection, search: &Search) -> rusqlite::Result<Vec<Hit>> {
    let expression = match search.raw {
        true => letters::in_expression(&search.words).into_owned(),
        false => quoted(&search.words),
    };
    if expression.is_empty() {
        return Ok(Vec::new());
    }
    let mut clauses = Clauses::new(search.archived);
    clauses.equal("t.cwd", search.cwd.as_deref());
    clauses.and("words MATCH ?", [expression.into()]);
    // Matches are found and sorted first, so that snippets are made only for those shown.
    let sql = format!(
        "SELECT {COLUMNS}, i.turn, i.ordinal, i.role, \
         snippet(words, 0, char(2), char(3), '…', {SNIPPET_WORDS}) \
         FROM words CROSS JOIN items i ON i.key = words.rowid CROSS JOIN threads t ON t.key = i.thread \
         LEFT JOIN names n ON n.id = t.id WHERE {} ORDER BY words.rank LIMIT {}",
        clauses.text,
        search.limit.clamp(1, LIMIT_MAX)
    );
    let mut statement = db.prepare(&sql)?;
    let rows = statement.query_map(params_from_iter(clauses.values), |row| {
        Ok(Hit {
            thread: summary(row)?,
            turn: count(row, COLUMN_COUNT)?,
            ordinal: row
                .get::<_, Option<i64>>(COLUMN_COUNT + 1)?
                .map(|ordinal| ordinal.max(0).cast_unsigned()),
            role: match row.get(COLUMN_COUNT + 2)? {
                0 => Role::User,
                1 => Role::Agent,
                _ => Role::Command,
            },
            snippet: pieces(&letters::together(&row.get::<_, String>(COLUMN_COUNT + 3)?)),
        })
    })?;
    rows.collect()
}

/// Checks whether `expression` is valid, without searching.
fn understands(db: &Connection, expression: &str) -> rusqlite::Result<()> {
    let sql = "SELECT rowid FROM words WHERE words MATCH ? AND rowid < 0 LIMIT 1";
    db.query_row(sql, [&*letters::in_expression(expression)], |_| Ok(())).optional().map(|_| ())
}

pub(super) fn get(db: &Connection, id: ThreadId) -> rusqlite::Result<Option<Summary>> {
    let sql =
        format!("SELECT {COLUMNS} FROM threads t LEFT JOIN names n ON n.id = t.id WHERE t.id = ?");
    db.query_row(&sql, [id.to_string()], summary).optional()
}

/// Finds threads by name, or by a prefix of their ids.
pub(super) fn called(db: &Connection, text: &str) -> rusqlite::Result<Vec<Summary>> {
    let base = format!("SELECT {COLUMNS} FROM threads t LEFT JOIN names n ON n.id = t.id WHERE");
    let tail = format!("ORDER BY t.updated DESC, t.id DESC LIMIT {CANDIDATES_MAX}");
    let mut found = db
        .prepare(&format!("{base} n.name = ? {tail}"))?
        .query_map([shown(text)], summary)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let Some(prefix) = id_prefix(text) else { return Ok(found) };
    // `g` comes right after the last hex digit. A text can be both a name and a prefix of an id.
    let mut begun = db.prepare(&format!("{base} t.id >= ?1 AND t.id < ?1 || 'g' {tail}"))?;
    for thread in begun.query_map([prefix], summary)? {
        let thread = thread?;
        if found.len() < CANDIDATES_MAX && found.iter().all(|other| other.id != thread.id) {
            found.push(thread);
        }
    }
    Ok(found)
}

/// Returns whether a text can be the prefix of an id.
pub fn is_id_beginning(text: &str) -> bool {
    id_prefix(text).is_some()
}

/// Normalises the prefix of an id; none if it is too short or invalid.
fn id_prefix(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    let fits = (PREFIX_DIGITS_MIN..=32).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    fits.then(|| {
        let mut prefix = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if matches!(index, 8 | 12 | 16 | 20) {
                prefix.push('-');
            }
            prefix.push(digit.to_ascii_lowercase());
        }
        prefix
    })
}

/// Quotes words so that the expression means just these words.
fn quoted(words: &str) -> String {
    let mut expression = String::new();
    let spaces = |c: char| c.is_whitespace() || c.is_control();
    for word in words.split(spaces).filter(|word| word.chars().any(char::is_alphanumeric)) {
        if !expression.is_empty() {
            expression.push(' ');
        }
        expression.push('"');
        expression.push_str(&letters::apart(word).replace('"', "\"\""));
        expression.push('"');
    }
    expression
}

fn pieces(snippet: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut push = |text: &str, hit| {
        if !text.is_empty() {
            pieces.push(Piece { text: text.to_owned(), hit });
        }
    };
    for (index, part) in snippet.split('\u{2}').enumerate() {
        match part.split_once('\u{3}') {
            Some((hit, rest)) if index > 0 => {
                push(hit, true);
                push(rest, false);
            }
            _ => push(part, false),
        }
    }
    pieces
}

/// SQL conditions and their values.
struct Clauses {
    text: String,
    values: Vec<Value>,
}

impl Clauses {
    fn new(archived: bool) -> Self {
        Self { text: "t.archived = ?".to_owned(), values: vec![archived.into()] }
    }

    fn and<const N: usize>(&mut self, condition: &str, values: [Value; N]) {
        self.text.push_str(" AND ");
        self.text.push_str(condition);
        self.values.extend(values);
    }

    fn equal(&mut self, column: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.and(&format!("{column} = ?"), [value.to_owned().into()]);
        }
    }
}

fn summary(row: &Row<'_>) -> rusqlite::Result<Summary> {
    let id = |index| {
        let text: Option<String> = row.get(index)?;
        Ok::<_, rusqlite::Error>(text.and_then(|text| text.parse::<ThreadId>().ok()))
    };
    Ok(Summary {
        id: id(0)?.ok_or(rusqlite::Error::InvalidQuery)?,
        path: row.get::<_, String>(1)?.into(),
        archived: row.get(2)?,
        name: row.get(3)?,
        preview: row.get(4)?,
        cwd: row.get(5)?,
        provider: row.get(6)?,
        model: row.get(7)?,
        source: row.get(8)?,
        branch: row.get(9)?,
        forked_from: id(10)?,
        created_ms: row.get(11)?,
        updated_ms: row.get(12)?,
        turns: count(row, 13)?,
        tokens: count(row, 14)?,
        bytes: count(row, 15)?,
    })
}

fn count(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(index)?.max(0).cast_unsigned())
}

const COLUMNS: &str = "t.id, t.path, t.archived, n.name, t.preview, t.cwd, t.provider, t.model, \
     t.source, t.branch, t.forked_from, t.created, t.updated, t.turns, t.tokens, t.size";
const COLUMN_COUNT: usize = 16;
/// Most results of one page or search.
pub const LIMIT_MAX: usize = 10_000;
/// Most threads that are named when a name or a prefix is ambiguous.
pub(super) const CANDIDATES_MAX: usize = 8;
/// Shortest prefix of an id, in digits.
const PREFIX_DIGITS_MIN: usize = 4;
/// Longest search expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 4096;
const SNIPPET_WORDS: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_no_other_meaning() {
        for (words, want) in [
            ("", ""),
            ("a b", r#""a" "b""#),
            ("a\"b OR *", r#""a""b" "OR""#),
            ("NEAR(a, b)", r#""NEAR(a," "b)""#),
            ("-- ( ) \0 \"\"", ""),
            ("text:x a*", r#""text:x" "a*""#),
        ] {
            assert_eq!(quoted(words), want, "{words:?}");
        }
    }

    #[test]
    fn beginnings_of_ids() {
        for (text, want) in [
            ("01a", None),
            ("01A1", Some("01a1")),
            ("01a1e26e3", Some("01a1e26e-3")),
            ("01a1e26e-392c-7690-a", Some("01a1e26e-392c-7690-a")),
            ("01a1g", None),
            ("word", None),
        ] {
            assert_eq!(id_prefix(text).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn cursors_are_read_back() {
        let id = ThreadId::new(7, [3; 10]);
        for (sort, direction) in [
            (Sort::Updated, Direction::Newest),
            (Sort::Updated, Direction::Oldest),
            (Sort::Created, Direction::Newest),
            (Sort::Created, Direction::Oldest),
        ] {
            let cursor = Cursor { sort, direction, time: -5, id };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", "un", "un.1", "un.x.y", "xx.1.01a1e26e-392c-7690-abfb-eb0dc0cda447"] {
            assert_eq!(text.parse::<Cursor>(), Err(InvalidCursor(text.to_owned())));
        }
    }

    #[test]
    fn marks_make_pieces() {
        for (snippet, want) in [
            ("", vec![]),
            ("a", vec![("a", false)]),
            ("a\u{2}b\u{3}c", vec![("a", false), ("b", true), ("c", false)]),
            ("\u{2}b\u{3}\u{2}c\u{3}", vec![("b", true), ("c", true)]),
        ] {
            let got = pieces(snippet);
            let got: Vec<_> = got.iter().map(|piece| (piece.text.as_str(), piece.hit)).collect();
            assert_eq!(got, want, "{snippet:?}");
        }
    }
}
