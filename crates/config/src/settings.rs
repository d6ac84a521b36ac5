//! The top-level settings, and the keys that are accepted without being read.

use crate::approval::ApprovalPolicy;
use crate::daemon::Daemon;
use crate::error::ConfigError;
use crate::limits::TurnLimits;
use crate::model::{ReasoningEffort, ReasoningSummary, Verbosity, WebSearch};
use crate::project::Project;
use crate::provider::Provider;
use crate::sandbox::{CommandLimits, SandboxMode, WorkspaceWrite};
use crate::section::{Field, Notes, Read, Section};
use crate::shell_environment::ShellEnvironment;
use crate::tools::Tools;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Every setting, with its default if the text had none; paths are as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The model to use; never empty.
    pub model: Option<String>,
    /// The id of the provider to use; whether it exists is not checked here.
    pub model_provider: Option<String>,
    /// The model's context window, in tokens.
    pub model_context_window: Option<u64>,
    /// The number of tokens at which the history is compacted.
    pub model_auto_compact_token_limit: Option<u64>,
    /// How much the model reasons.
    pub model_reasoning_effort: Option<ReasoningEffort>,
    /// How the model summarizes its reasoning.
    pub model_reasoning_summary: Option<ReasoningSummary>,
    /// How much the model writes.
    pub model_verbosity: Option<Verbosity>,
    /// The service tier to request.
    pub service_tier: Option<String>,
    /// When a person is asked before a command runs.
    pub approval_policy: Option<ApprovalPolicy>,
    /// What commands may access.
    pub sandbox_mode: Option<SandboxMode>,
    /// Whether commands may run in a login shell.
    pub allow_login_shell: bool,
    /// Whether one login shell per thread stands in for those of all commands.
    pub login_shell_snapshot: bool,
    /// Adjustments of the `workspace-write` sandbox.
    pub sandbox_workspace_write: WorkspaceWrite,
    /// Resources that a command may use.
    pub command_limits: CommandLimits,
    /// Which environment variables commands get.
    pub shell_environment_policy: ShellEnvironment,
    /// Providers by id.
    pub model_providers: BTreeMap<String, Provider>,
    /// The base URL of the built-in provider.
    pub openai_base_url: Option<String>,
    /// How the model may search the web.
    pub web_search: Option<WebSearch>,
    /// Which tools are offered to the model.
    pub tools: Tools,
    /// Limits of a turn.
    pub limits: TurnLimits,
    /// How many bytes of project instructions are read.
    pub project_doc_max_bytes: u64,
    /// File names to try if the usual file of project instructions is missing.
    pub project_doc_fallback_filenames: Vec<String>,
    /// How many tokens of a tool's output the model gets.
    pub tool_output_token_limit: Option<u64>,
    /// Whether reasoning is hidden from the output.
    pub hide_agent_reasoning: bool,
    /// Show raw reasoning as it comes, where the provider sends it.
    pub show_raw_agent_reasoning: bool,
    /// Instructions sent with the role `developer`.
    pub developer_instructions: Option<String>,
    /// A file whose text replaces the model's instructions.
    pub model_instructions_file: Option<PathBuf>,
    pub daemon: Daemon,
    /// The names of the existing profiles; the chosen one is already merged into the other fields.
    pub profiles: BTreeSet<String>,
    /// Projects by directory.
    pub projects: BTreeMap<String, Project>,
}

impl Config {
    pub(crate) fn read(mut section: Section<'_, '_>) -> Result<Self, ConfigError> {
        // Profiles are read first, so that an error in the chosen one is reported under the path where it is
        // written, not where it is applied.
        let profiles: Option<Profiles> = section.value("profiles")?;
        let mut config = Self::read_settings(&mut section)?;
        config.profiles = profiles.unwrap_or_default().0;
        config.projects = section.or("projects", config.projects)?;
        config.daemon = section.or("daemon", config.daemon)?;
        // The choice of a profile was made before; here the value is only validated.
        section.value::<String>("profile")?;
        section.finish();
        Ok(config)
    }

    /// Reads the settings that a profile may contain, too.
    fn read_settings(s: &mut Section<'_, '_>) -> Result<Self, ConfigError> {
        let default = Self::default();
        Ok(Self {
            model: s.value::<ModelName>("model")?.map(|name| name.0),
            model_provider: s.value("model_provider")?,
            model_context_window: s.value("model_context_window")?,
            model_auto_compact_token_limit: s.value("model_auto_compact_token_limit")?,
            model_reasoning_effort: s.value("model_reasoning_effort")?,
            model_reasoning_summary: s.value("model_reasoning_summary")?,
            model_verbosity: s.value("model_verbosity")?,
            service_tier: s.value("service_tier")?,
            approval_policy: s.value("approval_policy")?,
            sandbox_mode: s.value("sandbox_mode")?,
            allow_login_shell: s.or("allow_login_shell", default.allow_login_shell)?,
            login_shell_snapshot: s.or("login_shell_snapshot", default.login_shell_snapshot)?,
            sandbox_workspace_write: s
                .or("sandbox_workspace_write", default.sandbox_workspace_write)?,
            command_limits: s.or("command_limits", default.command_limits)?,
            shell_environment_policy: s
                .or("shell_environment_policy", default.shell_environment_policy)?,
            model_providers: s.or("model_providers", default.model_providers)?,
            openai_base_url: s.value("openai_base_url")?,
            web_search: s.value("web_search")?,
            tools: s.or("tools", default.tools)?,
            limits: s.or("limits", default.limits)?,
            project_doc_max_bytes: s.or("project_doc_max_bytes", default.project_doc_max_bytes)?,
            project_doc_fallback_filenames: s
                .or("project_doc_fallback_filenames", default.project_doc_fallback_filenames)?,
            tool_output_token_limit: s.value("tool_output_token_limit")?,
            hide_agent_reasoning: s.or("hide_agent_reasoning", default.hide_agent_reasoning)?,
            show_raw_agent_reasoning: s
                .or("show_raw_agent_reasoning", default.show_raw_agent_reasoning)?,
            developer_instructions: s.value("developer_instructions")?,
            model_instructions_file: s.value("model_instructions_file")?,
            daemon: default.daemon,
            profiles: default.profiles,
            projects: default.projects,
        })
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            model: None,
            model_provider: None,
            model_context_window: None,
            model_auto_compact_token_limit: None,
            model_reasoning_effort: None,
            model_reasoning_summary: None,
            model_verbosity: None,
            service_tier: None,
            approval_policy: None,
            sandbox_mode: None,
            allow_login_shell: true,
            login_shell_snapshot: true,
            sandbox_workspace_write: WorkspaceWrite::default(),
            command_limits: CommandLimits::default(),
            shell_environment_policy: ShellEnvironment::default(),
            model_providers: BTreeMap::new(),
            openai_base_url: None,
            web_search: None,
            tools: Tools::default(),
            limits: TurnLimits::default(),
            project_doc_max_bytes: PROJECT_DOC_BYTES_DEFAULT,
            project_doc_fallback_filenames: Vec::new(),
            tool_output_token_limit: None,
            hide_agent_reasoning: false,
            show_raw_agent_reasoning: false,
            developer_instructions: None,
            model_instructions_file: None,
            daemon: Daemon::default(),
            profiles: BTreeSet::new(),
            projects: BTreeMap::new(),
        }
    }
}

struct ModelName(String);

impl Read for ModelName {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let name = String::read(field, notes)?;
        if name.trim().is_empty() {
            let help = "Name a model, or remove this setting to use the default.";
            return Err(field.bad_value("must not be empty", help));
        }
        Ok(Self(name))
    }
}

#[derive(Default)]
struct Profiles(BTreeSet<String>);

impl Read for Profiles {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        // A profile is validated even if it is not chosen, but produces warnings only where it is applied.
        let warnings = notes.warnings.len();
        let profiles = BTreeMap::<String, Profile>::read(field, notes)?;
        notes.warnings.truncate(warnings);
        Ok(Self(profiles.into_keys().collect()))
    }
}

struct Profile;

impl Read for Profile {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let mut section = field.section(notes)?;
        Config::read_settings(&mut section)?;
        section.finish();
        Ok(Self)
    }
}

/// Keys allowed only at the top level: a profile neither nests nor decides which projects to trust.
pub(crate) const TOP_LEVEL_ONLY: &[&str] = &["daemon", "profile", "profiles", "projects"];

/// Default limit for project instructions, in bytes.
pub const PROJECT_DOC_BYTES_DEFAULT: u64 = 32 * 1024;

/// Keys of the reference implementation that are accepted unread, with everything below them, because they
/// would change nothing in heddle.
///
/// A path segment that ends in `*` matches every key with that prefix. A key leaves this list when a setting
/// reads it.
pub const ACCEPTED: &[&str] = &[
    // Model and instructions.
    "include_*",
    "model_auto_compact_token_limit_scope",
    "model_supports_reasoning_summaries",
    "plan_mode_reasoning_effort",
    "review_model",
    // Accounts and services.
    "cli_auth_credentials_store",
    "disable_response_storage",
    "model_providers.*.websocket_connect_timeout_ms",
    // Commands and extensions.
    "apps_mcp_product_sku",
    "mcp_oauth_*",
    "tool_suggest",
    "tools.experimental_*",
    "windows",
    // Display, files and reports.
    "analytics",
    "audio",
    "check_for_update_on_startup",
    "debug",
    "desktop",
    "disable_paste_burst",
    "feedback",
    "file_opener",
    "hide_full_access_warning",
    "notice",
    "realtime",
    "sqlite",
    "suppress_unstable_features_warning",
    "tui",
    // Feature flags, current and obsolete.
    "experimental_*",
    "features",
    "ghost_snapshot",
    "js_repl_*",
];

/// Keys of the reference implementation that ask for something heddle does not do, written like [`ACCEPTED`].
/// The user is warned that they have no effect.
pub const UNSUPPORTED: &[&str] = &[
    // Model and instructions.
    "compact_prompt",
    "instructions",
    "model_catalog_json",
    "oss_provider",
    "personality",
    // Accounts and services.
    "chatgpt_base_url",
    "forced_chatgpt_workspace_id",
    "forced_login_method",
    "model_providers.*.auth",
    "model_providers.*.aws",
    // Permissions and commands.
    "approvals_reviewer",
    "auto_review",
    "background_terminal_max_timeout",
    "default_permissions",
    "permissions",
    "project_root_markers",
    "shell_environment_policy.experimental_use_profile",
    "zsh_path",
    // Extensions.
    "agents",
    "apps",
    "hooks",
    "marketplaces",
    "mcp_servers",
    "memories",
    "plugins",
    "skills",
    "tools.web_search",
    // Files and reports.
    "history",
    "log_dir",
    "notify",
    "otel",
    "sqlite_home",
];
