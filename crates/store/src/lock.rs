//! Locks threads for writing: one program at a time, ours or another that knows the same files.
//!
//! A thread is locked by an exclusive lock (`flock` on Unix) on `thread-writer-locks/ID.lock`. That file is
//! created and removed under the lock of `.coordination.lock`, so that no one holds a file that has just been
//! removed. A lock ends with its process; the file it leaves behind then means nothing.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use protocol::id::ThreadId;

use crate::disk::{Disk, DiskFile, Mode, create_dirs, read_range, write_all_at};

/// The right to write a thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// None once it was released.
    file: Option<Arc<dyn DiskFile>>,
}

/// The result of trying to lock.
#[derive(Debug)]
pub(crate) enum Taken {
    Ours(Lock),
    /// Another process has it.
    Held(Holder),
}

/// Who has a lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// The process, if known.
    pid: Option<i32>,
    name: String,
}

impl Holder {
    /// Returns whether the process that took the lock has ended.
    #[cfg(unix)]
    fn is_gone(&self) -> bool {
        use rustix::process::{Pid, test_kill_process};
        let pid = self.pid.and_then(Pid::from_raw);
        pid.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
    }

    #[cfg(not(unix))]
    fn is_gone(&self) -> bool {
        false
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "{} (process {pid})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Lock {
    /// Takes the lock of a thread, if it is free.
    pub(crate) fn take(disk: &Arc<dyn Disk>, home: &Path, id: ThreadId) -> io::Result<Taken> {
        for _ in 0..LINGER_TRIES {
            match Self::try_take(disk, home, id)? {
                // Child processes that a killed process was just starting keep its files open for a moment.
                Taken::Held(holder) if holder.is_gone() => thread::sleep(LINGER_PAUSE),
                taken => return Ok(taken),
            }
        }
        Self::try_take(disk, home, id)
    }

    fn try_take(disk: &Arc<dyn Disk>, home: &Path, id: ThreadId) -> io::Result<Taken> {
        let folder = home.join(FOLDER);
        create_dirs(&**disk, &folder)?;
        let _coordination = coordinate(&**disk, &folder)?;
        let path = folder.join(format!("{id}.lock"));
        let file = disk.open(&path, Mode::Lock)?;
        if !file.try_lock()? {
            return Ok(Taken::Held(holder(&*file)));
        }
        let lock = Self { disk: Arc::clone(disk), path, file: Some(file) };
        // Only for messages of other processes; a full disk must not prevent reading.
        let file = lock.file.as_ref().expect("was just put there");
        let _ = file.truncate(0);
        let _ = write_all_at(&**file, format!("{} heddle\n", std::process::id()).as_bytes(), 0);
        Ok(Taken::Ours(lock))
    }

    /// Returns which process has the lock of a thread, if any. Creates nothing.
    pub(crate) fn holder(disk: &dyn Disk, home: &Path, id: ThreadId) -> io::Result<Option<Holder>> {
        let path = home.join(FOLDER).join(format!("{id}.lock"));
        let file = match disk.open(&path, Mode::Read) {
            Err(error) if crate::files::missing(&error) => return Ok(None),
            done => done?,
        };
        Ok((!file.try_lock()?).then(|| holder(&*file)))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Without the coordination lock the file has to stay; the next process reuses it.
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let coordination = coordinate(&*self.disk, folder);
        drop(self.file.take());
        if coordination.is_ok() {
            let _ = self.disk.remove(&self.path);
        }
    }
}

/// Takes the lock under which references to other threads are created, and threads are deleted: nothing that
/// is about to be referred to can be deleted meanwhile. It is held until the returned value is dropped.
pub(crate) fn branching(disk: &dyn Disk, home: &Path) -> io::Result<Arc<dyn DiskFile>> {
    let folder = home.join(FOLDER);
    create_dirs(disk, &folder)?;
    wait_for(disk, &folder.join(BRANCHING), BRANCHING_TRIES)
}

/// Takes the lock under which lock files are created and removed. It is only held briefly.
fn coordinate(disk: &dyn Disk, folder: &Path) -> io::Result<Arc<dyn DiskFile>> {
    wait_for(disk, &folder.join(COORDINATION), COORDINATION_TRIES)
}

/// Takes the lock under which the extras of threads change. It is only held briefly.
pub(crate) fn changing_extras(disk: &dyn Disk, home: &Path) -> io::Result<Arc<dyn DiskFile>> {
    let folder = home.join(FOLDER);
    create_dirs(disk, &folder)?;
    wait_for(disk, &folder.join(EXTRAS), COORDINATION_TRIES)
}

fn wait_for(disk: &dyn Disk, path: &Path, tries: u32) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.open(path, Mode::Lock)?;
    for _ in 0..tries {
        if file.try_lock()? {
            return Ok(file);
        }
        thread::sleep(COORDINATION_PAUSE);
    }
    let holder = file.holder().map_or("another program".to_owned(), |holder| holder.to_string());
    Err(io::Error::new(
        io::ErrorKind::WouldBlock,
        format!("{holder} has held the lock {} for too long; stop it", path.display()),
    ))
}

/// Returns who has a lock: according to the system, or else to the content of the file. Other programs leave
/// that empty, and a killed process leaves its own id there.
fn holder(file: &dyn DiskFile) -> Holder {
    let known = file.holder();
    let bytes = read_range(file, 0, HOLDER_BYTES_MAX).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut words = text.split_whitespace();
    match (words.next().and_then(|pid| pid.parse().ok()), words.next()) {
        (Some(pid), Some(name))
            if name.chars().all(|c| c.is_ascii_alphanumeric())
                && known.as_ref().is_none_or(|known| known.pid.cast_signed() == pid) =>
        {
            Holder { pid: Some(pid), name: name.to_owned() }
        }
        _ => match known {
            Some(known) if !known.name.is_empty() => {
                Holder { pid: Some(known.pid.cast_signed()), name: known.name }
            }
            known => Holder {
                pid: known.map(|known| known.pid.cast_signed()),
                name: "another program".to_owned(),
            },
        },
    }
}

/// The directory with the locks of threads, in the home. Access to it lets a process block writers.
pub const FOLDER: &str = "thread-writer-locks";
const COORDINATION: &str = ".coordination.lock";
const BRANCHING: &str = ".branching.lock";
const EXTRAS: &str = ".extras.lock";
/// Half a minute; a deletion reads the heads of all threads under this lock.
const BRANCHING_TRIES: u32 = 6000;
/// Two seconds; the lock is held for a few system calls.
const COORDINATION_TRIES: u32 = 400;
const COORDINATION_PAUSE: Duration = Duration::from_millis(5);
/// One second; it takes a few milliseconds.
const LINGER_TRIES: u32 = 200;
const LINGER_PAUSE: Duration = Duration::from_millis(5);
const HOLDER_BYTES_MAX: usize = 256;
