//! Everything that a command could run, found in its words, its scripts and its wrappers.

mod dialect;

use std::collections::{BTreeSet, VecDeque};

use crate::shell::{Feature, SCRIPT_BYTES_MAX, Script, Trouble, Unclear, Word, excerpt};
use crate::wrap::{self, Fed, Inner, ScriptPlace};
use dialect::Dialect;

/// What is known about a command before it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inspection {
    /// The command itself, then everything it runs.
    pub(crate) commands: Vec<Found>,
    /// What the scripts in it have besides simple commands.
    pub(crate) features: BTreeSet<Feature>,
    /// What was not understood.
    pub(crate) unclear: Vec<Unclear>,
    /// What could not be understood, as it is written: scripts, and words of wrappers.
    pub(crate) raw: Vec<String>,
    /// Code of other languages that may start programs.
    pub(crate) embedded: Vec<String>,
}

/// A simple command that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) words: Vec<Word>,
    /// What runs it, if it is not the whole command.
    pub(crate) origin: Option<Origin>,
    /// Whether it gets names of files from elsewhere.
    pub(crate) fed: Fed,
    /// Set on the shell that only carries the script.
    pub(crate) carrier: bool,
    /// How the shell that runs it reads scripts.
    dialect: Dialect,
}

/// Where a command was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The command that runs it.
    pub(crate) parent: usize,
    /// The place among that one's words of the script, or else of the first word.
    pub(crate) at: usize,
    /// Whether it is in a script.
    pub(crate) scripted: bool,
}

impl Found {
    /// Shows it as it was written.
    pub(crate) fn source(&self) -> String {
        let mut line = String::new();
        for word in &self.words {
            if line.len() > SHOWN_BYTES {
                break;
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += &excerpt(&word.source);
        }
        excerpt(&line)
    }
}

impl Inspection {
    /// Looks into an argument vector.
    pub(crate) fn of(argv: &[String]) -> Self {
        let words: Vec<Word> = argv.iter().map(Word::literal).collect();
        let mut inspector = Inspector { budget: SCRIPT_BYTES_MAX, ..Inspector::default() };
        if words.is_empty() {
            inspector.unclear("", Trouble::Syntax);
            return inspector.found;
        }
        let carrier = is_carrier(&words);
        let dialect = Dialect::of(&words, Dialect::Posix);
        inspector.push(Found { words, origin: None, fed: Fed::No, carrier, dialect }, 0);
        while let Some((index, depth)) = inspector.queue.pop_front() {
            inspector.look_into(index, depth);
        }
        inspector.found.widen_raw();
        inspector.found
    }

    /// Adds the whole command to what was not understood: what a shell reads may be written anywhere
    /// in it, and a name may be split by quotes or by the end of a line.
    fn widen_raw(&mut self) {
        if self.is_clear() {
            return;
        }
        let root = self.commands.first().map(|root| root.words.as_slice()).unwrap_or_default();
        for word in root {
            self.raw.push(word.text.clone());
            if word.text.contains(['\\', '\'', '"']) {
                let joined = word.text.replace("\\\n", "");
                self.raw.push(joined.replace(['\\', '\'', '"'], ""));
            }
        }
    }

    /// Tells whether nothing was left unclear.
    pub(crate) fn is_clear(&self) -> bool {
        self.unclear.is_empty()
    }
}

/// Tells whether this is one of the system's shells with nothing but a script: the form in which
/// scripts reach us, so that the shell itself needs no rule.
fn is_carrier(words: &[Word]) -> bool {
    let name = &words[0].text;
    let system = CARRIERS.contains(&wrap::base_name(name))
        && match name.rsplit_once('/') {
            None => true,
            Some((directory, _)) => DIRECTORIES.contains(&directory),
        };
    let flags = words.get(1).and_then(|word| word.text.strip_prefix('-'));
    let plain = flags.is_some_and(|flags| flags.bytes().all(|flag| b"lieuxc".contains(&flag)));
    system && plain && wrap::script_place(words) == ScriptPlace::At(2)
}

#[derive(Default)]
struct Inspector {
    found: Inspection,
    queue: VecDeque<(usize, usize)>,
    /// How many bytes of scripts may still be parsed.
    budget: usize,
}

impl Inspector {
    fn push(&mut self, found: Found, depth: usize) {
        if depth > DEPTH_MAX || self.found.commands.len() >= COMMANDS_MAX {
            self.unclear(&found.source(), Trouble::TooDeep);
            return;
        }
        self.queue.push_back((self.found.commands.len(), depth));
        self.found.commands.push(found);
    }

    fn look_into(&mut self, index: usize, depth: usize) {
        let found = &self.found.commands[index];
        let source = found.source();
        let (fed, outer) = (found.fed, found.dialect);
        let dialect = Dialect::of(&found.words, outer);
        self.found.embedded.extend(wrap::embedded_code(&found.words));
        if wrap::reads_code(&found.words) {
            let script = self.found.commands[0].words.last();
            let piped = script.and_then(|script| piped_into(&script.text, &found.words[0].source));
            self.found.embedded.extend(piped.filter(|text| wrap::may_start_programs(text)));
        }
        for inner in wrap::inner(&found.words) {
            match inner {
                Inner::Unclear => {
                    self.unclear(&source, Trouble::Inner);
                    let words = &self.found.commands[index].words;
                    self.found.raw.extend(words.iter().map(|word| word.source.clone()));
                }
                Inner::Words { at, words, fed: own, sets } => {
                    if sets {
                        self.found.features.insert(Feature::Assignment);
                    }
                    let fed = if own == Fed::Files { own } else { fed };
                    let origin = Some(Origin { parent: index, at, scripted: false });
                    let found = Found { words, origin, fed, carrier: false, dialect: outer };
                    self.push(found, depth + 1);
                }
                Inner::Script { at, text } => {
                    let origin = Origin { parent: index, at, scripted: true };
                    self.script(&text, origin, (fed, dialect), depth + 1);
                }
            }
        }
    }

    fn script(&mut self, text: &str, origin: Origin, (fed, dialect): (Fed, Dialect), depth: usize) {
        if text.len() > self.budget {
            self.unclear(text, Trouble::TooLong);
            self.found.raw.push(text.to_owned());
            return;
        }
        self.budget -= text.len();
        let script = Script::parse(text);
        let foreign = !dialect.reads_as_bash(text);
        if foreign {
            self.unclear(text, Trouble::Quoting);
        }
        if foreign || !script.unclear.is_empty() {
            self.found.raw.push(text.to_owned());
        }
        // A value that is text here is evaluated once it is used in arithmetic.
        let evaluates =
            [Feature::Test, Feature::Assignment].iter().any(|it| script.features.contains(it));
        if evaluates && has_subscript_to_run(text) {
            self.unclear(text, Trouble::Inner);
            self.found.raw.push(text.to_owned());
        }
        self.found.embedded.extend(wrap::code_in_documents(text));
        self.found.features.extend(&script.features);
        self.found.unclear.extend(script.unclear);
        for command in script.commands {
            let (words, origin) = (command.words, Some(origin));
            self.push(Found { words, origin, fed, carrier: false, dialect }, depth);
        }
    }

    fn unclear(&mut self, part: &str, why: Trouble) {
        if self.found.unclear.len() < UNCLEAR_MAX {
            self.found.unclear.push(Unclear { part: excerpt(part), why });
        }
    }
}

/// Returns what a script pipes into a program, or gives it as a here-string, and whatever stands before that.
fn piped_into(script: &str, program: &str) -> Option<String> {
    let (before, after) = script.rsplit_once(program)?;
    let here = after.split_once("<<<").map(|(_, text)| text.to_owned());
    here.or_else(|| before.trim_end().strip_suffix('|').map(str::to_owned))
}

/// Tells whether a text has an element of an array in it whose subscript is a command: `a[$(x)]`.
fn has_subscript_to_run(text: &str) -> bool {
    let bare = text.replace(['\\', '\'', '"'], "");
    bare.match_indices('[').any(|(at, _)| {
        let named = bare[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let inside = &bare[at + 1..];
        let runs =
            inside.starts_with('`') || (inside.starts_with("$(") && !inside.starts_with("$(("));
        named && runs
    })
}

/// How many wrappers are looked into, one inside of the other.
const DEPTH_MAX: usize = 16;

/// How many commands are looked at.
const COMMANDS_MAX: usize = 32 * 1024;

/// How many parts that were not understood are told apart.
const UNCLEAR_MAX: usize = 64;

/// More than is shown of a command in the end.
const SHOWN_BYTES: usize = 1024;

const CARRIERS: [&str; 5] = ["sh", "bash", "zsh", "dash", "ksh"];

/// Where a shell is the system's, and not something that a model could have written.
const DIRECTORIES: [&str; 5] =
    ["/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/run/current-system/sw/bin"];
