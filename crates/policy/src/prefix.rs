//! Which prefix a person may let through from now on.

use crate::inspect::{Found, Inspection};
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
        let broad = BROAD.contains(&base_name(&name.text));
        if broad && arguments.iter().all(|word| word.text.starts_with('-')) {
            return false;
        }
        match wrap::inner(&words).into_iter().next() {
            None => return true,
            Some(Inner::Script { .. }) => return true,
            Some(Inner::Unclear) => return false,
            Some(Inner::Words { words: inner, .. }) => {
                words = inner.into_iter().filter(|word| word.unknown.is_none()).collect();
            }
        }
    }
    false
}

const WRAPPERS_MAX: usize = 16;

/// Programs that do whatever their arguments say.
const BROAD: &[&str] = &[
    "ash",
    "awk",
    "bash",
    "builtin",
    "bun",
    "bunx",
    "busybox",
    "cargo",
    "chroot",
    "command",
    "csh",
    "dash",
    "dd",
    "deno",
    "doas",
    "docker",
    "env",
    "eval",
    "exec",
    "find",
    "fish",
    "flock",
    "gawk",
    "git",
    "ionice",
    "java",
    "just",
    "ksh",
    "kubectl",
    "lua",
    "make",
    "mawk",
    "mksh",
    "nice",
    "node",
    "nohup",
    "npm",
    "npx",
    "nsenter",
    "osascript",
    "parallel",
    "perl",
    "php",
    "pkexec",
    "pnpm",
    "podman",
    "powershell",
    "pwsh",
    "py",
    "python",
    "python2",
    "python3",
    "rm",
    "rmdir",
    "rsync",
    "ruby",
    "scp",
    "setsid",
    "sh",
    "shred",
    "source",
    ".",
    "ssh",
    "stdbuf",
    "su",
    "sudo",
    "taskset",
    "tclsh",
    "tcsh",
    "time",
    "timeout",
    "toybox",
    "unshare",
    "uv",
    "uvx",
    "watch",
    "xargs",
    "yarn",
    "zsh",
];
