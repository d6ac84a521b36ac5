//! May this run, and where? Decisions without effects.
//!
//! Every process start and every file write that a model causes is put to a [`Policy`] first. Paths
//! must be resolved (links followed, `..` gone) by whoever asks: this crate looks at no disk.
//!
//! Asking the user, rule files and the enforcement by a sandbox build on these types.

mod environment;
mod profile;

pub use environment::{EnvironmentPolicy, Inherit};
pub use profile::{Profile, SandboxMode};

use std::path::{Path, PathBuf};

/// What a run may do, decided for one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The sandbox that holds.
    pub profile: Profile,
}

/// A command that a model wants to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRequest {
    /// The argument vector.
    pub argv: Vec<String>,
    /// Where it would run.
    pub cwd: PathBuf,
    /// Whether it asks to run outside of the sandbox.
    pub escalated: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may run under the profile.
    Allow,
    /// It may not, for this reason, which the model reads.
    Refuse(String),
}

impl Policy {
    /// Decides about a command.
    pub fn command(&self, request: &CommandRequest) -> Verdict {
        if request.escalated {
            // There is no one to ask yet: approvals come with the interactive front ends.
            return Verdict::Refuse(
                "approval policy is never: a command cannot ask to run outside of the sandbox; \
                 run it without `sandbox_permissions`, or tell the user what it would need"
                    .to_owned(),
            );
        }
        Verdict::Allow
    }

    /// Decides about writing or removing files, all of them or none.
    pub fn write<'a>(&self, paths: impl IntoIterator<Item = &'a Path>) -> Verdict {
        for path in paths {
            if let Verdict::Refuse(reason) = self.profile.write(path) {
                return Verdict::Refuse(reason);
            }
        }
        Verdict::Allow
    }
}
