//! Shell scripts, taken apart into the simple commands they could run.
//!
//! The tree comes from the grammar of bash, which is a good guess and no more: it knows nothing of
//! some corners of quoting, and reads others differently than bash does. So every word, every gap
//! between words and every here-document is read a second time here, by bash's own rules, and where
//! the two disagree the script counts as not understood. Nothing is expanded and nothing is run.

mod heredoc;
mod walk;
mod word;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use tree_sitter::{ParseOptions, ParseState, Parser, Tree};

pub(crate) use word::with_holes;
pub use word::{Unknown, Word};

/// What a script consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Every simple command in it, in the order of the text, however deeply nested.
    pub commands: Vec<SimpleCommand>,
    /// What it has besides simple commands.
    pub features: BTreeSet<Feature>,
    /// The variables that are set, as `NAME=value`.
    pub settings: Vec<Word>,
    /// The files that are redirected to standard inputs.
    pub inputs: Vec<Word>,
    /// The files that output is redirected to.
    pub outputs: Vec<Word>,
    /// What could not be understood; if empty, the commands are all there is.
    pub unclear: Vec<Unclear>,
}

/// A program or a builtin with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimpleCommand {
    /// The name and the arguments; never empty.
    pub words: Vec<Word>,
    /// Where the script says what the command reads: what is piped into it, its here-documents and its
    /// redirections.
    pub input: Option<Range<usize>>,
}

/// Something in a script that is more than words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// A redirection from or to a file that is not `/dev/null`.
    Redirect,
    /// A here-document or a here-string.
    Heredoc,
    /// A variable that is set, for a command or for what follows.
    Assignment,
    /// A command or process substitution.
    Substitution,
    /// Commands in parentheses.
    Subshell,
    /// A loop or a condition.
    ControlFlow,
    /// A function.
    Function,
    /// A file name pattern.
    Glob,
    /// `[ … ]`, `[[ … ]]` or arithmetic.
    Test,
    /// A command that is not waited for.
    Background,
}

impl Feature {
    /// Says it in words, to be read after "no rule allows".
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

/// A part of a script that was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unclear {
    /// The part, shortened.
    pub part: String,
    /// Why.
    pub why: Trouble,
}

/// Why something was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// It is longer than [`SCRIPT_BYTES_MAX`].
    TooLong,
    /// It is nested deeper than [`NESTING_MAX`], or runs more through wrappers than we follow.
    TooDeep,
    /// Reading it takes more work than its length is worth.
    TooMuchWork,
    /// It is not the syntax of a shell, as far as we know.
    Syntax,
    /// Its quoting can be read in more than one way.
    Quoting,
    /// The name of a command is only known when it runs.
    Name,
    /// What a command runs in turn is only known when it runs.
    Inner,
    /// What was typed has keys in it that edit, complete or recall a line.
    Keys,
}

impl Trouble {
    /// Says it in words, to be read after the part.
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
    /// Takes a script apart. Never fails: what is not understood is said so.
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
        // The state that the scanner of the grammar keeps for pending here-documents has a fixed
        // size, and a NUL ends a script for some shells only.
        if text.contains('\0') || text.matches("<<").nth(HEREDOCS_MAX).is_some() {
            return refused(Trouble::Syntax);
        }
        match parse_tree(text) {
            // The grammar saw stand-ins, and may have cut between two of one character.
            Some(tree) if !cuts_characters(text, &tree) => walk::walk(text, tree.root_node()),
            Some(_) => refused(Trouble::Syntax),
            None => refused(Trouble::TooMuchWork),
        }
    }
}

/// Parses within a budget in proportion to the text.
///
/// Steps alone say little, as the scanner may look ahead to the end of the text at each of them. So
/// the text is handed out in small pieces, and what is handed out again and again is counted.
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
    // The scanner of the grammar looks characters up in tables that end at 255, so it is given none
    // beyond ASCII. To a shell those are plain parts of words, whichever they are, and what a word says
    // is read from the script itself.
    let bytes: Vec<u8> =
        text.bytes().map(|byte| if byte.is_ascii() { byte } else { PLAIN }).collect();
    let mut read = |at: usize, _| {
        let piece = bytes.get(at..).unwrap_or_default();
        let piece = &piece[..piece.len().min(PIECE_BYTES)];
        spend(piece.len());
        // An early end lets a scanner that is still looking ahead come back.
        if left.get() == 0 { &[] } else { piece }
    };
    let tree = parser.parse_with_options(&mut read, None, Some(options));
    tree.filter(|_| left.get() > 0)
}

/// Tells whether a node begins or ends inside of a character.
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

/// Shortens a text to what can be shown in a line of prose.
pub(crate) fn excerpt(text: &str) -> String {
    let mut line: String = text.chars().take(EXCERPT_CHARS_MAX).collect();
    if line.len() < text.len() {
        line.push('…');
    }
    line
}

/// The longest script that is looked at.
///
/// The parser's cost grows faster than the length for some texts, so this keeps the worst case short.
pub const SCRIPT_BYTES_MAX: usize = 128 * 1024;

/// How deeply commands may be nested in each other; lists and pipelines do not count.
pub const NESTING_MAX: usize = 64;

/// How many here-documents a script may have.
pub const HEREDOCS_MAX: usize = 32;

/// How much of a script is shown to a person or a model.
const EXCERPT_CHARS_MAX: usize = 200;

/// Stands for every byte of a character beyond ASCII: a part of a word that is no part of a name.
const PLAIN: u8 = b'%';

/// In what pieces the parser gets the text.
const PIECE_BYTES: usize = 256;

/// How much work a script may take. The unit is a byte that the parser reads; a round is a hundred of
/// its steps. Scripts that people write take less than a tenth of this.
const WORK_BASE: usize = 1 << 20;
const WORK_PER_BYTE: usize = 64;
const WORK_PER_ROUND: usize = 256;

/// How many parentheses may be open at once, counted without regard to quotes: with more, the
/// parser's steps become slower and slower.
const PARENTHESES_MAX: usize = 256;

/// How many bars a script may have: a pipeline that ends open costs the square of its length.
const PIPES_MAX: usize = 2000;

/// How often `()` may occur, for the same reason.
const FUNCTIONS_MAX: usize = 4000;
