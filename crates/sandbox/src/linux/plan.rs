//! Decides which mounts and grants a profile requires; they are made elsewhere.
//!
//! With mount namespaces everything is read-only first. Then each writable directory is opened, and each
//! protected path inside it is closed again. A mount point can be neither renamed nor removed; so every
//! directory between a writable one and a protected path becomes one too, because it could otherwise be moved
//! away and replaced.
//!
//! Landlock has only grants, which extend to everything below. If something protected is below, its siblings
//! are granted one by one instead; then nothing new can be created next to them.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// One bind mount of a path onto itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Writable(PathBuf),
    /// Stays as it is, but cannot be moved away.
    Pinned(PathBuf),
    ReadOnly(PathBuf),
}

/// Returns the mounts in the order in which they must be made.
pub(crate) fn steps(writable: &[PathBuf], protected: &[PathBuf]) -> Vec<Step> {
    // A path sorts after its parents, so deeper mounts come later, on top.
    let writable: BTreeSet<&Path> = writable.iter().map(PathBuf::as_path).collect();
    let protected: BTreeSet<&Path> =
        protected.iter().map(PathBuf::as_path).filter(|path| below(path, &writable)).collect();
    let mut pinned = BTreeSet::new();
    for path in &protected {
        let between = path.ancestors().skip(1).take_while(|ancestor| below(ancestor, &writable));
        pinned.extend(between.filter(|ancestor| !writable.contains(ancestor)));
    }
    let writable = writable.into_iter().map(|path| Step::Writable(path.to_owned()));
    let pinned = pinned.into_iter().map(|path| Step::Pinned(path.to_owned()));
    let protected = protected.into_iter().map(|path| Step::ReadOnly(path.to_owned()));
    writable.chain(pinned).chain(protected).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    /// A link is never granted, since its target would be.
    pub(crate) link: bool,
}

/// Returns the paths at and below which writing is granted, without granting anything protected.
pub(crate) fn grants(
    writable: &[PathBuf],
    protected: &[PathBuf],
    list: &dyn Fn(&Path) -> Vec<Entry>,
) -> Vec<PathBuf> {
    let protected: BTreeSet<&Path> = protected.iter().map(PathBuf::as_path).collect();
    let mut granted = BTreeSet::new();
    let mut open: Vec<PathBuf> = writable.to_vec();
    while let Some(path) = open.pop() {
        if below(&path, &protected) {
            continue;
        }
        // In sorted order, everything below a path directly follows it.
        let from = (Bound::Included(path.as_path()), Bound::Unbounded);
        let next = protected.range::<Path, _>(from).next();
        if next.is_some_and(|protected| protected.starts_with(&path)) {
            open.extend(list(&path).into_iter().filter(|e| !e.link).map(|entry| entry.path));
        } else {
            granted.insert(path);
        }
    }
    granted.into_iter().collect()
}

/// Tells whether a path is one of `roots`, or below one.
pub(crate) fn below(path: &Path, roots: &BTreeSet<&Path>) -> bool {
    path.ancestors().any(|ancestor| roots.contains(ancestor))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Entry, Step, grants, steps};

    fn paths(text: &str) -> Vec<PathBuf> {
        text.split_whitespace().map(PathBuf::from).collect()
    }

    #[track_caller]
    fn check(writable: &str, protected: &str, want: &str) {
        let shown: Vec<_> = steps(&paths(writable), &paths(protected))
            .into_iter()
            .map(|step| match step {
                Step::Writable(path) => format!("w{}", path.display()),
                Step::Pinned(path) => format!("p{}", path.display()),
                Step::ReadOnly(path) => format!("r{}", path.display()),
            })
            .collect();
        assert_eq!(shown.join(" "), want, "{writable} | {protected}");
    }

    #[test]
    fn mounts() {
        check("", "/a/.git", "");
        check("/a", "/a/.git /b/.git", "w/a r/a/.git");
        check("/a /tmp", "/a/.git", "w/a w/tmp r/a/.git");
        // A workspace inside a temporary directory: neither it nor its parents can be moved away.
        check("/tmp/x/ws /tmp", "/tmp/x/ws/.git", "w/tmp w/tmp/x/ws p/tmp/x r/tmp/x/ws/.git");
        check("/tmp", "/tmp/home", "w/tmp r/tmp/home");
        check("/tmp", "/tmp/a/b/home", "w/tmp p/tmp/a p/tmp/a/b r/tmp/a/b/home");
        check("/", "/a/.git", "w/ p/a r/a/.git");
        check("/a/.git/x", "/a/.git", "w/a/.git/x");
        check("/a /a/.git/x", "/a/.git", "w/a w/a/.git/x r/a/.git");
        check("/a-b /a", "/a-b/.git", "w/a w/a-b r/a-b/.git");
    }

    #[track_caller]
    fn check_grants(writable: &str, protected: &str, tree: &str, want: &str) {
        let tree = paths(tree);
        let list = |of: &Path| {
            let entries = tree.iter().filter(|path| path.parent() == Some(of));
            entries.map(|path| Entry { path: path.clone(), link: path.ends_with("link") }).collect()
        };
        let shown: Vec<_> = grants(&paths(writable), &paths(protected), &list)
            .into_iter()
            .map(|path| path.display().to_string())
            .collect();
        assert_eq!(shown.join(" "), want, "{writable} | {protected}");
    }

    #[test]
    fn granted() {
        check_grants("/tmp", "/a/.git", "/tmp/x", "/tmp");
        check_grants("/a", "/a/.git", "/a/.git /a/src /a/f /a/link", "/a/f /a/src");
        check_grants("/a", "/a/.git", "/a/src", "/a/src");
        check_grants(
            "/tmp",
            "/tmp/x/.git",
            "/tmp/x /tmp/y /tmp/x/s /tmp/x/.git",
            "/tmp/x/s /tmp/y",
        );
        check_grants("/tmp /tmp/x", "/tmp/x/.git", "/tmp/x /tmp/x/s", "/tmp/x/s");
        check_grants("/a/.git", "/a/.git", "/a/.git/x", "");
        check_grants("/a", "/a-b/.git", "/a/s", "/a");
        check_grants("/a", "/a!/.git /a/.git", "/a/s", "/a/s");
    }
}
