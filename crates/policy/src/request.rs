//! What a model wants to do.

use std::collections::BTreeMap;
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
    /// What was found on the disk about it.
    pub scene: Scene,
}

/// What whoever asks has found on the disk about a command, for rules that take commands out of the
/// sandbox. Where nothing was found, no rule does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scene {
    /// The directory that it would run in, every link followed.
    pub directory: Option<PathBuf>,
    /// The directory of the thread, likewise.
    pub own: Option<PathBuf>,
    /// Of every name that [`crate::Policy::programs`] asks about: every place that has a say in which
    /// program it is, from the directories that are searched to the file. None if there is no program.
    pub programs: BTreeMap<String, Option<Vec<PathBuf>>>,
    /// Every place that has a say in where the user's own settings are.
    pub home: Vec<PathBuf>,
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
    /// What protected names stand for on the disk at this moment: what links and files lead to that
    /// say where a repository is.
    pub protected: Vec<PathBuf>,
}

/// Text that a model wants to type into a command that is running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRequest {
    /// The command that reads it, as it was started.
    pub argv: Vec<String>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// Whether it runs without a sandbox.
    pub outside: bool,
    /// What would be typed, after whatever was typed before and may belong to the same command: see
    /// [`crate::Typed`].
    pub text: String,
}

/// Anything that a model wants to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// To run a command.
    Command(CommandRequest),
    /// To type into a command that is running.
    Input(InputRequest),
    /// To write files.
    Write(WriteRequest),
}
