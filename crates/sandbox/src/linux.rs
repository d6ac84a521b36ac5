//! The sandbox on Linux.
//!
//! ```text
//! agent ─exec▶ supervisor ─clone▶ first process of the namespaces ─fork▶ command
//!              creates guards      sets up mounts, reaps orphans          drops its remaining
//!              forwards signals    exits ⇒ the kernel kills all inside    privileges, then execs
//! ```
//!
//! With Landlock there are no namespaces: the process in the middle is a subreaper instead, and kills
//! whatever the command leaves behind.

mod filter;
mod guards;
mod helper;
mod landlock;
mod meter;
mod mounts;
mod plan;
mod probe;
mod spawn;
mod sys;

use std::fmt;
use std::io;

pub(crate) use helper::helper_main;
pub(crate) use meter::resource_of;
pub(crate) use probe::{probe, read_cache, remedy, write_cache};
pub(crate) use spawn::{command, wait_started};
pub(crate) use sys::{close_on_exec_from_3, memory_bytes};

/// The name under which our program builds a sandbox.
pub(crate) const HELPER_NAME: &str = "heddle-sandbox";
/// Why a command could not be started.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) kind: TroubleKind,
    /// The step that failed.
    pub(crate) what: String,
    pub(crate) error: io::Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TroubleKind {
    Setup,
    Directory,
    Program,
}

impl Trouble {
    pub(crate) fn setup(what: impl Into<String>, error: io::Error) -> Self {
        Self { kind: TroubleKind::Setup, what: what.into(), error }
    }

    /// Serializes it for the agent: kind, error number, and the step that failed.
    pub(crate) fn to_line(&self) -> String {
        let kind = match self.kind {
            TroubleKind::Setup => "setup",
            TroubleKind::Directory => "directory",
            TroubleKind::Program => "program",
        };
        match self.error.raw_os_error() {
            Some(number) => format!("{kind} {number} {}", self.what),
            None => format!("{kind} 0 {}: {}", self.what, self.error),
        }
    }

    /// Parses the output of [`Trouble::to_line`].
    pub(crate) fn from_line(line: &str) -> Self {
        let mut parts = line.splitn(3, ' ');
        let kind = match parts.next() {
            Some("directory") => TroubleKind::Directory,
            Some("program") => TroubleKind::Program,
            _ => TroubleKind::Setup,
        };
        let number = parts.next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let what = parts.next().unwrap_or_default().to_owned();
        let error = match number {
            0 => io::Error::other("it cannot be done"),
            number => io::Error::from_raw_os_error(number),
        };
        Self { kind, what, error }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.what, self.error)
    }
}
