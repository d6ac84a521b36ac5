//! Parameters of `command/*` and `process/*`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::{AbsolutePath, SandboxPolicy};
use crate::message::RpcError;

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandExec {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The client's name for it, needed to write to it and to end it.
    #[serde(default)]
    pub process_id: Option<String>,
    /// The working directory; the server's by default.
    #[serde(default)]
    pub cwd: Option<String>,
    /// The sandbox; that of the settings by default.
    #[serde(default)]
    pub sandbox_policy: Option<SandboxPolicy>,
    #[serde(default)]
    pub timeout_ms: Option<i64>,
    #[serde(default)]
    pub disable_timeout: bool,
    /// Most bytes of each output stream that are kept or sent.
    #[serde(default)]
    pub output_bytes_cap: Option<u64>,
    #[serde(default)]
    pub disable_output_cap: bool,
    #[serde(flatten)]
    pub run: Run,
}

/// A process to start.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessSpawn {
    /// The program and its arguments.
    pub command: Vec<String>,
    pub process_handle: String,
    pub cwd: AbsolutePath,
    /// `None` if it is missing, `Some(None)` for no limit.
    #[serde(default, deserialize_with = "given")]
    pub timeout_ms: Option<Option<i64>>,
    /// `None` if it is missing, `Some(None)` for no limit.
    #[serde(default, deserialize_with = "given")]
    pub output_bytes_cap: Option<Option<u64>>,
    #[serde(flatten)]
    pub run: Run,
}

/// The environment and the streams of a command.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Run {
    /// Variables that override those of the settings; null removes one.
    pub env: Option<BTreeMap<String, Option<String>>>,
    /// Whether it runs in a terminal, which implies `stream_stdin` and `stream_stdout_stderr`.
    pub tty: bool,
    pub size: Option<TerminalSize>,
    /// Whether the client will write to its stdin.
    pub stream_stdin: bool,
    /// Whether its output is sent while it runs.
    pub stream_stdout_stderr: bool,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(rename = "CommandExecTerminalSize")]
pub struct TerminalSize {
    pub rows: u16,
    pub cols: u16,
}

/// Input for a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Input {
    pub delta_base64: Option<String>,
    pub close_stdin: bool,
}

/// Parameters of writing to a command.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandWrite {
    pub process_id: String,
    #[serde(flatten)]
    pub input: Input,
}

/// Parameters of writing to a process.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessWrite {
    pub process_handle: String,
    #[serde(flatten)]
    pub input: Input,
}

/// Parameters of resizing the terminal of a command.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandResize {
    pub process_id: String,
    pub size: TerminalSize,
}

/// Parameters of resizing the terminal of a process.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessResize {
    pub process_handle: String,
    pub size: TerminalSize,
}

/// A command, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfCommand {
    pub process_id: String,
}

/// A process, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfProcess {
    pub process_handle: String,
}

impl CommandExec {
    /// Refuses options that contradict each other.
    pub fn check(&self) -> Result<(), RpcError> {
        self.run.check("command/exec", &self.command)?;
        let streams = self.run.tty || self.run.stream_stdin || self.run.stream_stdout_stderr;
        if streams && self.process_id.is_none() {
            return Err(RpcError::invalid(
                "command/exec tty or streaming requires a client-supplied processId",
            ));
        }
        if self.timeout_ms.is_some() && self.disable_timeout {
            return Err(RpcError::invalid_params(
                "command/exec cannot set both timeoutMs and disableTimeout",
            ));
        }
        if self.output_bytes_cap.is_some() && self.disable_output_cap {
            return Err(RpcError::invalid_params(
                "command/exec cannot set both outputBytesCap and disableOutputCap",
            ));
        }
        self.sandbox_policy.as_ref().map_or(Ok(()), SandboxPolicy::check)
    }
}

impl ProcessSpawn {
    /// Refuses an empty name or an empty command.
    pub fn check(&self) -> Result<(), RpcError> {
        if self.process_handle.is_empty() {
            return Err(RpcError::invalid("processHandle must not be empty"));
        }
        self.run.check("process/spawn", &self.command)
    }
}

impl Run {
    fn check(&self, method: &str, command: &[String]) -> Result<(), RpcError> {
        if command.is_empty() {
            return Err(RpcError::invalid("command must not be empty"));
        }
        match self.size {
            Some(_) if !self.tty => {
                Err(RpcError::invalid_params(format!("{method} size requires tty: true")))
            }
            Some(size) => size.check(),
            None => Ok(()),
        }
    }
}

impl TerminalSize {
    /// Refuses a terminal without rows or columns.
    pub fn check(self) -> Result<(), RpcError> {
        if self.rows == 0 || self.cols == 0 {
            return Err(RpcError::invalid_params("size: rows and cols must be greater than 0"));
        }
        Ok(())
    }
}

/// Distinguishes null from a missing field.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::message::{INVALID_PARAMS, INVALID_REQUEST};

    #[track_caller]
    fn exec(more: Value, want: Result<(), i64>) {
        let mut params = json!({"command": ["a"]});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let exec: CommandExec = serde_json::from_value(params).unwrap();
        assert_eq!(exec.check().map_err(|error| error.code), want, "{more}");
    }

    #[test]
    fn commands() {
        exec(json!({}), Ok(()));
        exec(json!({"command": []}), Err(INVALID_REQUEST));
        for stream in ["tty", "streamStdin", "streamStdoutStderr"] {
            exec(json!({ stream: true }), Err(INVALID_REQUEST));
            exec(json!({ stream: true, "processId": "p" }), Ok(()));
        }
        exec(json!({"timeoutMs": 1, "disableTimeout": true}), Err(INVALID_PARAMS));
        exec(json!({"outputBytesCap": 1, "disableOutputCap": true}), Err(INVALID_PARAMS));
        let size = |rows, cols| json!({"rows": rows, "cols": cols});
        exec(json!({"size": size(1, 1)}), Err(INVALID_PARAMS));
        exec(json!({"size": size(0, 1), "tty": true, "processId": "p"}), Err(INVALID_PARAMS));
        exec(json!({"size": size(1, 1), "tty": true, "processId": "p"}), Ok(()));
        let network = json!({"type": "readOnly", "networkAccess": true});
        exec(json!({"sandboxPolicy": network}), Err(INVALID_REQUEST));
        exec(json!({"sandboxPolicy": {"type": "dangerFullAccess"}, "env": {"A": null}}), Ok(()));
    }

    #[test]
    fn processes() {
        for (more, timeout, cap) in [
            (json!({}), None, None),
            (json!({"timeoutMs": null, "outputBytesCap": null}), Some(None), Some(None)),
            (json!({"timeoutMs": 5, "outputBytesCap": 6}), Some(Some(5)), Some(Some(6))),
        ] {
            let mut params = json!({"command": ["a"], "cwd": "/", "processHandle": "p"});
            params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let spawn: ProcessSpawn = serde_json::from_value(params).unwrap();
            assert_eq!((spawn.timeout_ms, spawn.output_bytes_cap), (timeout, cap), "{more}");
            assert_eq!(spawn.check(), Ok(()));
        }
        let nameless = json!({"command": ["a"], "cwd": "/", "processHandle": ""});
        let spawn: ProcessSpawn = serde_json::from_value(nameless).unwrap();
        assert!(spawn.check().is_err());
    }
}
