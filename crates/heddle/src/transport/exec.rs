//! [`Exec`]: a process of its own for each turn, which prints JSON lines.

mod arguments;
mod prompt;
mod read;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::error::LimitKind;
use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::usage::Usage;
use runtime::{Clock, Control, Library};
use tokio::time::{Instant, sleep_until, timeout};

use crate::error::Error;
use crate::files;
use crate::notice::Notice;
use crate::session::past::Start;
use crate::spec::ThreadSpec;
use crate::structured_output::SchemaFile;
use crate::thread::ThreadFacts;
use crate::transport::checked::{Checked, Turns};
use crate::transport::exec::arguments::{Options, Run};
use crate::transport::exec::prompt::Prompt;
use crate::transport::exec::read::ExecReader;
pub(crate) use crate::transport::exec::read::{retry, texts};
use crate::transport::process::{GONE_TIMEOUT, Process};
use crate::transport::sealed::Open;
use crate::transport::{
    Ended, Exit, OpenFuture, Program, Running, Session, Surroundings, Transport, TransportError,
    TurnRequest, Work,
};
use crate::turn::{EventSink, LimitWatch, TurnLimits};

/// Runs each turn as a process of its own: `heddle exec --json` or `codex exec --json`.
///
/// The prompt goes to its stdin, and its stdout is read only while the turn is polled, so a slow reader makes the
/// program wait. When a turn is interrupted or dropped, its process gets SIGINT; it is killed if it does not end.
///
/// * A new thread has no id until its first turn has begun. A resumed thread works in the directory of its
///   [`Heddle`](crate::Heddle), unless the spec names another one.
/// * The program reports how many tokens the whole thread has used. So the first turn of a resumed thread that is
///   completed also counts the tokens before it. For a turn that fails or is interrupted, only heddle reports the
///   tokens; with the reference, the next turn counts them.
/// * Tools, an approver, a judge, a model, compaction and steering are not possible, as the program has no way to call
///   back.
#[derive(Clone, Debug)]
pub struct Exec {
    program: Program,
}

impl Exec {
    /// Creates a transport that runs turns with this program: a [`Program`], or its path or name.
    pub fn new(program: impl Into<Program>) -> Self {
        Self { program: program.into() }
    }
}

impl Transport for Exec {}

impl Open for Exec {
    fn open(&self, surroundings: Surroundings, spec: ThreadSpec) -> OpenFuture<'_> {
        Box::pin(async move {
            let session = open(self.program.clone(), surroundings, spec).await?;
            let turns = if session.options.ephemeral { Turns::One } else { Turns::Many };
            Ok(Arc::new(Checked::new(Arc::new(session), turns)) as Arc<dyn Session>)
        })
    }
}

async fn open(
    program: Program,
    surroundings: Surroundings,
    spec: ThreadSpec,
) -> Result<ExecSession, Error> {
    if let Some(part) = spec.provided().next() {
        return Err(unsupported(part.name()).into());
    }
    if let Start::NewAs(_) = spec.start {
        return Err(unsupported("an id of a new thread").into());
    }
    if spec.fork_point.is_some() {
        return Err(unsupported("a fork at a turn").into());
    }
    if spec.mode.is_some() || spec.mode_instructions.is_some() {
        return Err(unsupported("a mode").into());
    }
    let ThreadSpec {
        start,
        directory,
        preferences,
        settings,
        ephemeral,
        ignore_rules,
        approval,
        originator,
        source,
        ..
    } = spec;
    let directory = surroundings.host.at(directory.as_deref())?.directory;
    let options = Options {
        preferences: settings.map_or(preferences, |settings| settings.preferences),
        directory: Some(directory.clone()),
        approval,
        source,
        ephemeral,
        ignore_rules,
    };
    let heddle = program.version().await?.heddle;
    Ok(ExecSession {
        program,
        heddle,
        options,
        directory,
        originator,
        clock: surroundings.clock,
        library: surroundings.library,
        running: tokio::sync::Mutex::new(()),
        process: Arc::default(),
        state: Mutex::new(SessionState { from: start, usage: Usage::default(), closed: false }),
    })
}

/// A thread that has a process while a turn runs.
#[derive(Debug)]
struct ExecSession {
    program: Program,
    /// Whether the program is heddle, not the reference.
    heddle: bool,
    options: Options,
    directory: PathBuf,
    originator: Option<String>,
    clock: Clock,
    library: Library,
    /// Locked while a turn runs.
    running: tokio::sync::Mutex<()>,
    /// Locked until the process of a turn is gone, as it has the thread open; the process of a dropped turn takes a
    /// while.
    process: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<SessionState>,
}

#[derive(Debug)]
struct SessionState {
    /// How the next run opens the thread.
    from: Start,
    /// Tokens that the thread has used, as far as its runs have reported.
    usage: Usage,
    closed: bool,
}

impl Session for ExecSession {
    fn id(&self) -> Option<ThreadId> {
        match self.state().from {
            Start::Resume(thread) => Some(thread),
            Start::New | Start::NewAs(_) | Start::Fork(_) => None,
        }
    }

    fn facts(&self) -> Option<&ThreadFacts> {
        None
    }

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn notices(&self) -> &[Notice] {
        &[]
    }

    fn run(self: Arc<Self>, turn: TurnRequest, events: EventSink) -> Running {
        Box::pin(async move {
            let Ok(_running) = self.running.try_lock() else { return Ended::Busy };
            if self.state().closed {
                return Ended::Closed;
            }
            self.turn(turn, &events).await.unwrap_or_else(Ended::Lost)
        })
    }

    fn history_len(&self) -> Option<usize> {
        None
    }

    fn can_limit(&self, kind: LimitKind) -> bool {
        // The reference does not report requests and tokens before the end of the turn.
        self.heddle || !matches!(kind, LimitKind::Tokens | LimitKind::Requests)
    }

    fn kill_commands(&self) {
        // The commands run in the program, which ends them with its turn.
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + '_>> {
        Box::pin(async {
            let _running = self.running.lock().await;
            self.state().closed = true;
            Vec::new()
        })
    }
}

impl ExecSession {
    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn turn(&self, turn: TurnRequest, events: &EventSink) -> Result<Ended, TransportError> {
        let TurnRequest { work, schema, limits, control, .. } = turn;
        let input = match work {
            Work::Say(input) => input,
            Work::Compact => return Err(unsupported("compaction")),
            Work::RunCommand(_) => return Err(unsupported("a command of the user")),
            Work::Review(_) => return Err(unsupported("a review")),
        };
        if let Some(limit) = limits.set().find(|limit| !self.can_limit(limit.kind)) {
            return Err(unsupported(match limit.kind {
                LimitKind::Tokens => "a limit of tokens of a turn",
                _ => "a limit of requests of a turn",
            }));
        }
        // heddle enforces all limits but time by itself.
        let (by_program, watched) = match self.heddle {
            true => (limits, TurnLimits { time: limits.time, ..TurnLimits::new() }),
            false => (TurnLimits::new(), limits),
        };
        let (from, before) = {
            let state = self.state();
            (state.from, state.usage)
        };
        if self.options.ephemeral && matches!(from, Start::Resume(_)) {
            return Err(unsupported("a second turn of an ephemeral thread"));
        }
        let output_retries = schema.as_ref().and_then(|schema| schema.check.retries());
        // Images become flags, and the program reads them.
        let prepared = files::prepare(input, &self.library, &self.directory, false).await;
        let (input, attached, _) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Ok(Ended::NotAttached(Arc::new(error))),
        };
        // The reference has no flag for attached texts.
        let texts = match self.heddle {
            true => None,
            false => Some(files::read_texts(&attached, &self.library).await?),
        };
        let schema = schema.map(|schema| schema.json.get().to_owned());
        let prompt = Prompt::prepare(&input, texts, schema, &self.directory).await?;
        files::report(&attached, events);
        let run = Run {
            options: &self.options,
            from,
            limits: by_program,
            schema: prompt.schema.as_ref().map(SchemaFile::path),
            output_retries,
            images: &prompt.images,
            files: &prompt.files,
            heddle: self.heddle,
        };
        let arguments = arguments::arguments(&run);
        // It should never take longer, but nothing here waits without a limit.
        let free = timeout(GONE_TIMEOUT, Arc::clone(&self.process).lock_owned()).await;
        let mut process = self.start(arguments, prompt.text.clone())?;
        if let Ok(free) = free {
            process = process.holding(free);
        }
        process.wait_for(self.program.startup(), "it was started");
        let known = match from {
            Start::Resume(thread) => Some(thread),
            Start::New | Start::NewAs(_) | Start::Fork(_) => None,
        };
        let reader = ExecReader::new(self.directory.clone(), before, known);
        let limits = LimitWatch::new(watched);
        let mut watch =
            Watch { session: self, process, reader, events, limits, control, give_up: None };
        let ended = watch.run_to_end().await;
        let before = watch.reader.before();
        let now = watch.reader.usage().unwrap_or(before);
        self.state().usage = now;
        ended?;
        Ok(Ended::Ran { before, now })
    }

    fn start(&self, arguments: Vec<OsString>, prompt: String) -> Result<Process, TransportError> {
        let originator = self.originator.as_deref().map(|name| (ORIGINATOR, name));
        let vars: Vec<_> = originator.into_iter().collect();
        self.program.start(arguments, &vars, Some(prompt.into_bytes()))
    }
}

/// A running program: reads its lines, and watches the limits of the turn.
struct Watch<'a> {
    session: &'a ExecSession,
    process: Process,
    reader: ExecReader,
    events: &'a EventSink,
    limits: LimitWatch,
    control: tokio::sync::mpsc::Receiver<Control>,
    /// The deadline for an interrupted run to end by itself.
    give_up: Option<Instant>,
}

impl Watch<'_> {
    /// Reads the run to its end.
    async fn run_to_end(&mut self) -> Result<(), TransportError> {
        loop {
            self.events.room().await;
            tokio::select! {
                biased;
                Some(control) = self.control.recv() => self.control(control),
                () = at(self.limits.deadline()) => {
                    self.limits.time_is_up();
                    self.interrupt();
                }
                // Checked before the lines, of which there may always be one more.
                () = at(self.give_up) => {
                    // The process is dropped with this turn, and killed.
                    self.interrupted();
                    return Ok(());
                }
                line = self.process.next_line() => match line? {
                    Some(line) => {
                        self.process.wait_for(self.session.program.silence(), "a turn was running");
                        self.line(&line)?;
                        // A process that the program has started may hold its output open for any time.
                        if self.reader.is_over() {
                            break;
                        }
                    }
                    None => break,
                },
            }
        }
        let mut sink = |event| self.events.push(event);
        self.reader.finish(&mut sink);
        if self.reader.is_over() {
            // The answer is complete; a program that does not end now is killed. If it exits with an error, the turn
            // has failed, unless it was interrupted at the last moment.
            return match self.process.end().await {
                Some(exit)
                    if !matches!(exit, Exit::Code(0) | Exit::Unknown)
                        && self.reader.is_completed()
                        && self.give_up.is_none() =>
                {
                    Err(self.process.failed_at_end(exit))
                }
                _ => Ok(()),
            };
        }
        let error = self.process.ended_early().await;
        if self.give_up.is_some() {
            self.interrupted();
            return Ok(());
        }
        Err(error)
    }

    fn control(&mut self, control: Control) {
        match control {
            Control::Interrupt => self.interrupt(),
            Control::Steer(_) => self.events.push(Event::Warning(
                "what was added to the turn is lost: nothing can be added to a turn over exec"
                    .to_owned(),
            )),
        }
    }

    /// Asks the program to end the turn.
    fn interrupt(&mut self) {
        self.give_up.get_or_insert(Instant::now() + INTERRUPT_PATIENCE);
        self.reader.interrupt();
        self.process.interrupt();
    }

    fn interrupted(&self) {
        let interrupted = Event::TurnInterrupted { at_ms: self.session.clock.now_ms() };
        self.events.push(self.limits.shown(interrupted));
    }

    fn line(&mut self, line: &[u8]) -> Result<(), TransportError> {
        let at_ms = self.session.clock.now_ms();
        let mut reached = false;
        let mut events = Vec::new();
        let read = self.reader.read(line, at_ms, &mut |event| events.push(event));
        for event in events {
            reached |= self.limits.observe(&event);
            let mut shown = self.limits.shown(event);
            if let Event::TurnFailed { error, .. } = &mut shown {
                error.usage = error.usage.or(self.reader.turn_usage());
            }
            self.events.push(shown);
        }
        if reached {
            self.interrupt();
        }
        // Set at once, so that the thread can be resumed even if this turn fails or is dropped.
        if let Some(thread) = self.reader.thread() {
            self.session.state().from = Start::Resume(thread);
        }
        read.map_err(|error| self.process.malformed(line, error.reason))
    }
}

fn unsupported(what: &'static str) -> TransportError {
    TransportError::Unsupported {
        what: what.to_owned(),
        transport: NAME,
        instead: "run the thread in this process, or over the app-server",
    }
}

/// Waits until `deadline`; without one, for ever.
pub(crate) async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// How long an interrupted turn may take to report its end.
pub(crate) const INTERRUPT_PATIENCE: Duration = Duration::from_secs(5);
/// The name of the transport in messages.
const NAME: &str = "exec";
/// The environment variable with the name of the host program.
const ORIGINATOR: &str = "CODEX_INTERNAL_ORIGINATOR_OVERRIDE";
