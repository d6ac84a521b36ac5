//! What a model wants to do.

use std::path::PathBuf;

/// A command that a model wants to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRequest {
    /// The argument vector: of a script, the shell, its flag and the script.
    pub argv: Vec<String>,
    /// Where it would run.
    pub cwd: PathBuf,
    /// Set if it asks to run outside of the sandbox.
    pub escalation: Option<Escalation>,
}

/// A wish to run outside of the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Escalation {
    /// The question that the model would put to the user.
    pub justification: Option<String>,
    /// A prefix that the model proposes to allow from now on.
    pub prefix: Option<Vec<String>>,
}

/// Files that a model wants to write, replace or remove: all of them or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRequest {
    /// The real places of the files: absolute, links followed, no `..`.
    pub paths: Vec<PathBuf>,
}

/// Anything that a model wants to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// To run a command.
    Command(CommandRequest),
    /// To write files.
    Write(WriteRequest),
}
