//! Ways around path checks: other names of the same file, and open descriptors.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::super::ground::Ground;
use super::super::sys::{Outcome, call, own, text};
use super::{Attempt, forbid};

pub(super) const TABLE: &[Attempt] = &[
    forbid("through-symlink", "write through a symbolic link of the workspace", |ground| {
        fs::write(ground.work("way/victim"), "changed")?;
        Ok("written".into())
    }),
    forbid("through-dots", "write by way of `..`", |ground| {
        fs::write(ground.work("src/../../outside/victim"), "changed")?;
        Ok("written".into())
    }),
    forbid("through-proc-root", "write by way of /proc/self/root", |ground| {
        write_below(Path::new("/proc/self/root"), ground)
    }),
    forbid("through-proc-cwd", "write by way of /proc/self/cwd/..", |ground| {
        std::env::set_current_dir(ground.work(""))?;
        fs::write("/proc/self/cwd/../outside/victim", "changed")?;
        Ok("written".into())
    }),
    forbid("through-init-root", "write by way of /proc/1/root", |ground| {
        write_below(Path::new("/proc/1/root"), ground)
    })
    // Process 1 may have more capabilities than we do.
    .unsaid(),
    forbid("through-parent-root", "write by way of /proc/PARENT/root", |ground| {
        let parent = rustix::process::getppid().map_or(1, rustix::process::Pid::as_raw_pid);
        write_below(Path::new(&format!("/proc/{parent}/root")), ground)
    }),
    forbid("through-victim-root", "write by way of the root of a process outside", |ground| {
        write_below(Path::new(&format!("/proc/{}/root", ground.victim)), ground)
    }),
    forbid("reopen-read-only", "open again for writing what is open for reading", |ground| {
        let file = File::open(ground.outside("victim"))?;
        reopen(&file)
    }),
    forbid("reopen-path-only", "open again for writing what is open as a path", |ground| {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_PATH).open(ground.outside("victim"))?;
        reopen(&file)
    }),
    forbid("from-directory", "create a file by an open directory", |ground| {
        let directory = File::open(ground.outside(""))?;
        let flags = libc::O_CREAT | libc::O_WRONLY;
        own(call!(libc::SYS_openat, directory.as_raw_fd(), c"new", flags, 0o600)?);
        Ok("created".into())
    }),
    forbid("by-changed-directory", "change into the directory and write there", |ground| {
        std::env::set_current_dir(ground.outside(""))?;
        fs::write("victim", "changed")?;
        Ok("written".into())
    }),
    forbid("openat2", "open with the newest call for it", |ground| {
        let path = text(ground.outside("victim"));
        let how = [libc::O_WRONLY as u64, 0, 0];
        own(call!(libc::SYS_openat2, libc::AT_FDCWD, &path, &how[..], 24)?);
        Ok("opened for writing".into())
    }),
    forbid("by-handle", "open a file by its handle", by_handle).root(),
    forbid("sysv-memory", "attach shared memory of the machine", |ground| ground.ipc.attach())
        .unsaid(),
    forbid("sysv-messages", "write to a message queue of the machine", |ground| ground.ipc.send())
        .unsaid(),
    forbid("posix-queue", "open a POSIX message queue of the machine", |ground| ground.ipc.open())
        .unsaid(),
];

fn write_below(prefix: &Path, ground: &Ground) -> Outcome {
    let victim = ground.outside("victim");
    let below = prefix.join(victim.strip_prefix("/").unwrap_or(&victim));
    fs::write(below, "changed")?;
    Ok("written".into())
}

fn reopen(file: &File) -> Outcome {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().write(true).open(path)?.write_all(b"changed")?;
    Ok("written".into())
}

fn by_handle(ground: &Ground) -> Outcome {
    // `struct file_handle`: room for 128 bytes.
    let mut handle = [0_u8; 136];
    handle[..4].copy_from_slice(&128_u32.to_ne_bytes());
    let mut mount = [0_u8; 4];
    let path = text(ground.outside("victim"));
    call!(libc::SYS_name_to_handle_at, libc::AT_FDCWD, &path, &mut handle[..], &mut mount[..], 0)?;
    let place = File::open(ground.outside(""))?;
    own(call!(libc::SYS_open_by_handle_at, place.as_raw_fd(), &mut handle[..], libc::O_WRONLY)?);
    Ok("opened for writing".into())
}
