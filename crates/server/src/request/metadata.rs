//! Parameters of changing the metadata of a thread.

use protocol::id::ThreadId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{given, thread_id};
use crate::message::RpcError;
use crate::wire::GitInfo;

/// Changes of the metadata of a thread. A missing field keeps its value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetadataUpdate {
    #[serde(deserialize_with = "thread_id")]
    #[schemars(with = "String")]
    pub thread_id: ThreadId,
    #[serde(default)]
    pub git_info: Option<GitChanges>,
}

/// Changes of the Git commit and branch of a thread: a string replaces the old value, null removes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "ThreadMetadataGitInfoUpdateParams")]
pub struct GitChanges {
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schemars(with = "Option<String>")]
    pub sha: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schemars(with = "Option<String>")]
    pub branch: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schemars(with = "Option<String>")]
    pub origin_url: Option<Option<String>>,
}

impl MetadataUpdate {
    /// Returns the changes with trimmed strings; fails if there are none.
    pub fn changes(&self) -> Result<GitChanges, RpcError> {
        let Some(git) = &self.git_info else {
            return Err(RpcError::invalid(
                "thread metadata update must include at least one field",
            ));
        };
        if git.is_empty() {
            return Err(RpcError::invalid("gitInfo must include at least one field"));
        }
        let mut git = git.clone();
        for (name, field) in
            [("sha", &mut git.sha), ("branch", &mut git.branch), ("originUrl", &mut git.origin_url)]
        {
            let Some(Some(text)) = field else { continue };
            *text = text.trim().to_owned();
            if text.is_empty() {
                return Err(RpcError::invalid(format!(
                    "gitInfo.{name} must not be empty; null removes it"
                )));
            }
        }
        Ok(git)
    }
}

impl GitChanges {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds later changes, which take precedence.
    pub fn add(&mut self, later: Self) {
        let Self { sha, branch, origin_url } = later;
        self.sha = sha.or(self.sha.take());
        self.branch = branch.or(self.branch.take());
        self.origin_url = origin_url.or(self.origin_url.take());
    }

    /// Returns the Git information after these changes.
    pub fn applied_to(&self, before: Option<GitInfo>) -> Option<GitInfo> {
        if self.is_empty() {
            return before;
        }
        let GitInfo { sha, branch, origin_url } = before.unwrap_or_default();
        Some(GitInfo {
            sha: self.sha.clone().unwrap_or(sha),
            branch: self.branch.clone().unwrap_or(branch),
            origin_url: self.origin_url.clone().unwrap_or(origin_url),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn changes_of_git() {
        let before = || {
            let text = |text: &str| Some(text.to_owned());
            Some(GitInfo { sha: text("s"), branch: text("b"), origin_url: None })
        };
        let check = |git: Value, want: Result<Value, &str>| {
            let id = "01a1e055-b282-7523-b985-c798177efe12";
            let update = json!({"threadId": id, "gitInfo": git});
            let update: MetadataUpdate = serde_json::from_value(update).unwrap();
            match (update.changes(), want) {
                (Ok(changes), Ok(want)) => {
                    let shown = serde_json::to_value(changes.applied_to(before())).unwrap();
                    assert_eq!(shown, want);
                }
                (Err(error), Err(want)) => assert!(error.message.starts_with(want), "{error:?}"),
                (got, want) => panic!("{got:?}, and not {want:?}"),
            }
        };
        let git = |sha: Value, branch: Value, url: Value| {
            Ok(json!({"sha": sha, "branch": branch, "originUrl": url}))
        };
        check(Value::Null, Err("thread metadata update must include at least one field"));
        check(json!({}), Err("gitInfo must include at least one field"));
        check(json!({"sha": "x", "branch": " "}), Err("gitInfo.branch must not be empty"));
        check(json!({"originUrl": ""}), Err("gitInfo.originUrl must not be empty"));
        check(json!({"branch": " x "}), git(json!("s"), json!("x"), Value::Null));
        check(json!({"sha": null, "originUrl": "u"}), git(Value::Null, json!("b"), json!("u")));
        let mut both = GitChanges { sha: Some(None), ..GitChanges::default() };
        both.add(GitChanges { branch: Some(Some("c".to_owned())), ..GitChanges::default() });
        let want = Some(GitInfo { branch: Some("c".to_owned()), ..GitInfo::default() });
        assert_eq!(both.applied_to(before()), want);
        assert_eq!(GitChanges::default().applied_to(None), None);
    }
}
