//! Commands that the user runs in a thread: outside the sandbox and without approval, because the user is the one who would
//! be asked.

use std::sync::Arc;
use std::time::Duration;

use policy::{Permit, Profile};
use protocol::call::{Call, Report, UserCommand};
use protocol::item::{Command, CommandSource, ItemBody, Status};
use protocol::responses::OutputBody;
use sandbox::{Io, Process, SpawnRequest};
use serde_json::json;
use tokio::time::Instant;

use crate::login::LoginShell;
use crate::output;
use crate::session::{SESSIONS_MAX, Sessions, Start};
use crate::shell;
use crate::tool::{
    ProgressSender, Tool, ToolContext, ToolFuture, ToolOutput, ToolSpec, Workspace, arguments,
};

/// How long a command of the user may run if no timeout is given.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60 * 60);

/// Runs a command of the user. It is not offered to models.
#[derive(Debug)]
pub struct UserShell {
    workspace: Arc<Workspace>,
    sessions: Arc<Sessions>,
}

impl UserShell {
    /// Creates the tool; its commands end with the other ones of `sessions`.
    pub fn new(workspace: Arc<Workspace>, sessions: Arc<Sessions>) -> Self {
        Self { workspace, sessions }
    }

    async fn exec(&self, call: Call, progress: ProgressSender) -> Result<OutputBody, OutputBody> {
        let UserCommand { command, timeout_ms } = arguments(&call)?;
        let login = !matches!(self.workspace.login_shell, LoginShell::Off);
        let argv = self.workspace.shell.argv(&command, login);
        let cwd = self.workspace.cwd.clone();
        let item = Command {
            command: shell::join(&argv),
            cwd: cwd.clone(),
            output: String::new(),
            exit_code: None,
            status: Status::InProgress,
            source: CommandSource::User,
        };
        progress.send(call.key, Report::Started(ItemBody::Command(item.clone()))).await;
        if !self.sessions.has_room() {
            let why = format!("{SESSIONS_MAX} commands are still running: end one of them first");
            return Err(fail(&call, &progress, item, why).await);
        }
        let request = SpawnRequest {
            // Secrets stay filtered: the model reads what the command prints.
            env: self.workspace.env.clone(),
            io: Io::Pipe,
            permit: Permit::for_user(Profile::full_access()),
            argv: argv.clone(),
            cwd,
        };
        let process = match Process::spawn(&self.workspace.sandbox, &request).await {
            Ok(process) => process,
            Err(error) => return Err(fail(&call, &progress, item, error.to_string()).await),
        };
        let begun = Instant::now();
        let call_id = String::new();
        let start = Start { key: call.key, call_id, argv, item, shown: true, sandboxed: false };
        let session = self.sessions.adopt(process, start, progress);
        let timeout = timeout_ms.map_or(TIMEOUT_DEFAULT, Duration::from_millis);
        session.wait(begun + timeout).await;
        let timed_out = session.is_running();
        if timed_out {
            self.sessions.stop(call.key);
            session.wait(Instant::now() + KILL_PATIENCE).await;
        }
        let (collected, exit) = session.take();
        self.sessions.forget(session.id);
        let ended = match (exit, timed_out) {
            (_, true) => format!("Ended by its timeout of {} s", timeout.as_secs_f64()),
            (Some(code), false) => format!("Exit code: {code}"),
            (None, false) => "Its end was not seen".to_owned(),
        };
        let text = output::within_budget(&collected, self.workspace.output_tokens_max);
        let seconds = begun.elapsed().as_secs_f64();
        Ok(OutputBody::Text(format!("{ended}\nDuration: {seconds:.4} seconds\nOutput:\n{text}")))
    }
}

/// How long to wait for a killed command to end.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// Completes the item of a command that could not be started.
async fn fail(call: &Call, progress: &ProgressSender, item: Command, why: String) -> OutputBody {
    let failed =
        Command { output: why.clone(), exit_code: Some(-1), status: Status::Failed, ..item };
    progress.send(call.key, Report::Ended(ItemBody::Command(failed))).await;
    OutputBody::Text(format!("It could not be started: {why}"))
}

impl Tool for UserShell {
    fn spec(&self) -> ToolSpec {
        let schema = json!({
            "type": "object",
            "properties": {"command": {"type": "string"}, "timeout_ms": {"type": "integer"}},
            "required": ["command"],
        });
        ToolSpec::new("user_shell_command", "Runs a command of the user's own.", schema)
    }

    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        let ToolContext { call, progress } = context;
        Box::pin(async move {
            match self.exec(call, progress).await {
                Ok(output) => output.into(),
                Err(content) => ToolOutput { content, success: false },
            }
        })
    }
}
