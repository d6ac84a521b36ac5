//! [`Thread`]: an open thread, which runs turns.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use policy::{ApprovalPolicy, Profile};
use protocol::call::UserCommand;
use protocol::id::ThreadId;
use protocol::mode::Mode;
use protocol::open::Raw;
use protocol::repair::Repair;
use protocol::review::ReviewTarget;
use protocol::usage::Usage;
use serde_json::Value;
use serde_json::value::to_raw_value;
use tools::RunningCommand;

use crate::error::Error;
use crate::input::Input;
use crate::notice::Notice;
use crate::transport::{Session, Work};
use crate::turn::{Run, Turn, TurnLimits};

/// An open thread. It runs turns, one at a time. Cheap to clone; all clones are the same thread.
///
/// While it is open, no other process can resume it. It is released when the last clone is dropped, or by
/// [`Thread::close`], which also returns the commands that were still running.
#[derive(Clone, Debug)]
pub struct Thread {
    session: Arc<dyn Session>,
    limits: TurnLimits,
}

/// Properties of an open thread that do not change.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ThreadFacts {
    /// Id of the thread, by which it can be resumed.
    pub id: ThreadId,
    /// Name of the model, as the provider knows it.
    pub model: String,
    /// Id of the provider that serves the model, as in config.toml.
    pub provider: String,
    /// The working directory, with all symbolic links resolved.
    pub directory: PathBuf,
    /// Name of the host program.
    pub originator: String,
    /// The sandbox profile: what commands and patches may do, in detail. In plan mode nothing but a directory for temporary files
    /// can be written, whatever it says.
    pub profile: Profile,
    /// When approval is requested; none if another program runs the thread, as it does not report it.
    pub approval_policy: Option<ApprovalPolicy>,
    /// Size of the model's context window in tokens, if known.
    pub context_window: Option<u64>,
    /// Path of the log; for a new thread the file is created by its first turn. None if the thread is not stored in a file.
    pub log_path: Option<PathBuf>,
    /// Tokens used before the thread was opened.
    pub usage: Usage,
    /// Whether the user does not want to see reasoning (`hide_agent_reasoning`).
    pub hide_reasoning: bool,
    /// Whether the user wants to see raw reasoning while it streams (`show_raw_agent_reasoning`).
    pub show_raw_reasoning: bool,
    /// How the user and the model work together.
    pub mode: Mode,
    /// What the model was told about the mode; none if it was told nothing.
    pub mode_instructions: Option<String>,
}

impl Thread {
    pub(crate) fn new(session: Arc<dyn Session>, limits: TurnLimits) -> Self {
        Self { session, limits }
    }

    /// Returns the id, by which [`Heddle::resume`](crate::Heddle::resume) opens the thread again. Only a new thread over
    /// [`Exec`](crate::transport::Exec) has none, until its first turn has begun.
    pub fn id(&self) -> Option<ThreadId> {
        self.session.id()
    }

    /// Returns the properties that were determined when the thread was opened; none over
    /// [`Exec`](crate::transport::Exec).
    pub fn facts(&self) -> Option<&ThreadFacts> {
        self.session.facts()
    }

    /// Returns the directory in which commands run and paths are resolved.
    pub fn directory(&self) -> &Path {
        self.session.directory()
    }

    /// Returns the notices from opening the thread, for the user.
    pub fn notices(&self) -> &[Notice] {
        self.session.notices()
    }

    /// Creates a turn with this input. Nothing happens until it is polled.
    pub fn turn(&self, input: impl Into<Input>) -> Turn {
        self.begin(Work::Say(input.into()))
    }

    /// Creates a run: turns that follow one another until there is nothing left to do, or a limit is reached. Nothing
    /// happens until it is polled or awaited.
    pub fn run(&self, input: impl Into<Input>) -> Run {
        Run::new(Arc::clone(&self.session), input.into(), self.limits)
    }

    /// Creates a turn that replaces the history with a summary of it. Nothing happens until it is polled.
    pub fn compact(&self) -> Turn {
        self.begin(Work::Compact)
    }

    /// Creates a turn that runs a command line of the user's own with their shell: outside of the sandbox, and without
    /// asking anybody. The model is asked nothing; it reads the command and its output in the next turn. Nothing happens
    /// until the turn is polled.
    ///
    /// Without a timeout, the command may run for an hour. Never pass on what a model wrote.
    pub fn run_command(&self, command: impl Into<String>, timeout: Option<Duration>) -> Turn {
        let timeout_ms =
            timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self.begin(Work::RunCommand(UserCommand { command: command.into(), timeout_ms }))
    }

    /// Creates a turn in which a reviewer looks at a change: with a history of its own, and the tools and the sandbox of the
    /// thread. The answer is its findings as text, which the thread knows from then on; the items of the turn have them one
    /// by one ([`ItemBody::ExitedReview`](protocol::item::ItemBody::ExitedReview)). What is added to the turn is answered
    /// after the review. Nothing happens until the turn is polled.
    ///
    /// ```no_run
    /// # async fn example(thread: heddle::Thread) -> Result<(), heddle::Error> {
    /// let review = thread.review(heddle::ReviewTarget::UncommittedChanges)?.run().await?;
    /// println!("{}", review.final_response.unwrap_or_default());
    /// # Ok(())
    /// # }
    /// ```
    pub fn review(&self, target: ReviewTarget) -> Result<Turn, Error> {
        let target = target.trimmed().map_err(|blank| Error::settings(blank.to_string()))?;
        Ok(self.begin(Work::Review(target)))
    }

    fn begin(&self, work: Work) -> Turn {
        Turn::new(Arc::clone(&self.session), work, self.limits)
    }

    /// Returns whether input was [added](crate::TurnHandle::steer) to a turn in this process after its last request.
    /// The next turn begins with it; a turn with an empty [`Input`] sends only that.
    pub fn has_unsaid(&self) -> bool {
        self.session.has_unsaid()
    }

    /// Adds items of the Responses API to the history, between turns, as if they had been said before: text that the user
    /// pasted, or a conversation from elsewhere. They are in the log before this returns. What an endpoint would refuse is
    /// repaired; returns how. Only in this process.
    ///
    /// ```no_run
    /// # async fn example(thread: heddle::Thread) -> Result<(), heddle::Error> {
    /// let note = serde_json::json!({
    ///     "type": "message", "role": "user",
    ///     "content": [{"type": "input_text", "text": "The build server is down until noon."}],
    /// });
    /// thread.inject(vec![note]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inject(&self, items: Vec<Value>) -> Result<Vec<Repair>, Error> {
        let raw = |item: Value| match item {
            Value::Object(_) => to_raw_value(&item)
                .map(Raw::from)
                .map_err(|error| Error::settings(error.to_string())),
            other => Err(Error::settings(format!("an item is a JSON object, and not {other}"))),
        };
        self.session.inject(items.into_iter().map(raw).collect::<Result<_, _>>()?).await
    }

    /// Returns the commands that the model has started and that still run, oldest first. Only in this process.
    pub fn running_commands(&self) -> Vec<RunningCommand> {
        self.session.running_commands()
    }

    /// Stops one of the [running commands](Self::running_commands), by its session number. Returns whether it was running.
    pub fn stop_command(&self, session: u64) -> bool {
        self.session.stop_command(session)
    }

    /// Returns the number of items in the history. None while a turn runs, and for a thread in another program.
    pub fn history_len(&self) -> Option<usize> {
        self.session.history_len()
    }

    /// Kills all running commands without waiting for them. For signal handlers; otherwise use [`Thread::close`].
    pub fn kill_commands(&self) {
        self.session.kill_commands();
    }

    /// Closes the thread: kills the commands that are still running, closes the log, and returns the commands. Waits for
    /// the current turn to end.
    pub async fn close(&self) -> Vec<String> {
        self.session.close().await
    }
}
