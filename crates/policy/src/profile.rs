//! Sandbox modes, and what they leave writable.

use std::path::{Path, PathBuf};

/// Names directly inside a writable root, and inside its parents, that stay read-only whether they exist or
/// not: their contents decide what other programs, and heddle, will do later.
pub const PROTECTED_NAMES: [&str; 5] = [".git", ".codex", ".heddle", ".agents", ".aws"];

/// How much a model's commands may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxMode {
    /// Commands may read everything and write nothing.
    ReadOnly,
    /// Commands may also write in the workspace and in temporary directories.
    WorkspaceWrite,
    /// Commands run without a sandbox.
    DangerFullAccess,
}

impl SandboxMode {
    /// Returns the name used in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::DangerFullAccess => "danger-full-access",
        }
    }
}

/// A sandbox mode with its directories. All paths are absolute and resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    pub mode: SandboxMode,
    /// Directories that are writable under [`SandboxMode::WorkspaceWrite`], except for [`PROTECTED_NAMES`]
    /// directly inside; includes the working directory.
    pub writable_roots: Vec<PathBuf>,
    /// Temporary directories, with the same exception.
    pub temporary_roots: Vec<PathBuf>,
    /// One directory that is writable even under [`SandboxMode::ReadOnly`].
    pub scratch: Option<PathBuf>,
    /// What is read-only wherever it is: heddle's own settings and rules, and repositories below the roots
    /// that the model did not create.
    pub protected: Vec<PathBuf>,
    pub network: bool,
}

/// Why a file may not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The mode is read-only.
    ReadOnly,
    Protected,
    /// It is in no writable directory.
    Outside,
}

impl Profile {
    /// Returns the profile for commands without a sandbox.
    pub fn full_access() -> Self {
        Self {
            mode: SandboxMode::DangerFullAccess,
            writable_roots: Vec::new(),
            temporary_roots: Vec::new(),
            scratch: None,
            protected: Vec::new(),
            network: true,
        }
    }

    /// Returns the profile of plan mode: only `scratch` is writable, and there is no network.
    ///
    /// Protected paths stay protected, even inside `scratch`.
    pub fn plan(&self, scratch: PathBuf) -> Self {
        Self {
            mode: SandboxMode::ReadOnly,
            writable_roots: Vec::new(),
            temporary_roots: Vec::new(),
            scratch: Some(scratch),
            protected: self.protected.clone(),
            network: false,
        }
    }

    /// Returns whether this is a profile of plan mode.
    pub fn is_of_plan_mode(&self) -> bool {
        self.scratch.is_some()
    }

    /// Returns the writable directories; with full access, the root.
    pub fn writable(&self) -> Vec<&Path> {
        match self.mode {
            SandboxMode::ReadOnly => self.scratch.iter().map(PathBuf::as_path).collect(),
            SandboxMode::WorkspaceWrite => self
                .writable_roots
                .iter()
                .chain(&self.temporary_roots)
                .map(PathBuf::as_path)
                .collect(),
            SandboxMode::DangerFullAccess => vec![Path::new("/")],
        }
    }

    /// Returns every directory that a model could write to under some mode, whatever the current one: what is
    /// there may be the model's work.
    pub fn within_reach(&self) -> impl Iterator<Item = &Path> {
        let roots = self.writable_roots.iter().chain(&self.temporary_roots).chain(&self.scratch);
        roots.map(PathBuf::as_path)
    }

    /// Returns what is read-only inside the writable directories, whether it exists or not: the paths of
    /// [`Self::protected_around_roots`], and the names directly inside temporary directories, where git would
    /// look for settings from every directory below.
    pub fn protected_paths(&self) -> Vec<PathBuf> {
        let mut paths = self.protected_around_roots();
        if self.mode == SandboxMode::WorkspaceWrite {
            let named = self
                .temporary_roots
                .iter()
                .flat_map(|root| PROTECTED_NAMES.map(|name| root.join(name)));
            paths.extend(named);
        }
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// Returns what is read-only directly inside the writable roots and their parents.
    ///
    /// A root may be inside another root or a temporary directory. A repository around it, or one created
    /// there, is where git would look for settings from inside the root.
    pub fn protected_around_roots(&self) -> Vec<PathBuf> {
        let roots: &[PathBuf] = match self.mode {
            SandboxMode::WorkspaceWrite => &self.writable_roots,
            SandboxMode::ReadOnly => &[],
            SandboxMode::DangerFullAccess => return Vec::new(),
        };
        let writable = self.writable();
        let open = |path: &Path| writable.iter().any(|root| path.starts_with(root));
        let mut around: Vec<&Path> =
            roots.iter().flat_map(|root| root.ancestors().take_while(|path| open(path))).collect();
        around.sort_unstable();
        around.dedup();
        let named = around.iter().flat_map(|root| PROTECTED_NAMES.map(|name| root.join(name)));
        named.chain(self.protected.iter().cloned()).collect()
    }

    /// Returns why a resolved path may not be written.
    pub fn obstacle(&self, path: &Path) -> Option<Obstacle> {
        if self.mode == SandboxMode::DangerFullAccess {
            return None;
        }
        if self.protected_paths().iter().any(|protected| holds(protected, path)) {
            return Some(Obstacle::Protected);
        }
        if self.writable().iter().any(|root| path.starts_with(root)) {
            return None;
        }
        Some(match self.mode {
            SandboxMode::ReadOnly => Obstacle::ReadOnly,
            SandboxMode::WorkspaceWrite | SandboxMode::DangerFullAccess => Obstacle::Outside,
        })
    }
}

/// Tells whether `protected` covers a path. Protected names match in any case, since some file systems ignore
/// case and there is no need for a `.GIT` next to a `.git` on the others.
pub(crate) fn holds(protected: &Path, path: &Path) -> bool {
    let (Some(parent), Some(name)) = (protected.parent(), protected.file_name()) else {
        return true;
    };
    let Ok(below) = path.strip_prefix(parent) else { return false };
    let Some(first) = below.components().next() else { return false };
    let first = first.as_os_str();
    first == name
        || (PROTECTED_NAMES.iter().any(|it| name == *it) && first.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Obstacle, Profile, SandboxMode};

    fn profile(mode: SandboxMode) -> Profile {
        Profile {
            mode,
            writable_roots: vec!["/w".into(), "/more".into()],
            temporary_roots: vec!["/tmp".into()],
            scratch: None,
            protected: vec!["/tmp/home".into()],
            network: false,
        }
    }

    #[track_caller]
    fn check(profile: &Profile, path: &str, want: Option<Obstacle>) {
        assert_eq!(profile.obstacle(Path::new(path)), want, "{:?} {path}", profile.mode);
    }

    #[test]
    fn writes() {
        use Obstacle::*;
        let read_only = profile(SandboxMode::ReadOnly);
        check(&read_only, "/w/a", Some(ReadOnly));
        check(&read_only, "/tmp/a", Some(ReadOnly));
        check(&profile(SandboxMode::DangerFullAccess), "/etc/passwd", None);
        let workspace = profile(SandboxMode::WorkspaceWrite);
        for free in ["/w/a", "/w", "/more/deep/a", "/tmp/a", "/tmp/x/.git/a", "/w/.gitignore"] {
            check(&workspace, free, None);
        }
        check(&workspace, "/w/sub/.git/x", None);
        for outside in ["/wide/a", "/etc/passwd", "/"] {
            check(&workspace, outside, Some(Outside));
        }
        for protected in [
            "/w/.git/hooks/x",
            "/w/.git",
            "/more/.heddle/c",
            "/tmp/home/rules/x",
            "/tmp/.git/config",
            "/tmp/.Heddle/rules/x",
        ] {
            check(&workspace, protected, Some(Protected));
        }
    }

    #[test]
    fn around_a_root() {
        use Obstacle::*;
        let around = Profile {
            writable_roots: vec!["/tmp/x/w".into(), "/more/deep/w".into(), "/more".into()],
            ..profile(SandboxMode::WorkspaceWrite)
        };
        for protected in [
            "/tmp/x/.git/hooks/x",
            "/tmp/x/.heddle/rules/x",
            "/tmp/.git",
            "/tmp/.codex/x",
            "/more/deep/.git/config",
            "/more/.aws/x",
            "/tmp/x/w/.GIT/config",
            "/tmp/.Heddle",
        ] {
            check(&around, protected, Some(Protected));
        }
        for free in ["/tmp/x/.github/x", "/tmp/y/.git/x", "/more/other/.git/x", "/tmp/x/w/s/.git/x"]
        {
            check(&around, free, None);
        }
        check(&around, "/.git", Some(Outside));
        check(&around, "/TMP/x/.git", Some(Outside));
    }

    #[test]
    fn plans() {
        use Obstacle::*;
        let plan = profile(SandboxMode::WorkspaceWrite).plan(PathBuf::from("/tmp"));
        check(&plan, "/tmp/notes", None);
        check(&plan, "/tmp/home/rules/x", Some(Protected));
        check(&plan, "/w/a", Some(ReadOnly));
        assert!(!plan.network);
    }
}
