//! Finds the thread that a user refers to.

use anyhow::anyhow;
use heddle::Heddle;
use heddle::threads::index::{CatalogError, Index, ResolveError};
use protocol::id::ThreadId;

use crate::failure::{Failure, LISTED};
use crate::progress;

/// Opens the index; shows progress if it is rebuilt.
pub(crate) fn index(heddle: &Heddle) -> Result<Index, Failure> {
    heddle.threads().index(progress::bar("reading threads")).map_err(index_failure)
}

/// Finds a thread by its id, a prefix of its id, or its name.
pub(crate) fn thread(heddle: &Heddle, text: &str) -> Result<ThreadId, Failure> {
    // A full id needs no index.
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    index(heddle)?.resolve(text).map_err(|error| match error {
        ResolveError::Index(error) => index_failure(error),
        error @ ResolveError::Unknown(_) => Failure::usage(error).with_advice(LISTED),
        error => Failure::usage(error),
    })
}

/// Finds the most recently written thread: of the working directory, or of all.
pub(crate) fn last(heddle: &Heddle, all: bool) -> Result<ThreadId, Failure> {
    let directory = heddle.directory().display().to_string();
    let cwd = (!all).then_some(directory.as_str());
    heddle::threads::index::last(heddle.home(), cwd).ok_or_else(|| {
        Failure::usage(match all {
            true => anyhow!("there is no thread yet; `heddle exec` starts one"),
            false => {
                anyhow!("there is no thread in {directory} yet; --all includes other directories")
            }
        })
    })
}

pub(crate) fn index_failure(error: CatalogError) -> Failure {
    match error {
        CatalogError::Failed(_) => Failure::failed(error),
        CatalogError::Expression(_) => {
            Failure::usage(error).with_advice("omit --raw to search for plain words")
        }
        CatalogError::TooLong | CatalogError::Order => Failure::usage(error),
    }
}
