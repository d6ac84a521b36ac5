//! Programs under another name: `cp /usr/bin/curl x; ./x`.
//!
//! Rules know programs by their names, so whoever copies, links or renames one that they restrict is
//! about to use it. This is seen within one script only.

use super::base_name;
use crate::environment::matches;
use crate::shell::{Unknown, Word};

/// Tells whether a command could give a program another name, or pass on what is in its file. `moved` says
/// that the script goes to a directory of programs, and `sought` that it asks where this one is.
pub(crate) fn copies(words: &[Word], program: &str, moved: bool, sought: bool) -> bool {
    sources(words).iter().any(|word| {
        let expands = matches!(word.unknown, Some(Unknown::Quoted | Unknown::Expansion));
        sought && expands || is_program(word, program, moved)
    })
}

/// Tells whether a word names the file of a program: by a path that programs are kept under, or by less
/// where the script has gone there.
pub(crate) fn is_program(word: &Word, program: &str, moved: bool) -> bool {
    let path = word.pattern();
    let path = path.strip_prefix("if=").unwrap_or(&path);
    match path.rsplit_once('/') {
        None => moved && matches(path, program),
        Some((directory, name)) => {
            // Below the working directory there are only programs that were made here.
            let elsewhere = path.starts_with(['/', '~', '*']) || path.contains("..");
            let kept = is_of_programs(directory) || directory == "*";
            elsewhere && kept && matches(name, program)
        }
    }
}

/// Tells whether a command asks where a program is.
pub(crate) fn looks_up(words: &[Word], program: &str) -> bool {
    let Some((name, arguments)) = words.split_first() else { return false };
    let seeks = name.known().is_some_and(|name| SEEKERS.contains(&base_name(name)));
    seeks && arguments.iter().any(|word| word.known().map(base_name) == Some(program))
}

/// Tells whether a command goes to a directory that programs are kept in.
pub(crate) fn goes_to_programs(words: &[Word]) -> bool {
    let name = words.first().and_then(Word::known);
    let goes = matches!(name, Some("cd" | "pushd"));
    goes && words[1..].iter().any(|word| is_of_programs(&word.text))
}

fn is_of_programs(directory: &str) -> bool {
    let last = base_name(directory.trim_end_matches('/'));
    last.ends_with("bin") || matches!(last, "git-core" | "libexec")
}

/// The files that a command reads to make others of them.
fn sources(words: &[Word]) -> &[Word] {
    let Some((name, arguments)) = words.split_first() else { return &[] };
    let Some(name) = name.known().map(base_name) else { return &[] };
    if READERS.contains(&name) {
        return arguments;
    }
    if !COPIERS.contains(&name) {
        return &[];
    }
    // The last operand is where it goes to, unless an option says so, or there is only one.
    let target = |word: &Word| word.text.starts_with("-t") || word.text.starts_with("--target");
    let operands = arguments.iter().filter(|word| !word.text.starts_with('-')).count();
    match arguments.split_last() {
        Some((_, before)) if operands > 1 && !arguments.iter().any(target) => before,
        _ => arguments,
    }
}

const COPIERS: [&str; 13] = [
    "cp", "ditto", "gcp", "ginstall", "gln", "gmv", "install", "link", "ln", "mount", "mv",
    "objcopy", "rsync",
];

/// Programs that give out what is in a file.
const READERS: [&str; 14] = [
    "base64", "bsdtar", "cat", "cpio", "dd", "gcat", "gtar", "gzip", "head", "pv", "tail", "tar",
    "xz", "zip",
];

const SEEKERS: [&str; 12] = [
    "command", "fd", "fdfind", "find", "gfind", "hash", "locate", "readlink", "realpath", "type",
    "whereis", "which",
];
