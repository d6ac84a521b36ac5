//! What every tool is.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use protocol::approval::{Answer, ApprovalRequest};
use protocol::call::{Call, Report};
use protocol::id::CallKey;
use protocol::item::ItemBody;
use protocol::responses::{self, OutputBody, ToolFormat};
use sandbox::Sandbox;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::gate::Gate;
use crate::login::LoginShell;
use crate::shell::Shell;

/// Something a model can call: one of ours, one of the host program, one of a server.
pub trait Tool: Send + Sync {
    /// Returns what the model and the user are told about it. It is asked once, when the thread is opened.
    fn spec(&self) -> ToolSpec;

    /// Answers one call. Dropping the future stops it.
    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a>;
}

/// A call that is being answered, with what the model reads in the end.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = OutputBody> + Send + 'a>>;

/// What is known of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// What the model calls it.
    pub name: String,
    /// What people call it.
    pub title: Option<String>,
    /// What it is for, in words for the model.
    pub description: String,
    /// What it is called with.
    pub input: ToolInput,
    /// What its owner says about what it does.
    pub annotations: Annotations,
    /// How long a call may take; without it, as long as the turn.
    pub timeout: Option<Duration>,
    /// Whether it may run beside other calls.
    pub parallel: bool,
}

/// What a tool is called with.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolInput {
    /// JSON that follows a schema.
    Json(Value),
    /// Free text in a grammar.
    Text(ToolFormat),
}

/// What the owner of a tool says about what it does. Nobody checks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: bool,
    /// What it does cannot be undone.
    pub destructive: bool,
}

impl ToolSpec {
    /// Describes a tool that takes JSON.
    pub fn new(name: impl Into<String>, description: impl Into<String>, schema: Value) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: description.into(),
            input: ToolInput::Json(schema),
            annotations: Annotations::default(),
            timeout: None,
            parallel: false,
        }
    }

    /// Sets what people call it.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Lets it run beside other calls.
    #[must_use]
    pub fn parallel(mut self) -> Self {
        self.parallel = true;
        self
    }

    /// Says that it changes nothing, so that nobody is asked about it.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.annotations.read_only = true;
        self
    }

    /// Says that what it does cannot be undone, so that a person is asked first.
    #[must_use]
    pub fn destructive(mut self) -> Self {
        self.annotations.destructive = true;
        self
    }

    /// Bounds how long a call may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Returns what an endpoint is told.
    pub fn to_wire(&self) -> responses::ToolSpec {
        let (name, description) = (self.name.clone(), self.description.clone());
        match &self.input {
            ToolInput::Json(schema) => responses::ToolSpec::Function {
                name,
                description,
                strict: false,
                parameters: schema.clone(),
            },
            ToolInput::Text(format) => {
                responses::ToolSpec::Custom { name, description, format: format.clone() }
            }
        }
    }
}

/// One call, and the way back to whoever runs the turn.
#[derive(Debug)]
pub struct ToolContext {
    pub(crate) call: Call,
    pub(crate) progress: ProgressSender,
}

impl ToolContext {
    /// Makes the context of a call; what it reports goes to `progress`.
    pub fn new(call: Call, progress: ProgressSender) -> Self {
        Self { call, progress }
    }

    /// The id that the model gave the call.
    pub fn call_id(&self) -> &str {
        &self.call.call_id
    }

    /// What it is called with, as text: JSON, or free text for tools that take that.
    pub fn text(&self) -> &str {
        self.call.payload.text()
    }

    /// Reads JSON arguments. They follow the schema of the tool; the error is for the model to read.
    pub fn arguments<'a, T: Deserialize<'a>>(&'a self) -> Result<T, OutputBody> {
        arguments(&self.call)
    }

    /// Shows something to the user while the call goes on.
    pub async fn report(&self, report: Report) {
        self.progress.send(self.call.key, report).await;
    }

    /// Asks whether something may be done, and waits for the answer. Show what waits first, with
    /// [`Report::Started`].
    pub async fn ask(&self, request: ApprovalRequest) -> Answer {
        self.progress.ask(self.call.key, request).await
    }
}

/// Reads JSON arguments; the error is what the model reads.
pub(crate) fn arguments<'a, T: Deserialize<'a>>(call: &'a Call) -> Result<T, OutputBody> {
    serde_json::from_str(call.payload.text())
        .map_err(|error| OutputBody::Text(format!("failed to parse function arguments: {error}")))
}

/// What a call sends while it runs.
#[derive(Debug)]
pub enum Progress {
    /// Something to show.
    Report(Report),
    /// It needs permission, and waits for the reply.
    Asked(ApprovalRequest, Reply),
}

/// Where the answer to a question goes. Dropping it counts as nobody being there.
#[derive(Debug)]
pub struct Reply(oneshot::Sender<Answer>);

impl Reply {
    /// Lets the tool go on.
    pub fn send(self, answer: Answer) {
        // A tool that was stopped meanwhile needs no answer.
        let _ = self.0.send(answer);
    }
}

/// Progress that waits to be taken; tools wait when there is more.
const PROGRESS_QUEUE_MAX: usize = 64;

/// Sends progress of one call after another; a receiver that is gone is no concern of a tool.
#[derive(Clone, Debug)]
pub struct ProgressSender(mpsc::Sender<(CallKey, Progress)>);

impl ProgressSender {
    /// Shows something.
    pub async fn send(&self, key: CallKey, report: Report) {
        let _ = self.0.send((key, Progress::Report(report))).await;
    }

    /// Shows that a call comes to nothing, unless it has shown something else.
    pub(crate) async fn refuse(&self, key: CallKey, shown: Option<ItemBody>, refusal: &OutputBody) {
        let reason = refusal.text();
        self.send(key, Report::Refused { shown, reason }).await;
    }

    /// Asks, and waits for the answer for as long as it takes.
    pub(crate) async fn ask(&self, key: CallKey, request: ApprovalRequest) -> Answer {
        let (reply, answer) = oneshot::channel();
        let _ = self.0.send((key, Progress::Asked(request, Reply(reply)))).await;
        answer.await.unwrap_or(Answer::Disconnected)
    }
}

/// Returns what the model reads, and shows a call that came to nothing.
pub(crate) async fn show_refusal(
    key: CallKey,
    progress: &ProgressSender,
    done: Result<OutputBody, OutputBody>,
) -> OutputBody {
    match done {
        Ok(output) => output,
        Err(refusal) => {
            progress.refuse(key, None, &refusal).await;
            refusal
        }
    }
}

/// Makes a queue for progress.
pub fn progress_channel() -> (ProgressSender, mpsc::Receiver<(CallKey, Progress)>) {
    let (sender, receiver) = mpsc::channel(PROGRESS_QUEUE_MAX);
    (ProgressSender(sender), receiver)
}

/// Where tools work, and under which rules.
#[derive(Debug)]
pub struct Workspace {
    /// The working directory, absolute.
    pub cwd: PathBuf,
    /// The shell that runs commands.
    pub shell: Shell,
    /// What becomes of commands that ask for a login shell.
    pub login_shell: LoginShell,
    /// The environment of commands, already filtered.
    pub env: Vec<(String, String)>,
    /// Names of variables that the user has set for commands, so that they hold outside of the sandbox too.
    pub env_set: Vec<String>,
    /// What keeps commands to it.
    pub sandbox: Sandbox,
    /// What decides about everything that is done.
    pub gate: Gate,
    /// The most tokens of output that a model gets from one call.
    pub output_tokens_max: u64,
    /// Held while a patch looks at files and writes them.
    pub patching: tokio::sync::Mutex<()>,
}

impl Workspace {
    /// Makes a path from a model absolute.
    pub(crate) fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        self.cwd.join(path)
    }
}
