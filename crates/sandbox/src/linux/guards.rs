//! Empty directories that stand where something protected does not exist yet, so that a mount can
//! keep anything from being made there.
//!
//! They exist while a command runs. Each is held by a shared lock of every supervisor that uses it,
//! and removed by the last; one that a killed supervisor left behind is known by being empty and
//! closed to its owner, and taken over.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::linux::Trouble;
use crate::linux::plan::below;
use crate::linux::sys;

/// No other program makes directories of this mode for its own use.
const MODE: u32 = 0o555;
/// Links of a protected path that are followed.
const LINKS_MAX: usize = 8;
/// Bytes of a `.git` file that are read.
const GIT_FILE_BYTES_MAX: u64 = 4096;
/// How often a guard that vanishes under our hands is made again.
const TRIES_MAX: usize = 32;

/// The protected paths of one sandbox, all of which exist.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    /// What must be mounted read-only.
    pub(crate) protected: Vec<PathBuf>,
    held: Vec<(PathBuf, File)>,
}

impl Guards {
    /// Finds what is protected inside of the writable directories, and makes what does not exist.
    pub(crate) fn place(writable: &[PathBuf], protected: &[PathBuf]) -> Result<Self, Trouble> {
        let mut guards = Self::default();
        for path in meant(writable, protected) {
            let trouble = |error| Trouble::setup(format!("protecting {}", path.display()), error);
            match path.symlink_metadata() {
                Ok(found) => {
                    if ours(&path, &found) {
                        guards.hold(&path).map_err(trouble)?;
                    }
                    guards.protected.push(path);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let first = first_missing(&path);
                    if guards.hold(&first).map_err(trouble)? {
                        guards.protected.push(first);
                    }
                }
                // Whom we may not look at, nobody inside may write either.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
                Err(error) => return Err(trouble(error)),
            }
        }
        Ok(guards)
    }

    /// Removes what was made, unless another sandbox uses it too.
    pub(crate) fn remove(self) {
        for (path, file) in self.held {
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                // Not empty any more means that it is somebody's; then it stays.
                let _ = fs::remove_dir(path);
            }
        }
    }

    /// Makes a guard, or takes part in one; false if nobody could make anything there.
    fn hold(&mut self, path: &Path) -> io::Result<bool> {
        if self.held.iter().any(|(held, _)| held == path) {
            return Ok(true);
        }
        if path.parent().is_some_and(|parent| sys::open_place(parent).is_err()) {
            return Err(io::Error::other("a link has taken the place of a directory"));
        }
        for _ in 0..TRIES_MAX {
            match DirBuilder::new().mode(MODE).create(path) {
                // The mode that was asked for may have been narrowed by ours.
                Ok(()) => fs::set_permissions(path, Permissions::from_mode(MODE))?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                        return Ok(false);
                    }
                    _ => return Err(error),
                },
            }
            let file = match File::open(path) {
                Ok(file) => file,
                // The last user has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            flock(&file, FlockOperation::LockShared)?;
            let locked = file.metadata()?;
            if path.symlink_metadata().is_ok_and(|now| now.ino() == locked.ino()) {
                self.held.push((path.to_owned(), file));
                return Ok(true);
            }
        }
        Err(io::Error::other("it is made and removed over and over by somebody else"))
    }
}

/// Finds the protected paths inside of the writable directories, and with each what its name stands
/// for; none of them need exist.
pub(crate) fn meant(writable: &[PathBuf], protected: &[PathBuf]) -> BTreeSet<PathBuf> {
    let roots: BTreeSet<&Path> = writable.iter().map(PathBuf::as_path).collect();
    let inside = protected.iter().filter(|path| below(path, &roots));
    let mut open: Vec<(PathBuf, usize)> = inside.map(|path| (path.clone(), 0)).collect();
    let mut all = BTreeSet::new();
    while let Some((path, links)) = open.pop() {
        if links < LINKS_MAX
            && let Ok(found) = path.symlink_metadata()
        {
            // What cannot be written anyway needs no protection.
            let meant = meaning(&path, &found).filter(|meant| below(meant, &roots));
            open.extend(meant.map(|meant| (meant, links + 1)));
        }
        all.insert(path);
    }
    all
}

/// Tells whether a directory is a guard that was left behind.
fn ours(path: &Path, found: &fs::Metadata) -> bool {
    found.is_dir()
        && found.mode() & 0o7777 == MODE
        && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Finds what a name stands for: the target of a link, or the directory that a `.git` file names.
fn meaning(path: &Path, found: &fs::Metadata) -> Option<PathBuf> {
    let parent = path.parent()?;
    if found.is_symlink() {
        let target = parent.join(fs::read_link(path).ok()?);
        // A target that does not exist is protected where it would be.
        return target.canonicalize().ok().or_else(|| normal(&target));
    }
    if found.is_file() && path.ends_with(".git") && found.len() <= GIT_FILE_BYTES_MAX {
        let text = fs::read_to_string(path).ok()?;
        let named = text.strip_prefix("gitdir:")?.trim();
        return parent.join(named).canonicalize().ok();
    }
    None
}

/// Resolves the directory of a path whose last part does not exist.
fn normal(path: &Path) -> Option<PathBuf> {
    Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
}

/// Finds the first part of a path that does not exist.
fn first_missing(path: &Path) -> PathBuf {
    let missing = path.ancestors().take_while(|part| part.symlink_metadata().is_err());
    missing.last().unwrap_or(path).to_owned()
}
