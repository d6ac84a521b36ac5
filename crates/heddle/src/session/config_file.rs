//! config.toml, for programs that show and change it: the values in effect and where each comes from, and edits that keep
//! the rest of the file.
//!
//! The crate `config` decides what an edit does to the text. This module handles the files: a change is made under a lock,
//! to the current content, and replaces the file as a whole.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use config::{Config, ConfigError, Layer, Override, Overriding};
pub use config::{Edit, EditError, KeyPath, Merge, Skill, switch_skill};
use files::FileError;
use policy::SandboxMode;
use serde_json::{Map, Value};

use crate::error::Error;
use crate::session::host::HostEnv;
use crate::session::local;
use crate::session::settings::{self, CONFIG_BYTES_MAX, Layers, Preferences};

/// The settings in effect, and each layer by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The values in effect, with defaults; a setting that has neither a value nor a default is null.
    pub config: Map<String, Value>,
    /// The layer of each value that is not a table, by the path of the value, as an index into `layers`.
    pub origins: BTreeMap<String, usize>,
    /// The layers, lowest precedence first.
    pub layers: Vec<ViewedLayer>,
}

/// One layer of the settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewedLayer {
    /// The source and the version of the layer.
    pub id: LayerId,
    /// The settings in this layer.
    pub config: Map<String, Value>,
}

/// Identifies a layer and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerId {
    /// The source of the layer.
    pub source: LayerSource,
    /// Changes with the content of the layer; comments and spacing do not count.
    pub version: String,
}

/// The source of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerSource {
    /// A file of the user, possibly that of a profile. It may not exist.
    User {
        /// The path of the file.
        file: PathBuf,
        /// The name of the profile that the file belongs to.
        profile: Option<String>,
    },
    /// The flags of the program.
    Flags,
}

/// The conditions under which a change is made.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// The version that the file must have.
    pub version: Option<String>,
    /// The file that the caller expects to change; only the user's can be changed.
    pub file: Option<PathBuf>,
}

/// Creates edits from the current content of the file.
pub type MakeEdits<'a> = dyn Fn(&Map<String, Value>) -> Result<Vec<Edit>, EditError> + 'a;

/// The result of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The file that was changed.
    pub file: PathBuf,
    /// The new version of the file.
    pub version: String,
    /// Why the first edit without effect has none.
    pub overridden: Option<Overridden>,
    /// Warnings about settings that are new and have no effect.
    pub warnings: Vec<String>,
}

/// Why an edit has no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Overridden {
    /// A sentence for the user.
    pub message: String,
    /// The layer that sets another value.
    pub by: LayerId,
    /// The value in effect.
    pub effective: Value,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The edit is not possible or the settings would be invalid; change the request.
    #[error("{0}")]
    Invalid(String),
    /// The file has changed since the caller read it; read it again.
    #[error("Configuration was modified since last read. Fetch latest version and retry.")]
    Conflict,
    /// This file cannot be changed from here.
    #[error("{0}")]
    ReadOnly(String),
    /// The file cannot be read or written.
    #[error("{0}")]
    Failed(String),
}

/// Reads the settings of a host, for display.
pub fn view(host: &HostEnv, preferences: &Preferences) -> Result<View, Error> {
    let layers = settings::layers(host, preferences)?;
    View::of(host, preferences, layers)
}

/// Changes config.toml. The edits are created from its current content and made all together or not at all, under a lock
/// that other callers of this function wait for.
pub fn write(
    host: &HostEnv,
    preferences: &Preferences,
    conditions: &Conditions,
    edits: &MakeEdits<'_>,
) -> Result<Written, WriteError> {
    let file = settings::user_file(host);
    if preferences.ignore_file {
        return Err(WriteError::ReadOnly(
            "config.toml is not used here, so it is not changed".into(),
        ));
    }
    if conditions.file.as_ref().is_some_and(|wanted| plain(wanted) != plain(&file)) {
        let shown = file.display();
        return Err(WriteError::ReadOnly(format!(
            "Only writes to the user config are allowed: leave filePath out, or give {shown}"
        )));
    }
    let _lock = lock(&host.home)?;
    for _ in 0..ATTEMPTS_MAX {
        let place = Place::find(&file)?;
        let before = place.read()?;
        let layer =
            Layer { name: file.display().to_string(), text: before.clone().unwrap_or_default() };
        let old = config::View::new(std::slice::from_ref(&layer), None, &[]).map_err(unreadable)?;
        if conditions.version.as_ref().is_some_and(|wanted| *wanted != old.layers[0].version) {
            return Err(WriteError::Conflict);
        }
        let edits = edits(&old.layers[0].config).map_err(invalid)?;
        let text = config::apply(&layer, &edits).map_err(|error| match error {
            EditError::Syntax(error) => unreadable(error),
            error @ EditError::Unfaithful { .. } => WriteError::Failed(error.to_string()),
            error => invalid(error),
        })?;
        let new = Layer { name: layer.name.clone(), text };
        let warnings = check(&layer, &new, preferences.strict)?;
        if new.text != layer.text && !place.replace(&new.text, before.as_deref())? {
            continue;
        }
        return written(host, preferences, file, new, &edits, warnings);
    }
    let shown = file.display();
    Err(WriteError::Failed(format!("{shown} is changed by others all the time: try again")))
}

/// Describes the result of a change.
fn written(
    host: &HostEnv,
    preferences: &Preferences,
    file: PathBuf,
    new: Layer,
    edits: &[Edit],
    warnings: Vec<String>,
) -> Result<Written, WriteError> {
    let failed = |error: Error| WriteError::Failed(error.to_string());
    let profile = settings::layers(host, preferences).map_err(failed)?.profile;
    let layers = Layers { user: Some(new), profile };
    let (view, sources) = together(host, preferences, layers).map_err(failed)?;
    let id = |layer: usize| LayerId {
        source: sources[layer].clone(),
        version: view.layers[layer].version.clone(),
    };
    let overriding = edits.iter().find_map(|edit| view.overriding(USER, &edit.path));
    let overridden = overriding.map(|Overriding { layer, effective }| {
        let by = id(layer);
        let message = match &by.source {
            LayerSource::Flags => "Overridden by session flags".to_owned(),
            LayerSource::User { .. } if layer == USER => "Overridden by its profile".to_owned(),
            LayerSource::User { file, .. } => format!("Overridden by {}", file.display()),
        };
        Overridden { message, by, effective }
    });
    Ok(Written { file, version: id(USER).version, overridden, warnings })
}

/// Index of the user's file in the list of layers.
const USER: usize = 0;

impl View {
    fn of(host: &HostEnv, preferences: &Preferences, layers: Layers) -> Result<Self, Error> {
        let (view, sources) = together(host, preferences, layers)?;
        let config = view.with_defaults();
        let config::View { origins, layers, .. } = view;
        let layers = layers.into_iter().zip(sources).map(|(layer, source)| ViewedLayer {
            id: LayerId { source, version: layer.version },
            config: layer.config,
        });
        Ok(Self { config, origins, layers: layers.collect() })
    }
}

/// Lists the layers: the user's file, the file of the profile if there is one, and the flags of the program.
fn together(
    host: &HostEnv,
    preferences: &Preferences,
    layers: Layers,
) -> Result<(config::View, Vec<LayerSource>), Error> {
    let flags = flags(preferences)?;
    let file = settings::user_file(host);
    // A file that does not exist says nothing, and can be written.
    let user = layers.user.unwrap_or_else(|| {
        let name = file.display().to_string();
        Layer { name, text: String::new() }
    });
    let mut sources = vec![LayerSource::User { file, profile: None }];
    let mut all = vec![user];
    if let (Some(layer), Some(file)) = (layers.profile, settings::profile_file(host, preferences)) {
        sources.push(LayerSource::User { file, profile: preferences.profile.clone() });
        all.push(layer);
    }
    sources.push(LayerSource::Flags);
    let view = config::View::new(&all, preferences.profile.as_deref(), &flags);
    Ok((view.map_err(Error::settings)?, sources))
}

/// Returns the flags of the program as settings.
fn flags(preferences: &Preferences) -> Result<Vec<Override>, Error> {
    let mut flags = settings::overrides(preferences)?;
    let sandbox = preferences.sandbox.map(|mode| match mode {
        SandboxMode::ReadOnly => "read-only",
        SandboxMode::WorkspaceWrite => "workspace-write",
        SandboxMode::DangerFullAccess => "danger-full-access",
    });
    let named = [
        ("model", preferences.model.as_deref()),
        ("model_provider", preferences.local_model.then_some(local::PROVIDER)),
        ("sandbox_mode", sandbox),
    ];
    for (key, value) in named {
        if let Some(value) = value {
            let text = format!("{key}={}", Value::from(value));
            flags.push(Override::parse(&text).map_err(Error::settings)?);
        }
    }
    Ok(flags)
}

/// Refuses settings that cannot be read. Returns warnings about those that are new.
fn check(old: &Layer, new: &Layer, strict: bool) -> Result<Vec<String>, WriteError> {
    if new.text.len() as u64 > CONFIG_BYTES_MAX {
        let shown = &new.name;
        return Err(WriteError::Invalid(format!(
            "{shown} would have more than {CONFIG_BYTES_MAX} bytes, and could not be read: set less"
        )));
    }
    let wrong = |error: ConfigError| {
        WriteError::Invalid(format!("Invalid configuration: {}", error.without_place()))
    };
    let loaded = Config::load(std::slice::from_ref(new), None, &[]).map_err(wrong)?;
    if strict && let Some(unknown) = loaded.unknown.first() {
        return Err(WriteError::Invalid(format!(
            "Invalid configuration: there is no setting `{}`, and this program was started to refuse unknown \
             ones",
            unknown.path
        )));
    }
    // What was wrong before is nothing new.
    let known = Config::load(std::slice::from_ref(old), None, &[]).ok();
    let known = known.map(|it| useless(&it)).unwrap_or_default();
    let useless = useless(&loaded).into_iter().filter(|(key, _)| !known.contains_key(key));
    Ok(useless.map(|(_, text)| text).collect())
}

/// Returns the settings that have no effect, with a warning for each.
fn useless(loaded: &config::LoadedConfig) -> BTreeMap<String, String> {
    let unknown = loaded.unknown.iter().map(|it| (it.path.clone(), it.to_string()));
    let unsupported = loaded.warnings.iter().flat_map(|warning| match warning {
        config::Warning::NoEffect { keys } => keys.as_slice(),
        _ => &[],
    });
    let unsupported = unsupported.map(|(key, at)| {
        let text =
            format!("{at}: `{key}` has no effect, because heddle does not have what it sets");
        (key.clone(), text)
    });
    unknown.chain(unsupported).collect()
}

fn invalid(error: EditError) -> WriteError {
    WriteError::Invalid(error.to_string())
}

fn unreadable(error: ConfigError) -> WriteError {
    WriteError::Failed(format!("the configuration cannot be read, so it is not changed: {error}"))
}

/// Locks the configuration against other writers, and waits for them if necessary.
fn lock(home: &Path) -> Result<File, WriteError> {
    let path = home.join(LOCK);
    let failed = |error: &dyn std::fmt::Display| {
        WriteError::Failed(format!("{} cannot be locked: {error}", path.display()))
    };
    make_home(home).map_err(|error| failed(&error))?;
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let lock = files::open_own(&mut options, &path).map_err(|error| failed(&error))?;
    files::lock_within(&lock, PATIENCE).map_err(|error| failed(&error))?;
    Ok(lock)
}

fn make_home(home: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(home)
}

/// The place of config.toml, with a link resolved.
struct Place {
    /// The directory, without links.
    directory: PathBuf,
    name: OsString,
}

impl Place {
    /// Finds the file. A link to it was made by the user, because commands of a model cannot write in the home. Its target
    /// may be in a directory where they can, so a second link is not followed.
    fn find(file: &Path) -> Result<Self, WriteError> {
        let failed = |error: io::Error| {
            WriteError::Failed(format!("{} cannot be changed: {error}", file.display()))
        };
        let path = match fs::symlink_metadata(file) {
            Ok(found) if found.is_symlink() => {
                file.with_file_name(fs::read_link(file).map_err(failed)?)
            }
            Ok(_) => file.to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => file.to_owned(),
            Err(error) => return Err(failed(error)),
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed(io::ErrorKind::InvalidFilename.into()));
        };
        let directory = parent.canonicalize().map_err(failed)?;
        let place = Self { directory, name: name.to_owned() };
        if place.path() != file
            && fs::symlink_metadata(place.path()).is_ok_and(|it| it.is_symlink())
        {
            let path = place.path();
            return Err(WriteError::ReadOnly(format!(
                "{} is a link to {}, which is a link, too: let it lead to the file itself",
                file.display(),
                path.display()
            )));
        }
        Ok(place)
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// Returns the text; `None` if the file does not exist.
    fn read(&self) -> Result<Option<String>, WriteError> {
        let path = self.path();
        let read = files::open_own(OpenOptions::new().read(true), &path)
            .and_then(|file| files::read_opened(&file, CONFIG_BYTES_MAX))
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| FileError::NotText));
        match read {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => {
                Err(WriteError::Failed(format!("{} cannot be read: {error}", path.display())))
            }
        }
    }

    /// Replaces the text of the file as a whole and durably. Returns false if the file no longer has the text `before`,
    /// because a program without our lock has changed it.
    fn replace(&self, text: &str, before: Option<&str>) -> Result<bool, WriteError> {
        let path = self.path();
        let failed = |error: io::Error| {
            WriteError::Failed(format!("{} cannot be written: {error}", path.display()))
        };
        let old = match before {
            Some(_) => Some(fs::symlink_metadata(&path).map_err(failed)?),
            None => None,
        };
        // A new file could take its place, but whoever has made it so does not want that.
        if old.as_ref().is_some_and(|old| old.permissions().readonly()) {
            let shown = path.display();
            return Err(WriteError::ReadOnly(format!(
                "{shown} is read-only: make it writable, or change it where it comes from"
            )));
        }
        let prefix = format!(".{}.", self.name.to_string_lossy());
        self.remove_left_over(&prefix);
        let mut beside = tempfile::Builder::new();
        let mut beside = beside.prefix(&prefix).tempfile_in(&self.directory).map_err(failed)?;
        beside.write_all(text.as_bytes()).map_err(failed)?;
        if let Some(old) = old {
            keep_owner(beside.as_file(), &old).map_err(failed)?;
            beside.as_file().set_permissions(old.permissions()).map_err(failed)?;
        }
        beside.as_file().sync_all().map_err(failed)?;
        if self.read()?.as_deref() != before {
            return Ok(false);
        }
        match before {
            Some(_) => drop(beside.persist(&path).map_err(|error| failed(error.error))?),
            None => match beside.persist_noclobber(&path) {
                Ok(_) => {}
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                    return Ok(false);
                }
                Err(error) => return Err(failed(error.error)),
            },
        }
        // The text is in place now, whatever becomes of this.
        File::open(&self.directory).and_then(|folder| folder.sync_all()).map_err(failed)?;
        Ok(true)
    }

    /// Removes temporary files of writers that were killed. Recent ones are kept: they may belong to a writer that changes
    /// the same file from another home, under another lock.
    fn remove_left_over(&self, prefix: &str) {
        // Whatever fails here keeps nobody from the change: the next one tries again.
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| is_beside(&entry.file_name(), prefix)) {
            let is_old = entry.metadata().is_ok_and(|found| {
                let age = found.modified().ok().and_then(|time| time.elapsed().ok());
                found.is_file() && age.is_some_and(|age| age > LEFT_OVER_AFTER)
            });
            if is_old {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Returns whether a name is that of a writer's temporary file.
fn is_beside(name: &OsStr, prefix: &str) -> bool {
    let random = name.to_str().and_then(|name| name.strip_prefix(prefix));
    random.is_some_and(|it| it.len() == 6 && it.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Copies the owner and the group of another file, if they differ.
#[cfg(unix)]
fn keep_owner(file: &File, old: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};

    let new = file.metadata()?;
    if (new.uid(), new.gid()) == (old.uid(), old.gid()) {
        return Ok(());
    }
    fchown(file, Some(old.uid()), Some(old.gid()))
}

#[cfg(not(unix))]
fn keep_owner(_: &File, _: &fs::Metadata) -> io::Result<()> {
    Ok(())
}

/// Returns a path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// The lock file of config.toml.
const LOCK: &str = "config.toml.lock";
/// How old a temporary file must be before it is certain that nobody still uses it.
const LEFT_OVER_AFTER: Duration = Duration::from_secs(60 * 60);
/// How long to wait for the lock; holders need milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a change is retried because a program without the lock was faster.
const ATTEMPTS_MAX: u32 = 8;

#[cfg(test)]
mod tests;
