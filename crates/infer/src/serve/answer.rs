//! One answer, from the bytes of a request to its last frame.
//!
//! ```text
//! read ─▶ begin a round ─▶ tokens ─▶ frames ─▶ end
//!           ▲                │ calls of the daemon's own tools
//!           └── outputs ◀────┘ at most ROUNDS_MAX times
//! ```
//!
//! CPU-intensive work (parsing, building prompts, tokenizing, compiling a grammar) runs on another thread than
//! the one that serves. During every wait, a stream gets its keep-alive comments, and a disconnected client ends
//! the wait.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use prompt::reader::Reader;
use prompt::refusal::Refusal;
use prompt::reply::{Api, KEEP_ALIVE, Reply, Stamp};
use prompt::request::{Choice, Message, Request, Tool};
use prompt::{Delta, Ending};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::account::{Account, Outcome};
use super::body::Body;
use super::problem::Problem;
use super::stop::Stop;
use super::upload::Upload;
use super::{LoadedModel, Server, unix_seconds};
use crate::engine::{Ended, Generation, Job, Step, UNWANTED};
use crate::home::random_hex;
use crate::panics::contain;

/// How often a model continues after the daemon's tools have run.
const ROUNDS_MAX: usize = 8;
/// How much output is collected before it is sent, if it arrives faster than it is read.
const GATHER_BYTES_MAX: usize = 16 * 1024;
/// Prompt tokens are counted up to this multiple of the context size, so that the error can state the number.
const COUNTED_MAX: u64 = 4;
/// The metadata entry with which tests force a call.
const FORCED_CALL: &str = "heddle_forced_call";

/// A forced call.
#[derive(Clone, Debug, Deserialize)]
struct Forced {
    name: String,
    arguments: String,
}

/// An answer that is ready to start.
pub(crate) struct Begun {
    server: Arc<Server>,
    loaded: Arc<LoadedModel>,
    request: Arc<Request>,
    /// Names of the client's own tools.
    clients: BTreeSet<String>,
    reply: Reply,
    first: First,
}

enum First {
    Round(Box<Round>),
    Forced(Forced),
}

/// One prompt and its generation.
struct Round {
    generation: Generation,
    reader: Reader,
    input: u64,
    profile: &'static str,
    left_out: usize,
}

/// Reads a request and starts an answer, or returns an error.
pub(crate) async fn respond(
    server: &Arc<Server>,
    api: Api,
    body: &mut Upload,
    account: &mut Account,
) -> Result<Begun, Problem> {
    let received = server.read_body(body).await?;
    let own: Vec<Tool> = server.tools.offered().cloned().collect();
    let read = move || match api {
        Api::Responses => prompt::responses::read(&received.bytes, &own),
        Api::Chat => prompt::chat::read(&received.bytes),
    };
    let request = beside(read).await??;
    account.stream = request.stream;
    if !server.is_model(&request.model) {
        return Err(Refusal::UnknownModel { model: request.model }.into());
    }
    let loaded = server.loaded().await?;
    let clients = request.tools.iter().map(|tool| &tool.name);
    let clients = clients.filter(|name| !request.own.contains(*name)).cloned().collect();
    let forced = forced(server, &request)?;
    let id = random_hex(16).map_err(|error| Problem::failed(error.to_string()))?;
    let stamp = Stamp { id, created_at: unix_seconds(), model: loaded.name.clone() };
    let reply = Reply::new(api, &request, stamp);
    let request = Arc::new(request);
    let first = match forced {
        Some(forced) => First::Forced(forced),
        None => First::Round(Box::new(begin(&loaded, Arc::clone(&request)).await??)),
    };
    Ok(Begun { server: Arc::clone(server), loaded, request, clients, reply, first })
}

/// Returns the forced call of a request, if tests may force one.
fn forced(server: &Server, request: &Request) -> Result<Option<Forced>, Problem> {
    let Some(text) = request.metadata.get(FORCED_CALL).filter(|_| server.forced_calls) else {
        return Ok(None);
    };
    let forced = serde_json::from_str(text.as_str().unwrap_or_default());
    forced.map(Some).map_err(|error| {
        Problem::from(Refusal::Invalid {
            message: format!("write {{\"name\": …, \"arguments\": \"…\"}} as text: {error}"),
            param: Some(format!("metadata.{FORCED_CALL}")),
        })
    })
}

/// Builds the prompt of a round and starts it.
async fn begin(
    loaded: &Arc<LoadedModel>,
    request: Arc<Request>,
) -> Result<Result<Round, Refusal>, Problem> {
    let loaded = Arc::clone(loaded);
    let wanted = Arc::new(());
    let waited_for = Arc::downgrade(&wanted);
    // Dropping this future cancels the work.
    let begun = beside(move || start(&loaded, &request, || waited_for.strong_count() > 0)).await;
    drop(wanted);
    begun
}

/// Builds the prompt and starts the generation, as long as the client is waiting.
fn start(
    loaded: &LoadedModel,
    request: &Request,
    is_wanted: impl Fn() -> bool + Sync,
) -> Result<Round, Refusal> {
    let model = loaded.model();
    let prompt = loaded.compose(&model, request)?;
    let limit = u64::from(loaded.engine.context_tokens());
    let fits = |count: usize| (count as u64) <= limit.saturating_mul(COUNTED_MAX);
    let tokens =
        loaded.engine.tokenise_while(&prompt.pieces, &mut |count| fits(count) && is_wanted());
    if !is_wanted() {
        return Err(Refusal::Invalid { message: UNWANTED.to_owned(), param: None });
    }
    let input = tokens.len() as u64;
    if !fits(tokens.len()) {
        return Err(Refusal::FarTooLong { counted: input, limit });
    }
    let bounds = [request.output_tokens_max, prompt.output_tokens_max];
    let reader = prompt.reader(&model);
    let job = Job {
        prompt: tokens,
        grammar: prompt.grammar,
        sampling: prompt.sampling,
        output_tokens_max: bounds.into_iter().flatten().min(),
        cache_key: request.cache_key.clone(),
    };
    let generation = loaded.engine.start_tried(job, &request.trials, &is_wanted)?;
    let left_out = prompt.left_out.len() + request.left_out.len();
    Ok(Round { generation, reader, input, profile: prompt.profile, left_out })
}

/// Runs CPU-intensive work on another thread.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(|| contain(work)).await;
    // A bug in handling one request is no reason to end the others.
    let stumbled = || {
        Problem::failed("the request caused an internal error in the daemon; please report this")
    };
    done.map_err(|_| stumbled())?.map_err(|_| stumbled())
}

impl Begun {
    /// Responds: immediately if it is streamed, otherwise when it is complete.
    pub(crate) async fn response(self, mut account: Account) -> Response<Body> {
        let Self { server, loaded, request, clients, reply, first } = self;
        let stream = request.stream;
        if stream {
            account.sent();
        }
        let (frames, body) = mpsc::channel(server.limits.frames_max);
        let answer = Answer {
            sink: stream.then_some(frames),
            keep_alive: Instant::now() + server.limits.keep_alive,
            server,
            loaded,
            request,
            clients,
            reply,
            account,
            out: Vec::new(),
            calls: 0,
        };
        if stream {
            tokio::spawn(async move { drop(answer.run(first).await) });
            let mut response = Response::new(Body::Frames(body));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            return response;
        }
        match answer.run(first).await {
            Ok(body) => {
                let mut response = Response::new(Body::whole(body));
                let kind = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
            Err(problem) => problem.response(),
        }
    }
}

/// Why an answer does not continue.
enum Broken {
    /// The client disconnected.
    Left,
    /// The daemon is shutting down.
    Over,
    /// Something failed; a code for the log, and a message for the client.
    Failed(&'static str, String),
}

/// An answer in progress.
struct Answer {
    server: Arc<Server>,
    loaded: Arc<LoadedModel>,
    request: Arc<Request>,
    clients: BTreeSet<String>,
    reply: Reply,
    account: Account,
    /// `None` if it is not streamed: then dropping the answer ends it.
    sink: Option<mpsc::Sender<Bytes>>,
    /// When a silent stream gets its next comment.
    keep_alive: Instant,
    /// Frames that were not sent yet.
    out: Vec<u8>,
    /// How many calls earlier rounds made.
    calls: usize,
}

/// The text of one round, as the next one reads it.
#[derive(Default)]
struct RoundText {
    reasoning: String,
    commentary: String,
    text: String,
}

impl Answer {
    /// Runs the answer to its end; returns the whole of it, if it was not streamed.
    async fn run(mut self, first: First) -> Result<Vec<u8>, Problem> {
        match self.rounds(first).await {
            Ok(ending) => {
                let usage = self.account.usage;
                self.account.sent();
                self.reply.finish(ending, usage, &mut self.out);
                self.account.outcome = match ending {
                    Ending::Stop => Outcome::Completed,
                    Ending::Length => Outcome::Incomplete,
                };
                if self.flush().await.is_err() {
                    self.account.outcome = Outcome::Cancelled;
                }
                if self.sink.is_some() { Ok(Vec::new()) } else { Ok(self.reply.into_body()) }
            }
            Err(Broken::Left) => Ok(Vec::new()),
            Err(Broken::Over) => {
                self.fail("shutting_down", "the daemon is ending", Problem::shutting_down()).await
            }
            Err(Broken::Failed(code, message)) => {
                let problem = Problem::failed(message.clone());
                self.fail(code, &message, problem).await
            }
        }
    }

    /// Reports a failure: inside a stream, or instead of an answer.
    async fn fail(
        &mut self,
        code: &'static str,
        message: &str,
        problem: Problem,
    ) -> Result<Vec<u8>, Problem> {
        self.account.failed(code);
        if self.sink.is_none() {
            self.account.status = StatusCode::as_u16(&problem.status);
            return Err(problem);
        }
        self.reply.fail(message, &mut self.out);
        if let Some(sink) = &self.sink {
            // The client may be gone, and there is no time to wait for it.
            let _ = sink.send_timeout(Bytes::from(std::mem::take(&mut self.out)), LAST_FRAME).await;
        }
        Ok(Vec::new())
    }

    async fn rounds(&mut self, first: First) -> Result<Ending, Broken> {
        self.reply.begin(&mut self.out);
        self.flush().await?;
        let whole_max = self.request.output_tokens_max;
        let (mut next, mut round) = (first, 0);
        loop {
            round += 1;
            let mut said = RoundText::default();
            let ending = match next {
                First::Round(round) => self.generate(*round, &mut said).await?,
                First::Forced(forced) => self.force(&forced),
            };
            let ours_only = self.run_tools(ending, said).await?;
            // In the last round a grammar forbids calls; this covers the rest.
            if !ours_only || round >= ROUNDS_MAX {
                return Ok(ending);
            }
            // The required call was made, and at some point there has to be an answer.
            let request = Arc::make_mut(&mut self.request);
            request.choice = match &request.choice {
                _ if round + 1 >= ROUNDS_MAX => Choice::None,
                Choice::None => Choice::None,
                _ => Choice::Auto,
            };
            // The limit applies to all rounds together.
            let used = u32::try_from(self.account.usage.output).unwrap_or(u32::MAX);
            request.output_tokens_max = whole_max.map(|max| max.saturating_sub(used));
            if request.output_tokens_max == Some(0) {
                return Ok(Ending::Length);
            }
            next = First::Round(Box::new(self.next_round().await?));
        }
    }

    /// Starts the round after the outputs of the daemon's tools.
    async fn next_round(&mut self) -> Result<Round, Broken> {
        let (loaded, request) = (Arc::clone(&self.loaded), Arc::clone(&self.request));
        let begun = self.meanwhile(async move { begin(&loaded, request).await }).await?;
        let failed = |error: String| Broken::Failed("next_round", error);
        begun
            .map_err(|_| failed("the daemon stumbled between two rounds".to_owned()))?
            .map_err(|refusal| failed(refusal.to_string()))
    }

    /// Reads the generated tokens, and forwards them.
    async fn generate(&mut self, round: Round, said: &mut RoundText) -> Result<Ending, Broken> {
        let Round { mut generation, mut reader, input, profile, left_out } = round;
        self.account.profile = Some(profile).filter(|profile| !profile.is_empty());
        self.account.left_out = left_out;
        self.account.usage.input += input;
        let loaded = Arc::clone(&self.loaded);
        let mut stop = Stop::new(&self.request.stop);
        let ended = 'over: loop {
            let mut step = self.meanwhile(generation.steps.recv()).await?;
            loop {
                match step {
                    Some(Step::Begun { cached }) => {
                        self.account.begun();
                        self.account.usage.cached += u64::from(cached);
                    }
                    Some(Step::Token(id)) => {
                        self.account.token(id);
                        self.account.usage.output += 1;
                        let token = loaded.engine.token(id);
                        let mut take = |delta: Delta<'_>| self.take(delta, said);
                        reader.push(token, &mut |delta| stop.push(delta, &mut take));
                        if stop.found() {
                            break 'over Ended::Stop;
                        }
                    }
                    Some(Step::Ended(ended)) => break 'over ended,
                    None => break 'over Ended::Failed("the engine stopped".to_owned()),
                }
                if self.out.len() > GATHER_BYTES_MAX {
                    break;
                }
                match generation.steps.try_recv() {
                    Ok(more) => step = Some(more),
                    Err(_) => break,
                }
            }
            self.flush().await?;
        };
        // Stops the generation immediately.
        drop(generation);
        let ending = match ended {
            Ended::Stop => Ok(Ending::Stop),
            Ended::Length => Ok(Ending::Length),
            Ended::Failed(reason) => Err(Broken::Failed("engine", reason)),
        };
        let mut take = |delta: Delta<'_>| self.take(delta, said);
        if let Ok(ending) = &ending {
            reader.ended(*ending, &mut |delta| stop.push(delta, &mut take));
        }
        reader.finish(&mut |delta| stop.push(delta, &mut take));
        stop.flush(&mut take);
        self.account.usage.reasoning += reader.reasoning_tokens();
        self.flush().await?;
        ending
    }

    /// Behaves as if the model had made a call.
    fn force(&mut self, Forced { name, arguments }: &Forced) -> Ending {
        let mut said = RoundText::default();
        self.take(Delta::Call { index: 0, name }, &mut said);
        self.take(Delta::Arguments { index: 0, text: arguments }, &mut said);
        self.take(Delta::CallEnd { index: 0, complete: true }, &mut said);
        Ending::Stop
    }

    /// Adds a piece to the reply, and remembers what the next round needs of it.
    fn take(&mut self, delta: Delta<'_>, said: &mut RoundText) {
        // Each round numbers its calls from zero; the reply numbers those of all rounds.
        let base = u32::try_from(self.calls).unwrap_or(u32::MAX);
        let delta = match delta {
            Delta::Reasoning(text) => {
                said.reasoning.push_str(text);
                delta
            }
            Delta::Commentary(text) => {
                said.commentary.push_str(text);
                delta
            }
            Delta::Text(text) => {
                said.text.push_str(text);
                delta
            }
            Delta::Call { index, name } => Delta::Call { index: base + index, name },
            Delta::Arguments { index, text } => Delta::Arguments { index: base + index, text },
            Delta::CallEnd { index, complete } => Delta::CallEnd { index: base + index, complete },
        };
        self.reply.push(delta, &mut self.out);
    }

    /// Runs the daemon's own calls of this round. Returns whether the model continues: there were some, and
    /// none for the client.
    async fn run_tools(&mut self, ending: Ending, said: RoundText) -> Result<bool, Broken> {
        let new: Vec<_> = self.reply.calls()[self.calls..].to_vec();
        self.calls += new.len();
        for call in &new {
            let known = self.clients.contains(&call.name);
            let shown = if known { &call.name } else { self.server.tools.known_name(&call.name) };
            self.account.called(shown);
        }
        let (theirs, ours): (Vec<_>, Vec<_>) = new
            .into_iter()
            .filter(|call| call.complete)
            .partition(|call| self.clients.contains(&call.name));
        if ours.is_empty() {
            return Ok(false);
        }
        self.flush().await?;
        let messages = &mut Arc::make_mut(&mut self.request).messages;
        if !said.reasoning.is_empty() {
            messages.push(Message::Reasoning(said.reasoning));
        }
        if !said.commentary.is_empty() {
            messages.push(Message::Commentary(said.commentary));
        }
        if !said.text.is_empty() {
            messages.push(Message::Assistant(said.text));
        }
        messages.extend(ours.iter().map(|call| Message::Call {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            free: false,
        }));
        for call in ours {
            let begun = Instant::now();
            let server = Arc::clone(&self.server);
            let request = Arc::clone(&self.request);
            let run = server.tools.run(&request.own, &call.name, &call.arguments);
            let output = self.meanwhile(run).await?;
            drop(request);
            self.account.ran(&call.name, output.status, begun.elapsed(), output.text.len());
            let completed = output.status == crate::tools::Status::Completed;
            self.reply.tool_output(&call.id, &output.text, completed, &mut self.out);
            self.flush().await?;
            let messages = &mut Arc::make_mut(&mut self.request).messages;
            messages.push(Message::Output { call_id: call.id, text: output.text });
        }
        Ok(theirs.is_empty() && ending == Ending::Stop)
    }

    /// Sends the pending frames; waits if the client is slow.
    async fn flush(&mut self) -> Result<(), Broken> {
        let Some(sink) = self.sink.clone().filter(|_| !self.out.is_empty()) else { return Ok(()) };
        let frames = Bytes::from(std::mem::take(&mut self.out));
        let sent = tokio::select! {
            sent = sink.send(frames) => sent.map_err(|_| Broken::Left),
            () = self.server.wait_for_end() => Err(Broken::Over),
        };
        self.keep_alive = Instant::now() + self.server.limits.keep_alive;
        sent
    }

    /// Waits for something while sending comments on a silent stream; ends when the client disconnects.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Broken> {
        let server = Arc::clone(&self.server);
        let mut over = std::pin::pin!(server.wait_for_end());
        let mut work = std::pin::pin!(work);
        let Some(sink) = self.sink.clone() else {
            return tokio::select! {
                done = work => Ok(done),
                () = over => Err(Broken::Over),
            };
        };
        loop {
            tokio::select! {
                biased;
                () = sink.closed() => return Err(Broken::Left),
                done = &mut work => return Ok(done),
                () = &mut over => return Err(Broken::Over),
                () = tokio::time::sleep_until(self.keep_alive) => {
                    // A client with unread frames needs no comment.
                    let _ = sink.try_send(Bytes::from_static(KEEP_ALIVE));
                    self.keep_alive = Instant::now() + self.server.limits.keep_alive;
                }
            }
        }
    }
}

/// How long the last frame of a failed stream may wait.
const LAST_FRAME: Duration = Duration::from_millis(200);
