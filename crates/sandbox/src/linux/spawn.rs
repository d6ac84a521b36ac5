//! Starts a sandboxed command, on the agent's side.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::linux::probe::{hand_over, to_memory};
use crate::linux::{HELPER_NAME, Trouble, TroubleKind};
use crate::process::{Io, SpawnError, SpawnRequest, end_with, nonblocking, usual_signals};
use crate::sandbox::{Level, Sandbox};
use crate::spec::Spec;

/// Set for commands without network access, so that tests can tell why theirs fail.
pub(crate) const NO_NETWORK: &str = "CODEX_SANDBOX_NETWORK_DISABLED";

/// The supervisor's report on whether the command has started.
pub(crate) struct StartReport(AsyncFd<OwnedFd>);

/// Builds the command line that builds the sandbox and runs the requested command in it.
pub(crate) fn command(
    sandbox: &Sandbox,
    request: &SpawnRequest,
) -> Result<(Command, StartReport), SpawnError> {
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
            // With Landlock, nothing new can be created next to something protected, and creating files is
            // what temporary directories are for.
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
    let (report, told) = io::pipe().map_err(connect)?;
    let mut command = Command::new(&sandbox.helper);
    // The helper gets nothing of the command's environment, least of all what a dynamic loader reads.
    command.arg0(HELPER_NAME).env_clear();
    hand_over(&mut command, [spec, told.into()]);
    supervisor_session(&mut command);
    Ok((command, StartReport(nonblocking(report.into()).map_err(connect)?)))
}

/// Puts the supervisor into its own session, and notifies it of our death.
#[expect(unsafe_code, reason = "a new session can only be created between fork and exec")]
fn supervisor_session(command: &mut Command) {
    let agent = rustix::process::getpid();
    // SAFETY: the hook makes system calls only.
    unsafe {
        command.pre_exec(move || {
            usual_signals();
            rustix::process::setsid()?;
            // It then kills its commands and exits.
            end_with(agent, Signal::TERM)
        });
    }
}

/// Waits until the command runs, or returns why it could not be started.
pub(crate) async fn wait_started(
    report: StartReport,
    request: &SpawnRequest,
) -> Result<(), SpawnError> {
    let mut line = Vec::new();
    let mut chunk = [0; 512];
    loop {
        let read =
            report.0.async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut chunk)?));
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
