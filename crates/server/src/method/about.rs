//! The account, skills, hooks, MCP servers and requirements. Most of them are empty in this build, but clients list
//! them all the same.

use serde_json::json;

use super::{Answered, Call};
use crate::message::RpcError;
use crate::request::{Directories, Nothing, PageOf};

/// Reports an account if the environment has an API key.
pub(super) async fn account(call: Call, _: Nothing) -> Result<Answered, RpcError> {
    let has_key = |name: &str| {
        call.hub.heddle().host().env.get(name).is_some_and(|value| !value.trim().is_empty())
    };
    let account = KEYS.iter().any(|name| has_key(name)).then(|| json!({"type": "apiKey"}));
    // Keys come from the environment, so there is nothing to log in to.
    Ok(call.answer(&json!({
        "account": account,
        "requiresOpenaiAuth": false,
        "workspaceRouting": null,
    })))
}

/// The environment variables with the API key of the default provider.
const KEYS: [&str; 2] = ["OPENAI_API_KEY", "CODEX_API_KEY"];

pub(super) async fn skills(call: Call, of: Directories) -> Result<Answered, RpcError> {
    let entry = |cwd: &String| json!({"cwd": cwd, "skills": [], "errors": []});
    Ok(call.answer(&json!({"data": directories(&call, of).iter().map(entry).collect::<Vec<_>>()})))
}

pub(super) async fn hooks(call: Call, of: Directories) -> Result<Answered, RpcError> {
    let entry = |cwd: &String| json!({"cwd": cwd, "hooks": [], "warnings": [], "errors": []});
    Ok(call.answer(&json!({"data": directories(&call, of).iter().map(entry).collect::<Vec<_>>()})))
}

/// Returns the directories that a client names, or that of the server if it names none.
fn directories(call: &Call, of: Directories) -> Vec<String> {
    let named = of.cwds.filter(|cwds| !cwds.is_empty());
    named.unwrap_or_else(|| vec![call.hub.heddle().directory().display().to_string()])
}

pub(super) async fn mcp_servers(call: Call, _: PageOf) -> Result<Answered, RpcError> {
    Ok(call.answer(&json!({"data": [], "nextCursor": null})))
}

/// Reports the settings that an administrator requires: none in this build.
pub(super) async fn requirements(call: Call, _: Nothing) -> Result<Answered, RpcError> {
    let supports = false;
    Ok(call.answer(&json!({"supportsIndependentSpeedModes": supports, "requirements": null})))
}
