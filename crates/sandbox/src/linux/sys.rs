//! System calls that no safe library wraps.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use libc::{c_int, c_uint, c_ulong, pid_t};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Attributes of a mount to set and to clear.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct MountAttributes {
    pub(crate) set: u64,
    pub(crate) clear: u64,
    pub(crate) propagation: u64,
    pub(crate) user_namespace: u64,
}

pub(crate) const READ_ONLY: u64 = 0x1;
pub(crate) const NO_SUID: u64 = 0x2;
pub(crate) const NO_DEVICES: u64 = 0x4;

pub(crate) enum Fork {
    Child,
    Parent(pid_t),
}

/// Forks, into new namespaces if `flags` says so.
#[expect(unsafe_code, reason = "the library call for it requires a new stack")]
pub(crate) fn fork(flags: c_int) -> io::Result<Fork> {
    let flags = c_ulong::try_from(flags | libc::SIGCHLD).unwrap_or_default();
    // SAFETY: without a new stack this is what `fork` does. The process has one thread, so nothing
    // that the child needs can be locked by another.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent(pid_t::try_from(child).unwrap_or(-1))),
    }
}

/// Changes attributes of the mount at `path`.
#[expect(unsafe_code, reason = "no safe library wraps this call")]
pub(crate) fn set_mount(path: &Path, recursive: bool, change: MountAttributes) -> io::Result<()> {
    let path = c_path(path)?;
    let flags = libc::AT_SYMLINK_NOFOLLOW | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: both pointers are to values that live through the call, and the size is right.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const change,
            size_of::<MountAttributes>(),
        )
    })
}

/// Closes every descriptor except the standard ones and one more.
#[expect(unsafe_code, reason = "it closes descriptors that other code may own")]
pub(crate) fn close_all_but(kept: &OwnedFd) -> io::Result<()> {
    let kept = kept.as_raw_fd().unsigned_abs();
    for (first, last) in [(3, kept.saturating_sub(1)), ((kept + 1).max(3), c_uint::MAX)] {
        if first <= last {
            // SAFETY: whoever calls this has nothing else open that it will use again.
            check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
        }
    }
    Ok(())
}

/// Closes our copies of the standard streams, so that they end with the command.
#[expect(unsafe_code, reason = "the standard streams belong to the whole program")]
pub(crate) fn let_go_of_standard_streams() {
    for stream in 0..3 {
        // SAFETY: a supervisor neither reads nor prints.
        unsafe { libc::close(stream) };
    }
}

/// Takes ownership of a descriptor that was passed to this process under a known number.
#[expect(unsafe_code, reason = "a descriptor number does not show who owns it")]
pub(crate) fn take(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: asked before the number is used; the parent has put the descriptor there for us.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) }.into())?;
    // SAFETY: it is open, as the call above has shown, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

pub(crate) struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks every signal that can be blocked, to wait for them.
    #[expect(unsafe_code, reason = "only the C library creates signal sets")]
    pub(crate) fn hold() -> io::Result<Self> {
        let mut all = std::mem::MaybeUninit::uninit();
        // SAFETY: the set is filled before it is read, and outlives the calls.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            let all = all.assume_init();
            check(libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()).into())?;
            Ok(Self(all))
        }
    }

    /// Unblocks every signal and restores the default actions, before running a program.
    #[expect(unsafe_code, reason = "only the C library creates signal sets")]
    pub(crate) fn release(&self) {
        for signal in 1..=64 {
            // SAFETY: the usual effect is no code of ours. Some signals cannot be changed; fine.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        // SAFETY: the set was made by `hold`.
        unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &raw const self.0, std::ptr::null_mut()) };
    }

    /// Waits for the next signal, at most this long; `None` on timeout.
    #[expect(unsafe_code, reason = "no safe library waits for signals")]
    pub(crate) fn wait(&self, at_most: Option<Duration>) -> Option<c_int> {
        let at_most = at_most.map(|time| libc::timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let time = at_most.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the set was made by `hold`, the time lives through the call; nothing is written back.
        let signal = unsafe { libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), time) };
        (signal > 0).then_some(signal)
    }
}

/// Returns the memory of the machine.
pub(crate) fn memory_bytes() -> Option<u64> {
    let found = rustix::system::sysinfo();
    Some(found.totalram.saturating_mul(found.mem_unit.into()))
}

/// Reaps one child that has ended, if there is one; also returns its raw status.
#[expect(unsafe_code, reason = "safe libraries do not return the raw status")]
pub(crate) fn reap() -> Option<(pid_t, c_int)> {
    let mut status = 0;
    // SAFETY: the status is ours to be written.
    let child = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    (child > 0).then_some((child, status))
}

/// Waits until no child is left.
#[expect(unsafe_code, reason = "no library knows adopted children")]
pub(crate) fn reap_all() {
    // SAFETY: no status is asked for. All signals are held back, so only the last child ends this.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
}

/// Sends a signal; it does not matter if the process is gone.
#[expect(unsafe_code, reason = "negative numbers mean groups, which safe libraries keep apart")]
pub(crate) fn kill(pid: pid_t, signal: c_int) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid, signal) };
}

/// Ends this process the same way a child of it has ended.
#[expect(unsafe_code, reason = "no safe library ends the process by a signal")]
pub(crate) fn end_like(status: c_int, signals: &Signals) -> ! {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        // The process that matters has already dumped its core, if it was supposed to.
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limits live through the call; raising a signal involves no memory.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            signals.release();
            libc::raise(signal);
        }
        std::process::exit(128 + signal);
    }
    std::process::exit(libc::WEXITSTATUS(status))
}

/// Makes one call of `prctl` with up to two numbers.
#[expect(unsafe_code, reason = "most of these have no safe counterpart")]
pub(crate) fn prctl(option: c_int, first: c_ulong, second: c_ulong) -> io::Result<()> {
    let none: c_ulong = 0;
    // SAFETY: the options used here take numbers and no pointers.
    check(unsafe { libc::prctl(option, first, second, none, none) }.into())
}

/// Drops every capability, for this process and every program it will run.
#[expect(unsafe_code, reason = "the safe call refuses capabilities newer than it knows")]
pub(crate) fn drop_capabilities() -> io::Result<()> {
    // Numbers from the first one that this kernel does not know are refused: that is the end.
    for capability in 0..64 {
        if prctl(libc::PR_CAPBSET_DROP, capability, 0).is_err() {
            break;
        }
    }
    // A kernel without ambient capabilities has none to clear.
    let _ = prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as c_ulong, 0);
    let header: [u32; 2] = [CAPABILITY_VERSION, 0];
    let none = [0u32; 6];
    // SAFETY: the header names the third version, whose data is two times three numbers.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) })
}

/// The third version of the call, which every kernel of the last fifteen years supports.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Starts a session, and makes the terminal on stdin its controlling terminal.
#[expect(unsafe_code, reason = "the descriptor is a standard one")]
pub(crate) fn new_session(terminal: bool) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::setsid() }.into())?;
    if terminal {
        // SAFETY: standard input is open: the agent has put the terminal there.
        check(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) }.into())?;
    }
    Ok(())
}

/// Tells whether the peer of a pipe has closed it, whichever end this is.
#[expect(unsafe_code, reason = "a poll of one descriptor")]
pub(crate) fn hung_up(pipe: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one entry, which lives through the call.
    unsafe {
        libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & (libc::POLLHUP | libc::POLLERR) != 0
    }
}

pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn check(returned: i64) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Changes attributes of a whole tree of mounts that is not attached yet.
#[expect(unsafe_code, reason = "no safe library wraps this call")]
pub(crate) fn set_tree(tree: &OwnedFd, change: MountAttributes) -> io::Result<()> {
    // SAFETY: both pointers are to values that live through the call, and the size is right.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const change,
            size_of::<MountAttributes>(),
        )
    })
}

/// Opens a path without following any symbolic link: paths were resolved when they were approved, so one with
/// a link in it has been tampered with.
pub(crate) fn open_place(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let tampered = || io::Error::other("a link has taken the place of a directory");
    match opened {
        Err(Errno::LOOP) => Err(tampered()),
        // Inside another sandbox of ours this call does not exist. A path could be changed between lookup
        // and open, but only by processes that share that sandbox.
        Err(Errno::NOSYS) => {
            let parent = path.parent().unwrap_or(path);
            if parent.canonicalize()? != parent {
                return Err(tampered());
            }
            Ok(openat(CWD, path, flags, Mode::empty())?)
        }
        opened => Ok(opened?),
    }
}

/// Closes every descriptor except the standard ones on exec.
#[expect(unsafe_code, reason = "no safe library wraps this call")]
pub(crate) fn close_on_exec_from_3() -> io::Result<()> {
    let (first, last): (c_uint, c_uint) = (3, c_uint::MAX);
    // SAFETY: nothing is closed before the next program begins.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::open_place;

    #[test]
    fn links_on_the_way_are_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("its place");
        fs::create_dir_all(root.join("real/inner")).expect("directories");
        symlink("real", root.join("link")).expect("a link");
        for (path, opens) in
            [("real/inner", true), ("link/inner", false), ("link", true), ("real/none", false)]
        {
            assert_eq!(open_place(&root.join(path)).is_ok(), opens, "{path}");
        }
    }
}
