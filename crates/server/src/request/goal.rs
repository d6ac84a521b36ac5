//! Parameters of the goal of a thread.

use protocol::id::ThreadId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{given, thread_id};
use crate::goal::GoalStatus;

/// Changes of the goal of a thread. A missing field keeps its value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GoalSet {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    #[serde(default)]
    pub objective: Option<String>,
    #[serde(default)]
    pub status: Option<GoalStatus>,
    /// Most tokens that it may use; null for no limit.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<i64>")]
    pub token_budget: Option<Option<i64>>,
}
