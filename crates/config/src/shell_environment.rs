//! Which environment variables commands get.

use crate::choice::choice;
use crate::error::ConfigError;
use crate::section::{Field, Notes, Read};
use std::collections::BTreeMap;

choice! {
    /// What the environment of a command starts from.
    #[derive(Default)]
    pub enum Inherit {
        /// Every variable of heddle's own environment.
        #[default]
        All = "all",
        /// The few variables that programs need to run.
        Core = "core",
        None = "none",
    }
}

/// `[shell_environment_policy]`: how the environment of a command is built.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShellEnvironment {
    pub inherit: Inherit,
    /// Whether variables that look like secrets are kept.
    pub ignore_default_excludes: bool,
    /// Patterns of names to remove.
    pub exclude: Vec<String>,
    /// Variables to add or change.
    pub set: BTreeMap<String, String>,
    /// Patterns of the only names to keep; an empty list keeps all.
    pub include_only: Vec<String>,
}

impl Read for ShellEnvironment {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let mut section = field.section(notes)?;
        let environment = Self {
            inherit: section.or("inherit", Inherit::default())?,
            ignore_default_excludes: section.or("ignore_default_excludes", false)?,
            exclude: section.or("exclude", Vec::new())?,
            set: section.or("set", BTreeMap::new())?,
            include_only: section.or("include_only", Vec::new())?,
        };
        section.finish();
        Ok(environment)
    }
}
