//! A thread that is open.

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

/// A thread that is open: it runs turns, one at a time. Cheap to clone; all clones are the same thread.
///
/// While it is open, no other process can go on with it. It is let go of when the last clone is dropped, or by
/// [`Thread::close`], which also says what was still running.
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

/// What is known of a thread from when it was opened on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ThreadFacts {
    /// The model that answers.
    pub model: String,
    /// The provider that serves it.
    pub provider: String,
    /// The working directory, with all links followed.
    pub directory: PathBuf,
    /// The program on whose behalf the thread runs.
    pub originator: String,
    /// What commands and patches may do.
    pub profile: Profile,
    /// How many tokens fit into the context window, if that is known.
    pub context_window: Option<u64>,
    /// The file of the log, now or once there is something to keep. None if nothing is kept.
    pub log_path: Option<PathBuf>,
    /// Tokens that were used before the thread was opened.
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

    /// The id, which [`Heddle::resume`](crate::Heddle::resume) takes.
    pub fn id(&self) -> ThreadId {
        self.shared.id
    }

    /// What was found out when the thread was opened.
    pub fn facts(&self) -> &ThreadFacts {
        &self.shared.facts
    }

    /// The working directory.
    pub fn directory(&self) -> &Path {
        &self.shared.facts.directory
    }

    /// What commands and patches may do.
    pub fn sandbox(&self) -> SandboxMode {
        self.shared.facts.profile.mode
    }

    /// What a person should know about how the thread was opened.
    pub fn notices(&self) -> &[Notice] {
        &self.shared.notices
    }

    /// Makes a turn that says something. Nothing happens until it is polled.
    pub fn turn(&self, input: impl Into<Input>) -> Turn {
        self.begin(Work::Say(input.into()))
    }

    /// Makes a turn that replaces the history by a summary of itself. Nothing happens until it is polled.
    pub fn compact(&self) -> Turn {
        self.begin(Work::Compact)
    }

    fn begin(&self, work: Work) -> Turn {
        let directory = self.shared.facts.directory.clone();
        Turn::new(Arc::clone(&self.shared.running), directory, work)
    }

    /// How many items the history has; none while a turn runs.
    pub fn history_len(&self) -> Option<usize> {
        self.shared.running.try_lock().ok().map(|thread| thread.items())
    }

    /// Ends all commands at once, without waiting for them. For signal handlers; [`Thread::close`] is the polite way.
    pub fn kill_commands(&self) {
        self.shared.sessions.kill_all();
    }

    /// Ends every command that is still running, lets go of the log, and returns the commands. Waits for a turn that is
    /// running.
    pub async fn close(&self) -> Vec<String> {
        self.shared.running.lock().await.shutdown().await
    }
}
