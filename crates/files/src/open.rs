//! Opening and reading files without blocking on what replaced them.

use std::fmt;
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::time::{Duration, Instant};

/// What was found in place of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    /// A named pipe, which blocks its reader until there is a writer.
    Pipe,
    /// A device, which may be endless.
    Device,
    /// A file that the kernel generates on read. Its content depends on the reader: `/proc/self/environ`
    /// would be our own environment.
    Kernel,
    /// A symbolic link, where none is followed.
    Link,
    /// A socket, or a platform-specific kind.
    Other,
}

impl Kind {
    fn from_type(found: FileType) -> Option<Self> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::FileTypeExt as _;
            if found.is_fifo() {
                return Some(Self::Pipe);
            }
            if found.is_char_device() || found.is_block_device() {
                return Some(Self::Device);
            }
        }
        if found.is_dir() {
            return Some(Self::Directory);
        }
        (!found.is_file()).then_some(Self::Other)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Pipe => "a pipe",
            Self::Device => "a device",
            Self::Kernel => "a file of the kernel, as in /proc,",
            Self::Link => "a link",
            Self::Other => "a socket or the like",
        })
    }
}

/// Why a file could not be opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system call failed, for example because the file does not exist.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The path is not a regular file.
    #[error("it is {0} and not a regular file; put a file there")]
    NotAFile(Kind),
    /// The file is larger than the caller accepts, or grew beyond that while it was read.
    #[error("it is larger than {bytes_max} bytes; make it shorter")]
    TooLarge { bytes_max: u64 },
    /// The file is a pipe whose writer did not finish in time.
    #[error("it is a pipe whose writer did not finish within {seconds} s; give a file instead")]
    Silent {
        /// How long we waited.
        seconds: u64,
    },
    /// The file is in a directory that the caller must not read from.
    #[error("it is in a directory of heddle that contains locks and keys; move it elsewhere")]
    Closed,
    /// The file was expected to be text.
    #[error("it is not UTF-8 text; save it as that")]
    NotText,
}

impl FileError {
    /// Tells whether the path does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        let kind = match &error {
            FileError::Io(_) => None,
            FileError::NotAFile(Kind::Directory) => Some(io::ErrorKind::IsADirectory),
            FileError::NotAFile(_) => Some(io::ErrorKind::InvalidInput),
            FileError::TooLarge { .. } => Some(io::ErrorKind::FileTooLarge),
            FileError::Silent { .. } => Some(io::ErrorKind::TimedOut),
            FileError::Closed => Some(io::ErrorKind::PermissionDenied),
            FileError::NotText => Some(io::ErrorKind::InvalidData),
        };
        match (error, kind) {
            (FileError::Io(error), _) => error,
            (error, Some(kind)) => Self::new(kind, error),
            (error, None) => Self::other(error),
        }
    }
}

/// Opens a regular file for reading, following symbolic links; anything else is refused.
///
/// Other kinds are not opened at all, because opening a device can have side effects.
pub fn open(path: &Path) -> Result<File, FileError> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;

        use rustix::fs::{CWD, Mode, OFlags, openat};

        let place = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(io::Error::from)?;
        let place = regular(File::from(place))?;
        // Through the descriptor we open the file we checked, whatever the path refers to by now.
        let number = format!("/proc/self/fd/{}", place.as_raw_fd());
        match open_with(File::options().read(true), Path::new(&number)) {
            // Without /proc, the file is checked after it was opened.
            Err(error) if error.is_missing() => {}
            opened => return opened,
        }
    }
    open_with(File::options().read(true), path)
}

/// Opens a regular file with `options`; anything else at that path is neither used nor waited for.
pub fn open_with(options: &mut OpenOptions, path: &Path) -> Result<File, FileError> {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        std::os::unix::fs::OpenOptionsExt::custom_flags(options, flags);
    }
    match options.open(path) {
        Ok(file) => regular(file),
        // Opening a pipe without a reader for writing fails, and so does opening a socket.
        Err(error) => match std::fs::metadata(path) {
            Ok(found) if !found.is_file() => {
                Err(FileError::NotAFile(Kind::from_type(found.file_type()).unwrap_or(Kind::Other)))
            }
            _ => Err(error.into()),
        },
    }
}

/// Like [`open_with`], for files of ours: no link is followed at the end of the path.
pub fn open_own(options: &mut OpenOptions, path: &Path) -> Result<File, FileError> {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        std::os::unix::fs::OpenOptionsExt::custom_flags(options, flags.bits().cast_signed());
    }
    match options.open(path) {
        Ok(file) => regular(file),
        Err(error) => match std::fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => Err(FileError::NotAFile(Kind::Link)),
            Ok(found) if !found.is_file() => {
                Err(FileError::NotAFile(Kind::from_type(found.file_type()).unwrap_or(Kind::Other)))
            }
            _ => Err(error.into()),
        },
    }
}

/// Accepts an open file only if it is a regular one that the kernel does not generate.
pub fn regular(file: File) -> Result<File, FileError> {
    match Kind::from_type(file.metadata()?.file_type()) {
        Some(kind) => Err(FileError::NotAFile(kind)),
        None if is_of_the_kernel(&file) => Err(FileError::NotAFile(Kind::Kernel)),
        None => Ok(file),
    }
}

#[cfg(target_os = "linux")]
fn is_of_the_kernel(file: &File) -> bool {
    // If the file system cannot be queried, it is not one of these.
    rustix::fs::fstatfs(file).is_ok_and(|found| {
        let kind = i128::from(found.f_type) & 0xffff_ffff;
        KERNEL_FILE_SYSTEMS.contains(&u32::try_from(kind).unwrap_or_default())
    })
}

#[cfg(not(target_os = "linux"))]
fn is_of_the_kernel(_: &File) -> bool {
    false
}

/// proc, sysfs, cgroup and cgroup2, debugfs, tracefs, securityfs, configfs, bpf.
#[cfg(target_os = "linux")]
const KERNEL_FILE_SYSTEMS: [u32; 9] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0xcafe_4a11,
];

/// Reads a regular file of at most `bytes_max` bytes.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, FileError> {
    read_opened(&open(path)?, bytes_max)
}

/// Like [`read`], but refuses a file inside one of the `closed` directories, even through symbolic links.
pub fn read_outside(path: &Path, bytes_max: u64, closed: &[PathBuf]) -> Result<Vec<u8>, FileError> {
    let file = open(path)?;
    let place = place_of(&file, path)?;
    if closed.iter().any(|directory| place.starts_with(directory)) {
        return Err(FileError::Closed);
    }
    read_opened(&file, bytes_max)
}

/// Returns the real path of a file that was opened by `path`.
fn place_of(file: &File, path: &Path) -> io::Result<PathBuf> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;
        // Through the descriptor, because the path may refer to something else by now.
        if let Ok(place) = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
            return Ok(place);
        }
    }
    let _ = file;
    path.canonicalize()
}

/// Reads a regular UTF-8 file of at most `bytes_max` bytes.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String, FileError> {
    String::from_utf8(read(path, bytes_max)?).map_err(|_| FileError::NotText)
}

/// Reads a file that a person named on the command line: like [`read`], or from a pipe, which is what a shell
/// passes for `<(…)`. The writer must finish within `patience`.
///
/// Not for paths from a model or a project, which could make us wait for anything.
#[cfg(unix)]
pub fn read_given(path: &Path, bytes_max: u64, patience: Duration) -> Result<Vec<u8>, FileError> {
    match read(path, bytes_max) {
        Err(FileError::NotAFile(Kind::Pipe)) => read_pipe(path, bytes_max, patience),
        done => done,
    }
}

#[cfg(unix)]
fn read_pipe(path: &Path, bytes_max: u64, patience: Duration) -> Result<Vec<u8>, FileError> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::OFlags;

    let deadline = Instant::now() + patience;
    let mut options = File::options();
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true), flags);
    let mut pipe = options.open(path)?;
    match Kind::from_type(pipe.metadata()?.file_type()) {
        Some(Kind::Pipe) => {}
        // The file was replaced after the first check.
        Some(kind) => return Err(FileError::NotAFile(kind)),
        None => return read_opened(&pipe, bytes_max),
    }
    let mut bytes = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        // Until the first writer opens the pipe, a read would report end of file.
        let ready = poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&left));
        match ready.map_err(io::Error::from) {
            Ok(0) => return Err(FileError::Silent { seconds: patience.as_secs() }),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        if bytes.len() as u64 > bytes_max {
            return Err(FileError::TooLarge { bytes_max });
        }
    }
}

/// Reads the rest of an open file, if that is at most `bytes_max` bytes.
///
/// A file whose reported size is larger is not read at all: it may be a sparse file of any size.
pub fn read_opened(file: &File, bytes_max: u64) -> Result<Vec<u8>, FileError> {
    let too_large = || FileError::TooLarge { bytes_max };
    let length = file.metadata()?.len();
    if length > bytes_max {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_large());
    }
    Ok(bytes)
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::{FileError, open, open_own, open_with, read, read_outside, read_text};

    /// Much longer than any step here takes, and shorter than a test timeout.
    const SOON: Duration = Duration::from_secs(10);

    fn pipe(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a pipe");
    }

    #[track_caller]
    fn check(path: &Path, bytes_max: u64, want: Result<&str, &str>) {
        let begun = Instant::now();
        let shown = path.display();
        match (read(path, bytes_max), want) {
            (Ok(bytes), Ok(text)) => assert_eq!(bytes, text.as_bytes(), "{shown}"),
            (Err(error), Err(words)) if error.to_string().contains(words) => {}
            (got, want) => panic!("{shown}: {got:?}, not {want:?}"),
        }
        assert!(begun.elapsed() < SOON, "{shown} took {:?}", begun.elapsed());
    }

    /// Generated files and closed directories are not read through symbolic links either.
    #[cfg(target_os = "linux")]
    #[test]
    fn files_of_the_kernel_and_closed_directories() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory");
        for (name, target) in [
            ("environ", "/proc/self/environ"),
            ("status", "/proc/self/status"),
            ("system", "/sys/kernel/mm/transparent_hugepage/enabled"),
        ] {
            if Path::new(target).exists() {
                symlink(target, root.join(name)).expect("a link");
                check(&root.join(name), 1 << 20, Err("a file of the kernel"));
                check(Path::new(target), 1 << 20, Err("a file of the kernel"));
            }
        }
        fs::create_dir(root.join("closed")).expect("a directory");
        fs::write(root.join("closed/token"), "secret").expect("a file");
        fs::write(root.join("open"), "text").expect("a file");
        symlink("closed/token", root.join("way")).expect("a link");
        let closed = [root.join("closed")];
        for (name, want) in [("open", true), ("closed/token", false), ("way", false)] {
            let got = read_outside(&root.join(name), 100, &closed);
            assert_eq!(got.is_ok(), want, "{name}: {got:?}");
        }
    }

    /// A pipe named by a person: with a writer, with one that writes too much, with a slow one, and with
    /// none.
    #[test]
    fn pipes_are_read_if_the_user_gave_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pipe");
        pipe(&path);
        let check = |written: Option<&[u8]>, patience: Duration, want: Result<&str, &str>| {
            std::thread::scope(|scope| {
                if let Some(text) = written {
                    scope.spawn(|| {
                        let mut pipe = File::options().write(true).open(&path).expect("a reader");
                        // The reader closes its end once it has read enough.
                        let _ = pipe.write_all(text);
                    });
                }
                match (super::read_given(&path, 20_000, patience), want) {
                    (Ok(bytes), Ok(text)) => assert_eq!(bytes, text.as_bytes()),
                    (Err(error), Err(words)) if error.to_string().contains(words) => {}
                    (got, want) => panic!("{got:?}, not {want:?}"),
                }
            });
        };
        check(Some(b"12345"), SOON, Ok("12345"));
        check(Some(b""), SOON, Ok(""));
        let long = "x".repeat(20_000);
        check(Some(long.as_bytes()), SOON, Ok(&long));
        check(Some(&[b'x'; 20_001]), SOON, Err("larger than 20000 bytes"));
        check(None, Duration::from_millis(50), Err("did not finish"));
        fs::write(directory.path().join("file"), "x").expect("a file");
        let read = super::read_given(&directory.path().join("file"), 1, Duration::ZERO);
        assert_eq!(read.expect("a file"), b"x");
        assert!(super::read_given(directory.path(), 1, Duration::ZERO).is_err());
    }

    #[test]
    fn what_is_read_and_what_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "12345").expect("a file");
        fs::write(at("empty"), "").expect("a file");
        pipe(&at("pipe"));
        let _socket = UnixListener::bind(at("socket")).expect("a socket");
        File::create(at("hole")).and_then(|file| file.set_len(1 << 42)).expect("a hole");
        for (name, target) in [
            ("to-file", "file"),
            ("to-pipe", "pipe"),
            ("to-zero", "/dev/zero"),
            ("to-terminal", "/dev/ptmx"),
            ("to-nowhere", "nothing"),
            ("to-itself", "to-itself"),
            ("to-to-zero", "to-zero"),
        ] {
            symlink(target, at(name)).expect("a link");
        }
        check(&at("file"), 5, Ok("12345"));
        check(&at("to-file"), 5, Ok("12345"));
        check(&at("empty"), 0, Ok(""));
        check(&at("file"), 4, Err("larger than 4 bytes"));
        check(&at("hole"), 1 << 20, Err("larger than"));
        check(&at("pipe"), 9, Err("a pipe"));
        check(&at("to-pipe"), 9, Err("a pipe"));
        check(&at("socket"), 9, Err("a socket"));
        check(&at("to-zero"), 9, Err("a device"));
        check(&at("to-to-zero"), 9, Err("a device"));
        check(&at("to-terminal"), 9, Err("a device"));
        check(Path::new("/dev/zero"), 9, Err("a device"));
        check(directory.path(), 9, Err("a directory"));
        check(&at("to-nowhere"), 9, Err("No such file"));
        check(&at("to-itself"), 9, Err("symbolic links"));
        check(&at("file/below"), 9, Err("Not a directory"));
    }

    #[test]
    fn what_is_opened_for_writing() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        pipe(&at("pipe"));
        let mut options = File::options();
        options.append(true).create(true);
        for (path, want) in [
            (at("new"), None),
            (at("pipe"), Some("a pipe")),
            ("/dev/null".into(), Some("a device")),
            (directory.path().to_owned(), Some("a directory")),
        ] {
            for open in [open_with, open_own] {
                let got = open(&mut options, &path).err().map(|error| error.to_string());
                assert!(
                    match (&got, want) {
                        (None, None) => true,
                        (Some(got), Some(want)) => got.contains(want),
                        _ => false,
                    },
                    "{}: {got:?}",
                    path.display()
                );
            }
        }
        for (link, target) in [("to-new", "new"), ("to-nothing", "nothing"), ("to-pipe", "pipe")] {
            symlink(target, at(link)).expect("a link");
            let error = open_own(&mut options, &at(link)).expect_err("it is a link");
            assert!(error.to_string().contains("it is a link"), "{link}: {error}");
        }
        assert!(!at("nothing").exists());
    }

    #[test]
    fn text_is_text() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        fs::write(&path, b"\xff").expect("a file");
        assert!(matches!(read_text(&path, 9), Err(FileError::NotText)));
    }

    /// Whatever the path refers to at the moment, the file is read whole or the error names what was found.
    #[test]
    fn a_path_that_is_replaced_repeatedly() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "12345").expect("a file");
        let over = AtomicBool::new(false);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    match turn % 4 {
                        0 => pipe(&at("next")),
                        1 => symlink("/dev/zero", at("next")).expect("a link"),
                        2 => fs::create_dir(at("next")).expect("a directory"),
                        _ => fs::write(at("next"), "12345").expect("a file"),
                    }
                    // `rename` neither replaces a directory nor puts one over a file.
                    let _ = fs::remove_dir(at("file"));
                    if turn % 4 == 2 {
                        let _ = fs::remove_file(at("file"));
                    }
                    fs::rename(at("next"), at("file")).expect("nobody else moves things");
                }
            });
            for _ in 0..3_000 {
                match read(&at("file"), 64) {
                    Ok(bytes) => assert!(bytes.len() <= 5),
                    Err(FileError::NotAFile(_)) => {}
                    Err(error) => assert!(error.is_missing(), "{error}"),
                }
                let _ = open_with(File::options().append(true), &at("file"));
                assert!(begun.elapsed() < 3 * SOON, "it waits");
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_growing_file_is_read_up_to_the_limit() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let mut file = File::create(&path).expect("a file");
        let opened = open(&path).expect("a file");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut written = 0;
                while !over.load(Ordering::Relaxed) && written < 1 << 28 {
                    written += file.write(&[b'x'; 1 << 16]).expect("room");
                }
            });
            while fs::metadata(&path).expect("a file").len() < 1 << 12 {}
            for _ in 0..100 {
                let read = read(&path, 1 << 14);
                assert!(read.map_or(true, |bytes| bytes.len() <= 1 << 14));
            }
            over.store(true, Ordering::Relaxed);
        });
        drop(opened);
    }
}
