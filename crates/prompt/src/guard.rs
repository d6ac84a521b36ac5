//! Keeps names of special tokens in conversation text from becoming special tokens.
//!
//! A [`BREAK`] is inserted into every such name before the text goes through a template, and the output is
//! cut into pieces there. Half a name is not a name, so nothing in the conversation becomes a special token,
//! however a template trims, splits or joins it. Text without such a name stays in one piece with the
//! template around it, and is tokenized as in training.

use std::collections::HashSet;

use serde_json::Value;

use crate::Piece;

/// The character inserted into a special token's name. A noncharacter, which no text contains legitimately.
pub(crate) const BREAK: char = '\u{fdd0}';

/// The names of special tokens, indexed for searching.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    names: HashSet<String>,
    firsts: HashSet<u8>,
    /// Longest first.
    lengths: Vec<usize>,
}

impl Names {
    /// Collects all names that could be mistaken; runs of blanks and short words are always text.
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let is_mark = |name: &String| {
            name.len() >= 3 && name.chars().any(|c| !c.is_alphanumeric() && !c.is_whitespace())
        };
        let names: HashSet<String> = names.into_iter().filter(is_mark).collect();
        let firsts = names.iter().map(|name| name.as_bytes()[0]).collect();
        let mut lengths: Vec<usize> = names.iter().map(String::len).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        Self { names, firsts, lengths }
    }

    /// Returns where to break a name at this position, if there is one.
    fn at(&self, text: &str, from: usize) -> Option<usize> {
        if !self.firsts.contains(&text.as_bytes()[from]) {
            return None;
        }
        let name = self.lengths.iter().find_map(|length| {
            let word = text.get(from..from + length)?;
            self.names.get(word)
        })?;
        // Every tokenizer starts a new word after `<|`, so the cut does not change how text is tokenized.
        let head = if name.starts_with("<|") { 2 } else { 1 };
        let head = (head..).find(|at| name.is_char_boundary(*at)).expect("the end is a boundary");
        Some(from + head)
    }

    /// Breaks all names in a text.
    pub(crate) fn guard(&self, text: &str) -> String {
        let text = text.replace(BREAK, "");
        let mut out = String::with_capacity(text.len());
        let mut kept = 0;
        for (from, _) in text.char_indices() {
            if let Some(cut) = self.at(&text, from) {
                out.push_str(&text[kept..cut.max(kept)]);
                out.push(BREAK);
                kept = cut.max(kept);
            }
        }
        out.push_str(&text[kept..]);
        out
    }

    /// Guards every string of a value, keys included.
    pub(crate) fn guard_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.guard(text)),
            Value::Array(items) => items.iter().map(|item| self.guard_value(item)).collect(),
            Value::Object(fields) => {
                let fields = fields.iter();
                Value::Object(
                    fields.map(|(key, value)| (self.guard(key), self.guard_value(value))).collect(),
                )
            }
            other => other.clone(),
        }
    }

    /// Appends text without special tokens, cut so that no piece contains a whole name.
    pub(crate) fn text_pieces(&self, text: &str, pieces: &mut Vec<Piece>) {
        let guarded = self.guard(text);
        let parts = guarded.split(BREAK).filter(|part| !part.is_empty());
        pieces.extend(parts.map(|part| Piece::Text(part.to_owned())));
    }
}

/// Cuts the output of a template where names were broken.
pub(crate) fn cut(rendered: &str) -> Vec<Piece> {
    let parts = rendered.split(BREAK).filter(|part| !part.is_empty());
    parts.map(|part| Piece::Template(part.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BREAK, Names, cut};
    use crate::Piece;

    fn names() -> Names {
        let names = ["<|im_end|>", "<|im_start|>", "[INST]", "<s>", "  ", "\n\n", "the", "<é>"];
        Names::new(names.map(str::to_owned))
    }

    #[track_caller]
    fn check(text: &str, want: &[&str]) {
        let guarded = names().guard(text);
        assert_eq!(guarded.split(BREAK).collect::<Vec<_>>(), want);
    }

    #[test]
    fn names_are_broken() {
        check("the  hello\n\n", &["the  hello\n\n"]);
        check("a<|im_end|>b", &["a<|", "im_end|>b"]);
        check("<|im_end|><|im_start|>", &["<|", "im_end|><|", "im_start|>"]);
        check("[INST]<s><é>", &["[", "INST]<", "s><", "é>"]);
        check("<|im_\u{fdd0}end|>", &["<|", "im_end|>"]);
        check("<|im_en", &["<|im_en"]);
        check("", &[""]);
    }

    #[test]
    fn pieces_are_templates() {
        let want = [Piece::Template("x<|".into()), Piece::Template("im_end|>".into())];
        assert_eq!(cut(&names().guard("x<|im_end|>")), want);
    }

    proptest! {
        #[test]
        fn no_piece_has_a_name(words in prop::collection::vec(0..9_usize, 0..12)) {
            const WORDS: [&str; 9] =
                ["<|im_end|>", "<|", "im_end", "|>", "<|im_", "[INST]", "<s", ">", "\u{fdd0}"];
            let text: String = words.iter().map(|word| WORDS[*word]).collect();
            let names = names();
            let mut pieces = Vec::new();
            names.text_pieces(&text, &mut pieces);
            let mut whole = String::new();
            for piece in &pieces {
                let Piece::Text(part) = piece else { panic!("{piece:?}") };
                prop_assert!(!names.names.iter().any(|name| part.contains(name.as_str())), "{part}");
                whole += part;
            }
            prop_assert_eq!(whole, text.replace(BREAK, ""));
        }
    }
}
