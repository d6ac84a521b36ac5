//! `heddle sandbox`: runs one command in the sandbox, as if the model had called it.

mod prove;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::anyhow;
use heddle::policy::{ApprovalPolicy, CommandRequest, Grants, Policy, SandboxMode, Scene, Verdict};
use heddle::sandbox::{Io, Process, SpawnError, SpawnRequest};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{SandboxArgs, SandboxCommand, SharedArgs};
use crate::failure::{Failure, code};
use crate::host;
use heddle::session::safety;
use heddle::session::settings::{self, Settings};

/// Exit code for a command that could not be started, the same as of `timeout` and `env`.
const NOT_STARTED: u8 = 125;

pub(crate) fn run(before: SharedArgs, args: SandboxArgs) -> Result<ExitCode, Failure> {
    match args.command {
        Some(SandboxCommand::Prove(args)) => return prove::run(&args),
        Some(SandboxCommand::Attempt { name, ground }) => return prove::attempt(&name, &ground),
        None => {}
    }
    let shared = args.shared.merge_over(before);
    let host = host::look(shared.directory.as_deref())?;
    let Settings { config, warnings, .. } = settings::load(&host, shared.preferences())?;
    for text in warnings {
        // Warnings are best effort.
        crate::terminal::note(&format!("warning: {text}"));
    }
    let profile = safety::profile(&host, &config, &shared.preferences())?;
    let sandbox = safety::find_sandbox(&host, &config, profile.mode, args.level.map(Into::into))?;
    let policy = Policy {
        profile,
        approval: ApprovalPolicy::Never,
        rules: safety::rules(&host, &config, false)?,
    };
    let mut request = CommandRequest {
        argv: args.argv,
        cwd: host.directory.clone(),
        escalation: None,
        scene: Scene::default(),
    };
    request.scene = safety::scene(&host, &config, &policy, &request);
    let verdict = policy.command(&request, &Grants::default()).verdict;
    let Some(permit) = verdict.permit(&policy.profile) else {
        let Verdict::Refuse(reason) = verdict else { unreachable!("nobody can be asked") };
        return Err(Failure { code: NOT_STARTED, error: anyhow!("{reason}") });
    };
    let full = SandboxMode::DangerFullAccess;
    let mut env = safety::command_env(&host, &config);
    if policy.profile.mode != full && permit.profile().mode == full {
        env = heddle::sandbox::outside_env(env, &safety::env_set(&config), &policy.profile);
    }
    let request =
        SpawnRequest { argv: request.argv, cwd: request.cwd, env, io: Io::Inherit, permit };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::failed)?.block_on(async {
        // Before the command starts, so that every signal is passed on.
        let signals = Signals::listen().map_err(Failure::failed)?;
        let mut process = match Process::spawn(&sandbox, &request).await {
            Ok(process) => process,
            Err(error) => {
                let sandbox = matches!(error, SpawnError::Sandbox { .. });
                let code = if sandbox { code::SANDBOX } else { NOT_STARTED };
                // The text already contains the reason.
                return Err(Failure { code, error: anyhow!("{error}") });
            }
        };
        let code = signals.attend(&mut process).await.map_err(Failure::failed)?;
        if let Some(overrun) = process.overrun() {
            // If stderr cannot be written, there is nowhere to report that.
            let advice = match overrun.is_limit() {
                true => "; see `command_limits` in config.toml",
                false => "",
            };
            let _ = writeln!(io::stderr(), "heddle: {overrun}{advice}");
        }
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(code::FAILED)))
    })
}

/// The termination signals, which are passed on to the command.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn attend(mut self, process: &mut Process) -> io::Result<i32> {
        let group = process.group();
        loop {
            tokio::select! {
                ended = process.wait() => return ended,
                _ = self.interrupt.recv() => group.interrupt(),
                _ = self.terminate.recv() => group.kill(),
                _ = self.hangup.recv() => group.kill(),
            }
        }
    }
}
