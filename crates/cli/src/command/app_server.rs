//! `heddle app-server`: serves threads to another program, as JSON-RPC over stdin and stdout.
//!
//! The crate `server` decides what to answer. This module reads and writes lines and performs the actions
//! that a connection asks for. All turns run on one OS thread, as a task each. stdin, stdout and signals have
//! one of their own, and logs are read in Tokio's pool for blocking work. A client that does not read blocks
//! all turns; if it reads nothing for too long, it is dropped, and turns are interrupted as at the end of
//! stdin.

mod output;
mod threads;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use heddle::session::check_output_schema;
use heddle::{Heddle, Thread, Turn, TurnHandle};
use protocol::id::ThreadId;
use server::lines::{Cut, Lines};
use server::{Action, Connection, Facts, Input};
use tokio::sync::{Notify, mpsc};

use self::output::Output;

use crate::args::{AppServerArgs, SharedArgs};
use crate::failure::{Failure, code};
use crate::host;
use crate::signals::{PATIENCE, Signals};
use crate::terminal;

/// Most lines in the input queue.
const LINES_WAITING_MAX: usize = 16;

pub(crate) fn run(before: SharedArgs, args: AppServerArgs) -> Result<ExitCode, Failure> {
    let shared = args.shared.merge_over(before);
    let heddle = host::heddle(shared.directory.as_deref())?;
    let async_runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let tasks = tokio::task::LocalSet::new();
    let patience = Duration::from_secs(args.write_timeout.into());
    let done = tasks.block_on(&async_runtime, serve(heddle, shared, patience));
    // A pending DNS lookup no longer matters.
    async_runtime.shutdown_background();
    done
}

async fn serve(
    heddle: Heddle,
    shared: SharedArgs,
    patience: Duration,
) -> Result<ExitCode, Failure> {
    let facts = Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        home: heddle.home().display().to_string(),
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        check_schema: |text| check_output_schema(text).map_err(|error| error.to_string()),
    };
    let running = OpenThreads::default();
    let asked_to_end = Arc::new(Notify::new());
    let (stop, commands) = (Arc::clone(&asked_to_end), running.clone());
    let signals = Signals::watch(move || stop.notify_one(), move || commands.kill_all())
        .map_err(Failure::failed)?;
    let mut lines = read_lines(running.clone()).map_err(Failure::failed)?;
    let (slow, mut waiting) = mpsc::unbounded_channel();
    let hub = Rc::new(Hub {
        heddle,
        shared,
        connection: RefCell::new(Connection::new(facts, Box::new(heddle::new_turn_id))),
        loaded: RefCell::default(),
        running,
        output: Output::start("stdout", std::io::stdout(), patience).map_err(Failure::failed)?,
        notes: Output::start("stderr", std::io::stderr(), patience).map_err(Failure::failed)?,
        over: Notify::new(),
        slow,
    });
    let mut signalled = false;
    let mut at_end = false;
    loop {
        let cut = tokio::select! {
            biased;
            () = hub.over.notified() => break,
            () = asked_to_end.notified() => {
                signalled = true;
                None
            }
            () = hub.output.stalled(), if !at_end => {
                at_end = true;
                None
            }
            Some(action) = waiting.recv() => {
                hub.perform_slowly(action).await;
                continue;
            }
            cut = lines.recv(), if !at_end => {
                at_end = cut.is_none();
                cut
            }
        };
        let input = match &cut {
            Some(Cut::Line(line)) => Input::Line(line),
            Some(Cut::Overlong(head)) => Input::Overlong(head),
            None => Input::End,
        };
        // A client that cannot be reached ends the connection; the loop sees that as its end.
        let _ = hub.give(input);
    }
    hub.output.drain(PATIENCE);
    if hub.output.has_stalled() {
        let seconds = patience.as_secs();
        hub.note(&format!("the client has read nothing for {seconds} s; shutting down"));
        hub.notes.drain(LAST_WORDS);
        return Ok(ExitCode::from(code::FAILED));
    }
    // SIGTERM is a clean shutdown.
    Ok(match signals.received() {
        signal if signalled && signal != code::TERMINATED => ExitCode::from(signal),
        _ => ExitCode::SUCCESS,
    })
}

/// Reads stdin on its own thread; the channel closes at the end of input.
fn read_lines(running: OpenThreads) -> std::io::Result<mpsc::Receiver<Cut>> {
    let (sender, receiver) = mpsc::channel(LINES_WAITING_MAX);
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut lines = Lines::default();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let cuts = match stdin.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => lines.push(&buffer[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            for cut in cuts {
                // If the receiver is gone, the program is exiting.
                let Ok(()) = sender.blocking_send(cut) else { return };
            }
        }
        if let Some(cut) = lines.finish() {
            let _ = sender.blocking_send(cut);
        }
        drop(sender);
        // A client that is gone may have left its end of stdout open and unread: then nothing else would ever
        // end this process.
        std::thread::sleep(PATIENCE);
        running.kill_all();
        std::process::exit(0);
    })?;
    Ok(receiver)
}

const READ_BYTES: usize = 64 * 1024;
/// How long writing the last note may take.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The open threads, whose commands are killed when the program exits.
#[derive(Clone, Default)]
struct OpenThreads(Arc<Mutex<HashMap<ThreadId, Thread>>>);

impl OpenThreads {
    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, Thread>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill_all(&self) {
        self.lock().values().for_each(Thread::kill_commands);
    }
}

/// What all tasks share.
struct Hub {
    heddle: Heddle,
    shared: SharedArgs,
    connection: RefCell<Connection>,
    loaded: RefCell<HashMap<ThreadId, ThreadTask>>,
    running: OpenThreads,
    output: Output,
    /// Writes to stderr.
    notes: Output,
    over: Notify,
    /// What takes a while, one after the other.
    slow: mpsc::UnboundedSender<Action>,
}

/// Handle of the task of a thread; the task ends when no more turns can be sent to it.
struct ThreadTask {
    turns: mpsc::UnboundedSender<Turn>,
    /// Handle of the running turn, to interrupt it.
    running: Option<TurnHandle>,
}

impl Hub {
    /// Passes an input to the connection and performs the resulting actions. Breaks when the client is gone.
    fn give(self: &Rc<Self>, input: Input<'_>) -> ControlFlow<()> {
        self.connection.borrow_mut().handle(heddle::now_ms(), input);
        let mut shown = ControlFlow::Continue(());
        loop {
            let action = self.connection.borrow_mut().poll();
            let Some(action) = action else { return shown };
            if self.perform(action).is_break() {
                shown = ControlFlow::Break(());
            }
        }
    }

    fn perform(self: &Rc<Self>, action: Action) -> ControlFlow<()> {
        match action {
            Action::Send(line) => {
                if self.output.send(&line).is_err() {
                    // The client does not read: treat it like the end of stdin.
                    self.connection.borrow_mut().handle(heddle::now_ms(), Input::End);
                    return ControlFlow::Break(());
                }
            }
            Action::Note(text) => {
                self.note(&text);
            }
            slow @ (Action::Open { .. }
            | Action::Read { .. }
            | Action::List { .. }
            | Action::Archive { .. }
            | Action::Unarchive { .. }) => {
                // They are done for as long as the connection is served.
                let _ = self.slow.send(slow);
            }
            Action::Run { thread, turn, input, client_id, schema } => {
                let input = input.into_iter().fold(heddle::Input::default(), heddle::Input::part);
                let input = client_id.into_iter().fold(input, heddle::Input::client_id);
                self.run(thread, turn, input, schema);
            }
            Action::Interrupt(thread) => {
                let loaded = self.loaded.borrow();
                if let Some(turn) = loaded.get(&thread).and_then(|it| it.running.as_ref()) {
                    turn.interrupt();
                }
            }
            Action::Close(thread) => drop(self.loaded.borrow_mut().remove(&thread)),
            Action::Exit => self.over.notify_one(),
        }
        ControlFlow::Continue(())
    }

    /// Does what takes a while: turns go on meanwhile, and further requests wait.
    async fn perform_slowly(self: &Rc<Self>, action: Action) {
        let heddle = &self.heddle;
        let done = match action {
            Action::Open { request, loading, settings, client } => {
                let opened = threads::open(heddle, &self.shared, loading, &settings, &client).await;
                let result = opened.map(|(opened, thread)| {
                    self.load(thread);
                    Box::new(opened)
                });
                Input::Opened { request, loading, result }
            }
            Action::Read { request, thread, reading, turns, running } => {
                let view = threads::view(turns);
                let result = threads::read(heddle, thread, view, running).await.map(Box::new);
                Input::Read { request, thread, reading, result }
            }
            Action::List { request, asked, running } => {
                let result = threads::list(heddle, &asked, running).await;
                Input::Answered { request, result }
            }
            Action::Archive { request, thread } => {
                let result = threads::archive(heddle, thread).await;
                Input::Archived { request, thread, result }
            }
            Action::Unarchive { request, thread } => {
                let reading = server::Reading::Unarchive;
                let result = threads::unarchive(heddle, thread).await.map(Box::new);
                Input::Read { request, thread, reading, result }
            }
            quick @ (Action::Send(_)
            | Action::Note(_)
            | Action::Run { .. }
            | Action::Interrupt(_)
            | Action::Close(_)
            | Action::Exit) => {
                let _ = self.perform(quick);
                return;
            }
        };
        // A client that cannot be reached ends the connection; the loop sees that as its end.
        let _ = self.give(done);
    }

    /// Writes a note to stderr, or drops it if stderr is not read.
    fn note(&self, text: &str) {
        self.notes.send_or_drop(&terminal::as_note(text));
    }

    /// Starts the task of a thread.
    fn load(self: &Rc<Self>, thread: Thread) {
        let (turns, waiting) = mpsc::unbounded_channel();
        let id = thread.id();
        self.running.lock().insert(id, thread.clone());
        self.loaded.borrow_mut().insert(id, ThreadTask { turns, running: None });
        tokio::task::spawn_local(run_thread(Rc::clone(self), thread, waiting));
    }

    /// Sends a turn to the task of a thread.
    fn run(&self, thread: ThreadId, id: String, input: heddle::Input, schema: Option<String>) {
        let mut loaded = self.loaded.borrow_mut();
        let (Some(task), Some(open)) =
            (loaded.get_mut(&thread), self.running.lock().get(&thread).cloned())
        else {
            return;
        };
        let mut turn = open.turn(input).with_id(id);
        if let Some(schema) = schema {
            // The schema was checked when the turn was requested.
            let _ = turn.set_output_schema(&schema);
        }
        task.running = Some(turn.handle());
        // The task lives as long as turns can be sent to it.
        let _ = task.turns.send(turn);
    }
}

/// Runs the turns of a thread one after the other, until no more can be requested.
async fn run_thread(hub: Rc<Hub>, thread: Thread, mut turns: mpsc::UnboundedReceiver<Turn>) {
    let id = thread.id();
    while let Some(mut turn) = turns.recv().await {
        let handle = turn.handle();
        while let Some(event) = turn.next().await {
            if hub.give(Input::Event { thread: id, event: &event }).is_break() {
                handle.interrupt();
            }
        }
    }
    thread.close().await;
    hub.running.lock().remove(&id);
    drop(thread);
    let _ = hub.give(Input::Closed(id));
}
