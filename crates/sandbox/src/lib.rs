//! Runs one process under a profile: the only place in heddle that starts processes for a model.
//!
//! A process gets a session of its own and either one pipe for both output streams or a terminal. It
//! runs inside of a sandbox that keeps it to the profile of its permit, and everything that it starts
//! ends with it. If the sandbox cannot be built, nothing runs.
//!
//! What builds sandboxes is a part of the operating system's module, mounted as `os`; Linux has one.

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
pub use process::{Connection, Group, Io, Process, SpawnError, SpawnRequest};
pub use protected::{Unresolved, protected, protected_below};
pub use sandbox::{Level, Sandbox, Unavailable};
pub use scene::{outside_env, scene};

/// Builds a sandbox and runs a command in it, if this process was started for that; must come first in
/// the `main` of every program whose path is the helper of a [`Sandbox`].
pub fn helper_main() -> Option<std::process::ExitCode> {
    os::helper_main()
}
