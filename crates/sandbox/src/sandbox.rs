//! How processes are kept to their profile on this machine.

use std::path::{Path, PathBuf};

use crate::limits::Limits;
use crate::os;

/// What keeps processes to their profile, the better first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Own user, mount, process, network and IPC namespaces, and a system call filter.
    Namespaces,
    /// Landlock and a system call filter.
    Landlock,
}

impl Level {
    /// All of them, the better first.
    pub const ALL: [Self; 2] = [Self::Namespaces, Self::Landlock];

    /// Returns the name that users read.
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

/// The means of this machine to keep processes to their profile.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// The program that builds the sandbox: one whose `main` begins with [`crate::helper_main`].
    pub helper: PathBuf,
    /// What it builds it with; none for threads that run without one.
    pub level: Option<Level>,
    /// Directories whose files no command can open: those with the locks that our own processes take, since
    /// a file that can be read can be locked. They should exist, or they are not hidden once they do.
    pub hidden: Vec<PathBuf>,
    /// Where those who build sandboxes lock what they share, one of the hidden directories. Without one they
    /// lock the very directories that stand for missing protected names, which any command can do, too.
    pub locks: Option<PathBuf>,
    /// How much one command may use.
    pub limits: Limits,
}

/// How often a level is tried before it counts as one that does not work.
const TRIALS: u32 = 3;

/// Tries a level out. Directories that come and go while it is built can make one trial fail, and what
/// is found is believed for long.
fn try_out(helper: &Path, level: Level) -> Result<(), String> {
    let again = |tried: Result<(), String>, _| tried.or_else(|_| os::probe(helper, level));
    (1..TRIALS).fold(os::probe(helper, level), again)
}

/// No level can be had here, or not the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no sandbox can be built on this machine: {}; {remedy}", shown(reasons))]
pub struct Unavailable {
    /// What each level failed with.
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
    /// A sandbox that hides nothing and bounds nothing.
    pub fn new(helper: PathBuf, level: Option<Level>) -> Self {
        Self { helper, level, hidden: Vec::new(), locks: None, limits: Limits::default() }
    }

    /// A machine on which nothing is kept to anything: only commands with full access can run.
    pub fn none() -> Self {
        Self::new(PathBuf::new(), None)
    }

    /// Finds the best level that works here by building a sandbox of it and trying it out.
    ///
    /// What was found is noted in the file `cache` and believed until the machine is started anew,
    /// so the file must be where no sandboxed process can write.
    pub fn find(helper: PathBuf, cache: Option<&Path>) -> Result<Self, Unavailable> {
        if let Some(level) = cache.and_then(|cache| os::recall(&helper, cache)) {
            return Ok(Self::new(helper, Some(level)));
        }
        let mut reasons = Vec::new();
        for level in Level::ALL {
            match try_out(&helper, level) {
                Ok(()) => {
                    if let Some(cache) = cache {
                        os::note(&helper, cache, level);
                    }
                    return Ok(Self::new(helper, Some(level)));
                }
                Err(reason) => reasons.push((level, reason)),
            }
        }
        Err(Unavailable { reasons, remedy: os::remedy() })
    }

    /// Tries out one level.
    pub fn with_level(helper: PathBuf, level: Level) -> Result<Self, Unavailable> {
        match try_out(&helper, level) {
            Ok(()) => Ok(Self::new(helper, Some(level))),
            Err(reason) => {
                Err(Unavailable { reasons: vec![(level, reason)], remedy: os::remedy() })
            }
        }
    }
}
