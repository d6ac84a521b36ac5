//! Local models: chooses one, and starts the daemon that runs it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::Config;
pub use infer::client::Progress;
use infer::client::{self, Health, Launch};
use infer::home::Home;
use infer::models::name::EMBEDDED;
use infer::models::{Model, Models, ModelsError};
use providers::Socket;
use serde_json::Value;

use crate::error::Error;
use crate::notice::{Notice, Observer};
use crate::session::host::HostEnv;
use crate::session::provider;
use crate::session::safety::OURSELVES;

/// Provider id of the local daemon.
pub(crate) const PROVIDER: &str = "local";

/// The local model that a thread will use.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) model: Model,
    /// The argument for the daemon: the model's name, or its file if the user gave a path.
    pub(crate) start: String,
    /// Whether it was chosen only because there is no API key.
    pub(crate) for_want_of_a_key: bool,
}

/// Returns the models of a home.
pub fn models(home: &Path, env: &HashMap<String, String>) -> Models {
    Models::new(home, model_folders(env).collect())
}

/// Returns the folders in `HEDDLE_MODEL_PATH`.
pub fn model_folders(env: &HashMap<String, String>) -> impl Iterator<Item = PathBuf> {
    let folders = env.get("HEDDLE_MODEL_PATH").map(String::as_str).unwrap_or_default();
    folders.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Returns the paths of the daemon's files.
pub fn daemon(host: &HostEnv) -> Home {
    let runtime = host.env.get("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    Home::new(&host.home, runtime.map(Path::new))
}

/// Chooses a local model if the user asks for one, or if there is no API key and a model is installed.
pub(crate) fn choose(host: &HostEnv, config: &Config) -> Result<Option<Chosen>, Error> {
    // A [model_providers.local] table is the user's own provider.
    let asked = config.model_provider.as_deref() == Some(PROVIDER)
        && !config.model_providers.contains_key(PROVIDER);
    let models = models(&host.home, &host.env);
    let chosen = |for_want_of_a_key| {
        let model = match &config.model {
            Some(name) => models.find(name),
            None => models.default_model(),
        }?;
        let start = start_word(&model, config.model.as_deref());
        Ok::<_, ModelsError>(Chosen { model, start, for_want_of_a_key })
    };
    if asked {
        return chosen(false).map(Some).map_err(Error::settings);
    }
    // A build without the engine could not run it.
    if !cfg!(feature = "local") || !provider::lacks_a_key(config, &host.env) {
        return Ok(None);
    }
    // If no such model is installed, the later error about the missing key is more helpful.
    Ok(chosen(true).ok())
}

/// Returns the argument that selects a model for the daemon: its absolute path if the user gave a path, since another
/// model may have the same name; otherwise its name. The daemon has another working directory.
pub fn start_word(model: &Model, named: Option<&str>) -> String {
    let file = named.filter(|name| name.contains('/')).and_then(|_| model.path.canonicalize().ok());
    file.and_then(|file| file.to_str().map(str::to_owned)).unwrap_or_else(|| model.name.clone())
}

/// Reports which model is used, if the user did not ask for it.
pub(crate) fn tell(chosen: &Chosen, config: &Config, may_write: bool, observer: &Observer) {
    if !chosen.for_want_of_a_key {
        return;
    }
    // A user who has configured a provider expects it to be used.
    if let Some(id) = config.model_providers.keys().min() {
        observer.tell(Notice::ProviderNotChosen { provider: id.clone() });
    }
    let model = chosen.model.name.clone();
    let smoke_test = model == EMBEDDED.name;
    observer.tell(Notice::UsingLocalModel { model, smoke_test, may_write });
}

/// Waits until the daemon serves the model, and starts it if necessary.
pub(crate) fn ensure(
    host: &HostEnv,
    model: &str,
    observer: &Observer,
) -> Result<(Home, Health), Error> {
    let home = daemon(host);
    let mut began = false;
    let mut progress = |progress| {
        began = true;
        observer.tell(match progress {
            Progress::Started => Notice::DaemonStarting { model: model.to_owned() },
            Progress::Loading(part) => Notice::DaemonLoading(part),
        });
    };
    let health = started(&home, model, &mut progress);
    if began {
        observer.tell(Notice::DaemonStarted);
        let cut = health.as_ref().ok().and_then(Health::context_notice);
        cut.into_iter().for_each(|text| observer.tell(Notice::Setting(text)));
    }
    Ok((home, health.map_err(Error::local_model)?))
}

/// Returns the daemon's socket. If the daemon has exited meanwhile, the next request starts it again.
pub(crate) fn socket(home: Home, model: String) -> Socket {
    let path = home.socket().to_owned();
    let wake = move || started(&home, &model, &mut |_| ()).map(drop);
    Socket { path, wake: Arc::new(wake) }
}

fn started(home: &Home, model: &str, progress: &mut dyn FnMut(Progress)) -> Result<Health, String> {
    let launch = Launch {
        // The path of the program, so that lists of processes show its name instead of `exe`.
        exe: &std::env::current_exe().unwrap_or_else(|_| PathBuf::from(OURSELVES)),
        model: Some(model),
        args: &[],
        shared: &[],
        configured: None,
        env: None,
    };
    client::start(home, &launch, progress)
        .map(|(health, _)| health)
        .map_err(|error| format!("{error}; or use another model (`heddle models list`)"))
}

/// Tests a model through the daemon, and returns a report as JSON.
pub fn probe(
    host: &HostEnv,
    model: &str,
    observer: impl Fn(Notice) + Send + Sync + 'static,
) -> Result<Value, Error> {
    let (home, health) = ensure(host, model, &Observer::new(observer))?;
    let ran = infer::probe::run(home.socket(), &health.model);
    ran.map_err(|error| Error::local_model(error.to_string()))
}
