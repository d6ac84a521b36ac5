//! Parses shell scripts into the simple commands they could run.
//!
//! The tree comes from the tree-sitter grammar of bash, which is only an approximation: it does not handle
//! some corners of quoting, and parses others differently than bash. So every word, every gap between words
//! and every here-document is parsed a second time here, by bash's own rules, and if the two disagree the
//! script counts as not understood. Nothing is expanded and nothing is run.

mod heredoc;
mod walk;
mod word;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use tree_sitter::{ParseOptions, ParseState, Parser, Tree};

pub(crate) use word::with_holes;
pub use word::{Unknown, Word};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Every simple command in it, in text order, however deeply nested.
    pub commands: Vec<SimpleCommand>,
    /// What it contains besides simple commands.
    pub features: BTreeSet<Feature>,
    /// Assignments, as `NAME=value`.
    pub settings: Vec<Word>,
    /// Files redirected to stdin.
    pub inputs: Vec<Word>,
    /// Files that output is redirected to.
    pub outputs: Vec<Word>,
    /// What could not be parsed; if empty, the list of commands is complete.
    pub unclear: Vec<Unclear>,
}

/// A program or a builtin with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimpleCommand {
    /// The name and the arguments; never empty.
    pub words: Vec<Word>,
    /// Where in the script the command's stdin comes from: what is piped into it, its here-documents and its
    /// redirections.
    pub input: Option<Range<usize>>,
}

/// A construct in a script other than plain words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// A redirection from or to a file other than `/dev/null`.
    Redirect,
    Heredoc,
    /// An assignment, for one command or for what follows.
    Assignment,
    /// A command or process substitution.
    Substitution,
    Subshell,
    ControlFlow,
    Function,
    Glob,
    /// `[ … ]`, `[[ … ]]` or arithmetic.
    Test,
    Background,
}

impl Feature {
    /// Describes it, phrased to follow "no rule allows".
    pub fn text(self) -> &'static str {
        match self {
            Self::Redirect => "a redirection to or from a file",
            Self::Heredoc => "a here-document",
            Self::Assignment => "a variable that is set",
            Self::Substitution => "a substitution such as `$(…)`",
            Self::Subshell => "commands in parentheses",
            Self::ControlFlow => "a loop or a condition",
            Self::Function => "a function",
            Self::Glob => "a file name pattern",
            Self::Test => "a test or arithmetic",
            Self::Background => "a command that is not waited for",
        }
    }
}

/// A part of a script that could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unclear {
    /// The part, shortened.
    pub part: String,
    pub why: Trouble,
}

/// Why something could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// It is longer than [`SCRIPT_BYTES_MAX`].
    TooLong,
    /// It is nested deeper than [`NESTING_MAX`], or has more wrappers than we follow.
    TooDeep,
    /// Parsing it takes more work than its length justifies.
    TooMuchWork,
    /// It is not valid shell syntax, as far as we know.
    Syntax,
    /// Its quoting is ambiguous.
    Quoting,
    /// The name of a command is known only at run time.
    Name,
    /// What a command runs is known only at run time.
    Inner,
    /// The input contains keys that edit, complete or recall a line.
    Keys,
}

impl Trouble {
    /// Describes it, phrased to follow the part.
    pub fn text(self) -> &'static str {
        match self {
            Self::TooLong => "is too long",
            Self::TooDeep => "is nested too deeply",
            Self::TooMuchWork => "takes too long to read",
            Self::Syntax => "is not understood",
            Self::Quoting => "has quoting that is not understood",
            Self::Name => "has a name that is known only when it runs",
            Self::Inner => "runs something that is known only when it runs",
            Self::Keys => "has keys in it that edit, complete or recall a line",
        }
    }
}

impl Script {
    /// Parses a script. Never fails: what could not be parsed is listed.
    pub fn parse(text: &str) -> Self {
        let refused =
            |why| Self { unclear: vec![Unclear { part: excerpt(text), why }], ..Self::default() };
        if text.len() > SCRIPT_BYTES_MAX {
            return refused(Trouble::TooLong);
        }
        if depth_of_parentheses(text) > PARENTHESES_MAX
            || text.matches("()").nth(FUNCTIONS_MAX).is_some()
            || text.matches('|').nth(PIPES_MAX).is_some()
        {
            return refused(Trouble::TooMuchWork);
        }
        // The grammar's scanner keeps pending here-documents in a buffer of fixed size, and a NUL ends a
        // script in some shells only.
        if text.contains('\0') || text.matches("<<").nth(HEREDOCS_MAX).is_some() {
            return refused(Trouble::Syntax);
        }
        match parse_tree(text) {
            // The grammar saw placeholders, and may have split a character.
            Some(tree) if !cuts_characters(text, &tree) => walk::walk(text, tree.root_node()),
            Some(_) => refused(Trouble::Syntax),
            None => refused(Trouble::TooMuchWork),
        }
    }
}

/// Parses within a budget proportional to the text.
///
/// Counting steps is not enough, as the scanner may look ahead to the end of the text in each of them. So the
/// text is handed out in small pieces, and repeated reads are counted.
fn parse_tree(text: &str) -> Option<Tree> {
    let mut parser = Parser::new();
    parser
        .set_language(&tree_sitter_bash::LANGUAGE.into())
        .expect("the grammar is of a version that this library reads");
    let left = Cell::new(WORK_BASE + text.len() * WORK_PER_BYTE);
    let spend = |work: usize| left.set(left.get().saturating_sub(work));
    let mut within_budget = |_: &ParseState| {
        spend(WORK_PER_ROUND);
        if left.get() == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = ParseOptions::new().progress_callback(&mut within_budget);
    // The grammar's scanner looks characters up in tables that end at 255, so it gets only ASCII. To a
    // shell, other characters are ordinary parts of words, and the content of a word is read from the script
    // itself.
    let bytes: Vec<u8> =
        text.bytes().map(|byte| if byte.is_ascii() { byte } else { PLAIN }).collect();
    let mut read = |at: usize, _| {
        let piece = bytes.get(at..).unwrap_or_default();
        let piece = &piece[..piece.len().min(PIECE_BYTES)];
        spend(piece.len());
        // An early end makes a scanner return that is still looking ahead.
        if left.get() == 0 { &[] } else { piece }
    };
    let tree = parser.parse_with_options(&mut read, None, Some(options));
    tree.filter(|_| left.get() > 0)
}

/// Tells whether a node begins or ends inside a character.
fn cuts_characters(text: &str, tree: &Tree) -> bool {
    if text.is_ascii() {
        return false;
    }
    let mut cursor = tree.walk();
    loop {
        let range = cursor.node().byte_range();
        if !text.is_char_boundary(range.start) || !text.is_char_boundary(range.end) {
            return true;
        }
        if cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return false;
            }
        }
    }
}

fn depth_of_parentheses(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Shortens a text to fit into a sentence.
pub(crate) fn excerpt(text: &str) -> String {
    let mut line: String = text.chars().take(EXCERPT_CHARS_MAX).collect();
    if line.len() < text.len() {
        line.push('…');
    }
    line
}

/// The longest script that is parsed, in bytes.
///
/// The parser's cost grows faster than the length for some texts, so this limits the worst case.
pub const SCRIPT_BYTES_MAX: usize = 128 * 1024;

/// How deeply commands may be nested; lists and pipelines do not count.
pub const NESTING_MAX: usize = 64;

/// How many here-documents a script may have.
pub const HEREDOCS_MAX: usize = 32;

/// How much of a script is shown to a person or a model.
const EXCERPT_CHARS_MAX: usize = 200;

/// Placeholder for every byte of a non-ASCII character: part of a word, but not of a name.
const PLAIN: u8 = b'%';

/// The size of the pieces the parser gets.
const PIECE_BYTES: usize = 256;

/// How much work a script may take. The unit is a byte that the parser reads; a round is a hundred of its
/// steps. Ordinary scripts take less than a tenth of this.
const WORK_BASE: usize = 1 << 20;
const WORK_PER_BYTE: usize = 64;
const WORK_PER_ROUND: usize = 256;

/// How many parentheses may be open at once, counted regardless of quotes: with more, the parser's steps get
/// slower and slower.
const PARENTHESES_MAX: usize = 256;

/// How many pipe symbols a script may have: an unfinished pipeline takes quadratic time.
const PIPES_MAX: usize = 2000;

/// How often `()` may occur, for the same reason.
const FUNCTIONS_MAX: usize = 4000;
