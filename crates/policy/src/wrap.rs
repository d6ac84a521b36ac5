//! Commands that run other commands: what is inside `bash -c`, `sudo`, `xargs`, `find -exec`, `ssh host` and
//! others.
//!
//! A wrapper is recognized by its base name. An option that is not in its table makes the inner command
//! unknown, because the words that follow could belong to the option.

mod builtin;
mod carry;
mod copy;
mod embedded;
mod git;
mod option;
mod python;
mod runner;
mod table;

use crate::shell::Word;
pub(crate) use copy::{copies, copies_what_was_found, goes_to_programs, is_program, looks_up};
pub(crate) use embedded::{
    Reads, code as embedded_code, interprets, is_interpreter, may_start_programs, reads, written,
};
pub(crate) use git::{GIT_FLAGS, GIT_VALUES};
pub(crate) use option::{head as head_of, values as option_values, variable_value};
use table::{Kind, Wrapper};

/// Something that a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Inner {
    /// These words; `at` is the position of the first one among the wrapper's words.
    Words {
        at: usize,
        words: Vec<Word>,
        fed: Fed,
        /// Whether the wrapper changes their environment: variables, or the directory.
        sets: bool,
    },
    /// This script, which ends at this position among the wrapper's words.
    Script { at: usize, text: String },
    /// Something that cannot be determined from the words.
    Unclear,
}

/// Whether a command gets further arguments from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    No,
    /// It gets file names that are not known in advance.
    Files,
}

/// Returns what a command runs.
pub(crate) fn inner(words: &[Word]) -> Vec<Inner> {
    let Some(name) = words.first().and_then(Word::known).map(base_name) else {
        return Vec::new();
    };
    if table::SHELLS.contains(&name) {
        return shell(words);
    }
    if table::OTHER_SHELLS.contains(&name) {
        let tells =
            words[1..].iter().all(|word| matches!(word.known(), Some("--version" | "--help")));
        return if tells && words.len() > 1 { Vec::new() } else { vec![Inner::Unclear] };
    }
    if table::OPAQUE.contains(&name) {
        let tells = |word: &Word| matches!(word.known(), Some("--version" | "--help"));
        return if words[1..].iter().all(tells) { Vec::new() } else { vec![Inner::Unclear] };
    }
    // What these paths refer to depends on the process: `/proc/self/exe` is the shell.
    if words[0].text.starts_with("/proc/") || words[0].text.starts_with("/dev/fd/") {
        return vec![Inner::Unclear];
    }
    // Git commands also exist as separate programs.
    if let Some(command) = name.strip_prefix("git-") {
        let mut inner = vec![Word::literal("git"), Word::literal(command)];
        inner.extend_from_slice(&words[1..]);
        return vec![Inner::Words { at: 0, words: inner, fed: Fed::No, sets: false }];
    }
    // The dynamic loader can be told which program to load.
    if table::LOADERS.iter().any(|loader| name.starts_with(loader)) {
        return wrapped(&table::LOADER, words);
    }
    match name {
        "find" | "gfind" => return find(words),
        "fd" | "fdfind" => return fd(words),
        // `jobs -x WORDS` runs the words.
        "jobs" if words.get(1).and_then(Word::known) == Some("-x") => {
            return shifted(&table::JOBS, words);
        }
        "git" => return git::inner(words),
        "socat" => return carry::socat(words),
        // It installs its input as jobs, unless it shows, edits or removes them.
        "crontab" => {
            let looks = |word: &Word| ["-l", "-e", "-r", "-h"].contains(&word.text.as_str());
            return if words.iter().any(looks) { Vec::new() } else { vec![Inner::Unclear] };
        }
        "batch" => return vec![Inner::Unclear],
        "tmux" | "screen" => return multiplexer(name, words),
        "eval" => return script_of(1, &words[1..]),
        "trap" => return trap(words),
        "alias" => return alias(words),
        "su" | "runuser" | "script" => return switch_user(words),
        "source" | "." => return sourced(words),
        "setarch" => return set_architecture(words),
        "split" | "gsplit" | "sort" | "gsort" | "tar" | "gtar" | "bsdtar" | "rsync"
        | "nix-shell" => {
            return named_by_options(words);
        }
        "perf" => return perf(words),
        "concurrently" => return runner::concurrently(words),
        "dotenv" | "dotenvx" => return runner::dotenv(words),
        "gh" => return runner::gh(words),
        "hub" => return runner::git(words, 1),
        "jj" if words.get(1).and_then(Word::known) == Some("git") => return runner::git(words, 2),
        "nix" => return runner::nix(words),
        _ if builtin::evaluates(name, &words[1..]) => return vec![Inner::Unclear],
        _ => {}
    }
    if let Some(carried) = carry::inner(name, words) {
        return carried;
    }
    if let Some(runner) = table::RUNNERS.iter().find(|runner| runner.names.contains(&name)) {
        return match words.get(1).map(Word::known) {
            Some(Some(text)) if runner.commands.contains(&text) => shifted(&runner.wrapper, words),
            // What precedes the command may be an option, or its value.
            Some(Some(text)) if text.starts_with('-') && names_one(runner.commands, words) => {
                vec![Inner::Unclear]
            }
            Some(None) => vec![Inner::Unclear],
            _ => Vec::new(),
        };
    }
    match table::WRAPPERS.iter().find(|wrapper| wrapper.names.contains(&name)) {
        Some(wrapper) => wrapped(wrapper, words),
        None => runner::unknown(name, words),
    }
}

/// Tells whether a command runs another one elsewhere, after words of unknown number: `ssh $host ls`.
pub(crate) fn carries_after_doubt(words: &[Word]) -> bool {
    let name = words.first().and_then(Word::known).map(base_name).unwrap_or_default();
    let end = carry::place(name, words);
    end.is_some_and(|end| words[..end.min(words.len())].iter().any(Word::splits))
}

/// Returns how many words a command uses itself, before those that it runs.
pub(crate) fn own_words(words: &[Word]) -> usize {
    let name = words.first().and_then(Word::known).map(base_name).unwrap_or_default();
    let carried = carry::place(name, words);
    let run = || {
        inner(words).into_iter().find_map(|inner| match inner {
            Inner::Words { at, .. } => Some(at),
            Inner::Script { .. } | Inner::Unclear => None,
        })
    };
    carried.or_else(run).unwrap_or(words.len()).min(words.len())
}

fn names_one(names: &[&str], words: &[Word]) -> bool {
    words.iter().any(|word| word.known().is_none_or(|text| names.contains(&text)))
}

/// Tells whether the purpose of a command is to run another one.
pub(crate) fn is_wrapper(words: &[Word]) -> bool {
    let name = words.first().map(|word| base_name(&word.text));
    let listed = |name| table::WRAPPERS.iter().any(|wrapper| wrapper.names.contains(&name));
    let opaque = |name: &str| table::OPAQUE.contains(&name);
    name.is_some_and(|name| matches!(name, "setarch" | "perf") || listed(name) || opaque(name))
}

/// Tells whether a program only shows help about one of its commands: `git push --help`.
pub(crate) fn asks_for_help(words: &[Word]) -> bool {
    let [program, command, help] = words else { return false };
    let plain = |word: &Word| word.known().is_some_and(|text| !text.starts_with('-'));
    let known = program.known().is_some_and(|name| table::HELPS.contains(&name));
    known && plain(command) && help.known() == Some("--help")
}

/// Tells whether a program is a shell of any kind.
pub(crate) fn is_shell(name: &str) -> bool {
    table::SHELLS.contains(&name) || table::OTHER_SHELLS.contains(&name)
}

/// Tells whether a program passes its input to a shell, here or elsewhere.
pub(crate) fn leads_to_a_shell(name: &str) -> bool {
    let runs = ["docker", "kubectl", "nsenter", "podman", "screen", "ssh", "su", "sudo", "tmux"];
    runs.contains(&name) || table::OPAQUE.contains(&name)
}

/// Strips the directories from a program name.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Finds the script in `SHELL [OPTIONS] -c SCRIPT`.
pub(crate) fn script_place(words: &[Word]) -> ScriptPlace {
    let mut command = false;
    let mut arguments = 0;
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let Some(text) = word.known() else {
            return ScriptPlace::Unclear;
        };
        if text == "--" || text == "-" {
            at += 1;
            break;
        }
        if table::SHELL_LONG.contains(&text) {
            at += 2;
            continue;
        }
        if matches!(text, "--version" | "--help") {
            return ScriptPlace::None;
        }
        if text.starts_with("--") {
            at += 1;
            continue;
        }
        let Some(cluster) = text.strip_prefix(['-', '+']).filter(|cluster| !cluster.is_empty())
        else {
            break;
        };
        command |= cluster.contains('c') && text.starts_with('-');
        // Each of these takes a word of its own after the cluster.
        arguments += cluster.matches(['o', 'O']).count();
        at += 1 + std::mem::take(&mut arguments);
        if cluster.contains('s') && !command {
            return ScriptPlace::Unclear;
        }
    }
    match (command, words.get(at)) {
        (true, Some(_)) => ScriptPlace::At(at),
        // The content of a file, or of stdin, is not visible here.
        (true, None) | (false, _) => ScriptPlace::Unclear,
    }
}

/// Where the script of a shell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptPlace {
    At(usize),
    None,
    /// It is in a file, or cannot be determined.
    Unclear,
}

/// Tells whether a shell only checks the syntax of a file: `bash -n FILE`. Without a file it may be
/// interactive, and then it runs its input.
fn checks_syntax(words: &[Word]) -> bool {
    let options = words.iter().skip(1).map_while(Word::known);
    let mut options = options.take_while(|text| text.starts_with(['-', '+']));
    let count = options.clone().count();
    let checks = options.clone().any(|text| text.contains('n'));
    let plain = options.all(|text| matches!(text, "-n" | "-nv" | "-vn" | "-v" | "-x" | "-nx"));
    checks && plain && words.len() > 1 + count
}

fn shell(words: &[Word]) -> Vec<Inner> {
    if checks_syntax(words) {
        return Vec::new();
    }
    let mut found = match script_place(words) {
        ScriptPlace::At(at) => script_of(at, &words[at..=at]),
        ScriptPlace::None => return Vec::new(),
        ScriptPlace::Unclear => vec![Inner::Unclear],
    };
    // A file that is read before the script.
    let reads =
        |word: &Word| word.text.starts_with("--rcfile") || word.text.starts_with("--init-file");
    if words.iter().any(reads) && !found.contains(&Inner::Unclear) {
        found.push(Inner::Unclear);
    }
    found
}

/// Handles `source FILE`: the file is run as if it were here, but its content is not visible.
fn sourced(words: &[Word]) -> Vec<Inner> {
    if words.len() > 1 { vec![Inner::Unclear] } else { Vec::new() }
}

/// Handles `tmux` and `screen`, which run their arguments in a window, or type them there.
fn multiplexer(name: &str, words: &[Word]) -> Vec<Inner> {
    let looks =
        |word: &Word| word.known().is_some_and(|text| table::MULTIPLEXER_LOOKS.contains(&text));
    if words.get(1).is_none_or(looks) {
        return Vec::new();
    }
    let Some(at) = carry::place(name, words) else { return vec![Inner::Unclear] };
    let (own, rest) = words.split_at(at.min(words.len()));
    // A settings file, commands for an existing session, or another command after this one.
    let before = match name {
        "screen" => own,
        _ => &own[..carry::begins(name, words).unwrap_or_default()],
    };
    let doubts = |word: &Word| table::MULTIPLEXER_DOUBTS.contains(&word.text.as_str());
    let ends = |word: &Word| word.text.ends_with(';');
    if before.iter().any(doubts) || own.iter().any(Word::splits) || words.iter().any(ends) {
        return vec![Inner::Unclear];
    }
    match rest {
        [] => Vec::new(),
        // A single word is read by a shell, several are run directly.
        [_] if name == "tmux" => script_of(at, rest),
        [program, ..] if program.unknown.is_some() => vec![Inner::Unclear],
        _ => vec![Inner::Words { at, words: rest.to_vec(), fed: Fed::No, sets: false }],
    }
}

/// Handles programs whose options name a command that a shell runs.
fn named_by_options(words: &[Word]) -> Vec<Inner> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate().skip(1) {
        let Some(text) = word.known() else { continue };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let short = table::SHORT_OPTION_SCRIPTS.iter().any(|(programs, option)| {
            programs.contains(&base_name(&words[0].text)) && text.starts_with(option)
        });
        if short {
            match text.get(2..).filter(|attached| !attached.is_empty()) {
                Some(attached) => found.push(Inner::Script { at, text: attached.to_owned() }),
                None => {
                    found.extend(script_of(at + 1, words.get(at + 1..=at + 1).unwrap_or_default()));
                }
            }
            continue;
        }
        if !table::OPTION_SCRIPTS.contains(&name) {
            continue;
        }
        match value {
            Some(value) => {
                // An action of `tar` is more than its command.
                let text = value.strip_prefix("exec=").unwrap_or(value).to_owned();
                found.push(Inner::Script { at, text });
            }
            None => found.extend(script_of(at + 1, words.get(at + 1..=at + 1).unwrap_or_default())),
        }
    }
    found
}

/// Handles `setarch [ARCHITECTURE] [OPTIONS] WORDS`.
fn set_architecture(words: &[Word]) -> Vec<Inner> {
    match words.get(1).map(Word::known) {
        Some(Some(text)) if !text.starts_with('-') => shifted(&table::ARCHITECTURE, words),
        Some(None) => vec![Inner::Unclear],
        _ => wrapped(&table::ARCHITECTURE, words),
    }
}

/// Handles `perf stat WORDS` and others that run what they measure.
fn perf(words: &[Word]) -> Vec<Inner> {
    match words.get(1).map(Word::known) {
        None => Vec::new(),
        Some(Some("stat" | "record" | "trace")) => shifted(&table::PERF, words),
        Some(Some(text)) if table::PERF_READS.contains(&text) => Vec::new(),
        Some(_) => vec![Inner::Unclear],
    }
}

/// Handles a wrapper whose options begin one word later.
fn shifted(wrapper: &Wrapper, words: &[Word]) -> Vec<Inner> {
    let mut found = wrapped(wrapper, words.get(1..).unwrap_or_default());
    for inner in &mut found {
        match inner {
            Inner::Words { at, .. } | Inner::Script { at, .. } => *at += 1,
            Inner::Unclear => {}
        }
    }
    found
}

/// Returns a script given as words, which are joined with blanks.
fn script_of(at: usize, words: &[Word]) -> Vec<Inner> {
    let known: Option<Vec<&str>> = words.iter().map(Word::known).collect();
    match known {
        Some(known) if known.is_empty() => Vec::new(),
        Some(known) => {
            vec![Inner::Script { at: at + known.len() - 1, text: known.join(" ") }]
        }
        None => vec![Inner::Unclear],
    }
}

fn wrapped(wrapper: &Wrapper, words: &[Word]) -> Vec<Inner> {
    let Some(options) = Options::read(wrapper, words) else {
        return vec![Inner::Unclear];
    };
    let mut at = options.end;
    if let Some(text) = options.split {
        // `env -S` splits a text into words, by its own rules, and appends what follows.
        let plain = !text.contains(['\\', '$', '#']);
        let Some(split) = shlex::split(&text).filter(|_| plain) else {
            return vec![Inner::Unclear];
        };
        let mut inner: Vec<Word> = vec![words[0].clone()];
        inner.extend(split.into_iter().map(Word::literal));
        inner.extend_from_slice(&words[at..]);
        return vec![Inner::Words { at: at - 1, words: inner, fed: Fed::No, sets: true }];
    }
    if options.ends {
        return Vec::new();
    }
    at += wrapper.operands;
    // The `--` may also follow the operands.
    if wrapper.operands > 0 && words.get(at).and_then(Word::known) == Some("--") {
        at += 1;
    }
    let before = words.get(options.end..at).unwrap_or_default();
    if before.iter().any(Word::splits) {
        return vec![Inner::Unclear];
    }
    let mut sets = wrapper.changes && at > 1;
    if wrapper.assignments {
        let after = words.get(at..).unwrap_or_default();
        let set = after.iter().take_while(|word| is_assignment(word)).count();
        if after[..set].iter().any(sets_a_script) {
            return vec![Inner::Unclear];
        }
        sets |= set > 0;
        at += set;
    }
    let rest = words.get(at..).unwrap_or_default();
    let Some(name) = rest.first() else {
        return if wrapper.alone { vec![Inner::Unclear] } else { Vec::new() };
    };
    if name.unknown.is_some() {
        return vec![Inner::Unclear];
    }
    let run = |words: Vec<Word>, fed| vec![Inner::Words { at, words, fed, sets }];
    match wrapper.kind {
        // Reserved words may follow, which only a script parser understands.
        Kind::Keyword if name.is_bare(&KEYWORDS) => vec![Inner::Unclear],
        Kind::Lock if matches!(name.known(), Some("-c" | "--command")) => {
            script_of(at + 1, rest.get(1..2).unwrap_or_default())
        }
        Kind::Program | Kind::Keyword | Kind::Lock => run(rest.to_vec(), Fed::No),
        Kind::Script => script_of(at, rest),
        Kind::Fed => {
            let mut inner: Vec<Word> =
                rest.iter().map(|word| replaced(word, options.replace.as_deref())).collect();
            inner.push(Word::any("…"));
            run(inner, Fed::Files)
        }
        Kind::Parallel => {
            let end =
                rest.iter().position(|word| word.known().is_some_and(|t| t.starts_with(":::")));
            let own = &rest[..end.unwrap_or(rest.len())];
            // The words are joined and passed to a shell.
            let special = |word: &Word| word.text.contains(PARALLEL_SPECIAL);
            let one_word = own.len() == 1 && own.iter().any(|word| word.text.contains(' '));
            if own.is_empty() || one_word || own.iter().any(special) {
                return vec![Inner::Unclear];
            }
            let mut inner: Vec<Word> = own.iter().map(|word| replaced(word, Some("{"))).collect();
            inner.push(Word::any("…"));
            run(inner, Fed::Files)
        }
    }
}

/// Words that begin more than a simple command.
const KEYWORDS: [&str; 11] =
    ["{", "(", "!", "if", "while", "until", "for", "case", "select", "[[", "function"];

/// Characters with a meaning for the shell that `parallel` starts.
const PARALLEL_SPECIAL: [char; 9] = [';', '|', '&', '$', '`', '(', '<', '>', '\n'];

/// Tells whether an assignment sets a variable that shells run.
fn sets_a_script(word: &Word) -> bool {
    word.text.split_once('=').is_some_and(|(name, value)| is_run(name, value))
}

/// Tells whether shells, or the programs it is set for, run the value of a variable.
pub(crate) fn is_run(name: &str, value: &str) -> bool {
    // Common values that keep programs from waiting for input.
    let plain = ["", "0", "1", ":", "/dev/null", "cat", "true"];
    let harmless = plain.contains(&value.trim_matches(['"', '\'']));
    let program = || {
        table::RUN_BY_PROGRAMS.iter().any(|begin| name.starts_with(begin))
            || table::RUN_BY_PROGRAMS_ENDS.iter().any(|end| name.ends_with(end))
    };
    table::RUN_BY_SHELLS.contains(&name) || (!harmless && program())
}

/// Makes a word unknown if a program substitutes something in it.
fn replaced(word: &Word, mark: Option<&str>) -> Word {
    match mark {
        Some(mark) if word.text.contains(mark) => Word::any(word.source.clone()),
        _ => word.clone(),
    }
}

fn is_assignment(word: &Word) -> bool {
    let Some((name, _)) = word.text.split_once('=') else {
        return false;
    };
    !word.splits() && !name.is_empty() && !name.contains('/')
}

/// The options of a wrapper, parsed by its table.
#[derive(Default)]
struct Options {
    end: usize,
    /// Set if nothing is run with these options.
    ends: bool,
    /// The argument of `env -S`.
    split: Option<String>,
    /// What `xargs -I` replaces.
    replace: Option<String>,
}

impl Options {
    /// Parses the options; `None` if one is unknown, or could be an expansion.
    fn read(wrapper: &Wrapper, words: &[Word]) -> Option<Self> {
        let mut options = Self { end: 1, ..Self::default() };
        while let Some(word) = words.get(options.end) {
            if word.unknown.is_some() {
                if options.ends {
                    return Some(options);
                }
                // A word that may begin with a dash may be an option.
                return (!word.splits() && !word.text.is_empty() && !word.text.starts_with('-'))
                    .then_some(options);
            }
            let text = word.text.as_str();
            if text == "--" {
                options.end += 1;
                return Some(options);
            }
            if wrapper.assignments && is_assignment(word) && !text.starts_with('-') {
                return Some(options);
            }
            let Some(rest) = text.strip_prefix('-') else {
                return Some(options);
            };
            options.end += 1;
            if rest.is_empty() {
                continue;
            }
            if let Some(long) = rest.strip_prefix('-') {
                options.long(wrapper, long, words)?;
            } else {
                options.short(wrapper, rest, words)?;
            }
            if options.split.is_some() {
                return Some(options);
            }
        }
        Some(options)
    }

    fn long(&mut self, wrapper: &Wrapper, option: &str, words: &[Word]) -> Option<()> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (option, None),
        };
        if let Some(short) = wrapper.long_value.iter().find(|(long, _)| *long == name) {
            let value = match value {
                Some(value) => value,
                None => self.value(words)?,
            };
            self.take(short.1, value);
            return Some(());
        }
        if name == "replace" {
            self.replace = Some(value.unwrap_or_else(|| "{}".to_owned()));
        }
        self.ends |= wrapper.long_ends.contains(&name);
        (wrapper.long_flags.contains(&name) || wrapper.long_ends.contains(&name)).then_some(())
    }

    fn short(&mut self, wrapper: &Wrapper, cluster: &str, words: &[Word]) -> Option<()> {
        if wrapper.number && cluster.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(());
        }
        for (at, letter) in cluster.char_indices() {
            let rest = &cluster[at + letter.len_utf8()..];
            if wrapper.values.contains(letter) {
                let value = if rest.is_empty() { self.value(words)? } else { rest.to_owned() };
                self.take(letter, value);
                return Some(());
            }
            // Its value, if it has one, is attached.
            if wrapper.attached.contains(letter) {
                if letter == 'i' {
                    self.replace = Some(if rest.is_empty() { "{}" } else { rest }.to_owned());
                }
                return Some(());
            }
            if wrapper.ends.contains(letter) {
                self.ends = true;
            } else if !wrapper.flags.contains(letter) {
                return None;
            }
        }
        Some(())
    }

    fn value(&mut self, words: &[Word]) -> Option<String> {
        let word = words.get(self.end).filter(|word| !word.splits() || is_number(word))?;
        self.end += 1;
        Some(word.text.clone())
    }

    fn take(&mut self, letter: char, value: String) {
        match letter {
            'S' => self.split = Some(value),
            'I' => self.replace = Some(value),
            _ => {}
        }
    }
}

/// Tells whether a word expands to process ids: `$(pgrep NAME)`.
fn is_number(word: &Word) -> bool {
    let inside = word.source.strip_prefix("$(").and_then(|inside| inside.strip_suffix(')'));
    let Some(inside) = inside else { return false };
    let mut parts = inside.split(' ');
    let asks = matches!(parts.next(), Some("pgrep" | "pidof"));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    // Other options print more than numbers.
    let fits =
        |part: &str| !part.starts_with('-') || matches!(part, "-f" | "-n" | "-o" | "-s" | "-x");
    asks && parts.all(|part| part.chars().all(plain) && fits(part))
}

/// Handles `find … -exec WORDS ;`, any number of times.
fn find(words: &[Word]) -> Vec<Inner> {
    let mut found = Vec::new();
    let mut at = 1;
    while at < words.len() {
        let runs = words[at].known().is_some_and(|text| table::FIND_RUNS.contains(&text));
        // An expansion could contain an action.
        if words[at].unknown >= Some(crate::shell::Unknown::Brace) {
            found.push(Inner::Unclear);
        }
        at += 1;
        if !runs {
            continue;
        }
        let length = words[at..].iter().position(|word| matches!(word.known(), Some(";" | "+")));
        let own = &words[at..at + length.unwrap_or(words.len() - at)];
        if own.first().and_then(Word::known).is_none() {
            found.push(Inner::Unclear);
        } else {
            let words = own.iter().map(|word| replaced(word, Some("{}"))).collect();
            found.push(Inner::Words { at, words, fed: Fed::Files, sets: false });
        }
        at += own.len() + 1;
    }
    found.dedup_by(|one, other| *one == Inner::Unclear && *other == Inner::Unclear);
    found
}

/// Handles `fd [OPTIONS] -x WORDS [;]`.
fn fd(words: &[Word]) -> Vec<Inner> {
    let option = |word: &Word| word.text.starts_with('-');
    let Some(at) = words.iter().skip(1).position(|word| option(word) && runs_by_fd(word)) else {
        return Vec::new();
    };
    let (at, own) = (at + 2, words.get(at + 2..).unwrap_or_default());
    let whole = matches!(words[at - 1].known(), Some("-x" | "-X" | "--exec" | "--exec-batch"));
    if !whole || own.first().and_then(Word::known).is_none() {
        return vec![Inner::Unclear];
    }
    let end = own.iter().position(|word| word.known() == Some(";")).unwrap_or(own.len());
    let mut inner: Vec<Word> = own[..end].iter().map(|word| replaced(word, Some("{"))).collect();
    inner.push(Word::any("…"));
    vec![Inner::Words { at, words: inner, fed: Fed::Files, sets: false }]
}

/// Tells whether an option of `fd` names a command, alone, in a cluster or with the words attached.
fn runs_by_fd(word: &Word) -> bool {
    match word.text.strip_prefix("--") {
        Some(long) => long.starts_with("exec"),
        None => word.unknown.is_some() || word.text.contains(['x', 'X']),
    }
}

/// Handles `trap SCRIPT SIGNAL…`.
fn trap(words: &[Word]) -> Vec<Inner> {
    let at = 1 + usize::from(words.get(1).and_then(Word::known) == Some("--"));
    match words.get(at) {
        None => Vec::new(),
        Some(word) if matches!(word.known(), Some("-p" | "-l" | "-" | "")) => Vec::new(),
        // A single operand is a signal to reset.
        Some(_) if words.len() == at + 1 => Vec::new(),
        Some(_) => script_of(at, &words[at..=at]),
    }
}

/// Handles `alias NAME=SCRIPT…`.
fn alias(words: &[Word]) -> Vec<Inner> {
    let scripts = words.iter().enumerate().skip(1).filter_map(|(at, word)| {
        if word.unknown.is_some() {
            return Some(Inner::Unclear);
        }
        let (_, text) = word.text.split_once('=')?;
        Some(Inner::Script { at, text: text.to_owned() })
    });
    let mut scripts: Vec<_> = scripts.collect();
    // Words written after the alias later become its arguments.
    let stays = |inner: &Inner| matches!(inner, Inner::Script { text, .. } if only_looks(text));
    if !scripts.iter().all(stays) {
        scripts.push(Inner::Unclear);
    }
    scripts
}

/// Tells whether a text begins a command that runs nothing, whatever follows.
fn only_looks(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || " -_=,.".contains(c);
    let name = text.split(' ').next().unwrap_or_default();
    // After a trailing blank, the next word may be an alias, too.
    let ends = !text.ends_with(' ');
    text.chars().all(plain) && ends && table::LOOKS_ONLY.contains(&name)
}

/// Handles `su [OPTIONS] [USER] -c SCRIPT`, in any order.
fn switch_user(words: &[Word]) -> Vec<Inner> {
    for (at, word) in words.iter().enumerate().skip(1) {
        let Some(text) = word.known() else {
            return vec![Inner::Unclear];
        };
        if matches!(text, "-c" | "--command" | "--session-command") {
            return script_of(at + 1, words.get(at + 1..=at + 1).unwrap_or_default());
        }
        if let Some(script) = text.strip_prefix("--command=") {
            return vec![Inner::Script { at, text: script.to_owned() }];
        }
        let cluster = text.strip_prefix('-').filter(|cluster| !cluster.starts_with('-'));
        if cluster.is_some_and(|cluster| cluster.contains('c')) || text == "--" {
            return vec![Inner::Unclear];
        }
    }
    // A shell of another user, which reads its commands from elsewhere.
    vec![Inner::Unclear]
}
