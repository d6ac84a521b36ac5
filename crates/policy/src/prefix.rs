//! Chooses the command prefix that a person may allow from now on.

use crate::inspect::{Found, Inspection};
use crate::lift;
use crate::shell::Word;
use crate::wrap::{self, Inner, base_name};

/// Chooses the prefix to offer with an approval request: what the model proposes if it matches and is
/// specific enough, otherwise the words of the first command of a plain script, otherwise the whole command.
pub(crate) fn offer(
    inspection: &Inspection,
    argv: &[String],
    proposed: Option<&[String]>,
) -> Vec<String> {
    let plain = plain_commands(inspection);
    if let (Some([only]), Some(proposed)) = (plain.as_deref(), proposed)
        && only.starts_with(proposed)
        && says_enough(proposed)
        // The rule must be able to take the command out of the sandbox.
        && (only.len() == proposed.len() || lift::takes_any_words(&proposed[0]))
    {
        return proposed.to_vec();
    }
    match plain {
        Some(mut commands) if says_enough(&commands[0]) => commands.swap_remove(0),
        _ => argv.to_vec(),
    }
}

/// Returns the commands of a script that contains only known words; never an empty list.
fn plain_commands(inspection: &Inspection) -> Option<Vec<Vec<String>>> {
    if !inspection.is_clear() || !inspection.features.is_empty() {
        return None;
    }
    let own = |found: &&Found| match found.origin {
        None => !found.carrier,
        Some(origin) => inspection.commands[0].carrier && origin.parent == 0,
    };
    let words = |found: &Found| {
        found.words.iter().map(|word| word.known().map(str::to_owned)).collect::<Option<Vec<_>>>()
    };
    let commands: Option<Vec<_>> = inspection.commands.iter().filter(own).map(words).collect();
    commands.filter(|commands| !commands.is_empty())
}

/// Tells whether a prefix is specific, instead of covering whatever a program is told.
fn says_enough(prefix: &[String]) -> bool {
    let mut words: Vec<Word> = prefix.iter().map(Word::literal).collect();
    for _ in 0..WRAPPERS_MAX {
        let Some((name, arguments)) = words.split_first() else {
            return false;
        };
        let broad = is_broad(&name.text);
        if broad && arguments.iter().all(|word| word.text.starts_with('-')) {
            return false;
        }
        match wrap::inner(&words).into_iter().next() {
            // A wrapper alone would cover whatever follows it.
            None => return !wrap::is_wrapper(&words),
            Some(Inner::Script { .. }) => return true,
            Some(Inner::Unclear) => return false,
            Some(Inner::Words { words: inner, .. }) => {
                words = inner.into_iter().filter(|word| word.unknown.is_none()).collect();
            }
        }
    }
    false
}

/// Tells whether a program does whatever its arguments say, or may be a different one next time.
fn is_broad(name: &str) -> bool {
    let base = base_name(name);
    // `python3.11` is a python.
    let unversioned = base.trim_end_matches(|c: char| c.is_ascii_digit() || "._-".contains(c));
    let unversioned = if unversioned.is_empty() { base } else { unversioned };
    // The model can write in the workspace.
    let relative = name.contains('/') && !name.starts_with('/');
    relative || BROAD.contains(&base) || BROAD.contains(&unversioned)
}

const WRAPPERS_MAX: usize = 16;

/// Programs that do whatever their arguments say.
const BROAD: &[&str] = &[
    ".",
    "ash",
    "awk",
    "bash",
    "builtin",
    "bun",
    "bunx",
    "busybox",
    "bwrap",
    "cargo",
    "chroot",
    "command",
    "csh",
    "dash",
    "dd",
    "deno",
    "doas",
    "docker",
    "ed",
    "elixir",
    "emacs",
    "env",
    "erl",
    "eval",
    "ex",
    "exec",
    "expect",
    "find",
    "firejail",
    "fish",
    "flock",
    "gawk",
    "gdb",
    "ghci",
    "git",
    "gradle",
    "guile",
    "iex",
    "ionice",
    "java",
    "julia",
    "just",
    "ksh",
    "kubectl",
    "less",
    "linux32",
    "linux64",
    "lldb",
    "ltrace",
    "lua",
    "m4",
    "make",
    "man",
    "mawk",
    "mksh",
    "more",
    "mvn",
    "mysql",
    "nano",
    "nc",
    "ncat",
    "nice",
    "node",
    "nohup",
    "npm",
    "npx",
    "nsenter",
    "nvim",
    "osascript",
    "parallel",
    "perf",
    "perl",
    "php",
    "pip",
    "pipx",
    "pkexec",
    "pnpm",
    "podman",
    "poetry",
    "powershell",
    "prlimit",
    "proxychains",
    "psql",
    "pwsh",
    "py",
    "python",
    "python2",
    "python3",
    "R",
    "racket",
    "rm",
    "rmdir",
    "Rscript",
    "rsync",
    "ruby",
    "scp",
    "screen",
    "script",
    "sed",
    "setarch",
    "setpriv",
    "setsid",
    "sh",
    "shred",
    "socat",
    "source",
    "sqlite3",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "swift",
    "systemd-run",
    "tar",
    "taskset",
    "tclsh",
    "tcsh",
    "time",
    "timeout",
    "tmux",
    "torsocks",
    "toybox",
    "ts-node",
    "tsx",
    "unshare",
    "uv",
    "uvx",
    "valgrind",
    "vi",
    "view",
    "vim",
    "watch",
    "xargs",
    "yarn",
    "zip",
    "zsh",
];
