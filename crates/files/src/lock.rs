//! Locks between processes: every wait has a timeout, and the error names the holder.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::time::{Duration, Instant};

/// The process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    /// The name of the process; empty if it has exited and its child inherited the lock.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "process {}, which is gone, for one that it started", self.pid),
            name => write!(f, "{name} (process {})", self.pid),
        }
    }
}

/// Why a lock could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another process held the lock for the whole wait.
    #[error("{} has held its lock for {} seconds; wait for it, or end it", shown(holder.as_ref()), waited.as_secs_f32().ceil())]
    Held {
        /// The holder, if the system reports it.
        holder: Option<Holder>,
        /// How long we waited.
        waited: Duration,
    },
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn shown(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "another program".to_owned(), Holder::to_string)
}

/// Takes the exclusive lock of a file (`flock` on Unix), which is released when the file is closed.
pub fn lock_within(file: &File, patience: Duration) -> Result<(), LockError> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error.into()),
            Err(TryLockError::WouldBlock) => {}
        }
        let waited = begun.elapsed();
        if waited >= patience {
            return Err(LockError::Held { holder: holder(file), waited });
        }
        std::thread::sleep(PAUSE.min(patience - waited));
    }
}

/// Returns the process that holds a lock on a file, if the system reports it.
pub fn holder(file: &File) -> Option<Holder> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt as _;
        let found = file.metadata().ok()?;
        let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
        let table =
            crate::read_opened(&std::fs::File::open("/proc/locks").ok()?, TABLE_BYTES_MAX).ok()?;
        let table = String::from_utf8_lossy(&table);
        let pid = holder_in(&table, (major, minor), found.ino())?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = name.trim().chars().filter(|c| !c.is_control()).collect();
        Some(Holder { pid, name })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        None
    }
}

/// Finds a lock's process in a table like `/proc/locks`:
///
/// ```text
/// 1: FLOCK  ADVISORY  WRITE 4242 fd:00:1234 0 EOF
/// 1: -> FLOCK  ADVISORY  WRITE 4243 fd:00:1234 0 EOF
/// ```
///
/// The second line is a process that waits for the lock. Some file systems report device numbers that differ
/// from those in the table; then the inode number alone has to match.
#[cfg(any(target_os = "linux", test))]
fn holder_in(table: &str, (major, minor): (u32, u32), inode: u64) -> Option<u32> {
    let mut other_device = None;
    for line in table.lines() {
        let mut words = line.split_whitespace().skip(1);
        if words.next() != Some("FLOCK") {
            continue;
        }
        let Some(pid) = words.nth(2).and_then(|pid| pid.parse().ok()) else { continue };
        let Some(place) = words.next() else { continue };
        let mut parts = place.split(':');
        let mut hex = || parts.next().and_then(|part| u32::from_str_radix(part, 16).ok());
        let device = (hex(), hex());
        if parts.next().and_then(|part| part.parse().ok()) != Some(inode) {
            continue;
        }
        if device == (Some(major), Some(minor)) {
            return Some(pid);
        }
        other_device = other_device.or(Some(pid));
    }
    other_device
}

/// How often the lock is tried again.
const PAUSE: Duration = Duration::from_millis(5);
/// How much of the system's lock table is read.
#[cfg(target_os = "linux")]
const TABLE_BYTES_MAX: u64 = 4 << 20;

#[cfg(all(test, unix))]
mod tests {
    use std::fs::File;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::{LockError, holder, holder_in, lock_within};

    #[test]
    fn tables() {
        let table = "1: POSIX  ADVISORY  READ 7 fd:00:42 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 8 fd:0a:42 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 fd:00:42 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 10 fd:00:42 0 EOF\n\
                     4: FLOCK  ADVISORY\n\
                     5: FLOCK  ADVISORY  READ 11 odd 0 EOF\n";
        for (device, inode, want) in [
            ((0xfd, 0), 42, Some(10)),
            ((0xfd, 10), 42, Some(8)),
            ((1, 1), 42, Some(8)),
            ((0xfd, 0), 43, None),
        ] {
            assert_eq!(holder_in(table, device, inode), want, "{device:?} {inode}");
        }
    }

    proptest! {
        #[test]
        fn any_table_is_read(table in "([0-9]{1,2}:?|->|FLOCK|[a-z:0-9]{1,9}| |\n){0,40}") {
            let _ = holder_in(&table, (1, 2), 3);
        }
    }

    #[test]
    fn waiting_for_a_lock_times_out_and_names_its_holder() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let (one, other) = (File::open(file.path()), File::open(file.path()));
        let (one, other) = (one.expect("a file"), other.expect("a file"));
        lock_within(&one, Duration::ZERO).expect("nobody has it");
        let begun = Instant::now();
        let Err(LockError::Held { holder: found, .. }) =
            lock_within(&other, Duration::from_millis(50))
        else {
            panic!("it is locked");
        };
        assert!(begun.elapsed() < Duration::from_secs(10));
        if cfg!(target_os = "linux") {
            let found = found.expect("the system says so");
            assert_eq!(found.pid, std::process::id());
            assert!(!found.name.is_empty());
        }
        drop(one);
        lock_within(&other, Duration::from_secs(5)).expect("nobody has it any more");
        drop(other);
        assert_eq!(holder(&File::open(file.path()).expect("a file")), None);
    }
}
