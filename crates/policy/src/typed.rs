//! What a model types into a command that is running.
//!
//! Which program reads it is not known for sure: a shell, an interpreter of another language, or one that
//! asks for a name. So it is read as a script of a shell; and where the command is an interpreter, as its
//! code. Keys that edit a line are applied where that is simple, and count as not understood otherwise.

use crate::inspect::Inspection;
use crate::request::InputRequest;
use crate::shell::{SCRIPT_BYTES_MAX, Script, Trouble, Unclear, excerpt};
use crate::wrap;

/// What was typed into one command and may still be a part of what is typed next: a line without its end,
/// an open quote, a here-document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Typed {
    open: String,
}

impl Typed {
    /// Returns what the command would read as one, were these characters typed now.
    pub fn with(&self, chars: &str) -> String {
        format!("{}{chars}", self.open)
    }

    /// Tells whether something was typed that is not over yet.
    pub fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Notes that these characters were typed.
    pub fn push(&mut self, chars: &str) {
        self.open.push_str(chars);
        if is_whole(&apply_keys(&self.open).text) {
            self.open.clear();
        }
        // Longer than what is parsed, so that a text whose beginning is gone is never understood.
        let excess = self.open.len().saturating_sub(2 * SCRIPT_BYTES_MAX);
        let cut = (excess..).find(|at| self.open.is_char_boundary(*at)).unwrap_or_default();
        self.open.drain(..cut);
    }
}

/// Tells whether nothing that follows can change what a text means.
fn is_whole(text: &str) -> bool {
    text.ends_with('\n') && !text.ends_with("\\\n") && Script::parse(text).unclear.is_empty()
}

/// Looks into what would be typed.
pub(crate) fn inspect(request: &InputRequest) -> Inspection {
    let Keyed { text, edited } = apply_keys(&request.text);
    let mut inspection = Inspection::of(&["bash".to_owned(), "-c".to_owned(), text.clone()]);
    let is_code = is_read_as_code(&request.argv);
    if is_code {
        // Code of another language is no script of a shell, and no reason for doubt.
        inspection.unclear.clear();
        inspection.raw.clear();
    } else if edited || recalls_history(&text) {
        inspection.unclear.push(Unclear { part: excerpt(&text), why: Trouble::Keys });
        inspection.raw.push(text.clone());
    }
    if (is_code || !inspection.is_clear()) && wrap::may_start_programs(&text) {
        inspection.embedded.push(text);
    }
    inspection
}

/// Tells whether what is typed into a command is code of another language than a shell's.
fn is_read_as_code(argv: &[String]) -> bool {
    let inspection = Inspection::of(argv);
    let programs = || {
        let inner = inspection.commands.iter().filter(|found| !found.carrier);
        inner.filter_map(|found| found.words.first()?.known()).map(wrap::base_name)
    };
    inspection.is_clear() && programs().any(wrap::interprets) && !programs().any(wrap::is_shell)
}

/// A text after the keys in it that edit lines.
struct Keyed {
    text: String,
    /// Whether there are keys whose effect depends on the program: arrows, completion, a search.
    edited: bool,
}

fn apply_keys(typed: &str) -> Keyed {
    let mut text = String::with_capacity(typed.len());
    let mut edited = false;
    let mut chars = typed.chars().peekable();
    while let Some(key) = chars.next() {
        match key {
            // Enter, an interruption and the end of the input all end the line.
            '\n' | '\r' | '\u{3}' | '\u{4}' => text.push('\n'),
            '\u{8}' | '\u{7f}' => {
                if !text.ends_with('\n') {
                    text.pop();
                }
            }
            // The line is given up.
            '\u{15}' => text.truncate(text.rfind('\n').map_or(0, |at| at + 1)),
            '\u{1b}' => {
                edited = true;
                if chars.next_if(|next| matches!(next, '[' | 'O')).is_some() {
                    while chars.next_if(|next| next.is_ascii_digit() || *next == ';').is_some() {}
                }
                chars.next();
            }
            // Behind a word it completes the word; before one it is a blank.
            '\t' => {
                edited |= !text.ends_with([' ', '\t', '\n']) && !text.is_empty();
                text.push('\t');
            }
            key if key.is_control() => edited = true,
            key => text.push(key),
        }
    }
    Keyed { text, edited }
}

/// Tells whether a shell would put an earlier command in the place of something: `!!`, `!git`, `^a^b`.
fn recalls_history(text: &str) -> bool {
    let recalls = |(at, _): (usize, &str)| {
        let next = text[at + 1..].chars().next();
        next.is_some_and(|next| next.is_alphanumeric() || "!-?#$".contains(next))
    };
    text.match_indices('!').any(recalls) || text.lines().any(|line| line.starts_with('^'))
}
