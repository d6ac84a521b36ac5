//! `heddle daemon run`: serves a model in this process until a signal or the idle timeout.

use std::collections::HashMap;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use heddle::local::client;
use heddle::local::daemon::ModelOptions;
use heddle::local::daemon::{Daemon, DaemonError, IDLE_DEFAULT, Load, NO_BACKTRACE, Options, SPIN};
use heddle::local::home::{Home, HomeError};
use heddle::local::serve::Limits;
use heddle::local::tools::{
    Declared, MEMORY_BYTES_DEFAULT, OUTPUT_BYTES_DEFAULT, Place, Settings, TIMEOUT_DEFAULT,
};
use heddle::policy::SandboxMode;
use heddle::session::settings::Config;
use stdx::Redacted;
use tokio::signal::unix::{SignalKind, signal};

use super::with_model;
use crate::args::SharedArgs;
use crate::args::daemon::{RunArgs, ServeArgs};
use crate::failure::{Failure, code};
use crate::terminal::note;
use heddle::session::host::HostEnv;
use heddle::session::local;
use heddle::session::safety;
use heddle::session::settings;

/// Controls the same as [`SPIN`]; if it is set, the user has chosen.
const WAIT_POLICY: &str = "OMP_WAIT_POLICY";

/// Longest idle time-out; a year is as good as never.
const IDLE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Longest time-out of a tool; larger values would overflow the clock.
const TOOL_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// The regular expressions of llama.cpp are recursive and need a large stack.
const STACK_BYTES: usize = 16 << 20;

/// Most requests that are parsed or composed at once; the rest wait.
const COMPOSING_MAX: usize = 4;

pub(super) fn run(
    host: &HostEnv,
    home: Home,
    shared: &SharedArgs,
    args: RunArgs,
) -> Result<ExitCode, Failure> {
    if args.detached {
        // This fails only for the leader of a process group, which we are not; nor would it matter much.
        let _ = rustix::process::setsid();
    }
    if cfg!(feature = "local") {
        with_own_environment(host);
    }
    let settings::Settings { config, warnings, .. } = settings::load(host, shared.preferences())?;
    // A rehearsal says only why it would fail.
    for text in warnings.into_iter().filter(|_| !args.rehearse) {
        note(&format!("warning: {text}"));
    }
    let serve = with_model(args.serve, shared).or(&config.daemon);
    let (model, file) = resolve(host, serve.model.as_deref(), args.rehearse)?;
    let purpose = match (args.rehearse, args.detached) {
        (true, _) => {
            Purpose::Rehearsal { replaces: client::health(&home).ok().map(|health| health.pid) }
        }
        (false, true) => Purpose::Background,
        (false, false) => Purpose::Foreground,
    };
    let load = load(file.clone(), &serve, purpose);
    let options = Options {
        model_options: ModelOptions { raw: serve.raw, ..ModelOptions::default() },
        port: serve.tcp,
        token: set(&host.env, "HEDDLE_DAEMON_TOKEN").map(|token| Redacted::new(token.trim())),
        idle: match serve.idle_timeout {
            None => Some(IDLE_DEFAULT),
            Some(0) => None,
            Some(secs) => Some(Duration::from_secs(secs).min(IDLE_MAX)),
        },
        tools: tools(host, &config)?,
        forced_calls: switch(&host.env, "HEDDLE_ALLOW_FORCED_CALLS")?,
        metrics: serve.metrics,
        tokens_noted: number(&host.env, "HEDDLE_DEBUG_TOKEN_IDS")?
            .map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX)),
        limits: Limits::default(),
        home: home.clone(),
        settings: serve.to_args(),
        configured: ServeArgs::sum_of(&config.daemon),
        context_tokens_set: serve.context,
        model: model.clone(),
        file: Some(file),
    };
    if args.rehearse {
        return Daemon::rehearse(options, load).map(|()| ExitCode::SUCCESS).map_err(failure);
    }
    // One thread serves; the tools are tied to its lifetime. The engine has its own threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(COMPOSING_MAX)
        .thread_stack_size(STACK_BYTES)
        .build()
        .map_err(Failure::failed)?;
    let done = runtime.block_on(async {
        // Before clients can find us, so that no signal is missed.
        let end = signals().map_err(DaemonError::Io)?;
        // We hold the lock on the home, so no other daemon can still be doing it.
        let died_of = home.died_of();
        let daemon = Daemon::prepare(options).await?;
        if let Some((doing, file)) = died_of {
            let doing = doing.word();
            note(&format!("warning: the previous daemon died while {doing} {file}"));
        }
        if !args.detached {
            note(&format!("serving {model} at {}", home.socket().display()));
            if let Some(address) = daemon.address() {
                let token = home.token();
                note(&format!("and at http://{address}/v1, token in {}", token.display()));
            }
        }
        daemon.run(load, end).await
    });
    // No one waits for requests that are still being composed.
    runtime.shutdown_background();
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(failure(error)),
    }
}

/// Executes itself again with [`SPIN`] and [`NO_BACKTRACE`] set, which are read at program start. If that
/// fails, only speed is lost.
fn with_own_environment(host: &HostEnv) {
    let has = |name: &str| host.env.contains_key(name);
    let spins = cfg!(all(target_os = "linux", target_env = "gnu"));
    let is_patient = !spins || has(SPIN.0) || has(WAIT_POLICY);
    if is_patient && has(NO_BACKTRACE.0) {
        return;
    }
    if let Ok(exe) = std::env::current_exe() {
        let mut again = Command::new(exe);
        again.args(std::env::args_os().skip(1)).env(NO_BACKTRACE.0, NO_BACKTRACE.1);
        if !is_patient {
            again.env(SPIN.0, SPIN.1);
        }
        let _ = again.exec();
    }
}

fn failure(error: DaemonError) -> Failure {
    let code = match &error {
        DaemonError::Home(HomeError::Taken { .. } | HomeError::Live { .. }) => client::TAKEN_CODE,
        DaemonError::Home(_) | DaemonError::Tools(_) | DaemonError::Port { .. } => code::USAGE,
        _ => code::FAILED,
    };
    Failure { code, error: error.into() }
}

/// Waits for a termination signal. A second one exits immediately.
fn signals() -> std::io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        tokio::spawn(async move {
            let code = tokio::select! {
                _ = interrupt.recv() => code::INTERRUPTED,
                _ = terminate.recv() => code::TERMINATED,
            };
            std::process::exit(i32::from(code));
        });
    })
}

/// Finds the model. A rehearsal also reads its header, so that a file that is none is a usage error.
fn resolve(
    host: &HostEnv,
    name: Option<&str>,
    rehearse: bool,
) -> Result<(String, PathBuf), Failure> {
    let models = local::models(&host.home, &host.env);
    let found = match name {
        name if rehearse => models.check(name),
        Some(name) => models.find(name),
        None => models.default_model(),
    };
    let model = found.map_err(Failure::usage)?;
    Ok((model.name, model.path))
}

/// What a model is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Foreground,
    Background,
    /// To find out whether it could be served, once the daemon of that process has ended.
    Rehearsal {
        replaces: Option<u32>,
    },
}

#[cfg(feature = "local")]
fn load(path: PathBuf, serve: &ServeArgs, purpose: Purpose) -> Load {
    use heddle::local::engine::Engine as _;
    use heddle::local::llama::{Llama, Options};
    let default = Options::default();
    let options = Options {
        context_tokens: serve.context,
        sessions: serve.sessions.map_or(default.sessions, usize::from),
        threads: serve.threads.map(usize::from),
        ..default
    };
    Box::new(move |progress| {
        let llama = match purpose {
            Purpose::Foreground | Purpose::Background => Llama::load(&path, &options, progress),
            Purpose::Rehearsal { replaces } => Llama::rehearse(&path, &options, replaces),
        };
        let llama = llama.map_err(|error| error.to_string())?;
        let takes = llama.context_tokens();
        // In the background nobody reads it: who started it says so.
        if let Some(set) = options.context_tokens.filter(|set| *set > takes)
            && purpose == Purpose::Foreground
        {
            note(&format!("a context of {set} tokens was set; the model takes at most {takes}"));
        }
        Ok(Arc::new(llama))
    })
}

#[cfg(not(feature = "local"))]
fn load(_path: PathBuf, _serve: &ServeArgs, _purpose: Purpose) -> Load {
    let _: Option<Arc<dyn heddle::local::engine::Engine>> = None;
    Box::new(|_| {
        Err("this heddle was built without its engine; build it with the feature `local`"
            .to_owned())
    })
}

/// Reads the settings of the daemon's own tools.
fn tools(host: &HostEnv, config: &Config) -> Result<Settings, Failure> {
    let env = &host.env;
    let on = switch(env, "HEDDLE_ALLOW_TOOLS")?;
    let allowed = set(env, "HEDDLE_ALLOWED_TOOLS").unwrap_or_default();
    let allowed = allowed.split(',').map(str::trim).filter(|name| !name.is_empty());
    let allowed: Vec<_> = allowed.map(str::to_owned).collect();
    let timeout = number(env, "HEDDLE_TOOL_TIMEOUT_MS")?.map(Duration::from_millis);
    let delay = number(env, "HEDDLE_TEST_TOOL_DELAY_MS")?.map(Duration::from_millis);
    let bytes = number(env, "HEDDLE_TOOL_MAX_OUTPUT_BYTES")?;
    let bytes = bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let memory = number(env, "HEDDLE_TOOL_MAX_MEMORY_MB")?;
    let memory_bytes_max =
        memory.map_or(MEMORY_BYTES_DEFAULT, |mib| mib.saturating_mul(1024 * 1024));
    let declared = config.daemon.tools.iter().map(|tool| Declared {
        name: tool.name.clone(),
        description: tool.description.clone(),
        command: tool.command.clone(),
        parameters: tool.parameters.clone(),
    });
    let declared: Vec<_> = declared.collect();
    let needs_place = on && declared.iter().any(|tool| allowed.contains(&tool.name));
    let place = if needs_place {
        match safety::find_sandbox(host, config, SandboxMode::ReadOnly, None) {
            Ok(sandbox) => {
                let env = safety::command_env(host, config);
                // Not in the daemon's folder, which is hidden from commands.
                Place::new(sandbox, host.home.clone(), env, memory_bytes_max)
            }
            Err(error) => Place::nowhere(&error.to_string()),
        }
    } else {
        Place::nowhere("no tool needs a sandbox")
    };
    Ok(Settings {
        on,
        allowed,
        timeout: timeout.unwrap_or(TIMEOUT_DEFAULT).min(TOOL_TIME_MAX),
        test_delay: delay.unwrap_or_default().min(TOOL_TIME_MAX),
        output_bytes_max: bytes.unwrap_or(OUTPUT_BYTES_DEFAULT),
        declared,
        place,
    })
}

fn set<'a>(env: &'a HashMap<String, String>, name: &str) -> Option<&'a str> {
    env.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

fn switch(env: &HashMap<String, String>, name: &str) -> Result<bool, Failure> {
    match set(env, name) {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(Failure::usage(anyhow!("{name} is {other:?}; set it to 1 or 0"))),
    }
}

fn number(env: &HashMap<String, String>, name: &str) -> Result<Option<u64>, Failure> {
    set(env, name)
        .map(|text| {
            text.parse().map_err(|_| {
                Failure::usage(anyhow!("{name} is {text:?}; write a whole number of zero or more"))
            })
        })
        .transpose()
}
