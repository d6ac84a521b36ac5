//! What every tool is.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use protocol::approval::{Answer, ApprovalRequest};
use protocol::id::CallKey;
use protocol::item::{ItemBody, Step};
use protocol::responses::{OutputBody, ToolSpec};
use sandbox::Sandbox;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

use crate::gate::Gate;
use crate::login::LoginShell;
use crate::shell::Shell;

/// Something a model can call.
pub trait Tool: Send + Sync {
    /// Returns what the model is told about it.
    fn spec(&self) -> ToolSpec;

    /// Tells whether it may run beside other tools.
    fn parallel(&self) -> bool;

    /// Answers one call.
    fn run<'a>(&'a self, call: ToolCall, progress: ProgressSender) -> ToolFuture<'a>;
}

/// A call being answered. Dropping it stops the call.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = OutputBody> + Send + 'a>>;

/// One call.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// Names the call within the turn.
    pub key: CallKey,
    /// The id that the model gave it.
    pub call_id: String,
    /// What it is called with.
    pub input: ToolInput,
}

/// What a tool is called with.
#[derive(Clone, Debug)]
pub enum ToolInput {
    /// JSON as text.
    Json(String),
    /// Free text.
    Text(String),
}

impl ToolCall {
    /// Reads JSON arguments; the error is what the model reads.
    pub(crate) fn arguments<'a, T: Deserialize<'a>>(&'a self) -> Result<T, OutputBody> {
        let text = match &self.input {
            ToolInput::Json(text) | ToolInput::Text(text) => text,
        };
        serde_json::from_str(text).map_err(|error| {
            OutputBody::Text(format!("failed to parse function arguments: {error}"))
        })
    }
}

/// What a tool shows to the user, and what it asks.
#[derive(Debug)]
pub enum Progress {
    /// It began something.
    Started(ItemBody),
    /// What it began is over.
    Ended(ItemBody),
    /// The item began and ended at once, as if the sandbox had stopped it.
    Stopped(ItemBody),
    /// The call comes to nothing, for this reason; `shown` is what it would have been, if that is known.
    /// Not needed after a beginning, whose end says the same.
    Refused {
        /// A command or a patch, as it stands at its end.
        shown: Option<ItemBody>,
        /// Why, as the model reads it.
        reason: String,
    },
    /// It typed into a command that another call began.
    Typed {
        /// The call that began it.
        into: CallKey,
        /// The number of its session.
        session: u64,
        /// What was typed.
        text: String,
    },
    /// The list of steps is now this.
    Plan(Vec<Step>),
    /// It needs leave, and waits for the reply.
    Asked(ApprovalRequest, Reply),
    /// Commands with this prefix are allowed from now on, as the user wanted.
    Remembered(Vec<String>),
    /// The user should know this.
    Warning(String),
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
    pub async fn send(&self, key: CallKey, progress: Progress) {
        let _ = self.0.send((key, progress)).await;
    }

    /// Shows that a call comes to nothing, unless it has shown something else.
    pub(crate) async fn refuse(&self, key: CallKey, shown: Option<ItemBody>, refusal: &OutputBody) {
        let reason = refusal.text();
        self.send(key, Progress::Refused { shown, reason }).await;
    }

    /// Asks, and waits for the answer for as long as it takes.
    pub(crate) async fn ask(&self, key: CallKey, request: ApprovalRequest) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.send(key, Progress::Asked(request, Reply(reply))).await;
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
