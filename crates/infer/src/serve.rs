//! The HTTP server, over any byte stream, with one model behind it.
//!
//! ```text
//! accept ─▶ connection ─▶ guard, route ─▶ read ─▶ compose, start ─▶ answer ─▶ frames
//!   │ bound    │ timeouts     │ 401 403 404 …      │ 400 413 429      │ tools, rounds
//! ```
//!
//! A request is refused with a status before its answer begins; later errors are reported inside the answer.
//! A disconnected client cancels its answer. Every wait has a limit in [`Limits`].

mod accept;
mod account;
mod answer;
mod body;
mod guard;
mod hangup;
mod problem;
mod route;
mod seat;
mod stall;
mod stop;
mod upload;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use prompt::date::Date;
use prompt::model::{Model, ModelError, ModelOptions};
use prompt::refusal::Refusal;
use prompt::reply::{Api, ModelCard};
use prompt::request::{Input, Tool};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

pub use accept::{Listeners, serve};
pub use body::Body;

use crate::engine::{Engine, Job, Stats};
use crate::log::Log;
use crate::metrics::{self, Metrics, Now};
use crate::template_guard;
use crate::tools::Tools;
use account::Account;
use guard::Token;
use hangup::Hangup;
use problem::Problem;
use route::Route;
use seat::Seat;
use stall::Stall;
use upload::Upload;

/// Version of the protocol between heddle's own clients and daemons, beyond the public APIs.
pub const PROTOCOL: &str = "1";
/// The header with that version.
pub const PROTOCOL_HEADER: &str = "x-heddle-protocol";
/// The header with the id of a request.
pub const REQUEST_ID_HEADER: &str = "x-request-id";

#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections per listener; a new one replaces one that has not requested anything, or is refused.
    pub connections_max: usize,
    pub request_bytes_max: usize,
    /// The bodies of all requests being read, together.
    pub requests_bytes_max: usize,
    /// Timeout for the head of a request, also after an earlier request.
    pub head_timeout: Duration,
    /// Timeout for the body of a request.
    pub body_timeout: Duration,
    /// How long a client may take to read.
    pub write_timeout: Duration,
    /// How long a stream may be silent before a comment is sent.
    pub keep_alive: Duration,
    /// Frames buffered for a client.
    pub frames_max: usize,
    /// How long answers may continue once the daemon was told to stop.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 128,
            request_bytes_max: prompt::request::REQUEST_BYTES_MAX,
            requests_bytes_max: 4 * prompt::request::REQUEST_BYTES_MAX,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            keep_alive: Duration::from_secs(15),
            frames_max: 16,
            grace: Duration::from_secs(10),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Through the Unix socket that only its owner can open.
    Socket,
    /// Through the TCP port that everyone on this machine can reach.
    Port,
}

/// The load state of the model.
#[derive(Clone, Debug)]
pub enum LoadState {
    /// Loading, with the progress from 0 to 1.
    Loading(f32),
    Ready(Arc<LoadedModel>),
    Failed(String),
}

/// A loaded model, and how to prompt it.
#[derive(Debug)]
pub struct LoadedModel {
    /// Its name in requests.
    pub name: String,
    pub engine: Arc<dyn Engine>,
    /// How prompts are built for it, and the day this is for.
    model: Mutex<(Date, Arc<Model>)>,
    /// When it was loaded, in Unix seconds.
    pub created_at: u64,
}

impl LoadedModel {
    pub fn new(
        name: String,
        engine: Arc<dyn Engine>,
        mut options: ModelOptions,
    ) -> Result<Self, ModelError> {
        let created_at = unix_seconds();
        let today = Date::from_unix_seconds(created_at);
        options.today = Some(today);
        if options.ids.is_empty() {
            options = options.with_ids(engine.facts(), |pieces| engine.tokenise(pieces));
        }
        let facts = engine.facts().clone();
        let model = Arc::new(template_guard::watched(&name, || Model::new(facts, options))?);
        Ok(Self { name, engine, model: Mutex::new((today, model)), created_at })
    }

    /// Checks that the model can call a tool: that the engine accepts the grammar of its arguments.
    pub fn try_tool(&self, tool: &Tool) -> Result<(), Refusal> {
        let Input::Json(schema) = &tool.input else { return Ok(()) };
        let offered = json!({"type": "function", "name": tool.name, "parameters": schema});
        let body = json!({
            "model": self.name, "input": "hello", "tools": [offered], "tool_choice": "required",
        });
        let request = prompt::responses::read(body.to_string().as_bytes(), &[])?;
        // A model without tool calls needs no check.
        let Ok(prompt) = self.compose(&self.model(), &request) else { return Ok(()) };
        let job = Job {
            prompt: self.engine.tokenise(&prompt.pieces),
            grammar: prompt.grammar,
            output_tokens_max: Some(1),
            ..Job::default()
        };
        self.engine.start(job).map(drop)
    }

    /// Builds the prompt of a request.
    pub(crate) fn compose(
        &self,
        model: &Model,
        request: &prompt::request::Request,
    ) -> Result<prompt::model::Prompt, Refusal> {
        template_guard::watched(&self.name, || model.compose(request))
    }

    /// Returns how prompts are rendered, for the log.
    pub(crate) fn family(&self) -> String {
        match self.model().family() {
            word @ ("harmony" | "template" | "raw") => word.to_owned(),
            style => format!("template/{style}"),
        }
    }

    /// Returns how prompts are built for it, refreshed if the day has changed.
    fn model(&self) -> Arc<Model> {
        let today = Date::from_unix_seconds(unix_seconds());
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        if model.0 != today {
            Arc::make_mut(&mut model.1).set_today(today);
            model.0 = today;
        }
        Arc::clone(&model.1)
    }
}

/// Whether requests are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Open,
    /// No new ones; those in progress may continue for a while.
    Draining,
    /// Everything ends.
    Over,
}

/// The parts of a server.
#[derive(Debug)]
pub struct Parts {
    pub limits: Limits,
    /// The name of the model that is, or will be, loaded.
    pub model: String,
    /// The model file, if there is one.
    pub file: Option<PathBuf>,
    /// The arguments the daemon was started with.
    pub settings: Vec<String>,
    /// A hash of the `[daemon]` table.
    pub configured: String,
    /// The context size that was set, in tokens.
    pub context_tokens_set: Option<u32>,
    /// The load state of the model.
    pub standing: watch::Receiver<LoadState>,
    pub tools: Tools,
    /// Whether tests may force the model to make a call.
    pub forced_calls: bool,
    /// Whether it keeps counters and exposes them.
    pub metrics: bool,
    /// How many token ids of an answer are logged.
    pub tokens_noted: usize,
    /// The token for clients of the TCP port.
    pub token: Option<stdx::Redacted>,
    /// The address of that port.
    pub address: Option<SocketAddr>,
    pub log: Log,
}

/// A server without its listeners.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    model: String,
    file: Option<PathBuf>,
    settings: Vec<String>,
    configured: String,
    context_tokens_set: Option<u32>,
    standing: watch::Receiver<LoadState>,
    tools: Tools,
    forced_calls: bool,
    tokens_noted: usize,
    token: Option<Token>,
    address: Option<SocketAddr>,
    log: Log,
    metrics: Metrics,
    phase: watch::Sender<Phase>,
    /// One permit per KiB of request bodies.
    bodies: Arc<Semaphore>,
    connections: AtomicUsize,
    busy: AtomicUsize,
    /// Updated whenever a request for work begins or ends.
    used: watch::Sender<Instant>,
    begun: Instant,
}

impl Server {
    pub fn new(parts: Parts) -> std::io::Result<Arc<Self>> {
        let Parts {
            limits,
            model,
            file,
            settings,
            configured,
            context_tokens_set,
            standing,
            tools,
            forced_calls,
            metrics,
            tokens_noted,
            token,
            address,
            log,
        } = parts;
        let bodies = Arc::new(Semaphore::new(limits.requests_bytes_max.div_ceil(1024)));
        let token = token.as_ref().map(Token::new).transpose()?;
        let begun = Instant::now();
        Ok(Arc::new(Self {
            limits,
            model,
            file,
            settings,
            configured,
            context_tokens_set,
            standing,
            tools,
            forced_calls,
            tokens_noted,
            token,
            address,
            log,
            metrics: Metrics::new(metrics),
            phase: watch::Sender::new(Phase::Open),
            bodies,
            connections: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            used: watch::Sender::new(begun),
            begun,
        }))
    }

    pub fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let later = phase > *now;
            *now = phase.max(*now);
            later
        });
    }

    /// Waits until the model has not been used for `quiet`.
    pub async fn idle(&self, quiet: Duration) {
        let mut used = self.used.subscribe();
        loop {
            let since = *used.borrow_and_update();
            let busy = self.busy.load(Ordering::Relaxed) > 0;
            let loading = matches!(&*self.standing.borrow(), LoadState::Loading(_));
            if !busy && !loading && since.elapsed() >= quiet {
                return;
            }
            let until = if busy || loading { Instant::now() + quiet } else { since + quiet };
            // Either way the state is checked again.
            let _ = tokio::time::timeout_at(until, used.changed()).await;
        }
    }

    pub(crate) fn tools(&self) -> &Tools {
        &self.tools
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Serves one connection to its end. A client that closes its sending side counts as gone.
    pub async fn connection<I>(self: Arc<Self>, stream: I, door: Door)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.watched(stream, door, None, &Seat::new(Instant::now())).await;
    }

    /// Serves one connection to its end, or until its client is gone, if that can be distinguished from a
    /// closed sending side.
    async fn watched<I>(
        self: Arc<Self>,
        stream: I,
        door: Door,
        hangup: Option<Hangup>,
        seat: &Arc<Seat>,
    ) where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let mut phase = self.phase.subscribe();
        let service = service_fn(|request| {
            let server = Arc::clone(&self);
            let (seat, handling) = (Arc::clone(seat), seat.handle());
            async move {
                let response = server.handle(request, door, &seat).await;
                drop(handling);
                Ok::<_, Infallible>(response)
            }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_timeout)
            .half_close(hangup.is_some())
            .max_headers(HEADERS_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(HEAD_BYTES_MAX);
        let stream = TokioIo::new(Stall::new(stream, self.limits.write_timeout, Arc::clone(seat)));
        let mut connection = std::pin::pin!(http.serve_connection(stream, service));
        let closing = async { drop(phase.wait_for(|phase| *phase > Phase::Open).await) };
        let serving = async {
            tokio::select! {
                // Garbage, silence and disconnects are not worth a log line.
                _ = connection.as_mut() => {}
                () = closing => {
                    connection.as_mut().graceful_shutdown();
                    // Answers end by themselves when everything ends, and say so first.
                    let _ = connection.await;
                }
            }
        };
        let gone = async {
            match &hangup {
                Some(hangup) => hangup.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = serving => {}
            () = gone => {}
            () = seat.needed() => {}
        }
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits until everything ends.
    async fn wait_for_end(&self) {
        let mut phase = self.phase.subscribe();
        // We own the sender.
        let _ = phase.wait_for(|phase| *phase == Phase::Over).await;
    }

    async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        door: Door,
        seat: &Seat,
    ) -> Response<Body> {
        let headers = request.headers();
        let ids = (guard::request_id(headers), guard::client_ids(headers));
        let mut account = Account::open(&self, ids.0, ids.1);
        let id = account.id().to_owned();
        let (head, body) = request.into_parts();
        let mut body = Upload::new(body, &head.headers);
        let admitted = self.admit(&head.headers, door).and_then(|()| {
            seat.admit();
            let route = Route::find(&head.method, head.uri.path())?;
            account.enter(&route);
            if route.is_work() {
                guard::check_media_type(&head.headers)?;
            }
            Ok(route)
        });
        let mut response = match admitted {
            Ok(route) => self.respond(route, &mut body, account).await,
            Err(problem) => {
                body.drain().await;
                account.refused(&problem);
                problem.response()
            }
        };
        let headers = response.headers_mut();
        if body.is_awaited() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Ok(id) = HeaderValue::from_str(&id) {
            headers.insert(REQUEST_ID_HEADER, id);
        }
        headers.insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
        response
    }

    /// Decides whether a client may send requests at all.
    fn admit(&self, headers: &hyper::HeaderMap, door: Door) -> Result<(), Problem> {
        if door == Door::Port {
            guard::check_host(headers)?;
            // Without a token there is no port; to be safe, no client matches a missing token.
            self.token.as_ref().ok_or_else(Problem::unauthorized)?.check(headers)?;
        }
        guard::check_version(headers)
    }

    async fn respond(
        self: &Arc<Self>,
        route: Route,
        body: &mut Upload,
        mut account: Account,
    ) -> Response<Body> {
        let api = match route {
            Route::Responses => Api::Responses,
            Route::Chat => Api::Chat,
            Route::Health => return account.answered(json_response(self.health().to_string())),
            Route::Metrics => {
                let Some(metrics) = self.metrics.render(&self.now()) else {
                    let problem = Problem::no_metrics();
                    account.refused(&problem);
                    return problem.response();
                };
                let mut response = Response::new(Body::whole(metrics));
                let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                return account.answered(response);
            }
            Route::Models => return account.answered(json_response(self.models())),
            Route::Model(id) if self.is_model(&id) => {
                let list: Value = serde_json::from_slice(&self.models()).unwrap_or_default();
                return account.answered(json_response(list["data"][0].to_string()));
            }
            Route::Model(model) => {
                let problem = Problem::from(Refusal::UnknownModel { model });
                account.refused(&problem);
                return problem.response();
            }
        };
        match answer::respond(self, api, body, &mut account).await {
            Ok(begun) => begun.response(account).await,
            Err(problem) => {
                account.refused(&problem);
                problem.response()
            }
        }
    }

    /// Waits until the model is loaded.
    async fn loaded(&self) -> Result<Arc<LoadedModel>, Problem> {
        let mut standing = self.standing.clone();
        let there = standing.wait_for(|standing| !matches!(standing, LoadState::Loading(_)));
        tokio::select! {
            there = there => match there.as_deref() {
                Ok(LoadState::Ready(loaded)) => Ok(Arc::clone(loaded)),
                Ok(LoadState::Failed(reason)) => Err(Problem::no_model(reason)),
                Ok(LoadState::Loading(_)) | Err(_) => {
                    Err(Problem::no_model("whatever loaded it is gone"))
                }
            },
            () = self.wait_for_end() => Err(Problem::shutting_down()),
        }
    }

    /// Tells whether a client means our model.
    fn is_model(&self, name: &str) -> bool {
        name == self.model || name == MODEL_ALIAS
    }

    fn now(&self) -> Now {
        Now {
            engine: self.stats(),
            requests: self.busy.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            resident_bytes: metrics::resident_bytes(),
            uptime: self.begun.elapsed(),
        }
    }

    fn stats(&self) -> Stats {
        match &*self.standing.borrow() {
            LoadState::Ready(loaded) => loaded.engine.stats(),
            LoadState::Loading(_) | LoadState::Failed(_) => Stats::default(),
        }
    }

    /// Returns the context size that was set, if it is more than there is.
    pub(crate) fn context_cut(&self, context_tokens: u32) -> Option<u32> {
        self.context_tokens_set.filter(|set| *set > context_tokens)
    }

    /// Returns the body of `/health`.
    fn health(&self) -> Value {
        let stats = self.stats();
        let standing = self.standing.borrow();
        let (status, progress, reason) = match &*standing {
            _ if *self.phase.borrow() > Phase::Open => ("ending", 1.0, None),
            LoadState::Loading(progress) => ("loading", *progress, None),
            LoadState::Ready(_) => ("ok", 1.0, None),
            LoadState::Failed(reason) => ("failed", 0.0, Some(reason.as_str())),
        };
        let context = match &*standing {
            LoadState::Ready(loaded) => Some(loaded.engine.context_tokens()),
            _ => None,
        };
        json!({
            "status": status,
            "version": env!("CARGO_PKG_VERSION"),
            "protocol": PROTOCOL,
            "pid": std::process::id(),
            "model": self.model,
            "file": self.file,
            "settings": self.settings,
            "configured": self.configured,
            "base_url": self.address.map(|address| format!("http://{address}/v1")),
            "progress": progress,
            "reason": reason,
            "context_tokens": context,
            "context_tokens_set": context.and_then(|context| self.context_cut(context)),
            "uptime_secs": self.begun.elapsed().as_secs(),
            "requests": self.busy.load(Ordering::Relaxed),
            "running": stats.running,
            "waiting": stats.waiting,
            "memory_bytes": stats.memory_bytes,
            "tools": self.tools.offered().map(|tool| tool.name.as_str()).collect::<Vec<_>>(),
        })
    }

    /// Returns the list of models: one.
    fn models(&self) -> Vec<u8> {
        let mut card =
            ModelCard { id: self.model.clone(), created_at: unix_seconds(), context_tokens: 0 };
        if let LoadState::Ready(loaded) = &*self.standing.borrow() {
            card.created_at = loaded.created_at;
            card.context_tokens = loaded.engine.context_tokens();
        }
        prompt::reply::models_body(&[card])
    }
}

fn json_response(body: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::whole(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// An alias for the model's name.
pub const MODEL_ALIAS: &str = "local";
const HEADERS_MAX: usize = 64;
/// Largest head of a request, and size of read and write buffers.
const HEAD_BYTES_MAX: usize = 64 * 1024;
