//! Programs with subcommands that run what follows, each by its own rules; and unknown programs that are told
//! to `exec` something.

use super::{Fed, Inner, script_of};
use crate::shell::Word;

/// Handles `PROGRAM exec [NAME] WORDS` for unknown programs. Whether a name comes first, of a container or a
/// package, is unknown too, so what follows is read both ways.
pub(super) fn unknown(name: &str, words: &[Word]) -> Vec<Inner> {
    if OPERANDS_ONLY.contains(&name) {
        return Vec::new();
    }
    let mut after_option = false;
    for (at, word) in words.iter().enumerate().take(FIRST_WORDS).skip(1) {
        if word.known().is_some_and(|text| CARRY.contains(&text)) {
            return carried(words, at + 1);
        }
        let is_option = word.text.starts_with('-');
        // A word after an option may be its value; anything else is another subcommand.
        if !is_option && !after_option {
            return Vec::new();
        }
        after_option = is_option;
    }
    Vec::new()
}

/// Returns what follows from here: after the end of the options, or the first and the second word that is not
/// an option.
fn carried(words: &[Word], from: usize) -> Vec<Inner> {
    let rest = words.get(from..).unwrap_or_default();
    if let Some(end) = rest.iter().take(ENDS_WITHIN).position(|word| word.known() == Some("--")) {
        return run(words, from + end + 1);
    }
    let mut operands = rest.iter().enumerate().filter(|(_, word)| !word.text.starts_with('-'));
    let mut next = || operands.next().map(|(place, _)| run(words, from + place));
    let mut found = next().unwrap_or_default();
    // Reading each of several such programs both ways would be exponential.
    match rest.iter().any(|word| CARRY.contains(&word.text.as_str())) {
        true => found.push(Inner::Unclear),
        false => found.extend(next().unwrap_or_default()),
    }
    found
}

/// Returns the words from here on as a command; as a script if a single word is one.
fn run(words: &[Word], at: usize) -> Vec<Inner> {
    match words.get(at..).unwrap_or_default() {
        [] => Vec::new(),
        [script] if script.text.contains(' ') => script_of(at, std::slice::from_ref(script)),
        [program, ..] if program.unknown.is_some() => vec![Inner::Unclear],
        rest => vec![Inner::Words { at, words: rest.to_vec(), fed: Fed::No, sets: false }],
    }
}

/// Handles a program that passes these words to another one.
fn renamed(name: &str, words: &[Word], at: usize) -> Vec<Inner> {
    let mut inner = vec![Word::literal(name)];
    inner.extend_from_slice(words.get(at..).unwrap_or_default());
    vec![Inner::Words { at: at.saturating_sub(1), words: inner, fed: Fed::No, sets: false }]
}

/// Handles `hub …` and `jj git …`: what follows is a git command.
pub(super) fn git(words: &[Word], at: usize) -> Vec<Inner> {
    renamed("git", words, at)
}

/// Handles `concurrently SCRIPT…`.
pub(super) fn concurrently(words: &[Word]) -> Vec<Inner> {
    let mut found = Vec::new();
    let mut before = "";
    for (at, word) in words.iter().enumerate().skip(1) {
        let text = word.text.as_str();
        if !text.starts_with('-') && !CONCURRENTLY_VALUES.contains(&before) {
            found.extend(script_of(at, std::slice::from_ref(word)));
        }
        before = text;
    }
    found
}

/// Handles `dotenv [OPTIONS] [run] [--] WORDS`; unknown options have an attached value, or none.
pub(super) fn dotenv(words: &[Word]) -> Vec<Inner> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        match word.text.as_str() {
            "--" => return run(words, at + 1),
            "run" => at += 1,
            "-c" | "-e" | "-f" | "-fk" | "-p" | "-v" | "--env" | "--file" => at += 2,
            text if text.starts_with('-') => at += 1,
            "get" | "set" | "list" | "unset" | "encrypt" | "decrypt" => return Vec::new(),
            _ => return run(words, at),
        }
    }
    Vec::new()
}

/// Handles `gh alias set NAME COMMAND`: a gh command, or after a mark a shell command.
pub(super) fn gh(words: &[Word]) -> Vec<Inner> {
    let known = |at: usize| words.get(at).and_then(Word::known);
    if (known(1), known(2)) != (Some("alias"), Some("set")) {
        return unknown("gh", words);
    }
    let mut operands =
        words.iter().enumerate().skip(3).filter(|(_, word)| !word.text.starts_with('-'));
    let Some((at, value)) = operands.next_back() else { return Vec::new() };
    let by_shell = words.iter().any(|word| matches!(word.known(), Some("-s" | "--shell")));
    match value.known() {
        None => vec![Inner::Unclear],
        Some(text) => match text.strip_prefix('!').or(by_shell.then_some(text)) {
            Some(script) => vec![Inner::Script { at, text: script.to_owned() }],
            None => Vec::new(),
        },
    }
}

/// Handles `nix run PLACE#PROGRAM -- WORDS` and `nix shell PLACE… -c WORDS`.
pub(super) fn nix(words: &[Word]) -> Vec<Inner> {
    let is = |names: &[&str], word: &Word| word.known().is_some_and(|text| names.contains(&text));
    let Some(command) = words.iter().position(|word| is(&["run", "shell", "develop"], word)) else {
        return Vec::new();
    };
    let rest = &words[command + 1..];
    if !is(&["run"], &words[command]) {
        let runs = rest.iter().position(|word| is(&["-c", "--command"], word));
        return runs.map(|place| run(words, command + 2 + place)).unwrap_or_default();
    }
    let Some(place) = rest.iter().position(|word| word.text.contains('#')) else {
        return Vec::new();
    };
    let Some((_, name)) = rest[place].known().and_then(|text| text.rsplit_once(['#', '.'])) else {
        return vec![Inner::Unclear];
    };
    let mut at = command + 2 + place;
    at += usize::from(words.get(at).and_then(Word::known) == Some("--"));
    renamed(name, words, at)
}

/// Words after which a command follows.
const CARRY: [&str; 3] = ["exec", "rsh", "ssh"];

/// Among how many words it is searched for.
const FIRST_WORDS: usize = 8;

/// Among how many words after it the end of the options is searched for: later it belongs to the command.
const ENDS_WITHIN: usize = 8;

const CONCURRENTLY_VALUES: [&str; 10] = [
    "-c",
    "-l",
    "-m",
    "-n",
    "-p",
    "-s",
    "--max-processes",
    "--names",
    "--prefix",
    "--prefix-colors",
];

/// Programs whose first word is a text or a file, whatever it says.
const OPERANDS_ONLY: &[&str] = &[
    "[",
    "ack",
    "ag",
    "apropos",
    "awk",
    "basename",
    "cat",
    "cd",
    "chmod",
    "chown",
    "cmp",
    "compgen",
    "cp",
    "cut",
    "declare",
    "diff",
    "dirname",
    "du",
    "echo",
    "egrep",
    "export",
    "expr",
    "fgrep",
    "file",
    "gcc",
    "getent",
    "grep",
    "head",
    "help",
    "info",
    "install",
    "jq",
    "kill",
    "killall",
    "less",
    "ln",
    "local",
    "ls",
    "man",
    "md5sum",
    "mkdir",
    "more",
    "mv",
    "nl",
    "node",
    "open",
    "perl",
    "pgrep",
    "pidof",
    "pkill",
    "printf",
    "python",
    "python3",
    "read",
    "readlink",
    "realpath",
    "rg",
    "rm",
    "rmdir",
    "ruby",
    "sed",
    "service",
    "set",
    "sha256sum",
    "sort",
    "stat",
    "tac",
    "tail",
    "tar",
    "tee",
    "test",
    "touch",
    "tr",
    "tree",
    "type",
    "typeset",
    "uniq",
    "unset",
    "unzip",
    "wc",
    "whatis",
    "whereis",
    "which",
    "zip",
];
