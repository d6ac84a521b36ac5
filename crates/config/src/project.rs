//! Per-project settings: whether a directory is trusted.

use crate::choice::choice;
use crate::error::ConfigError;
use crate::section::{Field, Notes, Read};

choice! {
    /// Whether a project's own configuration and rules are used.
    pub enum TrustLevel {
        Trusted = "trusted",
        Untrusted = "untrusted",
    }
}

/// `[projects."DIRECTORY"]`: settings of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Project {
    /// Whether it is trusted, if the user has decided.
    pub trust_level: Option<TrustLevel>,
}

impl Read for Project {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let mut section = field.section(notes)?;
        let project = Self { trust_level: section.value("trust_level")? };
        section.finish();
        Ok(project)
    }
}
