//! What must still work, so that the other rows are meaningful.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::process::Command;

use policy::SandboxMode::WorkspaceWrite;

use super::super::sys::{call, fork, own, said, wait};
use super::{Attempt, allow, shell};
use crate::Level;

pub(super) const TABLE: &[Attempt] = &[
    allow("scratch-build", "build and run something in the directory of plan mode", |ground| {
        let folder = ground.scratch("build");
        fs::create_dir_all(folder.join("src"))?;
        fs::write(folder.join("src/main"), fs::read(ground.work("src/main"))?)?;
        fs::write(folder.join("run"), "#!/bin/sh\necho built > out\n")?;
        fs::rename(folder.join("run"), folder.join("run.sh"))?;
        let status = Command::new("/bin/sh").arg("run.sh").current_dir(&folder).status()?;
        let built = fs::read_to_string(folder.join("out"))?;
        if !status.success() || built != "built\n" {
            return said("it did not run");
        }
        fs::remove_dir_all(folder)?;
        Ok("built, run and removed".into())
    })
    .only_in_plan_mode(),
    allow("workspace-write", "write a file of the workspace", |ground| {
        fs::write(ground.work("file"), "ours")?;
        Ok("written".into())
    })
    .only(WorkspaceWrite),
    allow("workspace-create", "create a file at the top of the workspace", |ground| {
        fs::write(ground.work("new"), "ours")?;
        Ok("created".into())
    })
    // Landlock can grant only what exists, or everything that could exist.
    .at(Level::Namespaces)
    .only(WorkspaceWrite),
    allow("workspace-create-below", "create a file below the top of the workspace", |ground| {
        fs::write(ground.work("src/new"), "ours")?;
        Ok("created".into())
    })
    .only(WorkspaceWrite),
    allow("workspace-tree", "make directories, rename and remove in the workspace", |ground| {
        fs::create_dir_all(ground.work("src/a/b"))?;
        fs::write(ground.work("src/a/b/file"), "ours")?;
        fs::rename(ground.work("src/a/b"), ground.work("src/c"))?;
        fs::remove_dir_all(ground.work("src/c"))?;
        Ok("made and removed".into())
    })
    .only(WorkspaceWrite),
    allow("workspace-append", "append to a file of the workspace in a shell", |ground| {
        shell(ground, "/bin/sh", "echo more >> \"$W/src/main\"")?;
        Ok("written".into())
    })
    .only(WorkspaceWrite),
    allow("workspace-link", "link files of the workspace", |ground| {
        fs::hard_link(ground.work("src/main"), ground.work("src/link"))?;
        std::os::unix::fs::symlink("main", ground.work("src/symlink"))?;
        Ok("linked".into())
    })
    .only(WorkspaceWrite),
    allow("other-roots", "write in other writable roots", |ground| {
        for path in [ground.bare("file"), ground.tree("file"), ground.nested("file")] {
            fs::write(path, "ours")?;
        }
        Ok("written".into())
    })
    .only(WorkspaceWrite),
    allow("temporary-write", "write in the temporary directory", |ground| {
        fs::write(ground.temporary("free/new"), "ours")?;
        Ok("written".into())
    })
    .only(WorkspaceWrite),
    allow("read-outside", "read a file outside", |ground| {
        fs::read(ground.outside("victim"))?;
        Ok("read".into())
    }),
    allow("read-protected", "read the repository's settings", |ground| {
        fs::read(ground.work(".git/config"))?;
        Ok("read".into())
    }),
    allow("read-system", "read a file of the system", |_| {
        fs::read("/etc/passwd")?;
        Ok("read".into())
    }),
    allow("null", "write to /dev/null and read from /dev/zero and /dev/urandom", |_| {
        OpenOptions::new().write(true).open("/dev/null")?.write_all(b"x")?;
        File::open("/dev/zero")?.read_exact(&mut [0; 16])?;
        File::open("/dev/urandom")?.read_exact(&mut [0; 16])?;
        Ok("done".into())
    }),
    allow("pipes", "pipe one command into another", |ground| {
        let output = shell(ground, "/bin/sh", "printf 'a\\nb\\n' | wc -l")?;
        if output.trim_ascii() == b"2" { Ok("piped".into()) } else { said("wrong output") }
    }),
    allow("substitution", "read a command as a file in bash", |ground| {
        let output = shell(ground, "/bin/bash", "cat <(echo yes)")?;
        if output == b"yes\n" { Ok("read".into()) } else { said("wrong output") }
    }),
    allow("exit-code", "see the exit code of a command", |_| {
        match Command::new("/bin/sh").args(["-c", "exit 7"]).status()?.code() {
            Some(7) => Ok("seen".into()),
            other => said(format!("{other:?}")),
        }
    }),
    allow("fork", "start a process and signal it", |_| {
        let child = fork(|| std::thread::sleep(std::time::Duration::from_secs(60)))?;
        call!(libc::SYS_kill, child, libc::SIGTERM)?;
        match wait(child)? {
            libc::SIGTERM => Ok("ended".into()),
            other => said(format!("it ended with {other}")),
        }
    }),
    allow("threads", "start threads", |_| {
        let sums: Vec<_> = (0..4).map(|n| std::thread::spawn(move || n + 1)).collect();
        let sum: i32 = sums.into_iter().filter_map(|thread| thread.join().ok()).sum();
        if sum == 10 { Ok("started".into()) } else { said("one did not run") }
    }),
    allow("pair", "talk over a pair of Unix sockets", |_| {
        let (mut one, mut other) = UnixStream::pair()?;
        one.write_all(b"x")?;
        other.read_exact(&mut [0])?;
        Ok("talked".into())
    }),
    allow("memory-file", "make a file in memory", |_| {
        let file = own(call!(libc::SYS_memfd_create, c"file", 0)?);
        rustix::io::write(&file, b"x")?;
        Ok("made".into())
    }),
    allow("own-memory", "look at one's own process", |_| {
        fs::read_to_string("/proc/self/status")?;
        fs::read_to_string("/proc/self/maps")?;
        Ok("looked".into())
    }),
    allow("own-limits", "limit and renice oneself", |_| {
        let limit = [0_u64, 0];
        call!(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, &limit[..], 0)?;
        // Relative to the current value, since it cannot be lowered again. The kernel counts the other way
        // round.
        let nice = 20 - call!(libc::SYS_getpriority, libc::PRIO_PROCESS, 0)?;
        call!(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, (nice + 1).min(19))?;
        Ok("limited".into())
    }),
    allow("events", "wait for events and timers", |_| {
        let epoll = own(call!(libc::SYS_epoll_create1, 0)?);
        let event = own(call!(libc::SYS_eventfd2, 0, 0)?);
        let timer = own(call!(libc::SYS_timerfd_create, libc::CLOCK_MONOTONIC, 0)?);
        for (fd, data) in [(&event, 0_u64), (&timer, 1)] {
            let wanted = [1 | data << 32, 0];
            let (epoll, fd) = (epoll.as_raw_fd(), fd.as_raw_fd());
            call!(libc::SYS_epoll_ctl, epoll, libc::EPOLL_CTL_ADD, fd, &wanted[..])?;
        }
        own(call!(libc::SYS_inotify_init1, 0)?);
        Ok("ready".into())
    }),
    allow("here-document", "read a document in a shell", |ground| {
        // Shells keep long ones in a temporary file, for which a read-only sandbox has no room.
        let output = shell(ground, "/bin/sh", "cat <<EOF\nshort\nEOF\n")?;
        if output == b"short\n" { Ok("read".into()) } else { said("wrong output") }
    }),
];
