//! Grants: what a person has approved for the rest of the session.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::request::{CommandRequest, InputRequest, ToolCallRequest, WriteRequest};

/// Approvals for the session: exactly these commands, inputs, files and tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    commands: HashSet<(Vec<String>, PathBuf, bool)>,
    inputs: HashSet<InputKey>,
    files: HashSet<PathBuf>,
    tools: HashSet<(String, String)>,
}

impl Grants {
    /// Remembers a command: the same words in the same directory, inside or outside the sandbox as requested.
    pub fn add_command(&mut self, request: &CommandRequest) {
        self.commands.insert(key(request));
    }

    /// Remembers input: the same text into the same command.
    pub fn add_input(&mut self, request: &InputRequest) {
        self.inputs.insert(input_key(request));
    }

    pub fn add_write(&mut self, request: &WriteRequest) {
        self.files.extend(request.paths.iter().cloned());
    }

    /// Remembers a tool of a server or of the host program, whatever it is called with.
    pub fn add_tool_call(&mut self, request: &ToolCallRequest) {
        self.tools.insert((request.server.clone(), request.tool.clone()));
    }

    pub(crate) fn has_tool_call(&self, request: &ToolCallRequest) -> bool {
        self.tools.contains(&(request.server.clone(), request.tool.clone()))
    }

    pub(crate) fn has_command(&self, request: &CommandRequest) -> bool {
        self.commands.contains(&key(request))
    }

    pub(crate) fn has_input(&self, request: &InputRequest) -> bool {
        self.inputs.contains(&input_key(request))
    }

    pub(crate) fn has_file(&self, path: &Path) -> bool {
        self.files.contains(path)
    }

    pub(crate) fn has_write(&self, request: &WriteRequest) -> bool {
        !request.paths.is_empty() && request.paths.iter().all(|path| self.has_file(path))
    }
}

fn key(request: &CommandRequest) -> (Vec<String>, PathBuf, bool) {
    (request.argv.clone(), request.cwd.clone(), request.escalation.is_some())
}

/// The command, its directory, whether it runs outside the sandbox, and the text.
type InputKey = (Vec<String>, PathBuf, bool, String);

fn input_key(request: &InputRequest) -> InputKey {
    (request.argv.clone(), request.cwd.clone(), request.outside, request.text.clone())
}
