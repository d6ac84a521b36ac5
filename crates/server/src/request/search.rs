//! Parameters of `fuzzyFileSearch`.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::message::RpcError;

/// Most directories that one search looks through.
const ROOTS_MAX: usize = 64;
/// Longest query, in bytes.
const QUERY_BYTES_MAX: usize = 1024;

/// A search for files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileSearch {
    pub query: String,
    /// The directories to look through.
    pub roots: Vec<String>,
    /// A search of the same token ends.
    #[serde(default)]
    pub cancellation_token: Option<String>,
}

/// A search whose query changes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchStart {
    /// The client's name for it.
    pub session_id: String,
    /// The directories to look through.
    pub roots: Vec<String>,
}

/// Another query of a search.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchUpdate {
    pub session_id: String,
    pub query: String,
}

/// A search, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfSearch {
    pub session_id: String,
}

/// Refuses more directories than are looked through.
pub fn check_roots(roots: &[String]) -> Result<(), RpcError> {
    if roots.len() > ROOTS_MAX {
        return Err(RpcError::invalid(format!(
            "roots: at most {ROOTS_MAX} directories are searched at once; give fewer"
        )));
    }
    Ok(())
}

/// Refuses a query that nobody types.
pub fn check_query(query: &str) -> Result<(), RpcError> {
    if query.len() > QUERY_BYTES_MAX {
        return Err(RpcError::invalid(format!(
            "query: it has at most {QUERY_BYTES_MAX} bytes; make it shorter"
        )));
    }
    Ok(())
}
