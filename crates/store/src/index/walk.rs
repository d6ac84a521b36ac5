//! Finds the files in the directories of threads, as cheaply as possible.
//!
//! A directory whose modification time has not changed has the same names in it, so only new and changed ones
//! are listed. Either every file is checked, as its size shows whether it has grown, or only those that may
//! have been written to.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use protocol::id::ThreadId;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use uuid::Uuid;

use crate::files::take_apart;

/// The directories with threads, and their last seen state.
pub(super) type Folders = HashMap<String, Arc<Folder>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Folder {
    /// When a name in it was last added or removed; 0 if that was too recent to rely on.
    pub(super) changed: i64,
    pub(super) folders: Vec<String>,
    /// The thread files in it.
    pub(super) files: Vec<File>,
}

/// A thread file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) stamp: Stamp,
}

/// Metadata that shows whether a file has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) size: u64,
    /// When it was last written, in nanoseconds.
    pub(super) mtime: i64,
    pub(super) inode: u64,
}

impl Stamp {
    pub(super) fn from_file(file: impl AsFd) -> std::io::Result<Self> {
        Ok(Self::from_stat(&fstat(file)?))
    }

    fn from_stat(stat: &Stat) -> Self {
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: time(stat),
            inode: stat.st_ino,
        }
    }
}

/// The parts of a file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named<'a> {
    /// When the thread was created, in local time: `2026-11-16T03-37-16`.
    pub(super) made: &'a str,
    pub(super) id: ThreadId,
    /// The segment, in the files that reverting a thread creates. The newest is the greatest.
    pub(super) segment: Option<Uuid>,
}

impl<'a> Named<'a> {
    /// Parses a name; none if it is not that of a thread's file.
    pub(super) fn parse(name: &'a str) -> Option<Self> {
        let (made, id, segment) = take_apart(name)?;
        Some(Self { made, id, segment })
    }
}

/// Which files of unchanged directories are checked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look<'a> {
    All,
    /// Those of these threads, and the most recently written ones.
    Likely(&'a HashSet<ThreadId>),
}

/// Walks the directories below `home`. What cannot be read counts as missing.
pub(super) fn walk(home: &Path, known: &Folders, look: Look<'_>) -> Folders {
    let mut found = Vec::new();
    let Ok(home) = open(CWD, home) else { return Folders::new() };
    for (top, depth) in TOPS {
        list(&home, top.to_owned(), depth, known, &mut found);
    }
    match look {
        Look::All => look_at_all(&home, &mut found),
        Look::Likely(threads) => look_at_likely(&home, &mut found, threads),
    }
    found.into_iter().map(|listed| (listed.path, listed.folder)).collect()
}

/// A directory that was listed.
struct Listed {
    path: String,
    folder: Arc<Folder>,
    /// Whether its names were just read, and its files have no stamps yet.
    fresh: bool,
}

/// Lists one directory, reusing its known names if it has not changed since.
fn list(home: &OwnedFd, path: String, depth: usize, known: &Folders, found: &mut Vec<Listed>) {
    let Ok(stat) = statat(home, &*path, AtFlags::empty()) else { return };
    let changed = reliable(time(&stat));
    let before = known.get(&path).filter(|before| changed != 0 && before.changed == changed);
    let (folder, fresh) = match before {
        Some(before) => (Arc::clone(before), false),
        None => match open(home, &path) {
            Ok(opened) => (Arc::new(Folder { changed, ..names(&opened, depth) }), true),
            Err(_) => return,
        },
    };
    for name in &folder.folders {
        list(home, format!("{path}/{name}"), depth.saturating_sub(1), known, found);
    }
    found.push(Listed { path, folder, fresh });
}

/// Reads the names in a directory.
fn names(opened: &OwnedFd, depth: usize) -> Folder {
    let mut folder = Folder::default();
    for entry in Dir::read_from(opened).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.starts_with('.') {
            continue;
        }
        // Files only count where programs that know threads look for them.
        if depth == 0 {
            if Named::parse(name).is_some() {
                folder.files.push(File { name: name.to_owned(), stamp: Stamp::default() });
            }
        } else if is_folder(opened, entry.file_type(), name) {
            folder.folders.push(name.to_owned());
        }
    }
    folder
}

fn is_folder(opened: &OwnedFd, told: FileType, name: &str) -> bool {
    match told {
        FileType::Directory => true,
        // Some file systems do not report the type, and a link may lead to a file.
        FileType::Unknown | FileType::Symlink => statat(opened, name, AtFlags::empty())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
        _ => false,
    }
}

/// Checks every file. This takes most of the time, so it runs on all processors.
fn look_at_all(home: &OwnedFd, found: &mut [Listed]) {
    let files: usize = found.iter().map(|listed| listed.folder.files.len()).sum();
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get).min(WORKERS_MAX);
    let share = files.div_ceil(workers).max(SHARE_MIN);
    // Directories may differ greatly in size, so shares are cut through them.
    let mut shares: Vec<Vec<(&str, &mut [File])>> = vec![Vec::new()];
    let mut room = share;
    for Listed { path, folder, .. } in found.iter_mut().filter(|it| !it.folder.files.is_empty()) {
        let mut rest = &mut Arc::make_mut(folder).files[..];
        while !rest.is_empty() {
            if room == 0 {
                shares.push(Vec::new());
                room = share;
            }
            let (part, more) = rest.split_at_mut(room.min(rest.len()));
            room -= part.len();
            if let Some(last) = shares.last_mut() {
                last.push((path, part));
            }
            rest = more;
        }
    }
    std::thread::scope(|scope| {
        let ours = shares.pop();
        for share in shares {
            scope.spawn(move || {
                share.into_iter().for_each(|(path, files)| look_into(home, path, files));
            });
        }
        ours.into_iter().flatten().for_each(|(path, files)| look_into(home, path, files));
    });
    for listed in found.iter_mut().filter(|it| !it.folder.files.is_empty()) {
        Arc::make_mut(&mut listed.folder).files.retain(|file| file.stamp != Stamp::default());
    }
}

/// Checks the files of new and changed directories, those of `threads`, and the most recently written ones.
fn look_at_likely(home: &OwnedFd, found: &mut [Listed], threads: &HashSet<ThreadId>) {
    let kept = found.iter().filter(|listed| !listed.fresh);
    let mut times: Vec<i64> =
        kept.flat_map(|listed| listed.folder.files.iter().map(|file| file.stamp.mtime)).collect();
    let since = match times.len().checked_sub(RECENT_FILES) {
        Some(older) if older > 0 => *times.select_nth_unstable(older).1,
        _ => i64::MIN,
    };
    for Listed { path, folder, fresh } in found {
        let likely = |file: &File| {
            let held = || Named::parse(&file.name).is_some_and(|named| threads.contains(&named.id));
            *fresh || file.stamp.mtime >= since || (!threads.is_empty() && held())
        };
        if !folder.files.iter().any(likely) {
            continue;
        }
        let mut looked: Vec<_> = folder.files.iter().filter(|file| likely(file)).cloned().collect();
        look_into(home, path, &mut looked);
        let mut looked = looked.into_iter().peekable();
        let mut files = folder.files.clone();
        for file in &mut files {
            if let Some(seen) = looked.next_if(|seen| seen.name == file.name) {
                *file = seen;
            }
        }
        files.retain(|file| file.stamp != Stamp::default());
        // An unchanged directory stays the same object, which is quick to compare.
        if files != folder.files {
            Arc::make_mut(folder).files = files;
        }
    }
}

fn look_into(home: &OwnedFd, path: &str, files: &mut [File]) {
    let opened = (!files.is_empty()).then(|| open(home, path));
    for file in files {
        // A file that is gone, or is not regular, has no stamp.
        file.stamp = match &opened {
            Some(Ok(opened)) => match statat(opened, &*file.name, AtFlags::empty()) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                    Stamp::from_stat(&stat)
                }
                _ => Stamp::default(),
            },
            _ => Stamp::default(),
        };
    }
}

fn open(at: impl AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

#[expect(clippy::unnecessary_cast, reason = "the width of these differs between systems")]
fn time(stat: &Stat) -> i64 {
    (stat.st_mtime as i64).wrapping_mul(1_000_000_000).wrapping_add(stat.st_mtime_nsec as i64)
}

/// Reads the locks that writers of threads hold: when one was last added or removed, and for which threads.
/// Programs that are gone may have left theirs.
pub(super) fn locks(home: &Path) -> (i64, HashSet<ThreadId>) {
    let Ok(opened) = open(CWD, home.join(LOCKS)) else { return (NO_LOCKS, HashSet::new()) };
    let Ok(stat) = fstat(&opened) else { return (0, HashSet::new()) };
    let entries = Dir::read_from(&opened).into_iter().flatten().flatten();
    let ids = entries
        .filter_map(|entry| entry.file_name().to_str().ok()?.strip_suffix(".lock")?.parse().ok());
    (reliable(time(&stat)), ids.collect())
}

/// Returns 0 for a time that is so recent that a later change could have the same one.
fn reliable(time: i64) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let limit = now.saturating_sub(TIME_GRAIN).as_nanos();
    if i64::try_from(limit).is_ok_and(|limit| time < limit) { time } else { 0 }
}

impl Folder {
    /// Serializes the names and stamps.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.files.len() * 128);
        let text = |bytes: &mut Vec<u8>, text: &str| {
            // File names are shorter than 256 bytes everywhere.
            let length = u16::try_from(text.len()).unwrap_or(0);
            bytes.extend(length.to_le_bytes());
            bytes.extend(&text.as_bytes()[..usize::from(length)]);
        };
        for name in &self.folders {
            text(&mut bytes, name);
            bytes.push(0);
        }
        for File { name, stamp } in &self.files {
            text(&mut bytes, name);
            bytes.push(1);
            bytes.extend(stamp.size.to_le_bytes());
            bytes.extend(stamp.mtime.to_le_bytes());
            bytes.extend(stamp.inode.to_le_bytes());
        }
        bytes
    }

    /// Parses them; none if the data is invalid.
    pub(super) fn decode(changed: i64, mut bytes: &[u8]) -> Option<Self> {
        let mut folder = Self { changed, ..Self::default() };
        while !bytes.is_empty() {
            let length = u16::from_le_bytes(take(&mut bytes)?);
            let (name, rest) = bytes.split_at_checked(usize::from(length))?;
            let name = std::str::from_utf8(name).ok()?.to_owned();
            bytes = rest;
            match take::<1>(&mut bytes)? {
                [0] => folder.folders.push(name),
                _ => {
                    let size = u64::from_le_bytes(take(&mut bytes)?);
                    let mtime = i64::from_le_bytes(take(&mut bytes)?);
                    let inode = u64::from_le_bytes(take(&mut bytes)?);
                    folder.files.push(File { name, stamp: Stamp { size, mtime, inode } });
                }
            }
        }
        Some(folder)
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

/// The directory of archived threads.
pub(super) const ARCHIVE: &str = "archived_sessions";
/// Where threads are, and how many levels of directories are below: year, month and day.
const TOPS: [(&str, usize); 2] = [("sessions", 3), (ARCHIVE, 0)];
const LOCKS: &str = "thread-writer-locks";
/// The time of locks if there have never been any.
const NO_LOCKS: i64 = -1;
/// The coarsest timestamp resolution of file systems in use.
const TIME_GRAIN: Duration = Duration::from_secs(2);
const WORKERS_MAX: usize = 4;
/// Number of files that are not worth starting a thread for.
const SHARE_MIN: usize = 500;
/// Number of most recently written files that are always checked.
const RECENT_FILES: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01a1e26e-392c-7690-abfb-eb0dc0cda447";

    #[track_caller]
    fn check(name: &str, want: Option<Option<&str>>) {
        let got = Named::parse(name);
        let segment = got.as_ref().map(|named| named.segment.map(|segment| segment.to_string()));
        assert_eq!(segment, want.map(|segment| segment.map(str::to_owned)), "{name}");
        if let Some(named) = got {
            assert_eq!(named.id.to_string(), ID);
            assert_eq!(named.made, "2026-11-16T03-37-16");
        }
    }

    #[test]
    fn names_of_files() {
        check(&format!("rollout-2026-11-16T03-37-16-{ID}.jsonl"), Some(None));
        check(&format!("rollout-2026-11-16T03-37-16-{ID}_{ID}.jsonl"), Some(Some(ID)));
        check(&format!("rollout-2026-11-16T03-37-16-{ID}_x.jsonl"), None);
        check(&format!("rollout-2026-11-16T03-37-16-{ID}.jsonl.damaged"), None);
        check(&format!("rollout-2026-11-16T03-37-16-{}.jsonl", ID.replace('-', "")), None);
        check(&format!("{ID}.jsonl"), None);
        check("rollout-ää-2026.jsonl", None);
        check("", None);
    }

    #[test]
    fn recent_modification_times_are_not_trusted() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let before = |seconds| {
            i64::try_from(now.saturating_sub(Duration::from_secs(seconds)).as_nanos()).unwrap()
        };
        assert_eq!(reliable(before(0)), 0);
        assert_eq!(reliable(before(60)), before(60));
        assert_eq!(reliable(before(0) + 60_000_000_000), 0, "a clock that was put back");
    }

    #[test]
    fn a_saved_state_is_restored() {
        let stamp = Stamp { size: 7, mtime: -3, inode: u64::MAX };
        let folder = Folder {
            changed: 5,
            folders: vec!["2026".to_owned(), String::new()],
            files: vec![File { name: "ä".to_owned(), stamp }],
        };
        let bytes = folder.encode();
        assert_eq!(Folder::decode(5, &bytes), Some(folder));
        for cut in 1..bytes.len() {
            // Garbage is detected or parsed as something else; it never panics.
            let _ = Folder::decode(5, &bytes[cut..]);
            let _ = Folder::decode(5, &bytes[..cut]);
        }
    }
}
