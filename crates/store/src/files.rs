//! The files of threads: their names and locations.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::{Path, PathBuf};

use protocol::id::ThreadId;
use uuid::Uuid;

use crate::disk::{Disk, EntryKind};
use crate::store::{FileStore, StoreError};

/// The files of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadFiles {
    pub id: ThreadId,
    /// Its newest file, which is the one that is written.
    pub path: PathBuf,
    /// All of its files, oldest first: the last one is [`ThreadFiles::path`].
    pub segments: Vec<PathBuf>,
    /// Files with the same names in other places, for example after an interrupted move.
    pub copies: Vec<PathBuf>,
    pub archived: bool,
    /// When it was created, in local time, as in its file names: `2026-01-31T23-59-58`.
    pub stamp: String,
}

/// The parts of a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub(crate) id: ThreadId,
    pub(crate) segment: Option<Uuid>,
    pub(crate) stamp: String,
}

impl Name {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (stamp, id, segment) = take_apart(name)?;
        Some(Self { id, segment, stamp: stamp.to_owned() })
    }

    pub(crate) fn file_name(&self) -> String {
        let Self { id, segment, stamp } = self;
        match segment {
            Some(segment) => format!("rollout-{stamp}-{id}_{segment}.jsonl"),
            None => format!("rollout-{stamp}-{id}.jsonl"),
        }
    }

    /// Returns the directory of a thread's day, relative to the directory of all threads.
    pub(crate) fn day(&self) -> PathBuf {
        let day: Vec<&str> = self.stamp[..10].split('-').collect();
        day.iter().collect()
    }

    /// Returns when the thread was created: RFC 3339.
    pub(crate) fn made(&self) -> String {
        let from_id = Uuid::parse_str(&self.id.to_string()).ok().and_then(|id| id.get_timestamp());
        let from_id = from_id.and_then(|time| {
            let (seconds, nanoseconds) = time.to_unix();
            let nanoseconds = i32::try_from(nanoseconds).ok()?;
            jiff::Timestamp::new(i64::try_from(seconds).ok()?, nanoseconds).ok()
        });
        match from_id {
            Some(time) => crate::log::format_time(time),
            None => {
                let (day, time) = self.stamp.split_at(10);
                format!("{day}{}.000Z", time.replace('-', ":"))
            }
        }
    }
}

/// Formats a time as in file names.
pub(crate) fn stamp(time: &jiff::Zoned) -> String {
    time.strftime("%Y-%m-%dT%H-%M-%S").to_string()
}

/// Parses `rollout-STAMP-ID.jsonl` or `rollout-STAMP-ID_SEGMENT.jsonl`.
pub(crate) fn take_apart(name: &str) -> Option<(&str, ThreadId, Option<Uuid>)> {
    let rest = name.strip_prefix("rollout-")?.strip_suffix(".jsonl")?;
    let (stamp, rest) = rest.split_at_checked(STAMP_BYTES)?;
    let shaped = stamp.bytes().zip(STAMP_SHAPE.bytes()).all(|(got, want)| match want {
        b'0' => got.is_ascii_digit(),
        _ => got == want,
    });
    let rest = rest.strip_prefix('-').filter(|_| shaped)?;
    let (id, segment) = match rest.split_once('_') {
        Some((id, segment)) => (id, Some(segment)),
        None => (rest, None),
    };
    // Other spellings of a UUID do not occur in names.
    let plain = id.len() == ID_BYTES && segment.is_none_or(|segment| segment.len() == ID_BYTES);
    let segment = match segment {
        Some(segment) => Some(Uuid::try_parse(segment).ok()?),
        None => None,
    };
    plain.then_some((stamp, id.parse().ok()?, segment))
}

impl FileStore {
    /// Returns all threads, ordered by id. No file is opened.
    pub fn threads(&self) -> Result<std::vec::IntoIter<ThreadFiles>, StoreError> {
        let mut threads = BTreeMap::new();
        self.each_folder(&mut |folder, archived| {
            self.gather(folder, archived, None, &mut threads)
        })?;
        Ok(finish(threads).into_iter())
    }

    pub fn files(&self, id: ThreadId) -> Result<Option<ThreadFiles>, StoreError> {
        let mut threads = BTreeMap::new();
        // An id contains its time, and that determines the directory, except for the time zone of its
        // creator.
        for folder in likely_days(id) {
            self.gather(&self.sessions().join(folder), false, Some(id), &mut threads)?;
        }
        // An interrupted move leaves files in both places, and the newest one counts.
        self.gather(&self.archive_folder(), true, Some(id), &mut threads)?;
        // A thread whose first file is elsewhere was moved by hand.
        let whole = |found: &Found| found.keys().next() == Some(&None);
        if !threads.values().all(whole) || threads.is_empty() {
            self.each_folder(&mut |folder, archived| {
                self.gather(folder, archived, Some(id), &mut threads)
            })?;
        }
        Ok(finish(threads).pop())
    }

    /// Returns the files of one thread in all places, with all copies.
    pub(crate) fn files_everywhere(&self, id: ThreadId) -> Result<Option<ThreadFiles>, StoreError> {
        let mut threads = BTreeMap::new();
        self.each_folder(&mut |folder, archived| {
            self.gather(folder, archived, Some(id), &mut threads)
        })?;
        Ok(finish(threads).pop())
    }

    /// Returns entries that are named like a thread's file but are not regular files, with the thread and
    /// whether it is archived.
    pub(crate) fn not_files(
        &self,
        only: Option<ThreadId>,
    ) -> Result<Vec<(ThreadId, PathBuf, bool)>, StoreError> {
        let mut found = Vec::new();
        self.each_folder(&mut |folder, archived| {
            let entries = match self.list(folder) {
                Err(StoreError::Io { source, .. }) if unusable(&source) => return Ok(()),
                done => done?,
            };
            let odd = entries.iter().filter(|entry| entry.kind != EntryKind::File);
            let odd = odd.filter_map(|entry| Some((Name::parse(&entry.name)?.id, &entry.name)));
            let odd = odd.filter(|(id, _)| only.is_none_or(|only| only == *id));
            found.extend(odd.map(|(id, name)| (id, folder.join(name), archived)));
            Ok(())
        })?;
        Ok(found)
    }

    fn each_folder(
        &self,
        each: &mut dyn FnMut(&Path, bool) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut level = vec![self.sessions()];
        for _ in 0..DAY_DEPTH {
            let mut below = Vec::new();
            for folder in &level {
                let entries = match self.list(folder) {
                    // An inaccessible directory hides only its own content.
                    Err(StoreError::Io { source, .. })
                        if *folder != self.sessions() && unusable(&source) =>
                    {
                        continue;
                    }
                    done => done?,
                };
                let folders = entries.iter().filter(|entry| entry.kind == EntryKind::Folder);
                below.extend(folders.map(|entry| folder.join(&entry.name)));
            }
            level = below;
        }
        for folder in level {
            each(&folder, false)?;
        }
        each(&self.archive_folder(), true)
    }

    fn gather(
        &self,
        folder: &Path,
        archived: bool,
        only: Option<ThreadId>,
        threads: &mut Threads,
    ) -> Result<(), StoreError> {
        let entries = match self.list(folder) {
            Err(StoreError::Io { source, .. }) if unusable(&source) => return Ok(()),
            done => done?,
        };
        for entry in entries.iter().filter(|entry| entry.kind == EntryKind::File) {
            let Some(name) = Name::parse(&entry.name) else { continue };
            if only.is_none_or(|only| only == name.id) {
                let path = folder.join(&entry.name);
                match threads.entry(name.id).or_default().entry(name.segment) {
                    Entry::Vacant(place) => {
                        let copies = Vec::new();
                        place.insert(FoundFile { path, stamp: name.stamp, archived, copies });
                    }
                    // A file that is in both places is in use. If links lead to it twice, it is one file.
                    Entry::Occupied(mut place) => {
                        let found = place.get_mut();
                        let known =
                            |known: &PathBuf| *known == path || self.disk.is_same(known, &path);
                        if !known(&found.path) && !found.copies.iter().any(known) {
                            found.copies.push(path);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn list(&self, folder: &Path) -> Result<Vec<crate::disk::Entry>, StoreError> {
        list(&*self.disk, folder).map_err(|source| StoreError::io(folder, source))
    }
}

/// Lists a directory that may not exist.
pub(crate) fn list(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<crate::disk::Entry>> {
    match disk.list(folder) {
        Err(error) if missing(&error) => Ok(Vec::new()),
        done => done,
    }
}

/// Returns whether an error means that there is no such file.
pub(crate) fn missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns whether a file is missing or must not be read by us.
pub(crate) fn unusable(error: &io::Error) -> bool {
    missing(error) || error.kind() == io::ErrorKind::PermissionDenied
}

/// Files by thread and segment.
type Threads = BTreeMap<ThreadId, Found>;
type Found = BTreeMap<Option<Uuid>, FoundFile>;

/// A file that was found.
struct FoundFile {
    path: PathBuf,
    stamp: String,
    archived: bool,
    copies: Vec<PathBuf>,
}

fn finish(threads: Threads) -> Vec<ThreadFiles> {
    let thread = |(id, files): (ThreadId, Found)| {
        let stamp = files.values().next()?.stamp.clone();
        let newest = files.values().next_back()?;
        let (path, archived) = (newest.path.clone(), newest.archived);
        let (mut segments, mut copies) = (Vec::new(), Vec::new());
        for mut file in files.into_values() {
            segments.push(file.path);
            copies.append(&mut file.copies);
        }
        Some(ThreadFiles { id, path, segments, copies, archived, stamp })
    };
    threads.into_iter().filter_map(thread).collect()
}

/// Returns the days that a thread can be filed under: the day of its id, and those around it.
fn likely_days(id: ThreadId) -> Vec<PathBuf> {
    let stamp = Name { id, segment: None, stamp: String::new() };
    let version = Uuid::parse_str(&id.to_string()).ok().map(|id| id.get_version_num());
    if version != Some(7) {
        return Vec::new();
    }
    let Ok(time) = stamp.made().parse::<jiff::Timestamp>() else { return Vec::new() };
    let days = [-24, 0, 24].into_iter().filter_map(|hours| {
        let time = time.checked_add(jiff::SignedDuration::from_hours(hours)).ok()?;
        let day = time.strftime("%Y/%m/%d").to_string();
        Some(day.split('/').collect())
    });
    days.collect()
}

const STAMP_SHAPE: &str = "0000-00-00T00-00-00";
const STAMP_BYTES: usize = STAMP_SHAPE.len();
const ID_BYTES: usize = 36;
/// Year, month, day.
const DAY_DEPTH: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, want: Option<(&str, &str)>) {
        let parsed = Name::parse(name);
        let got = parsed.as_ref().map(|name| (name.day().display().to_string(), name.made()));
        let want = want.map(|(day, made)| (day.to_owned(), made.to_owned()));
        assert_eq!(got, want, "{name}");
        if let Some(parsed) = parsed {
            assert_eq!(parsed.file_name(), name);
        }
    }

    #[test]
    fn names() {
        const ID: &str = "01a1e26e-392c-7690-abfb-eb0dc0cda447";
        let made = Some(("2026/11/16", "2026-11-16T03:37:16.844Z"));
        check(&format!("rollout-2026-11-16T03-37-16-{ID}.jsonl"), made);
        check(&format!("rollout-2026-11-16T03-37-16-{ID}_{ID}.jsonl"), made);
        let old = "rollout-2025-01-02T03-04-05-0b6f3f6e-392c-4690-abfb-eb0dc0cda447.jsonl";
        check(old, Some(("2025/01/02", "2025-01-02T03:04:05.000Z")));
        check(&format!("{ID}.jsonl"), None);
        check(&format!("rollout-2026-11-16T03-37-16-{ID}.jsonl.damaged"), None);
        check(&format!("rollout-2026-11-16T03-37-16-{ID}_x.jsonl"), None);
        check(&format!("rollout-2026/11-16T03-37-16-{ID}.jsonl"), None);
        check(&format!("rollout-2026-11-16T03-37-16-{}.jsonl", ID.replace('-', "")), None);
        check(&format!("rollout-2026-11-16T03-37-16-{ID}_{}.jsonl", ID.replace('-', "")), None);
        check("rollout-ü", None);
    }
}
