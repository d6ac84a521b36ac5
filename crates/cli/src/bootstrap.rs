//! From flags, environment and files to the parts that a thread is made of.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, anyhow};
use config::{Config, Layer, LoadedConfig, Override, TurnLimits, WebSearch};
use engine::context::{developer_message, user_message};
use engine::model::ModelProfile;
use engine::prompt::{self, Environment};
use engine::{AnswerCheck, Limits, prompt::agents_md};
use faces::rollout::Rollout;
use history::{ModelId, Profile, Wire};
use policy::{ApprovalPolicy, Policy, SandboxMode};
use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::open::Raw;
use protocol::responses::{KnownItem, ToolSpec};
use protocol::rollout::{BaseInstructions, PAGINATED, SessionMeta, TurnContext};
use providers::{Client, Identity, WireApi};
use runtime::{Journal, OutputSchema, RequestOptions, Thread, ThreadOptions, Toolset};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use store::Store;
use tools::{
    ApplyPatch, ExecCommand, Gate, LoginShell, Sessions, Shell, Tool, UpdatePlan, ViewImage,
    Workspace,
};

use crate::args::{ExecFlags, SharedArgs};
use crate::failure::Failure;
use crate::local;
use crate::past::{self, OpenedThread, Start};
use crate::provider::{self, Resolved};
use crate::safety;

/// The model that is used when nobody names one.
const MODEL_DEFAULT: &str = "gpt-5.5";
/// Where the numbers of commands begin, at most, in a thread that goes on.
const SESSIONS_MAX: u64 = 100_000;
/// Tokens of output that a model gets from one call unless configured.
const OUTPUT_TOKENS_MAX: u64 = 10_000;

/// What heddle takes from the machine and the user who starts it, read once.
pub(crate) struct HostEnv {
    pub(crate) env: HashMap<String, String>,
    pub(crate) home: PathBuf,
    /// The working directory of the thread.
    pub(crate) directory: PathBuf,
}

impl HostEnv {
    /// Looks at the environment and the directories.
    pub(crate) fn look(directory: Option<&Path>) -> Result<Self, Failure> {
        // Variables that are not text cannot be handed on as text either.
        let env: HashMap<_, _> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let here = std::env::current_dir()
            .context("the current directory cannot be used; change to one that exists")
            .map_err(Failure::usage)?;
        let home = home(&|name| std::env::var_os(name)).map_err(Failure::usage)?;
        // The daemon has a directory of its own, and `-C` changes ours.
        let home = here.join(home);
        let host = Self { env, home, directory: here };
        host.at(directory)
            .map_err(|Failure { code, error }| Failure { code, error: anyhow!("-C {error:#}") })
    }

    /// The same in another working directory.
    pub(crate) fn at(&self, directory: Option<&Path>) -> Result<Self, Failure> {
        let directory =
            directory.map_or(self.directory.clone(), |given| self.directory.join(given));
        if !directory.is_dir() {
            let shown = directory.display();
            return Err(Failure::usage(anyhow!("{shown}: there is no such directory")));
        }
        // `.` and `..` in what the user typed would be told to the model and shown in items, and the
        // search for a repository above would look into the wrong directories.
        let directory = directory.canonicalize().map_err(Failure::usage)?;
        Ok(Self { env: self.env.clone(), home: self.home.clone(), directory })
    }
}

/// Decides where everything is kept. Paths need not be text.
fn home(var: &dyn Fn(&str) -> Option<OsString>) -> anyhow::Result<PathBuf> {
    let set = |name: &str| var(name).filter(|value| !value.is_empty());
    if let Some(home) = set("HEDDLE_HOME").or_else(|| set("CODEX_HOME")) {
        return Ok(PathBuf::from(home));
    }
    let user = set("HOME").ok_or_else(|| anyhow!("neither HEDDLE_HOME nor HOME is set"))?;
    Ok(Path::new(&user).join(".heddle"))
}

/// Reads the schema of an answer: it is sent along, and every answer is checked against it.
pub(crate) fn output_schema(text: &str) -> anyhow::Result<OutputSchema> {
    let schema = config::Schema::parse(text)?;
    let json = RawValue::from_string(text.trim().to_owned())?;
    let check = AnswerCheck::new(move |answer| {
        schema.check(answer).map_err(|violation| violation.to_string())
    });
    Ok(OutputSchema { json, check })
}

/// Reads the configuration; what was odd about it comes along as texts.
pub(crate) fn load_config(
    host: &HostEnv,
    shared: &SharedArgs,
    ignore_user_config: bool,
) -> Result<(Config, Vec<String>), Failure> {
    let overrides = shared
        .overrides
        .iter()
        .map(|text| Override::parse(text))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::usage)?;
    let mut layers = Vec::new();
    let mut profile_file = false;
    if !ignore_user_config {
        layers.extend(layer(&host.home.join("config.toml"))?);
        if let Some(name) = &shared.profile {
            let found = layer(&host.home.join(format!("{name}.config.toml")))?;
            profile_file = found.is_some();
            layers.extend(found);
        }
    }
    let LoadedConfig { mut config, warnings, unknown } =
        Config::load(&layers, shared.profile.as_deref(), &overrides).map_err(Failure::usage)?;
    if shared.strict_config && !unknown.is_empty() {
        let lines: Vec<_> = unknown.iter().map(ToString::to_string).collect();
        return Err(Failure::usage(anyhow!("{}", lines.join("\n"))));
    }
    if let Some(model) = &shared.model {
        if model.trim().is_empty() {
            return Err(Failure::usage(anyhow!("-m: the name of the model is empty")));
        }
        config.model = Some(model.clone());
    }
    if shared.oss {
        config.model_provider = Some(local::PROVIDER.to_owned());
        // The model of the configuration is that of its provider, unless there is one of that name here.
        let models = local::models(&host.home, &host.env);
        let overridden = overrides.iter().any(|option| option.keys().eq(["model"]));
        if shared.model.is_none() && !overridden {
            let unknown = |name: &String| {
                let found = models.find(name);
                matches!(
                    found,
                    Err(infer::models::ModelsError::Unknown { .. }
                        | infer::models::ModelsError::Nothing)
                )
            };
            config.model = config.model.filter(|name| !unknown(name));
        }
    }
    let mut odd = Vec::new();
    for warning in &warnings {
        match warning {
            // A profile may live in a file of its own.
            config::Warning::UnknownProfile { .. } if profile_file => {}
            // The reference goes on without it, and so do we.
            config::Warning::UnknownProfile { name, known } => {
                let known = known.iter().cloned().chain(profile_files(&host.home)).collect();
                let text = no_profile(warning, name, known);
                if shared.strict_config {
                    return Err(Failure::usage(anyhow!("{text}")));
                }
                odd.push(text);
            }
            warning => odd.push(warning.to_string()),
        }
    }
    odd.extend(unknown.iter().map(ToString::to_string));
    Ok((config, odd))
}

/// Returns the profiles that have a file of their own.
fn profile_files(home: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(home).into_iter().flatten().flatten();
    entries.take(PROFILE_FILES_MAX).filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_suffix(".config.toml").map(str::to_owned)
    })
}

/// Says that there is no such profile, and which there are.
fn no_profile(warning: &config::Warning, name: &str, known: BTreeSet<String>) -> String {
    let nearest = config::nearest_name(name, known.iter().map(String::as_str));
    let nearest = nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    let shown: Vec<_> =
        known.iter().take(PROFILES_SHOWN_MAX).map(|name| format!("`{name}`")).collect();
    let more = if known.len() > shown.len() { " and others" } else { "" };
    match shown.as_slice() {
        [] => format!("{warning} (there are no profiles)"),
        names => format!("{warning} (there are {}{more}){nearest}", names.join(", ")),
    }
}

/// Files of a home that are looked at for the names of profiles.
const PROFILE_FILES_MAX: usize = 10_000;
/// Profiles that a message names.
const PROFILES_SHOWN_MAX: usize = 20;

/// Bytes that a file of settings may have.
const CONFIG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes that a file of instructions may have; no model reads more.
const INSTRUCTIONS_BYTES_MAX: u64 = 4 * 1024 * 1024;

fn layer(path: &Path) -> Result<Option<Layer>, Failure> {
    let name = path.display().to_string();
    match files::read_text(path, CONFIG_BYTES_MAX) {
        Ok(text) => Ok(Some(Layer { name, text })),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(Failure::usage(anyhow!("{name} cannot be read: {error}"))),
    }
}

/// What a thread is wanted for.
pub(crate) struct ThreadRequest<'a> {
    pub(crate) start: Start,
    /// Whether nothing is kept.
    pub(crate) ephemeral: bool,
    pub(crate) ignore_rules: bool,
    pub(crate) output_schema: Option<OutputSchema>,
    pub(crate) shared: &'a SharedArgs,
    /// The program on whose behalf it runs.
    pub(crate) originator: &'a str,
    /// What it is made through, in the words of the log.
    pub(crate) source: &'static str,
}

impl<'a> ThreadRequest<'a> {
    /// What `exec` and its like want, with these flags.
    pub(crate) fn exec(host: &'a HostEnv, flags: &'a ExecFlags, start: Start) -> Self {
        Self {
            start,
            ephemeral: flags.ephemeral,
            ignore_rules: flags.ignore_rules,
            output_schema: None,
            shared: &flags.shared,
            originator: originator(&host.env).unwrap_or("heddle_exec"),
            source: "exec",
        }
    }
}

/// A thread that is ready to run, and what a banner says about it.
pub(crate) struct Ready {
    pub(crate) thread: Thread,
    pub(crate) model: String,
    pub(crate) provider: String,
    pub(crate) sandbox: SandboxMode,
    pub(crate) sessions: Arc<Sessions>,
    /// What commands may do.
    pub(crate) profile: policy::Profile,
    /// What fits into the model's context window.
    pub(crate) window: Option<u64>,
    /// The file that it is written to, now or later.
    pub(crate) path: Option<PathBuf>,
    /// What the user should know about the thread.
    pub(crate) told: Vec<Event>,
}

/// Makes or opens a thread.
pub(crate) fn thread(
    host: &HostEnv,
    config: &Config,
    wanted: ThreadRequest<'_>,
) -> Result<Ready, Failure> {
    let ThreadRequest { start, ephemeral, ignore_rules, output_schema, shared, originator, source } =
        wanted;
    let Served { config, resolved } = served(host, config, shared, source)?;
    let config = &*config;
    let Resolved { endpoint, retry, dialect } = resolved;
    let model = config.model.clone().unwrap_or_else(|| MODEL_DEFAULT.to_owned());
    let known = match endpoint.wire_api {
        WireApi::Responses if endpoint.socket.is_none() => ModelProfile::from_name(&model),
        // Whoever serves the model is rarely the one who made it.
        WireApi::Responses | WireApi::Chat => ModelProfile::from_name(&model).plain(),
    };
    let provider = endpoint.name.clone();
    let instructions = instructions(host, config)?;
    let meta = SessionMeta {
        originator: originator.to_owned(),
        source: raw(&source),
        model_provider: Some(provider.clone()),
        base_instructions: Some(BaseInstructions { text: instructions.clone() }),
        ..session_meta(host)
    };
    let wire = match endpoint.wire_api {
        WireApi::Responses => Wire::Responses,
        WireApi::Chat => Wire::Chat,
    };
    let model_id = ModelId { provider: provider.clone(), model: model.clone() };
    let store = Store::new(&host.home);
    let opened = past::open(&store, start, ephemeral, meta, &Profile { wire, model_id })?;
    let OpenedThread { id, log, past, instructions: old_instructions, told } = opened;
    // A thread keeps the instructions it began with, unless the user says otherwise now.
    let instructions = old_instructions
        .filter(|_| config.model_instructions_file.is_none())
        .unwrap_or(instructions);
    let client = Client::new(endpoint, &identity(originator, id)).map_err(Failure::usage)?;
    let policy = Policy {
        profile: safety::profile(host, config, shared)?,
        // Nobody is there to ask.
        approval: ApprovalPolicy::Never,
        rules: safety::rules(host, config, ignore_rules)?,
    };
    let sandbox = policy.profile.mode;
    let workspace = Arc::new(Workspace {
        cwd: host.directory.clone(),
        shell: Shell::of_user(host.env.get("SHELL").map(String::as_str)),
        login_shell: login_shell(config),
        env: command_env(host, config, id),
        env_set: safety::env_set(config),
        sandbox: safety::find_sandbox(host, config, sandbox, None)?,
        gate: Gate::new(policy).remembering(host.home.join("rules/default.rules")),
        output_tokens_max: config.tool_output_token_limit.unwrap_or(OUTPUT_TOKENS_MAX),
        patching: tokio::sync::Mutex::new(()),
    });
    let hosted = hosted_tools(config);
    let setup = setup(host, config, &workspace);
    let sessions = match start {
        Start::New => Sessions::default(),
        Start::Resume(_) | Start::Fork(_) => {
            Sessions::starting_after(random().map_err(Failure::failed)? % SESSIONS_MAX)
        }
    };
    let sessions = Arc::new(sessions);
    let tools = toolset(&workspace, config, known.freeform_patch, &hosted, &sessions);
    let window = config.model_context_window.or(known.context_window);
    let options = ThreadOptions {
        request: RequestOptions {
            model: model.clone(),
            instructions,
            output_schema,
            ..request_options(config, &known)
        },
        dialect,
        limits: limits(&config.limits),
        retry,
        context_window: window,
        compact_at: config
            .model_auto_compact_token_limit
            .or(known.compact_at(config.model_context_window)),
        seed: random().map_err(Failure::failed)?,
        turn_context: TurnContext {
            cwd: host.directory.display().to_string(),
            approval_policy: raw(&"never"),
            sandbox_policy: sandbox_policy(workspace.gate.profile()),
            model: model.clone(),
            summary: Some("auto".to_owned()),
            ..TurnContext::default()
        },
    };
    let mut thread = Thread::new(id, client, tools, options, setup, past);
    let path = log.as_ref().map(|log| log.path().to_owned());
    if let Some(log) = log {
        let rollout = Rollout::new(id, log.is_legacy(), window);
        thread.set_journal(Journal::new(log, rollout));
    }
    let profile = workspace.gate.profile().clone();
    Ok(Ready { thread, model, provider, sandbox, sessions, profile, window, path, told })
}

/// Says what a thread that begins here is, as far as that depends on the place.
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

/// Decides what every request asks for: what the configuration says, else what is known of the model.
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

/// Where the model is, and what that makes of the configuration.
struct Served<'a> {
    config: Cow<'a, Config>,
    resolved: Resolved,
}

/// Finds out where the model is; one on this machine is made ready.
fn served<'a>(
    host: &HostEnv,
    config: &'a Config,
    shared: &SharedArgs,
    source: &str,
) -> Result<Served<'a>, Failure> {
    let Some(chosen) = local::choose(host, config)? else {
        let resolved = provider::resolve(config, &host.env).map_err(Failure::usage)?;
        return Ok(Served { config: Cow::Borrowed(config), resolved });
    };
    let mut config = config.clone();
    // Whoever has set nothing up wants to see something done: in the workspace, without a network.
    let may_write = chosen.for_want_of_a_key
        && source == "exec"
        && shared.sandbox.is_none()
        && config.sandbox_mode.is_none();
    if may_write {
        config.sandbox_mode = Some(config::SandboxMode::WorkspaceWrite);
    }
    local::tell(&chosen, &config, may_write);
    let (home, health) = local::ensure(host, &chosen.start)?;
    config.model = Some(health.model);
    config.model_context_window =
        config.model_context_window.or(health.context_tokens.map(u64::from));
    let resolved = provider::local(local::socket(host, home, chosen.start));
    Ok(Served { config: Cow::Owned(config), resolved })
}

/// Makes the environment of commands of a model, with what keeps programs plain and quiet.
fn login_shell(config: &Config) -> LoginShell {
    match (config.allow_login_shell, config.login_shell_snapshot) {
        (false, _) => LoginShell::Off,
        (true, true) => LoginShell::Once(safety::environment_policy(config)),
        (true, false) => LoginShell::EveryCommand,
    }
}

fn command_env(host: &HostEnv, config: &Config, thread: ThreadId) -> Vec<(String, String)> {
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
    env
}

fn toolset(
    workspace: &Arc<Workspace>,
    config: &Config,
    freeform_patch: bool,
    hosted: &[ToolSpec],
    sessions: &Arc<Sessions>,
) -> Toolset {
    let (exec, stdin) = ExecCommand::with_stdin(Arc::clone(workspace), Arc::clone(sessions));
    let mut tools: Vec<Box<dyn Tool>> = vec![Box::new(exec), Box::new(stdin)];
    if config.tools.update_plan {
        tools.push(Box::new(UpdatePlan));
    }
    tools.push(Box::new(ApplyPatch::new(Arc::clone(workspace), freeform_patch)));
    if config.tools.view_image {
        tools.push(Box::new(ViewImage::new(Arc::clone(workspace))));
    }
    Toolset::new(tools, hosted, Arc::clone(sessions))
}

/// Returns the bounds of a turn, as far as they are not set the generous ones.
fn limits(set: &TurnLimits) -> Limits {
    let default = Limits::default();
    let count = |set: Option<u64>, default| {
        set.map_or(default, |count| u32::try_from(count).unwrap_or(u32::MAX))
    };
    Limits {
        requests_max: count(set.requests_max, default.requests_max),
        calls_max: count(set.calls_max, default.calls_max),
        idle_answers_max: count(set.idle_answers_max, default.idle_answers_max),
        answer_bytes_max: set.answer_bytes_max.unwrap_or(default.answer_bytes_max),
        answer_time_max: set
            .answer_seconds_max
            .map_or(default.answer_time_max, Duration::from_secs),
        ..default
    }
}

fn hosted_tools(config: &Config) -> Vec<ToolSpec> {
    match config.web_search {
        Some(WebSearch::Cached) => vec![ToolSpec::WebSearch { external_web_access: false }],
        Some(WebSearch::Live) => vec![ToolSpec::WebSearch { external_web_access: true }],
        Some(WebSearch::Disabled) | None => Vec::new(),
    }
}

/// Makes what the history begins with: the user's own instructions, the project's rules, and where
/// we are.
fn setup(host: &HostEnv, config: &Config, workspace: &Workspace) -> Vec<KnownItem> {
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
    for path in &rules.leads_out {
        crate::terminal::note(&format!(
            "warning: {} is a link out of the repository, so it is not read; put a copy there",
            path.display()
        ));
    }
    items.extend(agents_md(&cwd, &rules.files, bytes_max).map(user_message));
    items.push(user_message(environment.render()));
    items
}

fn instructions(host: &HostEnv, config: &Config) -> Result<String, Failure> {
    let Some(path) = &config.model_instructions_file else { return Ok(prompt::BASE.to_owned()) };
    let path = host.home.join(path);
    files::read_text(&path, INSTRUCTIONS_BYTES_MAX).map_err(|error| {
        let shown = path.display();
        Failure::usage(anyhow!("model_instructions_file {shown} cannot be read: {error}"))
    })
}

/// Returns the program on whose behalf we run, if it says so.
pub(crate) fn originator(env: &HashMap<String, String>) -> Option<&str> {
    let name = env.get("CODEX_INTERNAL_ORIGINATOR_OVERRIDE").map(String::as_str);
    name.filter(|name| !name.is_empty())
}

/// Says in the words of the log what commands may do.
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

pub(crate) fn random() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::getrandom(&mut bytes).map_err(|error| anyhow!("no random numbers: {error}"))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Returns the date in words that need no time zone database, such as `Sun, 15 Nov 2026`.
fn today() -> String {
    httpdate::fmt_http_date(SystemTime::now()).chars().take(16).collect()
}
