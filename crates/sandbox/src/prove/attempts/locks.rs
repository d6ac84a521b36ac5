//! Blocking heddle from inside: locks and leases on its files, and files that are replaced while it reads
//! them.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use policy::SandboxMode::WorkspaceWrite;

use super::super::ground::Ground;
use super::super::sys::{Outcome, Refused, call, own, text};
use super::{Attempt, forbid, shell};

pub(super) const TABLE: &[Attempt] = &[
    forbid("lock-threads", "take the lock that writers of threads wait for", |ground| {
        lock(&ground.thread_lock(), libc::LOCK_EX)
    }),
    forbid("lock-threads-shared", "take part in that lock", |ground| {
        lock(&ground.thread_lock(), libc::LOCK_SH)
    }),
    forbid("lock-daemon", "take the lock that starters of the daemon wait for", |ground| {
        lock(&ground.start_lock(), libc::LOCK_EX)
    }),
    forbid("lock-relative", "take a lock by way of the home's directory", |ground| {
        let home = File::open(ground.home(""))?;
        let name = c"thread-writer-locks/.coordination.lock";
        let file = own(call!(libc::SYS_openat, home.as_raw_fd(), name, libc::O_RDONLY, 0)?);
        flock(&file, libc::LOCK_EX)
    }),
    forbid("lock-proc", "take a lock by way of /proc/self", |ground| {
        std::env::set_current_dir(ground.home(""))?;
        lock(Path::new("/proc/self/cwd/thread-writer-locks/.coordination.lock"), libc::LOCK_EX)
    }),
    forbid(
        "lock-odd",
        "take a lock on a file that is opened neither to read nor to write",
        |ground| {
            let path = text(ground.thread_lock());
            let file = own(call!(libc::SYS_openat, libc::AT_FDCWD, &path, libc::O_ACCMODE, 0)?);
            flock(&file, libc::LOCK_EX)
        },
    )
    // No kernel permits it.
    .unsaid(),
    forbid("lock-posix", "take a lock that databases use", |ground| {
        let file = File::open(ground.start_lock())?;
        // Type and whence, then start, length and process.
        let range = [u64::from(libc::F_RDLCK.unsigned_abs()), 0, 0, 0];
        call!(libc::SYS_fcntl, file.as_raw_fd(), libc::F_OFD_SETLK, &range[..])?;
        Ok("locked".into())
    }),
    forbid("lock-shell", "take a lock with flock(1)", |ground| {
        shell(ground, "/bin/sh", "flock -n \"$R/tmp/area/home/daemon/start.lock\" true")?;
        Ok("locked".into())
    }),
    forbid("lock-link", "take a lock through a link", |ground| {
        symlink(ground.thread_lock(), ground.work("src/way"))?;
        lock(&ground.work("src/way"), libc::LOCK_EX)
    })
    .only(WorkspaceWrite),
    forbid("lock-second-name", "give a lock a second name and take it", |ground| {
        fs::hard_link(ground.thread_lock(), ground.work("src/lock"))?;
        lock(&ground.work("src/lock"), libc::LOCK_EX)
    })
    .only(WorkspaceWrite),
    forbid("lease", "make writers of a file wait for us", |ground| {
        lease(&ground.outside("victim"))
    }),
    forbid("lease-workspace", "make patches of a file wait for us", |ground| {
        lease(&ground.work("src/main"))
    }),
    Attempt {
        reads: true,
        ..forbid("swap-pipe", "put a pipe in the place of a file that heddle reads", |ground| {
            swap(ground, &|path| {
                call!(libc::SYS_mknodat, libc::AT_FDCWD, &text(path), libc::S_IFIFO | 0o600, 0)?;
                Ok(())
            })
        })
        .no_trace()
        .only(WorkspaceWrite)
    },
    Attempt {
        reads: true,
        ..forbid("swap-endless", "put a link to /dev/zero in the place of such a file", |ground| {
            swap(ground, &|path| Ok(symlink("/dev/zero", path)?))
        })
        .no_trace()
        .only(WorkspaceWrite)
    },
];

fn lock(path: &Path, kind: i32) -> Outcome {
    flock(&File::open(path)?, kind)
}

fn flock(file: &impl std::os::fd::AsRawFd, kind: i32) -> Outcome {
    call!(libc::SYS_flock, file.as_raw_fd(), kind | libc::LOCK_NB)?;
    Ok("locked".into())
}

fn lease(path: &Path) -> Outcome {
    let file = File::open(path)?;
    call!(libc::SYS_fcntl, file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK)?;
    Ok("leased".into())
}

/// Alternates between a file and something else for a while; in the end it is something else.
fn swap(ground: &Ground, make: &dyn Fn(&Path) -> Result<(), Refused>) -> Outcome {
    let (place, beside) = (ground.swapped(), ground.work("src/beside"));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(200) {
        fs::write(&beside, "ours to change\n")?;
        fs::rename(&beside, &place)?;
        make(&beside)?;
        fs::rename(&beside, &place)?;
    }
    Ok("swapped".into())
}
