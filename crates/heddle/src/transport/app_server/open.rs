//! Requests that open threads, and their answers. Pure.

use std::path::PathBuf;

use policy::{ApprovalPolicy, Granular, Profile, SandboxMode};
use protocol::id::ThreadId;
use protocol::mode::Mode;
use protocol::usage::Usage;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::session::host::HostEnv;
use crate::session::past::{ForkPoint, Start};
use crate::session::settings::Preferences;
use crate::spec::ThreadSpec;
use crate::thread::ThreadFacts;
use crate::transport::app_server::unsupported;
use crate::transport::error::TransportError;

/// A request that opens a thread.
#[derive(Debug, PartialEq)]
pub(crate) struct OpenRequest {
    pub(crate) method: &'static str,
    pub(crate) params: Value,
}

impl OpenRequest {
    /// Converts a spec to a request; `asks` if an approver answers questions.
    pub(crate) fn new(host: &HostEnv, spec: ThreadSpec, asks: bool) -> Result<Self, Error> {
        let ThreadSpec { start, fork_point, directory, preferences, settings, ephemeral, .. } =
            &spec;
        let preferences = settings.as_ref().map_or(preferences, |settings| &settings.preferences);
        refuse_flags(&spec, preferences)?;
        let mut params = Map::new();
        let mut set = |name: &str, value: Value| params.insert(name.to_owned(), value);
        let method = match start {
            Start::New => "thread/start",
            Start::NewAs(_) => return Err(unsupported("an id of a new thread").into()),
            Start::Resume(thread) => {
                set("threadId", json!(thread.to_string()));
                // This transport does not use the turns, and there may be many.
                set("excludeTurns", json!(true));
                "thread/resume"
            }
            Start::Fork(thread) => {
                set("threadId", json!(thread.to_string()));
                set("excludeTurns", json!(true));
                match fork_point {
                    Some(ForkPoint::Before(turn)) => drop(set("beforeTurnId", json!(turn))),
                    Some(ForkPoint::After(turn)) => drop(set("lastTurnId", json!(turn))),
                    None => {}
                }
                "thread/fork"
            }
        };
        // A resumed or forked thread works where it last worked.
        if matches!(start, Start::New) || directory.is_some() {
            let directory = host.at(directory.as_deref())?.directory;
            set("cwd", json!(directory));
        }
        if let Some(model) = &preferences.model {
            set("model", json!(model));
        }
        if let Some(mode) = preferences.sandbox {
            set("sandbox", json!(mode.name()));
        }
        if *ephemeral && !matches!(start, Start::Resume(_)) {
            set("ephemeral", json!(true));
        }
        match (spec.approval, asks) {
            (Some(policy), _) => {
                set("approvalPolicy", approval(policy));
            }
            // There is no approver that could answer.
            (None, false) => {
                set("approvalPolicy", json!("never"));
            }
            (None, true) => {
                set("approvalPolicy", json!("on-request"));
            }
        }
        let config = config(preferences)?;
        if !config.is_empty() {
            set("config", config.into());
        }
        Ok(Self { method, params: params.into() })
    }
}

/// Refuses options that hold for a whole process, as the server already runs.
fn refuse_flags(spec: &ThreadSpec, preferences: &Preferences) -> Result<(), TransportError> {
    for (what, given) in [
        ("a choice to ignore rule files", spec.ignore_rules),
        ("a choice of the local model", preferences.local_model),
        ("a choice to refuse unknown settings", preferences.strict),
        ("a choice to ignore config.toml", preferences.ignore_file),
        ("a name of the host program for one thread", spec.originator.is_some()),
        ("a kind of front end", spec.source.is_some()),
        ("a mode", spec.mode.is_some() || spec.mode_instructions.is_some()),
    ] {
        if given {
            return Err(unsupported(what));
        }
    }
    Ok(())
}

/// Returns the overrides of config.toml, by key.
fn config(preferences: &Preferences) -> Result<Map<String, Value>, Error> {
    let mut config = Map::new();
    if let Some(profile) = &preferences.profile {
        config.insert("profile".to_owned(), json!(profile));
    }
    for text in &preferences.overrides {
        let setting = config::Override::parse(text).map_err(Error::settings)?;
        let (key, value) = setting.to_json();
        config.insert(key.to_owned(), value);
    }
    if !preferences.writable_dirs.is_empty() {
        let key = "sandbox_workspace_write.writable_roots".to_owned();
        config.insert(key, json!(preferences.writable_dirs));
    }
    Ok(config)
}

fn approval(policy: ApprovalPolicy) -> Value {
    match policy {
        ApprovalPolicy::Untrusted => json!("untrusted"),
        ApprovalPolicy::OnRequest => json!("on-request"),
        ApprovalPolicy::Never => json!("never"),
        ApprovalPolicy::Granular(Granular { sandbox_approval, rules }) => json!({"granular": {
            "sandbox_approval": sandbox_approval, "rules": rules, "mcp_elicitations": false,
        }}),
    }
}

/// Reads the answer to a request that opens a thread.
pub(crate) fn facts(answer: &str) -> Result<ThreadFacts, serde_json::Error> {
    let Opened { thread, model, model_provider, cwd, sandbox } = serde_json::from_str(answer)?;
    Ok(ThreadFacts {
        id: thread.id,
        model,
        provider: model_provider,
        profile: sandbox.into_profile(&cwd),
        directory: cwd,
        originator: thread.originator.unwrap_or_default(),
        approval_policy: None,
        context_window: None,
        log_path: thread.path,
        usage: Usage::default(),
        hide_reasoning: false,
        show_raw_reasoning: false,
        mode: Mode::Default,
        mode_instructions: None,
    })
}

/// Returns the id of the turn in the answer to a request; none if it has no turn.
pub(crate) fn turn_id(answer: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Started {
        turn: Turn,
    }
    #[derive(Deserialize)]
    struct Turn {
        id: String,
    }
    let Started { turn } = serde_json::from_str(answer).ok()?;
    Some(turn.id)
}

/// The answer to a request that opens a thread.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Opened {
    thread: WireThread,
    model: String,
    model_provider: String,
    cwd: PathBuf,
    sandbox: WireSandbox,
}

#[derive(Deserialize)]
struct WireThread {
    id: ThreadId,
    #[serde(default)]
    path: Option<PathBuf>,
    #[serde(default)]
    originator: Option<String>,
}

/// The sandbox of commands.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum WireSandbox {
    ReadOnly {
        #[serde(default)]
        network_access: bool,
    },
    WorkspaceWrite {
        #[serde(default)]
        writable_roots: Vec<PathBuf>,
        #[serde(default)]
        network_access: bool,
    },
    /// Any other kind: the program builds no sandbox.
    #[serde(other)]
    None,
}

impl WireSandbox {
    fn into_profile(self, directory: &std::path::Path) -> Profile {
        let (mode, roots, network) = match self {
            Self::ReadOnly { network_access } => {
                (SandboxMode::ReadOnly, Vec::new(), network_access)
            }
            Self::WorkspaceWrite { mut writable_roots, network_access } => {
                if !writable_roots.iter().any(|root| root == directory) {
                    writable_roots.insert(0, directory.to_owned());
                }
                (SandboxMode::WorkspaceWrite, writable_roots, network_access)
            }
            Self::None => (SandboxMode::DangerFullAccess, Vec::new(), true),
        };
        Profile {
            mode,
            writable_roots: roots,
            temporary_roots: Vec::new(),
            scratch: None,
            protected: Vec::new(),
            network,
        }
    }
}
