//! Commands that destroy files irrecoverably.
//!
//! They need approval whatever rules and modes say, because this is the one mistake that cannot be undone.
//! The list is deliberately short: people stop reading a question they get often. Anything that git or an
//! undo can restore is not on it.

use crate::environment::matches;
use crate::inspect::{Found, Inspection};
use crate::shell::{Unknown, Word, excerpt, with_holes};
use crate::wrap::{self, Fed, base_name};

/// Returns the first part that destroys files, as written.
pub(crate) fn find(inspection: &Inspection) -> Option<String> {
    let found = inspection.commands.iter().find(|found| is_destructive(found));
    let onto_device = || inspection.outputs.iter().find(|word| is_device(word));
    let redirected = || onto_device().map(|word| format!("> {}", excerpt(&word.source)));
    found.map(Found::source).or_else(redirected).or_else(|| {
        // It is unknown what a script does that could not be parsed, so mentioning such a program is enough.
        let mut texts = inspection.raw.iter().chain(&inspection.embedded);
        let hidden = || inspection.raw.iter().find(|text| hides_a_destroyer(text));
        let named = texts.find(|text| names_a_destroyer(text));
        named.or_else(hidden).map(|text| excerpt(text))
    })
}

fn is_destructive(found: &Found) -> bool {
    let Some((name, arguments)) = found.words.split_first() else {
        return false;
    };
    let Some(name) = name.known().map(base_name) else {
        // A glob in command position expands to one of the matching files.
        return match name.unknown {
            Some(Unknown::Glob) => fits_a_destroyer(&name.source),
            _ => becomes_a_destroyer(&name.pattern(), arguments, found.fed),
        };
    };
    // Some systems have several builds of a program: `rm.coreutils`, `git.exe`.
    let builds = [".coreutils", ".exe", ".real"];
    let name = builds.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
    match name {
        "rm" | "grm" => found.fed == Fed::Files || removes_too_much(arguments),
        "find" | "gfind" => arguments.iter().any(|word| word.known() == Some("-delete")),
        "git" => discards(arguments),
        "dd" | "gdd" => arguments.iter().any(overwrites_device),
        "cp" | "gcp" => arguments.last().is_some_and(is_device),
        "tee" | "gtee" => arguments.iter().any(is_device),
        "truncate" | "gtruncate" => cuts_files(arguments),
        "rsync" => mirrors(arguments),
        "tar" | "gtar" | "bsdtar" => {
            arguments.iter().any(|word| begins_option(word, "--remove-files", "--rem"))
        }
        "zip" => arguments.iter().any(|word| has_option(word, "m", "--move")),
        "crontab" => arguments.iter().any(|word| has_option(word, "r", "")),
        _ => destroys_always(name),
    }
}

fn removes_too_much(arguments: &[Word]) -> bool {
    let (options, operands) = split_options(arguments);
    // Words that come from elsewhere may be options, but not those that a glob produces.
    if options.iter().any(|word| word.unknown >= Some(Unknown::Brace)) {
        return true;
    }
    if options.iter().any(|word| has_option(word, "f", "--force")) {
        return true;
    }
    // An option that is only partly known, and another name of the same flag.
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

/// Tells whether a word contains an option, as one of these letters in a cluster or as an abbreviation.
fn has_option(word: &Word, letters: &str, long: &str) -> bool {
    match word.text.strip_prefix("--") {
        Some(name) => !name.is_empty() && long.starts_with(word.text.as_str()),
        None => word
            .text
            .strip_prefix('-')
            .is_some_and(|cluster| cluster.contains(|letter| letters.contains(letter))),
    }
}

/// Tells whether removing this recursively affects more than a directory of the project.
fn is_wide(word: &Word) -> bool {
    if word.unknown >= Some(Unknown::Brace) {
        return true;
    }
    // A path with an unknown beginning may expand to an empty string: then `"$x/"` is the root. A glob at
    // the beginning of a path, or after only `.` and `..`, matches everything in a directory.
    let known = word.text.as_str();
    let begins = known.is_empty() || known.chars().all(|c| matches!(c, '.' | '/'));
    if matches!(word.unknown, Some(Unknown::Quoted | Unknown::Glob)) && begins {
        return true;
    }
    // This is where the history is kept.
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
    // `~user` is a home directory.
    if word.unknown == Some(Unknown::Tilde) && !path.contains('/') {
        return true;
    }
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let depth = parts.fold(0usize, |depth, part| match part {
        ".." => depth.saturating_sub(1),
        _ => depth + 1,
    });
    // The root and its direct children; the current directory and its parents.
    depth == 0 || (path.starts_with('/') && depth == 1)
}

/// Tells whether `git [OPTIONS] COMMAND` discards uncommitted work.
fn discards(arguments: &[Word]) -> bool {
    let mut at = 0;
    let mut sure = true;
    while let Some(word) = arguments.get(at) {
        if word.splits() || !word.text.starts_with('-') {
            break;
        }
        let text = word.text.as_str();
        let takes = wrap::GIT_VALUES.contains(&text);
        // After an unknown option, the next word may be its value or the command.
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
    let step = rest.get(place + 1).and_then(Word::known);
    let everything = options.iter().chain(operands).any(is_everything);
    match rest[place].text.as_str() {
        // Whether it needs a force flag is a setting that may come from anywhere.
        "clean" => has("f", "--force") || unknown || !(has("n", "--dry-run") || has("h", "--help")),
        "reset" => has("", "--hard"),
        "checkout" => has("f", "--force") || everything,
        "switch" => has("f", "--force") || has("", "--discard-changes"),
        "restore" => everything && (has("W", "--worktree") || !has("S", "--staged")),
        "stash" => matches!(step, Some("drop" | "clear")),
        "worktree" => step == Some("remove") && has("f", "--force"),
        "submodule" => step == Some("deinit") && has("f", "--force"),
        // Removing single files is its purpose, and `git rm -r` keeps modified files.
        "rm" => {
            let keeps = has("n", "--dry-run") || has("", "--cached");
            has("f", "--force") && !keeps && (has("r", "") || everything)
        }
        "checkout-index" => has("f", "--force") && has("a", "--all"),
        "read-tree" => has("u", "") && has("", "--reset"),
        // These are what could restore commits that no branch has.
        "gc" => ["--prune=now", "--prune=all"].iter().any(|it| has("", it)),
        "prune" => !(has("nh", "--dry-run") || has("", "--expire") || has("", "--help")),
        "reflog" => matches!(step, Some("expire" | "delete")) && !has("n", "--dry-run"),
        _ => false,
    }
}

/// Tells whether a pathspec matches everything in a directory.
fn is_everything(word: &Word) -> bool {
    let text = word.text.as_str();
    let pattern = word.unknown == Some(Unknown::Glob) && text.is_empty();
    pattern
        || (word.unknown.is_none() && matches!(text, "." | "./" | ":/" | ":/." | "*" | ":(top)"))
}

/// Git commands that can discard uncommitted work, or unreachable objects.
const DISCARDING: [&str; 14] = [
    "checkout",
    "checkout-index",
    "clean",
    "gc",
    "prune",
    "read-tree",
    "reflog",
    "reset",
    "restore",
    "rm",
    "stash",
    "submodule",
    "switch",
    "worktree",
];

/// Tells whether `truncate` may shrink a file. A size with a unit is typically used to create files, a plain
/// number to cut them.
fn cuts_files(arguments: &[Word]) -> bool {
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        if has_option(word, "", "--reference") || has_option(word, "r", "") {
            return true;
        }
        let long = begins_option(word, "--size", "--si");
        let cluster = word.text.strip_prefix('-').filter(|cluster| !cluster.starts_with('-'));
        let attached = match cluster {
            Some(cluster) => cluster.split_once('s').map(|(_, size)| size),
            None => long.then(|| word.text.split_once('=').map_or("", |(_, size)| size)),
        };
        let size = match attached {
            None => continue,
            Some("") if word.unknown.is_none() => arguments.next().map(Word::known),
            Some(size) => Some(word.unknown.is_none().then_some(size)),
        };
        return match size {
            None => false,
            Some(None) => true,
            Some(Some(size)) => {
                let number = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                size.starts_with(['-', '<', '/'])
                    || !size.starts_with(['+', '>', '%'])
                        && (number == size || number.bytes().all(|digit| digit == b'0'))
            }
        };
    }
    false
}

/// Tells whether `rsync` deletes extraneous or sent files.
fn mirrors(arguments: &[Word]) -> bool {
    let removes = |word: &Word| {
        word.text == "--del"
            || word.text.starts_with("--delete")
            || word.text.starts_with("--remove-s")
    };
    // The letters before one that takes the rest of the word as its value.
    let tries = |word: &Word| {
        let cluster = word.text.strip_prefix('-').filter(|cluster| !cluster.starts_with('-'));
        let flags =
            cluster.and_then(|cluster| cluster.split(['e', 'B', 'T', 'f', 'M', '@']).next());
        flags.is_some_and(|flags| flags.contains('n')) || word.text == "--dry-run"
    };
    arguments.iter().any(removes) && !arguments.iter().any(tries)
}

/// Tells whether a word is an option that may be abbreviated down to `least`, with or without a value.
fn begins_option(word: &Word, long: &str, least: &str) -> bool {
    let name = word.text.split('=').next().unwrap_or_default();
    long.starts_with(name) && name.starts_with(least)
}

/// Tells whether this is `of=` with a possible device.
fn overwrites_device(word: &Word) -> bool {
    let Some(target) = word.text.strip_prefix("of=") else {
        return word.unknown >= Some(Unknown::Brace) && "of=/dev/".starts_with(&word.text);
    };
    if word.unknown.is_some() {
        return target.starts_with("/dev/") || "/dev/".starts_with(target);
    }
    names_device(target)
}

/// Tells whether a word names a device, or can only become one.
fn is_device(word: &Word) -> bool {
    match word.known() {
        Some(text) => names_device(text),
        None => DISKS.iter().any(|disk| word.text.starts_with(disk)),
    }
}

fn names_device(path: &str) -> bool {
    let kept = |name: &str| HARMLESS_DEVICES.iter().any(|it| name.starts_with(it));
    path.strip_prefix("/dev/").is_some_and(|name| !name.is_empty() && !kept(name))
}

/// Prefixes of devices that store nothing.
const HARMLESS_DEVICES: [&str; 15] = [
    "console", "fd/", "full", "kmsg", "log", "null", "pts/", "random", "shm/", "stderr", "stdin",
    "stdout", "tcp/", "tty", "udp/",
];

/// Prefixes of disk devices.
const DISKS: [&str; 6] = ["/dev/disk", "/dev/mapper", "/dev/md", "/dev/nvme", "/dev/sd", "/dev/vd"];

/// Tells whether a command name, given as a pattern of what it may expand to, could be a destructive program.
fn becomes_a_destroyer(pattern: &str, arguments: &[Word], fed: Fed) -> bool {
    let pattern = base_name(pattern);
    let written = pattern.chars().filter(|c| !matches!(c, '*' | '?')).count();
    // Most names with expansions consist of nothing else: `$CC -c x`. Then only the arguments tell them
    // apart.
    if written == 0 || pattern.contains('[') {
        return removes_by_options(arguments);
    }
    destroyers().any(|name| {
        let called = destroys_always(name) || fed == Fed::Files || removes_too_much(arguments);
        2 * written >= name.len() && matches(pattern, name) && called
    })
}

/// Tells whether the options are exactly those with which `rm` removes everything.
fn removes_by_options(arguments: &[Word]) -> bool {
    let (options, _) = split_options(arguments);
    let options = options.iter().filter(|word| word.text.starts_with('-'));
    let removes = |word: &&Word| word.text[1..].chars().all(|c| "rRfvidI".contains(c));
    let letters: String = options.take_while(removes).map(|word| word.text.as_str()).collect();
    letters.contains('f') && letters.contains(['r', 'R'])
}

/// Tells whether a text that could not be parsed contains a name that may expand to a destructive program:
/// `r${z}m -f`. A partial name is mostly a coincidence (`${minutes}m`), so its arguments must match too.
fn hides_a_destroyer(text: &str) -> bool {
    const HOLE: char = '\u{1}';
    let shown = with_holes(text, HOLE);
    let ends = |c: char| c.is_whitespace() || ";|&()<>=".contains(c);
    let mut before = ["", ""];
    let mut words = shown.split(ends).filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        let name = base_name(word);
        let plain = name.chars().all(|c| c == HOLE || c.is_ascii_alphanumeric());
        if name.contains(HOLE) && plain && name.len() <= NAME_BYTES_MAX {
            let options = words.peek().filter(|next| next.starts_with('-'));
            let options: Vec<Word> = options.map(|next| Word::literal(*next)).into_iter().collect();
            let fed =
                before.iter().any(|it| ["xargs", "parallel", "-exec", "-execdir"].contains(it));
            let fed = if fed { Fed::Files } else { Fed::No };
            let called = !options.is_empty() || fed == Fed::Files;
            if called && becomes_a_destroyer(&name.replace(HOLE, "*"), &options, fed) {
                return true;
            }
        }
        before = [before[1], word];
    }
    false
}

fn names_a_destroyer(text: &str) -> bool {
    let destroys = |name: &str| {
        name == "-delete" || ["rm", "grm"].contains(&name) || destroys_always(name) || {
            // As in function calls of other languages.
            let last = name.rsplit('.').next().unwrap_or(name);
            ["rmtree", "rm_rf", "rm_r", "rmSync"].contains(&last)
        }
    };
    let names = |wanted: &str| names_in(text).any(|name| name == wanted);
    let pairs =
        [("git", "clean"), ("git", "--hard"), ("rsync", "--delete"), ("tar", "--remove-files")];
    names_in(text).any(destroys) || pairs.iter().any(|(one, other)| names(one) && names(other))
}

/// Returns the parts of a text that could be names of programs.
pub(crate) fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let of_names = |c: char| c.is_ascii_alphanumeric() || "_.-+".contains(c);
    text.split(move |c: char| !of_names(c))
}

/// Tells whether a glob could match a destructive program.
fn fits_a_destroyer(pattern: &str) -> bool {
    let pattern = base_name(pattern);
    // Parsing what brackets match is not worth it: no ordinary command names a program like this.
    pattern.contains(['[', '(', '\\', '"', '\'']) || destroyers().any(|name| matches(pattern, name))
}

fn destroyers() -> impl Iterator<Item = &'static str> {
    ["rm", "grm"].into_iter().chain(DESTROYERS)
}

/// Tells whether a program is destructive with any arguments.
fn destroys_always(name: &str) -> bool {
    DESTROYERS.contains(&name) || name.starts_with("mkfs.")
}

/// Longer than the name of any destructive program, including what may be around it.
const NAME_BYTES_MAX: usize = 64;

const DESTROYERS: [&str; 10] = [
    "blkdiscard",
    "gshred",
    "mke2fs",
    "mkfs",
    "mkswap",
    "rimraf",
    "shred",
    "srm",
    "wipe",
    "wipefs",
];
