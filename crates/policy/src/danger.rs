//! Commands that destroy files without a way back.
//!
//! They are asked about whatever rules and modes say, because a mistake in them is the one that
//! cannot be undone. The list is short on purpose: a question that comes often is not read.

use crate::inspect::{Found, Inspection};
use crate::shell::{Unknown, Word};
use crate::wrap::{self, Fed, base_name};

/// Returns the first part that destroys files, as it is written.
pub(crate) fn find(inspection: &Inspection) -> Option<String> {
    let found = inspection.commands.iter().find(|found| is_destructive(found));
    found.map(Found::source).or_else(|| {
        // Nobody knows what a script does that is not understood; naming such a program is enough.
        let suspect = |text: &&String| names_a_destroyer(text);
        inspection.raw.iter().find(suspect).map(|text| crate::shell::excerpt(text))
    })
}

fn is_destructive(found: &Found) -> bool {
    let Some((name, arguments)) = found.words.split_first() else {
        return false;
    };
    let Some(name) = name.known().map(base_name) else {
        return false;
    };
    match name {
        "rm" | "grm" => found.fed == Fed::Files || removes_too_much(arguments),
        "find" | "gfind" => arguments.iter().any(|word| word.known() == Some("-delete")),
        "git" => cleans(arguments),
        "dd" | "gdd" => arguments.iter().any(overwrites_device),
        _ => destroys_always(name),
    }
}

fn removes_too_much(arguments: &[Word]) -> bool {
    let (options, operands) = split_options(arguments);
    // Words that come from elsewhere may be options, but not those that a pattern finds.
    if options.iter().any(|word| word.unknown >= Some(Unknown::Brace)) {
        return true;
    }
    if options.iter().any(|word| has_option(word, "f", "--force")) {
        return true;
    }
    let recursive = options.iter().any(|word| has_option(word, "rR", "--recursive"));
    let targets = options.iter().filter(|word| !word.text.starts_with('-') || word.text == "-");
    recursive && targets.chain(operands).any(is_wide)
}

/// Splits at `--`, after which nothing is an option.
fn split_options(arguments: &[Word]) -> (&[Word], &[Word]) {
    match arguments.iter().position(|word| word.known() == Some("--")) {
        Some(at) => (&arguments[..at], &arguments[at + 1..]),
        None => (arguments, &[]),
    }
}

/// Tells whether a word is an option, as one of these letters in a cluster or as an abbreviation.
fn has_option(word: &Word, letters: &str, long: &str) -> bool {
    match word.text.strip_prefix("--") {
        Some(name) => !name.is_empty() && long.starts_with(word.text.as_str()),
        None => word
            .text
            .strip_prefix('-')
            .is_some_and(|cluster| cluster.contains(|letter| letters.contains(letter))),
    }
}

/// Tells whether removing this and all in it takes more than a directory of the work at hand.
fn is_wide(word: &Word) -> bool {
    if word.unknown >= Some(Unknown::Brace) {
        return true;
    }
    // A name that is not known from its beginning may be empty: then `"$x/"` is the root. A pattern
    // that begins a path, or follows only what leads up or nowhere, takes everything in a directory.
    let known = word.text.as_str();
    let begins = known.is_empty() || known.chars().all(|c| matches!(c, '.' | '/'));
    if matches!(word.unknown, Some(Unknown::Quoted | Unknown::Glob)) && begins {
        return true;
    }
    // What the history is kept in.
    if known.trim_end_matches('/').ends_with(".git") {
        return true;
    }
    let written = word.source.replace(['"', '{', '}'], "");
    let path = match word.known() {
        Some(text) => text,
        None => written.as_str(),
    };
    let path = path.trim_end_matches('*').trim_end_matches('/');
    let home = |name: &str| path == name;
    if home("~") || home("$HOME") || home("$PWD") || home("$OLDPWD") || path.is_empty() {
        return true;
    }
    // `~user` is somebody's home.
    if word.unknown == Some(Unknown::Tilde) && !path.contains('/') {
        return true;
    }
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let depth = parts.fold(0usize, |depth, part| match part {
        ".." => depth.saturating_sub(1),
        _ => depth + 1,
    });
    // The root and what lies directly in it; the directory itself, and those above it.
    depth == 0 || (path.starts_with('/') && depth == 1)
}

/// `git [OPTIONS] clean`, unless it only says what it would do: whether it needs a force flag is a
/// setting, which may come from anywhere.
fn cleans(arguments: &[Word]) -> bool {
    let mut at = 0;
    let mut sure = true;
    while let Some(word) = arguments.get(at) {
        if word.splits() || !word.text.starts_with('-') {
            break;
        }
        let text = word.text.as_str();
        let takes = wrap::GIT_VALUES.contains(&text);
        // Of an option that is not known, the next word may be the value, or the command.
        sure &= takes || text.contains('=') || wrap::GIT_FLAGS.contains(&text);
        at += 1 + usize::from(takes);
    }
    let rest = arguments.get(at..).unwrap_or_default();
    let Some((command, _)) = rest.split_first() else {
        return false;
    };
    let place = match command.known() {
        Some(name) if sure => (name == "clean").then_some(0),
        _ => rest.iter().position(|word| word.known() == Some("clean")),
    };
    let Some(place) = place else {
        return false;
    };
    let (options, _) = split_options(&rest[place + 1..]);
    let has = |letter, long| options.iter().any(|word| has_option(word, letter, long));
    let unknown = options.iter().any(|word| word.unknown >= Some(Unknown::Brace));
    has("f", "--force") || unknown || !(has("n", "--dry-run") || has("h", "--help"))
}

/// `of=` with a device, or with what could be one.
fn overwrites_device(word: &Word) -> bool {
    let Some(target) = word.text.strip_prefix("of=") else {
        return word.unknown >= Some(Unknown::Brace) && "of=/dev/".starts_with(&word.text);
    };
    if word.unknown.is_some() {
        return target.starts_with("/dev/") || "/dev/".starts_with(target);
    }
    let harmless = ["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"].contains(&target);
    target.starts_with("/dev/") && !harmless && !target.starts_with("/dev/shm/")
}

fn names_a_destroyer(text: &str) -> bool {
    let of_names = |c: char| c.is_ascii_alphanumeric() || "_.-+".contains(c);
    let names = || text.split(|c: char| !of_names(c));
    let destroys =
        |name: &str| name == "-delete" || ["rm", "grm"].contains(&name) || destroys_always(name);
    names().any(destroys) || (names().any(|it| it == "git") && names().any(|it| it == "clean"))
}

/// Programs that are there to destroy what they are given.
fn destroys_always(name: &str) -> bool {
    let known = ["shred", "gshred", "srm", "wipe", "wipefs", "blkdiscard", "mkfs"];
    known.contains(&name) || name.starts_with("mkfs.")
}
