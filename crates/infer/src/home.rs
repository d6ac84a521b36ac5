//! The files of a daemon, and the lock that decides which process is the daemon of a home.
//!
//! `HOME/daemon` contains the socket, the log, the process id, the token of the TCP port, and the lock that
//! the daemon holds while it lives. The lock decides: a socket or process id without it is a leftover.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use files::LockError;
use rustix::process::Pid;
use stdx::Redacted;

/// Longest path of a socket on the systems we know, including the terminating zero.
const SOCKET_PATH_BYTES_MAX: usize = 104;
const TOKEN_BYTES_MAX: u64 = 1024;
/// Shortest token that is accepted.
const TOKEN_BYTES_MIN: usize = 16;

/// The files of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    directory: PathBuf,
    socket: PathBuf,
}

/// Why the home cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomeError {
    /// Another daemon is running.
    #[error("a daemon is already running here{}; use that one, or stop it with `heddle daemon stop`", shown(*pid))]
    Taken {
        /// Its process id, if known.
        pid: Option<u32>,
    },
    /// Another program listens on the socket's path.
    #[error("{} is in use by another program; stop it first", path.display())]
    Live { path: PathBuf },
    /// A directory or file belongs to another user, or is accessible to others.
    #[error("{} is not safe to use: {problem}", path.display())]
    NotOurs { path: PathBuf, problem: &'static str },
    /// Something else is in the place of a directory.
    #[error("{} is not a directory; move it away, or set HEDDLE_HOME to another directory", path.display())]
    NoDirectory { path: PathBuf },
    /// Another process held a lock for too long.
    #[error("{} is locked: {held}", path.display())]
    Held {
        path: PathBuf,
        /// The holder; not a source, since the message contains it.
        held: LockError,
    },
    /// A system call failed.
    #[error("{} cannot be used: {reason}{}", path.display(), advice(reason))]
    Io {
        path: PathBuf,
        /// The reason; not a source, since the message contains it.
        reason: io::Error,
    },
}

fn advice(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; let your user write there, or set HEDDLE_HOME to a directory where it can"
        }
        io::ErrorKind::NotADirectory => {
            "; move away what is in the way, or set HEDDLE_HOME to another directory"
        }
        _ => "",
    }
}

fn shown(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

/// The exclusive right to be the daemon of a home, while this value lives.
#[derive(Debug)]
pub struct DaemonLock {
    home: Home,
    _lock: File,
}

/// What a daemon does with its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Loading,
    Serving,
}

impl Doing {
    /// Returns the word for messages and files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Serving => "serving",
        }
    }
}

/// The file with the note.
const NOTE: &str = "model";
const NOTE_BYTES_MAX: u64 = 8192;

impl Home {
    /// Names the files of the daemon of `home`, heddle's own directory.
    ///
    /// If the socket's path would be too long there, it is in a runtime directory: that of the user's session
    /// (`runtime`), otherwise a private one among the temporary directories.
    pub fn new(home: &Path, runtime: Option<&Path>) -> Self {
        let directory = home.join("daemon");
        let socket = directory.join("socket");
        if fits(&socket) {
            return Self { directory, socket };
        }
        let digest =
            ring::digest::digest(&ring::digest::SHA256, home.as_os_str().as_encoded_bytes());
        let name = format!("heddle-{}", hex(&digest.as_ref()[..8]));
        let socket = runtime
            .map(|runtime| runtime.join(&name).join("socket"))
            .filter(|socket| fits(socket))
            .unwrap_or_else(|| {
                let uid = rustix::process::geteuid().as_raw();
                Path::new("/tmp").join(format!("{name}-{uid}")).join("socket")
            });
        Self { directory, socket }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Tells whether no other user can have created the socket, which may be in a shared temporary directory.
    pub fn is_ours(&self) -> bool {
        let about = self.socket.parent().and_then(|parent| fs::symlink_metadata(parent).ok());
        about.is_none_or(|about| {
            let ours = about.uid() == rustix::process::geteuid().as_raw();
            // Nothing can be created inside a regular file.
            about.is_file() || (about.is_dir() && ours && about.mode() & 0o022 == 0)
        })
    }

    pub fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// Returns the file for a background daemon's error output.
    pub fn stderr(&self) -> PathBuf {
        self.directory.join("stderr")
    }

    /// Returns the file for the error output of a daemon that only rehearses.
    pub fn rehearsal(&self) -> PathBuf {
        self.directory.join("rehearsal")
    }

    /// Records which file a daemon loads or has loaded, so that a crash can be attributed to it.
    pub fn note_file(&self, doing: Doing, file: &Path) {
        let note = [doing.word().as_bytes(), b"\n", file.as_os_str().as_encoded_bytes()].concat();
        // It is only for diagnosis.
        let _ = write_private(&self.directory.join(NOTE), &note);
    }

    /// Removes the record when a daemon exits cleanly.
    pub fn forget_file(&self) {
        let _ = fs::remove_file(self.directory.join(NOTE));
    }

    /// Returns what a crashed daemon was doing, and with which file.
    pub fn died_of(&self) -> Option<(Doing, String)> {
        let mut note = Vec::new();
        let file = File::open(self.directory.join(NOTE)).ok()?;
        file.take(NOTE_BYTES_MAX).read_to_end(&mut note).ok()?;
        let note = String::from_utf8_lossy(&note).into_owned();
        let (word, file) = note.split_once('\n')?;
        let doing =
            [Doing::Loading, Doing::Serving].into_iter().find(|doing| doing.word() == word)?;
        Some((doing, file.to_owned()))
    }

    /// Returns the file with the token of the TCP port.
    pub fn token(&self) -> PathBuf {
        self.directory.join("token")
    }

    /// Creates the directory, for its owner only.
    pub fn make(&self) -> Result<(), HomeError> {
        private_directory(&self.directory)
    }

    /// Takes the lock of the daemon.
    pub fn hold(&self) -> Result<DaemonLock, HomeError> {
        self.make()?;
        let lock = self.open_lock("lock")?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(HomeError::Taken { pid: self.pid_of(&lock) });
            }
            Err(TryLockError::Error(reason)) => return Err(self.io("lock", reason)),
        }
        let pid = std::process::id().to_string();
        let path = self.directory.join("pid");
        write_private(&path, pid.as_bytes()).map_err(|reason| self.io("pid", reason))?;
        Ok(DaemonLock { home: self.clone(), _lock: lock })
    }

    /// Returns the process id of the running daemon, if there is one.
    pub fn holder(&self) -> Option<Pid> {
        let lock = files::open(&self.directory.join("lock")).ok()?;
        // A shared lock, so that two callers do not mistake each other for the daemon.
        match lock.try_lock_shared() {
            Ok(()) => None,
            Err(_) => Pid::from_raw(i32::try_from(self.pid_of(&lock)?).ok()?),
        }
    }

    /// Waits for the right to start a daemon. It is held until the daemon answers, which can take as long as
    /// loading a model.
    pub fn hold_start(&self) -> Result<File, HomeError> {
        self.hold_start_within(START_PATIENCE)
    }

    fn hold_start_within(&self, patience: Duration) -> Result<File, HomeError> {
        self.make()?;
        let lock = self.open_lock("start.lock")?;
        match files::lock_within(&lock, patience) {
            Ok(()) => Ok(lock),
            Err(LockError::Io(reason)) => Err(self.io("start.lock", reason)),
            Err(held) => Err(HomeError::Held { path: self.directory.join("start.lock"), held }),
        }
    }

    /// Reads the token, or generates one.
    pub fn read_or_make_token(&self) -> Result<Redacted, HomeError> {
        let path = self.token();
        match self.read_token() {
            Err(HomeError::Io { reason, .. }) if reason.kind() == io::ErrorKind::NotFound => {}
            read => return read,
        }
        let token = random_hex(32).map_err(|reason| self.io("token", reason))?;
        write_private(&path, token.as_bytes()).map_err(|reason| self.io("token", reason))?;
        Ok(Redacted::new(token))
    }

    /// Checks that a given token can be used.
    pub fn check_token(&self, token: &Redacted) -> Result<(), HomeError> {
        if token.expose().len() < TOKEN_BYTES_MIN {
            return Err(HomeError::NotOurs { path: self.token(), problem: TOO_SHORT });
        }
        Ok(())
    }

    /// Stores a given token.
    pub fn keep_token(&self, token: &Redacted) -> Result<(), HomeError> {
        self.check_token(token)?;
        write_private(&self.token(), token.expose().as_bytes())
            .map_err(|reason| self.io("token", reason))
    }

    pub fn read_token(&self) -> Result<Redacted, HomeError> {
        let path = self.token();
        let file = files::open(&path).map_err(|reason| self.io("token", reason.into()))?;
        let about = file.metadata().map_err(|reason| self.io("token", reason))?;
        if about.mode() & 0o077 != 0 || about.uid() != rustix::process::geteuid().as_raw() {
            let problem = "others may read it; remove it, and a new one is made";
            return Err(HomeError::NotOurs { path, problem });
        }
        let mut text = String::new();
        file.take(TOKEN_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(|reason| self.io("token", reason))?;
        let text = text.trim();
        if text.len() < TOKEN_BYTES_MIN {
            return Err(HomeError::NotOurs { path, problem: TOO_SHORT });
        }
        Ok(Redacted::new(text))
    }

    /// Returns the process that holds a lock: the system is more reliable than the file, which may be left
    /// over from a killed daemon.
    fn pid_of(&self, lock: &File) -> Option<u32> {
        files::holder(lock).map(|holder| holder.pid).or_else(|| self.read_pid())
    }

    fn read_pid(&self) -> Option<u32> {
        files::read_text(&self.directory.join("pid"), PID_BYTES_MAX).ok()?.trim().parse().ok()
    }

    fn open_lock(&self, name: &str) -> Result<File, HomeError> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        files::open_with(&mut options, &self.directory.join(name))
            .map_err(|reason| self.io(name, reason.into()))
    }

    fn io(&self, name: &str, reason: io::Error) -> HomeError {
        HomeError::Io { path: self.directory.join(name), reason }
    }
}

impl DaemonLock {
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Listens on the socket. A leftover is replaced; a socket that answers belongs to another process.
    pub fn listen(&self) -> Result<UnixListener, HomeError> {
        let path = &self.home.socket;
        if let Some(parent) = path.parent() {
            private_directory(parent)?;
        }
        let io = |reason| HomeError::Io { path: path.clone(), reason };
        if UnixStream::connect(path).is_ok() {
            return Err(HomeError::Live { path: path.clone() });
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        // In between, the directory keeps others out.
        let listener = UnixListener::bind(path).map_err(io)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(io)?;
        Ok(listener)
    }

    /// Removes the socket, so that clients start a new daemon from now on.
    pub fn close(&self) {
        // At worst it is a leftover, which the next daemon replaces.
        let _ = fs::remove_file(&self.home.socket);
    }
}

impl Drop for DaemonLock {
    fn drop(&mut self) {
        self.close();
        // Not earlier: until then there is a process to wait for.
        let _ = fs::remove_file(self.home.directory.join("pid"));
    }
}

/// How long to wait for another start.
const START_PATIENCE: Duration = Duration::from_secs(660);
const PID_BYTES_MAX: u64 = 64;

/// Returns random bytes as hexadecimal digits.
pub fn random_hex(bytes: usize) -> io::Result<String> {
    use ring::rand::SecureRandom as _;
    let mut random = vec![0; bytes];
    ring::rand::SystemRandom::new()
        .fill(&mut random)
        .map_err(|_| io::Error::other("the operating system provides no random numbers"))?;
    Ok(hex(&random))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn fits(socket: &Path) -> bool {
    socket.as_os_str().len() < SOCKET_PATH_BYTES_MAX
}

/// Creates a private directory, or checks that an existing one is private.
fn private_directory(path: &Path) -> Result<(), HomeError> {
    let io = |reason| HomeError::Io { path: path.to_owned(), reason };
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        // An existing path is checked in any case.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io(error)),
        _ => {}
    }
    let about = fs::symlink_metadata(path).map_err(io)?;
    let not_ours = |problem| Err(HomeError::NotOurs { path: path.to_owned(), problem });
    if about.is_symlink() {
        return not_ours("it is a link, and others may change what it leads to; remove it");
    }
    if !about.is_dir() {
        return Err(HomeError::NoDirectory { path: path.to_owned() });
    }
    if about.uid() != rustix::process::geteuid().as_raw() {
        return not_ours("it belongs to another user");
    }
    if about.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(io)?;
    }
    Ok(())
}

/// Writes a private file atomically.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    // Left over from a killed process with the same id.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    fs::rename(&beside, path)
}

const TOO_SHORT: &str = "a token must have 16 characters or more";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use stdx::Redacted;

    use super::{Home, HomeError};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn socket_paths_are_never_too_long() {
        let long = format!("/{}", "x".repeat(120));
        let runtime = Path::new("/run/user/7");
        let short = Home::new(Path::new("/a"), Some(runtime));
        assert_eq!(short.socket(), Path::new("/a/daemon/socket"));
        let moved = Home::new(Path::new(&long), Some(runtime));
        assert!(moved.socket().starts_with(runtime), "{moved:?}");
        assert_eq!(moved.directory(), Path::new(&long).join("daemon"));
        let other = Home::new(Path::new(&format!("{long}y")), Some(runtime));
        assert_ne!(moved.socket(), other.socket());
        for runtime in [None, Some(Path::new(&long))] {
            let moved = Home::new(Path::new(&long), runtime);
            assert!(moved.socket().starts_with("/tmp") && super::fits(moved.socket()), "{moved:?}");
        }
    }

    #[test]
    fn the_current_holder_of_a_lock_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path(), None);
        home.make().unwrap();
        fs::write(home.directory().join("pid"), "1").unwrap();
        let lock = fs::File::create(home.directory().join("lock")).unwrap();
        lock.lock().unwrap();
        let Err(HomeError::Taken { pid }) = home.hold() else { panic!("it is held") };
        let want = if cfg!(target_os = "linux") { std::process::id() } else { 1 };
        assert_eq!(pid, Some(want));
        let start = fs::File::create(home.directory().join("start.lock")).unwrap();
        start.lock().unwrap();
        let error = home.hold_start_within(std::time::Duration::ZERO).unwrap_err().to_string();
        let named = format!("(process {})", std::process::id());
        assert!(error.contains("start.lock is locked") && error.contains(&named), "{error}");
    }

    #[test]
    fn only_one_daemon_per_home() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path(), None);
        assert_eq!(home.holder(), None);
        let held = home.hold().unwrap();
        let ours = std::process::id();
        assert_eq!(home.holder().map(|pid| pid.as_raw_pid().cast_unsigned()), Some(ours));
        assert!(matches!(home.hold(), Err(HomeError::Taken { pid: Some(pid) }) if pid == ours));
        let listener = held.listen().unwrap();
        assert_eq!((mode(home.socket()), mode(home.directory())), (0o600, 0o700));
        assert!(matches!(held.listen(), Err(HomeError::Live { .. })));
        drop(listener);
        // Leftovers of a killed daemon are no obstacle.
        assert!(home.socket().exists());
        let _listener = held.listen().unwrap();
        drop(held);
        assert!(!home.socket().exists());
        home.hold().unwrap();
    }

    #[test]
    fn directories_are_private() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path(), None);
        fs::create_dir(home.directory()).unwrap();
        fs::set_permissions(home.directory(), fs::Permissions::from_mode(0o755)).unwrap();
        home.make().unwrap();
        assert_eq!(mode(home.directory()), 0o700);
        assert!(home.is_ours());
        fs::set_permissions(home.directory(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!home.is_ours(), "anybody could have made the socket");
        let other = tempfile::tempdir().unwrap();
        let home = Home::new(other.path(), None);
        std::os::unix::fs::symlink(directory.path(), home.directory()).unwrap();
        assert!(matches!(home.make(), Err(HomeError::NotOurs { .. })) && !home.is_ours());
        drop(UnixListener::bind(other.path().join("x")).unwrap());
    }

    /// The error is stated once, with advice.
    #[test]
    fn homes_that_cannot_be_used() {
        let directory = tempfile::tempdir().unwrap();
        let check = |home: &Home, want: &str| {
            for error in [home.make().unwrap_err(), home.hold_start().unwrap_err()] {
                let said = error.to_string();
                assert!(said.contains(want) && said.contains("HEDDLE_HOME"), "{said}");
                assert!(
                    std::error::Error::source(&error).is_none(),
                    "it would be said twice: {said}"
                );
            }
        };
        let file = directory.path().join("file");
        fs::create_dir(&file).unwrap();
        let home = Home::new(&file, None);
        fs::write(home.directory(), "").unwrap();
        check(&home, "daemon is not a directory; move it away");
        assert!(home.is_ours(), "there is no socket in a file");
        let home = Home::new(&home.directory().join("deeper"), None);
        check(&home, "Not a directory");
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let error = HomeError::Io { path: file.clone(), reason: denied };
        assert!(
            error.to_string().contains("permission denied; let your user write there"),
            "{error}"
        );
    }

    #[test]
    fn tokens() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path(), None);
        home.make().unwrap();
        let token = home.read_or_make_token().unwrap();
        assert_eq!(token.expose().len(), 64);
        assert_eq!(mode(&home.token()), 0o600);
        assert_eq!(home.read_or_make_token().unwrap(), token);
        home.keep_token(&Redacted::new("0123456789abcdef")).unwrap();
        assert_eq!(home.read_token().unwrap().expose(), "0123456789abcdef");
        assert!(home.keep_token(&Redacted::new("short")).is_err());
        fs::set_permissions(home.token(), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(home.read_or_make_token().is_err());
    }
}
