//! Rule files that say which commands may run, in a literal subset of Starlark.
//!
//! A file is a list of calls with literal arguments. Nothing is evaluated: a variable, an operator
//! or a statement is an error, so that a rule means what it says. This file depends on no other part
//! of the crate and decides nothing about commands, except that a rule's own examples must match.
//!
//! ```text
//! file    = { call NEWLINE }
//! call    = NAME "(" [ arg { "," arg } [ "," ] ] ")"
//! arg     = [ NAME "=" ] literal
//! literal = STRING | "None" | "True" | "False" | "[" [ literal { "," literal } [ "," ] ] "]"
//! ```

use std::fmt;

/// Parses a rule file and returns its prefix rules.
pub fn parse_rules(name: &str, text: &str) -> Result<Vec<PrefixRule>, RulesError> {
    parse_rule_file(name, text).map(|file| file.rules)
}

/// Parses a rule file and returns everything in it.
pub fn parse_rule_file(name: &str, text: &str) -> Result<RuleFile, RulesError> {
    let mut file = RuleFile::default();
    for call in Parser::new(name, text).calls()? {
        match call.name.as_str() {
            "prefix_rule" => file.rules.push(prefix_rule(call)?),
            "host_executable" | "network_rule" => file.others.push(call),
            _ => return Err(RulesError::UnknownCall { at: call.at, name: call.name }),
        }
    }
    Ok(file)
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleFile {
    pub rules: Vec<PrefixRule>,
    /// Other known calls, which nothing uses yet.
    pub others: Vec<RawCall>,
}

/// A decision for every command that begins with a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixRule {
    /// The first words of the command; never empty.
    pub pattern: Vec<PatternToken>,
    pub decision: RuleDecision,
    /// A justification to show with the decision.
    pub justification: Option<String>,
    pub at: RulePlace,
}

impl PrefixRule {
    /// Tells whether a command, given as its words, begins with the pattern.
    pub fn matches<W: AsRef<str>>(&self, command: &[W]) -> bool {
        command.len() >= self.pattern.len()
            && self.pattern.iter().zip(command).all(|(token, word)| token.matches(word.as_ref()))
    }

    /// Returns the names of the programs that the rule is about.
    pub(crate) fn programs(&self) -> &[String] {
        programs(&self.pattern)
    }

    /// Formats the pattern as words, with alternatives separated by bars.
    pub fn pattern_text(&self) -> String {
        let words = self.pattern.iter().map(|token| match token {
            PatternToken::One(word) => word.clone(),
            PatternToken::AnyOf(words) => words.join("|"),
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// One word of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatternToken {
    /// Exactly this word.
    One(String),
    /// Any of these words; never empty.
    AnyOf(Vec<String>),
}

impl PatternToken {
    pub(crate) fn matches(&self, word: &str) -> bool {
        match self {
            Self::One(token) => token == word,
            Self::AnyOf(tokens) => tokens.iter().any(|token| token == word),
        }
    }
}

/// What a rule does with a command, most lenient first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RuleDecision {
    /// Runs it without asking.
    #[default]
    Allow,
    /// Asks a person first.
    Prompt,
    /// Refuses it.
    Forbidden,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawCall {
    pub name: String,
    pub arguments: Vec<Argument>,
    pub at: RulePlace,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// The name before `=`, if there is one.
    pub name: Option<String>,
    pub value: Literal,
    pub at: RulePlace,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    String(String),
    /// A list, each item with its position.
    List(Vec<(RulePlace, Literal)>),
    Boolean(bool),
    /// `None`, the same as leaving the argument out.
    None,
}

/// A position in a rule file, displayed as `FILE:LINE:COL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulePlace {
    /// The name given to the file.
    pub file: String,
    /// The line, counted from one.
    pub line: usize,
    /// The column in characters, counted from one.
    pub column: usize,
}

impl fmt::Display for RulePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Why a rule file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// The text is not a list of calls with literal arguments.
    #[error("{at}: expected {expected}, found {found}")]
    Syntax {
        /// Where parsing stopped.
        at: RulePlace,
        expected: &'static str,
        found: String,
    },
    /// A function that rule files do not have.
    #[error(
        "{at}: unknown function `{name}`: a rule file may call prefix_rule, host_executable and \
         network_rule"
    )]
    UnknownCall { at: RulePlace, name: String },
    /// An argument is missing, unknown, duplicated or has an invalid value.
    #[error("{at}: in prefix_rule, `{argument}` {problem}")]
    BadArgument {
        /// Where the argument begins, or the call if it is missing.
        at: RulePlace,
        argument: String,
        /// What is wrong, phrased to follow the name.
        problem: String,
    },
    /// An example under `match` is not matched by its rule.
    #[error("{at}: the rule does not match this example: change its pattern, or the example")]
    NotMatched { at: RulePlace },
    /// An example under `not_match` is matched by its rule.
    #[error(
        "{at}: the rule matches this example, but must not: change its pattern, or the example"
    )]
    Matched { at: RulePlace },
}

fn prefix_rule(call: RawCall) -> Result<PrefixRule, RulesError> {
    let mut given: [Option<Argument>; PARAMETERS.len()] = Default::default();
    for (n, argument) in call.arguments.into_iter().enumerate() {
        // As in any Starlark call, positional arguments fill the parameters in order.
        let name = match &argument.name {
            Some(name) => name.clone(),
            None => PARAMETERS.get(n).map_or_else(|| format!("#{}", n + 1), ToString::to_string),
        };
        let Some(slot) = PARAMETERS.iter().position(|parameter| *parameter == name) else {
            let known = PARAMETERS.join(", ");
            return Err(bad(&argument.at, &name, &format!("is not an argument: use {known}")));
        };
        if given[slot].is_some() {
            return Err(bad(&argument.at, &name, "is given twice: remove one"));
        }
        given[slot] = Some(argument);
    }
    let given = given.map(|argument| argument.filter(|given| given.value != Literal::None));
    let [pattern, decision, examples, counterexamples, justification] = given;

    let Some(pattern) = pattern else {
        return Err(bad(&call.at, "pattern", "is missing: add pattern=[\"command\"]"));
    };
    let rule = PrefixRule {
        pattern: read_pattern(pattern)?,
        decision: decision.map_or(Ok(RuleDecision::default()), read_decision)?,
        justification: justification.map(read_justification).transpose()?,
        at: call.at,
    };
    for (at, words) in read_examples(examples, "match")? {
        if !rule.matches(&words) {
            return Err(RulesError::NotMatched { at });
        }
    }
    for (at, words) in read_examples(counterexamples, "not_match")? {
        if rule.matches(&words) {
            return Err(RulesError::Matched { at });
        }
    }
    Ok(rule)
}

fn read_pattern(argument: Argument) -> Result<Vec<PatternToken>, RulesError> {
    let at = argument.at.clone();
    let tokens = read_list(argument, "pattern")?.into_iter().map(|(at, value)| match value {
        Literal::String(word) => Ok(PatternToken::One(word)),
        Literal::List(words) => read_words(&at, words, "pattern").map(PatternToken::AnyOf),
        _ => Err(bad(&at, "pattern", "may hold only strings and lists of strings")),
    });
    let tokens: Vec<_> = tokens.collect::<Result<_, _>>()?;
    // A rule that can never match protects nothing, although its author believes it does.
    let never = |name: &&String| name.contains(char::is_whitespace) && !name.contains('/');
    if let Some(name) = programs(&tokens).iter().find(never) {
        let words: Vec<_> = name.split_whitespace().map(|word| format!("{word:?}")).collect();
        let problem = format!(
            "begins with {name:?}, which is not a program: write each word as a separate string, [{}]",
            words.join(", ")
        );
        return Err(bad(&at, "pattern", &problem));
    }
    Ok(tokens)
}

/// Returns the programs that a pattern is about.
fn programs(pattern: &[PatternToken]) -> &[String] {
    match pattern.first() {
        Some(PatternToken::One(name)) => std::slice::from_ref(name),
        Some(PatternToken::AnyOf(names)) => names,
        None => &[],
    }
}

fn read_decision(argument: Argument) -> Result<RuleDecision, RulesError> {
    match &argument.value {
        Literal::String(word) if word == "allow" => Ok(RuleDecision::Allow),
        Literal::String(word) if word == "prompt" => Ok(RuleDecision::Prompt),
        Literal::String(word) if word == "forbidden" => Ok(RuleDecision::Forbidden),
        _ => {
            let problem = "must be \"allow\", \"prompt\" or \"forbidden\"";
            Err(bad(&argument.at, "decision", problem))
        }
    }
}

fn read_justification(argument: Argument) -> Result<String, RulesError> {
    match argument.value {
        Literal::String(text) if !text.trim().is_empty() => Ok(text),
        _ => Err(bad(&argument.at, "justification", "must be a string that says why")),
    }
}

type Example = (RulePlace, Vec<String>);

fn read_examples(
    argument: Option<Argument>,
    name: &'static str,
) -> Result<Vec<Example>, RulesError> {
    let Some(argument) = argument else {
        return Ok(Vec::new());
    };
    // Unlike a pattern, a list of examples may be empty.
    if argument.value == Literal::List(Vec::new()) {
        return Ok(Vec::new());
    }
    let examples = read_list(argument, name)?.into_iter().map(|(at, value)| {
        let words = match value {
            Literal::String(line) => shlex::split(&line)
                .filter(|words| !words.is_empty())
                .ok_or_else(|| bad(&at, name, "has an example that is not a command line"))?,
            Literal::List(words) => read_words(&at, words, name)?,
            _ => return Err(bad(&at, name, "may hold only strings and lists of strings")),
        };
        Ok((at, words))
    });
    examples.collect()
}

fn read_list(
    argument: Argument,
    name: &'static str,
) -> Result<Vec<(RulePlace, Literal)>, RulesError> {
    match argument.value {
        Literal::List(items) if !items.is_empty() => Ok(items),
        Literal::List(_) => Err(bad(&argument.at, name, "is empty: name at least one word")),
        _ => Err(bad(&argument.at, name, "must be a list")),
    }
}

fn read_words(
    at: &RulePlace,
    items: Vec<(RulePlace, Literal)>,
    name: &'static str,
) -> Result<Vec<String>, RulesError> {
    if items.is_empty() {
        return Err(bad(at, name, "has an empty list in it: name at least one word"));
    }
    let words = items.into_iter().map(|(at, item)| match item {
        Literal::String(word) => Ok(word),
        _ => Err(bad(&at, name, "may hold only strings and lists of strings")),
    });
    words.collect()
}

fn bad(at: &RulePlace, argument: &str, problem: &str) -> RulesError {
    let (argument, problem) = (argument.to_owned(), problem.to_owned());
    RulesError::BadArgument { at: at.clone(), argument, problem }
}

/// A cursor over characters that counts lines and columns; a copy of it is a position to return to.
#[derive(Clone, Copy)]
struct Parser<'a> {
    file: &'a str,
    rest: &'a str,
    line: usize,
    column: usize,
}

impl<'a> Parser<'a> {
    fn new(file: &'a str, text: &'a str) -> Self {
        let rest = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { file, rest, line: 1, column: 1 }
    }

    fn calls(mut self) -> Result<Vec<RawCall>, RulesError> {
        let mut calls = Vec::new();
        loop {
            self.skip_blank();
            if self.rest.is_empty() {
                return Ok(calls);
            }
            calls.push(self.call()?);
            // Two calls on one line are two statements without a separator.
            self.skip_while(|c| c != '\n' && c.is_ascii_whitespace());
            self.skip_comment();
            if !matches!(self.peek(), None | Some('\n')) {
                return Err(self.unexpected("a new line after the call"));
            }
        }
    }

    fn call(&mut self) -> Result<RawCall, RulesError> {
        let at = self.place();
        let Some(name) = self.word() else {
            return Err(self.unexpected("a call such as prefix_rule(pattern=[\"git\"])"));
        };
        self.skip_while(|c| matches!(c, ' ' | '\t'));
        if !self.eat('(') {
            return Err(self.unexpected("`(`: a rule file holds nothing but calls"));
        }
        let mut arguments: Vec<Argument> = Vec::new();
        loop {
            self.skip_blank();
            if self.eat(')') {
                return Ok(RawCall { name, arguments, at });
            }
            let named_before = arguments.last().is_some_and(|last| last.name.is_some());
            arguments.push(self.argument(named_before)?);
            self.skip_blank();
            if !self.eat(',') && self.peek() != Some(')') {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
    }

    fn argument(&mut self, must_be_named: bool) -> Result<Argument, RulesError> {
        let at = self.place();
        let mark = *self;
        if let Some(name) = self.word() {
            self.skip_blank();
            if self.eat('=') {
                self.skip_blank();
                return Ok(Argument { name: Some(name), value: self.literal(0)?, at });
            }
            *self = mark;
        }
        if must_be_named {
            return Err(self.unexpected("a named argument after another named one"));
        }
        Ok(Argument { name: None, value: self.literal(0)?, at })
    }

    fn literal(&mut self, depth: usize) -> Result<Literal, RulesError> {
        if matches!(self.peek(), Some('"' | '\'')) {
            return self.string(false).map(Literal::String);
        }
        if self.rest.starts_with("r\"") || self.rest.starts_with("r'") {
            self.bump();
            return self.string(true).map(Literal::String);
        }
        if self.peek() == Some('[') && depth < LIST_DEPTH_MAX {
            return self.list(depth + 1);
        }
        let mark = *self;
        let literal = match self.word().as_deref() {
            Some("None") => Literal::None,
            Some("True") => Literal::Boolean(true),
            Some("False") => Literal::Boolean(false),
            _ => {
                *self = mark;
                return Err(self.unexpected("a string or a list of strings"));
            }
        };
        Ok(literal)
    }

    fn list(&mut self, depth: usize) -> Result<Literal, RulesError> {
        self.bump();
        let mut items = Vec::new();
        loop {
            self.skip_blank();
            if self.eat(']') {
                return Ok(Literal::List(items));
            }
            items.push((self.place(), self.literal(depth)?));
            self.skip_blank();
            if !self.eat(',') && self.peek() != Some(']') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn string(&mut self, raw: bool) -> Result<String, RulesError> {
        let quote = if self.rest.starts_with('"') { "\"" } else { "'" };
        let triple = self.rest.starts_with(&quote.repeat(3));
        let fence = quote.repeat(if triple { 3 } else { 1 });
        self.bump_by(fence.len());
        let mut text = String::new();
        while !self.rest.starts_with(&fence) {
            match self.peek() {
                None => return Err(self.unexpected("the closing quote of the string")),
                Some('\n') if !triple => {
                    return Err(self.unexpected("the closing quote of the string on its line"));
                }
                Some('\\') if raw => {
                    // The backslash stays, but a quote after it does not close the string.
                    text.extend(self.bump());
                    if matches!(self.peek(), Some('\\' | '"' | '\'')) {
                        text.extend(self.bump());
                    }
                }
                Some('\\') => text.extend(self.escape()?),
                Some(_) => text.extend(self.bump()),
            }
        }
        self.bump_by(fence.len());
        Ok(text)
    }

    /// Parses one escape; a backslash at the end of a line joins it with the next one.
    fn escape(&mut self) -> Result<Option<char>, RulesError> {
        let mark = *self;
        self.bump();
        let letter = self.bump();
        let plain = match letter {
            Some('\n') => return Ok(None),
            Some('\r') if self.eat('\n') => return Ok(None),
            Some('n') => Some('\n'),
            Some('t') => Some('\t'),
            Some('r') => Some('\r'),
            Some('a') => Some('\u{7}'),
            Some('b') => Some('\u{8}'),
            Some('f') => Some('\u{c}'),
            Some('v') => Some('\u{b}'),
            Some(same @ ('\\' | '"' | '\'')) => Some(same),
            Some('x') => self.code_point(2).filter(char::is_ascii),
            Some('u') => self.code_point(4),
            Some('U') => self.code_point(8),
            _ => None,
        };
        if plain.is_none() {
            *self = mark;
            return Err(
                self.unexpected("an escape such as \\n, \\\\ or \\\", or a raw string r\"…\"")
            );
        }
        Ok(plain)
    }

    fn code_point(&mut self, digits: usize) -> Option<char> {
        let hex = self.rest.get(..digits)?;
        let all_hex = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u32::from_str_radix(hex, 16).ok().filter(|_| all_hex)?;
        self.bump_by(digits);
        char::from_u32(number)
    }

    fn word(&mut self) -> Option<String> {
        let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
        self.peek().filter(|c| starts(*c))?;
        let end = self.rest.find(|c: char| !starts(c) && !c.is_ascii_digit());
        let word = self.rest[..end.unwrap_or(self.rest.len())].to_owned();
        self.bump_by(word.len());
        Some(word)
    }

    fn skip_blank(&mut self) {
        loop {
            self.skip_while(|c| c.is_ascii_whitespace());
            if self.peek() != Some('#') {
                return;
            }
            self.skip_comment();
        }
    }

    fn skip_comment(&mut self) {
        if self.peek() == Some('#') {
            self.skip_while(|c| c != '\n');
        }
    }

    fn skip_while(&mut self, skip: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&skip) {
            self.bump();
        }
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.bump();
        }
        found
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        if next == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(next)
    }

    /// Skips ASCII text that was already examined.
    fn bump_by(&mut self, bytes: usize) {
        for _ in 0..bytes {
            self.bump();
        }
    }

    fn place(&self) -> RulePlace {
        RulePlace { file: self.file.to_owned(), line: self.line, column: self.column }
    }

    fn unexpected(&self, expected: &'static str) -> RulesError {
        let found = match self.peek() {
            None => "the end of the file".to_owned(),
            Some('\n') => "the end of the line".to_owned(),
            Some(c) if c.is_control() => format!("`{}`", c.escape_debug()),
            Some(c) => format!("`{c}`"),
        };
        RulesError::Syntax { at: self.place(), expected, found }
    }
}

/// The parameters of `prefix_rule`, in order.
const PARAMETERS: [&str; 5] = ["pattern", "decision", "match", "not_match", "justification"];

/// A pattern needs two; the limit keeps the parser from exhausting the stack.
const LIST_DEPTH_MAX: usize = 16;
