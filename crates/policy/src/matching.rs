//! Rules against words that may be unknown: yes, no, or maybe.
//!
//! A rule that allows means its words as they are written, one after the other. A rule that restricts
//! (`prompt`, `forbidden`) also means a program that is named by its path, as in `/usr/bin/git`, and the
//! same command with options between its words: `git -C x push` is a `git push`. Whether the word behind
//! an option is its value is known of git only; of other programs such a match is a maybe.

use std::collections::BTreeMap;

use crate::rules::{PatternToken, PrefixRule, RuleDecision};
use crate::shell::Word;
use crate::wrap::{GIT_FLAGS, GIT_VALUES, base_name};

/// Whether a rule is about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// It is not, whatever the unknown words become.
    No,
    /// It depends on what they become.
    Maybe,
    /// It is.
    Yes,
}

impl PrefixRule {
    /// Finds out whether the rule is about a command of which some words may be unknown.
    pub fn matches_words(&self, words: &[Word]) -> Match {
        let restricts = self.decision != RuleDecision::Allow;
        let git = words.first().and_then(Word::known).is_some_and(|name| base_name(name) == "git");
        // Where the next word of the pattern may be looked for, and how sure that is.
        let mut places = BTreeMap::from([(0, Match::Yes)]);
        for (n, token) in self.pattern.iter().enumerate() {
            let mut next = BTreeMap::new();
            while let Some((at, sure)) = places.pop_first() {
                let Some(word) = words.get(at) else { continue };
                let by_name = n == 0 && restricts;
                let fits = fits(token, word, by_name);
                // Words that may vanish bring the next ones to their place.
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
                        // Several words may come of the value, and the next one of the pattern among them.
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

/// Keeps the surer of two ways to a place.
fn note(places: &mut BTreeMap<usize, Match>, at: usize, sure: Match) {
    let known = places.entry(at).or_insert(sure);
    *known = sure.max(*known);
}

fn fits(token: &PatternToken, word: &Word, by_name: bool) -> bool {
    let fits = |wanted: &String| match word.known() {
        Some(text) => wanted == text || (by_name && wanted == base_name(text)),
        // Of a name, what is known may be only the directory.
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

/// Tells whether an option can stand by itself, and how sure it is that the next word is its value.
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
