//! Finding the thread that a user means.

use anyhow::anyhow;
use protocol::id::ThreadId;
use store::index::{self, Index};

use crate::bootstrap::World;
use crate::failure::Failure;

/// Finds a thread by its id, the beginning of its id, or its name.
pub(crate) fn thread(world: &World, text: &str) -> Result<ThreadId, Failure> {
    // Whoever knows the whole id needs no index.
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let mut index = Index::open(&world.home, |_| {}).map_err(Failure::failed)?;
    index.resolve(text).map_err(Failure::usage)
}

/// Finds the thread that was last written to: of the working directory, or of all.
pub(crate) fn last(world: &World, all: bool) -> Result<ThreadId, Failure> {
    let directory = world.directory.display().to_string();
    let cwd = (!all).then_some(directory.as_str());
    index::last(&world.home, cwd).ok_or_else(|| {
        Failure::usage(match all {
            true => anyhow!("there is no thread yet"),
            false => anyhow!("there is no thread of {directory} yet; --all takes those of others"),
        })
    })
}
