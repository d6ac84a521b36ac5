//! A thread in a temporary workspace, a scripted approver, and what was observed.

use std::collections::VecDeque;
use std::future::pending;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::retry::RetryLimits;
use engine::{Limits, Outcome, Question, UserTurnInput};
use policy::{ApprovalPolicy, Policy, Profile, SandboxMode};
use protocol::approval::{Answer, Resolution, Scope};
use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::item::{Item, ItemBody};
use providers::{Auth, Client, Endpoint, Identity, WireApi};
use runtime::{
    ApprovalFuture, Approver, Clock, Control, EndpointModel, RequestOptions, ResumeState, Thread,
    ThreadOptions, Toolset,
};
use sandbox::Sandbox;
use serde_json::Value;
use tempfile::TempDir;
use testkit::ModelServer;
use tokio::sync::{Barrier, mpsc};
use tools::{ApplyPatch, ExecCommand, Gate, Judge, LoginShell, Sessions, Shell, Tool, Workspace};

/// How a question is answered.
pub(crate) enum Reaction {
    /// Answer at once.
    Say(Answer),
    /// Answer once this many questions are open.
    Together(Arc<Barrier>, Answer),
    /// Let time pass without an answer.
    Sleep,
    /// Control the turn, and answer nothing.
    Control(mpsc::Sender<Control>, Control),
    /// Accept, and remember the offered prefix.
    Remember,
    /// Run this first.
    After(Box<dyn Fn() + Send + Sync>, Answer),
}

/// Answers questions from a script, in order.
#[derive(Default)]
pub(crate) struct Scripted {
    reactions: Mutex<VecDeque<Reaction>>,
    pub(crate) asked: Mutex<Vec<Question>>,
    /// Number of withdrawn questions.
    pub(crate) withdrawn: AtomicUsize,
}

/// Counts a question that is dropped before its answer.
struct Waiting<'a>(&'a AtomicUsize, bool);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(usize::from(!self.1), Ordering::SeqCst);
    }
}

/// Lets the clock jump to the next timer while nothing else happens.
struct Paused;

impl Drop for Paused {
    fn drop(&mut self) {
        tokio::time::resume();
    }
}

impl Scripted {
    pub(crate) fn new(reactions: impl IntoIterator<Item = Reaction>) -> Arc<Self> {
        let reactions = Mutex::new(reactions.into_iter().collect());
        Arc::new(Self { reactions, ..Self::default() })
    }
}

impl Approver for Scripted {
    fn ask(&self, question: Question) -> ApprovalFuture<'_> {
        let offered = question.request.scopes.iter().find_map(|scope| match scope {
            Scope::Prefix(prefix) => Some(prefix.clone()),
            Scope::Session => None,
        });
        self.asked.lock().unwrap().push(question);
        let reaction = self.reactions.lock().unwrap().pop_front().expect("a question too many");
        Box::pin(async move {
            let mut waiting = Waiting(&self.withdrawn, false);
            let answer = match reaction {
                Reaction::Say(answer) => answer,
                Reaction::Together(barrier, answer) => {
                    barrier.wait().await;
                    answer
                }
                Reaction::Sleep => {
                    tokio::time::pause();
                    let _paused = Paused;
                    pending().await
                }
                Reaction::Control(sender, control) => {
                    sender.send(control).await.unwrap();
                    pending().await
                }
                Reaction::Remember => {
                    Answer::AcceptAndRemember(offered.expect("a prefix is on offer"))
                }
                Reaction::After(prepare, answer) => {
                    prepare();
                    answer
                }
            };
            waiting.1 = true;
            answer
        })
    }
}

/// A thread with an approver.
pub(crate) struct Host {
    pub(crate) directory: TempDir,
    pub(crate) server: ModelServer,
    pub(crate) approver: Option<Arc<Scripted>>,
    pub(crate) limits: Limits,
    pub(crate) judge: Option<Box<dyn Judge>>,
    pub(crate) control: (mpsc::Sender<Control>, mpsc::Receiver<Control>),
}

/// What was observed of a turn.
pub(crate) struct Seen {
    pub(crate) outcome: Outcome,
    /// Items and questions, abbreviated.
    pub(crate) events: Vec<String>,
    /// What the model was told: outputs and our messages in the last request.
    pub(crate) told: Vec<String>,
}

impl Host {
    /// Creates a host whose model plays `script`; `SCRATCH` in it stands for a directory outside of the
    /// workspace.
    pub(crate) fn new(script: &Value) -> Self {
        let directory = TempDir::new().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for folder in ["w", "out"] {
            std::fs::create_dir(root.join(folder)).unwrap();
        }
        let out = root.join("out").display().to_string();
        let script = serde_json::from_str(&script.to_string().replace("SCRATCH", &out)).unwrap();
        Self {
            directory,
            server: ModelServer::start(script).unwrap(),
            approver: None,
            limits: Limits::default(),
            judge: None,
            control: mpsc::channel(8),
        }
    }

    pub(crate) fn asked(mut self, reactions: impl IntoIterator<Item = Reaction>) -> Self {
        self.approver = Some(Scripted::new(reactions));
        self
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap()
    }

    /// Returns the file with remembered prefixes.
    pub(crate) fn rules(&self) -> PathBuf {
        self.root().join("home/rules/default.rules")
    }

    /// Reads a file outside of the workspace.
    pub(crate) fn out(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.root().join("out").join(name)).ok()
    }

    fn thread(&mut self) -> Thread {
        let root = self.root();
        let profile = Profile {
            mode: SandboxMode::WorkspaceWrite,
            writable_roots: vec![root.join("w")],
            ..Profile::full_access()
        };
        let policy = Policy { profile, approval: ApprovalPolicy::OnRequest, rules: Vec::new() };
        let mut gate = Gate::new(policy).remembering(self.rules());
        if let Some(judge) = self.judge.take() {
            gate = gate.judged_by(judge);
        }
        let workspace = Arc::new(Workspace {
            cwd: root.join("w"),
            shell: Shell::named("sh"),
            login_shell: LoginShell::Off,
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            env_set: Vec::new(),
            sandbox: Sandbox::new("/proc/self/exe".into(), None),
            gate,
            output_tokens_max: 10_000,
            patching: tokio::sync::Mutex::new(()),
        });
        let sessions = Arc::new(Sessions::default());
        let (exec, stdin) = ExecCommand::with_stdin(Arc::clone(&workspace), Arc::clone(&sessions));
        let patch = ApplyPatch::new(workspace, true);
        let tools: Vec<Box<dyn Tool>> = vec![Box::new(exec), Box::new(stdin), Box::new(patch)];
        let endpoint = Endpoint {
            name: "mock".into(),
            base_url: self.server.base_url(),
            socket: None,
            wire_api: WireApi::Responses,
            query: Vec::new(),
            headers: Vec::new(),
            auth: Auth::None,
            idle_timeout: Duration::from_secs(3_600),
        };
        let id = ThreadId::new(0, [0; 10]);
        let identity = Identity {
            originator: "test".into(),
            user_agent: "test".into(),
            thread_id: id.to_string(),
        };
        let options = ThreadOptions {
            mode: protocol::mode::Mode::Default,
            clock: Clock::default(),
            request: RequestOptions {
                model: "m".into(),
                instructions: String::new(),
                effort: None,
                summary: None,
                verbosity: None,
                service_tier: None,
                output_schema: None,
            },
            limits: self.limits,
            retry: RetryLimits { request_max: 0, stream_max: 0 },
            context_window: None,
            compact_at: None,
            seed: 1,
            turn_context: Default::default(),
        };
        let client = Client::new(endpoint, &identity).unwrap();
        let tools = Toolset::new(tools, &[], sessions).unwrap();
        let model = Box::new(EndpointModel::new(client, None));
        let mut thread = Thread::new(id, model, tools, options, Vec::new(), ResumeState::default());
        if let Some(approver) = &self.approver {
            thread.set_approver(Arc::clone(approver) as Arc<dyn Approver>);
        }
        thread
    }

    /// Runs one turn on the runtime that the binary uses.
    pub(crate) fn run(&mut self) -> Seen {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut thread = self.thread();
        let mut events = Vec::new();
        let root = self.root();
        let outcome = runtime.block_on(async {
            let mut sink = |event: Event| {
                events.extend(brief(&event, &root));
                ControlFlow::Continue(())
            };
            let said = vec![UserTurnInput::text("go")];
            let outcome = thread.run_turn(said, &mut self.control.1, &mut sink).await;
            thread.shutdown().await;
            outcome
        });
        let told = self.server.requests().last().map(|last| told(&last.body)).unwrap_or_default();
        Seen { outcome, events, told }
    }
}

fn told(body: &Value) -> Vec<String> {
    let items = body["input"].as_array().into_iter().flatten();
    items
        .filter_map(|item| {
            let text = item["output"].as_str().or_else(|| item["content"][0]["text"].as_str())?;
            (item["role"] != "user" && item["role"] != "assistant").then(|| text.to_owned())
        })
        .collect()
}

/// Abbreviates events about items of calls, questions, and ends.
fn brief(event: &Event, root: &Path) -> Option<String> {
    let item = |Item { id, body, .. }: &Item| match body {
        ItemBody::Command(command) => Some(format!("{} {:?}", id.0, command.status)),
        ItemBody::FileChange { status, .. } => Some(format!("{} {status:?}", id.0)),
        _ => None,
    };
    match event {
        Event::ItemStarted(started) => item(started).map(|text| format!("started {text}")),
        Event::ItemCompleted(ended) => item(ended).map(|text| format!("ended {text}")),
        Event::ApprovalRequested { id, item, .. } => {
            let item = item.map_or("nothing".to_owned(), |item| item.0.to_string());
            Some(format!("asked {} about {item}", id.0))
        }
        Event::ApprovalResolved { id, resolution: Resolution::Answered(answer) } => {
            Some(format!("answered {} {answer:?}", id.0))
        }
        Event::ApprovalResolved { id, resolution: Resolution::Withdrawn } => {
            Some(format!("withdrawn {}", id.0))
        }
        Event::Warning(text) => Some(text.replace(&root.display().to_string(), "")),
        Event::TurnCompleted { .. } => Some("completed".to_owned()),
        Event::TurnInterrupted { .. } => Some("interrupted".to_owned()),
        Event::TurnFailed { error, .. } => Some(format!("failed: {}", error.message)),
        _ => None,
    }
}
