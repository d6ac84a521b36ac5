//! Settings of the local daemon: how it serves, and the tools it runs itself.

use serde_json::Value;

use crate::error::ConfigError;
use crate::json_tree;
use crate::section::{Field, Notes, Read};
use crate::tree;

/// `[daemon]`: the local daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Daemon {
    /// Loopback port to listen on as well; 0 picks a free one.
    pub tcp: Option<u16>,
    /// Seconds without requests after which it exits; 0 disables that.
    pub idle_timeout: Option<u64>,
    /// How many requests are answered concurrently.
    pub sessions: Option<u16>,
    /// Context size in tokens, for a request and its answer together.
    pub context: Option<u32>,
    /// Number of compute threads.
    pub threads: Option<u16>,
    /// Whether it keeps counters and exposes them at `/metrics`.
    pub metrics: bool,
    /// `[[daemon.tools]]`: commands that the model may call.
    pub tools: Vec<DaemonTool>,
}

/// A command that the daemon may run for its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonTool {
    /// The tool name the model uses.
    pub name: String,
    /// The description shown to the model.
    pub description: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}

impl Read for Daemon {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let mut section = field.section(notes)?;
        let daemon = Self {
            tcp: section.value("tcp")?.map(|Whole::<u16, 0, { u16::MAX as u64 }>(port)| port),
            idle_timeout: section.value("idle_timeout")?,
            sessions: section.value("sessions")?.map(|Whole::<u16, 1, SESSIONS_MAX>(count)| count),
            context: section
                .value("context")?
                .map(|Whole::<u32, CONTEXT_MIN, { u32::MAX as u64 }>(tokens)| tokens),
            threads: section.value("threads")?.map(|Whole::<u16, 1, THREADS_MAX>(count)| count),
            metrics: section.or("metrics", false)?,
            tools: section.or("tools", Vec::new())?,
        };
        section.finish();
        Ok(daemon)
    }
}

/// Largest number of concurrent requests.
pub const SESSIONS_MAX: u64 = 256;
/// Largest number of compute threads.
pub const THREADS_MAX: u64 = 1024;
/// Smallest context size, in tokens.
pub const CONTEXT_MIN: u64 = 64;

/// An integer within limits.
struct Whole<T, const LEAST: u64, const MOST: u64>(T);

impl<T: TryFrom<u64>, const LEAST: u64, const MOST: u64> Read for Whole<T, LEAST, MOST> {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let number = u64::read(field, notes)?;
        let fitting = Some(number).filter(|number| (LEAST..=MOST).contains(number));
        match fitting.and_then(|number| T::try_from(number).ok()) {
            Some(number) => Ok(Self(number)),
            None => {
                let help = format!("Write a whole number from {LEAST} to {MOST}.");
                Err(field.bad_value("is out of bounds", &help))
            }
        }
    }
}

impl Read for DaemonTool {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let mut section = field.section(notes)?;
        let name: Option<String> = section.value("name")?;
        let description = section.or("description", String::new())?;
        let command: Vec<String> = section.or("command", Vec::new())?;
        let parameters = section.value::<SchemaSetting>("parameters")?;
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

/// A JSON Schema: as text, since hosted APIs show schemas as JSON, or as a table.
pub(crate) struct SchemaSetting(pub(crate) Value);

impl Read for SchemaSetting {
    fn read(field: &Field<'_>, _: &mut Notes) -> Result<Self, ConfigError> {
        let text = match &field.node.value {
            tree::Value::String(text) => text,
            tree::Value::Table(_) => {
                return json_tree::to_json(field.node).map(Self).ok_or_else(|| {
                    field.bad_value("has a date or a number that is not finite", EXAMPLE)
                });
            }
            _ => return Err(field.wrong_type("a JSON schema", EXAMPLE)),
        };
        match serde_json::from_str(text) {
            Ok(value @ Value::Object(_)) => Ok(Self(value)),
            Ok(_) => Err(field.bad_value("is not a JSON object", EXAMPLE)),
            Err(error) => Err(field.bad_value(&format!("is not JSON ({error})"), EXAMPLE)),
        }
    }
}

const EXAMPLE: &str =
    "Write a JSON schema in quotes, such as '{\"type\": \"object\"}', or as a table.";
