//! Turns configuration text into values: `config.toml` layers and `-c` overrides; and changes such text.
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
mod edit;
mod error;
mod json_tree;
mod limits;
mod load;
mod model;
mod overrides;
mod position;
mod project;
mod provider;
mod sandbox;
mod schema;
mod schema_effort;
mod schema_exact;
mod section;
mod settings;
mod shell_environment;
mod skill;
mod strict_form;
mod strict_json;
mod tool;
mod tool_manifest;
mod tools;
mod tree;
mod unknown;
mod view;

pub use approval::{ApprovalPolicy, GranularApproval};
pub use daemon::{CONTEXT_MIN, Daemon, DaemonTool, SESSIONS_MAX, THREADS_MAX};
pub use edit::{Edit, EditError, KEY_PARTS_MAX, KeyPath, Merge, apply};
pub use error::{ConfigError, OverrideError, Warning};
pub use limits::{OUTPUT_RETRIES_MAX, TurnLimits};
pub use load::{Layer, LoadedConfig};
pub use model::{ReasoningEffort, ReasoningSummary, Verbosity, WebSearch};
pub use overrides::Override;
pub use position::{Place, Position, position};
pub use project::{Project, TrustLevel};
pub use provider::{
    AttachmentKind, Provider, REQUEST_RETRIES_DEFAULT, REQUEST_RETRIES_MAX,
    STREAM_IDLE_TIMEOUT_MS_DEFAULT, STREAM_RETRIES_DEFAULT, STREAM_RETRIES_MAX, WireApi,
};
pub use sandbox::{CommandLimits, SandboxMode, WorkspaceWrite};
pub use schema::{SCHEMA_BYTES_MAX, Schema, SchemaError, VIOLATIONS_MAX, Violation, Violations};
pub use settings::{ACCEPTED, Config, PROJECT_DOC_BYTES_DEFAULT, UNSUPPORTED};
pub use shell_environment::{Inherit, ShellEnvironment};
pub use skill::{Skill, switch_skill};
pub use strict_form::{NotStrict, Optional, StrictForm, UNSUPPORTED_MAX, Unsupported, strict_form};
pub use tool::{
    TOOL_DESCRIPTION_BYTES_MAX, TOOL_NAME_BYTES_MAX, TOOL_SCHEMA_BYTES_MAX, TOOL_SCHEMA_DEPTH_MAX,
    ToolProblem, check_tool_description, check_tool_name, check_tool_parameters,
};
pub use tool_manifest::{ManifestFormat, TOOLS_MAX, ToolManifest};
pub use tools::Tools;
pub use unknown::{UnknownKey, nearest_name};
pub use view::{LayerView, Overriding, View};
