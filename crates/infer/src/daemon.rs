//! The life cycle of a daemon: lock the home, listen, load, serve, and exit on a signal or when idle.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use prompt::model::ModelOptions;
use stdx::Redacted;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use crate::client;
use crate::engine::Engine;
use crate::home::{DaemonLock, Doing, Home, HomeError};
use crate::log::{self, Entry, Level, Log};
use crate::serve::{self, Limits, Listeners, LoadState, LoadedModel, Parts, Server};
use crate::tools::{Settings, Tools, ToolsError};

pub const IDLE_DEFAULT: Duration = Duration::from_secs(15 * 60);

/// How the engine's threads wait for each other: they spin for some tens of microseconds, then sleep. This is
/// an OpenMP variable, which is read at program start.
///
/// On an idle machine they nearly always meet within that time. On a busy one, a thread that keeps spinning
/// only takes time from the one it waits for.
pub const SPIN: (&str, &str) = ("GOMP_SPINCOUNT", "10000");

/// Most token ids of an answer in the log.
pub const TOKENS_NOTED_MAX: usize = 64;

/// Keeps ggml from starting a debugger, or any other program, when it aborts. It is read at that point and at
/// program start.
pub const NO_BACKTRACE: (&str, &str) = ("GGML_NO_BACKTRACE", "1");

/// How to run a daemon.
#[derive(Debug)]
pub struct Options {
    pub home: Home,
    pub model: String,
    /// The model file, if there is one.
    pub file: Option<PathBuf>,
    /// The arguments of `heddle daemon run`, reported by `/health`.
    pub settings: Vec<String>,
    /// A hash of the `[daemon]` table, reported by `/health`.
    pub configured: String,
    /// The context size that was set, in tokens; a model may take less.
    pub context_tokens_set: Option<u32>,
    /// How the model is prompted.
    pub model_options: ModelOptions,
    /// The loopback port to listen on as well; 0 for a free one.
    pub port: Option<u16>,
    /// The token for that port; generated, or read from the home, if `None`.
    pub token: Option<Redacted>,
    /// The idle timeout; `None` to run forever.
    pub idle: Option<Duration>,
    pub tools: Settings,
    /// Whether tests may force the model to make a call.
    pub forced_calls: bool,
    /// Whether it keeps counters and exposes them.
    pub metrics: bool,
    /// How many token ids of an answer are logged; anyone who has the model can decode them.
    pub tokens_noted: usize,
    pub limits: Limits,
}

/// Why a daemon could not run, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The settings of its tools are invalid.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// The port is not available.
    #[error("cannot listen on port {port}: {reason}; choose another, or 0 for a free one")]
    Port {
        port: u16,
        /// The system's reason; not a source, since the message contains it.
        reason: io::Error,
    },
    #[error("the model `{model}` cannot be served: {reason}")]
    Load { model: String, reason: String },
    /// Another system call failed.
    #[error("the daemon cannot be started: {0}")]
    Io(#[from] io::Error),
}

/// Loads a model, on its own thread, and reports progress; or, for a rehearsal, all of it but the weights.
pub type Load =
    Box<dyn FnOnce(&mut dyn FnMut(f32)) -> Result<Arc<dyn Engine>, String> + Send + 'static>;

/// A daemon that holds its home and listens, but does not serve yet.
#[derive(Debug)]
pub struct Daemon {
    held: DaemonLock,
    listeners: Listeners,
    server: Arc<Server>,
    standing: watch::Sender<LoadState>,
    model: String,
    model_options: ModelOptions,
    idle: Option<Duration>,
    address: Option<SocketAddr>,
    file: Option<PathBuf>,
    home: Home,
}

impl Daemon {
    /// Locks the home and listens. Must be called on the runtime that serves.
    pub async fn prepare(options: Options) -> Result<Self, DaemonError> {
        let Options {
            home,
            model,
            file,
            settings,
            configured,
            context_tokens_set,
            model_options,
            port,
            token,
            idle,
            tools,
            forced_calls,
            metrics,
            tokens_noted,
            limits,
        } = options;
        let tools = Tools::new(tools)?;
        let held = home.hold()?;
        let token = match (port, token) {
            (None, _) => None,
            (Some(_), Some(token)) => {
                home.keep_token(&token)?;
                Some(token)
            }
            (Some(_), None) => Some(home.read_or_make_token()?),
        };
        let port = match port {
            Some(port) => {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                let bound = TcpListener::bind(address).await;
                Some(bound.map_err(|reason| DaemonError::Port { port, reason })?)
            }
            None => None,
        };
        let address = port.as_ref().map(TcpListener::local_addr).transpose()?;
        let socket = held.listen()?;
        socket.set_nonblocking(true)?;
        let socket = UnixListener::from_std(socket)?;
        let log =
            Log::open(&home.log()).map_err(|reason| HomeError::Io { path: home.log(), reason })?;
        let (standing, watched) = watch::channel(LoadState::Loading(0.0));
        let server = Server::new(Parts {
            limits,
            model: model.clone(),
            file: file.clone(),
            settings,
            configured,
            context_tokens_set,
            standing: watched,
            tools,
            forced_calls,
            metrics,
            tokens_noted: tokens_noted.min(TOKENS_NOTED_MAX),
            token,
            address,
            log,
        })?;
        let listeners = Listeners { socket, port };
        Ok(Self {
            held,
            listeners,
            server,
            standing,
            model,
            model_options,
            idle,
            address,
            file,
            home,
        })
    }

    /// Says why a daemon with these options could not serve, without touching the one that may be running:
    /// nothing is locked, written or listened on. `load` makes an engine that needs not answer.
    pub fn rehearse(options: Options, load: Load) -> Result<(), DaemonError> {
        let Options { home, model, model_options, port, token, tools, .. } = options;
        let tools = Tools::new(tools)?;
        match (port, token) {
            (None, _) => {}
            (Some(_), Some(token)) => home.check_token(&token)?,
            (Some(_), None) => match home.read_token() {
                Err(HomeError::Io { reason, .. }) if reason.kind() == io::ErrorKind::NotFound => {}
                read => drop(read?),
            },
        }
        if let Some(port) = port.filter(|port| !is_own_port(&home, *port)) {
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))
                .map_err(|reason| DaemonError::Port { port, reason })?;
        }
        let ready = make_ready(&model, model_options, &tools, load, &mut |_| ());
        ready.map(drop).map_err(|reason| DaemonError::Load { model, reason })
    }

    /// Returns the address of the TCP port, if there is one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Loads the model in the background, and serves until `end` completes or the idle timeout expires.
    pub async fn run(self, load: Load, end: impl Future<Output = ()>) -> Result<(), DaemonError> {
        let Self {
            held, listeners, server, standing, model, model_options, idle, file, home, ..
        } = self;
        if let Some(file) = &file {
            home.note_file(Doing::Loading, file);
        }
        let version = env!("CARGO_PKG_VERSION");
        server.log().write(Level::Info, &Entry::Started { version, pid: std::process::id() });
        let mut watched = standing.subscribe();
        let loader = {
            let (server, model) = (Arc::clone(&server), model.clone());
            move || load_into(&standing, &server, &model, model_options, load)
        };
        std::thread::Builder::new().name("load".to_owned()).spawn(loader)?;
        let mut loaded = watched.clone();
        let noting = async {
            let is_ready = |standing: &LoadState| matches!(standing, LoadState::Ready(_));
            if loaded.wait_for(is_ready).await.is_ok()
                && let Some(file) = &file
            {
                home.note_file(Doing::Serving, file);
            }
            std::future::pending::<()>().await;
        };
        let quiet = async {
            match idle {
                Some(idle) => server.idle(idle).await,
                None => std::future::pending().await,
            }
        };
        let failed = async {
            let is_failed = |standing: &LoadState| matches!(standing, LoadState::Failed(_));
            let reason = match watched.wait_for(is_failed).await.as_deref() {
                Ok(LoadState::Failed(reason)) => Some(reason.clone()),
                // The model is loaded, and the loader is gone.
                _ => None,
            };
            match reason {
                Some(reason) => reason,
                None => std::future::pending().await,
            }
        };
        let mut why = ("signal", None);
        let ended = async {
            tokio::select! {
                () = end => {}
                () = quiet => why = ("idle", None),
                () = noting => {}
                reason = failed => why = ("failed", Some(reason)),
            }
            // From here on, clients find no daemon and start another one.
            held.close();
        };
        serve::serve(Arc::clone(&server), listeners, ended).await;
        home.forget_file();
        server.log().write(Level::Info, &Entry::Stopped { why: why.0 });
        match why.1 {
            None => Ok(()),
            Some(reason) => Err(DaemonError::Load { model, reason }),
        }
    }
}

/// Tells whether a port is that of the running daemon, which leaves it.
fn is_own_port(home: &Home, port: u16) -> bool {
    let own = client::health(home).ok().and_then(|health| health.base_url);
    own.is_some_and(|url| url.contains(&format!(":{port}/")))
}

/// Loads a model, and tries out everything that it must be able to do.
fn make_ready(
    name: &str,
    options: ModelOptions,
    tools: &Tools,
    load: Load,
    progress: &mut dyn FnMut(f32),
) -> Result<LoadedModel, String> {
    // A panic of the engine's library is one more way to fail.
    let loaded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| load(progress)));
    let loaded = loaded.unwrap_or_else(|_| Err("the engine crashed while loading it".to_owned()));
    let loaded = LoadedModel::new(name.to_owned(), loaded?, options);
    let loaded = loaded.map_err(|error| error.to_string())?;
    for tool in tools.offered() {
        let tried = loaded.try_tool(tool);
        tried.map_err(|why| format!("its tool `{}` cannot be offered: {why}", tool.name))?;
    }
    Ok(loaded)
}

/// Loads a model and publishes its state.
fn load_into(
    standing: &watch::Sender<LoadState>,
    server: &Server,
    name: &str,
    options: ModelOptions,
    load: Load,
) {
    let begun = Instant::now();
    let mut progress = |done: f32| {
        standing.send_if_modified(|now| {
            // Wake watchers only for visible progress.
            let news = matches!(now, LoadState::Loading(before) if done - *before >= 0.01);
            if news {
                *now = LoadState::Loading(done);
            }
            news
        });
    };
    match make_ready(name, options, server.tools(), load, &mut progress) {
        Ok(loaded) => {
            let workings = loaded.engine.workings();
            let entry = Entry::Loaded {
                model: name,
                load_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
                family: &loaded.family(),
                kernels: &workings.kernels,
                threads: workings.threads,
                context_tokens: loaded.engine.context_tokens(),
                memory_bytes: loaded.engine.stats().memory_bytes,
            };
            server.log().write(Level::Info, &entry);
            let context_tokens = loaded.engine.context_tokens();
            if let Some(context_tokens_set) = server.context_cut(context_tokens) {
                let entry = Entry::ContextCut { model: name, context_tokens_set, context_tokens };
                server.log().write(Level::Warn, &entry);
            }
            standing.send_replace(LoadState::Ready(Arc::new(loaded)));
        }
        Err(reason) => {
            let entry = Entry::LoadFailed { model: name, reason: log::cut(&reason) };
            server.log().write(Level::Error, &entry);
            standing.send_replace(LoadState::Failed(reason));
        }
    }
}
