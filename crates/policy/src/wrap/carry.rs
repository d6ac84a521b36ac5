//! Commands that run elsewhere: in a container, on another host, outside a sandbox.
//!
//! The inner command is judged as if it ran here. Nearly all options of these programs take a value, so their
//! tables list those that do not.

use super::{Fed, Inner, script_of};
use crate::shell::Word;

/// A program that runs a command elsewhere.
struct Carrier {
    names: &'static [&'static str],
    /// Words that may precede the subcommand: `docker compose exec`.
    groups: &'static [&'static str],
    /// Subcommands after which a command follows; empty if none is needed.
    commands: &'static [&'static str],
    /// How many operands precede the command: a container, a host.
    operands: usize,
    /// Letters of options without a value.
    flags: &'static str,
    /// Long options without a value.
    long_flags: &'static [&'static str],
    /// Whether a shell reads the words.
    script: bool,
}

/// Returns what a command runs elsewhere; `None` if it is not such a program.
pub(super) fn inner(name: &str, words: &[Word]) -> Option<Vec<Inner>> {
    let carrier = CARRIERS.iter().find(|carrier| carrier.names.contains(&name))?;
    let Some(from) = carrier.begins(words) else { return Some(Vec::new()) };
    let at = carrier.place(words, from);
    let rest = words.get(at..).unwrap_or_default();
    let Some(program) = rest.first() else { return Some(Vec::new()) };
    if carrier.script {
        return Some(script_of(at, rest));
    }
    if program.unknown.is_some() {
        return Some(vec![Inner::Unclear]);
    }
    Some(vec![Inner::Words { at, words: rest.to_vec(), fed: Fed::No, sets: false }])
}

/// Returns where the words of the inner command begin.
pub(super) fn place(name: &str, words: &[Word]) -> Option<usize> {
    let carrier = CARRIERS.iter().find(|carrier| carrier.names.contains(&name))?;
    Some(carrier.place(words, carrier.begins(words)?))
}

/// Returns where the options after the subcommand begin, behind those of the program itself.
pub(super) fn begins(name: &str, words: &[Word]) -> Option<usize> {
    CARRIERS.iter().find(|carrier| carrier.names.contains(&name))?.begins(words)
}

/// Tells whether a program passes its stdin to a shell elsewhere, because it has no command.
pub(super) fn reads_commands(name: &str, words: &[Word]) -> bool {
    let alone = place(name, words).is_some_and(|place| place >= words.len());
    alone && !MULTIPLEXERS.contains(&name)
}

impl Carrier {
    /// Returns the position after the subcommand.
    fn begins(&self, words: &[Word]) -> Option<usize> {
        if self.commands.is_empty() {
            return Some(1);
        }
        let mut after_option = false;
        for (at, word) in words.iter().enumerate().skip(1) {
            let text = word.text.as_str();
            if self.commands.contains(&text) {
                return Some(at + 1);
            }
            let is_option = text.starts_with('-');
            // A word after an option may be its value; anything else is another subcommand.
            if !is_option && !after_option && !self.groups.contains(&text) {
                return None;
            }
            after_option = is_option;
        }
        None
    }

    /// Returns the position of the inner command; an unknown word counts as one word.
    fn place(&self, words: &[Word], from: usize) -> usize {
        let mut at = from;
        let mut operands = self.operands;
        while let Some(word) = words.get(at) {
            let text = word.text.as_str();
            if word.known() == Some("--") {
                return at + 1;
            }
            if text.len() > 1 && text.starts_with('-') {
                at += 1 + usize::from(self.takes_value(text));
                continue;
            }
            let is_setting = text.contains('=') && !self.script;
            if operands == 0 && !is_setting {
                return at;
            }
            operands -= usize::from(operands > 0);
            at += 1;
        }
        at
    }

    fn takes_value(&self, option: &str) -> bool {
        match option.strip_prefix("--") {
            Some(long) => !long.contains('=') && !self.long_flags.contains(&long),
            // In a cluster, the first letter with a value takes the rest, or the next word.
            None => {
                let mut letters = option.chars().skip(1);
                letters.find(|letter| !self.flags.contains(*letter)).is_some()
                    && letters.next().is_none()
            }
        }
    }
}

const CONTAINERS: Carrier = Carrier {
    names: &[],
    groups: &[],
    commands: &["exec"],
    operands: 1,
    flags: "",
    long_flags: &[],
    script: false,
};

const CARRIERS: &[Carrier] = &[
    Carrier {
        names: &["docker", "docker-compose", "finch", "nerdctl", "podman", "podman-compose"],
        groups: &["compose", "container"],
        commands: &["exec", "run"],
        flags: "dDiPqtT",
        long_flags: &[
            "build",
            "detach",
            "init",
            "interactive",
            "latest",
            "no-deps",
            "no-healthcheck",
            "no-tty",
            "oom-kill-disable",
            "privileged",
            "publish-all",
            "quiet",
            "quiet-pull",
            "read-only",
            "replace",
            "rm",
            "rmi",
            "service-ports",
            "tty",
            "use-aliases",
        ],
        ..CONTAINERS
    },
    Carrier {
        names: &["kubectl", "oc"],
        commands: &["debug", "exec", "rsh", "run"],
        flags: "iqt",
        long_flags: &["attach", "quiet", "rm", "stdin", "tty"],
        ..CONTAINERS
    },
    Carrier {
        names: &["incus", "lxc"],
        flags: "nqtTv",
        long_flags: &["force-interactive", "force-noninteractive", "quiet"],
        ..CONTAINERS
    },
    Carrier { names: &["crictl"], flags: "its", long_flags: &["sync", "tty"], ..CONTAINERS },
    Carrier {
        names: &["heroku"],
        commands: &["run", "run:detached", "run:inside"],
        operands: 0,
        flags: "x",
        long_flags: &["exit-code", "no-launcher", "no-notify", "no-tty"],
        script: true,
        ..CONTAINERS
    },
    Carrier {
        names: &["clush", "pdsh"],
        commands: &[],
        operands: 0,
        flags: "abdhiLqSVv",
        script: true,
        ..CONTAINERS
    },
    Carrier {
        names: &["parallel-ssh", "pssh"],
        commands: &[],
        operands: 0,
        flags: "AiIPvz",
        long_flags: &["askpass", "inline", "inline-stdout", "print", "send-input", "verbose"],
        script: true,
        ..CONTAINERS
    },
    Carrier { names: &["multipass"], flags: "nv", long_flags: &["no-map"], ..CONTAINERS },
    Carrier {
        names: &["machinectl"],
        commands: &["shell"],
        flags: "q",
        long_flags: &["quiet", "no-pager", "no-ask-password"],
        ..CONTAINERS
    },
    Carrier { names: &["limactl"], commands: &["shell"], ..CONTAINERS },
    Carrier {
        names: &["distrobox"],
        commands: &["enter"],
        // `-e` ends the options, as `--` does.
        flags: "erTv",
        long_flags: &["clean-path", "no-tty", "no-workdir", "root", "verbose"],
        ..CONTAINERS
    },
    Carrier {
        names: &["flatpak"],
        commands: &["enter"],
        flags: "v",
        long_flags: &["verbose"],
        ..CONTAINERS
    },
    Carrier { names: &["toolbox"], commands: &["run"], operands: 0, ..CONTAINERS },
    Carrier {
        names: &["flatpak-spawn"],
        commands: &[],
        operands: 0,
        flags: "v",
        long_flags: &["clear-env", "host", "latest-version", "no-network", "sandbox", "watch-bus"],
        ..CONTAINERS
    },
    Carrier { names: &["ip"], groups: &["netns", "vrf"], flags: "46abdhjNnopsst", ..CONTAINERS },
    Carrier { names: &["cmake"], commands: &["env", "time"], operands: 0, ..CONTAINERS },
    Carrier { names: &["mosh"], commands: &[], flags: "46an", ..CONTAINERS },
    Carrier {
        names: &["adb"],
        commands: &["shell"],
        operands: 0,
        flags: "adentTx",
        script: true,
        ..CONTAINERS
    },
    Carrier {
        names: &["tmux"],
        commands: &[
            "display-popup",
            "new",
            "new-session",
            "new-window",
            "neww",
            "popup",
            "respawn-pane",
            "respawn-window",
            "run",
            "run-shell",
            "split-window",
            "splitw",
        ],
        operands: 0,
        flags: "2abACDdEhIkKNPuvXZ",
        ..CONTAINERS
    },
    Carrier {
        names: &["screen"],
        commands: &[],
        operands: 0,
        flags: "aADdiLlmOqRrUvx",
        ..CONTAINERS
    },
    // Options may follow the host.
    Carrier {
        names: &["autossh", "slogin", "ssh"],
        commands: &[],
        flags: "46AaCfGgKkMNnqsTtVvXxYy",
        script: true,
        ..CONTAINERS
    },
];

/// These have a terminal of their own and do not read stdin.
const MULTIPLEXERS: [&str; 2] = ["screen", "tmux"];

/// Handles `socat ADDRESS ADDRESS`, where some address types are commands: `EXEC:…`, `SYSTEM:…`.
pub(super) fn socat(words: &[Word]) -> Vec<Inner> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate().skip(1) {
        for address in word.text.split("!!") {
            let Some((kind, command)) = address.split_once(':') else { continue };
            if !["EXEC", "SYSTEM", "SHELL"].iter().any(|it| kind.eq_ignore_ascii_case(it)) {
                continue;
            }
            found.push(match word.known() {
                // Its options follow the command.
                Some(_) => {
                    let text = command.split(',').next().unwrap_or_default();
                    Inner::Script { at, text: text.trim_matches(['"', '\'']).to_owned() }
                }
                None => Inner::Unclear,
            });
        }
    }
    found
}
