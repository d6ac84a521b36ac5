//! Parameters of `fuzzyFileSearch`.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::message::RpcError;

/// Most directories per search.
const ROOTS_MAX: usize = 64;
/// Longest query, in bytes.
const QUERY_BYTES_MAX: usize = 1024;

/// A search for files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileSearch {
    pub query: String,
    pub roots: Vec<String>,
    /// An earlier search with the same token is stopped.
    #[serde(default)]
    pub cancellation_token: Option<String>,
}

/// A search with a changing query.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchStart {
    pub session_id: String,
    pub roots: Vec<String>,
}

/// The next query of a search.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchUpdate {
    pub session_id: String,
    pub query: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfSearch {
    pub session_id: String,
}

/// Refuses too many directories.
pub fn check_roots(roots: &[String]) -> Result<(), RpcError> {
    if roots.len() > ROOTS_MAX {
        return Err(RpcError::invalid(format!(
            "roots: at most {ROOTS_MAX} directories are searched at once; give fewer"
        )));
    }
    Ok(())
}

/// Refuses a query that is too long.
pub fn check_query(query: &str) -> Result<(), RpcError> {
    if query.len() > QUERY_BYTES_MAX {
        return Err(RpcError::invalid(format!(
            "query: it has at most {QUERY_BYTES_MAX} bytes; make it shorter"
        )));
    }
    Ok(())
}
