//! Parameters of what is said when the turn of a thread ends.

use protocol::id::ThreadId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{UserInput, thread_id};

/// What to say when the thread is idle, after all that is queued already.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueAdd {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub input: Vec<UserInput>,
    /// The client's id for the message.
    pub client_user_message_id: String,
}

/// What to say instead of what was queued.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueUpdate {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub queued_submission_id: String,
    pub input: Vec<UserInput>,
}

/// Something queued that shall not be said.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueDelete {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub queued_submission_id: String,
}

/// The order in which all that is queued shall be said.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueReorder {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub queued_submission_ids: Vec<String>,
}

/// What of the queue to say now.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStart {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    /// The first if it is left out.
    #[serde(default)]
    pub queued_submission_id: Option<String>,
}
