//! Writes outside the workspace, one system call after the other.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::time::SystemTime;

use policy::SandboxMode;

use super::super::ground::Ground;
use super::super::sys::{Outcome, call, own, text};
use super::{Attempt, forbid, shell};

pub(super) const TABLE: &[Attempt] = &[
    forbid("write-redirect", "redirect the output of a shell into a file", |ground| {
        shell(ground, "/bin/sh", "echo changed > \"$O/victim\"")?;
        Ok("the shell wrote it".into())
    }),
    forbid("write-append", "append to a file", |ground| {
        let file = OpenOptions::new().append(true).open(ground.outside("victim"));
        file?.write_all(b"changed")?;
        Ok("appended".into())
    }),
    forbid("write-truncate", "truncate a file by its path", |ground| {
        call!(libc::SYS_truncate, &text(ground.outside("victim")), 0)?;
        Ok("truncated".into())
    }),
    forbid("write-truncating-open", "empty a file by opening it for reading", |ground| {
        let path = text(ground.outside("victim"));
        call!(libc::SYS_openat, libc::AT_FDCWD, &path, libc::O_RDONLY | libc::O_TRUNC, 0)?;
        Ok("emptied".into())
    }),
    forbid("write-create", "create a file", |ground| {
        fs::write(ground.outside("new"), "new")?;
        Ok("created".into())
    }),
    forbid("write-world-writable", "write a file that everybody may write", |ground| {
        fs::write(ground.outside("open/victim"), "changed")?;
        Ok("written".into())
    }),
    forbid("write-world-directory", "create a file where everybody may", |ground| {
        fs::write(ground.outside("open/new"), "new")?;
        Ok("created".into())
    }),
    forbid("write-shared-memory", "write a file in the machine's /dev/shm", |ground| {
        let Some(path) = &ground.shared_memory else {
            return super::void("no shared memory here");
        };
        // Not created: a private /dev/shm may be written.
        OpenOptions::new().write(true).open(path)?.write_all(b"changed")?;
        Ok("written".into())
    })
    .unsaid(),
    forbid("write-workspace", "write in the workspace", |ground| {
        fs::write(ground.work("file"), "changed")?;
        Ok("written".into())
    })
    .only(SandboxMode::ReadOnly),
    forbid("write-temporary", "write in the temporary directory", |ground| {
        fs::write(ground.temporary("new"), "new")?;
        Ok("written".into())
    })
    .only(SandboxMode::ReadOnly),
    forbid("unlink", "remove a file", |ground| {
        fs::remove_file(ground.outside("victim"))?;
        Ok("removed".into())
    }),
    forbid("rename-out", "move a file out of the workspace", |ground| {
        fs::rename(ground.work("file"), ground.outside("file"))?;
        Ok("moved".into())
    }),
    forbid("rename-in", "move a file into the workspace", |ground| {
        fs::rename(ground.outside("victim"), ground.work("victim"))?;
        Ok("moved".into())
    }),
    forbid("rename-over", "move a file of the workspace over one outside", |ground| {
        fs::rename(ground.work("file"), ground.outside("victim"))?;
        Ok("moved".into())
    }),
    forbid("rename-exchange", "swap a file of the workspace with one outside", |ground| {
        let (from, to) = (text(ground.work("file")), text(ground.outside("victim")));
        let (here, exchange) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
        call!(libc::SYS_renameat2, here, &from, here, &to, exchange)?;
        Ok("swapped".into())
    }),
    forbid("rename-outside", "rename a file where it is", |ground| {
        fs::rename(ground.outside("victim"), ground.outside("other"))?;
        Ok("renamed".into())
    }),
    forbid("link-in", "link a file into the workspace, and write it there", |ground| {
        let link = ground.work("link");
        fs::hard_link(ground.outside("candidate"), &link)?;
        fs::write(link, "changed")?;
        Ok("written".into())
    }),
    forbid("link-out", "link a file of the workspace outside", |ground| {
        fs::hard_link(ground.work("file"), ground.outside("link"))?;
        Ok("linked".into())
    }),
    forbid("link-open-file", "link an open file into the workspace", |ground| {
        let file = File::open(ground.outside("candidate"))?;
        let from = text(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let to = text(ground.work("link"));
        let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
        call!(libc::SYS_linkat, here, &from, here, &to, follow)?;
        fs::write(ground.work("link"), "changed")?;
        Ok("written".into())
    }),
    forbid("symlink-out", "make a symbolic link outside", |ground| {
        symlink("victim", ground.outside("link"))?;
        Ok("linked".into())
    }),
    forbid("mkdir", "make a directory", |ground| {
        fs::create_dir(ground.outside("new"))?;
        Ok("made".into())
    }),
    forbid("rmdir", "remove a directory", |ground| {
        fs::remove_dir(ground.outside("empty"))?;
        Ok("removed".into())
    }),
    forbid("mknod-fifo", "make a named pipe", |ground| {
        let (path, mode) = (text(ground.outside("pipe")), libc::S_IFIFO | 0o600);
        call!(libc::SYS_mknodat, libc::AT_FDCWD, &path, mode, 0)?;
        Ok("made".into())
    }),
    forbid("chmod", "change the permissions of a file", |ground| {
        fs::set_permissions(ground.outside("victim"), Permissions::from_mode(0o777))?;
        Ok("changed".into())
    }),
    forbid("fchmod", "change the permissions of a file open for reading", |ground| {
        let file = File::open(ground.outside("victim"))?;
        call!(libc::SYS_fchmod, file.as_raw_fd(), 0o777)?;
        Ok("changed".into())
    }),
    forbid("fchmodat2", "change permissions with the newest call for it", |ground| {
        let path = text(ground.outside("victim"));
        call!(SYS_FCHMODAT2, libc::AT_FDCWD, &path, 0o777, 0)?;
        Ok("changed".into())
    })
    .unsaid(),
    forbid("chown", "change the owner of a file", |ground| {
        // To its current owner: even that is a change, and everyone may make it.
        let path = text(ground.outside("victim"));
        let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
        let (user, group) = (user.as_raw(), group.as_raw());
        call!(libc::SYS_fchownat, libc::AT_FDCWD, &path, user, group, 0)?;
        Ok("changed".into())
    }),
    forbid("utimes", "change the times of a file", |ground| {
        let path = text(ground.outside("victim"));
        let times = [0_u64, 0, 0, 0];
        call!(libc::SYS_utimensat, libc::AT_FDCWD, &path, &times[..], 0)?;
        Ok("changed".into())
    }),
    forbid("futimes", "change the times of a file open for reading", |ground| {
        let file = File::open(ground.outside("victim"))?;
        file.set_modified(SystemTime::UNIX_EPOCH)?;
        Ok("changed".into())
    }),
    forbid("setxattr", "set an extended attribute", |ground| {
        let path = text(ground.outside("victim"));
        call!(libc::SYS_setxattr, &path, c"user.heddle", &b"1"[..], 1, 0)?;
        Ok("set".into())
    })
    .unsaid(),
    forbid("fsetxattr", "set an extended attribute of a file open for reading", |ground| {
        let file = File::open(ground.outside("victim"))?;
        call!(libc::SYS_fsetxattr, file.as_raw_fd(), c"user.heddle", &b"1"[..], 1, 0)?;
        Ok("set".into())
    })
    .unsaid(),
    forbid("setxattrat", "set an extended attribute with the newest call for it", |ground| {
        let path = text(ground.outside("victim"));
        let value = *b"1";
        // `struct xattr_args`: where the value is, and its length with the flags above it.
        let arguments = [value.as_ptr() as u64, 1];
        let call =
            call!(SYS_SETXATTRAT, libc::AT_FDCWD, &path, 0, c"user.heddle", &arguments[..], 16);
        call?;
        Ok("set".into())
    })
    .unsaid(),
    forbid("chattr", "change the flags of a file open for reading", |ground| {
        let file = File::open(ground.outside("victim"))?;
        // Zero flags and "no dump" differ on every file system that has flags.
        let flags = 0x40_u64.to_ne_bytes();
        call!(libc::SYS_ioctl, file.as_raw_fd(), FS_IOC_SETFLAGS, &flags[..])?;
        Ok("changed".into())
    })
    .unsaid(),
    forbid("chattr-extended", "change the project of a file open for reading", |ground| {
        let file = File::open(ground.outside("victim"))?;
        // `struct fsxattr`: no flags except "no dump", 0x80.
        let mut attributes = [0_u8; 28];
        attributes[0] = 0x80;
        call!(libc::SYS_ioctl, file.as_raw_fd(), FS_IOC_FSSETXATTR, &attributes[..])?;
        Ok("changed".into())
    })
    .unsaid(),
    forbid("chattr-generation", "change the generation of a file open for reading", |ground| {
        let file = File::open(ground.outside("victim"))?;
        let generation = 1_u64.to_ne_bytes();
        call!(libc::SYS_ioctl, file.as_raw_fd(), FS_IOC_SETVERSION, &generation[..])?;
        Ok("changed".into())
    })
    .unsaid(),
    forbid("file-setattr", "change the flags of a file by its path", |ground| {
        let path = text(ground.outside("victim"));
        // `struct file_attr`: flags come first; 0x80 is "no dump".
        let attributes = [0x80_u64, 0, 0];
        call!(SYS_FILE_SETATTR, libc::AT_FDCWD, &path, &attributes[..], 24, 0)?;
        Ok("changed".into())
    })
    .unsaid(),
    forbid("tmpfile", "make a file without a name outside", |ground| {
        let flags = libc::O_TMPFILE | libc::O_WRONLY;
        let path = text(ground.outside(""));
        own(call!(libc::SYS_openat, libc::AT_FDCWD, &path, flags, 0o600)?);
        Ok("made".into())
    })
    .unsaid(),
    forbid("tmpfile-linked", "make a file without a name, and link it outside", tmpfile_linked)
        .unsaid(),
    forbid("mmap-shared", "map a file for writing", |ground| {
        let file = OpenOptions::new().read(true).write(true).open(ground.outside("victim"))?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        call!(libc::SYS_mmap, 0, 4096, access, libc::MAP_SHARED, fd, 0)?;
        Ok("mapped".into())
    }),
    forbid("fallocate", "make a file longer", |ground| {
        let file = OpenOptions::new().write(true).open(ground.outside("victim"))?;
        call!(libc::SYS_fallocate, file.as_raw_fd(), 0, 0, 8192)?;
        Ok("made longer".into())
    }),
    forbid("copy-file-range", "copy into a file inside the kernel", |ground| {
        let from = File::open(ground.work("file"))?;
        let to = OpenOptions::new().write(true).open(ground.outside("victim"))?;
        call!(libc::SYS_copy_file_range, from.as_raw_fd(), 0, to.as_raw_fd(), 0, 4, 0)?;
        Ok("copied".into())
    }),
    forbid("sendfile", "send a file into another", |ground| {
        let from = File::open(ground.work("file"))?;
        let to = OpenOptions::new().write(true).open(ground.outside("victim"))?;
        call!(libc::SYS_sendfile, to.as_raw_fd(), from.as_raw_fd(), 0, 4)?;
        Ok("sent".into())
    }),
    forbid("exclusive-create", "create a file with the oldest call for it", |ground| {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(ground.outside("open/new"))?;
        Ok("created".into())
    }),
];

fn tmpfile_linked(ground: &Ground) -> Outcome {
    let flags = libc::O_TMPFILE | libc::O_RDWR;
    let path = text(ground.work(""));
    let file = own(call!(libc::SYS_openat, libc::AT_FDCWD, &path, flags, 0o600)?);
    let from = text(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let to = text(ground.outside("new"));
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    call!(libc::SYS_linkat, here, &from, here, &to, follow)?;
    Ok("linked".into())
}

/// Numbers that are the same on every architecture, as for all newer calls.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_FILE_SETATTR: i64 = 469;
/// Sets the generation of a file, and its flags in a longer form.
const FS_IOC_SETVERSION: u64 = 0x4008_7602;
const FS_IOC_FSSETXATTR: u64 = 0x401C_5820;
/// Sets the flags of a file.
const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
