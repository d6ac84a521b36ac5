//! Parameters of reading and changing the configuration.

use std::path::PathBuf;

use heddle::session::config_file::Merge;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// What of the configuration to read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigRead {
    /// Whether to return each layer by itself, too.
    pub include_layers: bool,
    /// A directory whose configuration is meant. Directories have none in this build.
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

/// Several changes, of which all are made or none.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigBatchWrite {
    pub edits: Vec<ConfigEdit>,
    #[serde(flatten)]
    pub conditions: WriteConditions,
    /// Whether loaded threads get the new settings, too.
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

/// Under which conditions a change is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WriteConditions {
    /// The version that the file must have.
    pub expected_version: Option<String>,
    /// The file that the client means.
    pub file_path: Option<PathBuf>,
}

/// What becomes of the keys that a table has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MergeStrategy {
    /// Those that the new value does not have are removed.
    Replace,
    /// They stay.
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
