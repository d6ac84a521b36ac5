//! An in-memory file system for tests that perform a plan.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use patch::{Edit, FileState, Patch, Plan};

/// The directory that the patches are relative to.
pub(crate) const BASE: &str = if cfg!(windows) { "C:\\ws" } else { "/ws" };

/// Files by absolute path; a directory exists if a file is below it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Memory(pub(crate) BTreeMap<PathBuf, Vec<u8>>);

impl Memory {
    pub(crate) fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let absolute = |(path, bytes): (&str, &[u8])| (Path::new(BASE).join(path), bytes.to_vec());
        Self(files.into_iter().map(absolute).collect())
    }

    pub(crate) fn read(&self, path: &Path) -> io::Result<FileState> {
        Ok(match self.0.get(path) {
            Some(bytes) => FileState::File(bytes.clone()),
            None if self.0.keys().any(|file| file.starts_with(path)) => FileState::NotAFile,
            None => FileState::Missing,
        })
    }

    /// Parses, plans and performs, or returns the error and changes nothing.
    pub(crate) fn apply(&mut self, text: &str) -> Result<Plan, String> {
        let patch = Patch::parse(text).map_err(|error| error.to_string())?;
        let plan = Plan::new(&patch, Path::new(BASE), |path| self.read(path))
            .map_err(|error| error.to_string())?;
        for edit in plan.edits() {
            match edit {
                Edit::Write { path, contents, .. } => self.0.insert(path.clone(), contents.clone()),
                Edit::Remove { path } => self.0.remove(path),
            };
        }
        Ok(plan)
    }
}
