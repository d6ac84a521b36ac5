//! Opening threads: start, resume, fork.

use std::path::Path;
use std::sync::Arc;

use heddle::session::settings::{self, Preferences};
use heddle::tools::Tools;
use heddle::{
    ApprovalPolicy, Error, ErrorKind, Heddle, Notice, Profile, SandboxMode, Thread, ThreadFacts,
    ThreadId, ThreadSpec,
};

use super::{Answered, Call, goal, past, queue, thread as threads, turn};
use crate::ask::Asked;
use crate::dynamic_tool::DynamicTool;
use crate::hub::Hub;
use crate::message::RpcError;
use crate::notification::Notification;
use crate::page;
use crate::peer::Peer;
use crate::request::{
    self, Approval, Changes, Fork, Granular, ItemsView, Resume, Revert, SandboxPolicy, Settings,
    ThreadStart,
};
use crate::response::{self, Reverted};
use crate::restored::Restored;
use crate::thread::{LoadedThread, Opened, Opening};
use crate::wire::{self, CollaborationMode, Environment, GitInfo, Status, ThreadSettings};

/// Where the history of a thread comes from when it is opened.
#[derive(Clone, PartialEq, Eq)]
enum Source {
    New,
    /// A new thread under an id that no saved thread has.
    NewAs(ThreadId),
    Resume(ThreadId),
    Fork(ThreadId, Option<ForkPoint>),
}

/// Where the history of a fork ends.
#[derive(Clone, PartialEq, Eq)]
enum ForkPoint {
    Before(String),
    After(String),
}

pub(super) async fn start(
    call: Call,
    start: ThreadStart,
) -> Result<Answered<response::Opened>, RpcError> {
    let ThreadStart { settings, dynamic_tools } = start;
    open(call, Source::New, settings, dynamic_tools.unwrap_or_default(), false).await
}

/// Loads a thread, or makes the client a follower if the thread is loaded.
pub(super) async fn resume(
    call: Call,
    resume: Resume,
) -> Result<Answered<response::Opened>, RpcError> {
    let Resume { thread_id: id, exclude_turns, settings } = resume;
    let _gate = call.hub.gate(id).await;
    threads::is_saved(&call.hub, id)?;
    let Ok(loaded) = call.hub.loaded(id) else {
        if let Some(closing) = call.hub.find(id) {
            closing.gone().await;
        }
        let settings = restored(&call.hub, id, settings, Restored::resumed).await?;
        return open(call, Source::Resume(id), settings, Vec::new(), !exclude_turns).await;
    };
    // Before the thread is read, so that nothing is missed in between.
    let number = Some(loaded.missed().last());
    let thread = match exclude_turns {
        true => loaded.lock().shown(),
        false => past::thread(&call.hub, id, Some(ItemsView::Full)).await?,
    };
    let settings = loaded.lock().settings.clone();
    let answered = call.answer(&response::Opened { thread, settings, number });
    call.hub.follow(&loaded, &call.peer);
    goal::tell(&call, &loaded).await;
    Ok(answered)
}

/// Creates a thread that continues another one.
pub(super) async fn fork(call: Call, fork: Fork) -> Result<Answered<response::Opened>, RpcError> {
    let Fork { from, last_turn_id, before_turn_id } = fork;
    let Resume { thread_id: id, exclude_turns, settings } = from;
    let point = match (last_turn_id, before_turn_id) {
        (Some(_), Some(_)) => {
            let both = "thread/fork: give lastTurnId or beforeTurnId, and not both";
            return Err(RpcError::invalid(both));
        }
        (Some(turn), None) => Some(ForkPoint::After(turn)),
        (None, before) => before.map(ForkPoint::Before),
    };
    let _gate = call.hub.gate(id).await;
    threads::is_saved(&call.hub, id)?;
    let settings = restored(&call.hub, id, settings, |log, given, _| log.forked(given)).await?;
    open(call, Source::Fork(id, point), settings, Vec::new(), !exclude_turns).await
}

/// Completes the settings that a client gives for a saved thread by those of its last turn.
async fn restored(
    hub: &Hub,
    id: ThreadId,
    given: Settings,
    complete: fn(&Restored, Settings, Option<&str>) -> Settings,
) -> Result<Settings, RpcError> {
    let threads = hub.heddle().threads();
    let restored = match threads.read(id, Restored::default(), Restored::line).await {
        Ok(restored) => restored,
        // It is said when it is opened.
        Err(error) if error.kind() == ErrorKind::NoSuchThread => return Ok(given),
        Err(error) => return Err(refused(error)),
    };
    let (host, before) = (hub.heddle().clone(), given.cwd.is_some());
    let preferences = preferences(&hub.options().preferences, &given);
    // Settings are read from files, which blocks.
    let completed = tokio::task::spawn_blocking(move || {
        let read = settings::load(host.host(), preferences).map_err(refused)?;
        let mut settings = complete(&restored, given, read.config.model_provider.as_deref());
        // A directory that is gone keeps nobody from the thread.
        if !before && settings.cwd.as_ref().is_some_and(|cwd| !Path::new(cwd).is_dir()) {
            settings.cwd = None;
        }
        Ok(settings)
    });
    completed.await.map_err(|error| RpcError::internal(error.to_string()))?
}

/// Removes the last turns of a thread. The thread is opened again for that, and keeps its followers.
pub(super) async fn revert(call: Call, revert: Revert) -> Result<Answered<Reverted>, RpcError> {
    let Revert { thread_id: id, before_turn_id } = revert;
    let _gate = call.hub.gate(id).await;
    threads::is_saved(&call.hub, id)?;
    let mut before = None;
    if let Ok(loaded) = call.hub.loaded(id) {
        let state = loaded.lock();
        turn::refuse_while_active(&state)?;
        if state.is_ephemeral() {
            return Err(RpcError::invalid("ephemeral threads cannot be reverted"));
        }
        let opening = state.opening.clone();
        drop(state);
        before = Some((opening, loaded.followers()));
    }
    threads::unload(&call.hub, id).await;
    let reverted = call.hub.heddle().threads().revert(id, &before_turn_id).await;
    // Whatever came of it, the thread is loaded as before.
    if let Some((opening, followers)) = before {
        load_again(&call, id, opening, followers).await?;
    }
    reverted.map_err(refused)?;
    let thread = past::thread(&call.hub, id, Some(ItemsView::Full)).await?;
    let (turns_cursor, items_cursor) = page::ends(&thread.turns);
    let thread = wire::Thread { turns: Vec::new(), ..thread };
    let answered = call.answer(&Reverted {
        thread,
        turns_backwards_cursor: turns_cursor,
        items_backwards_cursor: items_cursor,
    });
    call.hub.tell_all(Notification::ThreadReverted { thread_id: id.to_string() });
    Ok(answered)
}

/// Opens a thread again after a short close, with its previous settings and followers.
async fn load_again(
    call: &Call,
    id: ThreadId,
    opening: Opening,
    followers: Vec<Arc<Peer>>,
) -> Result<(), RpcError> {
    let (owner, goal_tools) = (Arc::default(), Tools::new());
    let opening = Opening { owner, goal_tools, ..opening };
    let (asked, source) = (Arc::new(Asked::default()), Source::Resume(id));
    let (heddle, thread) = open_thread(&call.hub, &source, &opening, &asked).await?;
    let facts = facts_of(&thread)?;
    let shown = as_shown(call, &heddle, &source, &thread, &facts, false, false).await?;
    let settings = thread_settings(&facts, &opening, thread.directory());
    let (thread_id, status) = (id.to_string(), shown.status.clone());
    let loaded = call.hub.add(
        id,
        Opened {
            open: thread,
            opening,
            asked,
            thread: shown,
            settings,
            window: facts.context_window,
            raw_reasoning: facts.show_raw_reasoning,
            saved: true,
        },
    );
    followers.iter().for_each(|peer| call.hub.follow(&loaded, peer));
    let extras = call.hub.extras(id).await;
    goal::offer(&call.hub, &loaded, extras.ok().and_then(|extras| extras.goal).as_ref());
    call.hub.tell_all(Notification::ThreadStatusChanged { thread_id, status });
    Ok(())
}

async fn open(
    call: Call,
    source: Source,
    settings: Settings,
    dynamic_tools: Vec<request::DynamicToolSpec>,
    with_turns: bool,
) -> Result<Answered<response::Opened>, RpcError> {
    let reserved = call.hub.reserve()?;
    let ephemeral = settings.ephemeral.unwrap_or(false);
    let client = call.peer.client().map(|client| client.name.clone()).unwrap_or_default();
    let opening = Opening { settings, dynamic_tools, client, ..Opening::default() };
    let asked = Arc::new(Asked::default());
    let (heddle, thread) = open_thread(&call.hub, &source, &opening, &asked).await?;
    let facts = facts_of(&thread)?;
    let mut shown =
        as_shown(&call, &heddle, &source, &thread, &facts, ephemeral, with_turns).await?;
    if let Source::Fork(from, _) = &source
        && !ephemeral
    {
        shown.name = copy_name(&call.hub, *from, facts.id).await?;
    }
    let running = thread_settings(&facts, &opening, thread.directory());
    let notices = thread.notices().to_vec();
    let result = response::Opened { thread: shown, settings: running, number: None };
    let answered = call.answer(&result);
    let response::Opened { thread: shown, settings: running, .. } = result;
    let shown = wire::Thread { turns: Vec::new(), ..shown };
    let opened = Opened {
        open: thread,
        opening,
        asked,
        thread: shown.clone(),
        settings: running,
        window: facts.context_window,
        raw_reasoning: facts.show_raw_reasoning,
        saved: source != Source::New && !ephemeral,
    };
    let loaded = call.hub.add(facts.id, opened);
    drop(reserved);
    call.hub.follow(&loaded, &call.peer);
    if !matches!(source, Source::Resume(_)) {
        call.hub.tell_all(Notification::ThreadStarted { thread: Box::new(shown) });
    }
    for notice in notices {
        match notice {
            Notice::Setting(summary) => {
                call.tell(Notification::ConfigWarning { summary, details: None });
            }
            Notice::Thread(_) | Notice::HistoryRepaired(_) => {
                let (thread_id, message) = (Some(facts.id.to_string()), notice.to_string());
                call.tell(Notification::Warning { thread_id, message });
            }
            _ => {}
        }
    }
    if matches!(source, Source::Resume(_)) {
        goal::tell(&call, &loaded).await;
        queue::loaded(&call.hub, &loaded).await;
    }
    Ok(answered)
}

/// Copies the name of a thread to its fork, if it has one.
async fn copy_name(hub: &Hub, from: ThreadId, to: ThreadId) -> Result<Option<String>, RpcError> {
    let threads = hub.heddle().threads();
    let name = threads.find(from).await.map_err(refused)?.and_then(|found| found.name);
    if let Some(name) = &name {
        threads.set_name(to, name).await.map_err(refused)?;
    }
    Ok(name)
}

/// Changes settings of a loaded thread from its next turn on. If no turn is running, the thread is opened again
/// immediately. The caller holds its gate.
pub(super) async fn change(
    hub: &Hub,
    loaded: &LoadedThread,
    changes: &Changes,
) -> Result<(), RpcError> {
    if let Some(policy) = &changes.sandbox_policy {
        policy.check()?;
    }
    {
        let mut state = loaded.lock();
        if differs(changes, &state.settings) {
            state.opening.settings = state.opening.settings.with(changes);
            state.is_outdated = true;
            state.settings.apply(changes);
        }
    }
    renew(hub, loaded).await
}

/// Opens a thread again if its settings have changed and no turn is running.
pub(super) async fn renew(hub: &Hub, loaded: &LoadedThread) -> Result<(), RpcError> {
    let (opening, before, saved) = {
        let state = loaded.lock();
        if !state.is_outdated || state.turn_id().is_some() {
            return Ok(());
        }
        if state.is_ephemeral() {
            return Err(RpcError::invalid(
                "the settings of an ephemeral thread cannot change: start another one",
            ));
        }
        (state.opening.clone(), state.open.clone(), state.is_saved())
    };
    // A thread can be open only once, even within one process.
    before.close().await;
    drop(before);
    let source = if saved { Source::Resume(loaded.id) } else { Source::NewAs(loaded.id) };
    let opened = open_thread(hub, &source, &opening, &loaded.asked).await;
    let (_, thread) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            // Nothing is open behind it any more. Once it is closed, a client can resume it to try again.
            loaded.close();
            return Err(error);
        }
    };
    let facts = facts_of(&thread)?;
    let cwd = thread.directory().display().to_string();
    let shown = wire::Thread {
        environments: Some(vec![Environment::local(&cwd)]),
        model_provider: facts.provider.clone(),
        model: Some(facts.model.clone()),
        cwd,
        ..wire::Thread::default()
    };
    let settings = thread_settings(&facts, &opening, thread.directory());
    let asked = Arc::clone(&loaded.asked);
    loaded.lock().replace(Opened {
        open: thread,
        opening,
        asked,
        thread: shown,
        settings,
        window: facts.context_window,
        raw_reasoning: facts.show_raw_reasoning,
        saved,
    });
    Ok(())
}

/// Returns whether the changes differ from the current settings.
fn differs(changes: &Changes, now: &ThreadSettings) -> bool {
    let Changes {
        cwd,
        model,
        approval_policy,
        sandbox_policy,
        effort,
        summary,
        collaboration_mode,
    } = changes;
    let other_mode = |CollaborationMode { mode, settings }: &CollaborationMode| {
        let told = &settings.developer_instructions;
        *mode != now.mode.0
            || told.is_some() && *told != now.mode.1
            || settings.model != now.model
            || settings.reasoning_effort != now.reasoning_effort
    };
    collaboration_mode.as_ref().is_some_and(other_mode)
        || cwd.as_ref().is_some_and(|it| *it != now.cwd)
        || model.as_ref().is_some_and(|it| *it != now.model)
        || approval_policy.is_some_and(|it| it != now.approval_policy)
        || sandbox_policy.as_ref().is_some_and(|it| wire::Sandbox::from(it) != now.sandbox)
        || effort.is_some() && *effort != now.reasoning_effort
        || summary.is_some() && *summary != now.summary
}

fn facts_of(thread: &Thread) -> Result<ThreadFacts, RpcError> {
    let elsewhere = || RpcError::internal("the thread runs in another program");
    thread.facts().cloned().ok_or_else(elsewhere)
}

/// Opens a thread through the library.
async fn open_thread(
    hub: &Hub,
    source: &Source,
    opening: &Opening,
    asked: &Arc<Asked>,
) -> Result<(Heddle, Thread), RpcError> {
    let Opening { settings, dynamic_tools, client, owner, goal_tools } = opening;
    if let Some(policy) = &settings.sandbox_policy {
        policy.check()?;
    }
    let heddle = match settings.cwd.as_deref() {
        Some(cwd) => hub.heddle().at(Path::new(cwd)).map_err(refused)?,
        None => hub.heddle().clone(),
    };
    let spec = match source {
        Source::New => ThreadSpec::new(),
        Source::NewAs(id) => ThreadSpec::new_as(*id),
        Source::Resume(id) => {
            refuse_archived(&heddle, *id).await?;
            ThreadSpec::resume(*id)
        }
        Source::Fork(id, None) => ThreadSpec::fork(*id),
        Source::Fork(id, Some(ForkPoint::Before(turn))) => ThreadSpec::fork(*id).before_turn(turn),
        Source::Fork(id, Some(ForkPoint::After(turn))) => ThreadSpec::fork(*id).after_turn(turn),
    };
    let preferences = preferences(&hub.options().preferences, settings);
    let host = heddle.clone();
    // Settings are read from files, which blocks.
    let read = tokio::task::spawn_blocking(move || settings::load(host.host(), preferences));
    let read = read.await.map_err(|error| RpcError::internal(error.to_string()))?;
    let read = read.map_err(refused)?;
    let mut spec = spec
        .directory(heddle.directory())
        .settings(read)
        .ephemeral(settings.ephemeral.unwrap_or(false))
        .approver(Arc::clone(asked))
        .originator(hub.originator(client))
        // The value that the reference uses for clients of this protocol.
        .source("vscode")
        .tools(goal_tools)
        .on_notice(hub.options().on_notice);
    if let Some(approval) = settings.approval_policy {
        spec = spec.approval_policy(approval.into());
    }
    if let Some(CollaborationMode { mode, settings }) = &settings.mode {
        spec = spec.mode((*mode).into());
        if let Some(text) = &settings.developer_instructions {
            spec = spec.mode_instructions(text);
        }
    }
    if !dynamic_tools.is_empty() {
        let tools = Tools::new();
        for tool in dynamic_tools {
            let tool = DynamicTool::new(tool.clone(), hub.clone(), Arc::clone(owner))?;
            tools.add(tool).map_err(|error| {
                RpcError::invalid(format!("thread/start.dynamicTools: {error}"))
            })?;
        }
        spec = spec.tools(&tools);
    }
    let thread = heddle.start(spec).await.map_err(refused)?;
    Ok((heddle, thread))
}

async fn as_shown(
    call: &Call,
    heddle: &Heddle,
    source: &Source,
    thread: &Thread,
    facts: &ThreadFacts,
    ephemeral: bool,
    with_turns: bool,
) -> Result<wire::Thread, RpcError> {
    let view = with_turns.then_some(ItemsView::Full);
    let (id, originator) = (facts.id, facts.originator.clone());
    let shown = match source {
        Source::New | Source::NewAs(_) => new_thread(heddle, id, ephemeral, originator),
        // An ephemeral fork has no log: its turns are those of its source.
        Source::Fork(from, _) if ephemeral => {
            let forked_from_id = Some(from.to_string());
            let forked = past::thread(&call.hub, *from, view).await?;
            let new = new_thread(heddle, id, ephemeral, originator);
            wire::Thread { forked_from_id, turns: forked.turns, ..new }
        }
        Source::Resume(_) | Source::Fork(..) => past::thread(&call.hub, id, view).await?,
    };
    let cwd = thread.directory().display().to_string();
    Ok(wire::Thread {
        environments: Some(vec![Environment::local(&cwd)]),
        model_provider: facts.provider.clone(),
        model: Some(facts.model.clone()),
        status: Status::Idle,
        path: facts.log_path.as_ref().map(|path| path.display().to_string()),
        cwd,
        can_accept_direct_input: Some(true),
        ..shown
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

/// Returns the preferences of the server, overridden by the settings of a client.
pub(super) fn preferences(base: &Preferences, settings: &Settings) -> Preferences {
    let mut merged = base.clone();
    merged.overrides.extend(settings.overrides());
    if settings.model.is_some() {
        merged.model.clone_from(&settings.model);
    }
    if let Some(sandbox) = settings.sandbox {
        merged.sandbox = Some(match sandbox {
            request::Sandbox::ReadOnly => SandboxMode::ReadOnly,
            request::Sandbox::WorkspaceWrite => SandboxMode::WorkspaceWrite,
            request::Sandbox::DangerFullAccess => SandboxMode::DangerFullAccess,
        });
    }
    merged
}

fn thread_settings(facts: &ThreadFacts, opening: &Opening, directory: &Path) -> ThreadSettings {
    let cwd = directory.display().to_string();
    let sandbox = sandbox(&facts.profile, directory);
    let approval = facts.approval_policy.unwrap_or_default().into();
    let (model, provider) = (facts.model.clone(), facts.provider.clone());
    let Settings { effort, summary, .. } = opening.settings.clone();
    let mut settings = ThreadSettings::new(model, provider, cwd, sandbox, approval);
    (settings.reasoning_effort, settings.summary) = (effort, summary);
    settings.mode = (facts.mode.into(), facts.mode_instructions.clone());
    settings
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

impl From<Approval> for ApprovalPolicy {
    fn from(approval: Approval) -> Self {
        match approval {
            Approval::Untrusted => Self::Untrusted,
            Approval::OnRequest => Self::OnRequest,
            Approval::Never => Self::Never,
            Approval::Granular { granular: Granular { sandbox_approval, rules, .. } } => {
                Self::Granular(heddle::policy::Granular { sandbox_approval, rules })
            }
        }
    }
}

impl From<ApprovalPolicy> for Approval {
    fn from(policy: ApprovalPolicy) -> Self {
        match policy {
            ApprovalPolicy::Untrusted => Self::Untrusted,
            ApprovalPolicy::OnRequest => Self::OnRequest,
            ApprovalPolicy::Never => Self::Never,
            ApprovalPolicy::Granular(heddle::policy::Granular { sandbox_approval, rules }) => {
                let granular = Granular { sandbox_approval, rules, ..Granular::default() };
                Self::Granular { granular }
            }
        }
    }
}

impl From<&SandboxPolicy> for wire::Sandbox {
    fn from(policy: &SandboxPolicy) -> Self {
        match policy.clone() {
            SandboxPolicy::DangerFullAccess => Self::DangerFullAccess,
            SandboxPolicy::ReadOnly { network_access } => Self::ReadOnly { network_access },
            SandboxPolicy::WorkspaceWrite {
                writable_roots,
                network_access,
                exclude_tmpdir_env_var,
                exclude_slash_tmp,
            } => Self::WorkspaceWrite {
                writable_roots,
                network_access,
                exclude_tmpdir_env_var,
                exclude_slash_tmp,
            },
        }
    }
}

pub(super) async fn refuse_archived(heddle: &Heddle, thread: ThreadId) -> Result<(), RpcError> {
    match heddle.threads().find(thread).await.map_err(refused)? {
        Some(found) if found.archived => Err(RpcError::invalid(format!(
            "thread {thread} is archived; call thread/unarchive first"
        ))),
        _ => Ok(()),
    }
}

/// Converts an error of the library for the client.
pub(super) fn refused(error: Error) -> RpcError {
    match (error.kind(), error.thread_id()) {
        (ErrorKind::NoSuchThread, Some(id)) => {
            RpcError::invalid(format!("no rollout found for thread id {id}"))
        }
        // The process that uses the thread may finish soon.
        (ErrorKind::Settings | ErrorKind::ThreadInUse, _) => RpcError::invalid(chain(&error)),
        _ => RpcError::internal(chain(&error)),
    }
}

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        refused(error)
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
