//! Finds everything a command could run, in its words, its scripts and its wrappers.

mod dialect;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use crate::shell::{Feature, SCRIPT_BYTES_MAX, Script, Trouble, Unclear, Word, excerpt};
use crate::wrap::{self, Fed, Inner, Reads, ScriptPlace};
use dialect::Dialect;

/// What is known about a command before it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inspection {
    /// The command itself, then everything it runs.
    pub(crate) commands: Vec<Found>,
    /// What its scripts contain besides simple commands.
    pub(crate) features: BTreeSet<Feature>,
    /// What could not be parsed.
    pub(crate) unclear: Vec<Unclear>,
    /// Source of what could not be parsed: scripts, and words of wrappers.
    pub(crate) raw: Vec<String>,
    /// Code in other languages that may start programs.
    pub(crate) embedded: Vec<String>,
    /// Scripts in which the beginning of a command that runs elsewhere cannot be determined.
    pub(crate) doubtful: Vec<String>,
    /// Assignments, as `NAME=value`.
    pub(crate) settings: Vec<Word>,
    /// Files redirected to stdin.
    pub(crate) inputs: Vec<Word>,
    /// Files that output is redirected to.
    pub(crate) outputs: Vec<Word>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) words: Vec<Word>,
    /// What runs it, if it is not the whole command.
    pub(crate) origin: Option<Origin>,
    /// Whether it gets file names from elsewhere.
    pub(crate) fed: Fed,
    /// Set for the shell that only carries the script.
    pub(crate) carrier: bool,
    /// How the shell that runs it parses scripts.
    dialect: Dialect,
    /// What it reads from stdin, if its script contains that.
    input: Option<Input>,
}

/// A part of a script that a command reads from stdin.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Input {
    /// Index of the script.
    script: usize,
    range: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Index of the command that runs it.
    pub(crate) parent: usize,
    /// Which word of that command contains the script, or is the first word.
    pub(crate) at: usize,
    /// Whether it is in a script.
    pub(crate) scripted: bool,
}

impl Found {
    /// Returns it as written.
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
    /// Inspects an argument vector.
    pub(crate) fn new(argv: &[String]) -> Self {
        let words: Vec<Word> = argv.iter().map(Word::literal).collect();
        let mut inspector = Inspector { budget: SCRIPT_BYTES_MAX, ..Inspector::default() };
        if words.is_empty() {
            inspector.unclear("", Trouble::Syntax);
            return inspector.found;
        }
        let carrier = is_carrier(&words);
        let dialect = Dialect::for_command(&words, Dialect::Posix);
        let fed = Fed::No;
        inspector.push(Found { words, origin: None, fed, carrier, dialect, input: None }, 0);
        while let Some((index, depth)) = inspector.queue.pop_front() {
            inspector.look_into(index, depth);
        }
        inspector.gather_input();
        inspector.found.widen_raw();
        inspector.found
    }

    /// Adds the whole command to what could not be parsed: what a shell reads may be anywhere in it, and
    /// quotes or line breaks may split a name.
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

    /// Tells whether everything was parsed.
    pub(crate) fn is_clear(&self) -> bool {
        self.unclear.is_empty()
    }
}

/// Tells whether this is a system shell with nothing but a script. That is the form in which scripts arrive,
/// so the shell itself needs no rule.
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
    scripts: Vec<String>,
    /// What is read as code, and how.
    code: Vec<(Reads, Input)>,
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
        let dialect = Dialect::for_command(&found.words, outer);
        let input = found.input.clone();
        self.found.embedded.extend(wrap::embedded_code(&found.words));
        if let (Some(reads), Some(input)) = (wrap::reads(&found.words), &input) {
            self.code.push((reads, input.clone()));
        }
        if self.found.doubtful.is_empty() && wrap::carries_after_doubt(&found.words) {
            let script = self.found.commands[0].words.last();
            self.found.doubtful.extend(script.map(|script| script.text.clone()));
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
                    let (carrier, input) = (false, input.clone());
                    let found = Found { words, origin, fed, carrier, dialect: outer, input };
                    self.push(found, depth + 1);
                }
                Inner::Script { at, text } => {
                    let origin = Origin { parent: index, at, scripted: true };
                    self.script(&text, origin, (fed, dialect, input.clone()), depth + 1);
                }
            }
        }
    }

    /// Parses a script that runs with these file arguments, in this dialect, and with this stdin.
    fn script(
        &mut self,
        text: &str,
        origin: Origin,
        (fed, dialect, outer): (Fed, Dialect, Option<Input>),
        depth: usize,
    ) {
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
        // A value that is plain text here is evaluated once it is used in arithmetic.
        let evaluates =
            [Feature::Test, Feature::Assignment].iter().any(|it| script.features.contains(it));
        if evaluates && has_subscript_to_run(text) {
            self.unclear(text, Trouble::Inner);
            self.found.raw.push(text.to_owned());
        }
        self.found.features.extend(&script.features);
        self.found.unclear.extend(script.unclear);
        self.found.settings.extend(script.settings);
        self.found.inputs.extend(script.inputs);
        self.found.outputs.extend(script.outputs);
        let number = self.scripts.len();
        self.scripts.push(text.to_owned());
        for command in script.commands {
            let (words, origin) = (command.words, Some(origin));
            let input = command.input.map(|range| Input { script: number, range });
            let input = input.or_else(|| outer.clone());
            self.push(Found { words, origin, fed, carrier: false, dialect, input }, depth);
        }
    }

    /// Collects what is read as code, each part of a script once per way to read it, since commands of one
    /// pipeline may read the same.
    fn gather_input(&mut self) {
        let mut code = std::mem::take(&mut self.code);
        code.sort_by_key(|(reads, input)| (*reads, input.script, input.range.start));
        let mut joined: Vec<(Reads, Input)> = Vec::new();
        for (reads, input) in code {
            match joined.last_mut() {
                Some((before, last))
                    if (*before, last.script) == (reads, input.script)
                        && input.range.start <= last.range.end =>
                {
                    last.range.end = last.range.end.max(input.range.end);
                }
                _ => joined.push((reads, input)),
            }
        }
        let mut texts = Vec::new();
        for (reads, Input { script, range }) in joined {
            let text = self.scripts.get(script).and_then(|text| text.get(range));
            // The pipe symbol before the command is not part of its input.
            let text = text.unwrap_or_default().trim_end().trim_end_matches(['|', '&']);
            let text = reads.without_data(text);
            if !reads.may_start_programs(&text) {
                continue;
            }
            if reads == Reads::Commands {
                texts.push(text.replace(['\\', '"', '\''], ""));
            }
            texts.push(wrap::written(&text));
        }
        self.found.embedded.extend(texts);
    }

    fn unclear(&mut self, part: &str, why: Trouble) {
        if self.found.unclear.len() < UNCLEAR_MAX {
            self.found.unclear.push(Unclear { part: excerpt(part), why });
        }
    }
}

/// Tells whether a text contains an array subscript that runs a command: `a[$(x)]`.
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

/// How many nested wrappers are followed.
const DEPTH_MAX: usize = 16;

/// How many commands are examined.
const COMMANDS_MAX: usize = 32 * 1024;

/// How many unparsed parts are listed separately.
const UNCLEAR_MAX: usize = 64;

/// More than is shown of a command in the end.
const SHOWN_BYTES: usize = 1024;

const CARRIERS: [&str; 5] = ["sh", "bash", "zsh", "dash", "ksh"];

/// Directories whose shells belong to the system and cannot be written by a model.
const DIRECTORIES: [&str; 5] =
    ["/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/run/current-system/sw/bin"];
