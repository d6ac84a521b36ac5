//! Merges layers, a profile and overrides into one configuration.

use crate::error::{ConfigError, Warning};
use crate::overrides::Override;
use crate::section::{Notes, Section};
use crate::settings::{Config, TOP_LEVEL_ONLY};
use crate::tree::{self, Source, Table, Value};
use crate::unknown::UnknownKey;

/// The text of one configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The name used in messages, usually the path of the file.
    pub name: String,
    pub text: String,
}

/// A configuration, with warnings and unknown keys of the text it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedConfig {
    pub config: Config,
    /// What to tell the user.
    pub warnings: Vec<Warning>,
    /// Keys that no setting has, in the order of the layers and of their text.
    pub unknown: Vec<UnknownKey>,
}

impl Config {
    /// Merges the layers, the profile and the overrides, each on top of the one before, and reads the result.
    ///
    /// Without `profile`, the key `profile` chooses one. Only the last occurrence of a key counts: a value
    /// that a later layer replaces is neither validated nor reported.
    pub fn load(
        layers: &[Layer],
        profile: Option<&str>,
        overrides: &[Override],
    ) -> Result<LoadedConfig, ConfigError> {
        let Merged { sources, tree, missing } = merged(layers, profile, overrides)?;
        let mut notes = Notes::default();
        if let Some((name, known)) = missing {
            notes.warnings.push(Warning::UnknownProfile { name, known });
        }
        let config = Self::read(Section::new(&sources, Vec::new(), &tree, &mut notes))?;
        let unknown = notes.unknown.into_values().collect();
        if !notes.unsupported.is_empty() {
            let keys = notes.unsupported.into_values().collect();
            notes.warnings.push(Warning::NoEffect { keys });
        }
        Ok(LoadedConfig { config, warnings: notes.warnings, unknown })
    }
}

/// Layers, profile and overrides as one tree.
pub(crate) struct Merged<'a> {
    /// The layers, then the overrides: what origins in the tree are numbered by.
    pub(crate) sources: Vec<Source<'a>>,
    pub(crate) tree: Table,
    /// The name of a profile that nobody has, and those that there are.
    missing: Option<(String, Vec<String>)>,
}

/// Merges layers, profile and overrides, each on top of the one before.
pub(crate) fn merged<'a>(
    layers: &'a [Layer],
    profile: Option<&str>,
    overrides: &'a [Override],
) -> Result<Merged<'a>, ConfigError> {
    let files = layers.iter().map(|layer| Source { name: &layer.name, text: &layer.text });
    let options =
        overrides.iter().map(|option| Source { name: option.name(), text: option.text() });
    let sources: Vec<Source<'_>> = files.chain(options).collect();

    let mut tree = Table::new();
    for index in 0..layers.len() {
        tree::merge(&mut tree, tree::parse(&sources, index)?);
    }
    let above = flags(overrides, layers.len());
    // Overrides are merged twice: below the profile, so that they can change or choose it, and on top of
    // it.
    tree::merge(&mut tree, above.clone());

    let mut missing = None;
    let chosen = profile.map(str::to_owned).or_else(|| named_profile(&tree));
    if let Some(name) = chosen {
        match find_profile(&tree, &name) {
            Some(Value::Table(table)) => {
                let mut table = table.clone();
                table.retain(|key, _| !TOP_LEVEL_ONLY.contains(&key.as_str()));
                tree::merge(&mut tree, table);
                tree::merge(&mut tree, above);
            }
            // Reading the `profiles` table will report what is wrong with it.
            Some(_) => {}
            None => missing = Some((name, profile_names(&tree))),
        }
    }
    Ok(Merged { sources, tree, missing })
}

/// Merges overrides, which are numbered from `first` on.
pub(crate) fn flags(overrides: &[Override], first: usize) -> Table {
    let mut above = Table::new();
    for (n, option) in overrides.iter().enumerate() {
        tree::merge(&mut above, option.to_table(first + n));
    }
    above
}

fn named_profile(tree: &Table) -> Option<String> {
    match &tree.get("profile")?.node.value {
        Value::String(name) => Some(name.clone()),
        _ => None,
    }
}

fn profile_names(tree: &Table) -> Vec<String> {
    match tree.get("profiles").map(|entry| &entry.node.value) {
        Some(Value::Table(profiles)) => profiles.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

fn find_profile<'a>(tree: &'a Table, name: &str) -> Option<&'a Value> {
    match &tree.get("profiles")?.node.value {
        Value::Table(profiles) => Some(&profiles.get(name)?.node.value),
        other => Some(other),
    }
}
