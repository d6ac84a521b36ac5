//! The vocabulary of a model: bytes of tokens, special tokens, and tokenization.

use std::collections::HashMap;
use std::ops::ControlFlow;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use prompt::{Piece, Token};

#[derive(Debug)]
pub(crate) struct Vocabulary {
    /// The bytes of all tokens, concatenated.
    bytes: Vec<u8>,
    tokens: Vec<Entry>,
    specials: Specials,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    end: u32,
    special: bool,
    ends_answer: bool,
}

impl Vocabulary {
    /// Reads the vocabulary of a model; `specials` are those named by its file.
    pub(crate) fn new(model: &LlamaModel, specials: &[String]) -> Self {
        let vocab = model.vocab();
        let mut specials: HashMap<&str, Option<u32>> =
            specials.iter().map(|name| (name.as_str(), None)).collect();
        let (mut bytes, mut tokens, mut more) = (Vec::new(), Vec::new(), HashMap::new());
        for token in vocab.tokens() {
            let piece = vocab.token_to_piece(token, true, None);
            let id = token.0.unsigned_abs();
            // llama.cpp treats some marks of gpt-oss as text, so it is not authoritative.
            let named = std::str::from_utf8(&piece).ok().and_then(|name| specials.get_mut(name));
            // And it treats some tokens as marks that their file declares as text.
            let ends_answer = vocab.is_eog(token);
            let special = named.is_some() || vocab.is_control(token) || ends_answer;
            match (named, std::str::from_utf8(&piece)) {
                (Some(named), _) => *named = Some(id),
                (None, Ok(name)) if special && !name.is_empty() => {
                    more.insert(name.to_owned(), id);
                }
                (None, _) => {}
            }
            bytes.extend_from_slice(&piece);
            let end = u32::try_from(bytes.len()).expect("a file's tokens have at most 256 MB");
            tokens.push(Entry { end, special, ends_answer });
        }
        more.extend(specials.into_iter().filter_map(|(name, id)| Some((name.to_owned(), id?))));
        Self { bytes, tokens, specials: Specials::new(more) }
    }

    pub(crate) fn specials(&self) -> impl Iterator<Item = String> {
        self.specials.ids.keys().cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the bytes of a token; empty if the id does not exist.
    pub(crate) fn token(&self, id: u32) -> Token<'_> {
        let index = id as usize;
        let Some(entry) = self.tokens.get(index) else {
            return Token { id, bytes: b"", special: false };
        };
        let start = index.checked_sub(1).map_or(0, |before| self.tokens[before].end);
        let bytes = &self.bytes[start as usize..entry.end as usize];
        Token { id, bytes, special: entry.special }
    }

    pub(crate) fn ends_answer(&self, id: u32) -> bool {
        self.tokens.get(id as usize).is_some_and(|entry| entry.ends_answer)
    }

    pub(crate) fn ends(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.tokens).filter(|(_, entry)| entry.ends_answer).map(|(id, _)| id)
    }

    /// Tokenizes a prompt while `go_on` returns true.
    pub(crate) fn tokenise(
        &self,
        model: &LlamaModel,
        pieces: &[Piece],
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Vec<u32> {
        let vocab = model.vocab();
        let mut tokens = Vec::new();
        let mut add = |tokens: &mut Vec<u32>, text: &str, special: bool| {
            if !go_on(tokens.len()) {
                return ControlFlow::Break(());
            }
            let made = vocab.tokenize(text.as_bytes(), false, special);
            tokens.extend(made.iter().map(|LlamaToken(id)| id.unsigned_abs()));
            ControlFlow::Continue(())
        };
        for piece in pieces {
            let id = match piece {
                Piece::Special(name) => self.specials.ids.get(name),
                _ => None,
            };
            let done = match (id, piece) {
                (Some(&id), _) => {
                    tokens.push(id);
                    ControlFlow::Continue(())
                }
                (None, Piece::Template(text)) => {
                    self.specials.runs(text, |part| add(&mut tokens, part, true))
                }
                (None, Piece::Text(text) | Piece::Special(text)) => {
                    self.specials.apart(text, |part| {
                        self.specials.runs(part, |part| add(&mut tokens, part, false))
                    })
                }
            };
            if done.is_break() {
                break;
            }
        }
        tokens
    }
}

/// Longest run of characters of one class; no word in any language is as long.
const RUN_MAX: usize = 512;
/// How many bytes are passed to llama.cpp at once.
const PART_BYTES_MAX: usize = 256 * 1024;

/// The names of special tokens, indexed for searching.
#[derive(Debug)]
struct Specials {
    ids: HashMap<String, u32>,
    /// By their first byte.
    names: HashMap<u8, Vec<String>>,
    /// Length of the longest name, in bytes.
    longest: usize,
}

impl Specials {
    fn new(ids: HashMap<String, u32>) -> Self {
        let mut names: HashMap<u8, Vec<String>> = HashMap::new();
        for name in ids.keys() {
            if let Some(&first) = name.as_bytes().first() {
                names.entry(first).or_default().push(name.clone());
            }
        }
        let longest = ids.keys().map(String::len).max().unwrap_or(0);
        Self { ids, names, longest }
    }

    /// Splits a text into parts of limited length, without long runs of letters, digits, blanks or other
    /// characters.
    ///
    /// For many models, llama.cpp splits words with a regex library that recurses once per character of a
    /// run: a few thousand overflow the stack. It also needs fifty times the memory of what it is given at
    /// once, and cannot be interrupted.
    fn runs<'a>(
        &self,
        text: &'a str,
        mut with: impl FnMut(&'a str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let kind = |letter: char| {
            let blank = letter.is_whitespace() || letter.is_control();
            (letter.is_alphabetic(), letter.is_numeric(), blank)
        };
        let (mut start, mut count, mut before) = (0, 0, None);
        for (at, letter) in text.char_indices() {
            let now = Some(kind(letter));
            let changes = now != before;
            count = if changes { 1 } else { count + 1 };
            before = now;
            // For every tokenizer words end before blanks; without blanks, split anywhere.
            let bytes = at - start;
            let is_full = changes
                && (bytes >= PART_BYTES_MAX || bytes >= PART_BYTES_MAX / 2 && letter == ' ');
            if (count > RUN_MAX || is_full) && !self.is_inside_name(text, at) {
                with(&text[start..at])?;
                (start, count) = (at, 1);
            }
        }
        if start < text.len() { with(&text[start..]) } else { ControlFlow::Continue(()) }
    }

    fn is_inside_name(&self, text: &str, at: usize) -> bool {
        let starts = at.saturating_sub(self.longest)..at;
        starts.filter(|start| text.is_char_boundary(*start)).any(|start| {
            let names = self.names.get(&text.as_bytes()[start]);
            names.into_iter().flatten().any(|name| {
                start + name.len() > at && text.as_bytes()[start..].starts_with(name.as_bytes())
            })
        })
    }

    /// Splits a text into parts that do not contain the name of a special token.
    ///
    /// llama.cpp turns some names into tokens whether they are wanted or not, so each name is split after its
    /// first character.
    fn apart<'a>(
        &self,
        text: &'a str,
        mut with: impl FnMut(&'a str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut start = 0;
        for (at, letter) in text.char_indices() {
            let Some(names) = self.names.get(&text.as_bytes()[at]) else { continue };
            let cut = at + letter.len_utf8();
            if names
                .iter()
                .any(|name| name.len() > letter.len_utf8() && text[at..].starts_with(name))
            {
                with(&text[start..cut])?;
                start = cut;
            }
        }
        with(&text[start..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_cut() {
        let names = ["<|end|>", "<"].map(|name| (name.to_owned(), 1));
        let specials = Specials::new(names.into_iter().collect());
        let check = |text: &str, want: &[usize]| {
            let mut parts = Vec::new();
            let all = specials.runs(text, |part| {
                parts.push(part);
                ControlFlow::Continue(())
            });
            assert!(all.is_continue());
            assert_eq!(parts.concat(), text);
            assert_eq!(parts.iter().map(|part| part.chars().count()).collect::<Vec<_>>(), want);
        };
        check("", &[]);
        check("plain text", &[10]);
        check(&"é".repeat(512), &[512]);
        check(&"é".repeat(1025), &[512, 512, 1]);
        check(&format!("a {}", "=".repeat(600)), &[514, 88]);
        check(&"ab ".repeat(1000), &[3000]);
        check(&" \t\n".repeat(200), &[512, 88]);
        // Long texts are split before a blank, if there is one.
        check(&"ab ".repeat(60_000), &[131_072, 48_928]);
        check(&"a=".repeat(150_000), &[262_144, 37_856]);
        // Not in the middle of a name.
        check(&format!("{}<|end|>", "=".repeat(511)), &[518]);
        check(&format!("{}<|end", "=".repeat(511)), &[512, 4]);
    }

    #[test]
    fn names_are_cut() {
        let names = ["<|end|>", "<|end", "é!", "x"].map(|name| (name.to_owned(), 1));
        let specials = Specials::new(names.into_iter().collect());
        for (text, want) in [
            ("", &[""][..]),
            ("plain < text", &["plain < text"]),
            ("a<|end|>b", &["a<", "|end|>b"]),
            ("<|end|><|end", &["<", "|end|><", "|end"]),
            ("oh é!", &["oh é", "!"]),
            ("x", &["x"]),
        ] {
            let mut parts = Vec::new();
            let all = specials.apart(text, |part| {
                parts.push(part);
                ControlFlow::Continue(())
            });
            assert!(all.is_continue());
            assert_eq!(parts, want);
            assert_eq!(parts.concat(), text);
        }
    }
}
