//! [`Thread`]: an open thread, which runs turns.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::{Profile, SandboxMode};
use protocol::id::ThreadId;
use protocol::usage::Usage;
use tokio::sync::Mutex;
use tools::Sessions;

use crate::input::Input;
use crate::notice::Notice;
use crate::session::assemble::Ready;
use crate::session::host::HostEnv;
use crate::turn::{Turn, Work};

/// An open thread. It runs turns, one at a time. Cheap to clone; all clones are the same thread.
///
/// While it is open, no other process can resume it. It is released when the last clone is dropped, or by
/// [`Thread::close`], which also returns the commands that were still running.
#[derive(Clone, Debug)]
pub struct Thread {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    id: ThreadId,
    facts: ThreadFacts,
    notices: Vec<Notice>,
    sessions: Arc<Sessions>,
    running: Arc<Mutex<runtime::Thread>>,
}

/// Properties of an open thread that do not change.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ThreadFacts {
    /// The model that answers.
    pub model: String,
    /// The provider that serves it.
    pub provider: String,
    /// The working directory, with all symbolic links resolved.
    pub directory: PathBuf,
    /// Name of the host program.
    pub originator: String,
    /// What commands and patches may do, in detail.
    pub profile: Profile,
    /// Size of the model's context window in tokens, if known.
    pub context_window: Option<u64>,
    /// Path of the log; for a new thread the file is created by its first turn. None if the thread is not stored in a file.
    pub log_path: Option<PathBuf>,
    /// Tokens used before the thread was opened.
    pub usage: Usage,
    /// Whether the user does not want to see reasoning (`hide_agent_reasoning`).
    pub hide_reasoning: bool,
}

impl Thread {
    pub(crate) fn new(
        ready: Ready,
        host: HostEnv,
        originator: String,
        notices: Vec<Notice>,
    ) -> Self {
        let Ready { thread, model, provider, sessions, profile, window, path, hide_reasoning } =
            ready;
        let facts = ThreadFacts {
            model,
            provider,
            directory: host.directory,
            originator,
            profile,
            context_window: window,
            log_path: path,
            usage: thread.usage(),
            hide_reasoning,
        };
        let id = thread.id();
        let running = Arc::new(Mutex::new(thread));
        Self { shared: Arc::new(Shared { id, facts, notices, sessions, running }) }
    }

    /// Returns the id, by which [`Heddle::resume`](crate::Heddle::resume) opens the thread again.
    pub fn id(&self) -> ThreadId {
        self.shared.id
    }

    /// Returns the properties that were determined when the thread was opened.
    pub fn facts(&self) -> &ThreadFacts {
        &self.shared.facts
    }

    /// Returns the directory in which commands run and paths are resolved.
    pub fn directory(&self) -> &Path {
        &self.shared.facts.directory
    }

    /// Returns what commands and patches may do.
    pub fn sandbox(&self) -> SandboxMode {
        self.shared.facts.profile.mode
    }

    /// Returns the notices from opening the thread, for the user.
    pub fn notices(&self) -> &[Notice] {
        &self.shared.notices
    }

    /// Creates a turn with this input. Nothing happens until it is polled.
    pub fn turn(&self, input: impl Into<Input>) -> Turn {
        self.begin(Work::Say(input.into()))
    }

    /// Creates a turn that replaces the history with a summary of it. Nothing happens until it is polled.
    pub fn compact(&self) -> Turn {
        self.begin(Work::Compact)
    }

    fn begin(&self, work: Work) -> Turn {
        let directory = self.shared.facts.directory.clone();
        Turn::new(Arc::clone(&self.shared.running), directory, work)
    }

    /// Returns the number of items in the history, or none while a turn runs.
    pub fn history_len(&self) -> Option<usize> {
        self.shared.running.try_lock().ok().map(|thread| thread.items())
    }

    /// Kills all running commands without waiting for them. For signal handlers; otherwise use [`Thread::close`].
    pub fn kill_commands(&self) {
        self.shared.sessions.kill_all();
    }

    /// Closes the thread: kills the commands that are still running, closes the log, and returns the commands. Waits for
    /// the current turn to end.
    pub async fn close(&self) -> Vec<String> {
        self.shared.running.lock().await.shutdown().await
    }
}
