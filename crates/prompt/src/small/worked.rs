//! Examples for small models: requests and the commands that answer them, selected by the words they share
//! with a request.
//!
//! A small model continues a pattern if the last one it sees is similar to the request, and invents programs
//! if it may. So it sees the six most similar examples, the best match last, and its command must begin with
//! a program from one of them. The rest of the command is up to the model.

use std::collections::{BTreeSet, HashMap};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Example {
    pub(crate) asked: &'static str,
    pub(crate) command: &'static str,
}

/// The examples for a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExampleSet {
    /// Examples, the most similar last.
    pub(crate) shown: Vec<Example>,
    /// Whether any of them is similar to the request.
    pub(crate) is_similar: bool,
    /// A regular expression for the commands that may be written.
    pub(crate) pattern: String,
}

/// How many examples are shown.
const SHOWN: usize = 6;

/// Lowest similarity that counts.
const LEAST: f64 = 0.25;

/// Most characters of a command after its program.
const REST_MAX: usize = 60;

/// How many words of a request are compared.
const WORDS_MAX: usize = 64;

/// Selects the examples that are similar to a request.
pub(crate) fn find_examples(request: &str) -> ExampleSet {
    let request: Vec<&str> = request
        .split_whitespace()
        .map(bare)
        .filter(|word| !word.is_empty())
        .take(WORDS_MAX)
        .collect();
    let meant = meanings(request.iter().copied());
    let known: Vec<BTreeSet<String>> =
        WORKED.iter().map(|worked| meanings(worked.asked.split_whitespace())).collect();
    let mut counts: HashMap<&str, f64> = HashMap::new();
    for word in known.iter().flatten() {
        *counts.entry(word).or_default() += 1.0;
    }
    let weight = |word: &str| {
        let base = if word == FILE { 0.3 } else { 1.0 };
        base / counts.get(word).copied().unwrap_or(1.0).sqrt()
    };
    let likeness = |words: &BTreeSet<String>| {
        let shared: f64 = words.intersection(&meant).map(|word| weight(word)).sum();
        let missing: f64 = words.difference(&meant).map(|word| weight(word)).sum();
        let strange = meant.difference(words).filter(|word| *word != FILE).count() as f64;
        shared - 0.4 * missing - 0.1 * strange
    };
    let mut ranked: Vec<(f64, Example)> = known.iter().map(likeness).zip(WORKED).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let best = ranked.last().map_or(0.0, |(likeness, _)| *likeness);
    let shown: Vec<Example> =
        ranked[ranked.len() - SHOWN..].iter().map(|(_, worked)| *worked).collect();
    ExampleSet { pattern: programs(&shown), is_similar: best >= LEAST, shown }
}

/// Builds a regular expression for commands that begin with one of these programs.
fn programs(shown: &[Example]) -> String {
    let programs: BTreeSet<&str> =
        shown.iter().filter_map(|worked| worked.command.split(' ').next()).collect();
    let programs: Vec<&str> = programs.into_iter().collect();
    format!("^({})( [ -~]{{1,{REST_MAX}}})?$", programs.join("|"))
}

fn meanings<'a>(words: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    words.map(bare).filter_map(meaning).collect()
}

fn bare(word: &str) -> &str {
    word.trim_matches(['.', ',', '?', '!', '"', '\'', '`', ':', ';'])
}

/// Normalizes a word; `None` if it carries no meaning.
fn meaning(word: &str) -> Option<String> {
    let mut word = word.to_lowercase();
    if word.is_empty() || SILENT.contains(&word.as_str()) {
        return None;
    }
    if word.chars().any(|c| "./_".contains(c) || c.is_ascii_digit()) {
        return Some(FILE.to_owned());
    }
    if word.len() > 3 && word.ends_with('s') {
        word.pop();
    }
    let same = SAME.iter().find(|(from, _)| *from == word);
    Some(same.map_or(word, |(_, to)| (*to).to_owned()))
}

/// What every file name is normalized to.
const FILE: &str = "<file>";

const SILENT: [&str; 29] = [
    "a", "an", "the", "is", "are", "was", "what", "me", "my", "of", "to", "for", "in", "on",
    "with", "please", "can", "could", "you", "it", "this", "that", "called", "named", "name",
    "and", "do", "does", "then",
];

/// Synonyms.
const SAME: [(&str, &str); 16] = [
    ("directory", "folder"),
    ("remove", "delete"),
    ("erase", "delete"),
    ("print", "show"),
    ("display", "show"),
    ("view", "show"),
    ("read", "show"),
    ("open", "show"),
    ("content", "show"),
    ("make", "create"),
    ("add", "create"),
    ("new", "create"),
    ("blank", "empty"),
    ("working", "current"),
    ("locate", "find"),
    ("duplicate", "copy"),
];

const fn worked(asked: &'static str, command: &'static str) -> Example {
    Example { asked, command }
}

const WORKED: [Example; 32] = [
    worked("make a folder called docs", "mkdir docs"),
    worked("create a directory named src", "mkdir src"),
    worked("delete tmp.txt", "rm tmp.txt"),
    worked("remove the file draft.md", "rm draft.md"),
    worked("delete the folder cache", "rm -r cache"),
    worked("list the files", "ls"),
    worked("what files are here", "ls"),
    worked("list all files with details", "ls -la"),
    worked("show hidden files", "ls -a"),
    worked("create an empty file called log.txt", "touch log.txt"),
    worked("make a new file named todo.md", "touch todo.md"),
    worked("show the file main.c", "cat main.c"),
    worked("print the contents of setup.py", "cat setup.py"),
    worked("what is the current directory", "pwd"),
    worked("where am I", "pwd"),
    worked("which directory am I in", "pwd"),
    worked("copy a.txt to b.txt", "cp a.txt b.txt"),
    worked("rename old.md to new.md", "mv old.md new.md"),
    worked("move data.csv to archive", "mv data.csv archive"),
    worked("show the first lines of big.txt", "head big.txt"),
    worked("show the last lines of server.log", "tail server.log"),
    worked("count the lines of list.txt", "wc -l list.txt"),
    worked("search for TODO in main.py", "grep TODO main.py"),
    worked("find the file test.js", "find . -name test.js"),
    worked("write yes to out.txt", "echo yes > out.txt"),
    worked("what is the date today", "date"),
    worked("who am I", "whoami"),
    worked("show the git status", "git status"),
    worked("show the git log", "git log"),
    worked("how much disk space is free", "df -h"),
    worked("how big is the folder media", "du -sh media"),
    worked("make run.sh executable", "chmod +x run.sh"),
];

#[cfg(test)]
mod tests {
    use super::find_examples;

    #[track_caller]
    fn check(request: &str, last: &str) {
        let examples = find_examples(request);
        assert!(examples.is_similar, "{request}");
        assert_eq!(examples.shown.last().unwrap().command, last, "{request}");
        let programs = examples.pattern.strip_prefix("^(").unwrap();
        let programs = programs.strip_suffix(")( [ -~]{1,60})?$").unwrap();
        let own = last.split(' ').next().unwrap();
        assert!(programs.split('|').any(|program| program == own), "{request}: {programs}");
    }

    #[test]
    fn requests() {
        check("make a folder called build", "mkdir src");
        check("Please delete old.log!", "rm tmp.txt");
        check("copy x.c to y.c", "cp a.txt b.txt");
        check("what is the current directory?", "pwd");
        for request in ["hello", "", "what is the capital of France", "fix the bug in parser.rs"] {
            assert!(!find_examples(request).is_similar, "{request}");
        }
    }
}
