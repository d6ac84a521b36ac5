//! Splits text into markers and the text between them, incrementally.
//!
//! What is held back is always a prefix of a marker, so it need not be stored: it is taken from the table
//! again if it turns out to be text.

use std::ops::Range;

use crate::find::find;

/// A token of a dialect, and its meaning.
pub(crate) type Table<M> = &'static [(&'static str, M)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a, M> {
    /// Text without a marker; never empty.
    Text(&'a str),
    /// A marker, and how it is written.
    Marker(M, &'static str),
}

/// Finds the markers of a table.
///
/// The first character of a marker occurs nowhere else in any marker, so a failed match cannot contain the
/// beginning of another.
#[derive(Clone, Debug)]
pub(crate) struct Lexer<M: 'static> {
    table: Table<M>,
    /// A prefix of a marker, as the table writes it.
    held: &'static str,
}

impl<M: Copy> Lexer<M> {
    pub(crate) fn new(table: Table<M>) -> Self {
        debug_assert!(
            table.iter().all(|(word, _)| word.starts_with('<') && !word[1..].contains('<')),
            "markers begin with the only `<` they have"
        );
        Self { table, held: "" }
    }

    /// Tells whether the next text is plain, and may be used without a push.
    #[inline]
    pub(crate) fn is_text(&self, text: &str) -> bool {
        self.held.is_empty() && !text.is_empty() && find(*b"<", text.as_bytes()).is_none()
    }

    /// Reads the next text, which is at `at` in the input.
    pub(crate) fn push(
        &mut self,
        text: &str,
        at: u64,
        mut give: impl FnMut(Piece<'_, M>, Range<u64>),
    ) {
        let mut from = if self.held.is_empty() { 0 } else { self.go_on(text, at, &mut give) };
        let mut look = from;
        while let Some(found) = find(*b"<", &text.as_bytes()[look..]) {
            let start = look + found;
            let rest = &text[start..];
            // Most candidates are not markers, which the second byte shows.
            let second = rest.as_bytes().get(1);
            let fits = |word: &str| second.is_none() || word.as_bytes().get(1) == second;
            if !self.table.iter().any(|(word, _)| fits(word)) {
                look = start + 1;
                continue;
            }
            let before = &text[from..start];
            let here = at + start as u64;
            if let Some(&(word, marker)) =
                self.table.iter().find(|(word, _)| rest.starts_with(word))
            {
                if !before.is_empty() {
                    give(Piece::Text(before), at + from as u64..here);
                }
                give(Piece::Marker(marker, word), here..here + word.len() as u64);
                from = start + word.len();
                look = from;
            } else if let Some((word, _)) =
                self.table.iter().find(|(word, _)| word.starts_with(rest))
            {
                if !before.is_empty() {
                    give(Piece::Text(before), at + from as u64..here);
                }
                self.held = &word[..rest.len()];
                return;
            } else {
                look = start + 1;
            }
        }
        if from < text.len() {
            give(Piece::Text(&text[from..]), at + from as u64..at + text.len() as u64);
        }
    }

    /// Ends the text and returns what was held back.
    pub(crate) fn finish(&mut self) -> &'static str {
        std::mem::take(&mut self.held)
    }

    /// Continues a held prefix; returns where to continue.
    fn go_on(
        &mut self,
        text: &str,
        at: u64,
        give: &mut impl FnMut(Piece<'_, M>, Range<u64>),
    ) -> usize {
        let start = at.saturating_sub(self.held.len() as u64);
        for (used, next) in text.char_indices() {
            if self.held.is_empty() {
                return used;
            }
            let (had, has) = (self.held.len(), self.held.len() + next.len_utf8());
            let goes_on = |word: &str| {
                word.strip_prefix(self.held).is_some_and(|rest| rest.starts_with(next))
            };
            match self.table.iter().find(|(word, _)| goes_on(word)) {
                Some(&(word, marker)) if word.len() == has => {
                    self.held = "";
                    give(Piece::Marker(marker, word), start..start + word.len() as u64);
                }
                Some((word, _)) => self.held = &word[..has],
                None => {
                    // The prefix of earlier pushes was not a marker.
                    give(Piece::Text(self.held), start..start + had as u64);
                    self.held = "";
                    return used;
                }
            }
        }
        text.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Lexer, Piece, Table};

    const TABLE: Table<char> = &[
        ("<|end|>", 'e'),
        ("<|endoftext|>", 'x'),
        ("<|start|>", 's'),
        ("<b>", 'b'),
        ("<｜é", 'é'),
    ];

    /// Joins the pieces into one string, markers as `[x]`, and checks that nothing is missing.
    fn read(text: &str, cut: usize) -> String {
        let mut lexer = Lexer::new(TABLE);
        let (mut read, mut end, mut from) = (String::new(), 0, 0);
        let mut take = |piece: Piece<'_, char>, range: std::ops::Range<u64>| {
            assert_eq!(range.start, end, "no byte between pieces");
            end = range.end;
            let written = match piece {
                Piece::Text(part) => {
                    assert!(!part.is_empty());
                    read.push_str(part);
                    part
                }
                Piece::Marker(marker, word) => {
                    read.extend(['[', marker, ']']);
                    word
                }
            };
            assert_eq!(written, &text[range.start as usize..range.end as usize]);
        };
        while from < text.len() {
            let mut to = (from + cut).min(text.len());
            while !text.is_char_boundary(to) {
                to += 1;
            }
            lexer.push(&text[from..to], from as u64, &mut take);
            from = to;
        }
        let held = lexer.finish();
        if !held.is_empty() {
            take(Piece::Text(held), (text.len() - held.len()) as u64..text.len() as u64);
        }
        assert_eq!(end as usize, text.len());
        read
    }

    #[test]
    fn markers_and_text() {
        for (text, want) in [
            ("", ""),
            ("a<|end|>b", "a[e]b"),
            ("<|end|><|start|>", "[e][s]"),
            ("<|endoftext|>", "[x]"),
            ("<|endoftex|>", "<|endoftex|>"),
            ("<<|end|>", "<[e]"),
            ("<|e<|end|>", "<|e[e]"),
            ("<|en", "<|en"),
            ("<｜é<|end|><｜<｜é", "[é][e]<｜[é]"),
            ("<|end|", "<|end|"),
            ("a <é <b> <|é", "a <é [b] <|é"),
        ] {
            for cut in 1..=text.len().max(1) {
                assert_eq!(read(text, cut), want, "{text:?} by {cut}");
            }
        }
    }

    proptest! {
        #[test]
        fn chunking_does_not_matter(
            parts in prop::collection::vec(
                prop::sample::select(vec!["<", "|", "<|end", "oftext|>", "|>", "<|start|>", "é", "x", "<b"]),
                0..20,
            ),
            cut in 1usize..9,
        ) {
            let text = parts.concat();
            prop_assert_eq!(read(&text, cut), read(&text, text.len().max(1)));
        }
    }
}
