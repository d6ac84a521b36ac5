//! Parameters of reviews.

use protocol::id::ThreadId;
use protocol::review::ReviewTarget as Target;
use schemars::JsonSchema;
use serde::Deserialize;

use super::thread_id;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewStart {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub target: ReviewTarget,
    /// Where the review runs. There is only one choice.
    #[serde(default)]
    pub delivery: Option<ReviewDelivery>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum ReviewTarget {
    UncommittedChanges,
    /// The changes that the current branch would merge into another one.
    BaseBranch {
        branch: String,
    },
    Commit {
        sha: String,
        #[serde(default)]
        title: Option<String>,
    },
    /// Anything that the instructions describe.
    Custom {
        instructions: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ReviewDelivery {
    /// In a turn of the thread.
    Inline,
}

impl From<ReviewTarget> for Target {
    fn from(target: ReviewTarget) -> Self {
        match target {
            ReviewTarget::UncommittedChanges => Self::UncommittedChanges,
            ReviewTarget::BaseBranch { branch } => Self::BaseBranch { branch },
            ReviewTarget::Commit { sha, title } => Self::Commit { sha, title },
            ReviewTarget::Custom { instructions } => Self::Custom { instructions },
        }
    }
}
