//! What a model types into a running command.
//!
//! All input so far is judged together with the next piece, since lines depend on each other:
//! `c="curl x"`, then `system(c)`. How it is read depends on the command, as far as that is known:
//!
//! | reader | read as | not understood |
//! | --- | --- | --- |
//! | a shell, or a command that could not be parsed | a script | counts, as in a script; keys that edit or recall a line always need approval |
//! | an interpreter for another language | code that is searched for program names | only keys |
//! | `make -f -`, `sed -f -` and the like | code, all of which may be a command | only keys |
//! | an editor or pager | the same; what follows `!` is a script | what follows `!` |
//! | any other program | code | nothing |
//!
//! How keys are handled is a setting of the terminal and the program. So a text is read twice: with keys
//! such as Ctrl-C and Backspace having their usual effect, and without any effect.

use crate::inspect::Inspection;
use crate::request::InputRequest;
use crate::shell::{SCRIPT_BYTES_MAX, Trouble, Unclear, excerpt};
use crate::wrap;

/// What was typed into one command so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Typed {
    text: String,
}

impl Typed {
    /// Returns the whole input if these characters were typed now.
    pub fn with(&self, chars: &str) -> String {
        format!("{}{chars}", self.text)
    }

    /// Tells whether the last line is unfinished.
    pub fn is_open(&self) -> bool {
        !self.text.is_empty() && !self.text.ends_with(['\n', '\r', '\u{3}', '\u{4}'])
    }

    /// Records that these characters were typed.
    pub fn push(&mut self, chars: &str) {
        self.text.push_str(chars);
        // The kept text is longer than what is parsed, so a text whose beginning was dropped is never
        // considered understood.
        let excess = self.text.len().saturating_sub(2 * SCRIPT_BYTES_MAX);
        self.text.drain(..self.text.ceil_char_boundary(excess));
    }

    /// Drops the unfinished line, because the terminal has discarded it.
    pub fn give_up_line(&mut self) {
        self.text.truncate(self.text.rfind(['\n', '\r']).map_or(0, |at| at + 1));
    }

    /// Drops the recorded input, because a person has approved it.
    pub fn accepted(&mut self) {
        self.text.clear();
    }
}

/// Inspects what would be typed.
pub(crate) fn inspect(request: &InputRequest) -> Inspection {
    let reader = Reader::from_argv(&request.argv);
    let Keyed { text, edited } = apply_keys(&request.text);
    let without: String =
        request.text.replace('\r', "\n").chars().filter(|key| !is_key(*key)).collect();
    let mut inspection = reader.inspect(&text);
    if without != text {
        merge(&mut inspection, reader.inspect(&without));
    }
    let doubtful = match reader {
        Reader::Shell => edited || recalls_history(&text),
        Reader::Interpreter | Reader::Commands => edited,
        Reader::Editor | Reader::Other => false,
    };
    if doubtful {
        inspection.unclear.push(Unclear { part: excerpt(&text), why: Trouble::Keys });
        inspection.raw.push(text);
    }
    inspection
}

/// Tells whether keys in the input to a shell edit or recall a line. What the shell would run is unknown
/// then, and the model can type the whole line instead.
pub(crate) fn hides_a_line(request: &InputRequest, inspection: &Inspection) -> bool {
    let keys = inspection.unclear.iter().any(|unclear| unclear.why == Trouble::Keys);
    keys && Reader::from_argv(&request.argv) == Reader::Shell
}

/// What reads the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Shell,
    /// A program whose input contains shell commands.
    Commands,
    Interpreter,
    Editor,
    Other,
}

impl Reader {
    fn from_argv(argv: &[String]) -> Self {
        let inspection = Inspection::new(argv);
        let programs = || {
            let inner = inspection.commands.iter().filter(|found| !found.carrier);
            inner.filter_map(|found| found.words.first()?.known()).map(wrap::base_name)
        };
        let wraps = |name: &str| wrap::is_shell(name) || wrap::leads_to_a_shell(name);
        if !inspection.is_clear() || programs().any(wraps) {
            return Self::Shell;
        }
        let reads = |reads: wrap::Reads| {
            inspection.commands.iter().any(|found| wrap::reads(&found.words) == Some(reads))
        };
        if reads(wrap::Reads::Commands) {
            return Self::Commands;
        }
        if programs().any(wrap::is_interpreter) || reads(wrap::Reads::Code) {
            return Self::Interpreter;
        }
        if programs().any(wrap::interprets) { Self::Editor } else { Self::Other }
    }

    fn inspect(self, text: &str) -> Inspection {
        let mut inspection = script(text);
        if self == Self::Shell {
            return inspection;
        }
        // It is not a script, so looking like a malformed one means nothing. But a program that it plainly
        // names may be run by a shell that the command has started.
        inspection.unclear.clear();
        inspection.raw.clear();
        inspection
            .commands
            .retain(|found| found.words.first().is_some_and(|it| it.known().is_some()));
        for found in &mut inspection.commands {
            found.origin = None;
        }
        if self == Self::Commands || wrap::may_start_programs(text) {
            let joined = text.replace("\\\n", "");
            inspection.embedded.push(joined.replace(['\\', '"', '\''], ""));
            inspection.embedded.push(text.to_owned());
        }
        if self == Self::Editor {
            for line in text.lines() {
                let escapes = line.match_indices('!').map(|(at, _)| &line[at + 1..]);
                let commands = escapes.filter(|command| !command.starts_with('='));
                commands.for_each(|command| merge(&mut inspection, script(command)));
            }
        }
        inspection
    }
}

fn script(text: &str) -> Inspection {
    Inspection::new(&["bash".to_owned(), "-c".to_owned(), text.to_owned()])
}

fn merge(inspection: &mut Inspection, other: Inspection) {
    let Inspection {
        commands,
        features,
        unclear,
        raw,
        embedded,
        doubtful,
        settings,
        inputs,
        outputs,
    } = other;
    let known = inspection.commands.len();
    inspection.commands.extend(commands.into_iter().map(|mut found| {
        if let Some(origin) = &mut found.origin {
            origin.parent += known;
        }
        found
    }));
    inspection.features.extend(features);
    inspection.unclear.extend(unclear);
    inspection.raw.extend(raw);
    inspection.embedded.extend(embedded);
    inspection.doubtful.extend(doubtful);
    inspection.settings.extend(settings);
    inspection.inputs.extend(inputs);
    inspection.outputs.extend(outputs);
}

/// A text after the editing keys in it were applied.
struct Keyed {
    text: String,
    /// Whether there are keys whose effect depends on the program: arrows, completion, search.
    edited: bool,
}

/// Tells whether a character is a control key instead of text.
fn is_key(key: char) -> bool {
    key.is_control() && !matches!(key, '\n' | '\t')
}

fn apply_keys(typed: &str) -> Keyed {
    let mut text = String::with_capacity(typed.len());
    let mut edited = false;
    let mut chars = typed.chars().peekable();
    while let Some(key) = chars.next() {
        match key {
            // Enter, an interrupt and end of input all end the line.
            '\n' | '\r' | '\u{3}' | '\u{4}' => text.push('\n'),
            '\u{8}' | '\u{7f}' => {
                if !text.ends_with('\n') {
                    text.pop();
                }
            }
            // The line is discarded.
            '\u{15}' => text.truncate(text.rfind('\n').map_or(0, |at| at + 1)),
            '\u{1b}' => {
                edited = true;
                if chars.next_if(|next| matches!(next, '[' | 'O')).is_some() {
                    while chars.next_if(|next| next.is_ascii_digit() || *next == ';').is_some() {}
                }
                chars.next();
            }
            // After a word it completes the word; before one it is a blank.
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

/// Tells whether a shell would insert an earlier command: `!!`, `!git`, `!:1`, `^a^b`, `fc`.
fn recalls_history(text: &str) -> bool {
    let recalls = |(at, _): (usize, &str)| {
        let next = text[at + 1..].chars().next();
        next.is_some_and(|next| !next.is_whitespace() && !"=(\"'".contains(next))
    };
    let fc = |line: &str| {
        line.split([';', '&', '|'])
            .any(|part| matches!(part.split_whitespace().next(), Some("fc" | "history" | "bind")))
    };
    text.match_indices('!').any(recalls)
        || text.lines().any(|line| line.starts_with('^') || fc(line))
}
