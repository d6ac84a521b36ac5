//! The state of a directory, in every respect in which a change could be visible.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A directory or file, and everything below it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    links: u64,
    /// The ctime in nanoseconds, which extended attributes and flags change too.
    changed: (i64, i64),
    modified: (i64, i64),
    contents: Vec<u8>,
}

impl Snapshot {
    /// Records `path` and everything below it.
    pub(super) fn take(path: &Path) -> Self {
        let mut entries = BTreeMap::new();
        let mut ahead = vec![path.to_path_buf()];
        while let Some(path) = ahead.pop() {
            let Ok(found) = fs::symlink_metadata(&path) else { continue };
            let contents = if found.is_symlink() {
                let target = fs::read_link(&path).unwrap_or_default();
                target.into_os_string().into_encoded_bytes()
            } else if found.is_file() && found.size() <= CONTENTS_BYTES_MAX {
                files::read(&path, CONTENTS_BYTES_MAX).unwrap_or_default()
            } else {
                Vec::new()
            };
            if found.is_dir() {
                let below = fs::read_dir(&path).into_iter().flatten().flatten();
                ahead.extend(below.map(|entry| entry.path()));
            }
            let entry = Entry {
                mode: found.mode(),
                owner: (found.uid(), found.gid()),
                links: found.nlink(),
                changed: (found.ctime(), found.ctime_nsec()),
                modified: (found.mtime(), found.mtime_nsec()),
                contents,
            };
            entries.insert(path, entry);
        }
        Self { entries }
    }

    /// Tells whether nothing has changed except the times of directories, in which something may have come
    /// and gone.
    pub(super) fn is_like(&self, later: &Self) -> bool {
        let alike = |(one, other): (&Entry, &Entry)| {
            let directory = one.mode & libc::S_IFMT == libc::S_IFDIR;
            one == other || (directory && (one.mode, one.owner) == (other.mode, other.owner))
        };
        self.entries.keys().eq(later.entries.keys())
            && self.entries.values().zip(later.entries.values()).all(alike)
    }

    /// Adds the differences in `later` to `found`.
    pub(super) fn differences(&self, later: &Self, found: &mut Vec<String>) {
        for (path, before) in &self.entries {
            match later.entries.get(path) {
                None => found.push(format!("{} is gone", path.display())),
                Some(after) if after != before => {
                    let what = if after.contents != before.contents {
                        "has other contents"
                    } else if after.mode != before.mode || after.owner != before.owner {
                        "has other permissions"
                    } else {
                        "was changed"
                    };
                    found.push(format!("{} {what}", path.display()));
                }
                Some(_) => {}
            }
        }
        let new = later.entries.keys().filter(|path| !self.entries.contains_key(*path));
        found.extend(new.map(|path| format!("{} appeared", path.display())));
    }
}

/// Larger files are compared by times and size only; the ground has none except a program.
const CONTENTS_BYTES_MAX: u64 = 64 * 1024;
