//! The sandbox of Linux.
//!
//! ```text
//! agent ─exec▶ supervisor ─clone▶ first process of the namespaces ─fork▶ command
//!              makes guards        makes the mounts, reaps orphans        drops what is left of its
//!              passes signals on   ends ⇒ the kernel ends all inside      rights, then becomes it
//! ```
//!
//! With Landlock there is no first process: the command is the supervisor's own child, which reaps
//! and ends whatever the command leaves behind.

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
pub(crate) use probe::{note, probe, recall, remedy};
pub(crate) use spawn::{begun, command};
pub(crate) use sys::{close_on_exec_from_3, memory_bytes};

/// The name under which our program builds a sandbox.
pub(crate) const HELPER_NAME: &str = "heddle-sandbox";
/// What kept a command from beginning.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) kind: TroubleKind,
    /// What was being done.
    pub(crate) what: String,
    pub(crate) error: io::Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TroubleKind {
    /// The sandbox cannot be built.
    Setup,
    /// The working directory cannot be used.
    Directory,
    /// The program cannot be run.
    Program,
}

impl Trouble {
    pub(crate) fn setup(what: impl Into<String>, error: io::Error) -> Self {
        Self { kind: TroubleKind::Setup, what: what.into(), error }
    }

    /// Writes it down for the agent: kind, number of the error, and what was being done.
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

    /// Reads what [`Trouble::to_line`] has written.
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
