//! The file for the last message (`exec -o`), written after the turn and outside the sandbox.
//!
//! The model's commands can usually write where that file is. So a link that they could have created is never
//! followed: a link in place of the file is replaced, a link on the path to it is an error. The directory is
//! opened before the turn starts; the file is written to a temporary name in it and then renamed. If the path
//! leads to another directory by then, or to none, nothing is written and the user is told.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::fs::{self, Access, AtFlags, FileType, Mode, OFlags};

/// Where the last message goes.
#[derive(Debug)]
pub(crate) struct AnswerFile {
    /// The path as the user wrote it.
    path: PathBuf,
    /// The same from the root: the working directory may be moved as well.
    whole: PathBuf,
    /// Where commands can write.
    writable: Vec<PathBuf>,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// A name in a directory.
    Entry { directory: OwnedFd, name: OsString },
    /// Something other than a regular file, such as a terminal or a pipe, that existed before the turn.
    Stream(File),
}

impl AnswerFile {
    /// Checks early that the file can be written.
    pub(crate) fn check(path: &Path) -> Result<()> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if path.is_dir() || parent.is_some_and(|parent| !parent.is_dir()) {
            bail!(
                "-o {}: the parent directory does not exist, or the path is a directory",
                path.display()
            );
        }
        Ok(())
    }

    /// Opens the directory of the file, before any command runs. `writable` lists where commands can write.
    pub(crate) fn open(path: &Path, writable: &[PathBuf]) -> Result<Self> {
        let open = || -> Result<_> {
            let whole = std::path::absolute(path)?;
            let target = find(&whole, writable)?;
            Ok(Self { path: path.to_owned(), whole, writable: writable.to_vec(), target })
        };
        open().map_err(|error| anyhow!("-o {}: {error:#}", path.display()))
    }

    /// Writes the answer, if the path still leads to where it led when this was opened.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<()> {
        let Self { path, whole, writable, target } = self;
        let written = match target {
            Target::Stream(mut stream) => {
                stream.write_all(bytes).and_then(|()| stream.flush()).map_err(anyhow::Error::from)
            }
            Target::Entry { directory, name } => check_way(&whole, &writable, &directory)
                .and_then(|()| Ok(replace(&directory, &name, bytes)?)),
        };
        written.with_context(|| format!("the answer was not written to {}", path.display()))
    }
}

/// Fails if a path no longer leads to the directory that it led to.
fn check_way(whole: &Path, writable: &[PathBuf], directory: &OwnedFd) -> Result<()> {
    let now = destination(whole, writable, LINKS_MAX, &mut |_| Ok(false));
    let now = now.and_then(|(parent, _)| Ok(fs::stat(&parent)?));
    let held = fs::fstat(directory)?;
    let reason = match now {
        Ok(now) if (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino) => return Ok(()),
        Ok(_) => "another directory is in its place".to_owned(),
        Err(error) => format!("{error:#}"),
    };
    // A directory that was removed is held open all the same, but no path leads there.
    let fate = match std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())) {
        _ if held.st_nlink == 0 => "was removed".to_owned(),
        Ok(place) => format!("was moved to {}", place.display()),
        Err(_) => "was moved".to_owned(),
    };
    bail!("the directory that was there when the turn began {fate} ({reason})")
}

/// Most links to follow on the path to a file, the same limit as the kernel's.
const LINKS_MAX: u32 = 40;

fn find(path: &Path, writable: &[PathBuf]) -> Result<Target> {
    let mut found = None;
    let (parent, name) = destination(path, writable, LINKS_MAX, &mut |place| {
        found = stream(place)?;
        Ok(found.is_some())
    })?;
    if let Some(stream) = found {
        return Ok(Target::Stream(stream));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = fs::open(&parent, flags, Mode::empty())?;
    // Better to fail now than when the answer exists.
    fs::accessat(&directory, ".", Access::WRITE_OK, AtFlags::empty())
        .with_context(|| format!("{} is not writable", parent.display()))?;
    Ok(Target::Entry { directory, name })
}

/// Follows the user's links to the directory and the name that a path means. Stops early at a place for which
/// `ends` returns true.
fn destination(
    path: &Path,
    writable: &[PathBuf],
    links_max: u32,
    ends: &mut dyn FnMut(&Path) -> io::Result<bool>,
) -> Result<(PathBuf, OsString)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        bail!("the path has no file name");
    };
    let parent = resolve(parent, writable, links_max)?;
    let place = parent.join(name);
    let is_link = place.symlink_metadata().is_ok_and(|it| it.is_symlink());
    // A link that a command could have created is replaced.
    let is_theirs = is_link && is_within(&parent, writable);
    if is_theirs || ends(&place)? || !is_link {
        return Ok((parent, name.to_owned()));
    }
    let left = links_max.checked_sub(1).context("there are too many links on the way")?;
    destination(&parent.join(place.read_link()?), writable, left, ends)
}

/// Writes a temporary file next to the destination and renames it over whatever is there.
fn replace(directory: &OwnedFd, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let old = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let regular = old.filter(|old| FileType::from_raw_mode(old.st_mode) == FileType::RegularFile);
    let mode = regular.map_or(Mode::from_raw_mode(0o666), |old| Mode::from_raw_mode(old.st_mode));
    let mut beside = OsString::from(".");
    beside.push(name);
    // A command could create a file under a name that it can guess.
    beside.push(format!(".{:016x}", random().map_err(io::Error::other)?));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(fs::openat(directory, &beside, flags, mode)?);
    let written = file.write_all(bytes).and_then(|()| match regular {
        Some(_) => Ok(fs::fchmod(&file, mode)?),
        None => Ok(()),
    });
    let moved = written.and_then(|()| Ok(fs::renameat(directory, &beside, directory, name)?));
    if moved.is_err() {
        // The leftover is useless, and the failure itself is reported.
        let _ = fs::unlinkat(directory, &beside, AtFlags::empty());
    }
    moved
}

/// Opens a place that stands for one of our open files, such as `/dev/stdout`. A file behind it must not be replaced: others
/// write to it, too.
fn own_stream(place: &Path) -> io::Result<Option<File>> {
    let parent = place.parent().unwrap_or(Path::new(""));
    let in_proc = parent.starts_with("/proc") && parent.ends_with("fd");
    let name = place.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let number = match (in_proc || parent == Path::new("/dev/fd"), name) {
        (true, number) => number,
        (false, "stdout") if parent == Path::new("/dev") => "1",
        (false, "stderr") if parent == Path::new("/dev") => "2",
        (false, _) => return Ok(None),
    };
    // These share the position with what we print.
    let owned = match number {
        "1" => io::stdout().as_fd().try_clone_to_owned()?,
        "2" => io::stderr().as_fd().try_clone_to_owned()?,
        _ if place.metadata().is_ok_and(|it| it.is_file()) => {
            File::options().append(true).open(place)?.into()
        }
        _ => return Ok(None),
    };
    Ok(Some(File::from(owned)))
}

/// Opens something that exists and is not a regular file; none if there is nothing or a regular file.
fn stream(path: &Path) -> io::Result<Option<File>> {
    if let Some(stream) = own_stream(path)? {
        return Ok(Some(stream));
    }
    let Ok(metadata) = path.metadata() else { return Ok(None) };
    if metadata.is_file() {
        return Ok(None);
    }
    // Opening a pipe without a reader would block forever.
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match fs::open(path, flags, Mode::empty()) {
        Err(error) if error == rustix::io::Errno::NXIO => {
            return Err(io::Error::other("it is a pipe, and nobody reads it"));
        }
        opened => File::from(opened?),
    };
    let flags = fs::fcntl_getfl(&file)? - OFlags::NONBLOCK;
    fs::fcntl_setfl(&file, flags)?;
    Ok(Some(file))
}

/// Resolves all links on the path to a directory; fails if a command could have created one of them.
fn resolve(directory: &Path, writable: &[PathBuf], links_max: u32) -> Result<PathBuf> {
    let mut real = PathBuf::new();
    for component in directory.components() {
        match component {
            Component::Prefix(_) | Component::RootDir => real.push(component),
            Component::CurDir => {}
            Component::ParentDir => {
                real.pop();
            }
            Component::Normal(name) => {
                let next = real.join(name);
                if !next.symlink_metadata()?.is_symlink() {
                    real = next;
                    continue;
                }
                if is_within(&real, writable) {
                    bail!(
                        "{} is a link, and a command of the model could have made it; name the directory \
                         that it leads to",
                        next.display()
                    );
                }
                // The target of the user's link may itself lead through a link of a command.
                let left =
                    links_max.checked_sub(1).context("there are too many links on the way")?;
                real = resolve(&real.join(next.read_link()?), writable, left)?;
            }
        }
    }
    Ok(real)
}

fn is_within(directory: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| directory.starts_with(root))
}

/// Returns an unpredictable number.
fn random() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::getrandom(&mut bytes)
        .map_err(|error| anyhow!("the operating system provides no random numbers: {error}"))?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::AnswerFile;

    /// Opens a file, runs `swap` after that, and writes. `want` is where the text ends up, or the error
    /// message.
    #[track_caller]
    fn check(
        prepare: fn(&Path),
        path: &str,
        swap: fn(&Path),
        want: Result<&str, &str>,
        untouched: bool,
    ) {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        for directory in ["w/out", "elsewhere"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::fs::write(root.join("elsewhere/secret"), "as it was").unwrap();
        prepare(&root);
        let written = AnswerFile::open(&root.join(path), &[root.join("w")]).and_then(|file| {
            swap(&root);
            file.write(b"answer")
        });
        match (written, want) {
            (Ok(()), Ok(place)) => {
                assert_eq!(std::fs::read_to_string(root.join(place)).unwrap(), "answer");
                assert!(!root.join(place).is_symlink(), "{place}");
            }
            (Err(error), Err(words)) => {
                let error = format!("{error:#}");
                assert!(error.contains(words), "no {words:?} in {error}");
            }
            (written, want) => panic!("{written:?}, not {want:?}"),
        }
        let secret = std::fs::read_to_string(root.join("elsewhere/secret")).unwrap();
        assert_eq!(secret == "as it was", untouched);
    }

    #[test]
    fn places() {
        let nothing: fn(&Path) = |_| {};
        check(nothing, "w/a.md", nothing, Ok("w/a.md"), true);
        check(
            |it| std::fs::write(it.join("w/a.md"), "old").unwrap(),
            "w/a.md",
            nothing,
            Ok("w/a.md"),
            true,
        );
        check(nothing, "w/../w/out/a.md", nothing, Ok("w/out/a.md"), true);
        // A link in place of the file, created during this turn or an earlier one.
        let link: fn(&Path) = |it| symlink(it.join("elsewhere/secret"), it.join("w/a.md")).unwrap();
        check(nothing, "w/a.md", link, Ok("w/a.md"), true);
        check(link, "w/a.md", nothing, Ok("w/a.md"), true);
        // A link on the path to it.
        let way: fn(&Path) = |it| {
            std::fs::remove_dir(it.join("w/out")).unwrap();
            symlink(it.join("elsewhere"), it.join("w/out")).unwrap();
        };
        check(way, "w/out/secret", nothing, Err("is a link, and a command"), true);
        // The user's own links are followed.
        let own: fn(&Path) = |it| symlink(it.join("elsewhere/secret"), it.join("own")).unwrap();
        check(own, "own", nothing, Ok("elsewhere/secret"), false);
        // But not when they lead through links of commands.
        let on: fn(&Path) = |it| {
            std::fs::remove_dir(it.join("w/out")).unwrap();
            symlink(it.join("elsewhere"), it.join("w/out")).unwrap();
            symlink(it.join("w/out/secret"), it.join("file")).unwrap();
            symlink(it.join("w/out"), it.join("folder")).unwrap();
            symlink(it.join("round"), it.join("round")).unwrap();
        };
        check(on, "file", nothing, Err("is a link, and a command"), true);
        check(on, "folder/secret", nothing, Err("is a link, and a command"), true);
        check(on, "round", nothing, Err("too many"), true);
        let pipe: fn(&Path) = |it| {
            let made = std::process::Command::new("mkfifo").arg(it.join("w/a.md")).status();
            assert!(made.unwrap().success());
        };
        check(pipe, "w/a.md", nothing, Err("nobody reads it"), true);
        check(nothing, "w/a.md", pipe, Ok("w/a.md"), true);
    }

    /// A path that leads elsewhere by the end, however that came: nothing is written, neither there nor where
    /// the directory is now.
    #[test]
    fn directories_that_were_moved() {
        let swap: fn(&Path, &str) = |it, by| match by {
            "link" => {
                std::fs::rename(it.join("w/out"), it.join("w/moved")).unwrap();
                symlink(it.join("elsewhere"), it.join("w/out")).unwrap();
            }
            // The link leads back to the same directory: still nothing that a command made is followed.
            "link back" => {
                std::fs::rename(it.join("w/out"), it.join("w/moved")).unwrap();
                symlink("moved", it.join("w/out")).unwrap();
            }
            "another" => {
                std::fs::rename(it.join("w/out"), it.join("w/moved")).unwrap();
                std::fs::create_dir(it.join("w/out")).unwrap();
            }
            "none" => std::fs::rename(it.join("w/out"), it.join("w/moved")).unwrap(),
            "removed" => std::fs::remove_dir_all(it.join("w/out")).unwrap(),
            "renamed over" => {
                std::fs::remove_dir(it.join("w/out/deep")).unwrap();
                std::fs::create_dir(it.join("w/other")).unwrap();
                std::fs::rename(it.join("w/other"), it.join("w/out")).unwrap();
            }
            "back again" => {
                std::fs::rename(it.join("w/out"), it.join("w/moved")).unwrap();
                std::fs::create_dir(it.join("w/out")).unwrap();
                std::fs::remove_dir(it.join("w/out")).unwrap();
                std::fs::rename(it.join("w/moved"), it.join("w/out")).unwrap();
            }
            other => panic!("{other}"),
        };
        for (path, by, want) in [
            ("w/out/x", "link", Some("was moved to")),
            ("w/out/x", "link back", Some("was moved to")),
            ("w/out/x", "another", Some("another directory is in its place")),
            ("w/out/x", "none", Some("w/moved")),
            ("w/out/x", "removed", Some("was removed")),
            ("w/out/x", "renamed over", Some("was removed")),
            ("w/out/x", "back again", None),
            // The same happens to a directory above it.
            ("w/out/deep/x", "link", Some("was moved to")),
            ("w/out/deep/x", "another", Some("w/moved/deep")),
            ("w/out/deep/x", "none", Some("w/moved/deep")),
            ("w/out/deep/x", "removed", Some("was removed")),
            ("w/out/deep/x", "back again", None),
            // The user's own link to it.
            ("own", "another", Some("was moved to")),
            ("own", "back again", None),
        ] {
            let home = tempfile::tempdir().unwrap();
            let root = home.path().canonicalize().unwrap();
            for directory in ["w/out/deep", "elsewhere/deep"] {
                std::fs::create_dir_all(root.join(directory)).unwrap();
            }
            symlink(root.join("w/out/x"), root.join("own")).unwrap();
            let file = AnswerFile::open(&root.join(path), &[root.join("w")]).unwrap();
            swap(&root, by);
            let written = file.write(b"answer").map_err(|error| format!("{error:#}"));
            match (&written, want) {
                (Ok(()), None) => {
                    assert_eq!(std::fs::read_to_string(root.join(path)).unwrap(), "answer");
                }
                (Err(error), Some(want)) => {
                    assert!(error.contains(want), "{path}, {by}: {error}");
                    assert!(error.contains("the answer was not written to"), "{error}");
                    let mut find = std::process::Command::new("find");
                    let files = find.arg(&root).args(["-type", "f"]).output().unwrap().stdout;
                    assert_eq!(String::from_utf8_lossy(&files), "", "{path}, {by}");
                }
                other => panic!("{path}, {by}: {other:?}"),
            }
        }
    }

    /// Not a file at all, like a shell's `>(…)`.
    #[test]
    fn streams() {
        AnswerFile::open(Path::new("/dev/null"), &[]).unwrap().write(b"gone").unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&writer);
        let path = format!("/dev/fd/{fd}");
        AnswerFile::open(Path::new(&path), &[]).unwrap().write(b"answer").unwrap();
        drop(writer);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert_eq!(text, "answer");
        // A regular file behind a descriptor is not replaced.
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("kept");
        std::fs::write(&kept, "before ").unwrap();
        let file = std::fs::File::options().append(true).open(&kept).unwrap();
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        AnswerFile::open(Path::new(&path), &[]).unwrap().write(b"answer").unwrap();
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "before answer");
    }
}
