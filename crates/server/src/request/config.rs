//! Parameters of reading and changing the configuration.

use std::path::PathBuf;

use heddle::session::config_file::Merge;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Parameters of reading the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigRead {
    /// Whether to return each layer by itself as well.
    pub include_layers: bool,
    /// The directory whose configuration is read. Directories have none in this build.
    pub cwd: Option<String>,
}

/// A change of one setting.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigValueWrite {
    #[serde(flatten)]
    pub edit: ConfigEdit,
    #[serde(flatten)]
    pub conditions: WriteConditions,
}

/// Several changes, made all together or not at all.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigBatchWrite {
    pub edits: Vec<ConfigEdit>,
    #[serde(flatten)]
    pub conditions: WriteConditions,
    /// Whether loaded threads get the new settings as well.
    #[serde(default)]
    pub reload_user_config: bool,
}

/// A setting and its new value.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigEdit {
    pub key_path: String,
    /// Null removes the setting.
    pub value: Value,
    pub merge_strategy: MergeStrategy,
}

/// The conditions under which a change is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WriteConditions {
    /// The version that the file must have.
    pub expected_version: Option<String>,
    /// The file to change; only the user's configuration is allowed.
    pub file_path: Option<PathBuf>,
}

/// What happens to the existing keys of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MergeStrategy {
    /// Keys that the new value does not have are removed.
    Replace,
    /// They are kept.
    Upsert,
}

impl From<MergeStrategy> for Merge {
    fn from(strategy: MergeStrategy) -> Self {
        match strategy {
            MergeStrategy::Replace => Self::Replace,
            MergeStrategy::Upsert => Self::Upsert,
        }
    }
}
