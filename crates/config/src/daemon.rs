//! The local daemon: the tools that it runs itself.

use serde_json::Value;

use crate::error::ConfigError;
use crate::section::{Field, Notes, Read};

/// `[daemon]`: the local daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Daemon {
    /// `[[daemon.tools]]`: commands that it may run for its model.
    pub tools: Vec<DaemonTool>,
}

/// A command that the daemon may run for its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonTool {
    /// What the model calls it.
    pub name: String,
    /// What the model is told about it.
    pub description: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The JSON schema of what it takes.
    pub parameters: Value,
}

impl Read for Daemon {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let mut section = field.section(notes)?;
        let tools = section.or("tools", Vec::new())?;
        section.finish();
        Ok(Self { tools })
    }
}

impl Read for DaemonTool {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let mut section = field.section(notes)?;
        let name: Option<String> = section.value("name")?;
        let description = section.or("description", String::new())?;
        let command: Vec<String> = section.or("command", Vec::new())?;
        let parameters = section.value::<Schema>("parameters")?;
        section.finish();
        let Some(name) = name else {
            return Err(field.bad_value("has no name", "Add name = \"…\"."));
        };
        if command.is_empty() {
            let help = "Add command = [\"program\", \"argument\"].";
            return Err(field.bad_value("has no command", help));
        }
        let parameters = parameters.map_or_else(|| serde_json::json!({"type": "object"}), |s| s.0);
        Ok(Self { name, description, command, parameters })
    }
}

/// A JSON schema as text: TOML has no null, and hosted APIs show schemas as JSON.
struct Schema(Value);

impl Read for Schema {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let text = String::read(field, notes)?;
        match serde_json::from_str(&text) {
            Ok(value @ Value::Object(_)) => Ok(Self(value)),
            Ok(_) => Err(field.bad_value("is not a JSON object", EXAMPLE)),
            Err(error) => Err(field.bad_value(&format!("is not JSON ({error})"), EXAMPLE)),
        }
    }
}

const EXAMPLE: &str = "Write a JSON schema in quotes, such as '{\"type\": \"object\"}'.";
