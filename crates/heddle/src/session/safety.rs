//! Determines what commands may do: the sandbox profile, rules, approval policy and environment from
//! flags and configuration, and the sandbox available on this machine.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use config::{Config, TrustLevel};
use policy::{
    ApprovalPolicy, CommandRequest, EnvironmentPolicy, Granular, Inherit, Policy, PrefixRule,
    Profile, SandboxMode, Scene,
};
use sandbox::{Level, Limits, Sandbox};

use crate::error::Error;
use crate::session::host::HostEnv;
use crate::session::provider;
use crate::session::settings::Preferences;

/// Builds a sandbox and runs a command in it if this process was started for that, and returns the exit code. Returns
/// none in every other process.
///
/// Call it first in `main`: see the crate's documentation.
pub fn sandbox_helper() -> Option<ExitCode> {
    let code = sandbox::helper_main();
    if code.is_none() {
        HELPER.store(true, Ordering::Relaxed);
    }
    code
}

/// Whether `main` called [`sandbox_helper`]. Without that, a copy started to build a sandbox would run the host program
/// again.
static HELPER: AtomicBool = AtomicBool::new(false);

/// Path of the running program, valid even if its file was moved or replaced.
pub const OURSELVES: &str = "/proc/self/exe";

/// Folders of a project's own rules.
const PROJECT_RULES: [&str; 2] = [".codex/rules", ".heddle/rules"];

/// Longest rule file, in bytes.
const RULES_BYTES_MAX: u64 = 1024 * 1024;

/// Reads the user's rules, and the project's if the user trusts it.
///
/// An invalid file is an error here, before anything is sent to a model.
pub fn rules(host: &HostEnv, config: &Config, ignore: bool) -> Result<Vec<PrefixRule>, Error> {
    if ignore {
        return Ok(Vec::new());
    }
    let mut folders = vec![host.home.join("rules")];
    let project = runtime::project::repository(&host.directory).unwrap_or(&host.directory);
    let known = config.projects.get(&*project.to_string_lossy());
    if known.and_then(|project| project.trust_level) == Some(TrustLevel::Trusted) {
        folders.extend(PROJECT_RULES.map(|folder| project.join(folder)));
    }
    let mut rules = Vec::new();
    for folder in folders {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "rules")) {
            let name = path.display().to_string();
            let text = files::read_text(path, RULES_BYTES_MAX)
                .map_err(|error| Error::settings(format!("{name} cannot be read: {error}")))?;
            rules.extend(policy::parse_rules(&name, &text).map_err(Error::settings)?);
        }
    }
    Ok(rules)
}

/// Returns the configured approval policy; the default is to ask for no approval.
///
/// `exec` asks for no approval, whatever the policy.
pub fn approval(config: &Config) -> ApprovalPolicy {
    match config.approval_policy {
        Some(config::ApprovalPolicy::Untrusted) => ApprovalPolicy::Untrusted,
        Some(config::ApprovalPolicy::OnRequest) => ApprovalPolicy::OnRequest,
        Some(config::ApprovalPolicy::Granular(granular)) => ApprovalPolicy::Granular(Granular {
            sandbox_approval: granular.sandbox_approval,
            rules: granular.rules,
        }),
        Some(config::ApprovalPolicy::Never) | None => ApprovalPolicy::Never,
    }
}

/// Builds the sandbox profile from flags and configuration.
pub fn profile(
    host: &HostEnv,
    config: &Config,
    preferences: &Preferences,
) -> Result<Profile, Error> {
    let mode = preferences.sandbox.unwrap_or(match config.sandbox_mode {
        Some(config::SandboxMode::DangerFullAccess) => SandboxMode::DangerFullAccess,
        Some(config::SandboxMode::WorkspaceWrite) => SandboxMode::WorkspaceWrite,
        Some(config::SandboxMode::ReadOnly) | None => SandboxMode::ReadOnly,
    });
    let workspace = &config.sandbox_workspace_write;
    let resolve = |path: &Path| host.directory.join(path).canonicalize();
    let mut writable_roots = vec![resolve(&host.directory).map_err(Error::settings)?];
    for directory in &preferences.writable_dirs {
        let root = resolve(directory).map_err(|error| {
            let shown = directory.display();
            let what = "which commands are to write to";
            Error::settings(format!("the directory {shown}, {what}, cannot be used: {error}"))
        })?;
        writable_roots.push(root);
    }
    let mut temporary_roots = Vec::new();
    if !workspace.exclude_slash_tmp {
        temporary_roots.extend(resolve(Path::new("/tmp")).ok());
    }
    // A configured root may not exist on this machine, and is then skipped.
    for path in &workspace.writable_roots {
        let known = writable_roots.iter().chain(&temporary_roots);
        let root = settled(&host.directory.join(path), known);
        writable_roots.extend(root);
    }
    if !workspace.exclude_tmpdir_env_var {
        let tmpdir = host.env.get("TMPDIR").filter(|value| !value.is_empty());
        let known = writable_roots.iter().chain(&temporary_roots);
        let root = tmpdir.and_then(|path| settled(&host.directory.join(path), known));
        temporary_roots.extend(root);
    }
    // The setting belongs to workspace-write, like its table.
    let network = match mode {
        SandboxMode::DangerFullAccess => true,
        SandboxMode::WorkspaceWrite => workspace.network_access,
        SandboxMode::ReadOnly => false,
    };
    // The settings and rules in the home decide what runs outside the sandbox. They are found by path, so the path
    // itself must be protected too, not only the directory it leads to.
    let home = host.directory.join(&host.home);
    let mut protected = vec![real(&home), home];
    if mode == SandboxMode::WorkspaceWrite {
        // Repositories that already exist belong to the user.
        protected.extend(writable_roots.iter().flat_map(|root| sandbox::protected_below(root)));
    }
    Ok(Profile { mode, writable_roots, temporary_roots, scratch: None, protected, network })
}

/// Finds a sandbox for the mode, or none for full access.
///
/// Uses the requested level, or otherwise the best one that works on this machine.
pub fn find_sandbox(
    host: &HostEnv,
    config: &Config,
    mode: SandboxMode,
    level: Option<Level>,
) -> Result<Sandbox, Error> {
    if mode == SandboxMode::DangerFullAccess {
        return Ok(Sandbox::none());
    }
    if !HELPER.load(Ordering::Relaxed) {
        return Err(Error::sandbox(
            "this program cannot build a sandbox: call heddle::sandbox_helper() first thing in main, and return \
             the exit code if it gives one",
        ));
    }
    let cache = host.home.join("cache").join("sandbox");
    let ourselves = PathBuf::from(OURSELVES);
    let found = match level {
        Some(level) => Sandbox::with_level(ourselves, level),
        None => Sandbox::find(ourselves, Some(&cache)),
    };
    let found = found.map_err(Error::sandbox)?;
    Ok(Sandbox {
        hidden: hidden(&host.directory.join(&host.home)),
        locks: Some(host.directory.join(&host.home).join(SANDBOX_LOCKS)),
        limits: limits(config),
        ..found
    })
}

/// Folder of the home for the locks that supervisors share.
const SANDBOX_LOCKS: &str = "sandbox-locks";

/// Returns the directories of the home that contain locks. They are hidden from commands, because a command
/// that can read a lock file can lock it and block every heddle. Missing ones are created, so that they can be hidden.
fn hidden(home: &Path) -> Vec<PathBuf> {
    let home = real(home);
    let models = home.join("models");
    let locks = models.exists().then(|| models.join(infer::models::LOCKS_FOLDER));
    let folders =
        [store::LOCKS_FOLDER, store::INDEX_FOLDER, SANDBOX_LOCKS, "daemon", staging::FOLDER]
            .map(|name| home.join(name));
    let folders = folders.into_iter().chain(locks);
    let made = folders.filter_map(|folder| {
        // If it cannot be created, a command cannot create a lock there either.
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        let kind = folder.symlink_metadata().ok()?.file_type();
        if kind.is_dir() { Some(folder) } else { folder.canonicalize().ok() }
    });
    made.collect()
}

/// Returns the resource limits of commands.
fn limits(config: &Config) -> Limits {
    let (usual, set) = (Limits::generous(), config.command_limits);
    let bound = |set: Option<u64>, usual| match set {
        None => usual,
        Some(0) => None,
        bound => bound,
    };
    let memory_bytes = set.memory_mb.map(|mib| mib.saturating_mul(1024 * 1024));
    Limits {
        processes: bound(set.processes, usual.processes),
        memory_bytes: bound(memory_bytes, usual.memory_bytes),
    }
}

/// Returns the environment of commands: that of the host program, filtered.
pub fn command_env(host: &HostEnv, config: &Config) -> Vec<(String, String)> {
    environment_policy(config).apply(host.env.clone())
}

/// Returns the names of the variables that the configuration sets for commands.
pub fn env_set(config: &Config) -> Vec<String> {
    config.shell_environment_policy.set.keys().cloned().collect()
}

/// Returns the policy that decides which environment variables commands get.
pub fn environment_policy(config: &Config) -> EnvironmentPolicy {
    let settings = &config.shell_environment_policy;
    EnvironmentPolicy {
        inherit: match settings.inherit {
            config::Inherit::All => Inherit::All,
            config::Inherit::Core => Inherit::Core,
            config::Inherit::None => Inherit::None,
        },
        keep_secrets: settings.ignore_default_excludes,
        // The selected provider's API keys are not for commands, whatever their names.
        exclude: settings.exclude.iter().cloned().chain(provider::variables(config)).collect(),
        set: settings.set.clone().into_iter().collect(),
        include_only: settings.include_only.clone(),
    }
}

/// Finds the files on disk that decide which program a command would run, if a rule could let it run outside the
/// sandbox.
pub fn scene(host: &HostEnv, config: &Config, policy: &Policy, request: &CommandRequest) -> Scene {
    let names = policy.programs(request);
    let env = command_env(host, config);
    sandbox::scene(names, &request.cwd, &host.directory, &env, &policy.profile)
}

/// Resolves a configured root, unless a model's command could have redirected it: it could if the path leads
/// through a symbolic link inside another root.
fn settled<'a>(path: &Path, mut roots: impl Iterator<Item = &'a PathBuf>) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    let chosen = real != path && roots.any(|root| path.starts_with(root));
    (!chosen).then_some(real)
}

/// Resolves all symbolic links of a path whose last components need not exist.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => real(parent).join(name),
        _ => path.to_owned(),
    })
}
