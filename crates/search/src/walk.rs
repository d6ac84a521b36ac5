//! [`Walk`]: lists the files below some directories.
//!
//! Hidden files are included, even those in `.git`; files that `.ignore` names, or `.gitignore` in a repository, are not.
//! Links are followed, but never in circles.

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

/// Most files and directories in a list.
pub const PATHS_MAX: usize = 250_000;
/// Most bytes of all paths together.
pub const PATH_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The files found so far.
#[derive(Debug, Default)]
pub struct Files {
    /// All paths joined: a string for each would take three times as much memory.
    paths: String,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where its path ends; it starts at the end of the previous one.
    end: usize,
    root: u32,
    is_directory: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    /// The path, relative to its root.
    pub(crate) path: &'a str,
    /// The index of its root.
    pub(crate) root: usize,
    pub(crate) is_directory: bool,
}

impl Files {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn at(&self, index: usize) -> Found<'_> {
        let begin = index.checked_sub(1).map_or(0, |before| self.entries[before].end);
        let Entry { end, root, is_directory } = self.entries[index];
        Found { path: &self.paths[begin..end], root: root as usize, is_directory }
    }

    /// Adds a file. Returns false if there is no room for it.
    fn add(&mut self, path: &str, root: usize, is_directory: bool) -> bool {
        let has_room = self.entries.len() < PATHS_MAX
            && self.paths.len() + path.len() <= PATH_BYTES_MAX
            && u32::try_from(root).is_ok();
        if has_room {
            self.paths.push_str(path);
            self.entries.push(Entry { end: self.paths.len(), root: root as u32, is_directory });
        }
        has_room
    }
}

/// A walk through some directories, which can be paused and continued.
pub struct Walk {
    /// Roots that were not started, last one first, with their indices.
    roots: Vec<(usize, PathBuf)>,
    current: Option<(usize, PathBuf, ignore::Walk)>,
}

impl Walk {
    /// Prepares a walk through these directories, in this order. A directory that cannot be read counts as empty.
    pub fn new(roots: &[PathBuf]) -> Self {
        Self { roots: roots.iter().cloned().enumerate().rev().collect(), current: None }
    }

    /// Adds files to `files` while `go_on` returns true. Returns whether the walk is complete, which it also is when
    /// `files` is full.
    pub fn advance(&mut self, files: &mut Files, go_on: &dyn Fn() -> bool) -> bool {
        while go_on() {
            let Some((number, root, walk)) = &mut self.current else {
                let Some((number, root)) = self.roots.pop() else { return true };
                let walk = begin(&root);
                self.current = Some((number, root, walk));
                continue;
            };
            for _ in 0..BETWEEN_LOOKS {
                let Some(next) = walk.next() else {
                    self.current = None;
                    break;
                };
                // What cannot be read, and links that lead nowhere, are left out.
                let Ok(entry) = next else { continue };
                let Ok(path) = entry.path().strip_prefix(&*root) else { continue };
                if path.as_os_str().is_empty() {
                    continue;
                }
                let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
                if !files.add(&path.to_string_lossy(), *number, is_directory) {
                    self.current = None;
                    self.roots.clear();
                    return true;
                }
            }
        }
        false
    }
}

fn begin(root: &Path) -> ignore::Walk {
    let mut walk = WalkBuilder::new(root);
    walk.hidden(false).follow_links(true);
    walk.build()
}

/// How many entries are read between two calls of `go_on`.
const BETWEEN_LOOKS: usize = 64;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn all(roots: &[PathBuf]) -> Vec<String> {
        let (mut walk, mut files) = (Walk::new(roots), Files::default());
        assert!(walk.advance(&mut files, &|| true));
        let mut found: Vec<_> = (0..files.len())
            .map(|index| {
                let Found { path, root, is_directory } = files.at(index);
                format!("{root} {path}{}", if is_directory { "/" } else { "" })
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn what_counts() {
        let ground = tempfile::tempdir().unwrap();
        let at = |name: &str| ground.path().join(name);
        for name in [".git/HEAD", "src/a.rs", "src/.ignore", "src/out/o", "target/t", ".hid/h", "b"]
        {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), "out").unwrap();
        }
        fs::write(at(".gitignore"), "target").unwrap();
        symlink(ground.path(), at("src/loop")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        symlink("src", at("linked")).unwrap();
        assert_eq!(
            all(&[ground.path().to_owned()]),
            [
                "0 .git/",
                "0 .git/HEAD",
                "0 .gitignore",
                "0 .hid/",
                "0 .hid/h",
                "0 b",
                "0 linked/",
                "0 linked/.ignore",
                "0 linked/a.rs",
                "0 src/",
                "0 src/.ignore",
                "0 src/a.rs",
            ]
        );
        // Outside of a repository its file says nothing.
        fs::remove_dir_all(at(".git")).unwrap();
        assert!(all(&[ground.path().to_owned()]).contains(&"0 target/t".to_owned()));
        let roots = [at("none"), at(".hid"), at("b"), at(".hid")];
        assert_eq!(all(&roots), ["1 h", "3 h"]);
        assert!(all(&[]).is_empty());
    }

    #[test]
    fn a_walk_can_be_stopped() {
        let ground = tempfile::tempdir().unwrap();
        for number in 0..300 {
            fs::write(ground.path().join(number.to_string()), "").unwrap();
        }
        let (mut walk, mut files) = (Walk::new(&[ground.path().to_owned()]), Files::default());
        assert!(!walk.advance(&mut files, &|| false));
        assert!(files.is_empty());
        let mut rounds = 0;
        loop {
            let looks = std::cell::Cell::new(0);
            let twice = || {
                looks.set(looks.get() + 1);
                looks.get() <= 2
            };
            if walk.advance(&mut files, &twice) {
                break;
            }
            rounds += 1;
        }
        assert!(rounds > 1, "{rounds}");
        assert_eq!(files.len(), 300);
    }

    #[test]
    fn files_have_a_bound() {
        let mut files = Files::default();
        let long = "x".repeat(PATH_BYTES_MAX / 2);
        assert!(files.add(&long, 0, false) && files.add(&long, 0, false));
        assert!(!files.add("x", 0, false));
        let mut files = Files::default();
        for _ in 0..PATHS_MAX {
            assert!(files.add("x", 0, false));
        }
        assert!(!files.add("x", 0, false));
    }
}
