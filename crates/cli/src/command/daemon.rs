//! `heddle daemon`: runs, starts, stops and inspects the local daemon.

mod logs;
mod serve;
mod service;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use faces::table::one_line;
use heddle::local::client::{self, Health, HealthError, Launch, StartError, Stopped};
use heddle::local::home::Home;
use serde_json::json;

use crate::args::SharedArgs;
use crate::args::daemon::{DaemonCommand, ServeArgs};
use crate::failure::{Failure, code};
use crate::host;
use crate::terminal::{note, print};
use heddle::session::host::HostEnv;
use heddle::session::local;
use heddle::session::settings::{self, Settings};

pub(crate) fn run(shared: &SharedArgs, command: DaemonCommand) -> Result<ExitCode, Failure> {
    let host = host::look(None)?;
    let home = local::daemon(&host);
    match command {
        DaemonCommand::Run(args) => serve::run(&host, home, shared, args),
        DaemonCommand::Start(args) => start(&host, &home, shared, args),
        DaemonCommand::Stop { timeout } => stop(&home, Duration::from_secs(timeout)),
        DaemonCommand::Status { json } => status(&home, json),
        DaemonCommand::Health => health(&home),
        DaemonCommand::Logs { follow, lines } => logs::print(&home.log(), lines, follow),
        DaemonCommand::Install { print, serve } => {
            service::install(&host, &home, shared, serve, print)
        }
        DaemonCommand::Uninstall => service::uninstall(&host),
    }
}

/// Returns the path of the running program.
fn ourselves() -> Result<PathBuf, Failure> {
    std::env::current_exe().context("heddle cannot find itself").map_err(Failure::failed)
}

/// Accepts a model that is named before the subcommand as well. A path is made absolute, because the daemon
/// has its own working directory.
fn with_model(mut args: ServeArgs, shared: &SharedArgs) -> ServeArgs {
    args.model = args.model.or_else(|| shared.model.clone()).map(|model| {
        let file = Path::new(&model).canonicalize().ok().filter(|path| path.is_file());
        file.and_then(|path| path.to_str().map(str::to_owned)).unwrap_or(model)
    });
    args
}

fn start(
    host: &HostEnv,
    home: &Home,
    shared: &SharedArgs,
    args: ServeArgs,
) -> Result<ExitCode, Failure> {
    let args = with_model(args, shared);
    // The daemon reports problems of the configuration itself.
    let Settings { config, .. } = settings::load(host, shared.preferences())?;
    let overrides: Vec<_> =
        shared.overrides.iter().map(|setting| format!("--config={setting}")).collect();
    let launch = Launch {
        exe: &ourselves()?,
        model: args.model.as_deref(),
        args: &args.to_args(),
        shared: &overrides,
        configured: Some(&ServeArgs::sum_of(&config.daemon)),
        env: None,
    };
    let started = host::watching("the daemon", |progress| client::start(home, &launch, progress));
    let (health, new) = started.map_err(start_failure)?;
    let was = if new { "is running" } else { "was running already" };
    let context = health.context_tokens.unwrap_or_default();
    note(&format!(
        "the daemon {was} with {} and {context} tokens of context (process {})",
        health.model, health.pid
    ));
    if let Some(text) = health.context_notice() {
        note(&text);
    }
    Ok(ExitCode::SUCCESS)
}

fn start_failure(error: StartError) -> Failure {
    match error {
        // The daemon itself reported a usage error.
        StartError::Died { status, .. } | StartError::Unusable { status, .. }
            if status.code() == Some(code::USAGE.into()) =>
        {
            Failure::usage(error)
        }
        error => Failure::failed(error),
    }
}

fn stop(home: &Home, patience: Duration) -> Result<ExitCode, Failure> {
    match client::stop(home, patience).map_err(Failure::failed)? {
        Stopped::NotRunning => note("no daemon is running"),
        Stopped::Ended => note("the daemon has stopped"),
        Stopped::StillRunning(pid) => {
            let (pid, secs) = (pid.as_raw_nonzero(), patience.as_secs());
            return Err(Failure::failed(anyhow!(
                "the daemon (process {pid}) has not stopped within {secs} s; `kill -9 {pid}` stops it at \
                 once, and harms nothing"
            )));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn status(home: &Home, as_json: bool) -> Result<ExitCode, Failure> {
    let found = client::health(home);
    let code = match &found {
        Ok(_) => 0,
        Err(_) => client::TAKEN_CODE,
    };
    let text = match (&found, as_json) {
        (Ok(health), true) => {
            let mut value = serde_json::to_value(health).map_err(Failure::failed)?;
            value["running_now"] = true.into();
            value["socket"] = json!(home.socket());
            value["token_file"] = health.base_url.as_ref().map(|_| json!(home.token())).into();
            value["log"] = json!(home.log());
            format!("{value}\n")
        }
        (Err(error), true) => {
            let value = json!({
                "running_now": false, "reason": error.to_string(), "log": home.log(),
            });
            format!("{value}\n")
        }
        (Ok(health), false) => describe(home, health),
        (Err(HealthError::NotRunning), false) => "no daemon is running\n".to_owned(),
        (Err(error), false) => format!("{}\n", one_line(&error.to_string())),
    };
    print(&text)?;
    Ok(ExitCode::from(code))
}

fn describe(home: &Home, health: &Health) -> String {
    let Health { pid, requests, running, waiting, uptime_secs, .. } = health;
    let [status, model, version] =
        [&health.status, &health.model, &health.version].map(|text| one_line(text));
    let cut =
        health.context_tokens_set.map(|set| format!("; {set} were set, the model takes no more"));
    let cut = cut.unwrap_or_default();
    let mut lines = vec![
        format!("status   {status}"),
        format!("model    {model}"),
        format!("context  {} tokens{cut}", health.context_tokens.unwrap_or_default()),
        format!("process  {pid}, version {version}, up for {uptime_secs} s"),
        format!("requests {requests} now: {running} being answered, {waiting} waiting"),
        format!("memory   {} MiB", health.memory_bytes >> 20),
        format!("socket   {}", home.socket().display()),
    ];
    if let Some(url) = &health.base_url {
        lines.push(format!("url      {}", one_line(url)));
        lines.push(format!("token    {}", home.token().display()));
    }
    if !health.tools.is_empty() {
        lines.push(format!("tools    {}", one_line(&health.tools.join(", "))));
    }
    lines.push(format!("log      {}", home.log().display()));
    lines.join("\n") + "\n"
}

fn health(home: &Home) -> Result<ExitCode, Failure> {
    match client::health(home) {
        Ok(health) => {
            print(&format!("{}\n", serde_json::to_string(&health).map_err(Failure::failed)?))?;
            let ok = health.status == "ok";
            Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(code::FAILED) })
        }
        Err(error) => Err(Failure::failed(error)),
    }
}
