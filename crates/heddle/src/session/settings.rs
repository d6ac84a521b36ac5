//! Settings: config.toml, and the caller's overrides of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub use config::{CONTEXT_MIN, Config, Daemon, SESSIONS_MAX, THREADS_MAX};
use config::{Layer, LoadedConfig, Override};
use engine::model::ModelProfile;
use policy::SandboxMode;

use crate::error::Error;
use crate::session::host::HostEnv;
use crate::session::local;

/// Overrides of config.toml that the caller gives.
#[derive(Clone, Debug, Default)]
pub struct Preferences {
    /// Name of a profile in config.toml, or of a file NAME.config.toml.
    pub profile: Option<String>,
    /// Single settings as `key=value`, with a TOML value.
    pub overrides: Vec<String>,
    /// Name of the model to use instead of that of config.toml.
    pub model: Option<String>,
    /// Whether to use a local model, whatever provider config.toml selects.
    pub local_model: bool,
    /// Whether an unknown setting is an error instead of a warning.
    pub strict: bool,
    /// Whether to ignore config.toml.
    pub ignore_file: bool,
    /// Sandbox mode for commands and patches, instead of that of config.toml.
    pub sandbox: Option<SandboxMode>,
    /// Additional directories that commands may write to in `workspace-write`.
    pub writable_dirs: Vec<PathBuf>,
}

/// The settings in effect.
#[derive(Clone, Debug)]
pub struct Settings {
    /// config.toml with the preferences applied.
    pub config: Config,
    /// Warnings about settings that are unknown or have no effect.
    pub warnings: Vec<String>,
    /// The caller's overrides, as given.
    pub preferences: Preferences,
}

/// A model that threads can be started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownModel {
    /// Its name, as endpoints know it.
    pub name: String,
    /// Whether it is the model that the settings choose.
    pub is_default: bool,
    /// The reasoning efforts that it supports; empty if it has none.
    pub efforts: Vec<&'static str>,
    /// The reasoning effort of its requests unless the settings set one; none if it supports none.
    pub default_effort: Option<String>,
}

/// Returns the known models, that of the settings first.
pub fn models(config: &Config) -> Vec<KnownModel> {
    let chosen = config.model.clone().unwrap_or_else(|| MODEL_DEFAULT.to_owned());
    let others = engine::model::names().map(str::to_owned).filter(|name| *name != chosen);
    let known = |(index, name): (usize, String)| {
        let effort = ModelProfile::from_name(&name).effort;
        KnownModel {
            is_default: index == 0,
            efforts: effort.map(|_| vec!["low", "medium", "high", "xhigh"]).unwrap_or_default(),
            default_effort: effort.map(str::to_owned),
            name,
        }
    };
    std::iter::once(chosen.clone()).chain(others).enumerate().map(known).collect()
}

/// Name of the model of threads whose settings name none.
pub(crate) const MODEL_DEFAULT: &str = "gpt-5.5";

/// Reads config.toml and applies the preferences.
pub fn load(host: &HostEnv, preferences: Preferences) -> Result<Settings, Error> {
    let overrides = overrides(&preferences)?;
    let Layers { user, profile } = layers(host, &preferences)?;
    let profile_file = profile.is_some();
    let layers: Vec<_> = user.into_iter().chain(profile).collect();
    let LoadedConfig { mut config, warnings, unknown } =
        Config::load(&layers, preferences.profile.as_deref(), &overrides)
            .map_err(Error::settings)?;
    if preferences.strict && !unknown.is_empty() {
        let lines: Vec<_> = unknown.iter().map(ToString::to_string).collect();
        return Err(Error::settings(lines.join("\n")));
    }
    if let Some(model) = &preferences.model {
        if model.trim().is_empty() {
            return Err(Error::settings(
                "the name of the model is empty: give a name, or none for the default",
            ));
        }
        config.model = Some(model.clone());
    }
    if preferences.local_model {
        config.model_provider = Some(local::PROVIDER.to_owned());
        // The configured model belongs to the configured provider, unless a local model has the same name.
        let models = local::models(&host.home, &host.env);
        let overridden = overrides.iter().any(|option| option.keys().eq(["model"]));
        if preferences.model.is_none() && !overridden {
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
    let mut unused = Vec::new();
    for warning in &warnings {
        match warning {
            // A profile may be a file of its own.
            config::Warning::UnknownProfile { .. } if profile_file => {}
            // The reference continues without the profile, and so does heddle.
            config::Warning::UnknownProfile { name, known } => {
                let known = known.iter().cloned().chain(profile_files(&host.home)).collect();
                let text = no_profile(warning, name, known);
                if preferences.strict {
                    return Err(Error::settings(text));
                }
                unused.push(text);
            }
            warning => unused.push(warning.to_string()),
        }
    }
    unused.extend(unknown.iter().map(ToString::to_string));
    Ok(Settings { config, warnings: unused, preferences })
}

/// The files of the settings, as far as they exist.
pub(crate) struct Layers {
    pub(crate) user: Option<Layer>,
    /// The file of the profile.
    pub(crate) profile: Option<Layer>,
}

/// Reads the files of the settings.
pub(crate) fn layers(host: &HostEnv, preferences: &Preferences) -> Result<Layers, Error> {
    if preferences.ignore_file {
        return Ok(Layers { user: None, profile: None });
    }
    let user = layer(&user_file(host))?;
    let profile = profile_file(host, preferences).map(|file| layer(&file)).transpose()?.flatten();
    Ok(Layers { user, profile })
}

/// Returns the path of the user's settings.
pub(crate) fn user_file(host: &HostEnv) -> PathBuf {
    host.home.join("config.toml")
}

/// Returns the path of the file that the profile may have.
pub(crate) fn profile_file(host: &HostEnv, preferences: &Preferences) -> Option<PathBuf> {
    preferences.profile.as_ref().map(|name| host.home.join(format!("{name}.config.toml")))
}

/// Parses the single settings of the caller.
pub(crate) fn overrides(preferences: &Preferences) -> Result<Vec<Override>, Error> {
    let parsed = preferences.overrides.iter().map(|text| Override::parse(text));
    parsed.collect::<Result<_, _>>().map_err(Error::settings)
}

/// Returns the names of profiles that are files of their own.
fn profile_files(home: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(home).into_iter().flatten().flatten();
    entries.take(PROFILE_FILES_MAX).filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_suffix(".config.toml").map(str::to_owned)
    })
}

/// Builds the message that a profile does not exist, with the names of existing ones.
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

/// Maximum number of files in the home that are searched for profiles.
const PROFILE_FILES_MAX: usize = 10_000;
/// Maximum number of profiles named in a message.
const PROFILES_SHOWN_MAX: usize = 20;

/// Longest settings file, in bytes.
pub(crate) const CONFIG_BYTES_MAX: u64 = 4 * 1024 * 1024;

fn layer(path: &Path) -> Result<Option<Layer>, Error> {
    let name = path.display().to_string();
    match files::read_text(path, CONFIG_BYTES_MAX) {
        Ok(text) => Ok(Some(Layer { name, text })),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(Error::settings(format!("{name} cannot be read: {error}"))),
    }
}
