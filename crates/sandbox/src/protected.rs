//! Resolves what protected names refer to on disk, in the same way for the sandbox and for patches.
//!
//! A name may be a symbolic link, and a `.git` may be a file that names the real directory. That directory
//! may delegate its settings and hooks to another one (`commondir`), contain links, and have worktrees and
//! submodules elsewhere, each with a `.git` file that refers back. All of these decide what git will run, so
//! all of them are protected with the name.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use policy::{PROTECTED_NAMES, Profile};
use rustix::fs::{Mode, OFlags, open};

/// Links followed from one name, as many as the kernel follows.
const LINKS_MAX: usize = 40;
/// Size limit of a file that names a directory.
const POINTER_BYTES_MAX: u64 = 4096;
/// How much of a submodule's settings is searched for its directory.
const CONFIG_BYTES_MAX: u64 = 64 * 1024;
/// How many entries of a git directory are examined, and how many of its worktrees and submodules.
const ENTRIES_MAX: usize = 1024;
/// How deeply the names of submodules may be nested.
const MODULE_DEPTH_MAX: usize = 8;
/// How deep below a root repositories are searched for, in how many directories, and how many entries and
/// repositories there may be.
const NESTED_DEPTH_MAX: usize = 4;
const NESTED_DIRECTORIES_MAX: usize = 1000;
const NESTED_ENTRIES_MAX: usize = 20_000;
const NESTED_MAX: usize = 128;

/// What a protected name refers to cannot be determined.
#[derive(Debug, thiserror::Error)]
#[error("what {} stands for cannot be found out: {reason}", path.display())]
pub struct Unresolved {
    pub path: PathBuf,
    pub reason: io::Error,
}

/// Finds everything that is read-only under a profile, as it is on disk now: the names themselves, every link
/// on the way to their targets, and the targets. For a missing path, its first missing component.
pub fn protected(profile: &Profile) -> Result<BTreeSet<PathBuf>, Unresolved> {
    resolve(&profile.protected_paths())
}

/// Finds names below a directory, not too deep, that would be protected at its top: repositories inside a
/// workspace, and settings in them. Links are not followed.
pub fn protected_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut ahead = VecDeque::from([(root.to_owned(), 0)]);
    let (mut directories, mut entries) = (0, 0);
    while let Some((directory, depth)) = ahead.pop_front() {
        directories += 1;
        if directories > NESTED_DIRECTORIES_MAX {
            break;
        }
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            entries += 1;
            if entries > NESTED_ENTRIES_MAX || found.len() >= NESTED_MAX {
                return found;
            }
            let name = entry.file_name();
            if PROTECTED_NAMES.iter().any(|protected| name == *protected) {
                // At the top they are protected whether they exist or not.
                if depth > 0 {
                    found.push(entry.path());
                }
                continue;
            }
            let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if directory && depth < NESTED_DEPTH_MAX && !PASSED_OVER.iter().any(|it| name == *it) {
                ahead.push_back((entry.path(), depth + 1));
            }
        }
    }
    found
}

/// Like [`protected`], for these names.
pub(crate) fn resolve(names: &[PathBuf]) -> Result<BTreeSet<PathBuf>, Unresolved> {
    let mut all = BTreeSet::new();
    for path in names {
        let unresolved = |reason| Unresolved { path: path.clone(), reason };
        let end = follow(path, &mut all).map_err(unresolved)?;
        if path.ends_with(".git") {
            repository(&end, &mut all).map_err(unresolved)?;
        }
    }
    Ok(all)
}

/// Collects what belongs to a repository besides `git`, its directory or the file that names it.
fn repository(git: &Path, noted: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    let named = pointer(git, POINTER_BYTES_MAX)
        .and_then(|text| Some(beside(git, text.strip_prefix(b"gitdir:")?)));
    let directory = match named {
        Some(named) => follow(&named, noted)?,
        None => git.to_owned(),
    };
    // A worktree has its own head and index; settings and hooks are in the common directory.
    let pointer = pointer(&directory.join("commondir"), POINTER_BYTES_MAX);
    let common = match pointer {
        Some(text) => follow(&directory.join(OsStr::from_bytes(text.trim_ascii())), noted)?,
        None => directory.clone(),
    };
    for directory in BTreeSet::from([&directory, &common]) {
        for (link, _) in entries(directory).filter(|(_, kind)| kind.is_symlink()) {
            // A dangling link is safe where it is.
            let _ = follow(&link, noted);
        }
    }
    for back in worktrees(&common).into_iter().chain(modules(&common)) {
        // A worktree that was removed without telling git does not matter.
        if back.symlink_metadata().is_ok() {
            follow(&back, noted)?;
        }
    }
    Ok(())
}

/// Returns the `.git` files of the worktrees of a git directory.
fn worktrees(common: &Path) -> Vec<PathBuf> {
    let all = entries(&common.join("worktrees")).filter_map(|(worktree, _)| {
        let text = pointer(&worktree.join("gitdir"), POINTER_BYTES_MAX)?;
        Some(worktree.join(OsStr::from_bytes(text.trim_ascii())))
    });
    all.collect()
}

/// Returns the `.git` files of the submodules whose directories are inside a git directory.
fn modules(common: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut ahead = vec![(common.join("modules"), 0)];
    let mut looked = 0;
    while let Some((directory, depth)) = ahead.pop() {
        looked += 1;
        if looked > ENTRIES_MAX {
            break;
        }
        // A name may contain slashes, so a directory without a head may be a parent of one.
        if directory.join("HEAD").symlink_metadata().is_ok() {
            let config = pointer(&directory.join("config"), CONFIG_BYTES_MAX).unwrap_or_default();
            let worktree = worktree_of(&config).map(|worktree| directory.join(worktree));
            found.extend(worktree.map(|worktree| worktree.join(".git")));
            ahead.push((directory.join("modules"), depth + 1));
        } else if depth < MODULE_DEPTH_MAX {
            let below = entries(&directory).filter(|(_, kind)| kind.is_dir());
            ahead.extend(below.map(|(path, _)| (path, depth + 1)));
        }
    }
    found
}

/// Reads `core.worktree` from the settings that git itself has written for a submodule.
fn worktree_of(config: &[u8]) -> Option<PathBuf> {
    let value = config.split(|byte| *byte == b'\n').find_map(|line| {
        let rest = line.trim_ascii().strip_prefix(b"worktree")?;
        Some(rest.trim_ascii_start().strip_prefix(b"=")?.trim_ascii())
    })?;
    let value = value.strip_prefix(b"\"").and_then(|it| it.strip_suffix(b"\"")).unwrap_or(value);
    Some(OsStr::from_bytes(value).into())
}

/// Lists a directory, up to the limit.
fn entries(directory: &Path) -> impl Iterator<Item = (PathBuf, fs::FileType)> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.take(ENTRIES_MAX).filter_map(|entry| Some((entry.path(), entry.file_type().ok()?)))
}

/// Reads a short regular file; anything else is opened only long enough to see what it is.
fn pointer(file: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = open(file, flags, Mode::empty()).ok()?;
    files::read_opened(&files::regular(opened.into()).ok()?, bytes_max).ok()
}

/// Resolves a path in a file, which may be relative to that file.
fn beside(file: &Path, text: &[u8]) -> PathBuf {
    let named = OsStr::from_bytes(text.trim_ascii());
    file.parent().map_or_else(|| named.into(), |parent| parent.join(named))
}

/// Follows a path component by component, records every link and the target, and returns the target.
pub(crate) fn follow(path: &Path, noted: &mut BTreeSet<PathBuf>) -> io::Result<PathBuf> {
    let mut parts: Vec<OsString> = reversed(path);
    let mut here = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = parts.pop() {
        if part == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&part);
        let found = match next.symlink_metadata() {
            Ok(found) => found,
            Err(error) => match error.kind() {
                // Nothing can be below a path that does not exist, is not a directory, or cannot be entered.
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    here = next;
                    break;
                }
                io::ErrorKind::PermissionDenied => break,
                _ => return Err(error),
            },
        };
        if !found.is_symlink() {
            here = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(io::Error::other("it leads through too many links"));
        }
        let target = fs::read_link(&next)?;
        noted.insert(next);
        if target.is_absolute() {
            here = PathBuf::from("/");
        }
        parts.extend(reversed(&target));
    }
    noted.insert(here.clone());
    Ok(here)
}

/// Returns the components of a path, last first.
fn reversed(path: &Path) -> Vec<OsString> {
    let parts = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    parts.collect()
}

/// Directories with many entries in which nobody works.
const PASSED_OVER: [&str; 2] = ["node_modules", "__pycache__"];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::{protected_below, resolve};

    /// Creates a tree: `path = contents`, `path -> target`, or `path/`, one per line.
    fn lay_out(root: &Path, tree: &str) {
        for line in tree.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let link = line.split_once(" -> ");
            let (name, text) = link.or(line.split_once(" = ")).unwrap_or((line, ""));
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            let text = text.replace("{root}", &root.display().to_string());
            match (link, name.ends_with('/')) {
                (Some(_), _) => symlink(text, path).expect("a link"),
                (None, true) => fs::create_dir_all(path).expect("a directory"),
                (None, false) => fs::write(path, text).expect("a file"),
            }
        }
    }

    fn shown(root: &Path, paths: impl IntoIterator<Item = std::path::PathBuf>) -> String {
        let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
        paths.into_iter().map(|path| relative(&path)).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check(tree: &str, want: &str) {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory");
        lay_out(&root, tree);
        let found = resolve(&[root.join("w/.git")]).expect("it resolves");
        assert_eq!(shown(&root, found), want, "{tree}");
    }

    #[test]
    fn resolved_names() {
        check("w/", "w/.git");
        check("w/.git/HEAD = x", "w/.git");
        check("w/.git -> store\nw/store/HEAD = x", "w/.git w/store");
        check("w/.git -> ../a\na -> b\nb/HEAD = x", "a b w/.git");
        // A missing path is protected at its first missing component.
        check("w/.git = gitdir: sub/real", "w/.git w/sub");
        check("w/.git = gitdir: ../store\nstore/HEAD = x", "store w/.git");
        check("w/.git = gitdir: {root}/link\nlink -> store\nstore/x = x", "link store w/.git");
        check("w/.git = nothing", "w/.git");
        // A worktree: settings and hooks are in the common directory, and other worktrees belong to it, too.
        check(
            "w/.git = gitdir: {root}/main/.git/worktrees/w
             main/.git/HEAD = x
             main/.git/worktrees/w/commondir = ../..
             main/.git/worktrees/w/gitdir = {root}/w/.git
             main/.git/worktrees/gone/gitdir = {root}/gone/.git
             main/.git/worktrees/v/gitdir = ../../../../v/.git
             v/.git = gitdir: x",
            "main/.git main/.git/worktrees/w v/.git w/.git",
        );
        // Submodules: the file in each refers back to the repository.
        check(
            "w/.git/modules/a/HEAD = x
             w/.git/modules/a/config = [core]\\n
             w/.git/modules/libs/b/HEAD = x
             w/.git/modules/libs/b/config = worktree = ../../../../libs/b
             w/.git/modules/libs/b/modules/c/HEAD = x
             w/.git/modules/libs/b/modules/c/config = worktree=\"{root}/w/libs/b/c\"
             w/.git/modules/gone/HEAD = x
             w/.git/modules/gone/config = worktree = ../../../gone
             w/libs/b/.git = gitdir: ../../.git/modules/libs/b
             w/libs/b/c/.git = gitdir: x",
            "w/.git w/libs/b/.git w/libs/b/c/.git",
        );
        // Links inside the directory lead to files that matter as much.
        check(
            "w/.git/HEAD = x\nw/.git/hooks -> ../hooks\nw/.git/config -> {root}/config\nw/hooks/x = x\nconfig = x",
            "config w/.git w/.git/config w/.git/hooks w/hooks",
        );
        check("w/.git/x -> x", "w/.git w/.git/x");
        let looped = tempfile::tempdir().expect("a directory");
        lay_out(looped.path(), ".git -> .git");
        let error = resolve(&[looped.path().join(".git")]).expect_err("a loop").to_string();
        assert!(error.contains("too many links"), "{error}");
    }

    #[test]
    fn protected_names_below_a_root() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory");
        lay_out(
            &root,
            ".git/modules/x/.git/HEAD = x
             a/.git/HEAD = x
             a/b/.git = gitdir: x
             c/.heddle/rules/x = x
             d/e/f/g/.git/x = x
             d/e/f/g/h/.git/x = x
             node_modules/x/.git/x = x
             link -> a",
        );
        let mut found = protected_below(&root);
        found.sort();
        assert_eq!(shown(&root, found), "a/.git a/b/.git c/.heddle d/e/f/g/.git");
    }
}
