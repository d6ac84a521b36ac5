//! Commands that destroy files without a way back.
//!
//! They are asked about whatever rules and modes say, because a mistake in them is the one that
//! cannot be undone. The list is short on purpose: a question that comes often is not read.

use crate::environment::matches;
use crate::inspect::{Found, Inspection};
use crate::shell::{Unknown, Word};
use crate::wrap::{self, Fed, base_name};

/// Returns the first part that destroys files, as it is written.
pub(crate) fn find(inspection: &Inspection) -> Option<String> {
    let found = inspection.commands.iter().find(|found| is_destructive(found));
    found.map(Found::source).or_else(|| {
        // Nobody knows what a script does that is not understood; naming such a program is enough.
        let suspect = |text: &&String| names_a_destroyer(text);
        let texts = inspection.raw.iter().chain(&inspection.embedded);
        texts.into_iter().find(suspect).map(|text| crate::shell::excerpt(text))
    })
}

fn is_destructive(found: &Found) -> bool {
    let Some((name, arguments)) = found.words.split_first() else {
        return false;
    };
    let Some(name) = name.known().map(base_name) else {
        // A pattern in the place of a name means one of the files that it fits.
        return name.unknown == Some(Unknown::Glob) && fits_a_destroyer(&name.source);
    };
    // Several builds of a program are told apart like this: `rm.coreutils`, `git.exe`.
    let builds = [".coreutils", ".exe", ".real"];
    let name = builds.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
    match name {
        "rm" | "grm" => found.fed == Fed::Files || removes_too_much(arguments),
        "find" | "gfind" => arguments.iter().any(|word| word.known() == Some("-delete")),
        "git" => discards(arguments),
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
    // An option of which only a part is known, and another name of the same flag.
    let forces = |word: &Word| {
        let option = word.text.starts_with('-') && word.text != "-";
        option
            && (word.unknown.is_some()
                || (word.text.starts_with("--i") && word.text.contains("=n")))
    };
    if options.iter().any(forces) {
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

/// `git [OPTIONS] COMMAND` where the command throws away what is not committed.
fn discards(arguments: &[Word]) -> bool {
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
    let is_command = |word: &Word| word.known().is_some_and(|name| DISCARDING.contains(&name));
    let sure = sure && rest.first().is_some_and(|word| word.known().is_some());
    let place = match sure {
        true => rest.first().filter(|word| is_command(word)).map(|_| 0),
        false => rest.iter().position(is_command),
    };
    let Some(place) = place else { return false };
    let (options, operands) = split_options(&rest[place + 1..]);
    let has = |letters, long| options.iter().any(|word| has_option(word, letters, long));
    let unknown = options.iter().any(|word| word.unknown >= Some(Unknown::Brace));
    let everything = options.iter().chain(operands).any(is_everything);
    match rest[place].text.as_str() {
        // Whether it needs a force flag is a setting, which may come from anywhere.
        "clean" => has("f", "--force") || unknown || !(has("n", "--dry-run") || has("h", "--help")),
        "reset" => has("", "--hard"),
        "checkout" => has("f", "--force") || everything,
        "switch" => has("f", "--force") || has("", "--discard-changes"),
        "restore" => everything && (has("W", "--worktree") || !has("S", "--staged")),
        "stash" => matches!(rest.get(place + 1).and_then(Word::known), Some("drop" | "clear")),
        _ => false,
    }
}

/// Tells whether a path of git means everything in a directory.
fn is_everything(word: &Word) -> bool {
    let text = word.text.as_str();
    let pattern = word.unknown == Some(Unknown::Glob) && text.is_empty();
    pattern
        || (word.unknown.is_none() && matches!(text, "." | "./" | ":/" | ":/." | "*" | ":(top)"))
}

/// Commands of git that can throw away what is not committed.
const DISCARDING: [&str; 6] = ["checkout", "clean", "reset", "restore", "stash", "switch"];

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
    let destroys = |name: &str| {
        name == "-delete" || ["rm", "grm"].contains(&name) || destroys_always(name) || {
            // As functions of other languages are called.
            let last = name.rsplit('.').next().unwrap_or(name);
            ["rmtree", "rm_rf", "rm_r", "rmSync"].contains(&last)
        }
    };
    let names = |wanted: &str| names_in(text).any(|name| name == wanted);
    names_in(text).any(destroys) || (names("git") && (names("clean") || names("--hard")))
}

/// The parts of a text that could be names of programs.
pub(crate) fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let of_names = |c: char| c.is_ascii_alphanumeric() || "_.-+".contains(c);
    text.split(move |c: char| !of_names(c))
}

/// Tells whether a file name pattern could stand for a program that destroys files.
fn fits_a_destroyer(pattern: &str) -> bool {
    let pattern = base_name(pattern);
    // Which characters brackets stand for is not worth reading: nobody names a program like this.
    pattern.contains(['[', '(', '\\', '"', '\''])
        || ["rm", "grm"].iter().chain(&DESTROYERS).any(|name| matches(pattern, name))
}

/// Programs that are there to destroy what they are given.
fn destroys_always(name: &str) -> bool {
    DESTROYERS.contains(&name) || name.starts_with("mkfs.")
}

const DESTROYERS: [&str; 7] = ["shred", "gshred", "srm", "wipe", "wipefs", "blkdiscard", "mkfs"];
