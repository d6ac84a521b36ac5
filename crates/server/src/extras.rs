//! Data that the server keeps about a thread outside its log: the Git commit and branch that a client has set, the queue of
//! its clients, and its goal.
//!
//! The library stores the bytes on disk. This module defines their content; the hub reads and changes it.

use heddle::ThreadId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::goal::Goal;
use crate::hub::Hub;
use crate::message::RpcError;
use crate::queue::Queue;
use crate::request::GitChanges;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Extras {
    #[serde(skip_serializing_if = "GitChanges::is_empty")]
    pub(crate) git: GitChanges,
    #[serde(skip_serializing_if = "Queue::is_unused")]
    pub(crate) queue: Queue,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<Goal>,
    /// Fields that other versions of this program have written.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Extras {
    fn read(bytes: Option<&[u8]>, id: ThreadId) -> Result<Self, RpcError> {
        let Some(bytes) = bytes else { return Ok(Self::default()) };
        serde_json::from_slice(bytes).map_err(|error| {
            RpcError::internal(format!(
                "thread-extras/{id}.json in the home cannot be read: {error}; correct it, or move it away to go on without it"
            ))
        })
    }
}

impl Hub {
    pub(crate) async fn extras(&self, id: ThreadId) -> Result<Extras, RpcError> {
        let bytes = self.heddle().threads().extras(id).await?;
        Extras::read(bytes.as_deref(), id)
    }

    /// Changes the extras of a thread and returns the result of `change`. If that is an error, nothing is written.
    pub(crate) async fn change_extras<T: Send + 'static>(
        &self,
        id: ThreadId,
        change: impl FnOnce(&mut Extras) -> Result<T, RpcError> + Send + 'static,
    ) -> Result<T, RpcError> {
        let threads = self.heddle().threads();
        let changed = threads.change_extras(id, move |bytes| {
            let before = Extras::read(bytes.as_deref(), id)?;
            let mut extras = before.clone();
            let result = change(&mut extras)?;
            let text = || serde_json::to_vec(&extras).expect("extras are plain data");
            Ok(((extras != before).then(text), result))
        });
        changed.await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Fields of other versions survive a change, and a file that cannot be read is never overwritten.
    #[test]
    fn extras_are_read_and_written() {
        let id = "01a1e055-b282-7523-b985-c798177efe12".parse().unwrap();
        let check = |text: &str, want: Result<Value, &str>| {
            let got = Extras::read(Some(text.as_bytes()), id);
            match (got, want) {
                (Ok(extras), Ok(want)) => assert_eq!(serde_json::to_value(extras).unwrap(), want),
                (Err(error), Err(want)) => assert!(error.message.contains(want), "{error:?}"),
                (got, want) => panic!("{got:?}, and not {want:?}"),
            }
        };
        check("{}", Ok(json!({})));
        let git = json!({"git": {"sha": null, "branch": "b"}, "later": [1]});
        check(&git.to_string(), Ok(git));
        check("", Err("move it away"));
        check(r#"{"git": 5}"#, Err("thread-extras/01a1e055"));
    }
}
