//! `heddle app-server`: threads for another program, over JSON-RPC on stdin and stdout.
//!
//! What is said and decided is in the crate `server`. Here lines are read and written, and what a
//! connection wants done is done. Everything but the reading of stdin, the writing of stdout and the waiting
//! for signals is on one thread: a turn is a task of it. A client that does not read makes all of them wait,
//! and is given up when it takes nothing for too long: then turns are interrupted as if stdin had ended.

mod output;
mod threads;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use engine::context::user_parts;
use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::open::Open;
use protocol::responses::{ContentPart, KnownPart};
use runtime::{Control, Thread};
use server::lines::{Cut, Lines};
use server::request::UserInput;
use server::{Action, Connection, Facts, Input};
use tokio::sync::{Notify, mpsc};
use tools::Sessions;

use self::output::Output;

use crate::args::{AppServerArgs, SharedArgs};
use crate::bootstrap::{self, HostEnv};
use crate::failure::{Failure, code};
use crate::signals::{PATIENCE, Signals};
use crate::terminal;
use crate::user_input;

/// Lines that wait to be read.
const LINES_WAITING_MAX: usize = 16;

pub(crate) fn run(before: SharedArgs, args: AppServerArgs) -> Result<ExitCode, Failure> {
    let shared = args.shared.merge_over(before);
    let host = HostEnv::look(shared.directory.as_deref())?;
    let async_runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let tasks = tokio::task::LocalSet::new();
    let patience = Duration::from_secs(args.write_timeout.into());
    let done = tasks.block_on(&async_runtime, serve(host, shared, patience));
    // A name that is still being looked up is nobody's concern any more.
    async_runtime.shutdown_background();
    done
}

async fn serve(host: HostEnv, shared: SharedArgs, patience: Duration) -> Result<ExitCode, Failure> {
    let facts = Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        home: host.home.display().to_string(),
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        check_schema: |text| match bootstrap::output_schema(text) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{error:#}")),
        },
    };
    let running = AllSessions::default();
    let asked_to_end = Arc::new(Notify::new());
    let (stop, commands) = (Arc::clone(&asked_to_end), running.clone());
    let signals = Signals::watch(move || stop.notify_one(), move || commands.kill_all())
        .map_err(Failure::failed)?;
    let mut lines = read_lines(running.clone()).map_err(Failure::failed)?;
    let hub = Rc::new(Hub {
        host,
        shared,
        connection: RefCell::new(Connection::new(facts, Box::new(runtime::id::turn))),
        loaded: RefCell::default(),
        running,
        output: Output::start("stdout", std::io::stdout(), patience).map_err(Failure::failed)?,
        notes: Output::start("stderr", std::io::stderr(), patience).map_err(Failure::failed)?,
        over: Notify::new(),
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
            cut = lines.recv(), if !at_end => {
                at_end = cut.is_none();
                cut
            }
        };
        let input = match &cut {
            Some(Cut::Line(line)) => Input::Line(line),
            Some(Cut::Overlong) => Input::Overlong,
            None => Input::End,
        };
        // Whoever cannot be told ends the connection; that comes back as its end.
        let _ = hub.give(input);
    }
    hub.output.drain(PATIENCE);
    if hub.output.has_stalled() {
        let seconds = patience.as_secs();
        hub.note(&format!("the client has read nothing for {seconds} s, so everything was ended"));
        hub.notes.drain(LAST_WORDS);
        return Ok(ExitCode::from(code::FAILED));
    }
    // SIGTERM is a clean shutdown.
    Ok(match signals.received() {
        signal if signalled && signal != code::TERMINATED => ExitCode::from(signal),
        _ => ExitCode::SUCCESS,
    })
}

/// Reads stdin on a thread of its own; the channel closes at its end.
fn read_lines(running: AllSessions) -> std::io::Result<mpsc::Receiver<Cut>> {
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
                // With nobody to take them, the program is ending.
                let Ok(()) = sender.blocking_send(cut) else { return };
            }
        }
        if let Some(cut) = lines.finish() {
            let _ = sender.blocking_send(cut);
        }
        drop(sender);
        // A client that has gone may have left its end of stdout open and unread: then nothing else
        // would ever end us.
        std::thread::sleep(PATIENCE);
        running.kill_all();
        std::process::exit(0);
    })?;
    Ok(receiver)
}

const READ_BYTES: usize = 64 * 1024;
/// How long the last note may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The commands of all threads, to be ended with the program.
#[derive(Clone, Default)]
struct AllSessions(Arc<Mutex<Vec<Weak<Sessions>>>>);

impl AllSessions {
    fn add(&self, sessions: &Arc<Sessions>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|sessions| sessions.strong_count() > 0);
        all.push(Arc::downgrade(sessions));
    }

    fn kill_all(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).for_each(|sessions| sessions.kill_all());
    }
}

/// What all tasks share.
struct Hub {
    host: HostEnv,
    shared: SharedArgs,
    connection: RefCell<Connection>,
    loaded: RefCell<HashMap<ThreadId, ThreadTask>>,
    running: AllSessions,
    output: Output,
    /// What is said on stderr.
    notes: Output,
    over: Notify,
}

/// The task of a thread, seen from outside; without jobs to come it ends.
struct ThreadTask {
    jobs: mpsc::UnboundedSender<Job>,
    /// Ends the turn that runs.
    control: Option<mpsc::Sender<Control>>,
}

/// A turn that is to be run.
struct Job {
    turn: String,
    parts: Vec<ContentPart>,
    /// The text of what the answer must follow; it was checked when the turn was asked for.
    schema: Option<String>,
    control: mpsc::Receiver<Control>,
}

impl Hub {
    /// Tells the connection what happened, and does what it wants. Breaks off when nobody can be told.
    fn give(self: &Rc<Self>, input: Input<'_>) -> ControlFlow<()> {
        self.connection.borrow_mut().handle(runtime::id::now_ms(), input);
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
                    // Nobody reads: as if stdin had ended.
                    self.connection.borrow_mut().handle(runtime::id::now_ms(), Input::End);
                    return ControlFlow::Break(());
                }
            }
            Action::Note(text) => {
                self.note(&text);
            }
            Action::Open { request, loading, settings, client } => {
                let opened = threads::open(&self.host, &self.shared, loading, &settings, &client);
                let result = opened.map(|(opened, thread, sessions)| {
                    self.running.add(&sessions);
                    self.load(thread);
                    Box::new(opened)
                });
                return self.give(Input::Opened { request, loading, result });
            }
            Action::Read { request, thread, reading, turns, running } => {
                let result = threads::read(&self.host, thread, turns, running).map(Box::new);
                return self.give(Input::Read { request, thread, reading, result });
            }
            Action::List { request, asked, running } => {
                let result = threads::list(&self.host, &asked, running);
                return self.give(Input::Answered { request, result });
            }
            Action::Archive { request, thread } => {
                let result = threads::archive(&self.host, thread);
                return self.give(Input::Archived { request, thread, result });
            }
            Action::Unarchive { request, thread } => {
                let reading = server::Reading::Unarchive;
                let result = threads::unarchive(&self.host, thread).map(Box::new);
                return self.give(Input::Read { request, thread, reading, result });
            }
            Action::Run { thread, turn, input, schema } => {
                if let Some(loaded) = self.loaded.borrow_mut().get_mut(&thread) {
                    let (sender, control) = mpsc::channel(8);
                    loaded.control = Some(sender);
                    let parts = parts(&self.host.directory, input);
                    // The task is there for as long as it can be given jobs.
                    let _ = loaded.jobs.send(Job { turn, parts, schema, control });
                }
            }
            Action::Interrupt(thread) => {
                let loaded = self.loaded.borrow();
                if let Some(control) = loaded.get(&thread).and_then(|it| it.control.as_ref()) {
                    // A full queue holds an interruption already; a closed one belongs to a turn that
                    // has ended.
                    let _ = control.try_send(Control::Interrupt);
                }
            }
            Action::Close(thread) => drop(self.loaded.borrow_mut().remove(&thread)),
            Action::Exit => self.over.notify_one(),
        }
        ControlFlow::Continue(())
    }

    /// Says something on stderr, unless nobody takes it there.
    fn note(&self, text: &str) {
        self.notes.send_or_drop(&terminal::as_note(text));
    }

    /// Begins the task of a thread.
    fn load(self: &Rc<Self>, thread: Thread) {
        let (jobs, waiting) = mpsc::unbounded_channel();
        let id = thread.id();
        self.loaded.borrow_mut().insert(id, ThreadTask { jobs, control: None });
        tokio::task::spawn_local(run_thread(Rc::clone(self), thread, waiting));
    }
}

/// Runs the turns of a thread, one after the other, until nobody can ask for one any more.
async fn run_thread(hub: Rc<Hub>, mut thread: Thread, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let id = thread.id();
    while let Some(Job { turn, parts, schema, mut control }) = jobs.recv().await {
        thread.set_output_schema(schema.and_then(|text| bootstrap::output_schema(&text).ok()));
        let said = vec![user_parts(parts)];
        let mut sink = |event: &Event| hub.give(Input::Event { thread: id, event });
        thread.run_named_turn(turn, said, &mut control, &mut sink).await;
    }
    thread.shutdown().await;
    drop(thread);
    let _ = hub.give(Input::Closed(id));
}

/// Makes the parts of the user's message.
fn parts(directory: &Path, input: Vec<UserInput>) -> Vec<ContentPart> {
    let mut images = 0;
    let part = |input| match input {
        UserInput::Text { text, .. } => vec![KnownPart::input_text(text)],
        UserInput::Image { url } => {
            vec![Open::Known(KnownPart::InputImage { image_url: url, detail: None })]
        }
        UserInput::LocalImage { path } => {
            images += 1;
            user_input::image(images, &directory.join(path))
        }
    };
    input.into_iter().flat_map(part).collect()
}
