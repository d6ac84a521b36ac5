//! Runs one process under a profile: the only place in heddle that starts processes for a model.
//!
//! A process gets a session of its own, so that everything it starts can be ended with it, and
//! either one pipe for both output streams or a terminal. The profile is carried but not yet
//! enforced: until it is, [`enforced`] says so and the caller tells the user.

mod process;
mod pty;
mod sandbox;

pub use process::{Connection, Group, Io, Process, SpawnError, SpawnRequest};
pub use sandbox::{Level, Sandbox};

use policy::SandboxMode;

/// Tells whether the mode is enforced on this machine.
pub fn enforced(mode: SandboxMode) -> bool {
    mode == SandboxMode::DangerFullAccess
}
