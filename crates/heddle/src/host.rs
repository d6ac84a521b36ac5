//! [`Heddle`]: the place where threads are opened.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use log::{Replay, Step};
use policy::ApprovalPolicy;
use protocol::id::ThreadId;
use store::Store;

use crate::error::Error;
use crate::notice::{Notice, Observer};
use crate::session::assemble::{self, Injected, ThreadRequest};
use crate::session::host::HostEnv;
use crate::session::past::Start;
use crate::session::{safety, settings};
use crate::spec::ThreadSpec;
use crate::thread::Thread;
use crate::threads::Threads;

/// Opens threads. Cheap to clone; all clones share one home.
///
/// Several threads can run at once, each as a task of its own or all in one.
#[derive(Clone, Debug)]
pub struct Heddle {
    host: Arc<HostEnv>,
}

impl Heddle {
    /// Takes everything from the environment of this process, as the `heddle` program does: `HEDDLE_HOME`, keys, the
    /// working directory.
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self { host: Arc::new(HostEnv::from_process()?) })
    }

    /// Begins a [`Heddle`] that reads no environment.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Opens a thread: a new one, one to go on with, or one to go on from, as the spec says.
    ///
    /// Files are read, the sandbox is tried out, and a daemon may be started: all on a thread for blocking work.
    pub async fn start(&self, spec: ThreadSpec) -> Result<Thread, Error> {
        tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let host = Arc::clone(&self.host);
        let opening = tokio::task::spawn_blocking(move || open(&host, spec));
        opening.await.map_err(|ended| Error::storage(ended.to_string()))?
    }

    /// Opens a thread as [`Heddle::start`] does, on the thread of the caller, which waits meanwhile.
    pub fn start_blocking(&self, spec: ThreadSpec) -> Result<Thread, Error> {
        open(&self.host, spec)
    }

    /// Goes on with a thread, where it worked before.
    pub async fn resume(&self, thread: ThreadId) -> Result<Thread, Error> {
        self.start(ThreadSpec::resume(thread)).await
    }

    /// Begins a thread with the history of another, which stays as it is.
    pub async fn fork(&self, thread: ThreadId) -> Result<Thread, Error> {
        self.start(ThreadSpec::fork(thread)).await
    }

    /// The threads that are kept, to list, search and manage.
    pub fn threads(&self) -> Threads {
        Threads::new(self.host.home.clone())
    }

    /// The directory with settings, threads and models.
    pub fn home(&self) -> &Path {
        &self.host.home
    }

    /// The working directory of threads that do not name one.
    pub fn directory(&self) -> &Path {
        &self.host.directory
    }

    /// Returns the same in another working directory.
    pub fn at(&self, directory: &Path) -> Result<Self, Error> {
        Ok(Self { host: Arc::new(self.host.at(Some(directory))?) })
    }

    /// Tells whether the working directory is in a git repository, so that changes can be undone.
    pub fn is_in_repository(&self) -> bool {
        runtime::project::repository(&self.host.directory).is_some()
    }

    /// The commit and branch of the working directory, if it is in a git repository.
    pub fn git_head(&self) -> Option<runtime::project::GitHead> {
        runtime::project::git_head(&self.host.directory)
    }

    /// What the machine and its user bring.
    pub fn host(&self) -> &HostEnv {
        &self.host
    }
}

/// Makes a [`Heddle`] from what the host program says, and nothing else.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    home: Option<PathBuf>,
    directory: Option<PathBuf>,
    env: HashMap<String, String>,
}

impl Builder {
    /// Sets the directory for settings, threads and models. Required.
    pub fn home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Sets the working directory of threads that do not name one. Without it, every thread has to.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets a variable as the environment would: keys of providers, and what commands get of it.
    pub fn var(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Checks what was said.
    pub fn build(self) -> Result<Heddle, Error> {
        let home =
            self.home.ok_or_else(|| Error::settings("no home: say where threads are kept"))?;
        let absolute = |path: PathBuf, what: &str| match path.is_absolute() {
            true => Ok(path),
            // What it is relative to would have to come from the process.
            false => Err(Error::settings(format!(
                "the {what} {} is not absolute: name it from the root",
                path.display()
            ))),
        };
        let home = absolute(home, "home")?;
        let directory = self.directory.unwrap_or_else(|| home.clone());
        let directory = absolute(directory, "directory")?;
        Ok(Heddle { host: Arc::new(HostEnv { env: self.env, home, directory }) })
    }
}

fn open(host: &HostEnv, spec: ThreadSpec) -> Result<Thread, Error> {
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
        (None, Start::Resume(id) | Start::Fork(id)) => recorded_directory(host, id)?,
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
    };
    let mut ready = assemble::thread(&host, request)?;
    if let Some(approver) = approver {
        ready.thread.set_approver(approver);
    }
    let notices = std::mem::take(&mut *notices.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Thread::new(ready, host, originator, notices))
}

/// Names the program on whose behalf we run, whatever the program says.
const ORIGINATOR: &str = "CODEX_INTERNAL_ORIGINATOR_OVERRIDE";

/// Returns where a thread worked before, if that is still there.
fn recorded_directory(host: &HostEnv, id: ThreadId) -> Result<Option<PathBuf>, Error> {
    let (mut directory, mut replay) = (None, Replay::default());
    Store::new(&host.home).read(id, &mut |line| {
        if let Step::Context(context) = replay.line(line)
            && let Some((cwd, _)) = context.place()
        {
            directory = Some(PathBuf::from(cwd.into_owned()));
        }
    })?;
    Ok(directory.filter(|directory| directory.is_absolute() && directory.is_dir()))
}
