//! Protected paths inside the writable directories, and empty placeholder directories ("guards") for those
//! that do not exist yet, so that a read-only mount can keep anything from being created there.
//!
//! Guards exist while a command runs. Every supervisor that uses one holds a shared lock on it, and the last
//! one removes it. A guard left behind by a killed supervisor is recognized by being empty and closed to its
//! owner, and reused. The locks are in a directory that commands cannot open, a few files for all guards,
//! because a command could lock a guard itself and keep others from starting. The guard is locked as well, if
//! possible, for supervisors that keep their locks elsewhere. A supervisor is not sandboxed itself: it does
//! everything relative to an open directory, so that no symbolic link can redirect it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, Stat, flock, fstat, mkdirat, open, openat, statat,
    unlinkat,
};
use rustix::io::Errno;

use crate::limits::Resource;
use crate::linux::Trouble;
use crate::linux::meter::{Lookout, PAUSE};
use crate::linux::plan::below;
use crate::linux::sys;
use crate::protected;

/// No other program creates directories with this mode for its own use.
const MODE: u32 = 0o555;
/// How long another supervisor may take to remove a guard that is locked elsewhere.
const REMOVAL: Duration = Duration::from_millis(50);
/// How long others may take to remove a guard, and how long a vanishing one is recreated: many sandboxes may
/// share those in a temporary directory.
const PATIENCE: Duration = Duration::from_secs(2);

/// The protected paths of one sandbox, all of which exist.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    /// What must be mounted read-only.
    pub(crate) protected: Vec<PathBuf>,
    held: Vec<ActiveGuard>,
    /// Files at protected names that no command can move, by device and inode.
    standing: Vec<(PathBuf, (u64, u64))>,
    /// Where locks are, and the ones we hold, by number.
    locks: Option<PathBuf>,
    taken: BTreeMap<u64, OwnedFd>,
}

#[derive(Debug)]
struct ActiveGuard {
    path: PathBuf,
    parent: OwnedFd,
    name: OsString,
    guard: OwnedFd,
    /// The lock that holds it; `None` if only the guard itself is locked.
    lock: Option<u64>,
}

impl Guards {
    /// Finds the protected paths inside the writable directories, and creates the missing ones.
    pub(crate) fn place(
        writable: &[PathBuf],
        protected: &[PathBuf],
        locks: Option<&Path>,
    ) -> Result<Self, Trouble> {
        let mut guards = Self { locks: locks.map(Path::to_owned), ..Self::default() };
        match guards.fill(writable, protected) {
            Ok(()) => {
                guards.note_standing(writable);
                Ok(guards)
            }
            Err(trouble) => {
                guards.remove();
                Err(trouble)
            }
        }
    }

    fn fill(&mut self, writable: &[PathBuf], protected: &[PathBuf]) -> Result<(), Trouble> {
        for path in protected_inside(writable, protected)? {
            let trouble = |error| Trouble::setup(format!("protecting {}", path.display()), error);
            match path.symlink_metadata() {
                Ok(found) => {
                    if found.is_dir() && found.mode() & 0o7777 == MODE {
                        self.hold(&path).map_err(trouble)?;
                    }
                    self.protected.push(path);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match self.hold(&path) {
                        Ok(()) => self.protected.push(path),
                        // Its directory is not writable, but its owner could change that. A directory that
                        // contains a root must stay open for that root.
                        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                            let parent = path.parent().unwrap_or(&path);
                            let around =
                                |root: &PathBuf| root != parent && root.starts_with(parent);
                            if !writable.iter().any(around) {
                                self.protected.push(parent.to_owned());
                            }
                        }
                        // Nothing can be created there by anyone.
                        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {}
                        Err(error) => return Err(trouble(error)),
                    }
                }
                Err(error) => return Err(trouble(error)),
            }
        }
        Ok(())
    }

    /// Records the files at protected names next to and above the writable directories. The command may move
    /// those below, together with their directory.
    fn note_standing(&mut self, writable: &[PathBuf]) {
        let fixed = |path: &&PathBuf| {
            path.parent().is_some_and(|parent| writable.iter().any(|root| root.starts_with(parent)))
        };
        let standing = self.protected.iter().filter(fixed).filter_map(|path| {
            let found = path.symlink_metadata().ok()?;
            Some((path.clone(), (found.dev(), found.ino())))
        });
        self.standing = standing.collect();
    }

    /// Starts checking them periodically, if there are any. Another process can remove or replace a protected
    /// path, which also removes the mount over it inside the sandbox: the name could be created or written
    /// from then on.
    pub(crate) fn rounds(&self) -> Option<Rounds<'_>> {
        let next = Instant::now() + PAUSE;
        let any = !self.held.is_empty() || !self.standing.is_empty();
        any.then_some(Rounds { guards: self, next })
    }

    /// Removes the guards we created, unless another sandbox uses them too.
    pub(crate) fn remove(self) {
        let alone = |lock: &OwnedFd| flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        let free: BTreeSet<u64> =
            self.taken.iter().filter(|(_, lock)| alone(lock)).map(|(number, _)| *number).collect();
        for held in self.held {
            let unused = held.lock.is_none_or(|number| free.contains(&number));
            let alone = unused && alone(&held.guard);
            // If it is no longer empty, it belongs to someone else and stays.
            if alone && held.is_in_place() {
                let _ = unlinkat(&held.parent, &held.name, AtFlags::REMOVEDIR);
            }
        }
        // Nobody else holds them, and a process that has opened one meanwhile sees that it is gone.
        if let Some(folder) = &self.locks {
            for number in &free {
                let _ = std::fs::remove_file(lock_file(folder, *number));
            }
        }
    }

    /// Creates a guard, or shares an existing one. A directory that turns out not to be a guard is left
    /// alone.
    fn hold(&mut self, path: &Path) -> io::Result<()> {
        if self.held.iter().any(|held| held.path == path) {
            return Ok(());
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let parent = sys::open_place(parent)?;
        // Lock first, so that nobody removes it from now on.
        let lock = self.lock(&parent, name)?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            // The umask of this process is empty, so the mode is right from the start.
            match mkdirat(&parent, name, Mode::from_raw_mode(MODE)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            let flags = OFlags::RDONLY
                | OFlags::DIRECTORY
                | OFlags::NOFOLLOW
                | OFlags::NONBLOCK
                | OFlags::CLOEXEC;
            let guard = match openat(&parent, name, flags, Mode::empty()) {
                Ok(guard) => guard,
                // The last user has just removed it.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
            };
            match lock {
                // A supervisor with another home may be about to remove it. If a command holds it, it just
                // stays longer.
                Some(_) => drop(lock_shared(&guard, REMOVAL)),
                None => lock_shared(&guard, PATIENCE)?,
            }
            let (path, parent) = (path.to_owned(), parent.try_clone()?);
            let held = ActiveGuard { path, parent, name: name.to_owned(), guard, lock };
            if held.is_in_place() {
                if held.is_a_guard() {
                    self.held.push(held);
                }
                return Ok(());
            }
        }
        Err(io::Error::other("another process keeps creating and removing it"))
    }
}

impl Guards {
    /// Takes the shared lock of a guard and returns its number; `None` if only the guards are locked.
    fn lock(&mut self, parent: &OwnedFd, name: &OsStr) -> io::Result<Option<u64>> {
        let Some(folder) = &self.locks else { return Ok(None) };
        let number = lock_number(&fstat(parent)?, name);
        if let Entry::Vacant(free) = self.taken.entry(number) {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let path = lock_file(folder, number);
            let lock = loop {
                // If nothing can be created or locked there, as in a read-only home or on some network file
                // systems, locking the guard itself has to suffice.
                let opened = open(&path, flags, Mode::from_raw_mode(0o600));
                let Ok(lock) = opened.map_err(io::Error::from).and_then(|lock| {
                    lock_shared(&lock, PATIENCE)?;
                    Ok(lock)
                }) else {
                    return Ok(None);
                };
                // The last user removes it, possibly just now.
                if fstat(&lock)?.st_nlink > 0 {
                    break lock;
                }
            };
            free.insert(lock);
        }
        Ok(Some(number))
    }
}

fn lock_file(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:016x}.lock"))
}

/// Returns the number of a guard's lock, the same in every build: FNV-1a of its location.
fn lock_number(parent: &Stat, name: &OsStr) -> u64 {
    let place = [parent.st_dev, parent.st_ino].into_iter().flat_map(u64::to_le_bytes);
    let bytes = place.chain(name.as_bytes().iter().copied());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Checks periodically that all guards are in place.
pub(crate) struct Rounds<'a> {
    guards: &'a Guards,
    next: Instant,
}

impl Lookout for Rounds<'_> {
    fn due_in(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    fn look(&mut self) -> Option<Resource> {
        if !self.due_in().is_zero() {
            return None;
        }
        let stands = |(path, known): &(PathBuf, (u64, u64))| {
            path.symlink_metadata().is_ok_and(|found| (found.dev(), found.ino()) == *known)
        };
        let held = self.guards.held.iter().all(ActiveGuard::is_in_place);
        let gone = !held || !self.guards.standing.iter().all(stands);
        self.next = Instant::now() + PAUSE;
        gone.then_some(Resource::Guards)
    }
}

impl ActiveGuard {
    /// Tells whether the path still refers to what is held.
    fn is_in_place(&self) -> bool {
        let now = statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let held = fstat(&self.guard);
        matches!((now, held), (Ok(now), Ok(held)) if (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino))
    }

    /// Tells whether it looks like one of ours: empty, and with our mode.
    fn is_a_guard(&self) -> bool {
        let mode = fstat(&self.guard).map(|found| found.st_mode & 0o7777);
        let entries = Dir::read_from(&self.guard);
        let empty = entries.is_ok_and(|entries| {
            entries.flatten().all(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
        });
        mode.is_ok_and(|mode| mode == MODE) && empty
    }
}

/// Takes a shared lock on a guard. A process that holds it exclusively is about to remove it; nobody else has
/// a reason to.
fn lock_shared(guard: &OwnedFd, patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        match flock(guard, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another program holds a lock on it"));
            }
            done => return Ok(done?),
        }
    }
}

/// Finds the protected paths inside the writable directories.
pub(crate) fn protected_inside(
    writable: &[PathBuf],
    protected: &[PathBuf],
) -> Result<BTreeSet<PathBuf>, Trouble> {
    let roots: BTreeSet<&Path> = writable.iter().map(PathBuf::as_path).collect();
    let mut all = protected::resolve(protected).map_err(|unresolved| {
        Trouble::setup(format!("protecting {}", unresolved.path.display()), unresolved.reason)
    })?;
    // What is not writable anyway needs no protection.
    all.retain(|path| below(path, &roots));
    Ok(all)
}
