//! Requests that the policy decides about: commands, text typed into them, file writes and tool calls.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// A command that a model wants to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRequest {
    /// The argument vector; for a script, the shell, its flag and the script.
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    /// Set if it asks to run outside the sandbox.
    pub escalation: Option<Escalation>,
    /// What the caller found on disk about it.
    pub scene: Scene,
}

/// What the caller found on disk about a command, for rules that take commands out of the sandbox. Without
/// it, no rule does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scene {
    /// The directory it would run in, with symbolic links resolved.
    pub directory: Option<PathBuf>,
    /// The thread's directory, with symbolic links resolved.
    pub own: Option<PathBuf>,
    /// For every name from [`crate::Policy::programs`], all paths that decide which program it is, from the
    /// searched directories to the file. `None` if there is no such program.
    pub programs: BTreeMap<String, Option<Vec<PathBuf>>>,
    /// All paths that decide where the user's own settings are.
    pub home: Vec<PathBuf>,
}

/// A request to run outside the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Escalation {
    /// The model's question to the user.
    pub justification: Option<String>,
    /// A prefix that the model proposes to allow from now on.
    pub prefix: Option<Vec<String>>,
}

/// Files that a model asks to write, replace or remove: all of them or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRequest {
    /// The real paths of the files: absolute, links resolved, no `..`.
    pub paths: Vec<PathBuf>,
    /// What protected names currently refer to on disk: the targets of links and of files that say where a
    /// repository is.
    pub protected: Vec<PathBuf>,
}

/// Text that a model asks to type into a running command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRequest {
    /// The command that reads it, as it was started.
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    /// Whether it runs outside the sandbox.
    pub outside: bool,
    /// What would be typed, after earlier input that may belong to the same command: see [`crate::Typed`].
    pub text: String,
}

/// A call of a tool that heddle does not run itself: one of the host program, or of an MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCallRequest {
    /// Whose tool it is: the name of a server, or of the host program.
    pub server: String,
    pub tool: String,
    /// What it is called with: JSON as text.
    pub arguments: String,
    /// Whether it only reads, as its owner says.
    pub read_only: bool,
    /// Whether it destroys something, as its owner says.
    pub destructive: bool,
}

/// Anything that a model asks to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Command(CommandRequest),
    Input(InputRequest),
    Write(WriteRequest),
    ToolCall(ToolCallRequest),
}
