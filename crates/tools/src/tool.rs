//! The interface of all tools.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use protocol::approval::{Answer, ApprovalRequest, Subject};
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

/// Something a model can call: ours, the host program's, or a server's.
pub trait Tool: Send + Sync {
    /// Describes the tool to the model and the user. Called once, when the tool is registered or the thread is opened.
    fn spec(&self) -> ToolSpec;

    /// Handles one call. Dropping the future stops it.
    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a>;
}

/// A running call.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>>;

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    /// What the model reads.
    pub content: OutputBody,
    /// Whether the call did what it was made for. The user sees the difference; the model reads it in the content.
    pub success: bool,
}

impl ToolOutput {
    /// Creates the result of a call that failed; the text tells the model why, and what it can do about it.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { content: OutputBody::Text(text.into()), success: false }
    }

    /// Returns the texts of the content, with a placeholder for each image.
    pub fn text(&self) -> String {
        self.content.text()
    }
}

impl From<OutputBody> for ToolOutput {
    fn from(content: OutputBody) -> Self {
        Self { content, success: true }
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        OutputBody::Text(text).into()
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// The name that the model uses.
    pub name: String,
    /// The name that people see.
    pub title: Option<String>,
    /// Its version, for people and logs.
    pub version: Option<String>,
    /// Its purpose, written for the model.
    pub description: String,
    pub input: ToolInput,
    /// What its owner claims about its effects.
    pub annotations: Annotations,
    /// Time limit of a call; without one, a call may last as long as the turn.
    pub timeout: Option<Duration>,
    /// Whether it may run concurrently with other calls.
    pub parallel: bool,
}

/// The input of a tool.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolInput {
    /// JSON that matches a schema.
    Json(Value),
    /// Free text in a grammar.
    Text(ToolFormat),
}

/// What the owner of a tool claims about its effects. The claims are not verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: bool,
    /// Its effects cannot be undone.
    pub destructive: bool,
}

impl ToolSpec {
    /// Describes a tool that takes JSON.
    pub fn new(name: impl Into<String>, description: impl Into<String>, schema: Value) -> Self {
        Self {
            name: name.into(),
            title: None,
            version: None,
            description: description.into(),
            input: ToolInput::Json(schema),
            annotations: Annotations::default(),
            timeout: None,
            parallel: false,
        }
    }

    /// Sets the name that people see.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the version, for people and logs.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Lets it run concurrently with other calls.
    #[must_use]
    pub fn parallel(mut self) -> Self {
        self.parallel = true;
        self
    }

    /// Declares that it changes nothing, so that no approval is asked.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.annotations.read_only = true;
        self
    }

    /// Declares that its effects cannot be undone, so that approval is asked first.
    #[must_use]
    pub fn destructive(mut self) -> Self {
        self.annotations.destructive = true;
        self
    }

    /// Limits the time of a call.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Converts it to the form that endpoints expect.
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

/// One call, and a channel back to the turn.
#[derive(Debug)]
pub struct ToolContext {
    pub(crate) call: Call,
    pub(crate) progress: ProgressSender,
}

impl ToolContext {
    /// Creates the context of a call; its reports go to `progress`.
    pub fn new(call: Call, progress: ProgressSender) -> Self {
        Self { call, progress }
    }

    /// Returns the id that the model gave the call.
    pub fn call_id(&self) -> &str {
        &self.call.call_id
    }

    /// Returns the input as text: JSON, or free text for tools that take it.
    pub fn text(&self) -> &str {
        self.call.payload.text()
    }

    /// Parses JSON arguments. They match the schema of the tool; the error is for the model.
    pub fn arguments<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ToolOutput> {
        arguments(&self.call).map_err(|content| ToolOutput { content, success: false })
    }

    /// Shows the user how far the call is: the text is appended to the output of its item. The model does not read it.
    pub async fn progress(&self, text: impl Into<String>) {
        self.report(Report::Output(text.into())).await;
    }

    /// Shows something to the user while the call runs.
    pub async fn report(&self, report: Report) {
        self.progress.send(self.call.key, report).await;
    }

    /// Asks for approval and waits for the answer. Show the pending effect first, with [`Report::Started`].
    pub async fn ask(&self, request: ApprovalRequest) -> Answer {
        self.progress.ask(self.call.key, request).await
    }

    /// Asks whether the call may go on, and why it asks. Without an approver, and without an answer in time, it may not.
    pub async fn confirm(&self, reason: impl Into<String>) -> bool {
        let subject = Subject::ToolCall {
            server: HOST_SERVER.to_owned(),
            tool: self.call.name.clone(),
            arguments: self.text().to_owned(),
        };
        let reason = Some(reason.into());
        self.ask(ApprovalRequest { subject, reason, scopes: Vec::new() }).await.accepts()
    }
}

/// Server name of the host program's tools, in items and questions.
pub const HOST_SERVER: &str = "host";

/// Parses JSON arguments; the error is for the model.
pub(crate) fn arguments<'a, T: Deserialize<'a>>(call: &'a Call) -> Result<T, OutputBody> {
    serde_json::from_str(call.payload.text())
        .map_err(|error| OutputBody::Text(format!("failed to parse function arguments: {error}")))
}

/// What a call sends while it runs.
#[derive(Debug)]
pub enum Progress {
    Report(Report),
    /// It needs approval and waits for the reply.
    Asked(ApprovalRequest, Reply),
}

/// Takes the answer to a question. Dropping it means that no one is there to answer.
#[derive(Debug)]
pub struct Reply(oneshot::Sender<Answer>);

impl Reply {
    /// Sends the answer and lets the tool continue.
    pub fn send(self, answer: Answer) {
        // A tool that was stopped meanwhile needs no answer.
        let _ = self.0.send(answer);
    }
}

/// Most progress messages in the queue; when it is full, tools wait.
const PROGRESS_QUEUE_MAX: usize = 64;

/// Sends the progress of calls; tools ignore that the receiver is gone.
#[derive(Clone, Debug)]
pub struct ProgressSender(mpsc::Sender<(CallKey, Progress)>);

impl ProgressSender {
    pub async fn send(&self, key: CallKey, report: Report) {
        let _ = self.0.send((key, Progress::Report(report))).await;
    }

    /// Reports that a call is refused, unless it has reported something else.
    pub(crate) async fn refuse(&self, key: CallKey, shown: Option<ItemBody>, refusal: &OutputBody) {
        let reason = refusal.text();
        self.send(key, Report::Refused { shown, reason }).await;
    }

    /// Asks, and waits for the answer without a time limit.
    pub(crate) async fn ask(&self, key: CallKey, request: ApprovalRequest) -> Answer {
        let (reply, answer) = oneshot::channel();
        let _ = self.0.send((key, Progress::Asked(request, Reply(reply)))).await;
        answer.await.unwrap_or(Answer::Disconnected)
    }
}

/// Reports a refused call, and returns what the model reads.
pub(crate) async fn show_refusal(
    key: CallKey,
    progress: &ProgressSender,
    done: Result<OutputBody, OutputBody>,
) -> ToolOutput {
    match done {
        Ok(output) => output.into(),
        Err(refusal) => {
            progress.refuse(key, None, &refusal).await;
            ToolOutput { content: refusal, success: false }
        }
    }
}

/// Creates a queue for progress.
pub fn progress_channel() -> (ProgressSender, mpsc::Receiver<(CallKey, Progress)>) {
    let (sender, receiver) = mpsc::channel(PROGRESS_QUEUE_MAX);
    (ProgressSender(sender), receiver)
}

/// Where tools work, and under which rules.
#[derive(Debug)]
pub struct Workspace {
    /// The working directory, absolute.
    pub cwd: PathBuf,
    pub shell: Shell,
    /// How commands that ask for a login shell run.
    pub login_shell: LoginShell,
    /// The environment of commands, already filtered.
    pub env: Vec<(String, String)>,
    /// Variables that the user set for commands explicitly; they also apply outside of the sandbox.
    pub env_set: Vec<String>,
    /// Confines commands.
    pub sandbox: Sandbox,
    /// Decides about all effects.
    pub gate: Gate,
    /// Most tokens of output that a model gets from one call.
    pub output_tokens_max: u64,
    /// Locked while a patch reads and writes files.
    pub patching: tokio::sync::Mutex<()>,
}

impl Workspace {
    /// Makes a path from a model absolute.
    pub(crate) fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        self.cwd.join(path)
    }
}
