//! How profiles are enforced on this machine.

use std::path::{Path, PathBuf};

use crate::limits::Limits;
use crate::os;

/// The mechanism that enforces a profile, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// User, mount, process, network and IPC namespaces, and a system call filter.
    Namespaces,
    /// Landlock and a system call filter.
    Landlock,
}

impl Level {
    /// All levels, best first.
    pub const ALL: [Self; 2] = [Self::Namespaces, Self::Landlock];

    /// Returns the name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Landlock => "landlock",
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name().as_bytes() == name)
    }
}

/// How this machine enforces profiles.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// The program that builds the sandbox: one whose `main` begins with [`crate::helper_main`].
    pub helper: PathBuf,
    /// The mechanism to use; `None` for threads without a sandbox.
    pub level: Option<Level>,
    /// Directories whose files no command can open: those that contain heddle's own locks, since any readable
    /// file can be locked. They should exist, because directories created later are not hidden.
    pub hidden: Vec<PathBuf>,
    /// Where supervisors lock what they share; one of the hidden directories. Without it they lock the guard
    /// directories themselves, which any command can do, too.
    pub locks: Option<PathBuf>,
    /// Resource limits of one command.
    pub limits: Limits,
}

/// How often a level is tried before it counts as not working.
const TRIALS: u32 = 3;

/// Tries a level. Directories that come and go meanwhile can make one trial fail, and the result is cached
/// for long.
fn try_out(helper: &Path, level: Level) -> Result<(), String> {
    let again = |tried: Result<(), String>, _| tried.or_else(|_| os::probe(helper, level));
    (1..TRIALS).fold(os::probe(helper, level), again)
}

/// No level works here, or not the requested one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no sandbox can be built on this machine: {}; {remedy}", shown(reasons))]
pub struct Unavailable {
    /// Why each level failed.
    pub reasons: Vec<(Level, String)>,
    /// What the user can do about it.
    pub remedy: String,
}

fn shown(reasons: &[(Level, String)]) -> String {
    let shown: Vec<_> =
        reasons.iter().map(|(level, reason)| format!("{}: {reason}", level.name())).collect();
    shown.join("; ")
}

impl Sandbox {
    /// Creates a sandbox without hidden directories or limits.
    pub fn new(helper: PathBuf, level: Option<Level>) -> Self {
        Self { helper, level, hidden: Vec::new(), locks: None, limits: Limits::default() }
    }

    /// A machine without a sandbox: only commands with full access can run.
    pub fn none() -> Self {
        Self::new(PathBuf::new(), None)
    }

    /// Finds the best level that works here by building a sandbox and trying it.
    ///
    /// The result is cached in the file `cache` until the next boot, so the file must be where no sandboxed
    /// process can write.
    pub fn find(helper: PathBuf, cache: Option<&Path>) -> Result<Self, Unavailable> {
        if let Some(level) = cache.and_then(|cache| os::read_cache(&helper, cache)) {
            return Ok(Self::new(helper, Some(level)));
        }
        let mut reasons = Vec::new();
        for level in Level::ALL {
            match try_out(&helper, level) {
                Ok(()) => {
                    if let Some(cache) = cache {
                        os::write_cache(&helper, cache, level);
                    }
                    return Ok(Self::new(helper, Some(level)));
                }
                Err(reason) => reasons.push((level, reason)),
            }
        }
        Err(Unavailable { reasons, remedy: os::remedy() })
    }

    /// Tries one level.
    pub fn with_level(helper: PathBuf, level: Level) -> Result<Self, Unavailable> {
        match try_out(&helper, level) {
            Ok(()) => Ok(Self::new(helper, Some(level))),
            Err(reason) => {
                Err(Unavailable { reasons: vec![(level, reason)], remedy: os::remedy() })
            }
        }
    }
}
