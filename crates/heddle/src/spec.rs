//! [`ThreadSpec`]: how a thread is opened, and with which settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::{ApprovalPolicy, SandboxMode};
use protocol::id::ThreadId;
use protocol::mode::Mode;
use runtime::{Approver, Model};
use tools::{Judge, Tool};

use crate::notice::{Notice, Observer};
use crate::session::past::{ForkPoint, Start};
use crate::session::settings::{Preferences, Settings};
use crate::tools::Tools;
use crate::turn::TurnLimits;

/// How to open a thread: new, resumed or forked, and with which settings. Unset options come from config.toml.
///
/// ```
/// use heddle::{SandboxMode, ThreadSpec};
///
/// let spec = ThreadSpec::in_dir("project").model("gpt-5.5").sandbox(SandboxMode::WorkspaceWrite);
/// ```
#[derive(Default)]
pub struct ThreadSpec {
    pub(crate) start: Start,
    pub(crate) fork_point: Option<ForkPoint>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) preferences: Preferences,
    pub(crate) settings: Option<Box<Settings>>,
    pub(crate) ephemeral: bool,
    pub(crate) ignore_rules: bool,
    pub(crate) approval: Option<ApprovalPolicy>,
    pub(crate) limits: TurnLimits,
    pub(crate) originator: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) tools: Vec<Box<dyn Tool>>,
    pub(crate) registries: Vec<Tools>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) judge: Option<Box<dyn Judge>>,
    pub(crate) backend: Option<Box<dyn Model>>,
    pub(crate) observer: Option<Observer>,
    pub(crate) mode: Option<Mode>,
    pub(crate) mode_instructions: Option<String>,
}

impl ThreadSpec {
    /// Creates a new thread in the working directory of its [`Heddle`](crate::Heddle).
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a new thread that works in `directory`.
    pub fn in_dir(directory: impl AsRef<Path>) -> Self {
        Self::default().directory(directory)
    }

    /// Resumes an existing thread.
    pub fn resume(thread: ThreadId) -> Self {
        Self { start: Start::Resume(thread), ..Self::default() }
    }

    /// Creates a new thread with the history of another one, which is not changed.
    pub fn fork(thread: ThreadId) -> Self {
        Self { start: Start::Fork(thread), ..Self::default() }
    }

    /// Creates a new thread under an id that no other thread has, such as one of
    /// [`new_thread_id`](crate::new_thread_id).
    pub fn new_as(id: ThreadId) -> Self {
        Self { start: Start::NewAs(id), ..Self::default() }
    }

    /// Leaves a turn and all later ones out of a fork. It has an effect only on a [fork](Self::fork).
    #[must_use]
    pub fn before_turn(mut self, turn: impl Into<String>) -> Self {
        self.fork_point = Some(ForkPoint::Before(turn.into()));
        self
    }

    /// Leaves all turns after this one out of a fork. It has an effect only on a [fork](Self::fork).
    #[must_use]
    pub fn after_turn(mut self, turn: impl Into<String>) -> Self {
        self.fork_point = Some(ForkPoint::After(turn.into()));
        self
    }

    /// Sets the working directory. A resumed or forked thread otherwise works where the thread last worked.
    #[must_use]
    pub fn directory(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().to_owned());
        self
    }

    /// Sets the model, by its name.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.preferences.model = Some(model.into());
        self
    }

    /// Sets the sandbox mode: what commands and patches may do.
    #[must_use]
    pub fn sandbox(mut self, mode: SandboxMode) -> Self {
        self.preferences.sandbox = Some(mode);
        self
    }

    /// Sets when approval is requested. The default without an [`approver`](Self::approver) is never; with one it is
    /// the policy in config.toml, or [`ApprovalPolicy::OnRequest`] if there is none.
    #[must_use]
    pub fn approval_policy(mut self, policy: ApprovalPolicy) -> Self {
        self.approval = Some(policy);
        self
    }

    /// Sets limits at which turns end, even if the model would go on. A turn can have
    /// [limits of its own](crate::Turn::limits).
    #[must_use]
    pub fn limits(mut self, limits: TurnLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the mode: in [`Mode::Plan`] the model explores and proposes a plan, and nothing can be changed, even with an approval. A
    /// resumed or forked thread is otherwise in the mode that it was last in.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Tells the model this about the mode, instead of the usual text.
    #[must_use]
    pub fn mode_instructions(mut self, text: impl Into<String>) -> Self {
        self.mode_instructions = Some(text.into());
        self
    }

    /// Overrides one setting of config.toml with a dotted key and a TOML value, such as `limits.calls_max=20`.
    #[must_use]
    pub fn setting(mut self, key_value: impl Into<String>) -> Self {
        self.preferences.overrides.push(key_value.into());
        self
    }

    /// Sets whether settings with an unknown name, and a profile that does not exist, are errors. Otherwise they are notices.
    /// Settings that were [loaded before](Self::settings) stay as they are.
    #[must_use]
    pub fn strict_settings(mut self, strict: bool) -> Self {
        self.preferences.strict = strict;
        self
    }

    /// Replaces all overrides of settings, including the model and the sandbox.
    #[must_use]
    pub fn preferences(mut self, preferences: Preferences) -> Self {
        self.preferences = preferences;
        self
    }

    /// Uses settings that were loaded before, together with the preferences with which they were loaded.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = Some(Box::new(settings));
        self
    }

    /// Keeps the thread in memory only; nothing of it is saved.
    #[must_use]
    pub fn ephemeral(mut self, ephemeral: bool) -> Self {
        self.ephemeral = ephemeral;
        self
    }

    /// Ignores rule files, which say which commands may run.
    #[must_use]
    pub fn ignore_rules(mut self, ignore: bool) -> Self {
        self.ignore_rules = ignore;
        self
    }

    /// Sets the name of the host program, which is sent to endpoints and written to the log.
    #[must_use]
    pub fn originator(mut self, name: impl Into<String>) -> Self {
        self.originator = Some(name.into());
        self
    }

    /// Sets the kind of front end that is written to the log: `exec`, `vscode`, `cli`.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Offers the model one more tool. It replaces a built-in tool of the same name; if the host program gives the thread
    /// two of one name, here or in registries, the thread is not opened.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.push(Box::new(tool));
        self
    }

    /// Offers the model the tools that `tools` has at the time of each request. They replace built-in tools of the same
    /// name. If a tool is added later under the name of a tool that was given with [`tool`](Self::tool), the thread
    /// does not offer it.
    #[must_use]
    pub fn tools(mut self, tools: &Tools) -> Self {
        if !self.registries.iter().any(|registry| registry.is_same(tools)) {
            self.registries.push(tools.clone());
        }
        self
    }

    /// Sets the approver, which answers requests for approval. Without one, every action that needs approval is
    /// refused.
    #[must_use]
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Sets a judge, which can make the policy stricter but never more lenient.
    #[must_use]
    pub fn judge(mut self, judge: impl Judge + 'static) -> Self {
        self.judge = Some(Box::new(judge));
        self
    }

    /// Gets answers from `model` instead of an endpoint. Providers and API keys in the settings are ignored.
    #[must_use]
    pub fn backend(mut self, model: impl Model + 'static) -> Self {
        self.backend = Some(Box::new(model));
        self
    }

    /// Calls `observer` with every notice while the thread is opened. All of them except the progress of a starting
    /// daemon are also in [`Thread::notices`](crate::Thread::notices).
    #[must_use]
    pub fn on_notice(mut self, observer: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        self.observer = Some(Observer::new(observer));
        self
    }

    /// Returns the parts that the host program provides, for transports that cannot use all of them.
    pub(crate) fn provided(&self) -> impl Iterator<Item = Provided> {
        let parts = [
            (Provided::Tools, !self.tools.is_empty() || !self.registries.is_empty()),
            (Provided::Approver, self.approver.is_some()),
            (Provided::Judge, self.judge.is_some()),
            (Provided::Model, self.backend.is_some()),
        ];
        parts.into_iter().filter_map(|(part, given)| given.then_some(part))
    }
}

/// A part of a thread that the host program provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provided {
    Tools,
    Approver,
    Judge,
    Model,
}

impl Provided {
    /// Returns its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools of the host program",
            Self::Approver => "an approver",
            Self::Judge => "a judge",
            Self::Model => "a model of the host program",
        }
    }
}
