//! How processes are kept to their profile on this machine.

use std::path::PathBuf;

/// What keeps processes to their profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Own user, mount, process, network and IPC namespaces, and a system call filter.
    Namespaces,
    /// Landlock and a system call filter.
    Landlock,
}

impl Level {
    /// Returns the name that users read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Landlock => "landlock",
        }
    }
}

/// The means of this machine to keep processes to their profile.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// The program that builds the sandbox and then becomes the command: a heddle.
    pub helper: PathBuf,
    /// What it builds it with; none for threads that run without one.
    pub level: Option<Level>,
}
