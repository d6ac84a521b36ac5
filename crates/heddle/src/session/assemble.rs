//! Assembles a thread that can run turns: its model, history, policy, tools and log.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::{Config, TurnLimits, WebSearch};
use engine::Limits;
use engine::context::{developer_message, user_message};
use engine::model::ModelProfile;
use engine::prompt::{self, AgentsMd, Environment, agents_md};
use engine::retry::RetryLimits;
use history::{ModelId, Profile, Wire};
use log::{
    BaseInstructions, CollaborationMode, ModeSettings, PAGINATED, Rollout, SessionMeta, TurnContext,
};
use policy::{ApprovalPolicy, Granular, Policy, SandboxMode};
use protocol::id::ThreadId;
use protocol::mode::Mode;
use protocol::open::Raw;
use protocol::responses::{self, KnownItem};
use providers::{Client, Endpoint, Identity, WireApi};
use runtime::project::RulesProblem;
use runtime::{
    Accepts, Attached, Clock, EndpointModel, Journal, Library, Model, RequestOptions, TextDialect,
    Thread, ThreadOptions, Toolset,
};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tools::{
    ApplyPatch, AskUser, ExecCommand, Gate, Judge, LoginShell, Sessions, Shell, Tool, UpdatePlan,
    UserShell, ViewImage, Workspace,
};

use crate::error::Error;
use crate::notice::{Notice, Observer};
use crate::session::host::HostEnv;
use crate::session::host_tools::{self, Combined, HostTools};
use crate::session::past::{self, ForkPoint, OpenedThread, Start, Stores};
use crate::session::provider::{self, Resolved};
use crate::session::scratch::Scratch;
use crate::session::settings::{MODEL_DEFAULT, Preferences, Settings};
use crate::session::{local, safety};
use crate::structured_output::AnswerFormat;

/// Highest first session id of commands in a resumed thread. It is random, so that ids of earlier runs are not reused.
const SESSIONS_MAX: u64 = 100_000;
/// Longest instructions file, in bytes; no model reads more.
const INSTRUCTIONS_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Default limit of the output that the model gets from one call, in tokens.
const OUTPUT_TOKENS_MAX: u64 = 10_000;

/// Parses the schema for the answer, which is sent to the endpoint and checked against every answer.
pub(crate) fn output_schema(text: &str) -> Result<AnswerFormat, Error> {
    let schema = config::Schema::parse(text).map_err(Error::settings)?;
    let json = RawValue::from_string(text.trim().to_owned()).map_err(Error::settings)?;
    Ok(AnswerFormat::new(json, schema))
}

/// Checks whether [`Turn::output_schema`](crate::Turn::output_schema) would accept a schema.
pub fn check_output_schema(text: &str) -> Result<(), Error> {
    output_schema(text).map(drop)
}

/// Parts that the host program provides.
#[derive(Default)]
pub(crate) struct Injected {
    pub(crate) tools: HostTools,
    pub(crate) judge: Option<Box<dyn Judge>>,
    pub(crate) model: Option<Box<dyn Model>>,
}

/// The inputs for assembling a thread.
pub(crate) struct ThreadRequest {
    pub(crate) start: Start,
    /// Where the history of a fork ends; none if it has the whole history.
    pub(crate) fork_point: Option<ForkPoint>,
    /// Keeps the thread in memory only.
    pub(crate) ephemeral: bool,
    pub(crate) ignore_rules: bool,
    pub(crate) settings: Settings,
    pub(crate) approval: ApprovalPolicy,
    /// Name of the host program.
    pub(crate) originator: String,
    /// Kind of the front end, as written to the log.
    pub(crate) source: String,
    pub(crate) injected: Injected,
    pub(crate) observer: Observer,
    pub(crate) clock: Clock,
    pub(crate) library: Library,
    /// The mode; none for the mode that the thread was last in.
    pub(crate) mode: Option<Mode>,
    /// What the model is told about the mode, instead of the usual text.
    pub(crate) mode_instructions: Option<String>,
}

/// A thread that is ready to run turns, and its properties.
pub(crate) struct Ready {
    pub(crate) thread: Thread,
    pub(crate) model: String,
    pub(crate) provider: String,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) profile: policy::Profile,
    /// The approval policy in effect.
    pub(crate) approval: ApprovalPolicy,
    /// Size of the model's context window in tokens, if known.
    pub(crate) window: Option<u64>,
    /// Path of the log, which may not exist yet.
    pub(crate) path: Option<PathBuf>,
    /// Whether the user does not want to see reasoning.
    pub(crate) hide_reasoning: bool,
    /// Whether the user wants to see raw reasoning as it comes.
    pub(crate) show_raw_reasoning: bool,
    /// What the endpoint takes.
    pub(crate) endpoint: Profile,
    pub(crate) mode: Mode,
    /// What the model is told about the mode, if anything.
    pub(crate) told_of_mode: Option<String>,
    /// Where commands may write in plan mode, while the thread is open.
    pub(crate) scratch: Option<Scratch>,
}

/// Creates or opens a thread.
///
/// It blocks, so it must run on a thread for blocking work; `runtime` drives the futures of the store.
pub(crate) fn thread(
    host: &HostEnv,
    stores: &Stores,
    runtime: &Handle,
    wanted: ThreadRequest,
) -> Result<Ready, Error> {
    let ThreadRequest {
        start,
        fork_point,
        ephemeral,
        ignore_rules,
        settings,
        approval,
        originator,
        source,
        injected,
        observer,
        clock,
        library,
        mode,
        mode_instructions,
    } = wanted;
    let Settings { config, warnings, preferences } = settings;
    warnings.into_iter().for_each(|text| observer.tell(Notice::Setting(text)));
    let source_model = match injected.model {
        Some(model) => Served::injected(config, model),
        None => served(host, config, &preferences, &source, &observer)?,
    };
    let Served { config, backend, provider, wire, retry, accepts } = source_model;
    let config = &config;
    let model = config.model.clone().unwrap_or_else(|| MODEL_DEFAULT.to_owned());
    let known = match backend.is_makers() {
        true => ModelProfile::from_name(&model),
        // A server that is not the model's maker may not support everything the model does elsewhere.
        false => ModelProfile::from_name(&model).plain(),
    };
    let instructions = instructions(host, config)?;
    let meta = SessionMeta {
        originator: originator.clone(),
        source: raw(&source),
        model_provider: Some(provider.clone()),
        base_instructions: Some(BaseInstructions { text: instructions.clone() }),
        ..session_meta(host)
    };
    let model_id = ModelId { provider: provider.clone(), model: model.clone() };
    let endpoint = Profile { wire, model_id };
    let opening =
        past::open(stores, start, fork_point.as_ref(), ephemeral, meta, &endpoint, &observer);
    let opened = runtime.block_on(opening)?;
    let OpenedThread { id, log, past, instructions: old_instructions, mode: last_mode } = opened;
    let mode_instructions = match mode {
        Some(mode) if mode != last_mode.mode => mode_instructions,
        _ => mode_instructions.or(last_mode.settings.developer_instructions),
    };
    let mode = mode.unwrap_or(last_mode.mode);
    // A thread keeps its original instructions, unless the user sets others now.
    let instructions = old_instructions
        .filter(|_| config.model_instructions_file.is_none())
        .unwrap_or(instructions);
    let policy = Policy {
        profile: safety::profile(host, config, &preferences)?,
        approval,
        rules: safety::rules(host, config, ignore_rules)?,
    };
    // What the settings allow, which applies again after plan mode.
    let profile = policy.profile.clone();
    let scratch = match mode {
        Mode::Plan => Some(Scratch::new()?),
        Mode::Default => None,
    };
    let policy = match &scratch {
        Some(scratch) => policy.plan(scratch.path().to_owned()),
        None => policy,
    };
    let gate = Gate::new(policy.clone()).remembering(host.home.join("rules/default.rules"));
    let sandbox = policy.profile.mode;
    let workspace = Arc::new(Workspace {
        cwd: host.directory.clone(),
        shell: Shell::of_user(host.env.get("SHELL").map(String::as_str)),
        login_shell: login_shell(config),
        env: command_env(host, config, id, scratch.as_ref()),
        env_set: safety::env_set(config),
        sandbox: safety::find_sandbox(host, config, sandbox, None)?,
        gate: match injected.judge {
            Some(judge) => gate.judged_by(judge),
            None => gate,
        },
        output_tokens_max: config.tool_output_token_limit.unwrap_or(OUTPUT_TOKENS_MAX),
        patching: tokio::sync::Mutex::new(()),
    });
    let hosted = hosted_tools(config);
    let mut setup = setup(host, config, &workspace, &observer);
    let told_of_mode =
        mode_instructions.clone().or((mode == Mode::Plan).then(|| prompt::PLAN_MODE.to_owned()));
    if let Some(text) = &told_of_mode {
        setup.push(developer_message(prompt::mode(text)));
    }
    let sessions = match start {
        Start::New | Start::NewAs(_) => Sessions::default(),
        Start::Resume(_) | Start::Fork(_) => Sessions::starting_after(random()? % SESSIONS_MAX),
    };
    let sessions = Arc::new(sessions);
    let own = own_tools(&workspace, config, known.freeform_patch, &sessions, mode);
    let Combined { fixed, live } = host_tools::combine(own, injected.tools, &workspace)?;
    let tools = Toolset::new(fixed, &hosted, Arc::clone(&sessions)).map_err(Error::settings)?;
    let tools = match live {
        Some(live) => tools.with_live(live),
        None => tools,
    };
    let user_shell = UserShell::new(Arc::clone(&workspace), Arc::clone(&sessions));
    let tools = tools.with_user_shell(Arc::new(user_shell));
    let window = config.model_context_window.or(known.context_window);
    let request =
        RequestOptions { model: model.clone(), instructions, ..request_options(config, &known) };
    let options = ThreadOptions {
        clock,
        mode,
        limits: limits(&config.limits),
        retry,
        context_window: window,
        compact_at: config
            .model_auto_compact_token_limit
            .or(known.compact_at(config.model_context_window)),
        seed: random()?,
        turn_context: TurnContext {
            cwd: host.directory.display().to_string(),
            approval_policy: raw(&approval_policy(approval)),
            sandbox_policy: sandbox_policy(&profile),
            model: model.clone(),
            effort: config.model_reasoning_effort.map(|effort| effort.as_str().to_owned()),
            collaboration_mode: Some(CollaborationMode {
                mode,
                settings: ModeSettings {
                    model: model.clone(),
                    reasoning_effort: request.effort.clone(),
                    developer_instructions: mode_instructions,
                },
            }),
            summary: Some("auto".to_owned()),
            ..TurnContext::default()
        },
        request,
    };
    let model_seam = backend.into_model(&identity(&originator, id))?;
    let mut thread = Thread::new(id, model_seam, tools, options, setup, past);
    let path = log.path().map(Path::to_owned);
    let rollout = Rollout::new(id, log.is_legacy(), window);
    thread.set_journal(Journal::new(log, rollout));
    thread.set_attached(Attached::new(library, accepts));
    let hide_reasoning = config.hide_agent_reasoning;
    let show_raw_reasoning = config.show_raw_agent_reasoning;
    Ok(Ready {
        thread,
        model,
        provider,
        sessions,
        profile,
        approval,
        window,
        path,
        hide_reasoning,
        show_raw_reasoning,
        endpoint,
        mode,
        told_of_mode,
        scratch,
    })
}

/// The source of answers.
enum Backend {
    Endpoint { endpoint: Box<Endpoint>, dialect: Option<TextDialect> },
    Injected(Box<dyn Model>),
}

impl Backend {
    /// Returns whether the model's maker also serves it, so that everything known about the model applies.
    fn is_makers(&self) -> bool {
        match self {
            Self::Endpoint { endpoint, .. } => {
                endpoint.wire_api == WireApi::Responses && endpoint.socket.is_none()
            }
            Self::Injected(_) => false,
        }
    }

    fn into_model(self, identity: &Identity) -> Result<Box<dyn Model>, Error> {
        Ok(match self {
            Self::Endpoint { endpoint, dialect } => {
                let client = Client::new(*endpoint, identity).map_err(Error::settings)?;
                Box::new(EndpointModel::new(client, dialect))
            }
            Self::Injected(model) => model,
        })
    }
}

/// The source of answers, and the configuration adjusted to it.
struct Served {
    config: Config,
    backend: Backend,
    provider: String,
    wire: Wire,
    retry: RetryLimits,
    accepts: Accepts,
}

impl Served {
    fn injected(config: Config, model: Box<dyn Model>) -> Self {
        let provider = config.model_provider.clone().unwrap_or_else(|| INJECTED.to_owned());
        let usual = config::Provider::default();
        let retry = RetryLimits {
            request_max: usual.request_max_retries,
            stream_max: usual.stream_max_retries,
        };
        let backend = Backend::Injected(model);
        // It gets requests in the form of the Responses API, which has images and PDFs.
        let (images, pdfs, can_be_set) = (true, true, false);
        let accepts = Accepts { images, pdfs, provider: provider.clone(), can_be_set };
        Self { config, backend, provider, wire: Wire::Responses, retry, accepts }
    }

    fn endpoint(config: Config, resolved: Resolved) -> Self {
        let Resolved { endpoint, retry, dialect, accepts } = resolved;
        let provider = endpoint.name.clone();
        let wire = match endpoint.wire_api {
            WireApi::Responses => Wire::Responses,
            WireApi::Chat => Wire::Chat,
        };
        let backend = Backend::Endpoint { endpoint: Box::new(endpoint), dialect };
        Self { config, backend, provider, wire, retry, accepts }
    }
}

/// Provider id of a model that the host program provides, unless the settings name one.
const INJECTED: &str = "host";

/// Chooses the source of answers; for a local model, starts the daemon if needed.
fn served(
    host: &HostEnv,
    mut config: Config,
    preferences: &Preferences,
    source: &str,
    observer: &Observer,
) -> Result<Served, Error> {
    let Some(chosen) = local::choose(host, &config)? else {
        let resolved = provider::resolve(&config, &host.env)?;
        return Ok(Served::endpoint(config, resolved));
    };
    // So that a user can try heddle out without any configuration: in the workspace, without network.
    let may_write = chosen.for_want_of_a_key
        && source == "exec"
        && preferences.sandbox.is_none()
        && config.sandbox_mode.is_none();
    if may_write {
        config.sandbox_mode = Some(config::SandboxMode::WorkspaceWrite);
    }
    local::tell(&chosen, &config, may_write, observer);
    let (home, health) = local::ensure(host, &chosen.start, observer)?;
    config.model = Some(health.model);
    config.model_context_window =
        config.model_context_window.or(health.context_tokens.map(u64::from));
    let resolved = provider::local(local::socket(home, chosen.start));
    Ok(Served::endpoint(config, resolved))
}

/// Returns the part of a new thread's metadata that depends on the working directory.
fn session_meta(host: &HostEnv) -> SessionMeta {
    SessionMeta {
        cwd: host.directory.display().to_string(),
        cli_version: env!("CARGO_PKG_VERSION").to_owned(),
        history_mode: Some(PAGINATED.to_owned()),
        git: runtime::project::git_head(&host.directory)
            .and_then(|head| raw(&json!({"commit_hash": head.commit, "branch": head.branch}))),
        ..SessionMeta::default()
    }
}

/// Returns the options of every request: those of the configuration, otherwise the model's defaults.
fn request_options(config: &Config, known: &ModelProfile) -> RequestOptions {
    RequestOptions {
        effort: config
            .model_reasoning_effort
            .map_or(known.effort, |effort| Some(effort.as_str()))
            .map(str::to_owned),
        summary: config
            .model_reasoning_summary
            .map_or(known.summary, |summary| Some(summary.as_str()))
            .filter(|summary| *summary != "none")
            .map(str::to_owned),
        verbosity: config
            .model_verbosity
            .map_or(known.verbosity, |verbosity| Some(verbosity.as_str()))
            .map(str::to_owned),
        service_tier: config.service_tier.clone(),
        ..RequestOptions::default()
    }
}

/// Returns how often a login shell is started for its environment.
fn login_shell(config: &Config) -> LoginShell {
    match (config.allow_login_shell, config.login_shell_snapshot) {
        (false, _) => LoginShell::Off,
        (true, true) => LoginShell::Once(safety::environment_policy(config)),
        (true, false) => LoginShell::EveryCommand,
    }
}

/// Returns the environment of a model's commands, with variables that turn off colors and pagers.
fn command_env(
    host: &HostEnv,
    config: &Config,
    thread: ThreadId,
    scratch: Option<&Scratch>,
) -> Vec<(String, String)> {
    let mut env = safety::command_env(host, config);
    let thread = thread.to_string();
    let fixed = [
        ("NO_COLOR", "1"),
        ("COLORTERM", ""),
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        ("GH_PAGER", "cat"),
        ("LANG", "C.UTF-8"),
        ("LC_ALL", "C.UTF-8"),
        ("LC_CTYPE", "C.UTF-8"),
        ("CODEX_CI", "1"),
        ("CODEX_SESSION_ID", &thread),
        ("CODEX_THREAD_ID", &thread),
        ("HEDDLE_THREAD_ID", &thread),
    ];
    env.retain(|(name, _)| fixed.iter().all(|(fixed, _)| fixed != name));
    env.extend(fixed.map(|(name, value)| (name.to_owned(), value.to_owned())));
    if let Some(scratch) = scratch {
        env.retain(|(name, _)| name != "TMPDIR");
        env.push(("TMPDIR".to_owned(), scratch.path().display().to_string()));
    }
    env
}

fn own_tools(
    workspace: &Arc<Workspace>,
    config: &Config,
    freeform_patch: bool,
    sessions: &Arc<Sessions>,
    mode: Mode,
) -> Vec<Box<dyn Tool>> {
    let (exec, stdin) = ExecCommand::with_stdin(Arc::clone(workspace), Arc::clone(sessions));
    let mut tools: Vec<Box<dyn Tool>> = vec![Box::new(exec), Box::new(stdin)];
    if config.tools.update_plan {
        tools.push(Box::new(UpdatePlan { mode }));
    }
    tools.push(Box::new(ApplyPatch::new(Arc::clone(workspace), freeform_patch)));
    if mode == Mode::Plan {
        tools.push(Box::new(AskUser));
    }
    if config.tools.view_image {
        tools.push(Box::new(ViewImage::new(Arc::clone(workspace))));
    }
    tools
}

/// Returns the limits of a turn: configured ones, and defaults for the rest.
fn limits(set: &TurnLimits) -> Limits {
    let default = Limits::default();
    let count = |set: Option<u64>, default| {
        set.map_or(default, |count| u32::try_from(count).unwrap_or(u32::MAX))
    };
    Limits {
        time_max: set.seconds_max.map(Duration::from_secs),
        tokens_max: set.tokens_max,
        requests_max: count(set.requests_max, default.requests_max),
        calls_max: count(set.calls_max, default.calls_max),
        idle_answers_max: count(set.idle_answers_max, default.idle_answers_max),
        answer_bytes_max: set.answer_bytes_max.unwrap_or(default.answer_bytes_max),
        answer_time_max: set
            .answer_seconds_max
            .map_or(default.answer_time_max, Duration::from_secs),
        output_retries: set.output_retries.unwrap_or(default.output_retries),
        ..default
    }
}

fn hosted_tools(config: &Config) -> Vec<responses::ToolSpec> {
    match config.web_search {
        Some(WebSearch::Cached) => {
            vec![responses::ToolSpec::WebSearch { external_web_access: false }]
        }
        Some(WebSearch::Live) => vec![responses::ToolSpec::WebSearch { external_web_access: true }],
        Some(WebSearch::Disabled) | None => Vec::new(),
    }
}

/// Returns the first items of the history: the user's instructions, the project's rules for agents, and the
/// environment.
fn setup(
    host: &HostEnv,
    config: &Config,
    workspace: &Workspace,
    observer: &Observer,
) -> Vec<KnownItem> {
    let mut items = Vec::new();
    if let Some(text) = &config.developer_instructions {
        items.push(developer_message(text.clone()));
    }
    let cwd = host.directory.display().to_string();
    let rules = runtime::project::rules(
        &host.home,
        &host.directory,
        &config.project_doc_fallback_filenames,
    );
    let bytes_max = usize::try_from(config.project_doc_max_bytes).unwrap_or(usize::MAX);
    let profile = workspace.gate.profile();
    let environment = Environment {
        cwd: cwd.clone(),
        shell: workspace.shell.name().to_owned(),
        date: today(),
        sandbox_mode: profile.mode.name().to_owned(),
        writable_roots: match profile.mode {
            SandboxMode::WorkspaceWrite => {
                profile.writable_roots.iter().map(|root| root.display().to_string()).collect()
            }
            SandboxMode::ReadOnly | SandboxMode::DangerFullAccess => Vec::new(),
        },
        network: profile.network,
    };
    for (path, problem) in &rules.problems {
        observer.tell(Notice::Instructions(rules_problem(path, problem)));
    }
    if let Some(AgentsMd { text, cut }) = agents_md(&cwd, &rules.files, bytes_max) {
        if let Some((kept, total)) = cut {
            observer.tell(Notice::Instructions(format!(
                "the model reads only the first {kept} of {total} bytes of AGENTS.md files; raise \
                 project_doc_max_bytes, or make them shorter"
            )));
        }
        items.push(user_message(text));
    }
    items.push(user_message(environment.render()));
    items
}

/// Formats the message about a rules file that is not read as it is.
fn rules_problem(path: &Path, problem: &RulesProblem) -> String {
    let path = path.display();
    match problem {
        RulesProblem::LeadsOut => {
            format!("{path} is a link out of the repository, so it is not read; put a copy there")
        }
        RulesProblem::LeadsNowhere => {
            format!("{path} is a link to a file that does not exist; change it, or remove it")
        }
        RulesProblem::Unreadable(reason) => format!("{path} is not read: {reason}"),
        RulesProblem::NotText => format!(
            "{path} is not UTF-8 text: the model reads a replacement character where it is not; save \
             it as UTF-8"
        ),
    }
}

fn instructions(host: &HostEnv, config: &Config) -> Result<String, Error> {
    let Some(path) = &config.model_instructions_file else { return Ok(prompt::BASE.to_owned()) };
    let path = host.home.join(path);
    files::read_text(&path, INSTRUCTIONS_BYTES_MAX).map_err(|error| {
        let shown = path.display();
        Error::settings(format!("model_instructions_file {shown} cannot be read: {error}"))
    })
}

/// Converts an approval policy to the log's format.
fn approval_policy(policy: ApprovalPolicy) -> Value {
    match policy {
        ApprovalPolicy::Untrusted => json!("untrusted"),
        ApprovalPolicy::OnRequest => json!("on-request"),
        ApprovalPolicy::Never => json!("never"),
        ApprovalPolicy::Granular(Granular { sandbox_approval, rules }) => {
            json!({"granular": {"sandbox_approval": sandbox_approval, "rules": rules}})
        }
    }
}

/// Converts a sandbox profile to the log's format.
fn sandbox_policy(profile: &policy::Profile) -> Option<Raw> {
    raw(&match profile.mode {
        SandboxMode::ReadOnly => json!({"type": "read-only"}),
        SandboxMode::DangerFullAccess => json!({"type": "danger-full-access"}),
        SandboxMode::WorkspaceWrite => json!({
            "type": "workspace-write",
            "writable_roots": profile.writable_roots,
            "network_access": profile.network,
            "exclude_tmpdir_env_var": false,
            "exclude_slash_tmp": false,
        }),
    })
}

fn raw(value: &impl serde::Serialize) -> Option<Raw> {
    to_raw_value(value).ok().map(Raw::from)
}

fn identity(originator: &str, thread: ThreadId) -> Identity {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    Identity {
        originator: originator.to_owned(),
        user_agent: format!("{originator}/{} ({os}; {arch})", env!("CARGO_PKG_VERSION")),
        thread_id: thread.to_string(),
    }
}

fn random() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    getrandom::getrandom(&mut bytes).map_err(Error::no_random_numbers)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Returns the UTC date, such as `Sun, 15 Nov 2026`, which needs no time zone database.
fn today() -> String {
    httpdate::fmt_http_date(SystemTime::now()).chars().take(16).collect()
}
