//! Grammars of answers, and the tokens they allow.
//!
//! A grammar is first asked about the token that was sampled without it, which is cheap, and only if it
//! refuses that one, for the mask of all allowed tokens. Tokens without an alternative are appended without
//! running the model.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use llama_cpp_2::model::LlamaModel;
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use prompt::request::Trial;
use prompt::{Piece, effort};
use toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::sample::Sampler;
use super::vocabulary::Vocabulary;
use crate::engine::UNWANTED;
use crate::panics::contain;

/// Compiles grammars for one model.
pub(crate) struct Grammars {
    factory: ParserFactory,
    /// Recently used grammars, the newest last, with the trials made for them.
    recent: Mutex<Vec<(String, Matcher)>>,
    /// How many are being compiled.
    reading: Mutex<usize>,
    /// Signals that one of them is done.
    free: Condvar,
}

/// A slot for compiling a grammar.
struct Place<'a>(&'a Grammars);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.reading.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.free.notify_one();
    }
}

/// Why a grammar cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    pub(crate) reason: String,
    /// The field of the request that it comes from, if known.
    pub(crate) param: Option<String>,
}

fn unusable(reason: String) -> Unusable {
    Unusable { reason, param: None }
}

fn trial_failed(trial: &Trial, reason: String) -> Unusable {
    Unusable { reason, param: Some(trial.param.clone()) }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}

impl Grammars {
    /// Prepares the vocabulary of a model.
    pub(crate) fn new(
        model: &Arc<LlamaModel>,
        vocabulary: &Arc<Vocabulary>,
    ) -> Result<Self, String> {
        Self::of_words(&token_env(model, vocabulary)?)
    }

    fn of_words(words: &TokEnv) -> Result<Self, String> {
        let mut factory = ParserFactory::new_simple(words).map_err(|error| error.to_string())?;
        factory.quiet();
        let limits = factory.limits_mut();
        // Errors are sent to clients: they contain the problem, not the text so far.
        limits.verbose_errors = false;
        limits.initial_lexer_fuel = effort::COMPILE_FUEL;
        limits.step_lexer_fuel = effort::STEP_FUEL;
        limits.step_max_items = effort::STEP_ITEMS_MAX;
        limits.max_items_in_row = effort::ROW_ITEMS_MAX;
        limits.max_lexer_states = effort::STATES_MAX;
        limits.max_grammar_size = effort::SYMBOLS_MAX;
        Ok(Self { factory, recent: Mutex::default(), reading: Mutex::new(0), free: Condvar::new() })
    }

    /// Compiles a grammar, after trying out its hard parts, while `go_on` returns true.
    pub(crate) fn read(
        &self,
        grammar: &str,
        trials: &[Trial],
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Grammar, Unusable> {
        if grammar.len() > GRAMMAR_BYTES_MAX {
            return Err(unusable(format!("the grammar has more than {GRAMMAR_BYTES_MAX} bytes")));
        }
        // Not every grammar contains everything that is tried.
        let tried = trials.iter().filter(|trial| trial.is_hard).map(|trial| trial.grammar.as_str());
        let key = std::iter::once(grammar).chain(tried).collect::<Vec<_>>().join("\0");
        if let Some(known) = self.known(&key) {
            return Ok(known);
        }
        let _place = self.place(go_on).ok_or_else(|| unusable(UNWANTED.to_owned()))?;
        // The compiler descends into schemas recursively.
        let matcher = thread::scope(|scope| {
            let thread = thread::Builder::new().name("grammar".to_owned()).stack_size(STACK_BYTES);
            let make = || contain(|| self.make(grammar, trials, go_on));
            let thread = thread.spawn_scoped(scope, make);
            let made = thread.map_err(|error| unusable(error.to_string()))?.join();
            let made = made.unwrap_or_else(|_| Err(NOTHING.to_owned()));
            made.unwrap_or_else(|panic| Err(unusable(fault(panic))))
        })?;
        let own = Grammar { matcher: matcher.deep_clone() };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= GRAMMARS_KEPT {
            recent.remove(0);
        }
        recent.push((key, matcher));
        Ok(own)
    }

    /// Waits for a compile slot; `None` if the client has disconnected.
    fn place(&self, go_on: &dyn Fn() -> bool) -> Option<Place<'_>> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        while *reading >= READ_AT_ONCE {
            if !go_on() {
                return None;
            }
            let waited = self.free.wait_timeout(reading, LOOK_EVERY);
            reading = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *reading += 1;
        Some(Place(self))
    }

    fn make(
        &self,
        grammar: &str,
        trials: &[Trial],
        go_on: &dyn Fn() -> bool,
    ) -> Result<Matcher, Unusable> {
        let mut known = HashSet::new();
        for trial in trials.iter().filter(|trial| trial.is_hard) {
            if !go_on() {
                return Err(unusable(UNWANTED.to_owned()));
            }
            if known.insert(&trial.grammar) {
                self.try_out(&trial.grammar).map_err(|reason| trial_failed(trial, reason))?;
            }
        }
        if !go_on() {
            return Err(unusable(UNWANTED.to_owned()));
        }
        self.compile(grammar).map_err(|reason| {
            // It is one of them, alone or together with the others.
            let fails = |trial: &&Trial| go_on() && self.compile(&trial.grammar).is_err();
            match trials.iter().filter(|trial| !trial.is_hard).find(fails) {
                Some(trial) => trial_failed(trial, reason),
                None => unusable(reason),
            }
        })
    }

    fn compile(&self, grammar: &str) -> Result<Matcher, String> {
        let lark = TopLevelGrammar::from_lark(grammar.to_owned());
        let parser = self.factory.create_parser(lark).map_err(fault)?;
        let matcher = Matcher::new(Ok(parser));
        matcher.get_error().map_or(Ok(matcher), |error| Err(fault(error)))
    }

    /// Follows a grammar for a while: a failure at run time is better refused now.
    fn try_out(&self, grammar: &str) -> Result<(), String> {
        let mut matcher = self.compile(grammar)?;
        let end = self.factory.tok_env().tok_trie().eos_token();
        for turn in 0..TRIED_TOKENS {
            matcher.consume_ff_tokens();
            if matcher.is_stopped() {
                break;
            }
            let allowed = matcher.compute_mask().map_err(fault)?.to_list();
            // Neither always the shortest tokens nor always the longest, and deterministic.
            let Some(last) = allowed.len().checked_sub(1) else { break };
            let token = allowed[last - turn * TRIED_STRIDE % (last + 1)];
            if token == end {
                break;
            }
            matcher.consume_token(token).map_err(fault)?;
        }
        // A grammar that has reached its end is reported in the same way.
        if matcher.is_stopped() && matcher.stop_reason().is_ok() {
            return Ok(());
        }
        matcher.get_error().map_or(Ok(()), |error| Err(fault(error)))
    }

    fn known(&self, key: &str) -> Option<Grammar> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let at = recent.iter().position(|(known, _)| known == key)?;
        let entry = recent.remove(at);
        let matcher = entry.1.deep_clone();
        recent.push(entry);
        Some(Grammar { matcher })
    }
}

/// The state of a grammar within an answer.
pub(crate) struct Grammar {
    matcher: Matcher,
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Token(u32),
    /// Nothing: the answer is complete.
    End,
}

/// Samples the next token of an unconstrained answer.
pub(crate) fn choose(
    sampler: &mut Sampler,
    logits: &[f32],
    vocabulary: &Vocabulary,
) -> Result<Next, String> {
    let token = sampler.choose(logits, None).ok_or(NOTHING)?;
    Ok(if vocabulary.ends_answer(token) { Next::End } else { Next::Token(token) })
}

impl Grammar {
    /// Samples the next token.
    pub(crate) fn choose(
        &mut self,
        sampler: &mut Sampler,
        logits: &[f32],
        vocabulary: &Vocabulary,
    ) -> Result<Next, String> {
        contain(|| self.try_choose(sampler, logits, vocabulary))
            .unwrap_or_else(|panic| Err(fault(panic)))
    }

    fn try_choose(
        &mut self,
        sampler: &mut Sampler,
        logits: &[f32],
        vocabulary: &Vocabulary,
    ) -> Result<Next, String> {
        let likely = sampler.choose(logits, None).ok_or(NOTHING)?;
        if vocabulary.ends_answer(likely) {
            if self.accepts()? {
                return Ok(Next::End);
            }
        } else if self.matcher.try_consume_tokens(&[likely]).map_err(fault)? == 1 {
            return Ok(Next::Token(likely));
        }
        let mask = self.matcher.compute_mask().map_err(fault)?;
        let token = sampler.choose(logits, Some(mask.as_slice())).ok_or(NOTHING)?;
        if vocabulary.ends_answer(token) {
            // A grammar can also match the end token itself.
            return Ok(Next::End);
        }
        self.matcher.consume_token(token).map_err(fault)?;
        Ok(Next::Token(token))
    }

    /// Returns the tokens that must come next, whatever the model predicts, and whether they end the answer.
    pub(crate) fn forced(&mut self, vocabulary: &Vocabulary) -> Result<(Vec<u32>, bool), String> {
        contain(|| self.try_forced(vocabulary)).unwrap_or_else(|panic| Err(fault(panic)))
    }

    fn try_forced(&mut self, vocabulary: &Vocabulary) -> Result<(Vec<u32>, bool), String> {
        if self.complete()? {
            return Ok((Vec::new(), true));
        }
        let mut tokens = self.matcher.compute_ff_tokens();
        if let Some(error) = self.matcher.get_error() {
            return Err(fault(error));
        }
        tokens.truncate(FORCED_MAX);
        let end = tokens.iter().position(|&token| vocabulary.ends_answer(token));
        tokens.truncate(end.unwrap_or(tokens.len()));
        if !tokens.is_empty() {
            self.matcher.consume_tokens(&tokens).map_err(fault)?;
        }
        Ok((tokens, end.is_some() || self.complete()?))
    }

    /// Tells whether nothing can follow.
    fn complete(&self) -> Result<bool, String> {
        let error = self.matcher.get_error().map(fault);
        error.map_or_else(|| Ok(self.matcher.is_stopped()), Err)
    }

    fn accepts(&mut self) -> Result<bool, String> {
        self.matcher.is_accepting().map_err(fault)
    }
}

/// Describes an error without the position and the lines of the grammar: those are ours, and can be a
/// megabyte.
fn fault(error: impl fmt::Display) -> String {
    let is_quoted = |line: &str| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.len() < line.len() && rest.starts_with(" | ")
            || line.chars().all(|c| c == '^')
            || line == "<non-verbose/>"
    };
    let error = error.to_string();
    // A panic includes its backtrace.
    let error = error.split("\n<backtrace>").next().unwrap_or_default();
    let placed = error.strip_prefix("at ").and_then(|rest| rest.split_once("): "));
    let error = placed.map_or(error, |(_, error)| error);
    let lines = error.lines().map(str::trim).filter(|line| !is_quoted(line));
    let mut text = lines.collect::<Vec<_>>().join(" ");
    if text == STUCK {
        text = "there is nothing that could be said under it".to_owned();
    }
    if text.len() > FAULT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(FAULT_BYTES_MAX));
        text.push('…');
    }
    text
}

/// Converts the vocabulary for llguidance: special tokens are marked, so that no text matches them.
fn token_env(model: &Arc<LlamaModel>, vocabulary: &Arc<Vocabulary>) -> Result<TokEnv, String> {
    let count = u32::try_from(vocabulary.len()).map_err(fault)?;
    let words: Vec<Vec<u8>> = (0..count)
        .map(|id| {
            let token = vocabulary.token(id);
            let mark = token.special.then_some(TokTrie::SPECIAL_TOKEN_MARKER);
            mark.into_iter().chain(token.bytes.iter().copied()).collect()
        })
        .collect();
    let first = [model.vocab().eot(), model.vocab().eos()].map(|token| u32::try_from(token.0));
    let first = first.into_iter().flatten().find(|&id| vocabulary.ends_answer(id));
    let ends: Vec<u32> =
        first.into_iter().chain(vocabulary.ends().filter(|&id| Some(id) != first)).collect();
    let &end = ends.first().ok_or("the model has no token that ends an answer")?;
    let trie = TokTrie::from(&TokRxInfo::new(count, end), &words).with_eos_tokens(&ends);
    let (model, vocabulary) = (Arc::clone(model), Arc::clone(vocabulary));
    Ok(Arc::new(Words { trie, model, vocabulary }))
}

/// The vocabulary, and the model's own tokenizer.
struct Words {
    trie: TokTrie,
    model: Arc<LlamaModel>,
    vocabulary: Arc<Vocabulary>,
}

impl TokenizerEnv for Words {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            let pieces = [Piece::Text(text.to_owned())];
            let tokens = self.vocabulary.tokenise(&self.model, &pieces, &mut |_| true);
            // Some tokenizers add a blank before every text.
            let said = tokens.iter().flat_map(|&id| self.vocabulary.token(id).bytes);
            if said.eq(text.as_bytes()) {
                tokens
            } else {
                self.trie.greedy_tokenize(text.as_bytes())
            }
        })
    }
}

/// Longest error message about a grammar, in bytes.
const FAULT_BYTES_MAX: usize = 512;
/// Most tokens appended at once without running the model.
pub(crate) const FORCED_MAX: usize = 64;
const GRAMMAR_BYTES_MAX: usize = 1 << 20;
/// How many grammars are compiled concurrently.
const READ_AT_ONCE: usize = 2;
/// How often waiting compilations check whether their client is still there.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Only the used part of the stack takes memory.
const STACK_BYTES: usize = 64 << 20;
/// Tokens of a trial.
const TRIED_TOKENS: usize = 24;
const TRIED_STRIDE: usize = 7919;
/// Enough for a few threads with their tools.
const GRAMMARS_KEPT: usize = 16;
/// What llguidance reports if no token is allowed.
const STUCK: &str = "NoExtensionBias";
const NOTHING: &str = "the model has no opinion on what could follow";

#[cfg(test)]
mod costly;

#[cfg(test)]
mod tests {
    use super::{FAULT_BYTES_MAX, fault};

    #[test]
    fn errors_do_not_quote_the_grammar() {
        for (error, want) in [
            ("no such rule", "no such rule"),
            ("NoExtensionBias\n<non-verbose/>", "there is nothing that could be said under it"),
            ("panic: index\n<backtrace>\n   0: a\n   1: b\n</backtrace>", "panic: index"),
            (
                "at 2(8): regex parse error:\n    (?!x)\n    ^^^\nerror: look-around\n   1 | start: a\n\
                 \x20  2 | args0: %json {}\n            ^\n",
                "regex parse error: (?!x) error: look-around",
            ),
        ] {
            assert_eq!(fault(error), want);
        }
        assert_eq!(fault("é".repeat(1000)).len(), FAULT_BYTES_MAX + '…'.len_utf8());
    }
}
