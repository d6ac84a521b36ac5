//! Values of options that may be commands: `ssh -o ProxyCommand=…`, `rg --pre …`, `gcc -wrapper …`.
//!
//! There is no list of all options that run what they are given. So every value counts, but for programs whose options
//! are known to take text.

use super::base_name;
use crate::shell::Word;

/// Returns the values that a command gives to options and settings, as far as they are known.
pub(crate) fn values(words: &[Word]) -> Vec<&str> {
    let Some((name, arguments)) = words.split_first() else { return Vec::new() };
    let Some(name) = name.known().map(base_name) else { return Vec::new() };
    if TEXT_TAKERS.contains(&name) {
        return Vec::new();
    }
    let mut values = Vec::new();
    let mut after_option = false;
    for text in arguments.iter().map(|word| word.known().unwrap_or_default()) {
        let is_option = text.len() > 1 && text.starts_with('-');
        if after_option && !is_option {
            values.push(text);
        }
        // `-Svalue`, `--name=value`, `NAME=value`, `-oName=value`.
        if is_option && !text.starts_with("--") {
            values.extend(text.get(2..));
        }
        values.extend(text.match_indices('=').map(|(at, _)| &text[at + 1..]));
        after_option = is_option;
    }
    values
}

/// Returns the program that a value would run, were it a command.
pub(crate) fn head(value: &str) -> &str {
    let first = value.trim_start().split([' ', '\t', '\n', ',', ';']).next().unwrap_or_default();
    base_name(first.trim_matches(['"', '\'']))
}

/// Programs whose options take text, names and numbers, and those whose options are looked into elsewhere.
const TEXT_TAKERS: [&str; 39] = [
    "[",
    "apt",
    "apt-get",
    "brew",
    "cargo",
    "cat",
    "command",
    "cp",
    "diff",
    "dnf",
    "dpkg",
    "echo",
    "egrep",
    "fgrep",
    "git",
    "grep",
    "hash",
    "head",
    "journalctl",
    "jq",
    "killall",
    "ls",
    "mv",
    "npm",
    "pacman",
    "pgrep",
    "pidof",
    "pip",
    "pip3",
    "pkill",
    "printf",
    "ps",
    "stat",
    "systemctl",
    "tail",
    "test",
    "type",
    "wc",
    "which",
];
