//! The life of a daemon: take the home, listen, load, serve, and leave when told to or when nobody comes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use prompt::model::ModelOptions;
use stdx::Redacted;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use crate::engine::Engine;
use crate::home::{DaemonLock, Doing, Home, HomeError};
use crate::log::{self, Entry, Level, Log};
use crate::serve::{self, Limits, Listeners, LoadState, LoadedModel, Parts, Server};
use crate::tools::{Settings, Tools, ToolsError};

/// How long nobody may come before the daemon leaves, unless it is told otherwise.
pub const IDLE_DEFAULT: Duration = Duration::from_secs(15 * 60);

/// How the threads of the engine wait for each other: so many looks, some tens of microseconds, before they sleep. It is
/// a variable of OpenMP, which is read when a program starts.
///
/// On an idle machine they nearly always meet within that. On a busy one, whoever keeps looking only takes the time
/// of the one it waits for.
pub const SPIN: (&str, &str) = ("GOMP_SPINCOUNT", "10000");

/// The most tokens of an answer that the log has.
pub const TOKENS_NOTED_MAX: usize = 64;

/// Keeps ggml from starting a debugger, or any other program, where it gives up. It is read when that happens, and when a
/// program starts.
pub const NO_BACKTRACE: (&str, &str) = ("GGML_NO_BACKTRACE", "1");

/// What a daemon is to be.
#[derive(Debug)]
pub struct Options {
    /// Where it lives.
    pub home: Home,
    /// The name of its model.
    pub model: String,
    /// Its file, if it comes from one.
    pub file: Option<PathBuf>,
    /// What it was started with, as arguments of `heddle daemon run`; it is told to whoever asks.
    pub settings: Vec<String>,
    /// A sum of what the configuration says of it; it is told to whoever asks.
    pub configured: String,
    /// How the model is talked to.
    pub model_options: ModelOptions,
    /// The port of the loopback to listen at besides; 0 for one that is free.
    pub port: Option<u16>,
    /// The token for it; made, or taken from the home, if there is none.
    pub token: Option<Redacted>,
    /// How long nobody may come before it leaves; for ever if there is none.
    pub idle: Option<Duration>,
    /// Its own tools.
    pub tools: Settings,
    /// Whether tests may make the model call something.
    pub forced_calls: bool,
    /// Whether it counts, and shows that to whoever watches it.
    pub metrics: bool,
    /// How many tokens of an answer the log has, by their numbers; whoever has the model can read them.
    pub tokens_noted: usize,
    /// Its bounds.
    pub limits: Limits,
}

/// Why a daemon does not run, or does no longer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The home cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The settings of its tools cannot.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// The port cannot be had.
    #[error("the port {port} cannot be listened at: {reason}; choose another, or 0 for a free one")]
    Port {
        /// The port.
        port: u16,
        /// The system's reason; no source, since the words have it already.
        reason: io::Error,
    },
    /// The model cannot be loaded.
    #[error("the model `{model}` cannot be served: {reason}")]
    Load {
        /// Its name.
        model: String,
        /// Why.
        reason: String,
    },
    /// The system refuses something else.
    #[error("the daemon cannot be started: {0}")]
    Io(#[from] io::Error),
}

/// What loads a model, on a thread of its own; it is told how far it is.
pub type Load =
    Box<dyn FnOnce(&mut dyn FnMut(f32)) -> Result<Arc<dyn Engine>, String> + Send + 'static>;

/// A daemon that holds its home and listens, and has not begun to serve.
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
    /// Takes the home and listens. Must be called on the runtime that serves.
    pub async fn prepare(options: Options) -> Result<Self, DaemonError> {
        let Options {
            home,
            model,
            file,
            settings,
            configured,
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

    /// Returns the address of the port, if it listens at one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Loads the model beside, and serves until `end` comes or nobody does.
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
                // It is there, and whatever loaded it has gone.
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
            // Whoever comes from here on finds nobody, and starts another daemon.
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

/// Loads a model and says how it stands with it.
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
            // Watchers are woken for what a person would see.
            let news = matches!(now, LoadState::Loading(before) if done - *before >= 0.01);
            if news {
                *now = LoadState::Loading(done);
            }
            news
        });
    };
    // A panic of the engine's library is one more way to fail.
    let loaded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| load(&mut progress)));
    let loaded = loaded.unwrap_or_else(|_| Err("the engine stumbled over it".to_owned()));
    let loaded = loaded.and_then(|engine| {
        let loaded = LoadedModel::new(name.to_owned(), engine, options);
        let loaded = loaded.map_err(|error| error.to_string())?;
        for tool in server.tools().offered() {
            let tried = loaded.try_tool(tool);
            tried.map_err(|why| format!("its tool `{}` cannot be offered: {why}", tool.name))?;
        }
        Ok(loaded)
    });
    match loaded {
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
            standing.send_replace(LoadState::Ready(Arc::new(loaded)));
        }
        Err(reason) => {
            let entry = Entry::LoadFailed { model: name, reason: log::cut(&reason) };
            server.log().write(Level::Error, &entry);
            standing.send_replace(LoadState::Failed(reason));
        }
    }
}
