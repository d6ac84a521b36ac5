//! Parameters of extensions: features, skills, MCP servers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use protocol::id::ThreadId;
use schemars::JsonSchema;
use serde::de;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{PageOf, optional_thread_id, thread_id};

/// Which features to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FeatureList {
    #[serde(flatten)]
    pub page: PageOf,
    /// The thread whose features are listed.
    #[serde(deserialize_with = "optional_thread_id")]
    #[schemars(with = "Option<String>")]
    pub thread_id: Option<ThreadId>,
}

/// Which features to switch on and off.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct FeatureEnablement {
    pub enablement: BTreeMap<String, bool>,
}

/// Where else to look for skills.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtraRoots {
    #[serde(deserialize_with = "absolute_paths")]
    pub extra_roots: Vec<PathBuf>,
}

/// Which skill to switch on or off.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct SkillSwitch {
    pub enabled: bool,
    /// Every skill of this name.
    #[serde(default)]
    pub name: Option<String>,
    /// The skill in this file.
    #[serde(default, deserialize_with = "optional_absolute_path")]
    pub path: Option<PathBuf>,
}

/// Which resource of an MCP server to read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRead {
    pub server: String,
    pub uri: String,
    /// The thread whose servers are used.
    #[serde(default, deserialize_with = "optional_thread_id")]
    #[schemars(with = "Option<String>")]
    pub thread_id: Option<ThreadId>,
}

/// Which tool of an MCP server to call.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub server: String,
    pub tool: String,
    #[serde(default)]
    pub arguments: Value,
}

fn absolute_paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    let paths = Vec::<PathBuf>::deserialize(deserializer)?;
    paths.iter().try_for_each(|path| is_absolute(path)).map(|()| paths)
}

fn optional_absolute_path<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<PathBuf>, D::Error> {
    let path = Option::<PathBuf>::deserialize(deserializer)?;
    path.iter().try_for_each(|path| is_absolute(path)).map(|()| path)
}

fn is_absolute<E: de::Error>(path: &std::path::Path) -> Result<(), E> {
    if path.is_absolute() {
        return Ok(());
    }
    // A path from a client has no bound.
    let shown: String = path.display().to_string().chars().take(PATH_CHARS_SHOWN).collect();
    Err(E::custom(format!("`{shown}` is a relative path: give an absolute one")))
}

const PATH_CHARS_SHOWN: usize = 200;
