//! Sandbox settings and limits of commands.

use crate::choice::choice;
use crate::error::ConfigError;
use crate::section::{Field, Notes, Read};
use std::path::PathBuf;

choice! {
    /// What commands may access.
    pub enum SandboxMode {
        /// Commands may read everything and write nothing.
        ReadOnly = "read-only",
        /// Commands may also write in the workspace and in temporary directories.
        WorkspaceWrite = "workspace-write",
        /// Commands run without a sandbox.
        DangerFullAccess = "danger-full-access",
    }
}

/// `[command_limits]`: resources of a command together with everything it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandLimits {
    /// Processes and threads at one time; 0 for no limit.
    pub processes: Option<u64>,
    /// Memory in MiB; 0 for no limit.
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

/// `[sandbox_workspace_write]`: adjustments of that mode.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkspaceWrite {
    /// More writable directories, as written.
    pub writable_roots: Vec<PathBuf>,
    /// Whether commands may use the network.
    pub network_access: bool,
    /// Whether the directory in `TMPDIR` is not writable.
    pub exclude_tmpdir_env_var: bool,
    /// Whether `/tmp` is not writable.
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
