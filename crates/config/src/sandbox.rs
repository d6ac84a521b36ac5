//! What commands may touch.

use crate::choice::choice;
use crate::error::ConfigError;
use crate::section::{Field, Notes, Read};
use std::path::PathBuf;

choice! {
    /// What commands may touch.
    pub enum SandboxMode {
        /// Read everything, write nothing.
        ReadOnly = "read-only",
        /// Write in the workspace and the temporary directories.
        WorkspaceWrite = "workspace-write",
        /// No sandbox.
        DangerFullAccess = "danger-full-access",
    }
}

/// `[command_limits]`: how much a command and everything that it starts may use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandLimits {
    /// Processes and threads at one time; 0 for no bound.
    pub processes: Option<u64>,
    /// MiB of memory; 0 for no bound.
    pub memory_mb: Option<u64>,
}

impl Read for CommandLimits {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let mut section = field.section(notes)?;
        let limits =
            Self { processes: section.value("processes")?, memory_mb: section.value("memory_mb")? };
        section.finish();
        Ok(limits)
    }
}

/// `[sandbox_workspace_write]`: what that mode opens or closes further.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkspaceWrite {
    /// More directories that may be written, as given.
    pub writable_roots: Vec<PathBuf>,
    /// Whether commands may use the network.
    pub network_access: bool,
    /// Whether the directory named by `TMPDIR` stays closed.
    pub exclude_tmpdir_env_var: bool,
    /// Whether `/tmp` stays closed.
    pub exclude_slash_tmp: bool,
}

impl Read for WorkspaceWrite {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let mut section = field.section(notes)?;
        let workspace_write = Self {
            writable_roots: section.or("writable_roots", Vec::new())?,
            network_access: section.or("network_access", false)?,
            exclude_tmpdir_env_var: section.or("exclude_tmpdir_env_var", false)?,
            exclude_slash_tmp: section.or("exclude_slash_tmp", false)?,
        };
        section.finish();
        Ok(workspace_write)
    }
}
