//! The process that builds a sandbox, runs the command in it, and sees to it that nothing is left.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use libc::{c_int, pid_t};

use crate::linux::guards::Guards;
use crate::linux::landlock::Rules;
use crate::linux::plan::steps;
use crate::linux::sys::{self, Fork, Signals};
use crate::linux::{HELPER_NAME, Trouble, TroubleKind, filter, mounts, probe};
use crate::sandbox::Level;
use crate::spec::Spec;

/// Exit code of a supervisor that could not do its work; the agent has been told why.
const FAILED: u8 = 125;

/// Does the work of the helper if this process was started for it; must come first in `main`.
///
/// Other programs that embed the agent call this too, and are their own helper then.
pub(crate) fn helper_main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let helper = arguments.next()? == OsStr::new(HELPER_NAME);
    let first = arguments.next()?;
    if !helper {
        return (first == OsStr::new(probe::INSIDE)).then(probe::inside);
    }
    let number = |text: OsString| text.to_str()?.parse().ok();
    let (spec, status) = (number(first)?, arguments.next().and_then(number)?);
    supervise(spec, status)
}

/// Tells the agent what kept the command from beginning; closed without a word, that it has begun.
struct Status(OwnedFd);

impl Status {
    /// Tells it, and ends this process.
    fn fail(self, trouble: &Trouble) -> ! {
        // The agent waits for this line. When it is gone, there is nobody to tell.
        let _ = File::from(self.0).write_all(trouble.to_line().as_bytes());
        std::process::exit(FAILED.into());
    }
}

fn supervise(spec: RawFd, status: RawFd) -> ! {
    let Ok(status) = sys::take(status) else { std::process::exit(FAILED.into()) };
    let status = Status(status);
    let begun = sys::take(spec).and_then(read).and_then(|text| {
        let spec = Spec::decode(&text).map_err(io::Error::other)?;
        sys::close_all_but(&status.0)?;
        Ok((spec, Signals::hold()?))
    });
    let (spec, signals) = match begun {
        Ok(begun) => begun,
        Err(error) => status.fail(&Trouble::setup("reading what to build", error)),
    };
    // An agent that went away before it could take us along.
    if sys::hung_up(&status.0) {
        std::process::exit(FAILED.into());
    }
    match spec.level {
        Level::Namespaces => in_namespaces(&spec, &signals, status),
        Level::Landlock => under_landlock(&spec, &signals, status),
    }
}

fn read(from: OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::from(from).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn in_namespaces(spec: &Spec, signals: &Signals, status: Status) -> ! {
    let guards = match Guards::place(&spec.writable, &spec.protected) {
        Ok(guards) => guards,
        Err(trouble) => status.fail(&trouble),
    };
    let (how, ended, parent, alive) = match (io::pipe(), io::pipe()) {
        (Ok((how, ended)), Ok((parent, alive))) => (how, ended, parent, alive),
        (Err(error), _) | (_, Err(error)) => status.fail(&Trouble::setup("opening a pipe", error)),
    };
    let mut flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    if !spec.network {
        flags |= libc::CLONE_NEWNET;
    }
    let ids = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let first = match sys::fork(flags) {
        Ok(Fork::Parent(first)) => first,
        Ok(Fork::Child) => {
            drop((how, alive));
            match enter(spec, &guards, ids, &parent.into()) {
                Ok(()) => first_process(spec, signals, status, ended),
                Err(trouble) => status.fail(&trouble),
            }
        }
        Err(error) => {
            guards.remove();
            status.fail(&Trouble::setup("making namespaces", error));
        }
    };
    drop((status, ended, parent));
    watch(first, signals, |signal| match signal {
        libc::SIGTERM => sys::kill(first, libc::SIGKILL),
        signal => sys::kill(first, signal),
    });
    drop(alive);
    guards.remove();
    // The first process cannot die of a signal as the command did; so it tells.
    let mut number = [0; size_of::<c_int>()];
    let told = File::from(OwnedFd::from(how)).read_exact(&mut number);
    let status = if told.is_ok() { c_int::from_ne_bytes(number) } else { libc::SIGKILL };
    sys::end_like(status, signals)
}

/// Waits for `child` to end and passes on signals meanwhile; returns its status.
fn watch(child: pid_t, signals: &Signals, pass_on: impl Fn(c_int)) -> c_int {
    loop {
        match signals.wait() {
            libc::SIGCHLD => {
                while let Some((ended, status)) = sys::reap() {
                    if ended == child {
                        return status;
                    }
                }
            }
            signal @ (libc::SIGINT | libc::SIGQUIT | libc::SIGHUP | libc::SIGTERM) => {
                pass_on(signal);
            }
            _ => {}
        }
    }
}

/// Makes a new namespace what the command will see.
fn enter(spec: &Spec, guards: &Guards, ids: (u32, u32), parent: &OwnedFd) -> Result<(), Trouble> {
    let setup = |what: &'static str| move |error| Trouble::setup(what, error);
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0)
        .map_err(setup("asking for the end of the supervisor"))?;
    if sys::hung_up(parent) {
        std::process::exit(FAILED.into());
    }
    map_ids(ids).map_err(setup("naming the user of the namespace"))?;
    mounts::arrange(&steps(&spec.writable, &guards.protected), spec.terminal)?;
    // Our memory is not for the command to look at.
    sys::prctl(libc::PR_SET_DUMPABLE, 0, 0).map_err(setup("closing our memory"))?;
    sys::drop_capabilities().map_err(setup("giving up capabilities"))
}

/// Goes on as the first process of the namespaces: when it ends, the kernel ends all others in them.
fn first_process(spec: &Spec, signals: &Signals, status: Status, ended: io::PipeWriter) -> ! {
    let command = match sys::fork(0) {
        Ok(Fork::Parent(command)) => command,
        Ok(Fork::Child) => {
            drop(ended);
            status.fail(&become_command(spec, signals, None));
        }
        Err(error) => status.fail(&Trouble::setup("starting the command", error)),
    };
    // From here on only the command holds the status open, and its end the output.
    drop(status);
    let mut ended = OwnedFd::from(ended);
    sys::let_go_of_standard_streams();
    if let Err(error) = sys::close_all_but(&ended) {
        // Nothing depends on it but the end of a pipe.
        let _ = error;
    }
    let how = watch(command, signals, |signal| sys::kill(-command, signal));
    let _ = rustix::io::write(&mut ended, &how.to_ne_bytes());
    std::process::exit(0);
}

fn map_ids((user, group): (u32, u32)) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

fn under_landlock(spec: &Spec, signals: &Signals, status: Status) -> ! {
    let rules = Rules::new(&spec.writable, &spec.protected).and_then(|rules| {
        // Without this list nobody could find what a command leaves behind.
        fs::read_to_string("/proc/thread-self/children")
            .and_then(|_| sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0))
            .map_err(|error| Trouble::setup("adopting orphans", error))?;
        Ok(rules)
    });
    let rules = match rules {
        Ok(rules) => rules,
        Err(trouble) => status.fail(&trouble),
    };
    let supervisor = rustix::process::getpid();
    let command = match sys::fork(0) {
        Ok(Fork::Parent(command)) => command,
        Ok(Fork::Child) => {
            let ready = sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0)
                .and_then(|()| sys::drop_capabilities());
            if rustix::process::getppid() != Some(supervisor) {
                std::process::exit(FAILED.into());
            }
            match ready {
                Ok(()) => status.fail(&become_command(spec, signals, Some(rules))),
                Err(error) => status.fail(&Trouble::setup("giving up capabilities", error)),
            }
        }
        Err(error) => status.fail(&Trouble::setup("starting the command", error)),
    };
    drop((rules, status));
    sys::let_go_of_standard_streams();
    let ended = watch(command, signals, |signal| match signal {
        libc::SIGTERM => end_all(Some(command)),
        signal => sys::kill(-command, signal),
    });
    end_all(None);
    sys::end_like(ended, signals)
}

/// Ends every process that descends from this one; the command is reaped by whoever watches it.
///
/// Orphans become ours, so the walk finds all of them. They are stopped before they are ended: one
/// that forks faster than we look would otherwise leave children behind at every step.
fn end_all(command: Option<pid_t>) {
    let own = std::process::id();
    loop {
        let mut found = descendants(own);
        found.iter().for_each(|pid| sys::kill(*pid, libc::SIGSTOP));
        found.iter().for_each(|pid| sys::kill(*pid, libc::SIGKILL));
        found.retain(|pid| Some(*pid) != command);
        if found.is_empty() {
            return;
        }
        // Those that are not ours yet are waited for in the next round.
        found.into_iter().for_each(sys::wait_for);
    }
}

/// Finds the children of a process, and theirs.
fn descendants(of: u32) -> Vec<pid_t> {
    let mut found: Vec<pid_t> = Vec::new();
    let mut open = vec![of];
    while let Some(pid) = open.pop() {
        let list = Path::new("/proc").join(pid.to_string()).join("task");
        for task in fs::read_dir(list).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|text| text.parse::<pid_t>().ok()) {
                found.push(child);
                open.push(child.unsigned_abs());
            }
        }
    }
    found
}

/// Turns this process into the command; comes back only if that fails.
fn become_command(spec: &Spec, signals: &Signals, rules: Option<Rules>) -> Trouble {
    let Err(trouble) = try_to_become(spec, signals, rules);
    trouble
}

fn try_to_become(
    spec: &Spec,
    signals: &Signals,
    rules: Option<Rules>,
) -> Result<Infallible, Trouble> {
    let setup = |what: &'static str| move |error| Trouble::setup(what, error);
    sys::new_session(spec.terminal).map_err(setup("beginning a session"))?;
    std::env::set_current_dir(&spec.cwd).map_err(|error| Trouble {
        kind: TroubleKind::Directory,
        what: spec.cwd.display().to_string(),
        error,
    })?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).map_err(setup("refusing new privileges"))?;
    if let Some(rules) = rules {
        rules.enforce()?;
    }
    filter::install(spec.level, spec.network).map_err(setup("filtering system calls"))?;
    signals.release();
    let (program, arguments) = spec
        .argv
        .split_first()
        .ok_or_else(|| Trouble::setup("finding the command", io::ErrorKind::InvalidInput.into()))?;
    let error = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .exec();
    let what = program.to_string_lossy().into_owned();
    Err(Trouble { kind: TroubleKind::Program, what, error })
}
