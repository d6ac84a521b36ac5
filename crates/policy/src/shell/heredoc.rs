//! Here-documents, verified against the text: where they end, and what is expanded in them.

use std::ops::Range;

/// A here-document as the grammar sees it.
pub(super) struct Heredoc<'a> {
    /// `<<` or `<<-`.
    pub(super) operator: &'a str,
    /// The word after the operator.
    pub(super) start: Range<usize>,
    pub(super) body: Range<usize>,
    /// The line that ends it.
    pub(super) end: Range<usize>,
    /// The expansions in it.
    pub(super) holes: &'a [Range<usize>],
}

impl Heredoc<'_> {
    /// Tells whether bash would see the same; `from` is where the line after the operator begins.
    pub(super) fn agrees(&self, script: &str, from: usize) -> bool {
        let Some((delimiter, literal)) = delimiter(&script[self.start.clone()]) else {
            return false;
        };
        let Some(lines) = script.get(from..) else {
            return false;
        };
        let mut at = from;
        let end = lines.split_inclusive('\n').find_map(|line| {
            let text = line.strip_suffix('\n').unwrap_or(line);
            let shown = if self.operator == "<<-" { text.trim_start_matches('\t') } else { text };
            let begins = at + text.len() - shown.len();
            at += line.len();
            (shown == delimiter).then_some(begins..begins + shown.len())
        });
        let Some(end) = end else {
            return false;
        };
        let found = script[self.end.clone()].trim_matches(['\t', '\n']);
        let ends_there = self.end.end == end.end && found == delimiter;
        let inside = self.body.start >= from.saturating_sub(1) && self.body.end <= end.start;
        ends_there && inside && (literal || self.expansions_agree(script, from..end.start))
    }

    /// Tells whether nothing but the holes is expanded.
    fn expansions_agree(&self, script: &str, lines: Range<usize>) -> bool {
        let bytes = &script.as_bytes()[..lines.end];
        let mut holes = self.holes.iter().peekable();
        let mut at = lines.start;
        while at < bytes.len() {
            if let Some(hole) = holes.next_if(|hole| hole.start == at) {
                at = hole.end;
                continue;
            }
            let expands = |next: &u8| next.is_ascii_alphanumeric() || b"_@*#?$!({[-".contains(next);
            match bytes[at] {
                b'`' => return false,
                b'$' if bytes.get(at + 1).is_some_and(|next| b"({[`".contains(next)) => {
                    return false;
                }
                b'$' if bytes.get(at + 1).is_some_and(expands) => at += 1,
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        holes.peek().is_none()
    }
}

/// Parses the simple forms of a delimiter; also returns whether the lines are literal.
fn delimiter(word: &str) -> Option<(&str, bool)> {
    let quoted = |quote: char| word.strip_prefix(quote)?.strip_suffix(quote);
    let (name, literal) = match quoted('\'').or_else(|| quoted('"')) {
        Some(name) => (name, true),
        None => word.strip_prefix('\\').map_or((word, false), |name| (name, true)),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (!name.is_empty() && name.bytes().all(plain)).then_some((name, literal))
}
