//! Threads that run in this process.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::UserTurnInput;
use log::{Line, Replay, Step};
use policy::ApprovalPolicy;
use protocol::error::LimitKind;
use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::open::Raw;
use runtime::{Control, Library};
use tokio::runtime::Handle;
use tools::{RunningCommand, Sessions};

use crate::error::Error;
use crate::files::{self, Leases};
use crate::host::blocking;
use crate::notice::{Notice, Observer};
use crate::session::assemble::{self, Injected, Ready, ThreadRequest};
use crate::session::host_tools::HostTools;
use crate::session::past::{Start, Stores};
use crate::session::scratch::Scratch;
use crate::session::{safety, settings};
use crate::spec::ThreadSpec;
use crate::thread::ThreadFacts;
use crate::transport::sealed::Open;
use crate::transport::{
    Ended, InjectFuture, OpenFuture, Running, Session, Surroundings, Transport, TurnRequest, Work,
};
use crate::turn::EventSink;

/// Runs threads in this process. This is the default transport of a [`Heddle`](crate::Heddle).
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl Transport for InProcess {}

impl Open for InProcess {
    fn open(&self, surroundings: Surroundings, spec: ThreadSpec) -> OpenFuture<'_> {
        Box::pin(blocking(move |runtime| {
            let session = open(&surroundings, runtime, spec)?;
            Ok(Arc::new(session) as Arc<dyn Session>)
        }))
    }
}

/// A thread that is open in this process.
#[derive(Debug)]
struct LocalSession {
    facts: ThreadFacts,
    notices: Vec<Notice>,
    sessions: Arc<Sessions>,
    /// Limits of turns, from the settings.
    limits: engine::Limits,
    /// What the endpoint takes.
    endpoint: history::Profile,
    running: Arc<tokio::sync::Mutex<runtime::Thread>>,
    /// Input that was added to a turn after its last request: the next turn begins with it.
    unsaid: Mutex<Vec<UserTurnInput>>,
    library: Library,
    /// Files of an ephemeral thread; none for a saved thread.
    leases: Option<Leases>,
    /// Kept until nothing runs any more.
    scratch: Mutex<Option<Scratch>>,
}

impl Session for LocalSession {
    fn id(&self) -> Option<ThreadId> {
        Some(self.facts.id)
    }

    fn facts(&self) -> Option<&ThreadFacts> {
        Some(&self.facts)
    }

    fn directory(&self) -> &Path {
        &self.facts.directory
    }

    fn notices(&self) -> &[Notice] {
        &self.notices
    }

    fn run(self: Arc<Self>, turn: TurnRequest, events: EventSink) -> Running {
        Box::pin(run(self, turn, events))
    }

    fn has_unsaid(&self) -> bool {
        !lock(&self.unsaid).is_empty()
    }

    fn inject(&self, items: Vec<Raw>) -> InjectFuture<'_> {
        Box::pin(async move {
            let mut thread = self.running.try_lock().map_err(|_| Error::busy())?;
            if thread.is_closed() {
                return Err(Error::closed());
            }
            let mut repairs = Vec::new();
            let check = |entries| {
                // Items of a program were made by no model that is known.
                let checked = history::check(entries, &[], &self.endpoint);
                repairs = checked.repairs;
                checked.entries
            };
            thread.inject(items, check).await.map_err(Error::storage)?;
            Ok(repairs)
        })
    }

    fn running_commands(&self) -> Vec<RunningCommand> {
        self.sessions.running()
    }

    fn stop_command(&self, session: u64) -> bool {
        self.sessions.stop_session(session)
    }

    fn history_len(&self) -> Option<usize> {
        self.running.try_lock().ok().map(|thread| thread.items())
    }

    fn can_limit(&self, _: LimitKind) -> bool {
        true
    }

    fn kill_commands(&self) {
        self.sessions.kill_all();
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + '_>> {
        Box::pin(async {
            let ended = self.running.lock().await.shutdown().await;
            lock(&self.scratch).take();
            ended
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn run(session: Arc<LocalSession>, turn: TurnRequest, events: EventSink) -> Ended {
    let TurnRequest { id, work, schema, limits, mut control } = turn;
    let running = Arc::clone(&session.running);
    let Ok(mut thread) = running.try_lock_owned() else { return Ended::Busy };
    if thread.is_closed() {
        return Ended::Closed;
    }
    let before = thread.usage();
    thread.set_limits(limits.over(session.limits));
    let sent = events.clone();
    let mut sink = |event: Event| {
        sent.push(event);
        ControlFlow::Continue(())
    };
    match work {
        Work::Compact => {
            thread.compact(id, &mut control, &mut sink).await;
        }
        Work::RunCommand(command) => {
            thread.run_user_command(id, command, &mut control, &mut sink).await;
        }
        Work::Review(target) => {
            thread.review(id, target, &mut control, &mut sink).await;
        }
        Work::Say(input) => {
            let LocalSession { library, facts, leases, .. } = &*session;
            // `attached` is held until the log refers to the files.
            let (said, attached, warnings) =
                match files::prepare(input, library, &facts.directory, true).await {
                    Ok(prepared) => prepared,
                    Err(error) => return Ended::NotAttached(Arc::new(error)),
                };
            files::report(&attached, &events);
            if let Some(leases) = leases {
                leases.keep(&attached);
            }
            for warning in warnings {
                let _ = sink(Event::Warning(warning));
            }
            thread.set_output_schema(schema);
            let mut all = std::mem::take(&mut *lock(&session.unsaid));
            if all.is_empty() || !said.is_empty() {
                all.push(said.into_turn_input());
            }
            thread.run_named_turn(id, all, &mut control, &mut sink).await;
        }
    }
    // From here on, no input is accepted, so that all accepted input is kept for the next turn.
    control.close();
    while let Ok(late) = control.try_recv() {
        if let Control::Steer(said) = late {
            lock(&session.unsaid).extend(said);
        }
    }
    Ended::Ran { before, now: thread.usage() }
}

fn open(
    surroundings: &Surroundings,
    runtime: &Handle,
    spec: ThreadSpec,
) -> Result<LocalSession, Error> {
    let Surroundings { host, stores, clock, library } = surroundings;
    let ThreadSpec {
        start,
        fork_point,
        directory,
        preferences,
        settings,
        ephemeral,
        ignore_rules,
        approval,
        // Each turn has its own limits.
        limits: _,
        originator,
        source,
        tools,
        registries,
        approver,
        judge,
        backend,
        observer,
        mode,
        mode_instructions,
    } = spec;
    let directory = match (directory, start) {
        (Some(directory), _) => Some(directory),
        (None, Start::New | Start::NewAs(_)) => None,
        (None, Start::Resume(id) | Start::Fork(id)) => {
            runtime.block_on(recorded_directory(stores, id))?
        }
    };
    let host = host.at(directory.as_deref())?;
    let notices = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&notices);
    let observer = Observer::new(move |notice: Notice| {
        if let Some(observer) = &observer {
            observer.tell(notice.clone());
        }
        if !matches!(notice, Notice::DaemonLoading(_)) {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(notice);
        }
    });
    let settings = match settings {
        Some(settings) => *settings,
        None => settings::load(&host, preferences)?,
    };
    let approval = match (approval, &approver) {
        (Some(policy), _) => policy,
        (None, None) => ApprovalPolicy::Never,
        (None, Some(_)) => match settings.config.approval_policy {
            None => ApprovalPolicy::OnRequest,
            Some(_) => safety::approval(&settings.config),
        },
    };
    let override_name = host.env.get(ORIGINATOR).filter(|name| !name.is_empty());
    let originator = override_name.cloned().or(originator).unwrap_or_else(|| "heddle".to_owned());
    let request = ThreadRequest {
        start,
        fork_point,
        ephemeral,
        ignore_rules,
        settings,
        approval,
        originator: originator.clone(),
        source: source.unwrap_or_else(|| "exec".to_owned()),
        injected: Injected { tools: HostTools { own: tools, registries }, judge, model: backend },
        observer,
        clock: clock.clone(),
        library: library.clone(),
        mode,
        mode_instructions,
    };
    let mut ready = assemble::thread(&host, stores, runtime, request)?;
    if let Some(approver) = approver {
        ready.thread.set_approver(approver);
    }
    let notices = std::mem::take(&mut *notices.lock().unwrap_or_else(PoisonError::into_inner));
    let session = LocalSession::new(ready, host.directory, originator, notices, library.clone());
    Ok(LocalSession { leases: ephemeral.then(Leases::default), ..session })
}

impl LocalSession {
    fn new(
        ready: Ready,
        directory: PathBuf,
        originator: String,
        notices: Vec<Notice>,
        library: Library,
    ) -> Self {
        let Ready {
            thread,
            model,
            provider,
            sessions,
            profile,
            approval,
            window,
            path,
            hide_reasoning,
            show_raw_reasoning,
            endpoint,
            mode,
            told_of_mode,
            scratch,
        } = ready;
        let facts = ThreadFacts {
            id: thread.id(),
            model,
            provider,
            directory,
            originator,
            profile,
            approval_policy: Some(approval),
            context_window: window,
            log_path: path,
            usage: thread.usage(),
            hide_reasoning,
            show_raw_reasoning,
            mode,
            mode_instructions: told_of_mode,
        };
        let limits = thread.limits();
        let running = Arc::new(tokio::sync::Mutex::new(thread));
        let unsaid = Mutex::default();
        Self {
            facts,
            notices,
            sessions,
            endpoint,
            limits,
            running,
            unsaid,
            library,
            leases: None,
            scratch: Mutex::new(scratch),
        }
    }
}

/// The environment variable that overrides the originator, whatever the program sets.
const ORIGINATOR: &str = "CODEX_INTERNAL_ORIGINATOR_OVERRIDE";

/// Returns the directory a thread last worked in, if it still exists.
async fn recorded_directory(stores: &Stores, id: ThreadId) -> Result<Option<PathBuf>, Error> {
    let (mut directory, mut replay) = (None, Replay::default());
    let sink = &mut |line: &Line<'_>| {
        if let Step::Context(context) = replay.line(line)
            && let Some((cwd, _)) = context.place()
        {
            directory = Some(PathBuf::from(cwd.into_owned()));
        }
    };
    stores.of(id).read(id, sink).await?;
    Ok(directory.filter(|directory| directory.is_absolute() && directory.is_dir()))
}
