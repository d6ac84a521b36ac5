//! The grammar: text to operations, or the line that breaks it and how to write it instead.
//!
//! ```text
//! *** Begin Patch
//! *** Add File: PATH          then lines of the new file, each after a `+`
//! *** Delete File: PATH       and nothing more
//! *** Update File: PATH       then one or more chunks
//! *** Move to: PATH           optional, right after `*** Update File:`
//! @@ LINE OF THE FILE         optional for the first chunk; a bare `@@` starts a chunk too
//!  kept / -removed / +added   a line that is quite empty is an empty kept line
//! *** End of File             optional: the chunk must end where the file ends
//! *** End Patch
//! ```
//!
//! Nothing here looks at a file. That paths are named only once is [`Plan`](crate::Plan)'s check,
//! since only resolved paths can be compared.

use std::{iter::Peekable, vec};

use crate::excerpt;

/// A well-formed patch: at least one operation, in the order written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    operations: Vec<Operation>,
}

impl Patch {
    /// Parses a whole document, bare or in a `<<EOF` wrapper, with either line ending.
    pub fn parse(text: &str) -> Result<Patch, ParseError> {
        let mut lines = envelope(text)?.into_iter().peekable();
        let mut operations = Vec::new();
        // The envelope's first line is still there, so the error about an empty patch can point to it.
        let begin = lines.next().map_or(1, |line| line.number);
        while let Some(header) = lines.next() {
            operations.push(operation(header, &mut lines)?);
        }
        if operations.is_empty() {
            return Err(Problem::Empty.at(begin));
        }
        Ok(Patch { operations })
    }

    /// Returns the operations in the order written; never empty.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }
}

/// What a patch does to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Writes a file, whether or not it exists.
    Add {
        /// The path as written.
        path: String,
        /// The whole file; empty, or ending in a newline.
        contents: String,
    },
    Delete {
        /// The path as written.
        path: String,
    },
    /// Changes a file in place or while moving it.
    Update {
        /// The path as written.
        path: String,
        /// The new path as written, if the file moves.
        move_to: Option<String>,
        /// The changes from top to bottom; never empty.
        chunks: Vec<Chunk>,
    },
}

/// A run of adjacent lines to find and rewrite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The line of the patch where the chunk starts, from 1.
    pub number: usize,
    /// A line of the file after which to look for the chunk.
    pub context: Option<String>,
    /// The lines, in order; never empty.
    pub lines: Vec<Line>,
    /// Whether the chunk must end where the file ends.
    pub at_end: bool,
}

/// A line of a chunk, without its marker and line ending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// An existing line that stays.
    Keep(String),
    /// An existing line that is removed.
    Remove(String),
    /// A new line.
    Insert(String),
}

/// Where and why a text is not a patch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the patch: {problem}")]
pub struct ParseError {
    /// The line of the text, from 1.
    pub line: usize,
    pub problem: Problem,
}

/// What is wrong with a line of a patch; the message tells the model how to write it instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text does not start with the begin marker.
    #[error("the patch must start with `*** Begin Patch` and nothing before it, found `{0}`")]
    NoBegin(String),
    /// The text does not finish with the end marker.
    #[error("the patch must finish with `*** End Patch` and nothing after it, found `{0}`")]
    NoEnd(String),
    /// There is nothing between the begin and end markers.
    #[error("the patch is empty: name at least one file to add, delete or update")]
    Empty,
    /// A line outside an operation does not start one.
    #[error(
        "expected `*** Add File: PATH`, `*** Delete File: PATH` or `*** Update File: PATH`, \
         found `{0}`"
    )]
    NotAHeader(String),
    /// A header has no path, or a path that no file can have.
    #[error("`{0}` must be followed by the path of a file, of at most {PATH_BYTES_MAX} bytes")]
    NoPath(&'static str),
    /// The patch selects an environment, and there is only one.
    #[error(
        "choosing an environment is not available here: leave out the `*** Environment ID:` line"
    )]
    Environment,
    /// A line of a new file has no `+`.
    #[error(
        "every line of an added file starts with `+`, an empty line is a lone `+`, found `{0}`"
    )]
    NotAdded(String),
    /// A deletion is followed by lines.
    #[error("`*** Delete File:` takes no lines after it, found `{0}`")]
    DeleteBody(String),
    /// An update has no chunks; a move needs at least one, too.
    #[error(
        "the update of `{0}` is empty: add a chunk, `@@` and then lines starting with ` `, `-` or \
         `+` (also when the file only moves)"
    )]
    EmptyUpdate(String),
    /// A chunk has a header but no lines.
    #[error("no lines follow this `@@`: write lines starting with ` `, `-` or `+` below it")]
    EmptyChunk,
    /// A chunk has two headers.
    #[error(
        "two `@@` lines follow each other: a chunk has one, and names the nearest line above the \
         change"
    )]
    SecondHeader,
    /// A line of a chunk has no marker.
    #[error(
        "every line of a chunk starts with ` ` (kept), `-` (removed) or `+` (added), and `@@` \
         starts the next chunk, found `{0}`"
    )]
    NotMarked(String),
    /// A chunk without a header follows one that reached the end of the file.
    #[error("after `*** End of File` a new chunk must start with `@@`, found `{0}`")]
    AfterEnd(String),
}

impl Problem {
    fn at(self, line: usize) -> ParseError {
        ParseError { line, problem: self }
    }
}

/// A line of the text with its number, without its line ending.
#[derive(Debug, Clone, Copy)]
struct Source<'a> {
    number: usize,
    text: &'a str,
}

type Lines<'a> = Peekable<vec::IntoIter<Source<'a>>>;

/// Returns the lines from `*** Begin Patch` up to, but excluding, `*** End Patch`.
///
/// The end is found by position, not by text: with a leading space it would otherwise be a kept line of the
/// last chunk.
fn envelope(text: &str) -> Result<Vec<Source<'_>>, ParseError> {
    let lines = text
        .split('\n')
        .zip(1..)
        .map(|(text, number)| Source { number, text: text.strip_suffix('\r').unwrap_or(text) })
        .collect::<Vec<_>>();
    let lines = match trim_blank(&lines) {
        [first, inner @ .., last]
            if WRAPPERS.contains(&first.text.trim()) && last.text.trim() == WRAPPER_END =>
        {
            trim_blank(inner)
        }
        lines => lines,
    };
    let Some((last, rest)) = lines.split_last() else {
        return Err(Problem::NoBegin(String::new()).at(1));
    };
    let first = rest.first().unwrap_or(last);
    if first.text.trim() != BEGIN {
        return Err(Problem::NoBegin(excerpt::line(first.text)).at(first.number));
    }
    if last.text.trim() != END {
        return Err(Problem::NoEnd(excerpt::line(last.text)).at(last.number));
    }
    Ok(rest.to_vec())
}

fn trim_blank<'l, 'a>(mut lines: &'l [Source<'a>]) -> &'l [Source<'a>] {
    while let [first, rest @ ..] = lines
        && first.text.trim().is_empty()
    {
        lines = rest;
    }
    while let [rest @ .., last] = lines
        && last.text.trim().is_empty()
    {
        lines = rest;
    }
    lines
}

fn operation(header: Source<'_>, lines: &mut Lines<'_>) -> Result<Operation, ParseError> {
    let text = header.text.trim();
    if let Some(path) = text.strip_prefix(ADD) {
        add(path_in(header, ADD, path)?, lines)
    } else if let Some(path) = text.strip_prefix(DELETE) {
        delete(path_in(header, DELETE, path)?, lines)
    } else if let Some(path) = text.strip_prefix(UPDATE) {
        update(header, path_in(header, UPDATE, path)?, lines)
    } else if text.starts_with(ENVIRONMENT) {
        Err(Problem::Environment.at(header.number))
    } else {
        Err(Problem::NotAHeader(excerpt::line(header.text)).at(header.number))
    }
}

fn add(path: String, lines: &mut Lines<'_>) -> Result<Operation, ParseError> {
    let mut contents = String::new();
    while let Some(line) = lines.next_if(|line| !is_marker(line.text.trim_start())) {
        let Some(text) = line.text.strip_prefix('+') else {
            return Err(Problem::NotAdded(excerpt::line(line.text)).at(line.number));
        };
        contents.push_str(text);
        contents.push('\n');
    }
    Ok(Operation::Add { path, contents })
}

fn delete(path: String, lines: &mut Lines<'_>) -> Result<Operation, ParseError> {
    match lines.peek() {
        Some(line) if !is_marker(line.text.trim_start()) => {
            Err(Problem::DeleteBody(excerpt::line(line.text)).at(line.number))
        }
        _ => Ok(Operation::Delete { path }),
    }
}

fn update(
    header: Source<'_>,
    path: String,
    lines: &mut Lines<'_>,
) -> Result<Operation, ParseError> {
    let move_to = match lines.next_if(|line| line.text.starts_with(MOVE)) {
        Some(line) => Some(path_in(line, MOVE, &line.text[MOVE.len()..])?),
        None => None,
    };
    let mut chunks: Vec<Chunk> = Vec::new();
    loop {
        // Between chunks an empty line is only spacing; as a kept line it would have to match the file.
        while lines.next_if(|line| line.text.is_empty()).is_some() {}
        match lines.peek() {
            Some(line) if is_marker(line.text) => break,
            None => break,
            // Every other chunk ends only at a header or an error.
            Some(line) if !chunks.is_empty() && chunk_header(line.text).is_none() => {
                return Err(Problem::AfterEnd(excerpt::line(line.text)).at(line.number));
            }
            Some(line) => chunks.push(chunk(line.number, lines)?),
        }
    }
    if chunks.is_empty() {
        return Err(Problem::EmptyUpdate(excerpt::line(&path)).at(header.number));
    }
    Ok(Operation::Update { path, move_to, chunks })
}

fn chunk(number: usize, lines: &mut Lines<'_>) -> Result<Chunk, ParseError> {
    let context = lines
        .next_if(|line| chunk_header(line.text).is_some())
        .and_then(|line| chunk_header(line.text))
        .filter(|context| !context.trim().is_empty())
        .map(str::to_owned);
    let mut body = Vec::new();
    while let Some(line) =
        lines.next_if(|line| !is_marker(line.text) && chunk_header(line.text).is_none())
    {
        body.push(match line.text.split_at_checked(1) {
            None if line.text.is_empty() => Line::Keep(String::new()),
            Some((" ", text)) => Line::Keep(text.to_owned()),
            Some(("-", text)) => Line::Remove(text.to_owned()),
            Some(("+", text)) => Line::Insert(text.to_owned()),
            _ => return Err(Problem::NotMarked(excerpt::line(line.text)).at(line.number)),
        });
    }
    if body.is_empty() {
        return Err(match lines.peek() {
            Some(line) if chunk_header(line.text).is_some() => {
                Problem::SecondHeader.at(line.number)
            }
            _ => Problem::EmptyChunk.at(number),
        });
    }
    let at_end = lines.next_if(|line| line.text.trim_end() == END_OF_FILE).is_some();
    Ok(Chunk { number, context, lines: body, at_end })
}

/// Returns the text after `@@` if the line is a chunk header.
fn chunk_header(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("@@")?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(' ') }
}

fn is_marker(text: &str) -> bool {
    text.starts_with("***")
}

fn path_in(line: Source<'_>, header: &'static str, path: &str) -> Result<String, ParseError> {
    let path = path.trim();
    // No file system has such a path, and paths are quoted in full in errors and summaries.
    if path.is_empty() || path.contains('\0') || path.len() > PATH_BYTES_MAX {
        return Err(Problem::NoPath(header).at(line.number));
    }
    Ok(path.to_owned())
}

/// The longest path that Linux accepts.
const PATH_BYTES_MAX: usize = 4096;
const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";
const ENVIRONMENT: &str = "*** Environment ID:";
const WRAPPERS: [&str; 3] = ["<<EOF", "<<'EOF'", "<<\"EOF\""];
const WRAPPER_END: &str = "EOF";

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `body` between the marker lines and compares a one-line sketch of each operation.
    #[track_caller]
    fn check(body: &str, want: Result<&[&str], (usize, &str)>) {
        let text = format!("{BEGIN}\n{body}{END}\n");
        check_whole(&text, want);
        check_whole(&text.replace('\n', "\r\n"), want);
        check_whole(&format!("\n<<\"EOF\"\n{text}EOF\n"), want.map_err(|(n, why)| (n + 2, why)));
    }

    #[track_caller]
    fn check_whole(text: &str, want: Result<&[&str], (usize, &str)>) {
        let got = Patch::parse(text);
        match (&got, want) {
            (Ok(patch), Ok(want)) => {
                let got = patch.operations().iter().map(sketch).collect::<Vec<_>>();
                assert_eq!(got, want, "{text}");
            }
            (Err(error), Err((line, why))) => {
                assert_eq!(error.line, line, "{error}\n{text}");
                assert!(error.problem.to_string().contains(why), "{error}\n{text}");
            }
            _ => panic!("got {got:?}\nwant {want:?}\n{text}"),
        }
    }

    fn sketch(operation: &Operation) -> String {
        match operation {
            Operation::Add { path, contents } => format!("A {path} {contents:?}"),
            Operation::Delete { path } => format!("D {path}"),
            Operation::Update { path, move_to, chunks } => {
                let mut text = format!("U {path}");
                if let Some(to) = move_to {
                    text += &format!(" > {to}");
                }
                for chunk in chunks {
                    text += &format!(" @{}", chunk.context.as_deref().unwrap_or_default());
                    for line in &chunk.lines {
                        text += &match line {
                            Line::Keep(line) => format!("[ {line}]"),
                            Line::Remove(line) => format!("[-{line}]"),
                            Line::Insert(line) => format!("[+{line}]"),
                        };
                    }
                    text += if chunk.at_end { "$" } else { "" };
                }
                text
            }
        }
    }

    #[test]
    fn operations() {
        check("*** Add File: a b\n+x\n+\n++y\n", Ok(&["A a b \"x\\n\\n+y\\n\""]));
        check("*** Add File: a\n", Ok(&["A a \"\""]));
        check("  *** Delete File: a  \n*** Delete File:b\n", Ok(&["D a", "D b"]));
        check("*** Update File: a\n-x\n+y\n", Ok(&["U a @[-x][+y]"]));
        check("*** Update File: a\n*** Move to: b \n@@\n x\n", Ok(&["U a > b @[ x]"]));
        check("*** Update File: a\n@@ f()\n x\n@@ \n-y\n", Ok(&["U a @f()[ x] @[-y]"]));
        check("*** Update File: a\n@@   f\n x\n", Ok(&["U a @  f[ x]"]));
        check("*** Update File: a\n x\n\n-y\n", Ok(&["U a @[ x][ ][-y]"]));
        check("*** Update File: a\n\n@@\n-y\n", Ok(&["U a @[-y]"]));
        check(
            "*** Update File: a\n-x\n*** End of File\n\n@@\n-y\n*** Delete File: b\n",
            Ok(&["U a @[-x]$ @[-y]", "D b"]),
        );
        check("*** Update File: a\n ***\n-*** End Patch\n", Ok(&["U a @[ ***][-*** End Patch]"]));
        check("*** Update File: a\n-\u{2014}\n+é\n", Ok(&["U a @[-\u{2014}][+é]"]));
    }

    #[test]
    fn problems() {
        check("", Err((1, "empty")));
        check("+x\n", Err((2, "expected `*** Add File: PATH`")));
        check("\n", Err((2, "expected `*** Add File: PATH`")));
        check("*** Rename File: a\n", Err((2, "found `*** Rename File: a`")));
        check("*** Move to: a\n", Err((2, "expected")));
        check("*** Environment ID: local\n*** Delete File: a\n", Err((2, "environment")));
        check("*** Add File: \n+x\n", Err((2, "`*** Add File:` must be followed")));
        check("*** Delete File: a\0b\n", Err((2, "must be followed by the path")));
        check(&format!("*** Add File: {}\n", "p".repeat(4097)), Err((2, "at most 4096 bytes")));
        check("*** Add File: a\n+x\ny\n", Err((4, "starts with `+`")));
        check("*** Add File: a\n+x\n\n+y\n", Err((4, "lone `+`")));
        check("*** Delete File: a\n-x\n", Err((3, "no lines after it")));
        check("*** Update File: a\n", Err((2, "update of `a` is empty")));
        check("*** Update File: a\n*** Move to: b\n", Err((2, "only moves")));
        check("*** Update File: a\n*** Move to:\n-x\n", Err((3, "`*** Move to:`")));
        check("*** Update File: a\n-x\n@@\n*** Delete File: b\n", Err((4, "no lines follow")));
        check("*** Update File: a\n@@ f\n@@ g\n-x\n", Err((4, "two `@@`")));
        check("*** Update File: a\n@@\nx\n", Err((4, "starts with ` ` (kept)")));
        check("*** Update File: a\n@@x\n", Err((3, "found `@@x`")));
        check("*** Update File: a\né\n", Err((3, "found `é`")));
        check("*** Update File: a\n@@\n*** End of File\n", Err((3, "no lines follow")));
        check("*** Update File: a\n-x\n*** End of File\n-y\n", Err((5, "`@@`")));
        check("*** Delete File: a\n*** End Patch\n*** Delete File: b\n", Err((3, "expected")));
    }

    #[test]
    fn envelopes() {
        let ok: Result<&[&str], _> = Ok(&["D a"]);
        check_whole("\n\n \t*** Begin Patch \n*** Delete File: a\n\t*** End Patch\n \n", ok);
        check_whole("<<EOF\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF", ok);
        check_whole("*** Begin Patch\n*** Update File: a\n-x\n *** End Patch", Ok(&["U a @[-x]"]));
        check_whole("", Err((1, "must start with")));
        check_whole("\n\nhello", Err((3, "found `hello`")));
        check_whole("*** Begin Patch", Err((1, "must finish with")));
        check_whole("*** Begin Patch\n*** Delete File: a", Err((2, "must finish with")));
        check_whole("*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF", Err((4, "`EOF`")));
        check_whole("<<'EOF'\n*** Begin Patch\n*** End Patch", Err((1, "`<<'EOF'`")));
        check_whole(
            "<<A\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nA",
            Err((1, "`<<A`")),
        );
    }
}
