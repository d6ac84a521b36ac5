//! Threads as the app-server opens, reads and moves them.

use std::path::Path;
use std::sync::Arc;

use policy::{Profile, SandboxMode};
use protocol::event::Event;
use protocol::id::ThreadId;
use runtime::Thread;
use serde_json::value::{RawValue, to_raw_value};
use server::message::RpcError;
use server::past::PastThread;
use server::request::{self, ItemsView, Settings, TurnsList};
use server::wire::{self, Environment, GitInfo, Status, ThreadSettings};
use server::{Loading, OpenedThread};
use store::{ManageError, Store, StoreError};
use tools::Sessions;

use crate::args::{SandboxArg, SharedArgs};
use crate::bootstrap::{self, HostEnv, Ready, ThreadRequest};
use crate::failure::{Failure, code};
use crate::past::Start;

/// Makes or loads a thread.
pub(super) fn open(
    host: &HostEnv,
    shared: &SharedArgs,
    loading: Loading,
    settings: &Settings,
    client: &str,
) -> Result<(OpenedThread, Thread, Arc<Sessions>), RpcError> {
    let start = match loading {
        Loading::Start => Start::New,
        Loading::Resume { thread, .. } => {
            refuse_archived(host, thread)?;
            Start::Resume(thread)
        }
        Loading::Fork { thread, .. } => Start::Fork(thread),
    };
    let turns =
        matches!(loading, Loading::Resume { turns: true, .. } | Loading::Fork { turns: true, .. });
    let host = host.at(settings.cwd.as_deref().map(Path::new)).map_err(refused)?;
    let shared = with_settings(shared, settings);
    let (config, odd) = bootstrap::load_config(&host, &shared, false).map_err(refused)?;
    let wanted = ThreadRequest {
        start,
        ephemeral: settings.ephemeral.unwrap_or(false),
        ignore_rules: false,
        output_schema: None,
        shared: &shared,
        originator: bootstrap::originator(&host.env).unwrap_or(client),
        // What the reference says of whoever speaks this protocol to it.
        source: "vscode",
    };
    let (ephemeral, originator) = (wanted.ephemeral, wanted.originator.to_owned());
    let ready = bootstrap::thread(&host, &config, wanted).map_err(refused)?;
    let Ready { thread, model, provider, sessions, profile, window, path, told, .. } = ready;
    let id = thread.id();
    let cwd = host.directory.display().to_string();
    let shown = match loading {
        Loading::Start => new_thread(&host, id, ephemeral, originator),
        // A fork that is not kept is nowhere but in its source.
        Loading::Fork { thread: source, .. } if ephemeral => {
            let source_id = Some(source.to_string());
            let forked = read(&host, source, turns, false)?;
            let new = new_thread(&host, id, ephemeral, originator);
            wire::Thread { forked_from_id: source_id, turns: forked.turns, ..new }
        }
        Loading::Resume { .. } | Loading::Fork { .. } => read(&host, id, turns, false)?,
    };
    let shown = wire::Thread {
        environments: Some(vec![Environment::local(&cwd)]),
        model_provider: provider.clone(),
        model: Some(model.clone()),
        status: Status::Idle,
        path: path.map(|path| path.display().to_string()),
        cwd: cwd.clone(),
        can_accept_direct_input: Some(true),
        ..shown
    };
    let opened = OpenedThread {
        id,
        thread: shown,
        running: ThreadSettings::new(model, provider, cwd, sandbox(&profile, &host.directory)),
        usage: thread.usage(),
        window,
        told: told.into_iter().filter_map(notice_text).collect(),
        config_warnings: odd,
    };
    Ok((opened, thread, sessions))
}

/// Reads a thread from its files.
pub(super) fn read(
    host: &HostEnv,
    thread: ThreadId,
    turns: bool,
    running: bool,
) -> Result<wire::Thread, RpcError> {
    let view = if turns { ItemsView::Full } else { ItemsView::NotLoaded };
    let mut read = read_as(host, thread, view, running)?;
    if !turns {
        read.turns = Vec::new();
    }
    Ok(read)
}

/// Reads a page of turns.
pub(super) fn list(
    host: &HostEnv,
    asked: &TurnsList,
    running: bool,
) -> Result<Box<RawValue>, RpcError> {
    let view = asked.items_view.unwrap_or_default();
    let thread = read_as(host, asked.thread, view, running)?;
    let page = server::page::page(thread.turns, asked)?;
    to_raw_value(&page).map_err(|error| RpcError::internal(error.to_string()))
}

/// Puts a thread into the archive.
pub(super) fn archive(host: &HostEnv, thread: ThreadId) -> Result<(), RpcError> {
    Store::new(&host.home).archive(thread).map_err(manage_error)
}

/// Takes a thread back from the archive.
pub(super) fn unarchive(host: &HostEnv, thread: ThreadId) -> Result<wire::Thread, RpcError> {
    Store::new(&host.home).unarchive(thread).map_err(manage_error)?;
    read(host, thread, false, false)
}

fn read_as(
    host: &HostEnv,
    thread: ThreadId,
    view: ItemsView,
    running: bool,
) -> Result<wire::Thread, RpcError> {
    let store = Store::new(&host.home);
    let mut past = PastThread::new(view);
    store.read(thread, &mut |line| past.line(line)).map_err(store_error)?;
    let found = store.find(thread).map_err(store_error)?;
    // A name is a comfort; the thread is there without it.
    let names = store.names().unwrap_or_default();
    Ok(wire::Thread {
        id: thread.to_string(),
        path: found.map(|found| found.path.display().to_string()),
        name: names.get(&thread).cloned(),
        ..past.finish(running)
    })
}

fn new_thread(host: &HostEnv, id: ThreadId, ephemeral: bool, originator: String) -> wire::Thread {
    let now = i64::try_from(runtime::id::now_ms() / 1000).unwrap_or(i64::MAX);
    let git = runtime::project::git_head(&host.directory);
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

/// Puts what a client says about a thread over what the command line says about all of them.
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
    // A client that names a mode gets that one.
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
            // The working directory goes without saying.
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

fn refuse_archived(host: &HostEnv, thread: ThreadId) -> Result<(), RpcError> {
    match Store::new(&host.home).find(thread).map_err(store_error)? {
        Some(found) if found.archived => Err(RpcError::invalid(format!(
            "thread {thread} is archived; call thread/unarchive first"
        ))),
        _ => Ok(()),
    }
}

/// Says what happened to a thread while it was opened.
fn notice_text(event: Event) -> Option<String> {
    match event {
        Event::Warning(text) => Some(text),
        Event::HistoryRepaired(repairs) => {
            Some(repairs.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        }
        _ => None,
    }
}

fn refused(failure: Failure) -> RpcError {
    let Failure { code, error } = failure;
    if let Some(error @ StoreError::NotFound(_)) = error.downcast_ref::<StoreError>() {
        return RpcError::invalid(error.to_string());
    }
    let message = format!("{error:#}");
    match code {
        code::USAGE => RpcError::invalid(message),
        _ => RpcError::internal(message),
    }
}

fn store_error(error: StoreError) -> RpcError {
    match error {
        StoreError::NotFound(id) => {
            RpcError::invalid(format!("no rollout found for thread id {id}"))
        }
        error => RpcError::internal(error.to_string()),
    }
}

fn manage_error(error: ManageError) -> RpcError {
    match error {
        ManageError::Store(error) => store_error(error),
        // Whoever has it may be done soon.
        error => RpcError::invalid(error.to_string()),
    }
}
