//! [`AppServer`]: one process for all threads, which speaks JSON-RPC.

mod connection;
mod dynamic_tools;
mod items;
#[cfg(test)]
mod kinds;
mod mailbox;
mod open;
mod question;
mod read;
mod socket;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use engine::prompt;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use protocol::approval::Answer;
use protocol::call::UserCommand;
use protocol::error::LimitKind;
use protocol::event::Event;
use protocol::file::Digest;
use protocol::id::{ApprovalId, ThreadId};
use protocol::item::CompactionReason;
use protocol::usage::Usage;
use protocol::user::UserInput;
use runtime::{Approver, Clock, Control, Library};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::Error;
use crate::files::{self, Attachment};
use crate::input::{Given, Input};
use crate::notice::Notice;
use crate::spec::{Provided, ThreadSpec};
use crate::thread::ThreadFacts;
use crate::transport::app_server::connection::{Connection, Incoming};
use crate::transport::app_server::dynamic_tools::{Called, DynamicTools};
use crate::transport::app_server::mailbox::Mailbox;
use crate::transport::app_server::question::{Asked, Questions};
use crate::transport::app_server::read::{Notification, TurnReader};
pub use crate::transport::app_server::socket::{InvalidAddress, ServerAddress};
use crate::transport::checked::{Checked, Turns};
use crate::transport::exec::{INTERRUPT_PATIENCE, at};
use crate::transport::process::LATE_TIMEOUT;
use crate::transport::program::{too_old, version};
use crate::transport::sealed::Open;
use crate::transport::{
    Ended, OpenFuture, Program, Running, Session, Surroundings, Transport, TransportError,
    TurnRequest, Work,
};
use crate::turn::{EventSink, LimitWatch, TurnLimits};

/// Runs all threads in one process, `heddle app-server` or `codex app-server`, which keeps running between turns.
///
/// Cheap to clone; all clones use the same process. It ends when the last clone and the last thread are dropped. If it
/// ends earlier, every running turn and every later one fails with an error that has its stderr: start another server.
///
/// * Messages of a thread are read while its turn is polled. If a turn is not polled for long, the server waits, and
///   with it the other threads of the connection.
/// * The model can call the tools of the host program that existed when the thread began.
/// * A judge and a model of the host program are not possible.
#[derive(Clone, Debug)]
pub struct AppServer {
    connection: Arc<Connection>,
    /// Whether the program is heddle, not the reference.
    heddle: bool,
}

impl AppServer {
    /// Starts the program, and initializes the connection to it.
    pub async fn start(program: impl Into<Program>) -> Result<Self, TransportError> {
        let program = program.into();
        let connection = Connection::start(&program)?;
        Self::introduce(connection, program.client_name(), |said| program.too_old(said)).await
    }

    /// Connects to an app-server that is running, on a socket, so that many programs can use the same threads. The
    /// threads go on when this program has exited, except for turns whose [`Turn`](crate::Turn) was dropped.
    pub async fn connect(address: ServerAddress) -> Result<Self, TransportError> {
        let connection = Connection::open(&address).await?;
        let old = |said: &str| too_old(address.to_string(), said);
        Self::introduce(connection, address.client_name(), old).await
    }

    async fn introduce(
        connection: Connection,
        name: &str,
        old: impl FnOnce(&str) -> TransportError,
    ) -> Result<Self, TransportError> {
        let client = json!({"name": name, "title": name, "version": env!("CARGO_PKG_VERSION")});
        let capabilities = json!({"experimentalApi": true});
        let params = json!({"clientInfo": client, "capabilities": capabilities});
        let answer = connection.request("initialize", params).await?;
        let Introduction { user_agent } =
            serde_json::from_str(answer.get()).unwrap_or_else(|_| Introduction::default());
        // The user agent begins with the name of the client and the version of the server.
        let server = user_agent.split_whitespace().next().unwrap_or_default();
        if version(server).is_none() {
            return Err(old(&user_agent));
        }
        connection.send(&json!({"method": "initialized"}));
        // In this place the reference has the name of the terminal.
        let heddle = user_agent.contains(") heddle/");
        Ok(Self { connection: Arc::new(connection), heddle })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Introduction {
    user_agent: String,
}

impl Transport for AppServer {}

impl Open for AppServer {
    fn open(&self, surroundings: Surroundings, spec: ThreadSpec) -> OpenFuture<'_> {
        let server = self.clone();
        Box::pin(async move {
            let session = open_session(server, surroundings, spec).await?;
            Ok(Arc::new(Checked::new(Arc::new(session), Turns::Many)) as Arc<dyn Session>)
        })
    }
}

async fn open_session(
    server: AppServer,
    surroundings: Surroundings,
    mut spec: ThreadSpec,
) -> Result<ServerSession, Error> {
    let AppServer { connection, heddle } = server;
    let possible = |part: &Provided| match part {
        Provided::Approver | Provided::Tools => true,
        Provided::Judge | Provided::Model => false,
    };
    if let Some(part) = spec.provided().find(|part| !possible(part)) {
        return Err(unsupported(part.name()).into());
    }
    let approver = spec.approver.take();
    let (own, registries) = (std::mem::take(&mut spec.tools), std::mem::take(&mut spec.registries));
    let tools = DynamicTools::new(own, registries)?;
    let mut request = open::OpenRequest::new(&surroundings.host, spec, approver.is_some())?;
    // A thread that is resumed or forked keeps the tools that it began with.
    if request.method == "thread/start" && !tools.specs().is_empty() {
        request.params["dynamicTools"] = tools.specs().into();
    }
    let answer = connection.request(request.method, request.params).await?;
    let facts = open::facts(answer.get()).map_err(|error| connection.unreadable(&error))?;
    let mailbox = Arc::<Mailbox>::default();
    connection.follow(facts.id, &mailbox);
    Ok(ServerSession {
        usage: Mutex::new(facts.usage),
        facts,
        heddle,
        approver,
        tools,
        clock: surroundings.clock,
        library: surroundings.library,
        wire: Wire { connection, mailbox },
        running: Arc::default(),
        abandoned: Arc::default(),
        closed: AtomicBool::new(false),
    })
}

/// A thread of the server.
struct ServerSession {
    facts: ThreadFacts,
    /// Whether the server is heddle, not the reference.
    heddle: bool,
    approver: Option<Arc<dyn Approver>>,
    tools: DynamicTools,
    clock: Clock,
    library: Library,
    wire: Wire,
    /// Tokens that the thread has used.
    usage: Mutex<Usage>,
    /// Locked while a turn runs.
    running: Arc<tokio::sync::Mutex<()>>,
    /// Whether the caller has dropped the running turn, so that it ends soon.
    abandoned: Arc<AtomicBool>,
    closed: AtomicBool,
}

impl fmt::Debug for ServerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSession").field("id", &self.facts.id).finish_non_exhaustive()
    }
}

/// The connection to the server, and the messages from it.
#[derive(Clone, Debug)]
struct Wire {
    connection: Arc<Connection>,
    mailbox: Arc<Mailbox>,
}

impl Session for ServerSession {
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
        &[]
    }

    fn run(self: Arc<Self>, turn: TurnRequest, events: EventSink) -> Running {
        Box::pin(async move {
            let locked = match Arc::clone(&self.running).try_lock_owned() {
                Ok(locked) => locked,
                // The turn was dropped, so its end is near.
                Err(_) if self.abandoned.load(Ordering::SeqCst) => {
                    Arc::clone(&self.running).lock_owned().await
                }
                Err(_) => return Ended::Busy,
            };
            if self.closed.load(Ordering::SeqCst) {
                return Ended::Closed;
            }
            self.turn(turn, events, locked).await.unwrap_or_else(Ended::Lost)
        })
    }

    fn history_len(&self) -> Option<usize> {
        None
    }

    fn can_limit(&self, _: LimitKind) -> bool {
        true
    }

    fn kill_commands(&self) {
        // The commands run in the server, and end with it.
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + '_>> {
        Box::pin(async {
            let _running = self.running.lock().await;
            if !self.closed.swap(true, Ordering::SeqCst) {
                let thread = self.facts.id.to_string();
                self.wire.connection.post("thread/unsubscribe", json!({"threadId": thread}));
            }
            Vec::new()
        })
    }
}

impl ServerSession {
    async fn turn(
        &self,
        turn: TurnRequest,
        events: EventSink,
        locked: OwnedMutexGuard<()>,
    ) -> Result<Ended, TransportError> {
        let TurnRequest { work, schema, limits, control, .. } = turn;
        let before = self.used();
        let mut watched = limits;
        let thread = self.facts.id.to_string();
        // The server reads the files at some time during the turn.
        let leases: Vec<Attachment>;
        let (method, params, compaction) = match work {
            Work::Compact => {
                leases = Vec::new();
                let params = json!({"threadId": thread});
                ("thread/compact/start", params, CompactionReason::Requested)
            }
            Work::RunCommand(UserCommand { command, timeout_ms }) => {
                leases = Vec::new();
                let params =
                    json!({"threadId": thread, "command": command, "timeoutMs": timeout_ms});
                ("thread/shellCommand", params, CompactionReason::Requested)
            }
            Work::Review(target) => {
                leases = Vec::new();
                let params = json!({"threadId": thread, "target": target});
                ("review/start", params, CompactionReason::NearlyFull)
            }
            Work::Say(input) => {
                let directory = &self.facts.directory;
                // Images are read by the server.
                let prepared = files::prepare(input, &self.library, directory, false).await;
                let (input, attached, _) = match prepared {
                    Ok(prepared) => prepared,
                    Err(error) => return Ok(Ended::NotAttached(Arc::new(error))),
                };
                let texts = files::read_texts(&attached, &self.library).await?;
                let mut params = json!({
                    "threadId": thread,
                    "input": write_input(&input, &texts, directory)?,
                });
                files::report(&attached, &events);
                leases = attached;
                if let Some(id) = input.own_id() {
                    params["clientUserMessageId"] = id.into();
                }
                if let Some(schema) = schema {
                    // The reference ignores this field.
                    if let Some(retries) = schema.check.retries() {
                        params["outputRetries"] = retries.into();
                    }
                    params["outputSchema"] =
                        serde_json::from_str(schema.json.get()).unwrap_or_default();
                }
                if self.heddle {
                    // heddle enforces these limits itself, and reports tokens only at the end.
                    let TurnLimits { tokens, calls, requests, time: _ } = limits;
                    params["heddleLimits"] =
                        json!({"tokens": tokens, "calls": calls, "requests": requests});
                    watched = TurnLimits { time: limits.time, ..TurnLimits::new() };
                }
                ("turn/start", params, CompactionReason::NearlyFull)
            }
        };
        let running = RunningTurn::begin(self, thread, locked);
        let answer = self.wire.connection.request(method, params).await?;
        let mut watch = Watch {
            wire: &self.wire,
            thread: &running.thread,
            reader: TurnReader::new(before, compaction),
            events: &events,
            limits: LimitWatch::new(watched),
            clock: &self.clock,
            questions: Questions::new(self.approver.clone(), self.facts.directory.clone()),
            tools: &self.tools,
            approver: self.approver.as_ref(),
            give_up: None,
            heard: Instant::now(),
        };
        if let Some(id) = open::turn_id(answer.get()) {
            watch.reader.set_turn(&id);
            events.set_id(&id);
        }
        watch.run_to_end(control).await?;
        let now = watch.reader.usage();
        drop(leases);
        running.end();
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = now;
        Ok(Ended::Ran { before, now })
    }

    fn used(&self) -> Usage {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the inputs of a turn. The protocol has no input for PDFs.
fn write_input(
    input: &Input,
    texts: &HashMap<Digest, String>,
    directory: &Path,
) -> Result<Vec<Value>, TransportError> {
    let write = |part| match part {
        Given::Part(part) => Ok(items::write_input(part, directory)),
        Given::Attached(attachment) => {
            let file = attachment.reference();
            if file.kind.is_image() {
                return Ok(json!({"type": "localImage", "path": attachment.path()}));
            }
            let text = texts.get(&file.sha256).ok_or_else(|| unsupported("a PDF"))?;
            let text = UserInput::text(prompt::file_text(&file.name, text));
            Ok(items::write_input(&text, directory))
        }
    };
    input.given().map(write).collect()
}

/// A turn that the server runs. If it is dropped before its end, it is interrupted, and the next turn waits for its
/// end.
#[derive(Debug)]
struct RunningTurn {
    thread: String,
    wire: Wire,
    abandoned: Arc<AtomicBool>,
    locked: Option<OwnedMutexGuard<()>>,
}

impl RunningTurn {
    fn begin(session: &ServerSession, thread: String, locked: OwnedMutexGuard<()>) -> Self {
        let (wire, abandoned) = (session.wire.clone(), Arc::clone(&session.abandoned));
        wire.mailbox.open();
        Self { thread, wire, abandoned, locked: Some(locked) }
    }

    fn end(mut self) {
        self.wire.mailbox.shut();
        self.locked = None;
    }
}

impl Drop for RunningTurn {
    fn drop(&mut self) {
        let Some(locked) = self.locked.take() else { return };
        // Without an id, this interrupts whatever turn is running.
        let params = json!({"threadId": self.thread, "turnId": ""});
        self.wire.connection.post("turn/interrupt", params);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            self.wire.mailbox.shut();
            return;
        };
        self.abandoned.store(true, Ordering::SeqCst);
        let (wire, abandoned) = (self.wire.clone(), Arc::clone(&self.abandoned));
        runtime.spawn(async move {
            let ended = async {
                while let Ok(message) = wire.mailbox.take().await {
                    if message.method == "turn/completed" {
                        break;
                    }
                }
            };
            // If the server does not end the turn in time, it refuses the next one.
            let _ = timeout(INTERRUPT_PATIENCE, ended).await;
            wire.mailbox.shut();
            abandoned.store(false, Ordering::SeqCst);
            drop(locked);
        });
    }
}

/// An answer to a request of the server, while it is being worked out.
enum Wanted {
    /// The approver's answer to a question.
    Answer(Asked),
    /// The output of a tool of the host program.
    Output(Called),
}

/// A running turn: reads its messages, answers its requests, and watches its limits.
struct Watch<'a> {
    wire: &'a Wire,
    thread: &'a str,
    reader: TurnReader,
    events: &'a EventSink,
    limits: LimitWatch,
    clock: &'a Clock,
    questions: Questions,
    tools: &'a DynamicTools,
    approver: Option<&'a Arc<dyn Approver>>,
    /// The deadline for an interrupted turn to end by itself.
    give_up: Option<Instant>,
    /// When the server last sent a message, or got an answer to its request.
    heard: Instant,
}

impl Watch<'_> {
    async fn run_to_end(
        &mut self,
        mut control: mpsc::Receiver<Control>,
    ) -> Result<(), TransportError> {
        let (mut open, mut calls) = (FuturesUnordered::new(), FuturesUnordered::new());
        while !self.reader.is_over() {
            self.events.room().await;
            // The server is silent while it waits for this side.
            let may_wait = !open.is_empty() || !calls.is_empty();
            tokio::select! {
                biased;
                Some(control) = control.recv() => self.control(control),
                () = at(self.limits.deadline()) => {
                    self.limits.time_is_up();
                    self.interrupt();
                }
                () = at(self.give_up) => {
                    let interrupted = Event::TurnInterrupted { at_ms: self.clock.now_ms() };
                    self.events.push(self.limits.shown(interrupted));
                    break;
                }
                Some(answered) = open.next(), if !open.is_empty() => {
                    self.answered(answered);
                    self.heard = Instant::now();
                }
                Some((id, output)) = calls.next(), if !calls.is_empty() => {
                    self.wire.connection.reply(&id, Ok(output));
                    self.heard = Instant::now();
                }
                message = self.next_message(may_wait) => {
                    self.heard = Instant::now();
                    match self.message(message?)? {
                        Some(Wanted::Answer(asked)) => open.push(asked),
                        Some(Wanted::Output(called)) => calls.push(called),
                        None => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes the next message, which must arrive in time unless the server itself waits for an answer.
    async fn next_message(&self, may_wait: bool) -> Result<Incoming, TransportError> {
        let (connection, mailbox) = (&self.wire.connection, &self.wire.mailbox);
        let Some(end) = self.heard.checked_add(connection.silence()).filter(|_| !may_wait) else {
            return mailbox.take().await;
        };
        match timeout_at(end, mailbox.take()).await {
            Ok(message) => message,
            // A message that arrived while the turn was not polled is seen only after the runtime has polled the
            // socket.
            Err(_) => match timeout(LATE_TIMEOUT, mailbox.take()).await {
                Ok(message) => message,
                Err(_) => Err(connection.silent()),
            },
        }
    }

    fn control(&mut self, control: Control) {
        match control {
            Control::Interrupt => self.interrupt(),
            Control::Steer(said) => {
                let turn = self.reader.turn().unwrap_or_default();
                for input in said {
                    let input = items::write_inputs(&input.message, Path::new("/"));
                    let params =
                        json!({"threadId": self.thread, "expectedTurnId": turn, "input": input});
                    self.wire.connection.post("turn/steer", params);
                }
            }
        }
    }

    /// Asks the server to end the turn.
    fn interrupt(&mut self) {
        self.give_up.get_or_insert(Instant::now() + INTERRUPT_PATIENCE);
        let turn = self.reader.turn().unwrap_or_default();
        let params = json!({"threadId": self.thread, "turnId": turn});
        self.wire.connection.post("turn/interrupt", params);
    }

    /// Reads a message; returns the answer to work out, if it is a request of the server.
    fn message(&mut self, message: Incoming) -> Result<Option<Wanted>, TransportError> {
        let Incoming { method, params, id, sent_ms } = message;
        let Some(id) = id else {
            if method == "serverRequest/resolved" {
                self.resolved(params.get());
                return Ok(None);
            }
            let at_ms = sent_ms.unwrap_or_else(|| self.clock.now_ms());
            let notification = Notification { method: &method, params: &params, at_ms };
            let (used, mut reached) = (self.reader.usage(), false);
            let read = self.reader.read(notification, &mut |event| {
                reached |= self.limits.observe(&event);
                self.events.push(self.limits.shown(event));
            });
            // Servers report tokens when an answer is complete.
            if self.reader.usage() != used {
                self.limits.answered(self.reader.turn_usage().total_tokens());
            }
            if reached {
                self.interrupt();
            }
            return read.map(|()| None).map_err(|error| self.wire.connection.unreadable(&error));
        };
        let item = |name: &str| self.reader.item(name);
        let wanted = if method == dynamic_tools::METHOD {
            let called = self.tools.call(params.get(), id.clone(), self.approver.cloned());
            called.map(Wanted::Output)
        } else {
            let asked = self.questions.ask(&method, params.get(), id.clone(), item);
            asked.map(|(event, asked)| {
                self.events.push(event);
                Wanted::Answer(asked)
            })
        };
        match wanted {
            Ok(wanted) => Ok(Some(wanted)),
            Err(refusal) => {
                self.wire.connection.reply(&id, Err(&refusal));
                Ok(None)
            }
        }
    }

    fn answered(&mut self, (id, approval, answer): (Value, ApprovalId, Answer)) {
        if let Some(event) = self.questions.close(approval, &answer) {
            self.wire.connection.reply(&id, Ok(question::to_wire(&answer)));
            self.events.push(event);
        }
    }

    /// Closes a question that another client has answered, or that is not open any more.
    fn resolved(&mut self, params: &str) {
        if let Some(event) = self.questions.withdraw(params) {
            self.events.push(event);
        }
    }
}

fn unsupported(what: &str) -> TransportError {
    TransportError::Unsupported {
        what: what.to_owned(),
        transport: "the app-server",
        instead: "run the thread in this process",
    }
}
