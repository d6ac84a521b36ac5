//! Ways to gain more privileges than the sandbox grants.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::ground::Ground;
use super::super::sys::{Outcome, call, own, said, text, void};
use super::{Attempt, Outside, forbid, shell};

pub(super) const TABLE: &[Attempt] = &[
    forbid("suid-program", "run a program that changes who runs it", suid_program),
    forbid("suid-chmod", "make a program of the workspace change who runs it", |ground| {
        fs::set_permissions(ground.work("file"), Permissions::from_mode(0o4755))?;
        Ok("made".into())
    }),
    forbid("sgid-chmod", "make a program of the workspace change its group", |ground| {
        fs::set_permissions(ground.work("file"), Permissions::from_mode(0o2755))?;
        let mode = fs::metadata(ground.work("file"))?.permissions().mode();
        if mode & 0o2000 == 0 { said("the bit was dropped") } else { Ok("made".into()) }
    }),
    forbid("suid-shell", "do so in a shell", |ground| {
        shell(ground, "/bin/sh", "chmod u+s \"$W/file\"")?;
        Ok("made".into())
    }),
    forbid("suid-create", "create a file that changes who runs it", |ground| {
        let path = text(ground.work("new"));
        let flags = libc::O_CREAT | libc::O_WRONLY;
        own(call!(libc::SYS_openat, libc::AT_FDCWD, &path, flags, 0o4755)?);
        has_suid(&ground.work("new"))
    }),
    forbid("suid-mknod", "make a node that changes who runs it", |ground| {
        let (path, mode) = (text(ground.work("new")), libc::S_IFREG | 0o4755);
        call!(libc::SYS_mknodat, libc::AT_FDCWD, &path, mode, 0)?;
        has_suid(&ground.work("new"))
    }),
    forbid("suid-fchmodat2", "do so with the newest call for it", |ground| {
        call!(SYS_FCHMODAT2, libc::AT_FDCWD, &text(ground.work("file")), 0o4755, 0)?;
        has_suid(&ground.work("file"))
    })
    .unsaid(),
    forbid("suid-openat2", "create one with the newest call for it", |ground| {
        let path = text(ground.work("new"));
        let how = [(libc::O_CREAT | libc::O_WRONLY) as u64, 0o4755, 0];
        own(call!(libc::SYS_openat2, libc::AT_FDCWD, &path, &how[..], 24)?);
        has_suid(&ground.work("new"))
    }),
    forbid("file-capability", "give a program of the workspace a capability", |ground| {
        // Revision 2, effective, CAP_SYS_ADMIN.
        let mut value = [0_u8; 20];
        value[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
        value[4..8].copy_from_slice(&(1_u32 << 21).to_le_bytes());
        let path = text(ground.work("file"));
        call!(libc::SYS_setxattr, &path, c"security.capability", &value[..], 20, 0)?;
        Ok("given".into())
    })
    .root(),
    forbid("capset", "take the capability to administer the system", |_| {
        let header = [LINUX_CAPABILITY_VERSION_3];
        // Effective, permitted and inheritable, low words first.
        let admin = 1_u64 << 21;
        let data = [admin | admin << 32, admin, 0];
        call!(libc::SYS_capset, &header[..], &data[..])?;
        Ok("taken".into())
    })
    .root(),
    forbid("ambient", "hand a capability down to programs", |_| {
        // Both sets first, as root outside needs it.
        let header = [LINUX_CAPABILITY_VERSION_3];
        let admin = 1_u64 << 21;
        call!(libc::SYS_capset, &header[..], &[admin | admin << 32, admin, 0][..])?;
        let raise = libc::PR_CAP_AMBIENT_RAISE;
        call!(libc::SYS_prctl, libc::PR_CAP_AMBIENT, raise, 21, 0, 0)?;
        Ok("handed down".into())
    })
    .root(),
    forbid("capabilities-held", "hold any capability, or be able to get one", |_| {
        let status = fs::read_to_string("/proc/self/status")?;
        let held = status.lines().find(|line| {
            let value = line.strip_prefix("Cap").and_then(|line| line.split_whitespace().last());
            // File capabilities count only without `no_new_privs`, which has its own row.
            !line.starts_with("CapBnd")
                && value.is_some_and(|value| !value.trim_matches('0').is_empty())
        });
        held.map_or_else(|| said("none is held"), |line| Ok(line.replace('\t', " ")))
    })
    .root(),
    forbid("new-privileges", "gain privileges by running a program", |_| {
        match call!(libc::SYS_prctl, libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)? {
            0 => Ok("programs may".into()),
            _ => said("no_new_privs"),
        }
    }),
    forbid("new-privileges-back", "take `no_new_privs` back", |_| {
        call!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)?;
        Ok("taken back".into())
    })
    .unsaid(),
    forbid("filter-off", "make system calls without a filter", |_| {
        let status = fs::read_to_string("/proc/self/status")?;
        let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim);
        if mode == Some("2") { said("a filter is on") } else { Ok("there is none".into()) }
    })
    .outside(Outside::Unsaid),
    forbid("securebits", "change how root gets its capabilities", |_| {
        let bits = call!(libc::SYS_prctl, libc::PR_GET_SECUREBITS, 0, 0, 0, 0)?;
        call!(libc::SYS_prctl, libc::PR_SET_SECUREBITS, bits, 0, 0, 0)?;
        Ok("changed".into())
    })
    .root(),
    forbid("setuid", "become another user", |_| {
        let other = if rustix::process::getuid().is_root() { 12_345 } else { 0 };
        call!(libc::SYS_setresuid, other, other, other)?;
        Ok("became another".into())
    })
    .root(),
    forbid("setgid", "join another group", |_| {
        let other = if rustix::process::getgid().is_root() { 12_345 } else { 0 };
        call!(libc::SYS_setresgid, other, other, other)?;
        Ok("joined another".into())
    })
    .root(),
    forbid("setgroups", "leave all groups", |_| {
        call!(libc::SYS_setgroups, 0, 0)?;
        Ok("left".into())
    })
    .root(),
    forbid("setfsuid", "open files as another user", |_| {
        let other = if rustix::process::getuid().is_root() { 12_345 } else { 0 };
        call!(libc::SYS_setfsuid, other)?;
        // The call never fails: it returns the previous id, so a second call returns the current one.
        let now = call!(libc::SYS_setfsuid, -1)?;
        if now == other { Ok("became another".into()) } else { said("nothing changed") }
    })
    .root(),
];

fn has_suid(path: &Path) -> Outcome {
    match fs::metadata(path)?.permissions().mode() & 0o4000 {
        0 => said("the bit was dropped"),
        _ => Ok("made".into()),
    }
}

/// Runs the ground's program and determines its user id.
fn suid_program(ground: &Ground) -> Outcome {
    let Some(program) = &ground.suid else { return void("there is no such program here") };
    let before = rustix::process::geteuid().as_raw();
    if program.file_name().is_some_and(|name| name == "id") {
        let output = Command::new(program).arg("-u").output()?;
        let after = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        return if after == before.to_string() || after.is_empty() {
            said("it ran as who started it")
        } else {
            Ok(format!("it ran as user {after}"))
        };
    }
    // It waits for a password that never comes; meanwhile the kernel reports its user id.
    let mut command = Command::new(program);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let begin = Instant::now();
    let mut changed = None;
    while begin.elapsed() < Duration::from_millis(500) && matches!(child.try_wait(), Ok(None)) {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        let effective = line.split_whitespace().nth(1).and_then(|id| id.parse::<u32>().ok());
        changed = effective.filter(|effective| *effective != before);
        if changed.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    // We cannot kill what runs as root; the end of its input ends it.
    drop(child.stdin.take());
    let _ = child.kill();
    let _ = child.wait();
    match changed {
        Some(user) => Ok(format!("it ran as user {user}")),
        None => said("it ran as who started it"),
    }
}

/// Not defined by the C library.
const SYS_FCHMODAT2: i64 = 452;
/// The version of the two structures; the process is the caller.
const LINUX_CAPABILITY_VERSION_3: u64 = 0x2008_0522;
