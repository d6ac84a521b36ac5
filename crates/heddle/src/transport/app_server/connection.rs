//! The connection to an app-server: sends requests, and passes each answer and message to the task or thread that it
//! belongs to.
//!
//! ```text
//! sessions ──requests──▶ writer task ──▶ stdin   the program   stdout ──▶ reader task ──▶ mailboxes, answers
//!                                   or ──▶ a WebSocket to it, both ways ──▶
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use protocol::id::ThreadId;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::transport::app_server::mailbox::Mailbox;
use crate::transport::app_server::socket::{ServerAddress, SocketSink, SocketSource};
use crate::transport::error::TransportError;
use crate::transport::process::Process;
use crate::transport::program::Program;

/// A message of the server that belongs to a thread.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) method: String,
    pub(crate) params: Box<RawValue>,
    /// The id for the answer; none for a notification.
    pub(crate) id: Option<Value>,
    /// When it was sent, in milliseconds since 1970, if the message has that time.
    pub(crate) sent_ms: Option<u64>,
}

/// A connection to a server. When it is dropped, the server's stdin is closed, which ends the server.
#[derive(Debug)]
pub(crate) struct Connection {
    program: String,
    next: AtomicU64,
    lines: mpsc::UnboundedSender<String>,
    state: Arc<Mutex<State>>,
    reader: tokio::task::JoinHandle<()>,
    answer_timeout: Duration,
    /// How long the server may send nothing during a turn.
    silence_timeout: Duration,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<u64, oneshot::Sender<Result<Box<RawValue>, TransportError>>>,
    threads: HashMap<String, Weak<Mailbox>>,
    /// Why there will be no more messages.
    broken: Option<TransportError>,
}

/// How long to wait for a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the answer to a request.
    pub(crate) answer: Duration,
    /// For any message during a turn.
    pub(crate) silence: Duration,
}

impl Connection {
    /// Starts `program` as an app-server.
    pub(crate) fn start(program: &Program) -> Result<Self, TransportError> {
        let mut process = program.start(["app-server".into()], &[], None)?.ends_as_server();
        let stdin = process.take_stdin();
        let (lines, to_write) = mpsc::unbounded_channel();
        tokio::spawn(write(stdin, to_write));
        let source = Source::Program(Box::new(process));
        let patience = Patience { answer: program.startup(), silence: program.silence() };
        Ok(Self::new(program.name(), source, lines, patience))
    }

    /// Connects to an app-server that is running.
    pub(crate) async fn open(address: &ServerAddress) -> Result<Self, TransportError> {
        let (sink, source) = address.connect().await?;
        let (lines, to_write) = mpsc::unbounded_channel();
        tokio::spawn(write_frames(sink, to_write));
        Ok(Self::new(address.to_string(), Source::Socket(source), lines, ServerAddress::PATIENCE))
    }

    fn new(
        program: String,
        source: Source,
        lines: mpsc::UnboundedSender<String>,
        patience: Patience,
    ) -> Self {
        let state = Arc::<Mutex<State>>::default();
        let reader = tokio::spawn(read(source, Arc::clone(&state), lines.downgrade()));
        let Patience { answer: answer_timeout, silence: silence_timeout } = patience;
        let next = AtomicU64::new(0);
        Self { program, next, lines, state, reader, answer_timeout, silence_timeout }
    }

    /// Makes a request and waits for its answer, for a limited time.
    pub(crate) async fn request(
        &self,
        method: &'static str,
        params: Value,
    ) -> Result<Box<RawValue>, TransportError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut state = lock(&self.state);
            if let Some(error) = &state.broken {
                return Err(error.clone());
            }
            state.waiting.insert(id, sender);
        }
        self.send(&json!({"method": method, "id": id, "params": params}));
        let result = timeout(self.answer_timeout, answer).await;
        lock(&self.state).waiting.remove(&id);
        match result {
            Ok(Ok(answer)) => answer,
            // The reader has ended, and has recorded why.
            Ok(Err(_)) => Err(self.broken()),
            Err(_) => Err(self.timed_out(self.answer_timeout, "a request was to be answered")),
        }
    }

    /// Returns how long the server may send nothing during a turn.
    pub(crate) fn silence(&self) -> Duration {
        self.silence_timeout
    }

    /// Returns the error for a server that sent nothing for too long during a turn.
    pub(crate) fn silent(&self) -> TransportError {
        self.timed_out(self.silence_timeout, "a turn was running")
    }

    fn timed_out(&self, waited: Duration, waiting_for: &'static str) -> TransportError {
        let (program, printed) = (self.program.clone(), Default::default());
        TransportError::TimedOut { program, waited, waiting_for, printed }
    }

    /// Sends a message that has no answer, or a request whose answer is ignored.
    pub(crate) fn send(&self, message: &Value) {
        // If the writer has ended, the reader reports the error.
        let _ = self.lines.send(format!("{message}\n"));
    }

    /// Sends a request whose answer is ignored.
    pub(crate) fn post(&self, method: &str, params: Value) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.send(&json!({"method": method, "id": id, "params": params}));
    }

    /// Answers a request of the server, with a result or with the message of an error.
    pub(crate) fn reply(&self, id: &Value, result: Result<Value, &str>) {
        self.send(&match result {
            Ok(result) => json!({"id": id, "result": result}),
            Err(message) => json!({"id": id, "error": {"code": REFUSED, "message": message}}),
        });
    }

    /// Delivers the messages of a thread to `mailbox` from now on.
    pub(crate) fn follow(&self, thread: ThreadId, mailbox: &Arc<Mailbox>) {
        let mut state = lock(&self.state);
        state.threads.retain(|_, mailbox| mailbox.strong_count() > 0);
        state.threads.insert(thread.to_string(), Arc::downgrade(mailbox));
    }

    /// Returns the error for a message whose fields are not those of its method.
    pub(crate) fn unreadable(&self, error: &dyn std::fmt::Display) -> TransportError {
        TransportError::Malformed {
            program: self.program.clone(),
            reason: stdx::visible::line(&error.to_string()).into_owned(),
            line: String::new(),
            printed: Default::default(),
        }
    }

    /// Returns why there are no more messages.
    pub(crate) fn broken(&self) -> TransportError {
        lock(&self.state).broken.clone().unwrap_or_else(|| disconnected(&self.program))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The reader owns the process; dropping that ends it.
        self.reader.abort();
    }
}

/// The JSON-RPC error code of an answer that refuses.
const REFUSED: i64 = -32600;

async fn write(stdin: Option<ChildStdin>, mut lines: mpsc::UnboundedReceiver<String>) {
    let Some(mut stdin) = stdin else { return };
    while let Some(line) = lines.recv().await {
        if stdin.write_all(line.as_bytes()).await.is_err() {
            // The program has ended or closed its input; the reader reports the error.
            return;
        }
    }
}

async fn write_frames(mut sink: SocketSink, mut lines: mpsc::UnboundedReceiver<String>) {
    while let Some(line) = lines.recv().await {
        if !sink.send(&line).await {
            // The reader reports the error.
            return;
        }
    }
}

/// The source of the server's messages.
enum Source {
    Program(Box<Process>),
    Socket(SocketSource),
}

impl Source {
    /// Returns the next message, or why there are no more.
    async fn next(&mut self) -> Result<Vec<u8>, TransportError> {
        match self {
            Self::Socket(socket) => socket.next().await,
            Self::Program(process) => match process.next_line().await? {
                Some(line) => Ok(line),
                None => Err(process.ended_early().await),
            },
        }
    }

    fn malformed(&self, line: &[u8], reason: String) -> TransportError {
        match self {
            Self::Program(process) => process.malformed(line, reason),
            Self::Socket(socket) => socket.malformed(line, reason),
        }
    }
}

/// Reads the messages of the server until it ends.
async fn read(
    mut source: Source,
    state: Arc<Mutex<State>>,
    lines: mpsc::WeakUnboundedSender<String>,
) {
    let error = loop {
        match source.next().await {
            Ok(line) => match serde_json::from_slice::<Message>(&line) {
                Ok(message) => {
                    if let Some(refused) = deliver(&state, message).await
                        && let Some(lines) = lines.upgrade()
                    {
                        let _ = lines.send(refused);
                    }
                }
                Err(_) if line.iter().all(u8::is_ascii_whitespace) => {}
                Err(error) => break source.malformed(&line, error.to_string()),
            },
            Err(error) => break error,
        }
    };
    let (waiting, threads) = {
        let mut state = lock(&state);
        state.broken = Some(error.clone());
        (std::mem::take(&mut state.waiting), std::mem::take(&mut state.threads))
    };
    for answer in waiting.into_values() {
        let _ = answer.send(Err(error.clone()));
    }
    for mailbox in threads.into_values().filter_map(|mailbox| mailbox.upgrade()) {
        mailbox.close(error.clone());
    }
}

/// A message in either direction.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<WireError>,
    #[serde(default, rename = "emittedAtMs")]
    sent_ms: Option<u64>,
}

#[derive(Deserialize)]
struct WireError {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

/// Passes a message to its thread, and an answer to its request. Returns the refusal of a question that belongs to no
/// thread.
async fn deliver(state: &Mutex<State>, message: Message) -> Option<String> {
    let Message { id, method, params, result, error, sent_ms } = message;
    let Some(method) = method else {
        let id = id.as_ref().and_then(Value::as_u64)?;
        let answer = lock(state).waiting.remove(&id)?;
        let _ = answer.send(match (result, error) {
            (_, Some(error)) => Err(TransportError::Refused {
                code: error.code,
                message: stdx::visible::lines(&error.message).into_owned(),
            }),
            (Some(result), None) => Ok(result),
            (None, None) => Ok(RawValue::NULL.to_owned()),
        });
        return None;
    };
    let params = params.unwrap_or_else(|| RawValue::NULL.to_owned());
    let of_thread: OfThread = serde_json::from_str(params.get()).unwrap_or_default();
    let mailbox = of_thread
        .thread_id
        .and_then(|thread| lock(state).threads.get(&*thread).and_then(Weak::upgrade));
    let incoming = Incoming { method, params, id, sent_ms };
    match mailbox {
        Some(mailbox) => mailbox.put(incoming).await,
        None => incoming.id.map(|id| {
            let message = "no thread of this client has this question";
            format!("{}\n", json!({"id": id, "error": {"code": REFUSED, "message": message}}))
        }),
    }
}

#[derive(Default, Deserialize)]
struct OfThread {
    #[serde(default, rename = "threadId")]
    thread_id: Option<String>,
}

fn disconnected(program: &str) -> TransportError {
    TransportError::Disconnected {
        program: program.to_owned(),
        reason: "it was closed".to_owned(),
        printed: Default::default(),
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
