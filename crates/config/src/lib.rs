//! Turns configuration text into values: `config.toml` layers and `-c` overrides.
//!
//! Text goes in, and a typed value or an error with its location comes out. This crate opens no file, reads no
//! environment and expands no path: the caller finds the layers, orders them and resolves what they
//! name.
//!
//! ```text
//! layers ──┐
//! profile ─┼─▶ one tree that remembers where each value was written ──▶ Config + warnings
//! overrides┘
//! ```

mod approval;
mod choice;
mod daemon;
mod error;
mod limits;
mod load;
mod model;
mod overrides;
mod position;
mod project;
mod provider;
mod sandbox;
mod schema;
mod section;
mod settings;
mod shell_environment;
mod strict_json;
mod tools;
mod tree;
mod unknown;

pub use approval::{ApprovalPolicy, GranularApproval};
pub use daemon::{CONTEXT_MIN, Daemon, DaemonTool, SESSIONS_MAX, THREADS_MAX};
pub use error::{ConfigError, OverrideError, Warning};
pub use limits::TurnLimits;
pub use load::{Layer, LoadedConfig};
pub use model::{ReasoningEffort, ReasoningSummary, Verbosity, WebSearch};
pub use overrides::Override;
pub use position::{Place, Position, position};
pub use project::{Project, TrustLevel};
pub use provider::{
    Provider, REQUEST_RETRIES_DEFAULT, REQUEST_RETRIES_MAX, STREAM_IDLE_TIMEOUT_MS_DEFAULT,
    STREAM_RETRIES_DEFAULT, STREAM_RETRIES_MAX, WireApi,
};
pub use sandbox::{CommandLimits, SandboxMode, WorkspaceWrite};
pub use schema::{SCHEMA_BYTES_MAX, Schema, SchemaError, VIOLATIONS_MAX, Violation, Violations};
pub use settings::{ACCEPTED, Config, PROJECT_DOC_BYTES_DEFAULT, UNSUPPORTED};
pub use shell_environment::{Inherit, ShellEnvironment};
pub use tools::Tools;
pub use unknown::{UnknownKey, nearest_name};
