//! The helper process: builds a sandbox, runs the command in it, and leaves nothing behind.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use libc::{c_int, pid_t};
use rustix::fs::Mode;

use crate::limits::Resource;
use crate::linux::guards::Guards;
use crate::linux::landlock::Rules;
use crate::linux::meter::{Lookout, Meter, resource_of, signal_of};
use crate::linux::plan::steps;
use crate::linux::sys::{self, Fork, Signals};
use crate::linux::{HELPER_NAME, Trouble, TroubleKind, filter, mounts, probe};
use crate::sandbox::Level;
use crate::spec::Spec;

/// Exit code of a supervisor that failed; the agent has been told why.
const FAILED: u8 = 125;

/// Runs the helper if this process was started for it; must come first in `main`.
///
/// Programs that embed the agent call this too, and are their own helper.
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

/// The channel that tells the agent why the command could not be started; closing it without a message means
/// that it has started.
struct Status(OwnedFd);

impl Status {
    /// Sends the error and exits.
    fn fail(self, trouble: &Trouble) -> ! {
        // The agent waits for this line. If the agent is gone, there is no one to tell.
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
    // The agent died before we could tie our lifetime to it.
    if sys::hung_up(&status.0) {
        std::process::exit(FAILED.into());
    }
    supervise_command(&spec, &signals, status)
}

fn read(from: OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::from(from).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Continues as the supervisor, which stays outside the sandbox.
fn supervise_command(spec: &Spec, signals: &Signals, status: Status) -> ! {
    // Guards are recognized by their mode, so the umask must not change it.
    let mask = rustix::process::umask(Mode::empty());
    let guards = match spec.level {
        Level::Namespaces => Guards::place(&spec.writable, &spec.protected, spec.locks.as_deref()),
        // There is nothing to mount; what is not granted cannot be created.
        Level::Landlock => Ok(Guards::default()),
    };
    let guards = match guards {
        Ok(guards) => guards,
        Err(trouble) => status.fail(&trouble),
    };
    let (how, ended, parent, alive) = match (io::pipe(), io::pipe()) {
        (Ok((how, ended)), Ok((parent, alive))) => (how, ended, parent, alive),
        (Err(error), _) | (_, Err(error)) => {
            guards.remove();
            status.fail(&Trouble::setup("opening a pipe", error));
        }
    };
    let ids = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let first = match sys::fork(namespaces(spec)) {
        Ok(Fork::Parent(first)) => first,
        Ok(Fork::Child) => {
            drop((how, alive));
            rustix::process::umask(mask);
            match enter(spec, &guards, ids, &parent.into()) {
                Ok(()) => first_process(spec, signals, status, ended.into()),
                Err(trouble) => status.fail(&trouble),
            }
        }
        Err(error) => {
            guards.remove();
            status.fail(&Trouble::setup("making namespaces", error));
        }
    };
    drop((status, ended, parent));
    sys::let_go_of_standard_streams();
    let mut round = guards.rounds();
    let lookout = round.as_mut().map(|round| round as &mut dyn Lookout);
    let watched = watch(first, signals, lookout, |signal| match (signal, spec.level) {
        // The kernel kills all other processes of the namespace with it.
        (libc::SIGTERM, Level::Namespaces) => sys::kill(first, libc::SIGKILL),
        (signal, _) => sys::kill(first, signal),
    });
    drop(alive);
    if resource_of(watched) == Some(Resource::Guards) {
        sys::kill(first, libc::SIGKILL);
        sys::reap_all();
        guards.remove();
        sys::end_like(watched, signals);
    }
    guards.remove();
    // The first process does not die of the command's signal, so it reports it.
    let mut number = [0; size_of::<c_int>()];
    let told = File::from(OwnedFd::from(how)).read_exact(&mut number);
    let status = if told.is_ok() { c_int::from_ne_bytes(number) } else { libc::SIGKILL };
    sys::end_like(status, signals)
}

/// Returns the namespaces to create.
fn namespaces(spec: &Spec) -> c_int {
    if spec.level == Level::Landlock {
        return 0;
    }
    let network = if spec.network { 0 } else { libc::CLONE_NEWNET };
    network
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP
}

/// Waits for `child` to end while forwarding signals; returns its status. If `lookout` finds a reason to kill
/// it, the wait ends and the status says so.
fn watch(
    child: pid_t,
    signals: &Signals,
    mut lookout: Option<&mut dyn Lookout>,
    pass_on: impl Fn(c_int),
) -> c_int {
    loop {
        let signal = signals.wait(lookout.as_ref().map(|lookout| lookout.due_in()));
        // Whatever woke us: a stream of ending children must not keep us from checking.
        if let Some(resource) = lookout.as_mut().and_then(|lookout| lookout.look()) {
            return signal_of(resource);
        }
        match signal.unwrap_or_default() {
            libc::SIGCHLD => {
                while let Some((ended, status)) = sys::reap() {
                    if ended == child {
                        return shell_status(status);
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

/// Keeps the signals that encode why a command was killed apart from those it dies of by itself, which are
/// reported as shells do.
fn shell_status(status: c_int) -> c_int {
    let signal = libc::WTERMSIG(status);
    let ours = libc::WIFSIGNALED(status) && resource_of(signal).is_some();
    if ours { (128 + signal) << 8 } else { status }
}

/// Makes the new process the first one of a sandbox.
fn enter(spec: &Spec, guards: &Guards, ids: (u32, u32), parent: &OwnedFd) -> Result<(), Trouble> {
    let setup = |what: &'static str| move |error| Trouble::setup(what, error);
    // Killing the supervisor must end the sandbox: with a PID namespace the kernel does it, without one this
    // process does.
    let (signal, rules) = match spec.level {
        Level::Namespaces => (libc::SIGKILL, None),
        Level::Landlock => {
            let rules = Rules::new(&spec.writable, &spec.protected, &spec.hidden)?;
            (libc::SIGTERM, Some(rules))
        }
    };
    sys::prctl(libc::PR_SET_PDEATHSIG, signal.unsigned_abs().into(), 0)
        .map_err(setup("asking for the end of the supervisor"))?;
    if sys::hung_up(parent) {
        std::process::exit(FAILED.into());
    }
    match rules {
        None => {
            map_ids(ids).map_err(setup("naming the user of the namespace"))?;
            let steps = steps(&spec.writable, &guards.protected);
            mounts::arrange(&steps, &spec.hidden, spec.terminal)?;
            sys::drop_capabilities().map_err(setup("giving up capabilities"))?;
        }
        Some(rules) => {
            sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0).map_err(setup("adopting orphans"))?;
            sys::drop_capabilities().map_err(setup("giving up capabilities"))?;
            rules.enforce()?;
        }
    }
    // The command must not read our memory.
    sys::prctl(libc::PR_SET_DUMPABLE, 0, 0).map_err(setup("closing our memory"))
}

/// Continues as the first process of the sandbox: everything in it ends with it.
fn first_process(spec: &Spec, signals: &Signals, status: Status, ended: OwnedFd) -> ! {
    let command = match sys::fork(0) {
        Ok(Fork::Parent(command)) => command,
        Ok(Fork::Child) => {
            drop(ended);
            status.fail(&become_command(spec, signals));
        }
        Err(error) => status.fail(&Trouble::setup("starting the command", error)),
    };
    // From here on only the command keeps the status channel and its streams open.
    drop(status);
    sys::let_go_of_standard_streams();
    let mut meter = Meter::new(spec.limits, spec.level);
    let lookout = meter.as_mut().map(|meter| meter as &mut dyn Lookout);
    let how = watch(command, signals, lookout, |signal| match (signal, spec.level) {
        (libc::SIGTERM, Level::Landlock) => sys::kill(EVERYTHING, libc::SIGKILL),
        (signal, _) => sys::kill(-command, signal),
    });
    if spec.level == Level::Landlock {
        sys::kill(EVERYTHING, libc::SIGKILL);
        sys::reap_all();
    }
    // The supervisor waits for this; if it is gone, no one does.
    let _ = rustix::io::write(&ended, &how.to_ne_bytes());
    std::process::exit(0);
}

/// Every process that we may signal, except ourselves. Under Landlock these are our descendants, and the
/// kernel signals all of them in one pass, so nothing can escape by forking.
const EVERYTHING: pid_t = -1;

fn map_ids((user, group): (u32, u32)) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Turns this process into the command; returns only if that fails.
fn become_command(spec: &Spec, signals: &Signals) -> Trouble {
    let Err(trouble) = try_to_become(spec, signals);
    trouble
}

fn try_to_become(spec: &Spec, signals: &Signals) -> Result<Infallible, Trouble> {
    let setup = |what: &'static str| move |error| Trouble::setup(what, error);
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.unsigned_abs().into(), 0)
        .map_err(setup("asking for the end of the first process"))?;
    sys::new_session(spec.terminal).map_err(setup("beginning a session"))?;
    std::env::set_current_dir(&spec.cwd).map_err(|error| Trouble {
        kind: TroubleKind::Directory,
        what: spec.cwd.display().to_string(),
        error,
    })?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).map_err(setup("refusing new privileges"))?;
    let rules = match spec.level {
        Level::Namespaces => Rules::beside_mounts(&spec.writable)?,
        // In its own domain it cannot signal the first process.
        Level::Landlock => Some(Rules::scopes()?),
    };
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
