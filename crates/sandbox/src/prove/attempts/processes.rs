//! Processes outside: signals, memory, secrets, limits; and processes that outlive the call.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;

use super::super::ground::{Ground, OUR_SECRET, VICTIM_SECRET};
use super::super::sys::{Outcome, Refused, call, fork, own, said, void, wait};
use super::{Attempt, Outside, forbid, shell};
use crate::Level;

pub(super) const TABLE: &[Attempt] = &[
    forbid("kill", "end a process", |ground| {
        call!(libc::SYS_kill, ground.victim, libc::SIGTERM)?;
        Ok("ended".into())
    }),
    forbid("kill-prober", "find out whether a process is there", |ground| {
        call!(libc::SYS_kill, ground.prover, 0)?;
        Ok("it is".into())
    }),
    forbid("tkill", "end a thread", |ground| {
        call!(libc::SYS_tkill, ground.victim, libc::SIGTERM)?;
        Ok("ended".into())
    }),
    forbid("tgkill", "end a thread of a process", |ground| {
        call!(libc::SYS_tgkill, ground.victim, ground.victim, libc::SIGTERM)?;
        Ok("ended".into())
    }),
    forbid("pidfd-signal", "end a process by its descriptor", |ground| {
        let process = own(call!(libc::SYS_pidfd_open, ground.victim, 0)?);
        call!(libc::SYS_pidfd_send_signal, process.as_raw_fd(), libc::SIGTERM, 0, 0)?;
        Ok("ended".into())
    }),
    forbid("sigqueue", "end a process by a signal with a value", |ground| {
        let mut info = [0_u8; 128];
        info[..4].copy_from_slice(&libc::SIGTERM.to_ne_bytes());
        // SI_QUEUE, which processes may send.
        info[8..12].copy_from_slice(&(-1_i32).to_ne_bytes());
        call!(libc::SYS_rt_sigqueueinfo, ground.victim, libc::SIGTERM, &mut info[..])?;
        Ok("ended".into())
    }),
    forbid("sigio", "have the kernel signal a process when a pipe is written", sigio),
    // SIGWINCH is ignored by default, so nothing is killed if it reaches a process.
    forbid("kill-group", "signal the process group of another process", |ground| {
        call!(libc::SYS_kill, -ground.group, libc::SIGWINCH)?;
        Ok("signalled".into())
    }),
    forbid("kill-all", "signal every process there is", |ground| {
        match call!(libc::SYS_kill, -1, libc::SIGWINCH) {
            // It may reach processes of the sandbox, but not one outside.
            Ok(_) => {
                call!(libc::SYS_kill, ground.victim, 0)?;
                Ok("signalled".into())
            }
            Err(refused) => Err(refused),
        }
    })
    .outside(Outside::Never),
    forbid("ptrace-attach", "attach to a process as a debugger", |ground| {
        call!(libc::SYS_ptrace, libc::PTRACE_ATTACH, ground.victim, 0, 0)?;
        let _ = call!(libc::SYS_ptrace, libc::PTRACE_DETACH, ground.victim, 0, 0);
        Ok("attached".into())
    })
    .root(),
    forbid("ptrace-seize", "seize a process as a debugger", |ground| {
        call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, ground.victim, 0, 0)?;
        Ok("seized".into())
    })
    .root(),
    forbid("ptrace-parent", "attach to what started the command", |ground| {
        let parent = parent();
        if parent == ground.prover {
            return void("nothing stands between");
        }
        call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, parent, 0, 0)?;
        Ok("seized".into())
    })
    .unsaid(),
    forbid("ptrace-traceme", "be debugged", |_| {
        call!(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0)?;
        Ok("debugged".into())
    }),
    forbid("vm-read", "read the memory of a process", |ground| {
        vm(ground, libc::SYS_process_vm_readv)
    })
    .root(),
    forbid("vm-write", "write the memory of a process", |ground| {
        vm(ground, libc::SYS_process_vm_writev)
    })
    .root(),
    forbid("proc-cmdline", "read the command line of a process", |ground| {
        let found = fs::read(format!("/proc/{}/cmdline", ground.victim))?;
        if contains(&found, "sleep\x00600") {
            Ok("it is `sleep 600`".into())
        } else {
            said("not there")
        }
    })
    // Files of future processes cannot be granted individually, so all of them are granted.
    .known(Level::Landlock),
    forbid("proc-environ", "read the environment of a process", |ground| {
        let found = fs::read(format!("/proc/{}/environ", ground.victim))?;
        if contains(&found, VICTIM_SECRET) {
            Ok("read its secret".into())
        } else {
            said("not there")
        }
    })
    .root(),
    forbid("proc-environ-all", "look for secrets in the environments of all processes", |_| {
        for entry in fs::read_dir("/proc")?.flatten() {
            let found = fs::read(entry.path().join("environ")).unwrap_or_default();
            if contains(&found, VICTIM_SECRET) || contains(&found, OUR_SECRET) {
                return Ok(format!("found one in {}", entry.path().display()));
            }
        }
        said("none is in sight")
    })
    .root(),
    forbid("proc-mem", "open the memory of a process", |ground| {
        OpenOptions::new().read(true).write(true).open(format!("/proc/{}/mem", ground.victim))?;
        Ok("opened".into())
    })
    .root(),
    forbid("proc-maps", "read where the memory of a process is", |ground| {
        fs::read_to_string(format!("/proc/{}/maps", ground.victim))?;
        Ok("read".into())
    })
    .root(),
    forbid("proc-fd", "see what the descriptors of a process are", |ground| {
        let mut refused = Err(Refused::Said("there is none".into()));
        for entry in fs::read_dir(format!("/proc/{}/fd", ground.prover))?.flatten() {
            match fs::read_link(entry.path()) {
                Ok(target) => return Ok(format!("one is {}", target.display())),
                Err(error) => refused = Err(error.into()),
            }
        }
        refused
    })
    .root(),
    forbid("proc-fd-open", "open a descriptor of the prover", |ground| {
        let path = format!("/proc/{}/fd/{}", ground.prover, ground.inherited);
        OpenOptions::new().write(true).open(path)?;
        Ok("opened".into())
    })
    .root(),
    forbid(
        "parent-environ",
        "read the environment of what started the command",
        |_| match fs::read(format!("/proc/{}/environ", parent()))? {
            found if found.is_empty() => said("it is empty"),
            found => Ok(format!("read {} bytes", found.len())),
        },
    )
    .root(),
    forbid("parent-mem", "open the memory of what started the command", |_| {
        OpenOptions::new().read(true).write(true).open(format!("/proc/{}/mem", parent()))?;
        Ok("opened".into())
    })
    .root(),
    forbid("init-mem", "open the memory of process 1", |_| {
        OpenOptions::new().read(true).write(true).open("/proc/1/mem")?;
        Ok("opened".into())
    })
    // Process 1 may have more capabilities than we do.
    .unsaid(),
    forbid("pidfd-getfd", "take a descriptor of a process", |ground| {
        let process = own(call!(libc::SYS_pidfd_open, ground.prover, 0)?);
        own(call!(libc::SYS_pidfd_getfd, process.as_raw_fd(), ground.inherited, 0)?);
        Ok("taken".into())
    })
    .root(),
    forbid("kcmp", "compare a process with ours", |ground| {
        call!(libc::SYS_kcmp, ground.prover, ground.victim, 0, 0, 0)?;
        Ok("compared".into())
    })
    .unsaid(),
    forbid("prlimit", "change the limits of a process", |ground| {
        let limit = [0_u64, 0];
        call!(libc::SYS_prlimit64, ground.victim, libc::RLIMIT_CORE, &limit[..], 0)?;
        Ok("changed".into())
    }),
    forbid("setpriority", "change the priority of a process", |ground| {
        call!(libc::SYS_setpriority, libc::PRIO_PROCESS, ground.victim, 19)?;
        Ok("changed".into())
    }),
    forbid("scheduler", "change the scheduling of a process", |ground| {
        let parameter = 0_i32.to_ne_bytes();
        let policy = libc::SCHED_IDLE;
        call!(libc::SYS_sched_setscheduler, ground.victim, policy, &parameter[..])?;
        Ok("changed".into())
    }),
    forbid("affinity", "change the processors of a process", |ground| {
        let mut mask = [0_u64; 16];
        call!(libc::SYS_sched_getaffinity, 0, 128, &mask[..])?;
        // The lowest processor that we may use.
        let first = mask.iter().position(|word| *word != 0).unwrap_or_default();
        let lowest = 1 << mask[first].trailing_zeros();
        mask = [0; 16];
        mask[first] = lowest;
        call!(libc::SYS_sched_setaffinity, ground.victim, 128, &mask[..])?;
        Ok("changed".into())
    }),
    Attempt {
        signals: &[libc::SIGSYS, libc::SIGKILL],
        ..forbid("processes-many", "have more processes than a command may have", |_| {
            let started: Result<Vec<_>, _> = (0..600).map(|_| fork(linger)).collect();
            // Leaves time for the meter to count.
            std::thread::sleep(std::time::Duration::from_secs(3));
            for child in started? {
                let _ = call!(libc::SYS_kill, child, libc::SIGKILL);
                let _ = wait(child);
            }
            Ok("had 600".into())
        })
    },
    Attempt {
        signals: &[libc::SIGSYS, libc::SIGKILL],
        ..forbid("threads-many", "have more threads than a command may have", |_| {
            let pause = || std::thread::sleep(std::time::Duration::from_secs(3));
            let started: Vec<_> = (0..600)
                .map_while(|_| {
                    let thread = std::thread::Builder::new().stack_size(64 * 1024);
                    thread.spawn(pause).ok()
                })
                .collect();
            let count = started.len();
            started.into_iter().for_each(|thread| drop(thread.join()));
            if count == 600 { Ok("had 600".into()) } else { said(format!("only {count} began")) }
        })
    },
    Attempt {
        signals: &[libc::SIGSYS, libc::SIGKILL],
        ..forbid("memory-much", "hold more memory than a command may hold", |_| {
            hold_memory(512)?;
            Ok("held 512 MiB".into())
        })
    },
    Attempt {
        signals: &[libc::SIGSYS, libc::SIGKILL],
        ..forbid("memory-together", "hold more memory in several processes", |_| {
            let started: Result<Vec<_>, _> =
                (0..4).map(|_| fork(|| drop(hold_memory(128)))).collect();
            for child in started? {
                wait(child)?;
            }
            Ok("held 4 times 128 MiB".into())
        })
    },
    forbid("daemon", "leave a process behind that left session and parent", |_| {
        daemon(|| {})?;
        Ok("left".into())
    })
    .no_trace(),
    forbid("daemon-deaf", "leave a process behind that hears no signal", |_| {
        daemon(|| {
            let all = [u64::MAX];
            let _ = call!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &all[..], 0, 8);
        })?;
        Ok("left".into())
    })
    .no_trace(),
    forbid("daemon-nohup", "leave a process behind by nohup", |ground| {
        // The shell waits until the output is closed: before setsid it would be killed with its group.
        let script = "up=$(nohup setsid sh -c 'exec >/dev/null; while :; do sleep 1; done' \"$0\" \
                      </dev/null 2>/dev/null &)";
        shell(ground, "/bin/sh", script)?;
        Ok("left".into())
    })
    .no_trace(),
    forbid("daemon-output", "leave a process behind that holds the output open", |_| {
        // Forked only once, and in its own session.
        fork(|| {
            let _ = rustix::process::setsid();
            linger();
        })?;
        Ok("left".into())
    })
    .no_trace(),
    forbid("daemon-many", "leave processes behind faster than they can be ended", |_| {
        daemon(|| {
            // Each generation starts the next one and exits, a bounded number of times.
            for _ in 0..20_000 {
                match fork(|| std::thread::sleep(std::time::Duration::from_micros(50))) {
                    Ok(child) => drop(wait(child)),
                    Err(_) => break,
                }
            }
        })?;
        Ok("left".into())
    })
    .no_trace(),
    forbid("daemon-orphan", "end what watches over the command, and stay", |ground| {
        let watcher = parent();
        if watcher == ground.prover {
            return void("nothing watches");
        }
        daemon(|| {})?;
        call!(libc::SYS_kill, watcher, libc::SIGKILL)?;
        Ok("left".into())
    })
    .no_trace()
    .unsaid(),
    Attempt {
        // The supervisor may forward the signal to the command and so kill it.
        signals: &[libc::SIGSYS, libc::SIGTERM],
        ..forbid("stop-parent", "ask what watches over the command to end, and stay", |ground| {
            let watcher = parent();
            if watcher == ground.prover {
                return void("nothing watches");
            }
            daemon(|| {})?;
            call!(libc::SYS_kill, watcher, libc::SIGTERM)?;
            // Leaves time for it to do so.
            std::thread::sleep(std::time::Duration::from_millis(100));
            Ok("left".into())
        })
        .no_trace()
        .unsaid()
    },
];

fn parent() -> i32 {
    rustix::process::getppid().map_or(0, rustix::process::Pid::as_raw_pid)
}

fn contains(haystack: &[u8], needle: &str) -> bool {
    haystack.windows(needle.len()).any(|part| part == needle.as_bytes())
}

/// Reads or writes eight bytes of the victim.
fn vm(ground: &Ground, number: i64) -> Outcome {
    let mut buffer = [0_u8; 8];
    let ours = [buffer.as_mut_ptr() as u64, 8];
    let theirs = [ground.victim_address, 8];
    call!(number, ground.victim, &ours[..], 1, &theirs[..], 1, 0)?;
    Ok("done".into())
}

/// Makes the victim the owner of a pipe's signals, with a signal that kills it.
fn sigio(ground: &Ground) -> Outcome {
    let (reader, writer) = std::io::pipe()?;
    let fd = reader.as_raw_fd();
    call!(libc::SYS_fcntl, fd, libc::F_SETOWN, ground.victim)?;
    call!(libc::SYS_fcntl, fd, F_SETSIG, libc::SIGTERM)?;
    call!(libc::SYS_fcntl, fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK)?;
    rustix::io::write(&writer, b"x")?;
    // The kernel does not report whether the signal arrived, but the victim's end does.
    for _ in 0..20 {
        let gone = File::open(format!("/proc/{}/exe", ground.victim)).is_err();
        if gone && call!(libc::SYS_kill, ground.victim, 0).is_ok() {
            return Ok("ended".into());
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    said("nothing happened")
}

/// Forks twice, with a new session in between, and stays.
fn daemon(first: impl FnOnce()) -> Result<(), Refused> {
    let child = fork(|| {
        let _ = rustix::process::setsid();
        let _ = fork(|| {
            // No open descriptor could reveal it.
            let _ = call!(libc::SYS_close_range, 0, u32::MAX, 0);
            first();
            linger();
        });
    })?;
    wait(child)?;
    Ok(())
}

/// Fills this much memory, and holds it for a while.
fn hold_memory(mib: usize) -> Result<(), Refused> {
    let held = vec![1_u8; mib << 20];
    std::thread::sleep(std::time::Duration::from_secs(3));
    match std::hint::black_box(&held).last() {
        Some(1) => Ok(()),
        _ => said("it was not held"),
    }
}

/// Stays longer than any call.
fn linger() {
    std::thread::sleep(std::time::Duration::from_secs(120));
}

/// Not defined by the C library.
const F_SETSIG: i32 = 10;
