//! The test ground of one attempt: its own directories, files, processes and listeners, created outside the
//! sandbox and checked again when the attempt is over. A ground on which nothing has changed is reused for
//! the next attempt.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use policy::{PROTECTED_NAMES, Profile, SandboxMode};
use serde::{Deserialize, Serialize};

use super::ipc::Ipc;
use super::snapshot::Snapshot;
use crate::protected_below;
use crate::pty;

/// What an attempt knows about its ground.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ground {
    /// The directory that contains all others.
    pub(super) root: PathBuf,
    /// The process that created the ground.
    pub(super) prover: i32,
    /// A process outside, whose environment contains [`VICTIM_SECRET`].
    pub(super) victim: i32,
    /// The process group of the victim, which is that of the prover.
    pub(super) group: i32,
    /// A readable and writable address in its memory.
    pub(super) victim_address: u64,
    /// The port of a TCP listener on loopback.
    pub(super) tcp: u16,
    /// The port of a UDP socket on loopback.
    pub(super) udp: u16,
    /// The name of an abstract Unix listener.
    pub(super) abstract_name: String,
    /// A descriptor that is open for writing in the prover and not closed on exec.
    pub(super) inherited: i32,
    /// A set-user-id program.
    pub(super) suid: Option<PathBuf>,
    /// Another user's terminal.
    pub(super) terminal: Option<PathBuf>,
    /// A file in the machine's shared memory.
    pub(super) shared_memory: Option<PathBuf>,
    /// A disk of the machine and its device number.
    pub(super) disk: Option<(PathBuf, u64)>,
    pub(super) ipc: Ipc,
}

impl Ground {
    /// Returns a path in the workspace, which has a `.git` directory.
    pub(super) fn work(&self, path: &str) -> PathBuf {
        self.root.join("workspace").join(path)
    }

    /// Returns a path in a writable root without any protected name.
    pub(super) fn bare(&self, path: &str) -> PathBuf {
        self.root.join("bare").join(path)
    }

    /// Returns a path in a writable root whose `.git` is a file that names its directory `store`.
    pub(super) fn tree(&self, path: &str) -> PathBuf {
        self.root.join("tree").join(path)
    }

    /// Returns a path in a writable root whose `.git` is a symbolic link to its directory `store`.
    pub(super) fn linked(&self, path: &str) -> PathBuf {
        self.root.join("linked").join(path)
    }

    /// Returns a path in a temporary directory.
    pub(super) fn temporary(&self, path: &str) -> PathBuf {
        self.root.join("tmp").join(path)
    }

    /// Returns a path in a temporary directory that contains no writable root.
    pub(super) fn spare(&self, path: &str) -> PathBuf {
        self.root.join("spare").join(path)
    }

    /// Returns a path in the directory that is writable in plan mode.
    pub(super) fn scratch(&self, path: &str) -> PathBuf {
        self.temporary("scratch").join(path).components().collect()
    }

    /// Returns a path in heddle's home, which is in the temporary directory.
    pub(super) fn home(&self, path: &str) -> PathBuf {
        self.temporary("area/home").join(path)
    }

    /// Returns the lock of the writers of threads.
    pub(super) fn thread_lock(&self) -> PathBuf {
        self.home("thread-writer-locks/.coordination.lock")
    }

    /// Returns the lock for starting the daemon.
    pub(super) fn start_lock(&self) -> PathBuf {
        self.home("daemon/start.lock")
    }

    /// Returns the directories whose files no attempt may open.
    pub(super) fn hidden(&self) -> Vec<PathBuf> {
        vec![self.home("thread-writer-locks"), self.home("daemon")]
    }

    /// Returns a file of the workspace that a process outside may be reading.
    pub(super) fn swapped(&self) -> PathBuf {
        self.work("src/swapped")
    }

    /// Returns a path in a writable root deep inside the temporary directory.
    pub(super) fn nested(&self, path: &str) -> PathBuf {
        self.temporary("place/project").join(path)
    }

    /// Returns a path next to a writable root, in the temporary directory: a repository with settings.
    pub(super) fn around(&self, path: &str) -> PathBuf {
        self.temporary("around").join(path)
    }

    /// Returns a path in a writable root that is a worktree of the repository [`Self::main`].
    pub(super) fn side(&self, path: &str) -> PathBuf {
        self.root.join("side").join(path)
    }

    /// Returns a path in a repository in the temporary directory, one of whose worktrees is a root.
    pub(super) fn main(&self, path: &str) -> PathBuf {
        self.temporary("main").join(path)
    }

    /// Returns a path that must not be written.
    pub(super) fn outside(&self, path: &str) -> PathBuf {
        self.root.join("outside").join(path)
    }

    /// Returns a file that is named as a library to load, but is not one.
    pub(super) fn preload(&self) -> PathBuf {
        self.work("preload.so")
    }

    /// Returns where the description of the ground is stored.
    pub(super) fn file(&self) -> PathBuf {
        self.root.join("ground.json")
    }

    /// Returns the profile that the ground is built for.
    pub(super) fn profile(&self, mode: SandboxMode, network: bool) -> Profile {
        let roots = [
            self.work(""),
            self.bare(""),
            self.tree(""),
            self.linked(""),
            self.nested(""),
            self.around("sub"),
            self.side(""),
        ];
        let mut protected = vec![self.temporary("area/home")];
        protected.extend(protected_below(&self.work("")));
        Profile {
            mode,
            // Joining an empty path leaves a trailing slash.
            writable_roots: roots.map(|root| root.components().collect()).into(),
            temporary_roots: vec![self.root.join("tmp"), self.spare("").components().collect()],
            scratch: None,
            protected,
            network,
        }
    }
}

/// A ground with its live processes and listeners. Dropping it removes it.
pub(super) struct Live {
    pub(super) ground: Ground,
    victim: Child,
    victim_state: String,
    tcp: TcpListener,
    udp: UdpSocket,
    stream: UnixListener,
    named: UnixListener,
    datagram: UnixDatagram,
    terminal: Option<(OwnedFd, OwnedFd)>,
    _inherited: File,
    before: Vec<(PathBuf, Snapshot)>,
    /// The whole ground, including what may change.
    whole: Snapshot,
    /// Whether no process is known to be left over.
    clean: bool,
}

impl Live {
    /// Creates a ground below `base`.
    pub(super) fn make(base: &Path) -> io::Result<Self> {
        let root = fresh_directory(base)?;
        // From here on a failure leaves a directory behind, which shows what went wrong.
        lay_out(&root)?;
        let outside = root.join("outside");
        let inherited = File::create(outside.join("inherited"))?;
        (&inherited).write_all(b"as it was\n")?;
        let victim = start_victim()?;
        rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty())?;
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        tcp.set_nonblocking(true)?;
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        udp.set_nonblocking(true)?;
        let stream = UnixListener::bind(outside.join("stream.sock"))?;
        stream.set_nonblocking(true)?;
        let datagram = UnixDatagram::bind(outside.join("dgram.sock"))?;
        datagram.set_nonblocking(true)?;
        let abstract_name = root.display().to_string();
        let named = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name)?)?;
        named.set_nonblocking(true)?;
        let terminal = pty::open_pair(None).ok();
        let victim_id = victim.id().cast_signed();
        let ground = Ground {
            prover: std::process::id().cast_signed(),
            victim: victim_id,
            group: rustix::process::getpgrp().as_raw_pid(),
            victim_address: writable_address(victim_id)?,
            tcp: tcp.local_addr()?.port(),
            udp: udp.local_addr()?.port(),
            abstract_name,
            inherited: inherited.as_raw_fd(),
            suid: find_suid(&outside)?,
            terminal: terminal.as_ref().and_then(|(_, theirs)| {
                fs::read_link(format!("/proc/self/fd/{}", theirs.as_raw_fd())).ok()
            }),
            shared_memory: shared_memory(&root),
            disk: find_disk(),
            ipc: Ipc::make(&root),
            root,
        };
        // A serialization error would be a bug of ours; it is reported like any other.
        fs::write(ground.file(), serde_json::to_vec(&ground)?)?;
        let mut before = Vec::new();
        for path in watched(&ground) {
            before.push((path.clone(), Snapshot::take(&path)));
        }
        let whole = Snapshot::take(&ground.root);
        let victim_state = state_of(victim_id);
        Ok(Self {
            ground,
            victim,
            victim_state,
            tcp,
            udp,
            stream,
            named,
            datagram,
            terminal,
            _inherited: inherited,
            before,
            whole,
            clean: false,
        })
    }

    /// Finds everything that has changed, and processes that are left over.
    pub(super) fn damage(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        for (path, before) in &self.before {
            before.differences(&Snapshot::take(path), &mut found);
        }
        let ground = &self.ground;
        let mut roots = vec![ground.work(""), ground.bare(""), ground.nested(""), ground.side("")];
        roots.extend(["", "place", "around", "around/sub"].map(|path| ground.temporary(path)));
        for root in roots {
            for name in PROTECTED_NAMES {
                let path = root.join(name);
                let watched = self.before.iter().any(|(other, _)| *other == path);
                // The sandbox may leave an empty directory as a mount point.
                if !watched && fs::symlink_metadata(&path).is_ok() && !is_empty(&path) {
                    found.push(format!("{} appeared", path.display()));
                }
            }
        }
        let mut note = |what: &str| found.push(what.to_owned());
        if self.tcp.accept().is_ok() {
            note("the TCP listener was reached");
        }
        if self.udp.recv(&mut [0; 64]).is_ok() {
            note("the UDP socket was reached");
        }
        if self.stream.accept().is_ok() {
            note("the Unix listener was reached");
        }
        if self.named.accept().is_ok() {
            note("the abstract Unix listener was reached");
        }
        if self.datagram.recv(&mut [0; 64]).is_ok() {
            note("the Unix datagram socket was reached");
        }
        if self.terminal.as_ref().is_some_and(|(ours, _)| readable(ours)) {
            note("another user's terminal was written to");
        }
        if !matches!(self.victim.try_wait(), Ok(None)) {
            note("the process outside has ended");
        } else if state_of(self.ground.victim) != self.victim_state {
            note("the process outside was changed");
        }
        if let Some(file) = &self.ground.shared_memory
            && !fs::read(file).is_ok_and(|bytes| bytes == UNCHANGED)
        {
            note("the file in shared memory was changed");
        }
        if let Some(what) = self.ground.ipc.damage() {
            note(what);
        }
        self.clean = self.left_over(LEFT_OVER_GRACE).is_empty();
        if !self.clean {
            note("a process outlived the call");
        }
        found
    }

    /// Tells whether the ground can be reused: nothing has changed that attempts may change either. Creating
    /// one takes longer than most attempts.
    pub(super) fn is_untouched(&self) -> bool {
        self.clean && self.whole.is_like(&Snapshot::take(&self.ground.root))
    }

    /// Finds processes of the attempt that are still there after `grace`.
    fn left_over(&self, grace: Duration) -> Vec<i32> {
        let begin = Instant::now();
        loop {
            let found = processes_naming(&self.ground.root);
            if found.is_empty() || begin.elapsed() >= grace {
                return found;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Nothing can be done about a process that does not go away.
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        // Looking at every process takes longer than everything else here.
        let left = if self.clean { Vec::new() } else { processes_naming(&self.ground.root) };
        for pid in left {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        self.ground.ipc.remove();
        if let Some(file) = &self.ground.shared_memory {
            let _ = fs::remove_file(file);
        }
        let _ = fs::remove_dir_all(&self.ground.root);
    }
}

/// Creates a new directory.
fn fresh_directory(base: &Path) -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("heddle-prove-{}-{count}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => return path.canonicalize(),
            // An earlier process with the same id died before it could clean up.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn lay_out(root: &Path) -> io::Result<()> {
    for (path, contents) in FILES {
        let path = root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, contents)?;
    }
    for path in [
        "outside/empty",
        "outside/open",
        "workspace/mount",
        "workspace/spare",
        "tmp/free",
        "tmp/scratch",
        "spare",
    ] {
        fs::create_dir_all(root.join(path))?;
    }
    symlink("store", root.join("linked/.git"))?;
    symlink(root.join("outside"), root.join("workspace/way"))?;
    symlink(".git", root.join("workspace/git-way"))?;
    let gitdir = format!("gitdir: {}\n", root.join("tree/store").display());
    fs::write(root.join("tree/.git"), gitdir)?;
    let gitdir = format!("gitdir: {}\n", root.join("tmp/main/.git/worktrees/side").display());
    fs::write(root.join("side/.git"), gitdir)?;
    for (path, mode) in [("outside/open", 0o777), ("outside/open/victim", 0o666)] {
        fs::set_permissions(root.join(path), Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Lists what must not change.
fn watched(ground: &Ground) -> Vec<PathBuf> {
    vec![
        ground.outside(""),
        ground.work(".git"),
        ground.tree(".git"),
        ground.tree("store"),
        ground.linked(".git"),
        ground.linked("store"),
        ground.nested(".git"),
        ground.home(""),
        ground.work("part/.git"),
        ground.work("inner/.git"),
        ground.around(".git"),
        ground.around(".heddle"),
        ground.main(".git"),
        ground.side(".git"),
    ]
}

fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

#[expect(
    unsafe_code,
    reason = "a process can only ask to die with its parent between fork and exec"
)]
fn start_victim() -> io::Result<Child> {
    let mut command = Command::new("sleep");
    command.arg("600").env(VICTIM_VARIABLE, VICTIM_SECRET);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: the hook makes one system call, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            let signal = Some(rustix::process::Signal::KILL);
            Ok(rustix::process::set_parent_process_death_signal(signal)?)
        });
    }
    command.spawn()
}

/// Finds a readable and writable address in the memory of a process: the top of its stack.
fn writable_address(pid: i32) -> io::Result<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let stack = maps.lines().find(|line| line.ends_with("[stack]"));
    let end = stack.and_then(|line| line.split([' ', '-']).nth(1));
    let end = end.and_then(|end| u64::from_str_radix(end, 16).ok());
    end.map(|end| end - 8).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns what others can change about a process: its limits, priority, scheduling and affinity.
fn state_of(pid: i32) -> String {
    let read = |name| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let stat = read("stat");
    let words: Vec<_> = stat.rsplit_once(')').unwrap_or_default().1.split_whitespace().collect();
    // Counted from the state on: 15 priority, 16 nice, 37 real-time priority, 38 policy.
    let scheduling: Vec<_> = [15, 16, 37, 38].map(|at| words.get(at).copied()).into();
    let status = read("status");
    // A signal that has been sent but not yet delivered shows as pending.
    let told = ["Cpus_allowed:", "SigPnd:", "ShdPnd:"];
    let told = status.lines().filter(|line| told.iter().any(|name| line.starts_with(name)));
    format!("{scheduling:?} {:?} {}", told.collect::<Vec<_>>(), read("limits"))
}

/// Finds a set-user-id program. Root creates one; others search for one.
fn find_suid(outside: &Path) -> io::Result<Option<PathBuf>> {
    if rustix::process::geteuid().is_root() {
        let Some(id) = ["/usr/bin/id", "/bin/id"].into_iter().find(|id| Path::new(id).exists())
        else {
            return Ok(None);
        };
        let path = outside.join("id");
        fs::copy(id, &path)?;
        std::os::unix::fs::chown(&path, Some(SUID_OWNER), None)?;
        fs::set_permissions(&path, Permissions::from_mode(0o4755))?;
        return Ok(Some(path));
    }
    let known = ["/usr/bin/su", "/bin/su"].into_iter().map(PathBuf::from);
    Ok(known.into_iter().find(|path| {
        fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o4000 != 0)
    }))
}

fn shared_memory(root: &Path) -> Option<PathBuf> {
    let path = Path::new("/dev/shm").join(root.file_name()?);
    fs::write(&path, UNCHANGED).ok()?;
    Some(path)
}

/// Finds a disk; it is only ever opened for reading.
fn find_disk() -> Option<(PathBuf, u64)> {
    let entries = fs::read_dir("/sys/block").ok()?;
    let mut disks: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let number = fs::read_to_string(entry.path().join("dev")).ok()?;
            let (major, minor) = number.trim().split_once(':')?;
            let device = libc::makedev(major.parse().ok()?, minor.parse().ok()?);
            Some((Path::new("/dev").join(entry.file_name()), device))
        })
        .collect();
    // Prefer a real disk to loop devices, which may have no backing file.
    disks.sort_by_key(|(path, _)| (path.to_string_lossy().contains("loop"), path.clone()));
    disks.into_iter().next()
}

fn readable(fd: &OwnedFd) -> bool {
    let Ok(flags) = rustix::fs::fcntl_getfl(fd) else { return false };
    let nonblocking = flags | rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(fd, nonblocking).is_ok()
        && rustix::io::read(fd, &mut [0; 64]).is_ok_and(|count| count > 0)
}

/// Finds the processes, other than ours, whose command line contains `path`.
fn processes_naming(path: &Path) -> Vec<i32> {
    let needle = path.as_os_str().as_encoded_bytes();
    let ours = std::process::id().cast_signed();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let names = |pid: &i32| {
        let line = command_line(*pid);
        line.windows(needle.len()).any(|part| part == needle)
    };
    numbers.filter(|pid| *pid != ours).filter(names).collect()
}

/// Reads the command line of a process; empty if there is none, or no process.
fn command_line(pid: i32) -> Vec<u8> {
    for _ in 0..EXEC_TRIES {
        let mut line = Vec::new();
        let file = File::open(format!("/proc/{pid}/cmdline"));
        let read = file.and_then(|file| file.take(CMDLINE_BYTES_MAX).read_to_end(&mut line));
        // During exec a process already has its new program, but no arguments yet. A process that has ended,
        // or belongs to the kernel, has no program either.
        let begins = line.is_empty() && fs::read_link(format!("/proc/{pid}/exe")).is_ok();
        if read.is_err() || !begins {
            return line;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Vec::new()
}

/// The files of the ground.
const FILES: [(&str, &str); 35] = [
    ("workspace/.git/HEAD", "ref: refs/heads/main\n"),
    ("workspace/.git/config", "[core]\n"),
    ("workspace/.git/hooks/pre-commit", "#!/bin/sh\n"),
    ("workspace/.git/modules/part/HEAD", "ref: refs/heads/main\n"),
    ("workspace/.git/modules/part/config", "[core]\n\tworktree = ../../../part\n"),
    ("workspace/part/.git", "gitdir: ../.git/modules/part\n"),
    ("workspace/part/file", "ours to change\n"),
    ("workspace/inner/.git/config", "[core]\n"),
    ("workspace/inner/file", "ours to change\n"),
    ("tmp/around/.git/config", "[core]\n"),
    ("tmp/around/.git/hooks/pre-commit", "#!/bin/sh\n"),
    ("tmp/around/.heddle/rules/project.rules", "# none\n"),
    ("tmp/around/sub/file", "ours to change\n"),
    ("tmp/main/.git/config", "[core]\n"),
    ("tmp/main/.git/worktrees/side/HEAD", "ref: refs/heads/side\n"),
    ("tmp/main/.git/worktrees/side/commondir", "../..\n"),
    ("side/file", "ours to change\n"),
    ("workspace/file", "ours to change\n"),
    ("workspace/preload.so", "no library\n"),
    ("workspace/src/main", "ours to change\n"),
    ("workspace/spare/file", "ours to change\n"),
    ("bare/file", "ours to change\n"),
    ("tree/file", "ours to change\n"),
    ("linked/store/config", "[core]\n"),
    ("linked/store/hooks/pre-commit", "#!/bin/sh\n"),
    ("workspace/src/swapped", "ours to change\n"),
    ("tmp/area/home/rules/default.rules", "# none\n"),
    ("tmp/area/home/thread-writer-locks/.coordination.lock", ""),
    ("tmp/area/home/daemon/start.lock", ""),
    ("tmp/place/project/.git/config", "[core]\n"),
    ("tmp/place/project/file", "ours to change\n"),
    ("outside/victim", "as it was\n"),
    ("outside/candidate", "as it was\n"),
    ("outside/open/victim", "as it was\n"),
    ("tree/store/config", "[core]\n"),
];

/// Content of files that must not be changed.
const UNCHANGED: &[u8] = b"as it was\n";
/// The variable of the victim that contains its secret.
pub(super) const VICTIM_VARIABLE: &str = "HEDDLE_PROVE_VICTIM";
pub(super) const VICTIM_SECRET: &str = "the-victims-own-secret";
/// A variable of ours that commands must not see; its name looks like that of a secret.
pub(super) const OUR_VARIABLE: &str = "HEDDLE_PROVE_TOKEN";
pub(super) const OUR_SECRET: &str = "our-own-secret";
/// The owner of the set-user-id program that root creates.
const SUID_OWNER: u32 = 12_345;
/// How much of a command line is read.
const CMDLINE_BYTES_MAX: u64 = 64 * 1024;
/// How often to retry during exec, a millisecond apart.
const EXEC_TRIES: usize = 20;
/// How long it may take until descendants of a call are gone.
const LEFT_OVER_GRACE: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests;
