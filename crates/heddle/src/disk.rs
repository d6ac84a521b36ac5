//! File operations that a program runs on behalf of its user.
//!
//! A path can lead to anything, so pipes are not waited for, devices are not read, and every operation has a limit. Calls
//! block for as long as the disk takes; make them on a thread for blocking work. They are not for a model, whose writes go
//! through the gate of its thread.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use files::{FileError, Kind};

/// Largest file that can be read, in bytes.
pub const READ_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Most entries of a directory that can be listed.
pub const ENTRIES_MAX: usize = 100_000;
/// Most entries below a directory that can be copied.
pub const COPY_ENTRIES_MAX: usize = 100_000;

/// How much of a file is copied between two checks whether to continue.
const COPY_BYTES: u64 = 16 * 1024 * 1024;

/// Why a file operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The request makes no sense or exceeds a limit.
    #[error("{0}")]
    Invalid(String),
    /// The operating system reported an error.
    #[error("path `{}`: {error}", path.display())]
    Io {
        /// The path that could not be read or written.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
}

/// Metadata of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Whether the path is a directory, or a link to one.
    pub is_directory: bool,
    /// Whether the path is a regular file, or a link to one.
    pub is_file: bool,
    /// Whether the path itself is a link.
    pub is_symlink: bool,
    /// When it was created, in milliseconds since 1970; 0 if the file system does not say.
    pub created_ms: i64,
    /// When it was last written to, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, without its directory.
    pub name: String,
    /// Whether it is a directory, or a link to one.
    pub is_directory: bool,
    /// Whether it is a regular file, or a link to one.
    pub is_file: bool,
}

/// Reads a file of at most [`READ_BYTES_MAX`] bytes.
pub fn read(path: &Path) -> Result<Vec<u8>, DiskError> {
    files::read(path, READ_BYTES_MAX).map_err(|error| match error {
        FileError::TooLarge { bytes_max } => {
            DiskError::Invalid(format!("file is too large to read: limit is {bytes_max} bytes"))
        }
        error => not_a_file(error, path),
    })
}

/// Creates a file, or replaces its content.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let options = &mut File::options();
    let opened = files::open_with(options.write(true).create(true), path);
    let mut file = opened.map_err(|error| not_writable(error, path))?;
    // Not while it is opened: by then it is not known what it is.
    file.set_len(0).and_then(|()| file.write_all(bytes)).map_err(at(path))
}

/// Creates a directory, with its parent directories if `recursive`.
pub fn create_directory(path: &Path, recursive: bool) -> Result<(), DiskError> {
    let created = if recursive { fs::create_dir_all(path) } else { fs::create_dir(path) };
    created.map_err(at(path))
}

/// Returns the metadata of a file or directory.
pub fn metadata(path: &Path) -> Result<Metadata, DiskError> {
    let found = fs::metadata(path).map_err(at(path))?;
    let is_symlink = fs::symlink_metadata(path).map_err(at(path))?.is_symlink();
    let since_1970 = |time: io::Result<SystemTime>| {
        let passed = time.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        passed.and_then(|passed| i64::try_from(passed.as_millis()).ok()).unwrap_or_default()
    };
    Ok(Metadata {
        is_directory: found.is_dir(),
        is_file: found.is_file(),
        is_symlink,
        created_ms: since_1970(found.created()),
        modified_ms: since_1970(found.modified()),
    })
}

/// Returns the entries of a directory, sorted by name. Broken links are left out.
pub fn entries(path: &Path) -> Result<Vec<Entry>, DiskError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(at(path))? {
        let entry = entry.map_err(at(path))?;
        // It may be gone by now, too.
        let Ok(kind) = fs::metadata(entry.path()) else { continue };
        if found.len() == ENTRIES_MAX {
            return Err(DiskError::Invalid(format!(
                "path `{}` has more than {ENTRIES_MAX} entries: list it in another way",
                path.display()
            )));
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        found.push(Entry { name, is_directory: kind.is_dir(), is_file: kind.is_file() });
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Removes a file, a link, or a directory, the latter with its content if `recursive`. With `force`, a path that does not
/// exist is no error. A path that ends in `.` or `..` is refused, as `rm` does, because it names something else than it
/// would remove.
pub fn remove(path: &Path, recursive: bool, force: bool) -> Result<(), DiskError> {
    if path.parent().is_none() {
        return Err(DiskError::Invalid("the root directory is not removed".to_owned()));
    }
    check_is_named(path)?;
    let found = match fs::symlink_metadata(path) {
        Err(error) if force && error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(at(path))?,
    };
    let removed = match (found.is_dir(), recursive) {
        (true, true) => fs::remove_dir_all(path),
        (true, false) => fs::remove_dir(path),
        (false, _) => fs::remove_file(path),
    };
    match removed {
        // Somebody else was faster.
        Err(error) if force && error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(at(path)),
    }
}

/// Refuses a path that ends in `.` or `..`, because what it leads to has another name.
pub fn check_is_named(path: &Path) -> Result<(), DiskError> {
    // As it is written: to a `Path`, `a/.` ends in `a`.
    let mut written = path.as_os_str().as_encoded_bytes();
    while let Some(rest) = written.strip_suffix(b"/") {
        written = rest;
    }
    match written.rsplit(|byte| *byte == b'/').next() {
        Some(b"." | b"..") => Err(DiskError::Invalid(format!(
            "path `{}` ends in `.` or `..`, and is not removed: name the directory itself",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Copies a file, a link as a link, or a directory with its content if `recursive`. Existing files are overwritten. `go_on`
/// is asked before each step whether to continue.
pub fn copy(
    from: &Path,
    to: &Path,
    recursive: bool,
    go_on: &dyn Fn() -> bool,
) -> Result<(), DiskError> {
    let found = fs::symlink_metadata(from).map_err(at(from))?;
    if found.is_symlink() {
        return copy_link(from, to);
    }
    if found.is_file() {
        return copy_file(from, to, go_on);
    }
    if !found.is_dir() {
        return Err(DiskError::Invalid(
            "only regular files, directories and links are copied".to_owned(),
        ));
    }
    if !recursive {
        return Err(DiskError::Invalid("a directory is copied only with `recursive`".to_owned()));
    }
    let begin = from.canonicalize().map_err(at(from))?;
    if settled(to).map_err(at(to))?.starts_with(begin) {
        return Err(DiskError::Invalid(
            "a directory cannot be copied to itself or one of its descendants".to_owned(),
        ));
    }
    copy_directory(from, to, go_on)
}

fn copy_directory(from: &Path, to: &Path, go_on: &dyn Fn() -> bool) -> Result<(), DiskError> {
    let mut waiting = vec![(from.to_owned(), to.to_owned())];
    let mut seen = 0;
    while let Some((from, to)) = waiting.pop() {
        fs::create_dir_all(&to).map_err(at(&to))?;
        for entry in fs::read_dir(&from).map_err(at(&from))? {
            let entry = entry.map_err(at(&from))?;
            seen += 1;
            if seen > COPY_ENTRIES_MAX {
                return Err(DiskError::Invalid(format!(
                    "the directory has more than {COPY_ENTRIES_MAX} entries, of which these were \
                     copied: copy its parts"
                )));
            }
            let kind = entry.file_type().map_err(at(&entry.path()))?;
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            if kind.is_dir() {
                waiting.push((from, to));
            } else if kind.is_symlink() {
                copy_link(&from, &to)?;
            } else if kind.is_file() {
                copy_file(&from, &to, go_on)?;
            }
            // Pipes, sockets and devices are left out.
        }
    }
    Ok(())
}

fn copy_link(from: &Path, to: &Path) -> Result<(), DiskError> {
    let leads_to = fs::read_link(from).map_err(at(from))?;
    std::os::unix::fs::symlink(leads_to, to).map_err(at(to))
}

fn copy_file(from: &Path, to: &Path, go_on: &dyn Fn() -> bool) -> Result<(), DiskError> {
    use std::os::unix::fs::MetadataExt as _;

    let source = files::open(from).map_err(|error| not_a_file(error, from))?;
    let options = &mut File::options();
    let opened = files::open_with(options.write(true).create(true), to);
    let mut target = opened.map_err(|error| not_writable(error, to))?;
    let (ours, theirs) = (source.metadata().map_err(at(from))?, target.metadata().map_err(at(to))?);
    if (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()) {
        // To empty it before it is read would lose it.
        return Ok(());
    }
    target.set_len(0).map_err(at(to))?;
    loop {
        if !go_on() {
            return Err(at(to)(ErrorKind::Interrupted.into()));
        }
        // Which of the two has failed is not said; it is rarely the one that could be opened for reading.
        if io::copy(&mut (&source).take(COPY_BYTES), &mut target).map_err(at(to))? == 0 {
            return target.set_permissions(ours.permissions()).map_err(at(to));
        }
    }
}

/// Resolves the links of a path whose last components may not exist.
fn settled(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) => Ok(settled(parent)?.join(name)),
                _ => Err(error),
            }
        }
        found => found,
    }
}

fn not_writable(error: FileError, path: &Path) -> DiskError {
    match error {
        FileError::NotAFile(Kind::Directory) => at(path)(rustix::io::Errno::ISDIR.into()),
        error => not_a_file(error, path),
    }
}

fn not_a_file(error: FileError, path: &Path) -> DiskError {
    match error {
        FileError::Io(error) => at(path)(error),
        FileError::NotAFile(Kind::Kernel) => DiskError::Invalid(format!(
            "path `{}` is a file of the kernel, whose content depends on who reads it",
            path.display()
        )),
        _ => DiskError::Invalid(format!("path `{}` is not a file", path.display())),
    }
}

/// Adds the path to an error of the operating system.
fn at(path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    |error| DiskError::Io { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Creates a directory with a file, links, a directory and a pipe.
    fn ground() -> tempfile::TempDir {
        let ground = tempfile::tempdir().unwrap();
        let at = |name: &str| ground.path().join(name);
        fs::create_dir_all(at("d/sub")).unwrap();
        fs::write(at("d/a"), "hi").unwrap();
        fs::write(at("d/sub/b"), "deep").unwrap();
        symlink("a", at("d/link")).unwrap();
        symlink("nowhere", at("d/dangling")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("d/pipe"), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        ground
    }

    #[track_caller]
    fn says<T: std::fmt::Debug>(done: Result<T, DiskError>, want: &str) {
        let said = done.map_or_else(|error| error.to_string(), |_| "done".to_owned());
        assert!(said.contains(want), "{said}, not {want}");
    }

    /// Pipes and devices are refused without waiting.
    #[test]
    fn nothing_is_waited_for() {
        let ground = ground();
        let at = |name: &str| ground.path().join(name);
        says(read(&at("d/pipe")), "is not a file");
        says(read(Path::new("/dev/zero")), "is not a file");
        says(read(Path::new("/proc/self/environ")), "of the kernel");
        says(read(&at("d")), "is not a file");
        says(read(&at("none")), "/none`: No such file or directory (os error 2)");
        says(write(&at("d/pipe"), b"x"), "is not a file");
        says(write(Path::new("/dev/full"), b"x"), "is not a file");
        says(write(&at("d"), b"x"), "Is a directory (os error 21)");
        says(copy(&at("d/pipe"), &at("x"), false, &|| true), "only regular files");
        says(copy(&at("d/a"), &at("d/pipe"), false, &|| true), "is not a file");
    }

    #[test]
    fn a_file_has_a_bound() {
        let ground = ground();
        let path = ground.path().join("large");
        File::create(&path).unwrap().set_len(READ_BYTES_MAX + 1).unwrap();
        says(read(&path), "limit is 33554432 bytes");
    }

    #[test]
    fn writes_go_through_links() {
        let ground = ground();
        let at = |name: &str| ground.path().join(name);
        write(&at("d/link"), b"new").unwrap();
        assert_eq!(read(&at("d/a")).unwrap(), b"new");
        write(&at("d/a"), b"").unwrap();
        assert_eq!(read(&at("d/link")).unwrap(), b"");
        says(write(&at("none/x"), b""), "(os error 2)");
    }

    #[test]
    fn what_is_there() {
        let ground = ground();
        let at = |name: &str| ground.path().join(name);
        for (name, want) in [
            ("d", (true, false, false)),
            ("d/a", (false, true, false)),
            ("d/link", (false, true, true)),
            ("d/pipe", (false, false, false)),
        ] {
            let found = metadata(&at(name)).unwrap();
            assert_eq!((found.is_directory, found.is_file, found.is_symlink), want, "{name}");
            assert!(found.modified_ms > 1_600_000_000_000, "{found:?}");
        }
        says(metadata(&at("d/dangling")), "(os error 2)");
        let names: Vec<_> = entries(&at("d")).unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["a", "link", "pipe", "sub"]);
        says(entries(&at("d/a")), "Not a directory (os error 20)");
    }

    #[test]
    fn directories_come_and_go() {
        let ground = ground();
        let at = |name: &str| ground.path().join(name);
        for (name, recursive, want) in [
            ("p/q", true, "done"),
            ("p/q", true, "done"),
            ("p", false, "File exists (os error 17)"),
            ("n/q", false, "(os error 2)"),
            ("d/a", true, "File exists (os error 17)"),
        ] {
            says(create_directory(&at(name), recursive), want);
        }
        for (name, recursive, force, want) in [
            ("none", true, true, "done"),
            ("none", true, false, "(os error 2)"),
            ("d", false, true, "Directory not empty (os error 39)"),
            ("d/a/x", true, true, "/d/a/x`: Not a directory (os error 20)"),
            ("d/sub/..", true, true, "ends in `.` or `..`"),
            ("d/.", true, true, "ends in `.` or `..`"),
            ("d/..//", true, true, "ends in `.` or `..`"),
            ("d/dangling", true, false, "done"),
            ("p/q", false, false, "done"),
            ("d", true, false, "done"),
        ] {
            says(remove(&at(name), recursive, force), want);
        }
        says(remove(Path::new("/"), true, true), "not removed");
    }

    #[test]
    fn copies() {
        let ground = ground();
        let at = |name: &str| ground.path().join(name);
        for (from, to, recursive, want) in [
            ("d/a", "a2", false, "done"),
            ("d/a", "d/a", false, "done"),
            ("d/a", "d", false, "Is a directory (os error 21)"),
            ("d/a", "none/a", false, "/none/a`: No such file or directory (os error 2)"),
            ("d/link", "l2", false, "done"),
            ("d", "e", false, "only with `recursive`"),
            ("d", "e", true, "done"),
            ("d/sub", "e", true, "done"),
            ("d", "d/inside", true, "itself or one of its descendants"),
            ("d", "d", true, "itself or one of its descendants"),
            ("d", "a2", true, "File exists (os error 17)"),
            ("none", "x", true, "/none`: No such file or directory (os error 2)"),
        ] {
            says(copy(&at(from), &at(to), recursive, &|| true), want);
        }
        // A copy onto itself loses nothing.
        assert_eq!(read(&at("d/a")).unwrap(), b"hi");
        assert_eq!(fs::read_link(at("l2")).unwrap(), Path::new("a"));
        assert_eq!(fs::read_link(at("e/dangling")).unwrap(), Path::new("nowhere"));
        assert_eq!(read(&at("e/b")).unwrap(), b"deep");
        assert!(!at("e/pipe").exists());
        says(copy(&at("d/a"), &at("a3"), false, &|| false), "interrupted");
        // Through a link, too.
        symlink("d", at("to_d")).unwrap();
        says(copy(&at("d"), &at("to_d/x"), true, &|| true), "one of its descendants");
    }
}
