//! The agent's side of starting a sandboxed command.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::linux::probe::{hand_over, to_memory};
use crate::linux::{HELPER_NAME, Trouble, TroubleKind};
use crate::process::{Io, SpawnError, SpawnRequest, nonblocking, usual_signals};
use crate::sandbox::{Level, Sandbox};
use crate::spec::Spec;

/// Set for commands that have no network, so that tests can tell why theirs fail.
const NO_NETWORK: &str = "CODEX_SANDBOX_NETWORK_DISABLED";

/// What a supervisor will say of the command's beginning.
pub(crate) struct Word(AsyncFd<OwnedFd>);

/// Makes the command that builds the sandbox and runs the requested one in it.
pub(crate) fn command(
    sandbox: &Sandbox,
    request: &SpawnRequest,
) -> Result<(Command, Word), SpawnError> {
    let failed = |reason: String| SpawnError::Sandbox { reason };
    let level = sandbox.level.ok_or_else(|| {
        failed("this thread was started without one; only full access can be used".to_owned())
    })?;
    let profile = request.permit.profile();
    let mut env: Vec<_> =
        request.env.iter().map(|(name, value)| (name.into(), value.into())).collect();
    if !profile.network {
        env.push((NO_NETWORK.into(), "1".into()));
    }
    let spec = Spec {
        level,
        network: profile.network,
        terminal: request.io == Io::Terminal,
        writable: profile.writable().into_iter().map(Into::into).collect(),
        protected: match level {
            Level::Namespaces => profile.protected_paths(),
            // There, nothing new can be made beside something protected; and temporary directories are
            // there to make things in.
            Level::Landlock => profile.protected_around_roots(),
        },
        hidden: sandbox.hidden.clone(),
        locks: sandbox.locks.clone(),
        limits: sandbox.limits,
        cwd: request.cwd.clone(),
        env,
        argv: request.argv.iter().map(Into::into).collect(),
    };
    let spec = spec.encode().map_err(|error| SpawnError::Start {
        program: request.argv.first().cloned().unwrap_or_default(),
        reason: io::Error::new(io::ErrorKind::InvalidInput, error),
    })?;
    let connect = |reason| SpawnError::Connect { what: "pipe", reason };
    let spec = to_memory(&spec).map_err(connect)?;
    let (word, told) = io::pipe().map_err(connect)?;
    let mut command = Command::new(&sandbox.helper);
    // Nothing of the command's environment is for the helper, least of all what a loader reads.
    command.arg0(HELPER_NAME).env_clear();
    hand_over(&mut command, [spec, told.into()]);
    supervisor_session(&mut command);
    Ok((command, Word(nonblocking(word.into()).map_err(connect)?)))
}

/// Gives the supervisor a session of its own, and the news of our end.
#[expect(unsafe_code, reason = "only between fork and exec can a process get a new session")]
fn supervisor_session(command: &mut Command) {
    // SAFETY: the hook makes system calls only.
    unsafe {
        command.pre_exec(|| {
            usual_signals();
            rustix::process::setsid()?;
            // It ends its commands then, and itself.
            Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?)
        });
    }
}

/// Waits until the command runs, or for what kept it from running.
pub(crate) async fn begun(word: Word, request: &SpawnRequest) -> Result<(), SpawnError> {
    let mut line = Vec::new();
    let mut chunk = [0; 512];
    loop {
        let read = word.0.async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut chunk)?));
        match read.await {
            Ok(0) => break,
            Ok(count) => line.extend_from_slice(&chunk[..count]),
            Err(error) => return Err(SpawnError::Sandbox { reason: error.to_string() }),
        }
    }
    if line.is_empty() {
        return Ok(());
    }
    let trouble = Trouble::from_line(&String::from_utf8_lossy(&line));
    Err(match trouble.kind {
        TroubleKind::Setup => SpawnError::Sandbox { reason: trouble.to_string() },
        TroubleKind::Directory => {
            SpawnError::Directory { cwd: request.cwd.clone(), reason: trouble.error }
        }
        TroubleKind::Program => SpawnError::Start { program: trouble.what, reason: trouble.error },
    })
}
