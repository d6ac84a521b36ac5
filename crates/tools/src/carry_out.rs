//! Carries out planned edits on disk: all of them, or none.
//!
//! Every new file is first written beside its place; what can run out (space, permission) runs out
//! there. Then files are swapped in, and each step notes how to take it back. If one fails, the
//! others are taken back, newest first; what could not be put back is kept beside its place and named.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use patch::{Edit, WriteKind};

/// An edit and the real place it is about.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    pub(crate) edit: &'a Edit,
    /// For a write, with every link followed; for a removal, with the last one kept, because removing
    /// a link must not remove what it points to.
    pub(crate) place: PathBuf,
}

/// Why the edits were not carried out.
#[derive(Debug, thiserror::Error)]
#[error("failed to {what} {}: {source}; {}", path.display(), aftermath(stranded))]
pub(crate) struct CarryError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
    /// Backups that could not be put back.
    stranded: Vec<PathBuf>,
}

/// Performs the steps, or none of them.
pub(crate) fn carry_out(steps: &[Step<'_>]) -> Result<(), CarryError> {
    let mut work = Work::default();
    let done = work.stage(steps).and_then(|staged| work.swap(steps, staged));
    match done {
        Ok(()) => {
            work.keep();
            Ok(())
        }
        Err(mut error) => {
            error.stranded = work.take_back();
            Err(error)
        }
    }
}

fn aftermath(stranded: &[PathBuf]) -> String {
    if stranded.is_empty() {
        return "nothing was changed".to_owned();
    }
    let names: Vec<_> = stranded.iter().map(|path| path.display().to_string()).collect();
    format!("the old contents could not be put back and are in {}", names.join(", "))
}

/// What was done so far.
#[derive(Default)]
struct Work {
    undo: Vec<Undo>,
    /// Numbers the names of our own files.
    names: u64,
}

enum Undo {
    /// A new file that waits beside its place.
    Staged(PathBuf),
    /// A file that was not there before.
    Created(PathBuf),
    /// A directory that was not there before.
    Directory(PathBuf),
    /// What was at `place` is at `backup` too, or only there.
    Replaced { backup: PathBuf, place: PathBuf },
    /// What `place` held is at `backup`.
    Overwritten { backup: PathBuf, place: PathBuf },
}

/// How a staged file gets to its place.
struct Staged {
    beside: PathBuf,
    /// Whether the old file must stay and only its contents change.
    in_place: bool,
}

impl Work {
    /// Writes every new file beside its place; none for a removal.
    fn stage(&mut self, steps: &[Step<'_>]) -> Result<Vec<Option<Staged>>, CarryError> {
        steps.iter().map(|step| self.stage_one(step)).collect()
    }

    fn stage_one(&mut self, step: &Step<'_>) -> Result<Option<Staged>, CarryError> {
        let Edit::Write { contents, kind, .. } = step.edit else { return Ok(None) };
        let place = &step.place;
        let existing = fs::metadata(place).ok();
        // A rename would replace a file that cannot be written; that is not what its mode asks.
        if existing.as_ref().is_some_and(|found| found.mode() & 0o222 == 0) {
            return Err(failed("write", place)(io::ErrorKind::PermissionDenied.into()));
        }
        self.make_parents(place).map_err(failed("make a directory for", place))?;
        let mode = match (kind, &existing) {
            // A file that moves takes its mode along.
            (WriteKind::Move { from }, _) => fs::metadata(from).ok().map(|found| found.mode()),
            (_, Some(found)) => Some(found.mode()),
            (_, None) => None,
        };
        let beside = self.free_name(place);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            // What is to be private is never seen by others, not even while it is written.
            .mode(if mode.is_some() { 0o600 } else { 0o666 })
            .open(&beside)
            .map_err(failed("write", place))?;
        self.undo.push(Undo::Staged(beside.clone()));
        file.write_all(contents).map_err(failed("write", place))?;
        let mut in_place = false;
        if let Some(found) = existing {
            // A rename gives a file a new owner and takes it from its other names; then the old
            // file gets the new contents instead.
            in_place =
                found.nlink() > 1 || fchown(&file, Some(found.uid()), Some(found.gid())).is_err();
        }
        if let Some(mode) = mode {
            let mode = fs::Permissions::from_mode(mode & 0o7777);
            file.set_permissions(mode).map_err(failed("write", place))?;
        }
        Ok(Some(Staged { beside, in_place }))
    }

    /// Puts the staged files into their places and removes what goes.
    fn swap(&mut self, steps: &[Step<'_>], staged: Vec<Option<Staged>>) -> Result<(), CarryError> {
        let written: HashSet<_> = steps
            .iter()
            .filter(|step| matches!(step.edit, Edit::Write { .. }))
            .map(|step| step.place.as_path())
            .collect();
        for (step, staged) in steps.iter().zip(staged) {
            match staged {
                Some(staged) => self.put(&step.place, &staged)?,
                // A move whose destination is its source under another name has just written it.
                None if written.contains(step.place.as_path()) => {}
                None => self.remove(&step.place)?,
            }
        }
        Ok(())
    }

    fn put(
        &mut self,
        place: &Path,
        Staged { beside, in_place }: &Staged,
    ) -> Result<(), CarryError> {
        if *in_place {
            let backup = self.free_name(place);
            self.undo.push(Undo::Staged(backup.clone()));
            fs::copy(place, &backup).map_err(failed("write", place))?;
            // From here on the copy is worth keeping.
            self.undo.pop();
            self.undo.push(Undo::Overwritten { backup, place: place.to_owned() });
            return overwrite(beside, place).map_err(failed("write", place));
        }
        if place.exists() {
            let backup = self.free_name(place);
            self.undo.push(Undo::Staged(backup.clone()));
            fs::hard_link(place, &backup)
                .or_else(|_| fs::copy(place, &backup).map(drop))
                .map_err(failed("write", place))?;
            fs::rename(beside, place).map_err(failed("write", place))?;
            self.undo.pop();
            self.undo.push(Undo::Replaced { backup, place: place.to_owned() });
        } else {
            fs::rename(beside, place).map_err(failed("write", place))?;
            self.undo.push(Undo::Created(place.to_owned()));
        }
        Ok(())
    }

    fn remove(&mut self, place: &Path) -> Result<(), CarryError> {
        let backup = self.free_name(place);
        fs::rename(place, &backup).map_err(failed("delete", place))?;
        self.undo.push(Undo::Replaced { backup, place: place.to_owned() });
        Ok(())
    }

    /// Makes it final.
    fn keep(self) {
        for undo in self.undo {
            match undo {
                // What cannot be removed is litter, not a failure; what was renamed is gone already.
                Undo::Staged(path)
                | Undo::Replaced { backup: path, .. }
                | Undo::Overwritten { backup: path, .. } => {
                    let _ = fs::remove_file(path);
                }
                Undo::Created(_) | Undo::Directory(_) => {}
            }
        }
    }

    /// Takes back everything, newest first; returns the backups that could not be put back.
    fn take_back(self) -> Vec<PathBuf> {
        let mut stranded = Vec::new();
        for undo in self.undo.into_iter().rev() {
            match undo {
                // There is nobody left to tell about litter: the error that led here is reported.
                Undo::Staged(path) | Undo::Created(path) => {
                    let _ = fs::remove_file(path);
                }
                Undo::Directory(path) => {
                    let _ = fs::remove_dir(path);
                }
                Undo::Replaced { backup, place } => {
                    if fs::rename(&backup, place).is_err() {
                        stranded.push(backup);
                    }
                }
                Undo::Overwritten { backup, place } => match overwrite(&backup, &place) {
                    Ok(()) => {
                        let _ = fs::remove_file(backup);
                    }
                    Err(_) => stranded.push(backup),
                },
            }
        }
        stranded
    }

    fn make_parents(&mut self, path: &Path) -> io::Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        if parent.is_dir() {
            return Ok(());
        }
        self.make_parents(parent)?;
        fs::create_dir(parent)?;
        self.undo.push(Undo::Directory(parent.to_owned()));
        Ok(())
    }

    /// Finds a name beside `path` that nothing has.
    fn free_name(&mut self, path: &Path) -> PathBuf {
        let process = std::process::id();
        loop {
            let name = format!(".heddle-patch-{process}-{}.tmp", self.names);
            self.names += 1;
            let candidate = path.with_file_name(name);
            if candidate.symlink_metadata().is_err() {
                return candidate;
            }
        }
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CarryError {
    move |source| CarryError { what, path: path.to_owned(), source, stranded: Vec::new() }
}

/// Gives a file the contents of another.
fn overwrite(from: &Path, to: &Path) -> io::Result<()> {
    let contents = fs::read(from)?;
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(to)?;
    file.write_all(&contents)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use patch::{Edit, WriteKind};

    use super::{Step, carry_out};

    fn write(directory: &Path, name: &str, kind: WriteKind) -> Edit {
        Edit::Write { path: directory.join(name), contents: b"new".to_vec(), kind }
    }

    fn tree(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory").map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() {
                format!("{name}/")
            } else {
                name + "=" + &fs::read_to_string(&path).expect("text")
            }
        });
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    }

    #[test]
    fn a_step_that_fails_takes_back_those_before_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        for name in ["replaced", "linked", "removed"] {
            fs::write(root.join(name), "old").expect("a file");
        }
        fs::hard_link(root.join("linked"), root.join("other")).expect("a link");
        let before = tree(root);
        let edits = [
            write(root, "replaced", WriteKind::Update),
            write(root, "linked", WriteKind::Update),
            write(root, "made/deep/file", WriteKind::Add),
            Edit::Remove { path: root.join("removed") },
            // Not there any more when its turn comes.
            Edit::Remove { path: root.join("missing") },
        ];
        let steps: Vec<_> =
            edits.iter().map(|edit| Step { edit, place: edit.path().to_owned() }).collect();
        let error = carry_out(&steps).expect_err("nothing can be removed twice").to_string();
        assert!(
            error.contains("failed to delete") && error.contains("nothing was changed"),
            "{error}"
        );
        assert_eq!(tree(root), before);
        carry_out(&steps[..4]).expect("without the last it works");
        assert_eq!(tree(root), ["linked=new", "made/", "other=new", "replaced=new"]);
    }
}
