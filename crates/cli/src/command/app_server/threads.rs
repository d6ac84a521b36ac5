//! How the app-server opens, reads, archives and restores threads.

use std::path::Path;

use heddle::session::settings;
use heddle::{Error, Heddle, Notice, Profile, SandboxMode, Thread, ThreadSpec};
use protocol::id::ThreadId;
use serde_json::value::{RawValue, to_raw_value};
use server::message::RpcError;
use server::past::PastThread;
use server::request::{self, ItemsView, Settings, TurnsList};
use server::wire::{self, Environment, GitInfo, Status, ThreadSettings};
use server::{Loading, OpenedThread};

use crate::args::{SandboxArg, SharedArgs};
use crate::host;

/// Starts, resumes or forks a thread.
pub(super) async fn open(
    heddle: &Heddle,
    shared: &SharedArgs,
    loading: Loading,
    settings: &Settings,
    client: &str,
) -> Result<(OpenedThread, Thread), RpcError> {
    let spec = match loading {
        Loading::Start => ThreadSpec::new(),
        Loading::Resume { thread, .. } => {
            refuse_archived(heddle, thread).await?;
            ThreadSpec::resume(thread)
        }
        Loading::Fork { thread, .. } => ThreadSpec::fork(thread),
    };
    let turns =
        matches!(loading, Loading::Resume { turns: true, .. } | Loading::Fork { turns: true, .. });
    let heddle = match settings.cwd.as_deref() {
        Some(cwd) => heddle.at(Path::new(cwd)).map_err(refused)?,
        None => heddle.clone(),
    };
    let preferences = with_settings(shared, settings).preferences();
    let read_settings = settings::load(heddle.host(), preferences).map_err(refused)?;
    let ephemeral = settings.ephemeral.unwrap_or(false);
    let spec = spec
        .directory(heddle.directory())
        .settings(read_settings)
        .ephemeral(ephemeral)
        .originator(client)
        // The value that the reference uses for clients of this protocol.
        .source("vscode")
        .on_notice(|notice| host::print_notice(&notice));
    let thread = heddle.start(spec).await.map_err(refused)?;
    let (id, facts) = (thread.id(), thread.facts());
    let cwd = thread.directory().display().to_string();
    let originator = facts.originator.clone();
    let shown = match loading {
        Loading::Start => new_thread(&heddle, id, ephemeral, originator),
        // An ephemeral fork exists only in its source.
        Loading::Fork { thread: source, .. } if ephemeral => {
            let source_id = Some(source.to_string());
            let forked = read(&heddle, source, view(turns), false).await?;
            let new = new_thread(&heddle, id, ephemeral, originator);
            wire::Thread { forked_from_id: source_id, turns: forked.turns, ..new }
        }
        Loading::Resume { .. } | Loading::Fork { .. } => {
            read(&heddle, id, view(turns), false).await?
        }
    };
    let (model, provider) = (facts.model.clone(), facts.provider.clone());
    let shown = wire::Thread {
        environments: Some(vec![Environment::local(&cwd)]),
        model_provider: provider.clone(),
        model: Some(model.clone()),
        status: Status::Idle,
        path: facts.log_path.as_ref().map(|path| path.display().to_string()),
        cwd: cwd.clone(),
        can_accept_direct_input: Some(true),
        ..shown
    };
    let (mut told, mut config_warnings) = (Vec::new(), Vec::new());
    for notice in thread.notices() {
        match notice {
            Notice::Setting(text) => config_warnings.push(text.clone()),
            Notice::Thread(_) | Notice::HistoryRepaired(_) => told.push(notice.to_string()),
            _ => {}
        }
    }
    let sandbox = sandbox(&facts.profile, thread.directory());
    let opened = OpenedThread {
        id,
        thread: shown,
        running: ThreadSettings::new(model, provider, cwd, sandbox),
        usage: facts.usage,
        window: facts.context_window,
        told,
        config_warnings,
    };
    Ok((opened, thread))
}

/// Returns what a client that wants turns, or none, is shown of them.
pub(super) fn view(turns: bool) -> ItemsView {
    if turns { ItemsView::Full } else { ItemsView::NotLoaded }
}

/// Reads a thread from disk.
pub(super) async fn read(
    heddle: &Heddle,
    thread: ThreadId,
    view: ItemsView,
    running: bool,
) -> Result<wire::Thread, RpcError> {
    let mut read = read_as(heddle, thread, view, running).await?;
    if view == ItemsView::NotLoaded {
        read.turns = Vec::new();
    }
    Ok(read)
}

/// Reads a page of turns.
pub(super) async fn list(
    heddle: &Heddle,
    asked: &TurnsList,
    running: bool,
) -> Result<Box<RawValue>, RpcError> {
    let view = asked.items_view.unwrap_or_default();
    let thread = read_as(heddle, asked.thread, view, running).await?;
    let page = server::page::page(thread.turns, asked)?;
    to_raw_value(&page).map_err(|error| RpcError::internal(error.to_string()))
}

pub(super) async fn archive(heddle: &Heddle, thread: ThreadId) -> Result<(), RpcError> {
    heddle.threads().archive(thread).await.map_err(refused)
}

pub(super) async fn unarchive(heddle: &Heddle, thread: ThreadId) -> Result<wire::Thread, RpcError> {
    heddle.threads().unarchive(thread).await.map_err(refused)?;
    read(heddle, thread, ItemsView::NotLoaded, false).await
}

async fn read_as(
    heddle: &Heddle,
    thread: ThreadId,
    view: ItemsView,
    running: bool,
) -> Result<wire::Thread, RpcError> {
    let threads = heddle.threads();
    let past = threads.read(thread, PastThread::new(view), PastThread::line).await;
    let past = past.map_err(refused)?;
    let found = threads.find(thread).await.map_err(refused)?;
    let (path, name) = found.map(|found| (found.path, found.name)).unwrap_or_default();
    Ok(wire::Thread {
        id: thread.to_string(),
        path: path.map(|path| path.display().to_string()),
        name,
        ..past.finish(running)
    })
}

fn new_thread(heddle: &Heddle, id: ThreadId, ephemeral: bool, originator: String) -> wire::Thread {
    let now = i64::try_from(heddle::now_ms() / 1000).unwrap_or(i64::MAX);
    let git = heddle.git_head();
    wire::Thread {
        id: id.to_string(),
        session_id: id.to_string(),
        ephemeral,
        created_at: now,
        updated_at: now,
        recency_at: now,
        cli_version: env!("CARGO_PKG_VERSION").to_owned(),
        originator: Some(originator),
        source: "vscode".into(),
        git_info: git.map(|head| GitInfo {
            sha: head.commit,
            branch: head.branch,
            origin_url: None,
        }),
        ..wire::Thread::default()
    }
}

/// Applies a client's settings for one thread over those of the command line.
fn with_settings(shared: &SharedArgs, settings: &Settings) -> SharedArgs {
    let asked = SharedArgs {
        overrides: settings.overrides(),
        model: settings.model.clone(),
        sandbox: settings.sandbox.map(|mode| match mode {
            request::Sandbox::ReadOnly => SandboxArg::ReadOnly,
            request::Sandbox::WorkspaceWrite => SandboxArg::WorkspaceWrite,
            request::Sandbox::DangerFullAccess => SandboxArg::DangerFullAccess,
        }),
        ..SharedArgs::default()
    };
    // A mode that a client names takes precedence.
    let bypass = shared.dangerously_bypass_approvals_and_sandbox && asked.sandbox.is_none();
    SharedArgs {
        dangerously_bypass_approvals_and_sandbox: bypass,
        ..asked.merge_over(shared.clone())
    }
}

fn sandbox(profile: &Profile, cwd: &Path) -> wire::Sandbox {
    match profile.mode {
        SandboxMode::ReadOnly => wire::Sandbox::ReadOnly { network_access: profile.network },
        SandboxMode::DangerFullAccess => wire::Sandbox::DangerFullAccess,
        SandboxMode::WorkspaceWrite => {
            // The working directory is always included.
            let others = profile.writable_roots.iter().filter(|root| root.as_path() != cwd);
            wire::Sandbox::WorkspaceWrite {
                writable_roots: others.map(|root| root.display().to_string()).collect(),
                network_access: profile.network,
                exclude_tmpdir_env_var: false,
                exclude_slash_tmp: false,
            }
        }
    }
}

async fn refuse_archived(heddle: &Heddle, thread: ThreadId) -> Result<(), RpcError> {
    match heddle.threads().find(thread).await.map_err(refused)? {
        Some(found) if found.archived => Err(RpcError::invalid(format!(
            "thread {thread} is archived; call thread/unarchive first"
        ))),
        _ => Ok(()),
    }
}

fn refused(error: Error) -> RpcError {
    match error {
        Error::NoSuchThread { id, .. } => {
            RpcError::invalid(format!("no rollout found for thread id {id}"))
        }
        // The process that uses it may finish soon.
        Error::Settings(_) | Error::ThreadInUse(_) => RpcError::invalid(chain(&error)),
        error => RpcError::internal(chain(&error)),
    }
}

/// Formats an error with its causes.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    text
}
