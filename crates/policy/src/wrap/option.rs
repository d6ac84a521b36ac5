//! Option values that are commands: `ssh -o ProxyCommand=…`, `rg --pre …`, `gcc -wrapper …`.
//!
//! Most options take text, names and files, so a value counts only if something indicates that it is run: the
//! name of the option, as nearly all of these contain `exec`, `command` or the like; or a table of programs,
//! for options whose names do not tell.

use super::base_name;
use crate::shell::Word;

/// Returns the values of options and settings that are run, as far as they are known.
pub(crate) fn values(words: &[Word]) -> Vec<&str> {
    let Some((program, arguments)) = words.split_first() else { return Vec::new() };
    let Some(program) = program.known().map(base_name) else { return Vec::new() };
    let listed: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(names, _)| names.contains(&program))
        .flat_map(|(_, options)| options.iter().copied())
        .collect();
    let mut values = Vec::new();
    let mut before = "";
    for text in arguments.iter().map(|word| word.known().unwrap_or_default()) {
        let is_option = text.len() > 1 && text.starts_with('-');
        if !is_option && (takes(&listed, before) || before.starts_with('-') && says_run(before)) {
            values.push(text);
        }
        for option in &listed {
            let attached = text.strip_prefix(option).filter(|_| !option.starts_with("--"));
            values.extend(attached.filter(|value| !value.is_empty()));
        }
        // `--name=value`, `NAME=value`, `-oName=value`, and for ssh also with a blank.
        let setting =
            text.find(['=', ' ']).filter(|at| text[*at..].starts_with('=') || before == "-o");
        if let Some(at) = setting {
            let (name, value) = (&text[..at], &text[at + 1..]);
            if listed.contains(&name) || names_tool(name) || says_run(name) {
                values.push(value);
            }
        }
        before = text;
    }
    values
}

/// Tells whether a word is one of these options, or a cluster that ends in one.
fn takes(listed: &[&str], word: &str) -> bool {
    let cluster = word.strip_prefix('-').filter(|cluster| !cluster.starts_with('-'));
    let ends = |option: &&str| {
        let letter = option.strip_prefix('-').filter(|letter| letter.len() == 1);
        letter.is_some_and(|letter| cluster.is_some_and(|cluster| cluster.ends_with(letter)))
    };
    listed.contains(&word) || listed.iter().any(ends)
}

/// Returns the value of a variable that programs run, judged by the variable's name.
pub(crate) fn variable_value(setting: &Word) -> Option<&str> {
    let (name, value) = setting.known()?.split_once('=')?;
    names_tool(name).then_some(value)
}

fn names_tool(name: &str) -> bool {
    TOOLS.contains(&name) || TOOL_ENDS.iter().any(|end| name.ends_with(end))
}

/// Returns the program that a value would run as a command.
pub(crate) fn head(value: &str) -> &str {
    let first = value.trim_start().split([' ', '\t', '\n', ',', ';']).next().unwrap_or_default();
    base_name(first.trim_matches(['"', '\'']))
}

/// Tells whether the name of an option or setting indicates that its value is run.
fn says_run(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let mut parts = name.split(['-', '_', '.', ':']);
    PARTS.iter().any(|part| name.contains(part))
        || name.starts_with("on-")
        || parts.any(|part| WHOLE_PARTS.contains(&part))
}

/// What the names of such options contain, anywhere.
const PARTS: [&str; 16] = [
    "askpass",
    "browser",
    "command",
    "compiler",
    "editor",
    "entrypoint",
    "exec",
    "hook",
    "interpreter",
    "invoke",
    "launcher",
    "linker",
    "pager",
    "program",
    "wrapper",
    "preview",
];

/// What they contain between dashes: as parts of words, these are too ambiguous.
const WHOLE_PARTS: [&str; 8] = ["cmd", "prog", "rsh", "runner", "script", "sh", "shell", "ssh"];

/// Variables that name a program which builds run, and suffixes of others.
const TOOLS: [&str; 12] =
    ["AR", "AS", "BROWSER", "CC", "CPP", "CXX", "LD", "MAKE", "RUSTC", "RUSTDOC", "SHELL", "STRIP"];
const TOOL_ENDS: [&str; 8] =
    ["_ASKPASS", "_COMMAND", "_COMPILER", "_LAUNCHER", "_LINKER", "_RSH", "_RUNNER", "_WRAPPER"];

/// Options whose names do not tell, by program.
const PROGRAMS: &[(&[&str], &[&str])] = &[
    (&["rg"], &["--pre", "--hostname-bin"]),
    (&["scp", "sftp"], &["-S", "-D"]),
    (&["nc", "ncat", "netcat"], &["-e", "-c"]),
    (&["man"], &["-P", "-H"]),
    (&["zip"], &["-TT"]),
    (&["tcpdump"], &["-z"]),
    (&["ansible"], &["-a", "--args"]),
    (&["nodemon"], &["-x"]),
    (&["hg"], &["-e"]),
    (&["rsync"], &["-e", "--rsync-path"]),
    (&["vagrant", "colima"], &["-c"]),
    (&["tar", "gtar", "bsdtar"], &["-F", "-I"]),
    (&["gcc", "g++", "clang", "clang++", "cc", "c++"], &["-fuse-ld", "-fplugin"]),
    (&["mail", "mutt"], &["-e"]),
    (&["wget"], &["-e"]),
];
