//! The temporary directory that commands can write to in plan mode.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The temporary directory of a thread in plan mode, removed when the thread is closed.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory that only this user can read.
    pub(crate) fn new() -> Result<Self, Error> {
        let parent = std::env::temp_dir();
        let refused = |error: io::Error| {
            Error::settings(format!(
                "plan mode needs a directory for temporary files, and none can be made in {}: {error}; set TMPDIR to one \
                 that can be written",
                parent.display()
            ))
        };
        let parent = parent.canonicalize().map_err(refused)?;
        let mut name = [0; 8];
        getrandom::getrandom(&mut name).map_err(Error::no_random_numbers)?;
        let path = parent.join(format!("heddle-plan-{:016x}", u64::from_le_bytes(name)));
        DirBuilder::new().mode(0o700).create(&path).map_err(refused)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left of it is of no use, and in nobody's way.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
