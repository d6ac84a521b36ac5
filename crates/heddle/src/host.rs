//! [`Heddle`], which opens threads, and the builder that configures it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::id::ThreadId;
use runtime::{Clock, Library};
use store::{FileStore, Store};
use tokio::runtime::Handle;

use crate::error::Error;
use crate::files::Files;
use crate::session::host::HostEnv;
use crate::session::past::Stores;
use crate::spec::ThreadSpec;
use crate::thread::Thread;
use crate::threads::Threads;
use crate::transport::{self, InProcess, Surroundings, Transport};

/// Opens threads. Cheap to clone; all clones use the same home.
///
/// Several threads can run at the same time, in one task or in a task each.
#[derive(Clone, Debug)]
pub struct Heddle {
    surroundings: Surroundings,
    transport: Arc<dyn Transport>,
}

impl Heddle {
    /// Configures everything from the environment of this process, as the `heddle` program does: `HEDDLE_HOME`, API
    /// keys, the working directory. `HEDDLE_TRANSPORT` can have threads run in [another program](crate::transport).
    pub fn from_env() -> Result<Self, Error> {
        let host = HostEnv::from_process()?;
        let transport = transport::chosen(host.env.get(transport::VARIABLE).map(String::as_str))?;
        let stores = Stores::with(Arc::new(FileStore::new(&host.home)));
        Ok(Self { transport, ..Self::new(Arc::new(host), stores, Clock::default()) })
    }

    /// Returns a builder for a [`Heddle`] that does not read the environment.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn new(host: Arc<HostEnv>, stores: Stores, clock: Clock) -> Self {
        let library = Library::new(&host.home);
        let surroundings = Surroundings { host, stores, clock, library };
        Self { surroundings, transport: Arc::new(InProcess) }
    }

    /// Returns a copy whose threads run over another transport. [`Heddle::threads`] still lists the saved threads of
    /// this home, so the other program should use the same home.
    #[must_use]
    pub fn over(&self, transport: impl Transport + 'static) -> Self {
        Self { surroundings: self.surroundings.clone(), transport: Arc::new(transport) }
    }

    /// Opens a thread: creates, resumes or forks one, depending on the spec.
    ///
    /// In this process, this reads files, tries out the sandbox and may start a daemon, all on a thread for blocking work.
    pub async fn start(&self, spec: ThreadSpec) -> Result<Thread, Error> {
        let limits = spec.limits;
        let session = self.transport.open(self.surroundings.clone(), spec).await?;
        Ok(Thread::new(session, limits))
    }

    /// Resumes a thread, in the directory that it last worked in.
    pub async fn resume(&self, thread: ThreadId) -> Result<Thread, Error> {
        self.start(ThreadSpec::resume(thread)).await
    }

    /// Creates a thread with the history of another one, which is not changed.
    pub async fn fork(&self, thread: ThreadId) -> Result<Thread, Error> {
        self.start(ThreadSpec::fork(thread)).await
    }

    /// Returns the saved threads, to list, search and manage them.
    pub fn threads(&self) -> Threads {
        Threads::new(self.surroundings.host.home.clone(), self.surroundings.stores.clone())
    }

    /// Returns the staged files of the home, to attach, list and clean them up.
    pub fn files(&self) -> Files {
        let Surroundings { host, stores, library, .. } = &self.surroundings;
        Files::new(&host.home, &host.directory, library.clone(), stores.clone())
    }

    /// Returns the home: the directory with settings, threads and models.
    pub fn home(&self) -> &Path {
        &self.surroundings.host.home
    }

    /// Returns the default working directory of threads.
    pub fn directory(&self) -> &Path {
        &self.surroundings.host.directory
    }

    /// Returns a copy with another default working directory.
    pub fn at(&self, directory: &Path) -> Result<Self, Error> {
        let host = Arc::new(self.surroundings.host.at(Some(directory))?);
        let surroundings = Surroundings { host, ..self.surroundings.clone() };
        Ok(Self { surroundings, transport: Arc::clone(&self.transport) })
    }

    /// Returns whether the working directory is in a git repository, where changes can be undone.
    pub fn is_in_repository(&self) -> bool {
        runtime::project::repository(&self.surroundings.host.directory).is_some()
    }

    /// Returns the commit and branch of the working directory, if it is in a git repository.
    pub fn git_head(&self) -> Option<runtime::project::GitHead> {
        runtime::project::git_head(&self.surroundings.host.directory)
    }

    /// Returns the environment that threads run in: variables, home and working directory.
    pub fn host(&self) -> &HostEnv {
        &self.surroundings.host
    }
}

/// Configures a [`Heddle`] without reading the environment.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    home: Option<PathBuf>,
    directory: Option<PathBuf>,
    env: HashMap<String, String>,
    store: Option<Arc<dyn Store>>,
    clock: Clock,
}

impl Builder {
    /// Sets the directory for settings, threads and models. Required.
    pub fn home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Sets the default working directory of threads. Without it, that is the home.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets an environment variable, such as an API key. Commands get these variables, filtered.
    pub fn var(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Stores threads in `store` instead of in files in the home.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Uses another clock, for tests and simulations.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Creates the [`Heddle`]; an error names what is missing or invalid.
    pub fn build(self) -> Result<Heddle, Error> {
        let home = self
            .home
            .ok_or_else(|| Error::settings("no home is set: call `home` on the builder"))?;
        let absolute = |path: PathBuf, what: &str| match path.is_absolute() {
            true => Ok(path),
            // Only the working directory of the process could resolve it, and that is not read here.
            false => Err(Error::settings(format!(
                "the {what} {} is a relative path: give an absolute one",
                path.display()
            ))),
        };
        let home = absolute(home, "home")?;
        let directory = self.directory.unwrap_or_else(|| home.clone());
        let directory = absolute(directory, "directory")?;
        let stores = match self.store {
            Some(store) => Stores::elsewhere(store),
            None => Stores::with(Arc::new(FileStore::new(&home))),
        };
        let host = Arc::new(HostEnv { env: self.env, home, directory });
        Ok(Heddle::new(host, stores, self.clock))
    }
}

/// Runs `work` on a thread for blocking work; it gets the runtime to drive the futures of a store.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce(&Handle) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let runtime = Handle::try_current().map_err(|_| Error::no_runtime())?;
    let working = tokio::task::spawn_blocking(move || work(&runtime));
    working.await.map_err(|ended| Error::storage(ended.to_string()))?
}
