//! Sandbox modes, and which files they let a model write.

use std::path::{Path, PathBuf};

use crate::Verdict;

/// Directories at the top of a writable root that stay read-only: what is in them decides what
/// later programs, and we, will do.
const PROTECTED: [&str; 5] = [".git", ".codex", ".heddle", ".agents", ".aws"];

/// How much a model's commands may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxMode {
    /// Read everything, write nothing.
    ReadOnly,
    /// Read everything, write in the workspace and in temporary directories.
    WorkspaceWrite,
    /// Everything.
    DangerFullAccess,
}

impl SandboxMode {
    /// Returns the name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::DangerFullAccess => "danger-full-access",
        }
    }
}

/// A sandbox mode with its directories filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The mode.
    pub mode: SandboxMode,
    /// Directories in which files may be written, resolved; the working directory is among them.
    pub writable_roots: Vec<PathBuf>,
    /// Temporary directories, likewise, in which nothing is protected.
    pub temporary_roots: Vec<PathBuf>,
    /// Whether commands may use the network.
    pub network: bool,
}

impl Profile {
    /// Decides about one resolved path.
    pub fn write(&self, path: &Path) -> Verdict {
        match self.mode {
            SandboxMode::DangerFullAccess => Verdict::Allow,
            SandboxMode::ReadOnly => Verdict::Refuse(
                "patch rejected: the sandbox is read-only, so no file can be written".to_owned(),
            ),
            SandboxMode::WorkspaceWrite => self.write_in_workspace(path),
        }
    }

    fn write_in_workspace(&self, path: &Path) -> Verdict {
        let shown = path.display();
        let inside = |root: &PathBuf| path.strip_prefix(root).ok();
        for root in &self.writable_roots {
            let Some(first) = inside(root).and_then(|rest| rest.components().next()) else {
                continue;
            };
            if PROTECTED.iter().any(|name| first.as_os_str() == *name) {
                return Verdict::Refuse(format!(
                    "patch rejected: {shown} is in a protected directory, which stays read-only"
                ));
            }
        }
        if self.writable_roots.iter().chain(&self.temporary_roots).any(|r| inside(r).is_some()) {
            return Verdict::Allow;
        }
        Verdict::Refuse(format!("patch rejected: {shown} is outside of the workspace"))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Profile, SandboxMode};
    use crate::Verdict;

    #[track_caller]
    fn check(mode: SandboxMode, path: &str, allowed: bool) {
        let profile = Profile {
            mode,
            writable_roots: vec!["/w".into(), "/more".into()],
            temporary_roots: vec!["/tmp".into()],
            network: false,
        };
        assert_eq!(profile.write(Path::new(path)) == Verdict::Allow, allowed, "{mode:?} {path}");
    }

    #[test]
    fn writes() {
        use SandboxMode::*;
        check(ReadOnly, "/w/a", false);
        check(DangerFullAccess, "/etc/passwd", true);
        check(WorkspaceWrite, "/w/a", true);
        check(WorkspaceWrite, "/w", true);
        check(WorkspaceWrite, "/more/deep/a", true);
        check(WorkspaceWrite, "/tmp/a", true);
        check(WorkspaceWrite, "/tmp/.git/a", true);
        check(WorkspaceWrite, "/wide/a", false);
        check(WorkspaceWrite, "/etc/passwd", false);
        check(WorkspaceWrite, "/w/.git/hooks/x", false);
        check(WorkspaceWrite, "/w/.git", false);
        check(WorkspaceWrite, "/more/.heddle/config.toml", false);
        check(WorkspaceWrite, "/w/.gitignore", true);
        check(WorkspaceWrite, "/w/sub/.git/x", true);
    }
}
