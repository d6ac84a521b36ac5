//! Matches rules against words that may be unknown: yes, no, or maybe.
//!
//! An `allow` rule matches its words exactly as written. A restricting rule (`prompt`, `forbidden`) also
//! matches a program given by its path, as in `/usr/bin/git`, and the same command with options between its
//! words: `git -C x push` is a `git push`. Only for git do we know which options take a value; for other
//! programs such a match is a maybe.

use std::collections::BTreeMap;

use crate::rules::{PatternToken, PrefixRule, RuleDecision};
use crate::shell::Word;
use crate::wrap::{GIT_FLAGS, GIT_VALUES, base_name};

/// Whether a rule matches a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// It does not, whatever the unknown words expand to.
    No,
    /// It depends on what they expand to.
    Maybe,
    Yes,
}

impl PrefixRule {
    /// Matches the rule against a command in which some words may be unknown.
    pub fn matches_words(&self, words: &[Word]) -> Match {
        let restricts = self.decision != RuleDecision::Allow;
        let git = words.first().and_then(Word::known).is_some_and(|name| base_name(name) == "git");
        // Where the next word of the pattern may match, and how certain that is.
        let mut places = BTreeMap::from([(0, Match::Yes)]);
        for (n, token) in self.pattern.iter().enumerate() {
            let mut next = BTreeMap::new();
            while let Some((at, sure)) = places.pop_first() {
                let Some(word) = words.get(at) else { continue };
                let by_name = n == 0 && restricts;
                let fits = fits(token, word, by_name);
                // If a word expands to nothing, the next ones take its place.
                let vanishes = word.splits() && word.text.is_empty();
                if word.splits() && (fits || vanishes) {
                    return Match::Maybe;
                }
                if fits {
                    let sure = if word.unknown.is_some() { Match::Maybe } else { sure };
                    note(&mut next, at + 1, sure);
                } else if restricts && n > 0 && is_option(word) {
                    let (alone, with_value) = option(word, git);
                    if alone {
                        note(&mut places, at + 1, sure);
                    }
                    if let Some(valued) = with_value {
                        // The value may expand to several words, and the next one of the pattern may be
                        // among them.
                        if words.get(at + 1).is_some_and(Word::splits) {
                            return Match::Maybe;
                        }
                        note(&mut places, at + 2, sure.min(valued));
                    }
                }
            }
            places = next;
        }
        places.into_values().max().unwrap_or(Match::No)
    }
}

/// Keeps the more certain of two ways to reach a position.
fn note(places: &mut BTreeMap<usize, Match>, at: usize, sure: Match) {
    let known = places.entry(at).or_insert(sure);
    *known = sure.max(*known);
}

fn fits(token: &PatternToken, word: &Word, by_name: bool) -> bool {
    let fits = |wanted: &String| match word.known() {
        Some(text) => wanted == text || (by_name && wanted == base_name(text)),
        // Of a program name, only the directory may be known.
        None if by_name => true,
        None => wanted.starts_with(&word.text),
    };
    match token {
        PatternToken::One(wanted) => fits(wanted),
        PatternToken::AnyOf(wanted) => wanted.iter().any(fits),
    }
}

fn is_option(word: &Word) -> bool {
    word.text.len() > 1 && word.text.starts_with('-') && word.text != "--"
}

/// Returns whether an option may stand alone, and how certain it is that the next word is its value.
fn option(word: &Word, git: bool) -> (bool, Option<Match>) {
    let text = word.text.as_str();
    if word.unknown.is_none() && text.contains('=') || git && GIT_FLAGS.contains(&text) {
        return (true, None);
    }
    match git && GIT_VALUES.contains(&text) {
        true => (false, Some(Match::Yes)),
        false => (true, Some(Match::Maybe)),
    }
}
