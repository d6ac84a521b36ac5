//! Reads the repository around a thread's directory, and the rules for agents in it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Files with a project's rules for agents; the first that exists counts.
const RULES: [&str; 2] = ["AGENTS.override.md", "AGENTS.md"];
/// Largest such file in bytes; a longer one is not meant for a model.
const RULES_BYTES_MAX: u64 = 1024 * 1024;
/// Largest git file that is read, in bytes.
const GIT_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// The mode of placeholder directories that the sandbox creates.
const STAND_IN_MODE: u32 = 0o555;

/// Finds the repository that contains `directory`: the nearest parent with a `.git`.
pub fn repository(directory: &Path) -> Option<&Path> {
    directory.ancestors().find(|parent| {
        let git = parent.join(".git");
        git.exists() && !is_stand_in(&git)
    })
}

/// Returns whether a directory is a placeholder that exists while a model's command runs somewhere below:
/// empty, and not writable even by its owner.
fn is_stand_in(path: &Path) -> bool {
    let closed = path
        .symlink_metadata()
        .is_ok_and(|found| found.is_dir() && found.permissions().mode() & 0o7777 == STAND_IN_MODE);
    closed && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Reads the rules that apply to `directory`: those of `home` first, then from the root of its repository
/// down. Each directory contributes one file: the usual one, or the first of `fallbacks`.
///
/// An unreadable file is skipped; a project must not be unusable because of it. So is a file of the project
/// that is a link out of it: a repository from elsewhere could have any file of the user sent to the endpoint
/// that way. What was wrong with which file is returned, too.
pub fn rules(home: &Path, directory: &Path, fallbacks: &[String]) -> Rules {
    let top = repository(directory).unwrap_or(directory);
    let mut problems = Vec::new();
    let mut directories: Vec<_> =
        directory.ancestors().take_while(|parent| parent.starts_with(top)).collect();
    directories.push(home);
    directories.reverse();
    let files = directories
        .into_iter()
        .filter_map(|directory| {
            let names = RULES.into_iter().chain(fallbacks.iter().map(String::as_str));
            names.map(|name| directory.join(name)).find_map(|path| {
                let within = (directory != home).then_some(top);
                let (text, problem) = match read(&path, within) {
                    Ok((text, problem)) => (Some(text), problem),
                    Err(problem) => (None, problem),
                };
                let text = text.map(|text| (path.display().to_string(), text));
                problems.extend(problem.map(|problem| (path, problem)));
                text
            })
        })
        .collect();
    Rules { files, problems }
}

/// Rules for agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The files and their content, the most general first.
    pub files: Vec<(String, String)>,
    /// Files that were not read, or not as they are.
    pub problems: Vec<(PathBuf, RulesProblem)>,
}

/// What is wrong with a file of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesProblem {
    /// It is a link out of the project, so it is not read.
    LeadsOut,
    /// It is a link to nothing.
    LeadsNowhere,
    /// It cannot be read, for this reason.
    Unreadable(String),
    /// It was read, but bytes that are not UTF-8 were replaced.
    NotText,
}

/// Returns whether a file is in a directory, with links resolved.
fn is_within(path: &Path, top: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(path).zip(real(top)).is_some_and(|(path, top)| path.starts_with(top))
}

/// Reads a file of rules, which must be in `within`. A file that does not exist is no problem.
fn read(
    path: &Path,
    within: Option<&Path>,
) -> Result<(String, Option<RulesProblem>), Option<RulesProblem>> {
    let bytes = files::read(path, RULES_BYTES_MAX).map_err(|error| match error.is_missing() {
        true => path.is_symlink().then_some(RulesProblem::LeadsNowhere),
        false => Some(RulesProblem::Unreadable(error.to_string())),
    })?;
    if within.is_some_and(|top| !is_within(path, top)) {
        return Err(Some(RulesProblem::LeadsOut));
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            (text, Some(RulesProblem::NotText))
        }
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHead {
    pub commit: Option<String>,
    /// The branch; none if the head is detached.
    pub branch: Option<String>,
}

/// Reads what the repository around `directory` has checked out, without running git.
pub fn git_head(directory: &Path) -> Option<GitHead> {
    let text = |path: &Path| {
        let bytes = files::read(path, GIT_BYTES_MAX).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    let mut git = repository(directory)?.join(".git");
    // Work trees and submodules have a file there with the path of the directory.
    if let Some(elsewhere) = text(&git) {
        git = git.parent()?.join(elsewhere.strip_prefix("gitdir:")?.trim());
    }
    let head = text(&git.join("HEAD"))?;
    let Some(reference) = head.strip_prefix("ref:").map(str::trim) else {
        return Some(GitHead { commit: Some(head), branch: None });
    };
    let shared = text(&git.join("commondir")).map_or(git.clone(), |common| git.join(common));
    let packed = || {
        let packed = text(&shared.join("packed-refs"))?;
        let line = packed.lines().find(|line| line.ends_with(&format!(" {reference}")))?;
        line.split(' ').next().map(str::to_owned)
    };
    let commit = text(&git.join(reference)).or_else(|| text(&shared.join(reference)));
    Some(GitHead {
        commit: commit.or_else(packed),
        branch: reference.strip_prefix("refs/heads/").map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{GitHead, git_head, rules};

    /// Every kind of AGENTS.md that is not read as it is, and what is said about it.
    #[test]
    fn rules_that_are_not_read() {
        type Make = fn(&Path, &Path);
        let cases: [(Make, Option<&str>, Option<&str>); 10] = [
            (|_, _| {}, None, None),
            (|at, _| fs::write(at, "text").expect("a file"), Some("text"), None),
            (|at, _| fs::write(at, "").expect("a file"), Some(""), None),
            (
                |at, _| fs::write(at, b"a\xffb").expect("a file"),
                Some("a\u{fffd}b"),
                Some("NotText"),
            ),
            (|at, _| fs::create_dir(at).expect("a directory"), None, Some("a directory and not")),
            (
                |at, _| {
                    let made = std::process::Command::new("mkfifo").arg(at).status();
                    assert!(made.expect("mkfifo").success());
                },
                None,
                Some("a pipe and not"),
            ),
            (
                |at, _| fs::write(at, vec![b'x'; (1 << 20) + 1]).expect("a file"),
                None,
                Some("larger than 1048576 bytes"),
            ),
            (
                |at, outside| std::os::unix::fs::symlink(outside, at).expect("a link"),
                None,
                Some("LeadsOut"),
            ),
            (
                |at, _| std::os::unix::fs::symlink("nothing", at).expect("a link"),
                None,
                Some("LeadsNowhere"),
            ),
            (
                |at, _| std::os::unix::fs::symlink("/proc/self/environ", at).expect("a link"),
                None,
                Some("a file of the kernel"),
            ),
        ];
        for (make, text, problem) in cases {
            let folder = tempfile::tempdir().expect("a directory");
            let (home, top) = (folder.path().join("home"), folder.path().join("top"));
            fs::create_dir_all(top.join(".git/x")).expect("a directory");
            fs::create_dir(&home).expect("a directory");
            let outside = folder.path().join("outside");
            fs::write(&outside, "outside").expect("a file");
            let path = top.join("AGENTS.md");
            make(&path, &outside);
            let found = rules(&home, &top, &[]);
            let texts: Vec<_> = found.files.iter().map(|(_, text)| text.as_str()).collect();
            assert_eq!(texts, text.into_iter().collect::<Vec<_>>(), "{problem:?}");
            let problems: Vec<_> = found.problems.iter().collect();
            match (problems.as_slice(), problem) {
                ([], None) => {}
                ([(at, got)], Some(want)) => {
                    assert!(*at == path && format!("{got:?}").contains(want), "{got:?}");
                }
                other => panic!("{other:?}"),
            }
        }
        // The user's own file may be anywhere.
        let folder = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(folder.path().join("home")).expect("a directory");
        fs::write(folder.path().join("mine"), "mine").expect("a file");
        let link = folder.path().join("home/AGENTS.md");
        std::os::unix::fs::symlink(folder.path().join("mine"), link).expect("a link");
        let found = rules(&folder.path().join("home"), folder.path(), &[]);
        assert_eq!((found.files[0].1.as_str(), found.problems.len()), ("mine", 0));
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], directory: &str, commit: Option<&str>, branch: Option<&str>) {
        let folder = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        fs::create_dir_all(folder.path().join(directory)).expect("a directory");
        let want = GitHead { commit: commit.map(Into::into), branch: branch.map(Into::into) };
        assert_eq!(git_head(&folder.path().join(directory)), Some(want));
    }

    #[test]
    fn what_is_checked_out() {
        let head = (".git/HEAD", "ref: refs/heads/main\n");
        check(&[head, (".git/refs/heads/main", "abc\n")], "sub", Some("abc"), Some("main"));
        check(
            &[head, (".git/packed-refs", "# x\nabc refs/heads/main\n")],
            ".",
            Some("abc"),
            Some("main"),
        );
        check(&[head], ".", None, Some("main"));
        check(&[(".git/HEAD", "abc")], ".", Some("abc"), None);
        let tree = [
            ("w/.git", "gitdir: ../.git/worktrees/w\n"),
            (".git/worktrees/w/HEAD", "ref: refs/heads/side"),
            (".git/worktrees/w/commondir", "../.."),
            (".git/refs/heads/side", "def"),
        ];
        check(&tree, "w", Some("def"), Some("side"));
    }
}
