//! Splits a document into lines and classifies each: heading, list item, table, code, comment or text.
//!
//! It follows CommonMark where that decides what is text and what is not (fences, comments, indented code), and is more
//! lenient where people are: items nested by two spaces below `1.`, tabs, empty brackets. Every line is read once, so the
//! cost is linear.

use std::ops::Range;

use crate::role::Role;

/// The lines, items and tables of a document, each in the order of the text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    pub lines: Vec<Line>,
    pub items: Vec<Item>,
    pub tables: Vec<Table>,
    /// The line of a fence that is never closed.
    pub fence_open: Option<usize>,
    /// The line of a comment that is never closed.
    pub comment_open: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub start: usize,
    /// The end of the text, where the line ending begins.
    pub end: usize,
    pub next: usize,
    /// The first byte that is not a blank.
    pub first: usize,
    /// The column of that byte, with tabs expanded.
    pub column: usize,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Blank,
    Matter,
    Code,
    Comment,
    Heading {
        level: u8,
        text: Range<usize>,
    },
    /// The line below a heading that underlines it.
    Underline,
    Rule,
    Item(usize),
    Row(usize),
    Text,
}

/// An item of a list.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub line: usize,
    pub marker: Range<usize>,
    pub column: usize,
    /// The column where nested content begins.
    pub content_column: usize,
    /// The brackets of its checkbox.
    pub brackets: Option<Range<usize>>,
    /// The first byte of its text.
    pub text: usize,
    /// The line after its first paragraph.
    pub text_lines_end: usize,
    /// The line after its last one, including nested content.
    pub lines_end: usize,
    /// The first item after it that is not nested in it.
    pub next: usize,
    pub parent: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The line of the header; the separator is below it, and then the rows.
    pub line: usize,
    pub lines_end: usize,
}

impl Blocks {
    pub(crate) fn read(text: &str) -> Blocks {
        let mut reader = Reader::new(text);
        reader.run();
        reader.blocks
    }

    pub(crate) fn line_text<'a>(&self, text: &'a str, line: usize) -> &'a str {
        let line = &self.lines[line];
        &text[line.first..line.end]
    }

    /// Returns the items that are directly nested in an item.
    pub(crate) fn nested(&self, item: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.items[item].next;
        let next = move |at: usize| (at < end).then_some(at);
        std::iter::successors(next(item + 1), move |at| next(self.items[*at].next))
    }
}

/// Splits a text into lines; `\n`, `\r\n` and a lone `\r` are line endings.
fn split(text: &str) -> Vec<Line> {
    let bytes = text.as_bytes();
    // Lines that are moved as the list grows cost more than to count them first.
    let ends = bytes.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
    let mut lines = Vec::with_capacity(ends + 1);
    let mut start = 0;
    while start < bytes.len() {
        let length = bytes[start..].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let end = length.map_or(bytes.len(), |length| start + length);
        let next = match bytes.get(end..) {
            Some([b'\r', b'\n', ..]) => end + 2,
            Some([_, ..]) => end + 1,
            _ => end,
        };
        // A byte order mark is no text.
        let mark = if start == 0 && text.starts_with('\u{feff}') { 3 } else { 0 };
        let (first, column) = indent(bytes, start + mark, end, 0);
        let kind = if first == end { Kind::Blank } else { Kind::Text };
        lines.push(Line { start, end, next, first, column, kind });
        start = next;
    }
    lines
}

/// Finds the first byte that is not a blank, and its column.
fn indent(bytes: &[u8], from: usize, end: usize, mut column: usize) -> (usize, usize) {
    let mut at = from;
    while at < end {
        match bytes[at] {
            b' ' => column += 1,
            b'\t' => column += 4 - column % 4,
            _ => break,
        }
        at += 1;
    }
    (at, column)
}

struct Fence {
    mark: u8,
    length: usize,
    /// A line with less indentation ends the fence, because it ends the item that the fence is in.
    column: usize,
    line: usize,
}

struct Reader<'a> {
    text: &'a str,
    blocks: Blocks,
    /// Items that the next line may belong to, outermost first.
    open: Vec<usize>,
    /// The number of lines so far in the paragraph that the next line may continue.
    paragraph: usize,
    /// The item that this paragraph belongs to.
    paragraph_of: Option<usize>,
    last_filled: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Reader<'a> {
        Reader {
            text,
            blocks: Blocks { lines: split(text), ..Blocks::default() },
            open: Vec::new(),
            paragraph: 0,
            paragraph_of: None,
            last_filled: 0,
        }
    }

    fn run(&mut self) {
        let mut fence: Option<Fence> = None;
        let mut comment: Option<usize> = None;
        let mut at = self.matter();
        while at < self.blocks.lines.len() {
            let number = at;
            at += 1;
            let line = &self.blocks.lines[number];
            let (column, blank) = (line.column, line.kind == Kind::Blank);
            let content = &self.text[line.first..line.end];
            if let Some(open) = &fence {
                if blank || column >= open.column {
                    let closes = closes(content, open);
                    self.set(number, Kind::Code);
                    if closes {
                        fence = None;
                    }
                    continue;
                }
                fence = None;
            }
            if comment.is_some() {
                if content.contains("-->") {
                    comment = None;
                }
                self.set(number, Kind::Comment);
                continue;
            }
            if blank {
                self.end_paragraph();
                continue;
            }
            let holder = self.holder(column);
            let base = holder.map_or(0, |item| self.blocks.items[item].content_column);
            if self.paragraph == 0 && column >= base + 4 {
                self.close_to(holder);
                self.set(number, Kind::Code);
            } else if column < base + 4
                && let Some((mark, length)) = opens(content)
            {
                self.close_to(holder);
                let column = holder.map_or(0, |item| self.blocks.items[item].column + 2);
                fence = Some(Fence { mark, length, column, line: number });
                self.set(number, Kind::Code);
            } else if let Some(hidden) = content.strip_prefix("<!--") {
                self.close_to(holder);
                if !hidden.contains("-->") {
                    comment = Some(number);
                }
                self.set(number, Kind::Comment);
            } else if holder.is_none() && self.is_heading(number) {
                continue;
            } else if is_rule(content) {
                self.close_to(holder);
                self.set(number, Kind::Rule);
            } else if let Some(item) = self.item(number, holder) {
                self.close_to(holder);
                let index = self.blocks.items.len();
                self.blocks.items.push(item);
                self.open.push(index);
                self.set(number, Kind::Item(index));
                self.paragraph = 1;
                self.paragraph_of = Some(index);
            } else if holder.is_none() && self.is_table(number) {
                at = self.table(number);
            } else {
                if self.paragraph == 0 {
                    self.close_to(holder);
                }
                self.paragraph += 1;
                self.last_filled = number;
                if let Some(item) = self.paragraph_of {
                    self.blocks.items[item].text_lines_end = number + 1;
                }
            }
        }
        self.close_to(None);
        self.blocks.fence_open = fence.map(|fence| fence.line);
        self.blocks.comment_open = comment;
    }

    /// Sets the kind of a line that ends the current paragraph.
    fn set(&mut self, line: usize, kind: Kind) {
        if self.blocks.lines[line].kind != Kind::Blank {
            self.last_filled = line;
        }
        self.blocks.lines[line].kind = kind;
        self.end_paragraph();
    }

    fn end_paragraph(&mut self) {
        self.paragraph = 0;
        self.paragraph_of = None;
    }

    /// Finds the innermost open item that content at this column is nested in.
    fn holder(&self, column: usize) -> Option<usize> {
        // Items stand further to the right than those that they are nested in.
        let outer = self.open.partition_point(|item| column >= self.blocks.items[*item].column + 2);
        outer.checked_sub(1).map(|at| self.open[at])
    }

    /// Closes the open items inside of `holder`.
    fn close_to(&mut self, holder: Option<usize>) {
        while let Some(item) = self.open.last().copied() {
            if Some(item) == holder {
                return;
            }
            let next = self.blocks.items.len();
            let lines_end = self.last_filled + 1;
            let item = &mut self.blocks.items[item];
            (item.next, item.lines_end) = (next, lines_end);
            self.open.pop();
        }
    }

    /// Marks the front matter and returns the first line after it.
    fn matter(&mut self) -> usize {
        let is = |line: &Line, mark: &str| {
            line.column == 0 && self.text[line.first..line.end].trim_end() == mark
        };
        let lines = &self.blocks.lines;
        let Some(first) = lines.first() else { return 0 };
        let Some(mark) = ["---", "+++"].into_iter().find(|mark| is(first, mark)) else { return 0 };
        let sign = if mark == "---" { ':' } else { '=' };
        // Otherwise it is a line across the page.
        let field = lines
            .get(1)
            .is_some_and(|line| self.text[line.first..line.end].contains(sign) || is(line, mark));
        let Some(end) = lines.iter().skip(1).position(|line| is(line, mark)) else { return 0 };
        if !field {
            return 0;
        }
        for line in &mut self.blocks.lines[..end + 2] {
            line.kind = Kind::Matter;
        }
        end + 2
    }

    /// Marks a line, or the one above it, as a heading if it is one.
    fn is_heading(&mut self, number: usize) -> bool {
        let line = &self.blocks.lines[number];
        let content = self.text[line.first..line.end].trim_end();
        if line.column > 3 {
            return false;
        }
        let hashes = content.bytes().take_while(|byte| *byte == b'#').count();
        let rest = &content[hashes..];
        if (1..=6).contains(&hashes) && (rest.is_empty() || rest.starts_with([' ', '\t'])) {
            let from = line.first + hashes + (rest.len() - rest.trim_start().len());
            let closed = rest.trim_end_matches('#');
            let ends_blank = closed.is_empty() || closed.ends_with([' ', '\t']);
            let length = if ends_blank { closed } else { rest }.trim().len();
            let text = from..from + length;
            self.close_to(None);
            self.set(number, Kind::Heading { level: hashes as u8, text });
            return true;
        }
        let level = match content.bytes().next() {
            Some(mark @ (b'=' | b'-')) if content.bytes().all(|byte| byte == mark) => {
                1 + u8::from(mark == b'-')
            }
            _ => return self.paragraph == 0 && self.is_bold_heading(number),
        };
        let above = number.checked_sub(1).map(|above| &self.blocks.lines[above]);
        match above {
            Some(above) if self.paragraph == 1 && self.open.is_empty() => {
                let end = above.first + self.text[above.first..above.end].trim_end().len();
                let kind = Kind::Heading { level, text: above.first..end };
                self.blocks.lines[number - 1].kind = kind;
                self.set(number, Kind::Underline);
                true
            }
            _ => false,
        }
    }

    /// Marks a line as a heading if it is entirely bold and names a part of a plan, as some people write headings.
    fn is_bold_heading(&mut self, number: usize) -> bool {
        let line = &self.blocks.lines[number];
        let content = self.text[line.first..line.end].trim_end();
        let inner = ["**", "__"]
            .into_iter()
            .find_map(|mark| content.strip_prefix(mark)?.trim_end_matches(':').strip_suffix(mark));
        let Some(inner) = inner.filter(|inner| !inner.contains("**")) else { return false };
        if Role::of(inner).is_none() {
            return false;
        }
        let from = line.first + 2;
        let text = from..from + inner.len();
        self.close_to(None);
        self.set(number, Kind::Heading { level: BOLD_LEVEL, text });
        true
    }

    fn item(&self, number: usize, holder: Option<usize>) -> Option<Item> {
        let line = &self.blocks.lines[number];
        let bytes = self.text.as_bytes();
        let content = &bytes[line.first..line.end];
        let digits = content.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let width = match content.get(digits)? {
            b'-' | b'*' | b'+' if digits == 0 => 1,
            b'.' | b')' if (1..=9).contains(&digits) => digits + 1,
            _ => return None,
        };
        if !matches!(content.get(width), None | Some(b' ' | b'\t')) {
            return None;
        }
        // A number that begins the second line of a paragraph is rarely a list.
        if width > 1 && self.paragraph > 0 && self.open.is_empty() && content[..digits] != *b"1" {
            return None;
        }
        let marker = line.first..line.first + width;
        let (text, column) = indent(bytes, marker.end, line.end, line.column + width);
        // More than four blanks are code in the item, whose content begins behind one.
        let deep = column > line.column + width + 4 || text == line.end;
        let content_column = if deep { line.column + width + 1 } else { column };
        let brackets = brackets(&self.text[text..line.end]).map(|length| text..text + length);
        let text = match &brackets {
            Some(brackets) => indent(bytes, brackets.end, line.end, 0).0,
            None => text,
        };
        Some(Item {
            line: number,
            marker,
            column: line.column,
            content_column,
            brackets,
            text,
            text_lines_end: number + 1,
            lines_end: number + 1,
            next: 0,
            parent: holder,
        })
    }

    fn is_table(&self, number: usize) -> bool {
        let row = |number: usize| {
            let line = self.blocks.lines.get(number)?;
            Some(&self.text[line.first..line.end])
        };
        row(number).is_some_and(|row| row.contains('|'))
            && row(number + 1).is_some_and(is_table_rule)
    }

    /// Marks the rows of a table and returns the first line after it.
    fn table(&mut self, number: usize) -> usize {
        self.close_to(None);
        let index = self.blocks.tables.len();
        let mut end = number;
        while let Some(line) = self.blocks.lines.get(end) {
            if line.kind == Kind::Blank || !self.text[line.first..line.end].contains('|') {
                break;
            }
            self.set(end, Kind::Row(index));
            end += 1;
        }
        self.blocks.tables.push(Table { line: number, lines_end: end });
        end
    }
}

/// Returns the length of a checkbox at the beginning of a text: brackets around at most one character, followed by a blank
/// or nothing.
fn brackets(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let close = inner.char_indices().take(4).find(|(_, c)| *c == ']')?.0;
    let behind = &inner[close + 1..];
    let one = inner[..close].trim().chars().count() <= 1;
    (one && (behind.is_empty() || behind.starts_with([' ', '\t']))).then_some(close + 2)
}

fn opens(content: &str) -> Option<(u8, usize)> {
    let mark = content.bytes().next().filter(|mark| matches!(mark, b'`' | b'~'))?;
    let length = content.bytes().take_while(|byte| *byte == mark).count();
    let code_span = mark == b'`' && content[length..].contains('`');
    (length >= 3 && !code_span).then_some((mark, length))
}

fn closes(content: &str, fence: &Fence) -> bool {
    let content = content.trim_end();
    content.len() >= fence.length && content.bytes().all(|byte| byte == fence.mark)
}

pub(crate) fn is_rule(content: &str) -> bool {
    let Some(mark) = content.bytes().next().filter(|mark| b"-_*".contains(mark)) else {
        return false;
    };
    let marks = content.bytes().filter(|byte| *byte == mark).count();
    marks >= 3 && content.bytes().all(|byte| byte == mark || byte == b' ' || byte == b'\t')
}

fn is_table_rule(content: &str) -> bool {
    content.contains('|')
        && content.contains('-')
        && content.bytes().all(|byte| b"|-: \t".contains(&byte))
}

/// The level of headings in bold text: below all others.
pub(crate) const BOLD_LEVEL: u8 = 7;
