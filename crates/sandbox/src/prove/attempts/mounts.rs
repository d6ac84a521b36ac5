//! Namespaces and mounts, with which a process could build its own environment.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use super::super::ground::Ground;
use super::super::sys::{Outcome, Refused, call, own, reached, text, wait};
use super::{Attempt, Outside, forbid, shell};

pub(super) const TABLE: &[Attempt] = &[
    forbid("unshare-user", "enter a new user namespace", |_| unshare(libc::CLONE_NEWUSER)).unsaid(),
    forbid("unshare-mount", "enter a new mount namespace", |_| unshare(libc::CLONE_NEWNS)).root(),
    forbid("unshare-net", "enter a new network namespace", |_| unshare(libc::CLONE_NEWNET)).root(),
    forbid("unshare-pid", "enter a new process namespace", |_| unshare(libc::CLONE_NEWPID)).root(),
    forbid("unshare-ipc", "enter a new IPC namespace", |_| unshare(libc::CLONE_NEWIPC)).root(),
    forbid("unshare-uts", "enter a new host name namespace", |_| unshare(libc::CLONE_NEWUTS))
        .root(),
    forbid("unshare-cgroup", "enter a new control group namespace", |_| {
        unshare(libc::CLONE_NEWCGROUP)
    })
    .root(),
    forbid("unshare-time", "enter a new time namespace", |_| unshare(CLONE_NEWTIME)).unsaid(),
    forbid("unshare-all", "enter a new user and mount namespace", |_| {
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)
    })
    .unsaid(),
    forbid("unshare-program", "run unshare(1) and mount in it", |ground| {
        shell(ground, "/bin/sh", "unshare -Urm mount -t tmpfs none \"$W/mount\"")?;
        Ok("mounted".into())
    })
    .unsaid(),
    forbid("clone-user", "start a process in a new user namespace", |_| clone(libc::CLONE_NEWUSER))
        .unsaid(),
    forbid("clone-mount", "start a process in a new mount namespace", |_| clone(libc::CLONE_NEWNS))
        .root(),
    forbid("clone3-user", "do so with the newest call for it", |_| {
        let mut how = [0_u64; 8];
        how[0] = libc::CLONE_NEWUSER as u64;
        how[4] = libc::SIGCHLD as u64;
        let pid = call!(libc::SYS_clone3, &how[..], 64)?;
        finish_clone(pid)
    })
    .unsaid(),
    forbid("setns-victim", "enter the namespace of a process outside", |ground| {
        let file = File::open(format!("/proc/{}/ns/mnt", ground.victim))?;
        call!(libc::SYS_setns, file.as_raw_fd(), libc::CLONE_NEWNS)?;
        Ok("entered".into())
    })
    .root(),
    forbid("setns-init", "enter the namespace of process 1", |_| {
        let file = File::open("/proc/1/ns/uts")?;
        call!(libc::SYS_setns, file.as_raw_fd(), libc::CLONE_NEWUTS)?;
        Ok("entered".into())
    })
    // Process 1 may have more capabilities than we do.
    .unsaid(),
    forbid("setns-pidfd", "enter namespaces by a process descriptor", |ground| {
        let process = own(call!(libc::SYS_pidfd_open, ground.victim, 0)?);
        call!(libc::SYS_setns, process.as_raw_fd(), libc::CLONE_NEWUTS)?;
        Ok("entered".into())
    })
    .root(),
    forbid("mount-tmpfs", "mount an empty file system", |ground| {
        mount(ground, c"none", c"tmpfs", 0)
    })
    .root(),
    forbid("mount-bind", "mount the outside into the workspace", |ground| {
        mount(ground, &text(ground.outside("")), c"", libc::MS_BIND)
    })
    .root(),
    forbid("mount-proc", "mount another /proc", |ground| mount(ground, c"proc", c"proc", 0)).root(),
    forbid("mount-over-git", "mount over the repository", |ground| {
        let (from, to) = (text(ground.work("spare")), text(ground.work(".git")));
        call!(libc::SYS_mount, &from, &to, c"", libc::MS_BIND, 0)?;
        call!(libc::SYS_umount2, &to, libc::MNT_DETACH)?;
        Ok("mounted".into())
    })
    .root(),
    forbid("remount-root", "make the whole system writable", |_| {
        let flags = libc::MS_REMOUNT | libc::MS_BIND;
        call!(libc::SYS_mount, 0, c"/", 0, flags, 0)?;
        Ok("mounted anew".into())
    })
    .outside(Outside::Never),
    forbid("remount-git", "make the repository writable", |ground| {
        let flags = libc::MS_REMOUNT | libc::MS_BIND;
        reached(call!(libc::SYS_mount, 0, &text(ground.work(".git")), 0, flags, 0))
    })
    .root(),
    forbid("umount-git", "take away what covers the repository", |ground| {
        reached(call!(libc::SYS_umount2, &text(ground.work(".git")), libc::MNT_DETACH))
    })
    .root(),
    forbid("umount-proc", "take away /proc", |_| {
        call!(libc::SYS_umount2, c"/proc", libc::MNT_DETACH)?;
        Ok("taken away".into())
    })
    .outside(Outside::Never),
    forbid("pivot-root", "change what everything lies in", |ground| {
        // The same directory twice, and not a mount point: refused by any kernel that examines it.
        let path = text(ground.work("mount"));
        reached(call!(libc::SYS_pivot_root, &path, &path))
    })
    .root(),
    forbid("chroot", "change the root directory", |ground| {
        call!(libc::SYS_chroot, &text(ground.work("")))?;
        Ok("changed".into())
    })
    .root(),
    forbid("fsopen", "make a file system with the new calls for it", |_| {
        own(call!(libc::SYS_fsopen, c"tmpfs", 0)?);
        Ok("made".into())
    })
    .root(),
    forbid("fspick", "change a file system with the new calls for it", |_| {
        own(call!(libc::SYS_fspick, libc::AT_FDCWD, c"/proc", 0)?);
        Ok("picked".into())
    })
    .root(),
    forbid("open-tree", "copy a mount", |ground| {
        own(call!(libc::SYS_open_tree, libc::AT_FDCWD, &text(ground.outside("")), 1)?);
        Ok("copied".into())
    })
    .root(),
    forbid("move-mount", "move a mount", |_| {
        reached(call!(libc::SYS_move_mount, -1, c"", -1, c"", 0))
    })
    .root(),
    forbid("mount-setattr", "make a mount writable with the newest call for it", |ground| {
        // No attribute is set or cleared.
        let attributes = [0_u64; 4];
        let path = text(ground.work(".git"));
        reached(call!(libc::SYS_mount_setattr, libc::AT_FDCWD, &path, 0, &attributes[..], 32))
    })
    .unsaid(),
];

fn unshare(flags: i32) -> Outcome {
    call!(libc::SYS_unshare, flags)?;
    Ok("entered".into())
}

fn clone(flags: i32) -> Outcome {
    finish_clone(call!(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0)?)
}

/// Ends the child immediately; the parent waits for it.
fn finish_clone(pid: i64) -> Result<String, Refused> {
    if pid == 0 {
        std::process::exit(0);
    }
    wait(pid as i32)?;
    Ok("started".into())
}

/// Mounts something on an empty directory of the workspace, and unmounts it again.
fn mount(ground: &Ground, source: &std::ffi::CStr, kind: &std::ffi::CStr, flags: u64) -> Outcome {
    let target = text(ground.work("mount"));
    call!(libc::SYS_mount, source, &target, kind, flags, 0)?;
    call!(libc::SYS_umount2, &target, libc::MNT_DETACH)?;
    Ok("mounted".into())
}

/// Not defined by the C library.
const CLONE_NEWTIME: i32 = 0x80;
