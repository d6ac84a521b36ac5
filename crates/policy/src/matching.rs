//! Rules against words that may be unknown: yes, no, or maybe.
//!
//! A rule that restricts (`prompt`, `forbidden`) also means a program that is named by its path, as
//! in `/usr/bin/git`; a rule that allows means the program only as it is written, because a path may
//! lead to anything.

use crate::rules::{PatternToken, PrefixRule, RuleDecision};
use crate::shell::Word;
use crate::wrap::base_name;

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
        let mut found = Match::Yes;
        for (at, token) in self.pattern.iter().enumerate() {
            let Some(word) = words.get(at) else {
                return Match::No;
            };
            let by_name = at == 0 && self.decision != RuleDecision::Allow;
            let fits = |wanted: &String| match word.known() {
                Some(text) => wanted == text || (by_name && wanted == base_name(text)),
                // Of a name, what is known may be only the directory.
                None if by_name => true,
                None => wanted.starts_with(&word.text),
            };
            let any = match token {
                PatternToken::One(wanted) => fits(wanted),
                PatternToken::AnyOf(wanted) => wanted.iter().any(fits),
            };
            // Words that may vanish bring the next ones to their place.
            let vanishes = word.splits() && word.text.is_empty();
            if !any && !vanishes {
                return Match::No;
            }
            if word.splits() {
                return Match::Maybe;
            }
            if word.unknown.is_some() {
                found = Match::Maybe;
            }
        }
        found
    }
}
