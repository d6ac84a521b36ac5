//! Models on this machine: which one is meant, and the daemon that runs it.

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

/// The provider that is the daemon of this machine.
pub(crate) const PROVIDER: &str = "local";

/// A model on this machine that a thread is to use.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) model: Model,
    /// What the daemon is told: its name, or its file if that is what the user named.
    pub(crate) start: String,
    /// Whether nobody asked for it: there is just nothing else.
    pub(crate) for_want_of_a_key: bool,
}

/// Names the models of a home.
pub fn models(home: &Path, env: &HashMap<String, String>) -> Models {
    Models::new(home, model_folders(env).collect())
}

/// Lists the folders of models that the environment names.
pub fn model_folders(env: &HashMap<String, String>) -> impl Iterator<Item = PathBuf> {
    let folders = env.get("HEDDLE_MODEL_PATH").map(String::as_str).unwrap_or_default();
    folders.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Names the files of the daemon of a home.
pub fn daemon(host: &HostEnv) -> Home {
    let runtime = host.env.get("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    Home::new(&host.home, runtime.map(Path::new))
}

/// Decides whether a model on this machine is used: where the user asks for one, and where there is no key for
/// anything else and a model is here.
pub(crate) fn choose(host: &HostEnv, config: &Config) -> Result<Option<Chosen>, Error> {
    // A table of that name is the user's own provider.
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
    // Without the engine there would be nothing to run it.
    if !cfg!(feature = "local") || !provider::lacks_a_key(config, &host.env) {
        return Ok(None);
    }
    // A model that is not here, or none at all: then it is the key that is missing.
    Ok(chosen(true).ok())
}

/// Says how the daemon finds a model that was named so: by its file, if that is how it was named, since another of the
/// same name may be here. The daemon has a directory of its own.
pub fn start_word(model: &Model, named: Option<&str>) -> String {
    let file = named.filter(|name| name.contains('/')).and_then(|_| model.path.canonicalize().ok());
    file.and_then(|file| file.to_str().map(str::to_owned)).unwrap_or_else(|| model.name.clone())
}

/// Says which model is used, if nobody asked for it.
pub(crate) fn tell(chosen: &Chosen, config: &Config, may_write: bool, observer: &Observer) {
    if !chosen.for_want_of_a_key {
        return;
    }
    // A user who has set up a provider expects that it is used.
    if let Some(id) = config.model_providers.keys().min() {
        observer.tell(Notice::ProviderNotChosen { provider: id.clone() });
    }
    let model = chosen.model.name.clone();
    let smoke_test = model == EMBEDDED.name;
    observer.tell(Notice::UsingLocalModel { model, smoke_test, may_write });
}

/// Returns when the daemon answers and has the model; starts it if need be.
pub(crate) fn ensure(
    host: &HostEnv,
    model: &str,
    observer: &Observer,
) -> Result<(Home, Health), Error> {
    let home = daemon(host);
    let models = models(&host.home, &host.env);
    let mut began = false;
    let mut progress = |progress| {
        began = true;
        observer.tell(match progress {
            Progress::Started => Notice::DaemonStarting { model: model.to_owned() },
            Progress::Loading(part) => Notice::DaemonLoading(part),
        });
    };
    let health = started(&home, &models, model, &mut progress);
    if began {
        observer.tell(Notice::DaemonStarted);
    }
    Ok((home, health.map_err(Error::LocalModel)?))
}

/// Names where the daemon of a home listens. If it has left meanwhile, the next request starts it again.
pub(crate) fn socket(host: &HostEnv, home: Home, model: String) -> Socket {
    let path = home.socket().to_owned();
    let models = models(&host.home, &host.env);
    let wake = move || started(&home, &models, &model, &mut |_| ()).map(drop);
    Socket { path, wake: Arc::new(wake) }
}

fn started(
    home: &Home,
    models: &Models,
    model: &str,
    progress: &mut dyn FnMut(Progress),
) -> Result<Health, String> {
    let launch = Launch {
        // By its name, so that it has one in lists of processes.
        exe: &std::env::current_exe().unwrap_or_else(|_| PathBuf::from(OURSELVES)),
        model: Some(model),
        args: &[],
        shared: &[],
        configured: None,
        check: &|| models.check(Some(model)).map(drop).map_err(|error| error.to_string()),
    };
    client::start(home, &launch, progress)
        .map(|(health, _)| health)
        .map_err(|error| format!("{error}; or use another model (`heddle models list`)"))
}

/// Runs a model through the daemon, and says how well that went.
pub fn probe(
    host: &HostEnv,
    model: &str,
    observer: impl Fn(Notice) + Send + Sync + 'static,
) -> Result<Value, Error> {
    let (home, health) = ensure(host, model, &Observer::new(observer))?;
    let ran = infer::probe::run(home.socket(), &health.model);
    ran.map_err(|error| Error::LocalModel(error.to_string()))
}
