//! Detects whether a level works here: builds a sandbox, tries it out and caches the result.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::limits::Limits;
use crate::linux::spawn::NO_NETWORK;
use crate::linux::{HELPER_NAME, Trouble};
use crate::sandbox::Level;
use crate::spec::Spec;

/// The argument that tells our program that it runs inside.
pub(crate) const INSIDE: &str = "heddle-sandbox-probe";
/// The name of the writable directory.
const WRITABLE: &str = "writable-for-a-probe";
/// Exit codes of the process inside: everything held, or what did not.
const HELD: u8 = 0;
const WROTE: u8 = 61;
const CONNECTED: u8 = 62;
const NOT_WRITABLE: u8 = 63;

/// Builds a sandbox of this level and tries the most important operations inside it.
pub(crate) fn probe(helper: &Path, level: Level) -> Result<(), String> {
    let ground = Ground::new()?;
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let program = fs::read_link(helper).unwrap_or_else(|_| helper.to_owned());
    let spec = Spec {
        level,
        network: false,
        terminal: false,
        writable: vec![ground.writable()],
        protected: Vec::new(),
        hidden: Vec::new(),
        locks: None,
        limits: Limits::default(),
        cwd: ground.writable(),
        env: Vec::new(),
        argv: vec![program.into(), INSIDE.into()],
    };
    let spec = spec.encode().map_err(|error| text(&error))?;
    let spec = to_memory(&spec).map_err(|error| text(&error))?;
    let (mut status, told) = io::pipe().map_err(|error| text(&error))?;
    let mut command = Command::new(helper);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).env_clear();
    command.arg0(HELPER_NAME);
    hand_over(&mut command, [spec, told.into()]);
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", helper.display()))?;
    drop(command);
    let mut line = String::new();
    let read = status.read_to_string(&mut line);
    let ended = child.wait().map_err(|error| text(&error))?;
    read.map_err(|error| text(&error))?;
    if !line.is_empty() {
        return Err(Trouble::from_line(&line).to_string());
    }
    match ended.code() {
        Some(code) if code == i32::from(HELD) => Ok(()),
        Some(code) if code == i32::from(WROTE) => Err("files outside could be written".to_owned()),
        Some(code) if code == i32::from(CONNECTED) => Err("a socket could be opened".to_owned()),
        Some(code) if code == i32::from(NOT_WRITABLE) => {
            Err("its writable directory could not be written".to_owned())
        }
        _ => Err(format!("the trial ended with {ended}")),
    }
}

/// What the probe runs inside: tries to write outside, to open a socket, and to write where it may.
pub(crate) fn inside() -> ExitCode {
    let here = Path::new(".");
    // Run by hand, it would leave files behind.
    if !here.canonicalize().is_ok_and(|here| here.ends_with(WRITABLE)) {
        return ExitCode::FAILURE;
    }
    let write = |path: &Path| {
        let options = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        options.and_then(|mut file| file.write_all(b"x"))
    };
    let outside = here.join("..").join("outside");
    ExitCode::from(if write(&outside).is_ok() {
        WROTE
    } else if std::net::UdpSocket::bind("127.0.0.1:0").is_ok() {
        CONNECTED
    } else if write(&here.join("inside")).is_err() {
        NOT_WRITABLE
    } else {
        HELD
    })
}

/// A directory for a trial, with a writable one inside.
struct Ground(PathBuf);

impl Ground {
    fn new() -> Result<Self, String> {
        // `TMPDIR`, or if that does not exist, the usual place.
        let usual = Path::new("/tmp");
        let base = std::env::temp_dir().canonicalize().or_else(|_| usual.canonicalize());
        let base = base.unwrap_or_else(|_| usual.to_owned());
        let failed = |error: io::Error| {
            format!("no directory to try it in: {} cannot be written ({error})", base.display())
        };
        let path = base.join(format!("heddle-probe-{}-{}", std::process::id(), unique()));
        fs::create_dir(&path).map_err(failed)?;
        let ground = Self(path);
        fs::create_dir(ground.writable()).map_err(failed)?;
        Ok(ground)
    }

    fn writable(&self) -> PathBuf {
        self.0.join(WRITABLE)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // It is in a temporary directory; what cannot be removed is cleaned up with it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Puts bytes into an anonymous file that a child can read.
pub(crate) fn to_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let memory = memfd_create("heddle-sandbox", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    file.write_all(bytes)?;
    seek(&file, SeekFrom::Start(0))?;
    Ok(file.into())
}

/// Passes these two descriptors to the helper, and nothing else except its standard streams.
#[expect(unsafe_code, reason = "what a child inherits can only be changed between fork and exec")]
pub(crate) fn hand_over(command: &mut Command, descriptors: [OwnedFd; 2]) {
    for descriptor in &descriptors {
        command.arg(descriptor.as_raw_fd().to_string());
    }
    // SAFETY: the hook makes system calls only, and owns the descriptors.
    unsafe {
        command.pre_exec(move || {
            super::sys::close_on_exec_from_3()?;
            for descriptor in &descriptors {
                fcntl_setfd(descriptor, FdFlags::empty())?;
            }
            Ok(())
        });
    }
}

/// Size limit of the cache file.
const NOTE_BYTES_MAX: u64 = 4096;

/// Returns the level found since the last boot, if the cache entry is about this program.
pub(crate) fn read_cache(helper: &Path, cache: &Path) -> Option<Level> {
    let note = files::read_text(cache, NOTE_BYTES_MAX).ok()?;
    let (key, level) = note.trim_end().rsplit_once(' ')?;
    (key == self::key(helper)?).then_some(())?;
    Level::named(level.as_bytes())
}

/// Caches the level that was found. If that fails, it is detected again next time.
pub(crate) fn write_cache(helper: &Path, cache: &Path, level: Level) {
    let Some(key) = key(helper) else { return };
    let Some(parent) = cache.parent() else { return };
    // This may be the first directory created in a home, in which everything is private.
    let _ = DirBuilder::new().recursive(true).mode(0o700).create(parent);
    let mut beside = OsString::from(cache);
    beside.push(format!(".{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| writeln!(file, "{key} {}", level.name()));
    if written.and_then(|()| fs::rename(&beside, cache)).is_err() {
        let _ = fs::remove_file(&beside);
    }
}

/// Returns the cache key: this boot of this machine, this user, this program, these settings.
fn key(helper: &Path) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let program = fs::metadata(helper).ok()?;
    let user = rustix::process::geteuid().as_raw();
    let (size, at) = (program.len(), program.mtime_nsec() ^ program.mtime());
    let switches: Vec<_> =
        SWITCHES.iter().map(|(name, ..)| setting(name).unwrap_or_default()).collect();
    Some(format!("{} {user} {size} {at} {}", boot.trim(), switches.join(":")))
}

/// Returns what the user can do to make a sandbox possible.
pub(crate) fn remedy() -> String {
    // Neither settings nor a container are to blame inside of one of our own. Only the text depends on this
    // variable, which anybody can set.
    if std::env::var_os(NO_NETWORK).is_some() {
        return "this already runs inside a sandbox: use `-s danger-full-access`, which can do no more than \
                that sandbox allows, or, if it may write, set TMPDIR to a directory where it may"
            .to_owned();
    }
    for (name, off, on) in SWITCHES {
        if setting(name).as_deref() == Some(off) {
            return format!("run `sudo sysctl -w {name}={on}`");
        }
    }
    let container = Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists();
    if container {
        return "start the container with `--security-opt seccomp=unconfined --security-opt \
                systempaths=unconfined`, or, if it is sandbox enough, use `-s danger-full-access`"
            .to_owned();
    }
    "use a kernel with user namespaces or Landlock 6 (Linux 6.12), or, on a machine that is sandbox \
     enough, `-s danger-full-access`"
        .to_owned()
}

/// System settings that disable namespaces, each with the value that does and one that does not.
const SWITCHES: [(&str, &str, &str); 3] = [
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "15000"),
];

fn setting(name: &str) -> Option<String> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
