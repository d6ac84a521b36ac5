//! Parameters of the queue of a thread.

use protocol::id::ThreadId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{UserInput, thread_id};

/// Input to add at the end of the queue.
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

/// Input that replaces that of a queued entry.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueUpdate {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub queued_submission_id: String,
    pub input: Vec<UserInput>,
}

/// An entry to remove from the queue.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueDelete {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub queued_submission_id: String,
}

/// The new order of the queue, with every waiting entry.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueReorder {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    pub queued_submission_ids: Vec<String>,
}

/// The entry to start now.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStart {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    /// The first entry if it is missing.
    #[serde(default)]
    pub queued_submission_id: Option<String>,
}
