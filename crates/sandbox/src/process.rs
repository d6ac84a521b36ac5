//! Starts a process in a sandbox; reads its output, writes its input, and waits for its end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use policy::{Permit, SandboxMode};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::termios::{LocalModes, SpecialCodeIndex, tcgetattr, tcsetwinsize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};

use crate::limits::{Limits, Overrun};
use crate::os;
use crate::pty;
use crate::sandbox::Sandbox;

#[derive(Clone, Debug)]
pub struct SpawnRequest {
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    /// The complete environment.
    pub env: Vec<(String, String)>,
    pub io: Io,
    /// The permit to run it, which also contains the profile.
    pub permit: Permit,
}

/// What a process's standard streams are connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// One pipe for both output streams, which keeps their order; no input.
    Pipe,
    /// A pipe for each output stream; no input.
    Pipes,
    Terminal,
    /// Our own standard streams.
    Inherit,
}

/// What else a process is given.
#[derive(Debug, Default)]
pub struct Given {
    /// The standard input of a process on pipes.
    pub input: Option<OwnedFd>,
    /// The size of its terminal, if not the usual one.
    pub size: Option<TerminalSize>,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    #[error("there is no command to run")]
    Empty,
    /// The system refused a pipe or a terminal.
    #[error("no {what} could be opened: {reason}")]
    Connect { what: &'static str, reason: io::Error },
    #[error("the working directory {} cannot be used: {reason}", cwd.display())]
    Directory { cwd: PathBuf, reason: io::Error },
    /// No sandbox can enforce the profile.
    #[error("the sandbox could not be built: {reason}")]
    Sandbox {
        /// What failed, and the system's reason.
        reason: String,
    },
    /// The program does not exist, or may not be executed.
    #[error("{program} could not be started: {reason}")]
    Start { program: String, reason: io::Error },
}

/// A running process. Dropping it kills the process and everything it started.
#[derive(Debug)]
pub struct Process {
    child: Child,
    limits: Limits,
    overrun: Option<Overrun>,
    group: Group,
    connection: Arc<Connection>,
    /// Its standard error, if that has a pipe of its own.
    errors: Option<Arc<Connection>>,
}

/// Our end of a process's output and input. It can be read while the process is waited for.
#[derive(Debug)]
pub struct Connection {
    /// `None` if the process uses our own streams.
    fd: Option<AsyncFd<OwnedFd>>,
    kind: Io,
}

impl Process {
    /// Starts a process; returns once it runs under its profile.
    ///
    /// The process is killed when the thread that started it ends, so that must be a long-lived one.
    pub async fn spawn(sandbox: &Sandbox, request: &SpawnRequest) -> Result<Self, SpawnError> {
        Self::spawn_given(sandbox, request, Given::default()).await
    }

    /// Like [`Self::spawn`], for a process that is given more.
    pub async fn spawn_given(
        sandbox: &Sandbox,
        request: &SpawnRequest,
        given: Given,
    ) -> Result<Self, SpawnError> {
        let program = request.argv.first().ok_or(SpawnError::Empty)?;
        let connect = |what| move |reason: io::Error| SpawnError::Connect { what, reason };
        if let Err(reason) = std::fs::metadata(&request.cwd).and_then(|found| {
            if found.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
        }) {
            return Err(SpawnError::Directory { cwd: request.cwd.clone(), reason });
        }
        let (mut command, report) = match request.permit.profile().mode {
            SandboxMode::DangerFullAccess => (plain(request), None),
            SandboxMode::ReadOnly | SandboxMode::WorkspaceWrite => {
                let (command, report) = os::command(sandbox, request)?;
                (command, Some(report))
            }
        };
        let mut errors = None;
        let ours = match request.io {
            Io::Pipe | Io::Pipes => {
                let (ours, theirs) = io::pipe().map_err(connect("pipe"))?;
                command.stdin(given.input.map_or_else(Stdio::null, Stdio::from));
                if request.io == Io::Pipe {
                    command.stderr(theirs.try_clone().map_err(connect("pipe"))?);
                } else {
                    let (ours, theirs) = io::pipe().map_err(connect("pipe"))?;
                    command.stderr(theirs);
                    errors = Some(nonblocking(ours.into()).map_err(connect("pipe"))?);
                }
                command.stdout(theirs);
                Some(OwnedFd::from(ours))
            }
            Io::Inherit => None,
            Io::Terminal => {
                let (ours, theirs) = pty::open_pair(given.size)
                    .map_err(|errno| connect("terminal")(io::Error::from(errno)))?;
                let copy = || theirs.try_clone().map_err(connect("terminal"));
                command.stdin(copy()?).stdout(copy()?).stderr(copy()?);
                Some(ours)
            }
        };
        let fd = ours.map(nonblocking).transpose().map_err(connect("pipe or terminal"))?;
        let start = |reason| SpawnError::Start { program: program.clone(), reason };
        let child = Command::from(command).spawn().map_err(start)?;
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.ok_or_else(|| start(io::ErrorKind::NotFound.into()))?;
        let group = Group { leader, kind: request.io, supervised: report.is_some() };
        let kind = request.io;
        let connection = Arc::new(Connection { fd, kind });
        let errors = errors.map(|fd| Arc::new(Connection { fd: Some(fd), kind }));
        let limits = sandbox.limits;
        let process = Self { child, limits, overrun: None, group, connection, errors };
        if let Some(report) = report {
            os::wait_started(report, request).await?;
        }
        Ok(process)
    }

    /// Returns the process's output and input.
    pub fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    /// Returns its standard error, if that has a pipe of its own.
    pub fn errors(&self) -> Option<Arc<Connection>> {
        self.errors.clone()
    }

    /// Waits for the process to end, kills what it left behind, and returns its exit code.
    ///
    /// A process killed by a signal has 128 plus the signal number, as in shells; on a terminal it has 1, as
    /// clients of terminal sessions expect.
    pub async fn wait(&mut self) -> io::Result<i32> {
        let status = self.child.wait().await?;
        if !self.group.supervised {
            self.group.kill();
        }
        let resource = status.signal().filter(|_| self.group.supervised).and_then(os::resource_of);
        self.overrun = resource.map(|resource| Overrun::new(resource, self.limits));
        Ok(match (status.code(), self.connection.kind) {
            (Some(code), _) => code,
            (None, Io::Terminal) => 1,
            // This signal killed everything in the sandbox.
            _ if self.overrun.is_some() => 128 + Signal::KILL.as_raw(),
            (None, Io::Pipe | Io::Pipes | Io::Inherit) => 128 + status.signal().unwrap_or_default(),
        })
    }

    /// Returns which limit the process was killed for, once it has been waited for.
    pub fn overrun(&self) -> Option<Overrun> {
        self.overrun
    }

    /// Returns a handle to everything the process starts.
    pub fn group(&self) -> Group {
        self.group
    }

    /// Kills the process and everything in its group immediately.
    pub fn kill(&mut self) {
        self.group.kill();
        if !self.group.supervised {
            // The group may already be empty; then this reaps the process itself.
            let _ = self.child.start_kill();
        }
    }
}

/// A process and its descendants: in a sandbox all of them, otherwise those that have not started their own
/// session.
///
/// Valid until the process has been waited for: after that its id may be reused.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    leader: Pid,
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux finds sessions in /proc")
    )]
    kind: Io,
    /// Whether the leader is a supervisor, which forwards signals and kills what it supervises.
    supervised: bool,
}

impl Group {
    /// Interrupts it, as Ctrl-C does.
    pub fn interrupt(self) {
        // It does not matter if no process is left.
        let _ = if self.supervised {
            kill_process(self.leader, Signal::INT)
        } else {
            kill_process_group(self.leader, Signal::INT)
        };
    }

    /// Kills it immediately.
    pub fn kill(self) {
        if self.supervised {
            // The supervisor kills everything first, and then exits: its end is the end of all.
            let _ = kill_process(self.leader, Signal::TERM);
            return;
        }
        // Usually no process is left. The id cannot have been reused yet: ids are assigned cyclically, and
        // this runs right after the end.
        let _ = kill_process_group(self.leader, Signal::KILL);
        // An interactive shell puts each job into its own group, all in the session of its terminal.
        #[cfg(target_os = "linux")]
        if self.kind == Io::Terminal {
            kill_session(self.leader);
        }
    }
}

/// Kills every process in the session of `leader`.
#[cfg(target_os = "linux")]
fn kill_session(leader: Pid) {
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if session_of(&stat) == Some(leader.as_raw_pid())
            && let Some(pid) = Pid::from_raw(pid)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Returns the session in a line of `/proc/PID/stat`: the fourth word after the program name, which may
/// itself contain blanks and parentheses.
#[cfg(target_os = "linux")]
fn session_of(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(3)?.parse().ok()
}

impl Connection {
    /// Returns what the process is connected to.
    pub fn kind(&self) -> Io {
        self.kind
    }

    /// Tells whether Ctrl-C discards the current line: the terminal turns it into a signal and drops the
    /// line.
    pub fn drops_line_on_interrupt(&self) -> bool {
        let Some(fd) = self.fd.as_ref().filter(|_| self.kind == Io::Terminal) else { return false };
        tcgetattr(fd).is_ok_and(|settings| {
            let modes = settings.local_modes;
            modes.contains(LocalModes::ISIG)
                && !modes.contains(LocalModes::NOFLSH)
                && settings.special_codes[SpecialCodeIndex::VINTR] == 3
        })
    }

    /// Gives the terminal another size, and tells the process; without a terminal it is an error.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let Some(fd) = self.fd.as_ref().filter(|_| self.kind == Io::Terminal) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        Ok(tcsetwinsize(fd, pty::winsize(size))?)
    }

    /// Waits for output and appends it to `buffer`; returns false at the end.
    ///
    /// Cancel-safe.
    pub async fn read(&self, buffer: &mut Vec<u8>) -> io::Result<bool> {
        let Some(fd) = &self.fd else { return Ok(false) };
        let mut chunk = [0; 16 * 1024];
        let read =
            fd.async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut chunk)?)).await;
        match read {
            Ok(0) => Ok(false),
            Ok(count) => {
                buffer.extend_from_slice(&chunk[..count]);
                Ok(true)
            }
            // Linux returns this when the last process has closed the terminal.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Types `bytes` into the terminal; a process on a pipe has no input.
    pub async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(fd) = self.fd.as_ref().filter(|_| self.kind == Io::Terminal) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        while !bytes.is_empty() {
            let written =
                fd.async_io(Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, bytes)?)).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // After `wait` the id may belong to another process; before it, it is ours.
        if self.child.id().is_some() {
            self.kill();
        }
    }
}

/// Builds the command without a sandbox.
fn plain(request: &SpawnRequest) -> std::process::Command {
    let (program, arguments) = request.argv.split_first().expect("there is a program");
    let mut command = std::process::Command::new(program);
    command.args(arguments).current_dir(&request.cwd).env_clear();
    command.envs(request.env.iter().map(|(name, value)| (name, value)));
    new_session(&mut command, request.io);
    command
}

/// Gives the process default signal actions, its own session, and a controlling terminal if it has one.
#[expect(unsafe_code, reason = "a new session can only be created between fork and exec")]
fn new_session(command: &mut std::process::Command, io: Io) {
    #[cfg(target_os = "linux")]
    let agent = rustix::process::getpid();
    // SAFETY: the hook makes system calls only: it allocates nothing and takes no lock, which is
    // what the time between fork and exec demands.
    unsafe {
        command.pre_exec(move || {
            usual_signals();
            rustix::process::setsid()?;
            if io == Io::Terminal {
                // SAFETY: the child has just been given its standard input.
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            }
            #[cfg(target_os = "linux")]
            {
                // Descriptors that our own parent left open are not for commands.
                crate::linux::close_on_exec_from_3()?;
                // Killing the agent kills the command itself; killing its children as well needs a
                // namespace.
                end_with(agent, Signal::KILL)?;
            }
            Ok(())
        });
    }
}

/// Has the kernel signal this process when its parent ends; fails if that has happened already.
#[cfg(target_os = "linux")]
pub(crate) fn end_with(parent: rustix::process::Pid, signal: Signal) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    // A parent that was killed between fork and the call above is one whose end nobody reports any more.
    match rustix::process::getppid() {
        Some(now) if now == parent => Ok(()),
        _ => Err(rustix::io::Errno::SRCH.into()),
    }
}

/// Restores the default action of the signals that end a program.
///
/// An agent that was started in the background may itself ignore some; its commands must not inherit that, or
/// nothing could interrupt them.
#[expect(unsafe_code, reason = "no safe library resets signal actions")]
pub(crate) fn usual_signals() {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the default action is not code of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

#[expect(unsafe_code, reason = "the safe constructor of `AsyncFd` is deprecated as unsound")]
pub(crate) fn nonblocking(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
    // SAFETY: an `OwnedFd` names one open descriptor for as long as it lives, and the `AsyncFd`
    // owns it until it is dropped.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

    use super::{end_with, session_of};

    /// A command that was being started when the agent was killed must not outlive it.
    #[test]
    fn a_process_whose_parent_is_gone_does_not_go_on() {
        for (parent, want) in [(getppid().unwrap(), true), (getpid(), false)] {
            assert_eq!(end_with(parent, Signal::TERM).is_ok(), want);
            set_parent_process_death_signal(None).unwrap();
        }
    }

    #[test]
    fn sessions() {
        for (stat, want) in [
            ("12 (bash) S 1 12 12 34816 12 4194560", Some(12)),
            ("13 (a) b (c)) R 12 13 -1 0", Some(-1)),
            ("2 (kthreadd) S 0 0 0 0 -1", Some(0)),
            ("", None),
            ("12 (cut", None),
        ] {
            assert_eq!(session_of(stat), want, "{stat}");
        }
    }
}
