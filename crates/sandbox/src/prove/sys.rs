//! System calls as attempts make them: raw, since a refusal by a library proves nothing.

use std::ffi::{CStr, CString};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Refused {
    /// The system refused it with this error number.
    Errno(i32),
    /// It was refused otherwise, with this message.
    Said(String),
    /// It cannot be attempted here, because the machine lacks something.
    Void(String),
}

/// The result of an attempt: what it achieved, or why not.
pub(super) type Outcome = Result<String, Refused>;

/// One argument of a system call, which keeps what it points to alive.
#[derive(Clone, Copy)]
pub(super) struct Arg<'a>(usize, PhantomData<&'a ()>);

/// Makes a system call from a number and up to six integers, strings and buffers.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::prove::sys::system_call($number, &[$($crate::prove::sys::Arg::from($argument)),*])
    };
}
pub(super) use call;

#[expect(unsafe_code, reason = "the attempt is to make this very system call")]
pub(super) fn system_call(number: i64, arguments: &[Arg<'_>]) -> Result<i64, Refused> {
    let at = |index: usize| arguments.get(index).map_or(0, |argument| argument.0);
    // SAFETY: pointers come from borrows that outlive the call (see `Arg`), and each attempt gives
    // the kernel the length of the buffer it passes.
    let result = unsafe { libc::syscall(number, at(0), at(1), at(2), at(3), at(4), at(5)) };
    if result < 0 { Err(io::Error::last_os_error().into()) } else { Ok(result) }
}

/// Takes ownership of a descriptor that a system call has just returned.
#[expect(unsafe_code, reason = "raw system calls return raw descriptors")]
pub(super) fn own(fd: i64) -> OwnedFd {
    // SAFETY: the kernel has just made it, and nobody else knows its number.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

/// Starts a child that runs `child` and exits; returns its process id.
#[expect(unsafe_code, reason = "starting a daemon requires forking twice, which no library offers")]
pub(super) fn fork(child: impl FnOnce()) -> Result<i32, Refused> {
    // SAFETY: an attempt is a process with one thread, so the child finds no lock taken.
    match unsafe { libc::fork() } {
        0 => {
            child();
            // SAFETY: exits immediately, without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        pid if pid > 0 => Ok(pid),
        _ => Err(io::Error::last_os_error().into()),
    }
}

/// Waits for a child and returns its status as `waitpid` does.
pub(super) fn wait(pid: i32) -> Result<i32, Refused> {
    let mut status = [0_u8; 4];
    call!(libc::SYS_wait4, pid, &mut status[..], 0, 0)?;
    Ok(i32::from_ne_bytes(status))
}

/// Evaluates a call with invalid arguments: a process that gets the error about the arguments, instead of a
/// refusal, could have called it with valid ones.
pub(super) fn reached(result: Result<i64, Refused>) -> Outcome {
    match result {
        Ok(value) => Ok(format!("the kernel took it and returned {value}")),
        Err(Refused::Errno(number)) if !TURNED_AWAY.contains(&number) => {
            Ok(format!("the kernel looked at it and said {}", errno_name(number)))
        }
        Err(refused) => Err(refused),
    }
}

/// Converts a path for a system call.
pub(super) fn text(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).unwrap_or_default()
}

/// Reports that an attempt cannot be made here.
pub(super) fn void<T>(why: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::Void(why.into()))
}

/// Reports a refusal with a message.
pub(super) fn said<T>(why: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::Said(why.into()))
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::Errno(number),
            None => Self::Said(error.to_string()),
        }
    }
}

impl From<rustix::io::Errno> for Refused {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Errno(errno.raw_os_error())
    }
}

impl<'a> From<&'a CStr> for Arg<'a> {
    fn from(text: &'a CStr) -> Self {
        Self(text.as_ptr() as usize, PhantomData)
    }
}

impl<'a> From<&'a CString> for Arg<'a> {
    fn from(text: &'a CString) -> Self {
        Self::from(text.as_c_str())
    }
}

impl<'a> From<&'a [u8]> for Arg<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(bytes.as_ptr() as usize, PhantomData)
    }
}

impl<'a> From<&'a mut [u8]> for Arg<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self(bytes.as_mut_ptr() as usize, PhantomData)
    }
}

impl<'a> From<&'a [u64]> for Arg<'a> {
    fn from(words: &'a [u64]) -> Self {
        Self(words.as_ptr() as usize, PhantomData)
    }
}

impl From<i32> for Arg<'_> {
    fn from(value: i32) -> Self {
        Self(value as isize as usize, PhantomData)
    }
}

impl From<i64> for Arg<'_> {
    fn from(value: i64) -> Self {
        Self(value as usize, PhantomData)
    }
}

impl From<u64> for Arg<'_> {
    fn from(value: u64) -> Self {
        Self(value as usize, PhantomData)
    }
}

impl From<u32> for Arg<'_> {
    fn from(value: u32) -> Self {
        Self(value as usize, PhantomData)
    }
}

impl From<usize> for Arg<'_> {
    fn from(value: usize) -> Self {
        Self(value, PhantomData)
    }
}

/// Returns the symbolic name of an error number.
pub(super) fn errno_name(number: i32) -> String {
    let known = ERRNO_NAMES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("errno {number}"), |(_, name)| (*name).to_owned())
}

/// What filters and capabilities refuse with.
const TURNED_AWAY: [i32; 3] = [libc::EPERM, libc::EACCES, libc::ENOSYS];

/// The error numbers that sandboxes and kernels refuse with.
const ERRNO_NAMES: [(i32, &str); 31] = [
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::ESRCH, "ESRCH"),
    (libc::EIO, "EIO"),
    (libc::ENXIO, "ENXIO"),
    (libc::ENOEXEC, "ENOEXEC"),
    (libc::EBADF, "EBADF"),
    (libc::ECHILD, "ECHILD"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::EBUSY, "EBUSY"),
    (libc::EEXIST, "EEXIST"),
    (libc::EXDEV, "EXDEV"),
    (libc::ENODEV, "ENODEV"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::EISDIR, "EISDIR"),
    (libc::EINVAL, "EINVAL"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::EROFS, "EROFS"),
    (libc::EPIPE, "EPIPE"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ENOTEMPTY, "ENOTEMPTY"),
    (libc::ENOKEY, "ENOKEY"),
    (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
    (libc::ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
    (libc::ENETUNREACH, "ENETUNREACH"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::ENOTCONN, "ENOTCONN"),
];
