//! The local daemon: what it serves with, and the tools that it runs itself.

use serde_json::Value;

use crate::error::ConfigError;
use crate::section::{Field, Notes, Read};

/// `[daemon]`: the local daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Daemon {
    /// A port of the loopback that it listens on as well; 0 takes a free one.
    pub tcp: Option<u16>,
    /// Seconds without requests after which it leaves; 0 never does.
    pub idle_timeout: Option<u64>,
    /// Answers that are made at once.
    pub sessions: Option<u16>,
    /// Tokens that a request and its answer can have together.
    pub context: Option<u32>,
    /// Threads that compute.
    pub threads: Option<u16>,
    /// Whether it counts, and shows that at `/metrics`.
    pub metrics: bool,
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

/// The most answers at once.
pub const SESSIONS_MAX: u64 = 256;
/// The most threads.
pub const THREADS_MAX: u64 = 1024;
/// The smallest context.
pub const CONTEXT_MIN: u64 = 64;

/// A whole number within bounds.
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
