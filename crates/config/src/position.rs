//! Source locations: turns byte offsets into lines, columns and an excerpt with carets.

use std::fmt;
use std::iter;
use std::ops::Range;

use unicode_width::UnicodeWidthChar as _;

/// A line and a column, both counted from one; the column counts characters, not bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

/// Finds the position of a byte offset; an offset past the end, or inside a character, is moved back.
pub fn position(text: &str, offset: usize) -> Position {
    let offset = text.floor_char_boundary(offset);
    let start = line_start(text, offset);
    let line = text[..start].matches('\n').count() + 1;
    Position { line, column: visible(&text[start..offset]).chars().count() + 1 }
}

/// A position in a named text, with the line it points at; displayed as `FILE:LINE:COL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The name of the layer, or `-c key=value` for an override.
    pub file: String,
    pub position: Position,
    excerpt: String,
}

impl Place {
    pub(crate) fn new(file: &str, text: &str, span: &Range<usize>) -> Self {
        let position = position(text, span.start);
        Self { file: file.to_owned(), position, excerpt: excerpt(text, span, position) }
    }

    /// Returns the source line with carets below the location, without a final newline.
    pub fn excerpt(&self) -> &str {
        &self.excerpt
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.position.line, self.position.column)
    }
}

fn excerpt(text: &str, span: &Range<usize>, at: Position) -> String {
    let start = text.floor_char_boundary(span.start);
    let line_from = line_start(text, start);
    let line_to = text[start..].find('\n').map_or(text.len(), |n| start + n);
    let line = visible(text[line_from..line_to].trim_end_matches('\r'));
    let marked = text.floor_char_boundary(span.end.clamp(start, line_to));

    // A line may be a whole minified document; the excerpt is a window that contains the caret.
    let skipped = if at.column > LINE_CHARS_MAX { at.column - LINE_CHARS_MAX / 2 } else { 0 };
    let window = line.chars().skip(skipped).take(LINE_CHARS_MAX);
    let shown: String = window.map(harmless).collect();
    let mut rest = shown.chars();
    // Tabs are kept, so that the caret is below its character at any tab width.
    let mut pad = String::new();
    for c in rest.by_ref().take(at.column - 1 - skipped) {
        match c {
            '\t' => pad.push('\t'),
            c => pad.extend(iter::repeat_n(' ', columns(c))),
        }
    }
    let marked = rest.take(text[start..marked].trim_end().chars().count());
    let carets = "^".repeat(marked.map(columns).sum::<usize>().max(1));

    let number = at.line.to_string();
    let gutter = " ".repeat(number.len());
    format!("{gutter} |\n{number} | {shown}\n{gutter} | {pad}{carets}")
}

fn line_start(text: &str, offset: usize) -> usize {
    text[..offset].rfind('\n').map_or(0, |newline| newline + 1)
}

/// Masks control characters, so that a file cannot send escape sequences to the terminal.
fn harmless(c: char) -> char {
    if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }
}

/// Returns how many columns a character takes on a terminal.
fn columns(c: char) -> usize {
    c.width().unwrap_or(1)
}

/// Strips the byte order mark, which editors do not count as a column.
fn visible(line: &str) -> &str {
    line.strip_prefix('\u{feff}').unwrap_or(line)
}

/// Longer source lines are cut in messages.
const LINE_CHARS_MAX: usize = 160;
