//! What a caller wants of a thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::{ApprovalPolicy, SandboxMode};
use protocol::id::ThreadId;
use runtime::{Approver, Model};
use tools::{Judge, Tool};

use crate::notice::{Notice, Observer};
use crate::session::past::Start;
use crate::session::settings::{Preferences, Settings};

/// How a thread begins and what it runs with. What is not said comes from config.toml.
///
/// ```
/// use heddle::{SandboxMode, ThreadSpec};
///
/// let spec = ThreadSpec::in_dir("project").model("gpt-5.5").sandbox(SandboxMode::WorkspaceWrite);
/// ```
#[derive(Default)]
pub struct ThreadSpec {
    pub(crate) start: Start,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) preferences: Preferences,
    pub(crate) settings: Option<Box<Settings>>,
    pub(crate) ephemeral: bool,
    pub(crate) ignore_rules: bool,
    pub(crate) approval: Option<ApprovalPolicy>,
    pub(crate) originator: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) tools: Vec<Box<dyn Tool>>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) judge: Option<Box<dyn Judge>>,
    pub(crate) backend: Option<Box<dyn Model>>,
    pub(crate) observer: Option<Observer>,
}

impl ThreadSpec {
    /// A new thread in the working directory of its [`Heddle`](crate::Heddle).
    pub fn new() -> Self {
        Self::default()
    }

    /// A new thread that works in a directory.
    pub fn in_dir(directory: impl AsRef<Path>) -> Self {
        Self::default().directory(directory)
    }

    /// A thread that is there already, to go on with.
    pub fn resume(thread: ThreadId) -> Self {
        Self { start: Start::Resume(thread), ..Self::default() }
    }

    /// A new thread that begins with the history of another, which stays as it is.
    pub fn fork(thread: ThreadId) -> Self {
        Self { start: Start::Fork(thread), ..Self::default() }
    }

    /// Sets the working directory. Without it, a thread that is resumed works where it worked before.
    #[must_use]
    pub fn directory(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().to_owned());
        self
    }

    /// Names the model.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.preferences.model = Some(model.into());
        self
    }

    /// Says what commands and patches may do.
    #[must_use]
    pub fn sandbox(mut self, mode: SandboxMode) -> Self {
        self.preferences.sandbox = Some(mode);
        self
    }

    /// Says when the approver is asked. The default is never without an [`approver`](Self::approver), and what
    /// config.toml says, else [`ApprovalPolicy::OnRequest`], with one.
    #[must_use]
    pub fn approval_policy(mut self, policy: ApprovalPolicy) -> Self {
        self.approval = Some(policy);
        self
    }

    /// Puts one setting over config.toml: a key with dots and a TOML value, such as `limits.calls_max=20`.
    #[must_use]
    pub fn setting(mut self, key_value: impl Into<String>) -> Self {
        self.preferences.overrides.push(key_value.into());
        self
    }

    /// Replaces everything that is said about settings, the model and the sandbox included.
    #[must_use]
    pub fn preferences(mut self, preferences: Preferences) -> Self {
        self.preferences = preferences;
        self
    }

    /// Takes settings that were read before, with the preferences that they were read with.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = Some(Box::new(settings));
        self
    }

    /// Leaves nothing of the thread on disk.
    #[must_use]
    pub fn ephemeral(mut self, ephemeral: bool) -> Self {
        self.ephemeral = ephemeral;
        self
    }

    /// Reads no rule files.
    #[must_use]
    pub fn ignore_rules(mut self, ignore: bool) -> Self {
        self.ignore_rules = ignore;
        self
    }

    /// Names the program on whose behalf the thread runs: endpoints and the log are told.
    #[must_use]
    pub fn originator(mut self, name: impl Into<String>) -> Self {
        self.originator = Some(name.into());
        self
    }

    /// Says what kind of front end the thread is made through, in the words of the log: `exec`, `vscode`, `cli`.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Offers the model one more tool. One that is called like a tool of heddle takes its place.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.push(Box::new(tool));
        self
    }

    /// Sets the approver: what the approval policy does not settle is asked instead of refused.
    #[must_use]
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Adds a judge, who can make the policy stricter and never milder.
    #[must_use]
    pub fn judge(mut self, judge: impl Judge + 'static) -> Self {
        self.judge = Some(Box::new(judge));
        self
    }

    /// Takes answers from here instead of an endpoint. Providers and keys of the settings are not looked at.
    #[must_use]
    pub fn backend(mut self, model: impl Model + 'static) -> Self {
        self.backend = Some(Box::new(model));
        self
    }

    /// Is told of notices while the thread is being opened, as they come. All of them are also in
    /// [`Thread::notices`](crate::Thread::notices), but for the progress of a daemon that starts.
    #[must_use]
    pub fn on_notice(mut self, observer: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        self.observer = Some(Observer::new(observer));
        self
    }
}
