//! Runs one process under a profile: the only place in heddle that starts processes for a model.
//!
//! A process gets its own session and one pipe for both output streams, one for each, or a terminal. It runs in a
//! sandbox that enforces the profile of its permit, and everything it starts is killed with it. If the
//! sandbox cannot be built, nothing runs.
//!
//! The implementation is platform-specific and mounted as the module `os`; only Linux has one.

mod limits;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;
mod process;
mod protected;
#[cfg(target_os = "linux")]
pub mod prove;
mod pty;
mod sandbox;
mod scene;
#[cfg(target_os = "linux")]
mod spec;

#[cfg(target_os = "linux")]
use linux as os;
#[cfg(not(target_os = "linux"))]
use other as os;

pub use limits::{Limits, Overrun};
pub use process::{Connection, Given, Group, Io, Process, SpawnError, SpawnRequest, TerminalSize};
pub use protected::{Unresolved, protected, protected_below};
pub use sandbox::{Level, Sandbox, Unavailable};
pub use scene::{outside_env, scene};

/// Builds a sandbox and runs a command in it, if this process was started for that. Must come first in the
/// `main` of every program that is the helper of a [`Sandbox`].
pub fn helper_main() -> Option<std::process::ExitCode> {
    os::helper_main()
}
