//! Which prefix a person may let through from now on.

use crate::inspect::{Found, Inspection};
use crate::lift;
use crate::shell::Word;
use crate::wrap::{self, Inner, base_name};

/// Chooses the prefix that is offered with a question: what the model proposes if it fits and says
/// enough, else the words of the first command of a plain script, else the whole command.
pub(crate) fn offer(
    inspection: &Inspection,
    argv: &[String],
    proposed: Option<&[String]>,
) -> Vec<String> {
    let plain = plain_commands(inspection);
    if let (Some([only]), Some(proposed)) = (plain.as_deref(), proposed)
        && only.starts_with(proposed)
        && says_enough(proposed)
        // It is to take the command out of the sandbox, so it has to be a rule that can.
        && (only.len() == proposed.len() || lift::takes_any_words(&proposed[0]))
    {
        return proposed.to_vec();
    }
    match plain {
        Some(mut commands) if says_enough(&commands[0]) => commands.swap_remove(0),
        _ => argv.to_vec(),
    }
}

/// The commands of a script that has nothing but known words, or else nothing; never empty.
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

/// Tells whether a prefix is about something in particular, and not about whatever a program is told.
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
            // A wrapper without its words would stand for whatever follows.
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

/// Tells whether a program does whatever it is told, or may be something else the next time.
fn is_broad(name: &str) -> bool {
    let base = base_name(name);
    // `python3.11` is a python.
    let unversioned = base.trim_end_matches(|c: char| c.is_ascii_digit() || "._-".contains(c));
    let unversioned = if unversioned.is_empty() { base } else { unversioned };
    // What lies in the workspace can be written by the model.
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
