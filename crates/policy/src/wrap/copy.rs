//! Programs under another name: `cp /usr/bin/curl x; ./x`.
//!
//! Rules identify programs by name, so a script that copies, links or renames a restricted program is about
//! to use it. This is detected within one script only.

use super::base_name;
use crate::environment::matches;
use crate::shell::{Unknown, Word};

/// Tells whether a command could give a program another name, or output its file. `moved` means that the
/// script changes to a program directory.
pub(crate) fn copies(words: &[Word], program: &str, moved: bool) -> bool {
    sources(words).iter().any(|word| is_program(word, program, moved))
}

/// Tells whether a command copies a file whose name comes from an expansion: it may be any program that the
/// script has looked up.
pub(crate) fn copies_what_was_found(words: &[Word]) -> bool {
    let expands = |word: &Word| matches!(word.unknown, Some(Unknown::Quoted | Unknown::Expansion));
    sources(words).iter().any(expands)
}

/// Tells whether a word names the file of a program: by a path under which programs are kept, or by less if
/// the script has changed to such a directory.
pub(crate) fn is_program(word: &Word, program: &str, moved: bool) -> bool {
    let path = word.pattern();
    let path = path.strip_prefix("if=").unwrap_or(&path);
    match path.rsplit_once('/') {
        None => moved && matches(path, program),
        Some((directory, name)) => {
            // Below the working directory there are only programs that were created here.
            let elsewhere = path.starts_with(['/', '~', '*']) || path.contains("..");
            let kept = is_of_programs(directory) || directory == "*";
            elsewhere && kept && matches(name, program)
        }
    }
}

/// Tells whether a command looks up where a program is.
pub(crate) fn looks_up(words: &[Word], program: &str) -> bool {
    let Some((name, arguments)) = words.split_first() else { return false };
    let seeks = name.known().is_some_and(|name| SEEKERS.contains(&base_name(name)));
    seeks && arguments.iter().any(|word| word.known().map(base_name) == Some(program))
}

/// Tells whether a command changes to a program directory.
pub(crate) fn goes_to_programs(words: &[Word]) -> bool {
    let name = words.first().and_then(Word::known);
    let goes = matches!(name, Some("cd" | "pushd"));
    goes && words[1..].iter().any(|word| is_of_programs(&word.text))
}

fn is_of_programs(directory: &str) -> bool {
    let last = base_name(directory.trim_end_matches('/'));
    last.ends_with("bin") || matches!(last, "git-core" | "libexec")
}

/// Returns the files that a command copies from.
fn sources(words: &[Word]) -> &[Word] {
    let Some((name, arguments)) = words.split_first() else { return &[] };
    let Some(name) = name.known().map(base_name) else { return &[] };
    if READERS.contains(&name) {
        return arguments;
    }
    if !COPIERS.contains(&name) {
        return &[];
    }
    // The last operand is the destination, unless an option names it or there is only one.
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

/// Programs that output the content of a file.
const READERS: [&str; 14] = [
    "base64", "bsdtar", "cat", "cpio", "dd", "gcat", "gtar", "gzip", "head", "pv", "tail", "tar",
    "xz", "zip",
];

const SEEKERS: [&str; 12] = [
    "command", "fd", "fdfind", "find", "gfind", "hash", "locate", "readlink", "realpath", "type",
    "whereis", "which",
];
