//! [`Heddle`], which opens threads, and the builder that configures it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use log::{Line, Replay, Step};
use policy::ApprovalPolicy;
use protocol::id::ThreadId;
use runtime::Clock;
use store::{FileStore, Store};
use tokio::runtime::Handle;

use crate::error::Error;
use crate::notice::{Notice, Observer};
use crate::session::assemble::{self, Injected, ThreadRequest};
use crate::session::host::HostEnv;
use crate::session::past::{Start, Stores};
use crate::session::{safety, settings};
use crate::spec::ThreadSpec;
use crate::thread::Thread;
use crate::threads::Threads;

/// Opens threads. Cheap to clone; all clones use the same home.
///
/// Several threads can run at the same time, in one task or in a task each.
#[derive(Clone, Debug)]
pub struct Heddle {
    host: Arc<HostEnv>,
    stores: Stores,
    clock: Clock,
}

impl Heddle {
    /// Configures everything from the environment of this process, as the `heddle` program does: `HEDDLE_HOME`, API
    /// keys, the working directory.
    pub fn from_env() -> Result<Self, Error> {
        let host = HostEnv::from_process()?;
        let stores = Stores::with(Arc::new(FileStore::new(&host.home)));
        Ok(Self { host: Arc::new(host), stores, clock: Clock::default() })
    }

    /// Returns a builder for a [`Heddle`] that does not read the environment.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Opens a thread as the spec says: creates, resumes or forks one.
    ///
    /// This reads files, tries out the sandbox and may start a daemon, all on a thread for blocking work.
    pub async fn start(&self, spec: ThreadSpec) -> Result<Thread, Error> {
        let (host, stores, clock) =
            (Arc::clone(&self.host), self.stores.clone(), self.clock.clone());
        blocking(move |runtime| open(&host, &stores, clock, runtime, spec)).await
    }

    /// Resumes a thread, in the directory it last worked in.
    pub async fn resume(&self, thread: ThreadId) -> Result<Thread, Error> {
        self.start(ThreadSpec::resume(thread)).await
    }

    /// Creates a thread with the history of another one, which is not changed.
    pub async fn fork(&self, thread: ThreadId) -> Result<Thread, Error> {
        self.start(ThreadSpec::fork(thread)).await
    }

    /// Returns the saved threads, to list, search and manage them.
    pub fn threads(&self) -> Threads {
        Threads::new(self.host.home.clone(), self.stores.clone())
    }

    /// Returns the home: the directory with settings, threads and models.
    pub fn home(&self) -> &Path {
        &self.host.home
    }

    /// Returns the default working directory of threads.
    pub fn directory(&self) -> &Path {
        &self.host.directory
    }

    /// Returns a copy with another default working directory.
    pub fn at(&self, directory: &Path) -> Result<Self, Error> {
        let host = Arc::new(self.host.at(Some(directory))?);
        Ok(Self { host, stores: self.stores.clone(), clock: self.clock.clone() })
    }

    /// Returns whether the working directory is in a git repository, where changes can be undone.
    pub fn is_in_repository(&self) -> bool {
        runtime::project::repository(&self.host.directory).is_some()
    }

    /// Returns the commit and branch of the working directory, if it is in a git repository.
    pub fn git_head(&self) -> Option<runtime::project::GitHead> {
        runtime::project::git_head(&self.host.directory)
    }

    /// Returns the environment that threads run in: variables, home and working directory.
    pub fn host(&self) -> &HostEnv {
        &self.host
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

    /// Creates the [`Heddle`], or says what is missing or invalid.
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
        let kept = self.store.unwrap_or_else(|| Arc::new(FileStore::new(&home)));
        let host = Arc::new(HostEnv { env: self.env, home, directory });
        Ok(Heddle { host, stores: Stores::with(kept), clock: self.clock })
    }
}

/// Runs `work` on a thread for blocking work; it gets the runtime to drive the futures of a store.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce(&Handle) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
    let working = tokio::task::spawn_blocking(move || work(&runtime));
    working.await.map_err(|ended| Error::storage(ended.to_string()))?
}

fn open(
    host: &HostEnv,
    stores: &Stores,
    clock: Clock,
    runtime: &Handle,
    spec: ThreadSpec,
) -> Result<Thread, Error> {
    let ThreadSpec {
        start,
        directory,
        preferences,
        settings,
        ephemeral,
        ignore_rules,
        approval,
        originator,
        source,
        tools,
        approver,
        judge,
        backend,
        observer,
    } = spec;
    let directory = match (directory, start) {
        (Some(directory), _) => Some(directory),
        (None, Start::New) => None,
        (None, Start::Resume(id) | Start::Fork(id)) => {
            runtime.block_on(recorded_directory(stores, id))?
        }
    };
    let host = host.at(directory.as_deref())?;
    let notices = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&notices);
    let observer = Observer::new(move |notice: Notice| {
        if let Some(observer) = &observer {
            observer.tell(notice.clone());
        }
        if !matches!(notice, Notice::DaemonLoading(_)) {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(notice);
        }
    });
    let settings = match settings {
        Some(settings) => *settings,
        None => settings::load(&host, preferences)?,
    };
    let approval = match (approval, &approver) {
        (Some(policy), _) => policy,
        (None, None) => ApprovalPolicy::Never,
        (None, Some(_)) => match settings.config.approval_policy {
            None => ApprovalPolicy::OnRequest,
            Some(_) => safety::approval(&settings.config),
        },
    };
    let override_name = host.env.get(ORIGINATOR).filter(|name| !name.is_empty());
    let originator = override_name.cloned().or(originator).unwrap_or_else(|| "heddle".to_owned());
    let request = ThreadRequest {
        start,
        ephemeral,
        ignore_rules,
        settings,
        approval,
        originator: originator.clone(),
        source: source.unwrap_or_else(|| "exec".to_owned()),
        injected: Injected { tools, judge, model: backend },
        observer,
        clock,
    };
    let mut ready = assemble::thread(&host, stores, runtime, request)?;
    if let Some(approver) = approver {
        ready.thread.set_approver(approver);
    }
    let notices = std::mem::take(&mut *notices.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Thread::new(ready, host, originator, notices))
}

/// The environment variable that overrides the originator, whatever the program sets.
const ORIGINATOR: &str = "CODEX_INTERNAL_ORIGINATOR_OVERRIDE";

/// Returns the directory a thread last worked in, if it still exists.
async fn recorded_directory(stores: &Stores, id: ThreadId) -> Result<Option<PathBuf>, Error> {
    let (mut directory, mut replay) = (None, Replay::default());
    let sink = &mut |line: &Line<'_>| {
        if let Step::Context(context) = replay.line(line)
            && let Some((cwd, _)) = context.place()
        {
            directory = Some(PathBuf::from(cwd.into_owned()));
        }
    };
    stores.of(id).read(id, sink).await?;
    Ok(directory.filter(|directory| directory.is_absolute() && directory.is_dir()))
}
