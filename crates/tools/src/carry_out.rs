//! Applies planned edits to the disk: all of them, or none.
//!
//! Every new file is first written next to its destination, so running out of space or lacking permission
//! shows up there. Then the files are swapped in, and each step records how to undo it. If a step fails, the
//! earlier ones are undone, newest first; a backup that cannot be restored stays next to its destination and
//! is named in the error.
//!
//! Commands may run in the meantime, so a path is never resolved twice: every directory is opened once
//! without following links, and all operations are relative to the open directory ([`crate::spot`]).

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use patch::{Edit, WriteKind};
use policy::Permit;
use rustix::fs::{Mode, RawMode, fchmod, stat};

use crate::spot::{Spot, open_directory};

/// Most directories that one patch may touch; each is held open until the patch is done.
const DIRECTORIES_MAX: usize = 200;

/// An edit and the real path it applies to.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    pub(crate) edit: &'a Edit,
    /// For a write, with all links resolved; for a removal, with the last link kept, because removing a link
    /// must not remove its target.
    pub(crate) place: PathBuf,
}

/// Why the edits were not applied.
#[derive(Debug, thiserror::Error)]
#[error("failed to {what} {}: {source}; {}", path.display(), aftermath(stranded))]
pub(crate) struct CarryError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
    /// Backups that could not be restored.
    stranded: Vec<PathBuf>,
}

/// Performs all steps or none, as far as the permit allows.
pub(crate) fn carry_out(steps: &[Step<'_>], permit: &Permit) -> Result<(), CarryError> {
    carry_out_with(steps, permit, || {})
}

/// Like [`carry_out`], with a hook that runs after files are staged and before they are swapped.
fn carry_out_with(
    steps: &[Step<'_>],
    permit: &Permit,
    between: impl FnOnce(),
) -> Result<(), CarryError> {
    if let Some(step) = steps.iter().find(|step| permit.profile().obstacle(&step.place).is_some()) {
        let error = io::Error::other("there is no leave to write here");
        return Err(failed("write", &step.place)(error));
    }
    let mut work = Work::default();
    let done = work.stage(steps).and_then(|staged| {
        between();
        work.swap(steps, staged)
    });
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
    format!("the old contents could not be restored and are in {}", names.join(", "))
}

/// The steps done so far, with what is needed to undo them.
#[derive(Default)]
struct Work {
    directories: HashMap<PathBuf, Arc<OwnedFd>>,
    undo: Vec<Undo>,
    /// Counter for the names of our temporary files.
    names: u64,
}

enum Undo {
    /// A new file, next to its destination.
    Staged(Spot),
    /// A file that did not exist before.
    Created(Spot),
    /// A directory that did not exist before.
    Directory(Spot),
    /// The old content of `place` is also at `backup`, or only there.
    Replaced { backup: Spot, place: Spot },
    /// The old content of `place` was copied to `backup`.
    Overwritten { backup: Spot, place: Spot },
}

/// A staged change to one path.
enum Staged {
    /// The new file is next to its destination.
    Write { place: Spot, beside: Spot, in_place: bool },
    /// The file is removed.
    Remove { place: Spot },
}

impl Work {
    /// Opens every directory and writes every new file next to its destination.
    fn stage(&mut self, steps: &[Step<'_>]) -> Result<Vec<Staged>, CarryError> {
        steps.iter().map(|step| self.stage_one(step)).collect()
    }

    fn stage_one(&mut self, step: &Step<'_>) -> Result<Staged, CarryError> {
        let path = &step.place;
        let Edit::Write { contents, kind, .. } = step.edit else {
            let place = self.spot(path, false).map_err(failed("delete", path))?;
            return Ok(Staged::Remove { place });
        };
        let place = self.spot(path, true).map_err(failed("make a directory for", path))?;
        let existing = place.file().map_err(failed("write", path))?;
        // A rename would replace a read-only file, which its mode forbids.
        if existing.as_ref().is_some_and(|found| found.st_mode & 0o222 == 0) {
            return Err(failed("write", path)(io::ErrorKind::PermissionDenied.into()));
        }
        let mode = match (kind, &existing) {
            // A moved file keeps its mode.
            (WriteKind::Move { from }, _) => stat(from).ok().map(|found| found.st_mode),
            (_, Some(found)) => Some(found.st_mode),
            (_, None) => None,
        };
        // A private file is never readable by others, not even while it is written.
        let private = if mode.is_some() { 0o600 } else { 0o666 };
        let (beside, mut file) =
            self.create_beside(&place, private).map_err(failed("write", path))?;
        self.undo.push(Undo::Staged(beside.clone()));
        file.write_all(contents).map_err(failed("write", path))?;
        let mut in_place = false;
        if let Some(found) = existing {
            // A rename would change the owner and break hard links; in those cases the old file is
            // overwritten instead.
            in_place = found.st_nlink > 1
                || fchown(&file, Some(found.st_uid), Some(found.st_gid)).is_err();
        }
        if let Some(mode) = mode {
            set_mode(&file, mode).map_err(failed("write", path))?;
        }
        Ok(Staged::Write { place, beside, in_place })
    }

    /// Moves the staged files to their destinations and removes deleted files.
    fn swap(&mut self, steps: &[Step<'_>], staged: Vec<Staged>) -> Result<(), CarryError> {
        let written: HashSet<_> = steps
            .iter()
            .filter(|step| matches!(step.edit, Edit::Write { .. }))
            .map(|step| step.place.as_path())
            .collect();
        for staged in staged {
            match staged {
                Staged::Write { place, beside, in_place } => {
                    let path = place.path().to_owned();
                    self.put(place, beside, in_place).map_err(failed("write", &path))?;
                }
                // The destination of this move is its source under another name, and was just written.
                Staged::Remove { place } if written.contains(place.path()) => {}
                Staged::Remove { place } => {
                    let path = place.path().to_owned();
                    self.remove(place).map_err(failed("delete", &path))?;
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, place: Spot, beside: Spot, in_place: bool) -> io::Result<()> {
        let Some(found) = place.file()? else {
            beside.rename(&place)?;
            self.undo.push(Undo::Created(place));
            return Ok(());
        };
        if in_place {
            let backup = self.back_up(&place, found.st_mode)?;
            self.undo.push(Undo::Overwritten { backup, place: place.clone() });
            return beside.overwrite(&place);
        }
        let backup = self.free_name(&place);
        let backup = match place.link(&backup) {
            Ok(()) => backup,
            // Not every file system has hard links.
            Err(_) => self.back_up(&place, found.st_mode)?,
        };
        self.undo.push(Undo::Staged(backup.clone()));
        beside.rename(&place)?;
        self.undo.pop();
        self.undo.push(Undo::Replaced { backup, place });
        Ok(())
    }

    /// Copies a file to a name next to it; an incomplete copy is removed.
    fn back_up(&mut self, place: &Spot, mode: RawMode) -> io::Result<Spot> {
        let (backup, file) = self.create_beside(place, 0o600)?;
        let copied = place.read().and_then(|contents| {
            (&file).write_all(&contents)?;
            set_mode(&file, mode)
        });
        if let Err(error) = copied {
            let _ = backup.unlink();
            return Err(error);
        }
        Ok(backup)
    }

    fn remove(&mut self, place: Spot) -> io::Result<()> {
        let backup = self.free_name(&place);
        place.rename(&backup)?;
        self.undo.push(Undo::Replaced { backup, place });
        Ok(())
    }

    /// Makes the changes final.
    fn keep(self) {
        for undo in self.undo {
            match undo {
                // A leftover that cannot be removed is no failure; a renamed file is already gone.
                Undo::Staged(spot)
                | Undo::Replaced { backup: spot, .. }
                | Undo::Overwritten { backup: spot, .. } => {
                    let _ = spot.unlink();
                }
                Undo::Created(_) | Undo::Directory(_) => {}
            }
        }
    }

    /// Undoes everything, newest first; returns the backups that could not be restored.
    fn take_back(self) -> Vec<PathBuf> {
        let mut stranded = Vec::new();
        for undo in self.undo.into_iter().rev() {
            match undo {
                // Leftovers are not reported: the error that led here is.
                Undo::Staged(spot) | Undo::Created(spot) => {
                    let _ = spot.unlink();
                }
                Undo::Directory(spot) => {
                    let _ = spot.remove_directory();
                }
                Undo::Replaced { backup, place } => {
                    if backup.rename(&place).is_err() {
                        stranded.push(backup.path().to_owned());
                    }
                }
                Undo::Overwritten { backup, place } => match backup.overwrite(&place) {
                    Ok(()) => {
                        let _ = backup.unlink();
                    }
                    Err(_) => stranded.push(backup.path().to_owned()),
                },
            }
        }
        stranded
    }

    /// Opens the parent directory of a path; creates it first if it is missing and `make` is set.
    fn spot(&mut self, path: &Path, make: bool) -> io::Result<Spot> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok(Spot::new(self.directory(parent, make)?, name, path))
    }

    fn directory(&mut self, path: &Path, make: bool) -> io::Result<Arc<OwnedFd>> {
        if let Some(open) = self.directories.get(path) {
            return Ok(Arc::clone(open));
        }
        if self.directories.len() >= DIRECTORIES_MAX {
            return Err(io::Error::other(format!(
                "a patch may touch {DIRECTORIES_MAX} directories; split it"
            )));
        }
        let opened = match open_directory(path) {
            Err(error) if make && error.kind() == io::ErrorKind::NotFound => {
                let spot = self.spot(path, true)?;
                spot.make_directory()?;
                self.undo.push(Undo::Directory(spot.clone()));
                spot.open_directory()?
            }
            opened => opened?,
        };
        let opened = Arc::new(opened);
        self.directories.insert(path.to_owned(), Arc::clone(&opened));
        Ok(opened)
    }

    fn create_beside(&mut self, place: &Spot, mode: RawMode) -> io::Result<(Spot, File)> {
        let beside = self.free_name(place);
        let file = beside.create(mode)?;
        Ok((beside, file))
    }

    /// Finds an unused name next to a path.
    fn free_name(&mut self, place: &Spot) -> Spot {
        let process = std::process::id();
        loop {
            let name = format!(".heddle-patch-{process}-{}.tmp", self.names);
            self.names += 1;
            let candidate = place.beside(&name);
            if !candidate.exists() {
                return candidate;
            }
        }
    }
}

/// Sets the permissions of a file, without the set-user-id, set-group-id and sticky bits: a program that the model wrote
/// must not run with the rights of the file's owner. The kernel drops them likewise when a command writes to a file.
fn set_mode(file: &File, mode: RawMode) -> io::Result<()> {
    Ok(fchmod(file, Mode::from_raw_mode(mode & 0o777))?)
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CarryError {
    move |source| CarryError { what, path: path.to_owned(), source, stranded: Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use patch::{Edit, WriteKind};
    use policy::{Permit, Place, Profile, SandboxMode, Verdict};

    use super::{DIRECTORIES_MAX, Step, carry_out, carry_out_with};

    fn anywhere() -> Permit {
        Verdict::Run(Place::Outside).permit(&Profile::full_access()).expect("leave to run")
    }

    fn steps(edits: &[Edit]) -> Vec<Step<'_>> {
        edits.iter().map(|edit| Step { edit, place: edit.path().to_owned() }).collect()
    }

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
    fn a_failed_step_undoes_the_earlier_ones() {
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
            // Missing when its turn comes.
            Edit::Remove { path: root.join("missing") },
        ];
        let steps = steps(&edits);
        let error =
            carry_out(&steps, &anywhere()).expect_err("nothing can be removed twice").to_string();
        assert!(
            error.contains("failed to delete") && error.contains("nothing was changed"),
            "{error}"
        );
        assert_eq!(tree(root), before);
        carry_out(&steps[..4], &anywhere()).expect("without the last it works");
        assert_eq!(tree(root), ["linked=new", "made/", "other=new", "replaced=new"]);
    }

    /// Creates `inside/sub` with files, and `outside` with the same ones.
    fn two_trees(root: &Path) {
        for folder in ["inside/sub", "outside"] {
            fs::create_dir_all(root.join(folder)).expect("a directory");
            for name in ["old", "gone"] {
                fs::write(root.join(folder).join(name), "old").expect("a file");
            }
        }
    }

    fn edits(root: &Path) -> [Edit; 3] {
        let sub = root.join("inside/sub");
        [
            write(&sub, "old", WriteKind::Update),
            write(&sub, "deep/new", WriteKind::Add),
            Edit::Remove { path: sub.join("gone") },
        ]
    }

    /// Replaces `inside/sub` with a link to `outside`.
    fn swap(root: &Path) {
        fs::rename(root.join("inside/sub"), root.join("inside/moved")).expect("a rename");
        symlink(root.join("outside"), root.join("inside/sub")).expect("a link");
    }

    #[test]
    fn a_directory_that_became_a_link_is_not_written_through() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory");
        two_trees(&root);
        let edits = edits(&root);
        for edit in &edits {
            let steps = [Step { edit, place: edit.path().to_owned() }];
            if !root.join("inside/moved").exists() {
                swap(&root);
            }
            let error = carry_out(&steps, &anywhere()).expect_err("the place is gone").to_string();
            assert!(error.contains("link") && error.contains("nothing was changed"), "{error}");
        }
        for folder in ["outside", "inside/moved"] {
            assert_eq!(tree(&root.join(folder)), ["gone=old", "old=old"], "{folder}");
        }
    }

    #[test]
    fn a_directory_that_becomes_a_link_half_way_is_not_written_through() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory");
        two_trees(&root);
        let edits = edits(&root);
        let done = carry_out_with(&steps(&edits), &anywhere(), || swap(&root));
        done.expect("what was opened is written, wherever it is called now");
        assert_eq!(tree(&root.join("outside")), ["gone=old", "old=old"]);
        assert_eq!(tree(&root.join("inside/moved")), ["deep/", "old=new"]);
    }

    #[test]
    fn a_failure_half_way_is_undone_even_if_the_directory_moved() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory");
        two_trees(&root);
        let edits = edits(&root);
        let done = carry_out_with(&steps(&edits), &anywhere(), || {
            fs::remove_file(root.join("inside/sub/gone")).expect("a file");
            swap(&root);
        });
        let error = done.expect_err("there is nothing to remove").to_string();
        assert!(error.contains("nothing was changed"), "{error}");
        assert_eq!(tree(&root.join("outside")), ["gone=old", "old=old"]);
        assert_eq!(tree(&root.join("inside/moved")), ["old=old"]);
    }

    #[test]
    fn a_file_that_becomes_a_link_is_not_written_through() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory");
        two_trees(&root);
        let place = root.join("inside/sub/old");
        let link = || {
            fs::remove_file(&place).expect("a file");
            symlink(root.join("outside/old"), &place).expect("a link");
        };
        let edits = [write(&root.join("inside/sub"), "old", WriteKind::Update)];
        let error = carry_out_with(&steps(&edits), &anywhere(), link).expect_err("a link");
        assert!(error.to_string().contains("link"), "{error}");
        carry_out(&steps(&edits), &anywhere()).expect_err("still a link");
        assert_eq!(tree(&root.join("outside")), ["gone=old", "old=old"]);
    }

    #[test]
    fn a_permit_is_limited_to_its_profile() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory");
        two_trees(&root);
        let profile = Profile {
            mode: SandboxMode::WorkspaceWrite,
            writable_roots: vec![root.join("inside")],
            ..Profile::full_access()
        };
        let permit = Verdict::Run(Place::Sandbox).permit(&profile).expect("leave to run");
        let outside = [write(&root.join("outside"), "old", WriteKind::Update)];
        let error = carry_out(&steps(&outside), &permit).expect_err("not here").to_string();
        assert!(error.contains("no leave"), "{error}");
        let inside = edits(&root);
        carry_out(&steps(&inside), &permit).expect("here");
        assert_eq!(tree(&root.join("outside")), ["gone=old", "old=old"]);
    }

    #[test]
    fn directories_are_bounded() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory");
        let edits: Vec<_> = (0..DIRECTORIES_MAX)
            .map(|n| write(&root, &format!("d{n}/f"), WriteKind::Add))
            .collect();
        let error = carry_out(&steps(&edits), &anywhere()).expect_err("too many").to_string();
        assert!(error.contains("split it"), "{error}");
        assert_eq!(tree(&root), [""; 0]);
        carry_out(&steps(&edits[1..]), &anywhere()).expect("just fits, with its parent");
    }

    /// Whatever a command turns a file into meanwhile, a patch finishes soon, and is applied fully or not at
    /// all.
    #[test]
    fn a_file_that_becomes_something_else_is_not_waited_for() {
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::time::{Duration, Instant};

        use rustix::fs::{CWD, FileType, Mode, mknodat};

        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory");
        fs::write(root.join("file"), "old\n").expect("a file");
        // With two hard links the file is written in place, after it is read for a backup.
        fs::hard_link(root.join("file"), root.join("second")).expect("a link");
        let text = "*** Begin Patch\n*** Update File: file\n@@\n-old\n+new\n*** End Patch\n";
        let patch = ::patch::Patch::parse(text).expect("a patch");
        let over = AtomicBool::new(false);
        let begun = Instant::now();
        let done = std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let next = root.join("next");
                    let made = match turn % 4 {
                        0 => mknodat(CWD, &next, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
                            .map_err(std::io::Error::from),
                        1 => symlink("/dev/zero", &next),
                        2 => fs::write(&next, "old\n"),
                        _ => fs::write(&next, "old\n")
                            .and_then(|()| fs::hard_link(&next, root.join(format!("s{turn}")))),
                    };
                    made.and_then(|()| fs::rename(&next, root.join("file"))).expect("a swap");
                }
            });
            let mut done = 0;
            for _ in 0..2_000 {
                if let Ok(checked) =
                    crate::patch::Checked::new(&patch, &root, anywhere().profile(), &[])
                {
                    done += usize::from(carry_out(&checked.steps(), &anywhere()).is_ok());
                }
                assert!(begun.elapsed() < Duration::from_secs(60), "it waits");
            }
            over.store(true, Ordering::Relaxed);
            done
        });
        assert!(done > 0, "no patch was ever done");
    }
}
