//! What a command inherits: descriptors and variables; and system calls of other ABIs.

use std::fs;
use std::path::Path;

use super::super::ground::{Ground, OUR_SECRET, OUR_VARIABLE, VICTIM_VARIABLE};
use super::super::sys::{Outcome, call, said};
use super::{Attempt, forbid};

pub(super) const TABLE: &[Attempt] = &[
    forbid("inherited-descriptor", "write to a descriptor left open by heddle", |ground| {
        call!(libc::SYS_write, ground.inherited, &b"changed"[..], 7)?;
        Ok("written".into())
    })
    // Commands without a sandbox get no descriptors of ours either.
    .unsaid(),
    forbid("other-descriptors", "have any descriptor but the standard ones", |_| {
        // The directory being listed has one too, recognizable by its target.
        for entry in fs::read_dir("/proc/self/fd")?.flatten() {
            let number: i32 = entry.file_name().to_string_lossy().parse().unwrap_or(0);
            let target = fs::read_link(entry.path()).unwrap_or_default();
            let listing = target.starts_with("/proc") && target.ends_with("fd");
            if number > 2 && !listing && target != Path::new("") {
                return Ok(format!("{number} is {}", target.display()));
            }
        }
        said("there is none")
    })
    .unsaid(),
    forbid("secret-variable", "read a secret from the environment", |_| {
        match std::env::vars_os().find(|(_, value)| value == OUR_SECRET) {
            Some((name, _)) => Ok(format!("it is in {}", name.display())),
            None => said("it is not there"),
        }
    }),
    forbid("secret-shell", "read it in a shell", |ground| {
        let script = format!("test -n \"${OUR_VARIABLE}\" || test -n \"${VICTIM_VARIABLE}\"");
        super::shell(ground, "/bin/sh", &script)?;
        Ok("it is there".into())
    }),
    // The variable is for the command alone. What builds the sandbox must not load the file it names: an
    // inotify watch counts how often the file was opened.
    Attempt {
        env: &[("LD_PRELOAD", PRELOAD)],
        ..forbid("preload", "have the sandbox's builder load a library", preload)
            .no_trace()
            .unsaid()
    },
    #[cfg(target_arch = "x86_64")]
    forbid("x32-socket", "make a socket by the x32 ABI", |_| {
        call!(libc::SYS_socket | X32, libc::AF_INET, libc::SOCK_STREAM, 0)?;
        Ok("made".into())
    })
    .unsaid(),
    #[cfg(target_arch = "x86_64")]
    forbid("x32-unshare", "enter a user namespace by the x32 ABI", |_| {
        call!(libc::SYS_unshare | X32, libc::CLONE_NEWUSER)?;
        Ok("entered".into())
    })
    .unsaid(),
    #[cfg(target_arch = "x86_64")]
    Attempt {
        // A kernel without the ABI kills the process.
        signals: &[libc::SIGSYS, libc::SIGSEGV],
        ..forbid("i386-socket", "make a socket by the 32-bit ABI", |_| {
            compat(359, libc::AF_INET as u32, libc::SOCK_STREAM as u32)
        })
        .unsaid()
    },
    #[cfg(target_arch = "x86_64")]
    Attempt {
        signals: &[libc::SIGSYS, libc::SIGSEGV],
        ..forbid("i386-unshare", "enter a user namespace by the 32-bit ABI", |_| {
            compat(310, libc::CLONE_NEWUSER as u32, 0)
        })
        .unsaid()
    },
    #[cfg(target_arch = "x86_64")]
    Attempt {
        signals: &[libc::SIGSYS, libc::SIGSEGV],
        ..forbid("i386-ptrace", "be debugged by the 32-bit ABI", |_| compat(26, 0, 0)).unsaid()
    },
];

fn preload(_: &Ground) -> Outcome {
    Ok("the variable was set".into())
}

/// Makes a 32-bit system call.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "no library makes system calls of other ABIs")]
fn compat(number: u32, first: u32, second: u32) -> Outcome {
    let result: u64;
    // SAFETY: the calls that are made take numbers only, and the registers that the kernel changes
    // are named. The compiler keeps rbx for itself, so it is swapped in and out.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {first}",
            "int 0x80",
            "xchg rbx, {first}",
            first = inout(reg) u64::from(first) => _,
            inout("rax") u64::from(number) => result,
            in("rcx") u64::from(second),
            in("rdx") 0_u64,
            in("rsi") 0_u64,
            in("rdi") 0_u64,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    let result = result as u32 as i32;
    if result < 0 {
        return Err(std::io::Error::from_raw_os_error(-result).into());
    }
    Ok("done".into())
}

/// The value of `LD_PRELOAD`; the ground puts its own file there.
pub(super) const PRELOAD: &str = "{root}/workspace/preload.so";
/// The flag of x32 system calls.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;
