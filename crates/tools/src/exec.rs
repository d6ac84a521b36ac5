//! `exec_command` and `write_stdin`: shell commands, and sessions for those that take longer.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use policy::{CommandRequest, Effect, Escalation, SandboxMode, Scene};
use protocol::call::{Call, Report};
use protocol::id::CallKey;
use protocol::item::{Command, CommandSource, ItemBody, Status};
use protocol::responses::OutputBody;
use sandbox::{Io, Process, SpawnRequest};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::gate::Asking;
use crate::login::{LoginEnvironments, LoginShell};
use crate::output::{self, CommandState};
use crate::patch;
use crate::session::{CTRL_C, SESSIONS_MAX, Session, Sessions, Start};
use crate::shell::{self, Shell};
use crate::tool::{
    ProgressSender, Tool, ToolContext, ToolFuture, ToolOutput, ToolSpec, Workspace,
    arguments as read_arguments,
};

/// How long a call waits for a command by default.
const YIELD_DEFAULT_MS: u64 = 10_000;
/// Bounds of the wait that a model may ask for.
const YIELD_MS: (u64, u64) = (250, 30_000);
/// How long a call waits after typing by default.
const TYPED_YIELD_DEFAULT_MS: u64 = 250;
/// Bounds of a wait without typing.
const POLL_YIELD_MS: (u64, u64) = (5_000, 300_000);

/// Runs shell commands.
#[derive(Debug)]
pub struct ExecCommand {
    workspace: Arc<Workspace>,
    sessions: Arc<Sessions>,
    chunks: Arc<AtomicU32>,
    login: LoginEnvironments,
}

/// Reads more output of a session, or types into it.
#[derive(Debug)]
pub struct WriteStdin {
    workspace: Arc<Workspace>,
    sessions: Arc<Sessions>,
    chunks: Arc<AtomicU32>,
}

impl ExecCommand {
    /// Creates both tools, which share their sessions.
    pub fn with_stdin(workspace: Arc<Workspace>, sessions: Arc<Sessions>) -> (Self, WriteStdin) {
        let chunks = Arc::new(AtomicU32::new(1));
        let write_stdin = WriteStdin {
            workspace: Arc::clone(&workspace),
            sessions: Arc::clone(&sessions),
            chunks: Arc::clone(&chunks),
        };
        let login = LoginEnvironments::default();
        (Self { workspace, sessions, chunks, login }, write_stdin)
    }

    async fn exec(&self, call: Call, progress: ProgressSender) -> Result<OutputBody, OutputBody> {
        let begun = Instant::now();
        let arguments: ExecArguments = read_arguments(&call)?;
        let (request, shown, asked) = match self.intend(&arguments, &call, &progress).await? {
            Intent::Run { request, shown, asked } => (request, shown, asked),
            Intent::Patch { base, text } => {
                let text = patch::apply(&self.workspace, &base, &text, call.key, &progress).await?;
                let wall = begun.elapsed().as_secs_f64();
                let text = format!("Wall time: {wall:.4} seconds\nOutput:\n{text}");
                return Ok(OutputBody::Text(text));
            }
        };
        let item = item(&shown, &request.cwd, Status::InProgress);
        let process = match Process::spawn(&self.workspace.sandbox, &request).await {
            Ok(process) => process,
            Err(error) => {
                let text = error.to_string();
                let ended = Command {
                    output: text,
                    exit_code: Some(-1),
                    status: Status::Failed,
                    ..item.clone()
                };
                if !asked {
                    progress.send(call.key, Report::Started(ItemBody::Command(item))).await;
                }
                progress.send(call.key, Report::Ended(ItemBody::Command(ended))).await;
                return refuse(format!("exec_command failed: {error}"));
            }
        };
        let sandboxed = request.permit.profile().mode != SandboxMode::DangerFullAccess;
        let (key, call_id) = (call.key, call.call_id);
        let start = Start { key, call_id, argv: shown, item, shown: asked, sandboxed };
        let session = self.sessions.adopt(process, start, progress);
        let wait = clamp(arguments.yield_time_ms, YIELD_DEFAULT_MS, YIELD_MS);
        let tokens = tokens(arguments.max_output_tokens, self.workspace.output_tokens_max);
        let chunk = self.chunks.fetch_add(1, Ordering::Relaxed);
        Ok(OutputBody::Text(collect(&self.sessions, &session, begun, wait, tokens, chunk).await))
    }

    /// Decides what a call will do, or why it is refused, without doing it.
    pub(crate) async fn intend(
        &self,
        arguments: &ExecArguments,
        call: &Call,
        progress: &ProgressSender,
    ) -> Result<Intent, OutputBody> {
        let escalated = arguments.sandbox_permissions == Some(SandboxPermissions::RequireEscalated);
        if !escalated && arguments.justification.is_some() {
            return refuse(
                "`justification` is only for calls with `sandbox_permissions` set to \
                 `require_escalated`",
            );
        }
        if arguments.cmd.trim_start().starts_with("*** Begin Patch") {
            return refuse(
                "apply_patch verification failed: this is a patch and not a command; call \
                 apply_patch with it",
            );
        }
        let workdir = self.workdir(arguments);
        if let Some(embedded) = ::patch::extract(&arguments.cmd).filter(|_| !escalated) {
            let base = embedded.directory.map_or(workdir.clone(), |d| workdir.join(d));
            return Ok(Intent::Patch { base, text: embedded.patch.into_owned() });
        }
        let (shell, login) = self.shell(arguments);
        if arguments.login == Some(true) && matches!(self.workspace.login_shell, LoginShell::Off) {
            return refuse("login shells are switched off here; leave `login` out");
        }
        let argv = shell.argv(&arguments.cmd, login);
        // Checked first, so that no one is asked in vain. At most as many calls can wait for an answer as may
        // run at once.
        if !self.sessions.has_room() {
            return refuse(format!(
                "{SESSIONS_MAX} commands are still running; wait for one with write_stdin first"
            ));
        }
        let escalation = escalated.then(|| Escalation {
            justification: arguments.justification.clone(),
            prefix: arguments.prefix_rule.clone(),
        });
        let mut env = self.environment(&call.call_id);
        let mut command = CommandRequest {
            argv: argv.clone(),
            cwd: workdir.clone(),
            escalation,
            scene: Scene::default(),
        };
        let gate = &self.workspace.gate;
        command.scene = gate.scene(&command, &self.workspace.cwd, &env);
        let item = |status| ItemBody::Command(item(&argv, &workdir, status));
        let asking = Asking { key: call.key, progress, item: &item };
        let leave = gate.pass(Effect::Command(command), &asking).await;
        let leave = leave.map_err(OutputBody::Text)?;
        let full = SandboxMode::DangerFullAccess;
        let lifted = gate.profile().mode != full && leave.permit.profile().mode == full;
        let mut run = argv.clone();
        if lifted {
            // Startup files of shells, and files that variables point to, may have been written by the model.
            run = shell.bare_argv(&arguments.cmd);
            env = sandbox::outside_env(env, &self.workspace.env_set, gate.profile());
        } else if login
            && let LoginShell::Once(filter) = &self.workspace.login_shell
            && let Some(taken) = {
                let warn = async |text| progress.send(call.key, Report::Warning(text)).await;
                self.login.get(&self.workspace, &shell, filter, warn).await
            }
        {
            run = shell.argv(&arguments.cmd, false);
            env = with_call_id(taken, &call.call_id);
        }
        let request = SpawnRequest {
            env,
            io: if arguments.tty.unwrap_or(false) { Io::Terminal } else { Io::Pipe },
            permit: leave.permit,
            argv: run,
            cwd: workdir,
        };
        Ok(Intent::Run { request, shown: argv, asked: leave.asked })
    }

    /// Returns the item of the command that a call asks for; none if the arguments are invalid.
    fn shown(&self, call: &Call) -> Option<Command> {
        let arguments: ExecArguments = read_arguments(call).ok()?;
        let (shell, login) = self.shell(&arguments);
        let argv = shell.argv(&arguments.cmd, login);
        Some(item(&argv, &self.workdir(&arguments), Status::InProgress))
    }

    /// Returns the shell of a call, and whether it is a login shell.
    fn shell(&self, arguments: &ExecArguments) -> (Cow<'_, Shell>, bool) {
        let login_allowed = !matches!(self.workspace.login_shell, LoginShell::Off);
        let shell = match &arguments.shell {
            Some(named) => Cow::Owned(Shell::named(named)),
            None => Cow::Borrowed(&self.workspace.shell),
        };
        (shell, arguments.login.unwrap_or(login_allowed))
    }

    fn workdir(&self, arguments: &ExecArguments) -> PathBuf {
        match &arguments.workdir {
            Some(workdir) if !workdir.is_empty() => self.workspace.resolve(workdir),
            _ => self.workspace.cwd.clone(),
        }
    }

    fn environment(&self, call_id: &str) -> Vec<(String, String)> {
        with_call_id(self.workspace.env.clone(), call_id)
    }
}

fn with_call_id(mut env: Vec<(String, String)>, call_id: &str) -> Vec<(String, String)> {
    env.push(("CODEX_TOOL_CALL_ID".to_owned(), call_id.to_owned()));
    env
}

impl WriteStdin {
    async fn write(
        &self,
        call: Call,
        progress: &ProgressSender,
    ) -> Result<OutputBody, StdinRefusal> {
        let begun = Instant::now();
        let arguments: StdinArguments = read_arguments(&call)
            .map_err(|refusal: OutputBody| StdinRefusal::plain(refusal.text()))?;
        let id = arguments.session_id;
        let Some(session) = (id >= 0.0).then(|| self.sessions.find(id as u64)).flatten() else {
            return Err(StdinRefusal::plain(format!(
                "write_stdin failed: there is no session {id}; it has ended, at the latest when the turn that began \
                 it was over"
            )));
        };
        let wait = if arguments.chars.is_empty() {
            clamp(arguments.yield_time_ms, POLL_YIELD_MS.0, POLL_YIELD_MS)
        } else {
            self.type_into(&session, &arguments.chars, call.key, progress).await?;
            clamp(arguments.yield_time_ms, TYPED_YIELD_DEFAULT_MS, YIELD_MS)
        };
        let tokens = tokens(arguments.max_output_tokens, self.workspace.output_tokens_max);
        let chunk = self.chunks.fetch_add(1, Ordering::Relaxed);
        Ok(OutputBody::Text(collect(&self.sessions, &session, begun, wait, tokens, chunk).await))
    }

    /// Types into a command if the gate allows it, and shows what was typed.
    async fn type_into(
        &self,
        session: &Session,
        chars: &str,
        key: CallKey,
        progress: &ProgressSender,
    ) -> Result<(), StdinRefusal> {
        // Without a terminal, nothing turns the character into a signal.
        if session.is_piped() && chars == CTRL_C {
            session.interrupt();
            return Ok(());
        }
        if session.is_piped() {
            return Err(StdinRefusal::plain(
                "write_stdin failed: this session has no input; start the command with `tty` set \
                 to true to type into it",
            ));
        }
        let request = session.input(chars);
        let shown = |status| {
            let words = ["write_stdin".to_owned(), session.id.to_string(), chars.to_owned()];
            item(&words, &request.cwd, status)
        };
        let body = |status| ItemBody::Command(shown(status));
        let asking = Asking { key, progress, item: &body };
        let effect = Effect::Input(request.clone());
        let leave = self.workspace.gate.pass(effect, &asking).await.map_err(|mut text| {
            if session.has_open_line() {
                text += " (what was typed before is still there: Ctrl-C gives it up)";
            }
            StdinRefusal { text, shown: Some(shown(Status::Declined)) }
        })?;
        // Reported first: the input may end the command and thereby its item.
        let (into, number, text) = (session.key, session.id, chars.to_owned());
        progress.send(key, Report::Typed { into, session: number, text }).await;
        let typed = session.write(chars, &leave).await;
        if leave.asked {
            let status = if typed.is_ok() { Status::Completed } else { Status::Failed };
            progress.send(key, Report::Ended(body(status))).await;
        }
        match typed {
            // If the command has ended, that is not a write failure: the result of the call says so.
            Err(error) if session.is_running() => {
                Err(StdinRefusal::plain(format!("write_stdin failed: {error}")))
            }
            _ => Ok(()),
        }
    }
}

/// Why nothing was typed.
struct StdinRefusal {
    /// What the model reads.
    text: String,
    /// The item to show, if the text to be typed is the reason.
    shown: Option<Command>,
}

impl StdinRefusal {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), shown: None }
    }
}

/// Waits a while for a command and renders its output since the last call.
async fn collect(
    sessions: &Sessions,
    session: &Session,
    begun: Instant,
    wait: Duration,
    tokens_max: u64,
    chunk: u32,
) -> String {
    session.wait(Instant::now() + wait).await;
    let (output, exit) = session.take();
    let standing = match exit {
        Some(code) => {
            sessions.forget(session.id);
            CommandState::Exited(code)
        }
        None => CommandState::Running(session.id),
    };
    output::render(chunk.wrapping_mul(0x9e_3779), begun.elapsed(), standing, &output, tokens_max)
}

fn refuse<T>(text: impl Into<String>) -> Result<T, OutputBody> {
    Err(OutputBody::Text(text.into()))
}

/// Converts milliseconds from a model, which may send any number at all.
fn clamp(given: Option<f64>, default: u64, (min, max): (u64, u64)) -> Duration {
    let ms = given.filter(|ms| ms.is_finite()).map_or(default as f64, |ms| ms);
    Duration::from_millis(ms.clamp(min as f64, max as f64) as u64)
}

fn tokens(given: Option<f64>, max: u64) -> u64 {
    given.filter(|n| n.is_finite() && *n >= 0.0).map_or(max, |n| (n as u64).min(max))
}

/// Creates the item of a command without output.
fn item(argv: &[String], cwd: &Path, status: Status) -> Command {
    Command {
        command: shell::join(argv),
        cwd: cwd.to_owned(),
        output: String::new(),
        exit_code: None,
        status,
        source: CommandSource::Model,
    }
}

/// What a call of `exec_command` will do.
pub(crate) enum Intent {
    /// A process.
    Run {
        request: SpawnRequest,
        /// The command to show: the one that was approved.
        shown: Vec<String>,
        /// Whether approval was asked, which means that the item has already started.
        asked: bool,
    },
    /// A patch that was wrapped into a command.
    Patch {
        /// The directory that its paths are relative to.
        base: PathBuf,
        text: String,
    },
}

#[derive(Deserialize)]
pub(crate) struct ExecArguments {
    cmd: String,
    workdir: Option<String>,
    shell: Option<String>,
    tty: Option<bool>,
    login: Option<bool>,
    yield_time_ms: Option<f64>,
    max_output_tokens: Option<f64>,
    sandbox_permissions: Option<SandboxPermissions>,
    justification: Option<String>,
    prefix_rule: Option<Vec<String>>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum SandboxPermissions {
    UseDefault,
    RequireEscalated,
}

#[derive(Deserialize)]
struct StdinArguments {
    session_id: f64,
    #[serde(default)]
    chars: String,
    yield_time_ms: Option<f64>,
    max_output_tokens: Option<f64>,
}

impl Tool for ExecCommand {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("exec_command", "Runs a shell command and returns its output, or a session ID if it is \
                          still running after `yield_time_ms`.", json!({
                "type": "object",
                "properties": {
                    "cmd": { "type": "string", "description": "The command line." },
                    "workdir": { "type": "string", "description": "Where to run it; the working directory by default." },
                    "shell": { "type": "string", "description": "The shell to run it with; the user's by default." },
                    "tty": { "type": "boolean", "description": "Give it a terminal, so that write_stdin can type into it. Default false." },
                    "login": { "type": "boolean", "description": "Run it as a login shell would. Default true." },
                    "yield_time_ms": { "type": "number", "description": "How long to wait for it, 250 to 30000. Default 10000." },
                    "max_output_tokens": { "type": "number", "description": "The most output to return. Default 10000, which is also the limit." },
                    "sandbox_permissions": { "type": "string", "enum": ["use_default", "require_escalated"], "description": "`require_escalated` asks to run outside of the sandbox." },
                    "justification": { "type": "string", "description": "With `require_escalated`: the question to put to the user." },
                    "prefix_rule": { "type": "array", "items": { "type": "string" }, "description": "With `require_escalated`: a command prefix that the user could allow from now on." }
                },
                "required": ["cmd"],
                "additionalProperties": false
            })).parallel()
    }

    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        let ToolContext { call, progress } = context;
        Box::pin(async move {
            let key = call.key;
            let shown = self.shown(&call);
            match self.exec(call, progress.clone()).await {
                Ok(output) => output.into(),
                Err(refusal) => {
                    let declined = shown.map(|item| {
                        let (output, status) = (refusal.text(), Status::Declined);
                        ItemBody::Command(Command { output, status, ..item })
                    });
                    progress.refuse(key, declined, &refusal).await;
                    ToolOutput { content: refusal, success: false }
                }
            }
        })
    }
}

impl Tool for WriteStdin {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "write_stdin",
            "Types into a running session, or just waits for it, and returns what it \
                          printed since.",
            json!({
                "type": "object",
                "properties": {
                    "session_id": { "type": "number", "description": "The session, as exec_command named it." },
                    "chars": { "type": "string", "description": "What to type; nothing to only wait." },
                    "yield_time_ms": { "type": "number", "description": "How long to wait: after typing 250 to 30000, default 250; without 5000 to 300000, default 5000." },
                    "max_output_tokens": { "type": "number", "description": "The most output to return. Default 10000, which is also the limit." }
                },
                "required": ["session_id"],
                "additionalProperties": false
            }),
        )
    }

    // Typed text must arrive in the order of the calls.
    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        let ToolContext { call, progress } = context;
        Box::pin(async move {
            let key = call.key;
            match self.write(call, &progress).await {
                Ok(output) => output.into(),
                Err(StdinRefusal { text, shown }) => {
                    let declined = shown
                        .map(|item| ItemBody::Command(Command { output: text.clone(), ..item }));
                    let refusal = OutputBody::Text(text);
                    progress.refuse(key, declined, &refusal).await;
                    ToolOutput { content: refusal, success: false }
                }
            }
        })
    }
}
