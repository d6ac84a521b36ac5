//! The table of attempts: everything that must be refused inside the sandbox, and what must still work there,
//! since a sandbox that refuses everything proves nothing.

mod descriptors;
mod files;
mod kernel;
pub(super) mod lifted;
mod locks;
mod mounts;
mod network;
mod privilege;
mod processes;
mod protected;
mod terminal;
mod works;
mod writes;

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use policy::{Effect, SandboxMode};

use super::ground::Ground;
use super::sys::{Outcome, Refused, void};
use crate::{Io, Level};

#[derive(Clone, Copy)]
pub(super) struct Attempt {
    /// A unique name.
    pub(super) name: &'static str,
    /// A description for the user.
    pub(super) what: &'static str,
    /// Makes the attempt, inside.
    pub(super) run: fn(&Ground) -> Outcome,
    /// The required result.
    pub(super) want: Want,
    /// The result without a sandbox.
    pub(super) outside: Outside,
    /// The only mode it applies to, or all.
    pub(super) mode: Option<SandboxMode>,
    /// Whether it applies to plan mode alone.
    pub(super) plan: bool,
    /// The only level it applies to, or all.
    pub(super) level: Option<Level>,
    pub(super) io: Io,
    /// Whether it is made with network access.
    pub(super) network: bool,
    /// Whether a process outside reads [`Ground::swapped`] meanwhile.
    pub(super) reads: bool,
    /// The level at which it is documented to be possible.
    pub(super) known: Option<Level>,
    /// Environment variables to set.
    pub(super) env: &'static [(&'static str, &'static str)],
    /// Signals that count as a refusal.
    pub(super) signals: &'static [i32],
    /// What is requested afterwards, outside, as a model would.
    pub(super) then: Option<fn(&Ground) -> Then>,
    /// A file that is patched afterwards, likewise.
    pub(super) patch: Option<fn(&Ground) -> PathBuf>,
}

/// A request of a model.
pub(super) struct Then {
    /// The effect to decide about, and to perform as far as it is permitted.
    pub(super) effect: Effect,
    /// The environment of a command.
    pub(super) env: Vec<(String, String)>,
}

/// The required result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// It is refused, and nothing on the ground has changed.
    Refused,
    /// Whatever it reports, nothing on the ground has changed and no process is left.
    NoTrace,
    Works,
}

/// The result of an attempt without a sandbox, on an ordinary Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outside {
    /// It works for everyone.
    Works,
    /// It works for root; others may be refused.
    Root,
    /// It depends on the kernel and the machine.
    Unsaid,
    /// It is not attempted, because it could do harm.
    Never,
}

impl Outside {
    /// Returns the name shown to users.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Root => "works for root",
            Self::Unsaid => "depends on the machine",
            Self::Never => "never tried",
        }
    }
}

/// Starts a row for something that must be refused, and works for everyone without a sandbox.
const fn forbid(name: &'static str, what: &'static str, run: fn(&Ground) -> Outcome) -> Attempt {
    Attempt {
        name,
        what,
        run,
        want: Want::Refused,
        outside: Outside::Works,
        mode: None,
        plan: false,
        level: None,
        io: Io::Pipe,
        network: false,
        reads: false,
        known: None,
        env: &[],
        signals: &[libc::SIGSYS],
        then: None,
        patch: None,
    }
}

/// Starts a row for something that must work.
const fn allow(name: &'static str, what: &'static str, run: fn(&Ground) -> Outcome) -> Attempt {
    Attempt { want: Want::Works, ..forbid(name, what, run) }
}

impl Attempt {
    const fn outside(self, outside: Outside) -> Self {
        Self { outside, ..self }
    }

    const fn root(self) -> Self {
        self.outside(Outside::Root)
    }

    const fn unsaid(self) -> Self {
        self.outside(Outside::Unsaid)
    }

    const fn only(self, mode: SandboxMode) -> Self {
        Self { mode: Some(mode), ..self }
    }

    const fn only_in_plan_mode(self) -> Self {
        Self { mode: Some(SandboxMode::ReadOnly), plan: true, ..self }
    }

    const fn at(self, level: Level) -> Self {
        Self { level: Some(level), ..self }
    }

    const fn known(self, level: Level) -> Self {
        Self { known: Some(level), ..self }
    }

    const fn on_terminal(self) -> Self {
        Self { io: Io::Terminal, ..self }
    }

    const fn with_network(self) -> Self {
        Self { network: true, ..self }
    }

    const fn then(self, then: fn(&Ground) -> Then) -> Self {
        Self { then: Some(then), ..self }
    }

    const fn no_trace(self) -> Self {
        Self { want: Want::NoTrace, ..self }
    }
}

/// Returns every attempt with the name of its group.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static Attempt)> {
    GROUPS.into_iter().flat_map(|(group, table)| table.iter().map(move |row| (group, row)))
}

const GROUPS: [(&str, &[Attempt]); 13] = [
    ("writes outside", writes::TABLE),
    ("ways around", files::TABLE),
    ("protected names", protected::TABLE),
    ("rules and patches", lifted::TABLE),
    ("namespaces and mounts", mounts::TABLE),
    ("privilege", privilege::TABLE),
    ("processes", processes::TABLE),
    ("locks and swaps", locks::TABLE),
    ("kernel", kernel::TABLE),
    ("network", network::TABLE),
    ("terminal", terminal::TABLE),
    ("descriptors and environment", descriptors::TABLE),
    ("still works", works::TABLE),
];

/// Runs a script with the ground's directories in `$W` (workspace), `$O` (outside) and `$R` (all).
fn shell(ground: &Ground, program: &str, script: &str) -> Result<Vec<u8>, Refused> {
    let mut command = Command::new(program);
    command.arg("-c").arg(script).arg(&ground.root);
    command.env("W", ground.work("")).env("O", ground.outside("")).env("R", &ground.root);
    let output = match command.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return void(format!("there is no {program}"));
        }
        output => output?,
    };
    if output.status.success() {
        return Ok(output.stdout);
    }
    if let Some(signal) = output.status.signal() {
        return Err(Refused::Said(format!("signal {signal}")));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or("it failed").rsplit(": ").next().unwrap_or_default();
    Err(Refused::Said(last.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use policy::SandboxMode;

    use super::{Want, all};

    #[test]
    fn names() {
        let names: BTreeSet<_> = all().map(|(_, row)| row.name).collect();
        assert_eq!(names.len(), all().count(), "two attempts have one name");
        for (_, row) in all() {
            assert!(
                row.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            );
        }
    }

    #[test]
    fn enough() {
        for mode in [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite] {
            let rows = all().filter(|(_, row)| row.mode.is_none_or(|only| only == mode));
            let forbidden = rows.filter(|(_, row)| row.want != Want::Works).count();
            assert!(forbidden >= 90, "{forbidden} in {}", mode.name());
        }
    }
}
