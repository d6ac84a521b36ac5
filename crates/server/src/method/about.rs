//! What the server can say of itself and its surroundings. Much of it is empty in this build, and clients ask all the same.

use serde_json::json;

use super::{Answered, Call};
use crate::message::RpcError;
use crate::request::{Directories, Nothing, PageOf};

/// Who pays for answers: whoever owns the key in the environment, or nobody.
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

/// The variables with the key of the provider that is used unless the settings name another.
const KEYS: [&str; 2] = ["OPENAI_API_KEY", "CODEX_API_KEY"];

pub(super) async fn skills(call: Call, of: Directories) -> Result<Answered, RpcError> {
    let entry = |cwd: &String| json!({"cwd": cwd, "skills": [], "errors": []});
    Ok(call.answer(&json!({"data": directories(&call, of).iter().map(entry).collect::<Vec<_>>()})))
}

pub(super) async fn hooks(call: Call, of: Directories) -> Result<Answered, RpcError> {
    let entry = |cwd: &String| json!({"cwd": cwd, "hooks": [], "warnings": [], "errors": []});
    Ok(call.answer(&json!({"data": directories(&call, of).iter().map(entry).collect::<Vec<_>>()})))
}

/// Returns the directories that a client asks about: that of the server if it names none.
fn directories(call: &Call, of: Directories) -> Vec<String> {
    let named = of.cwds.filter(|cwds| !cwds.is_empty());
    named.unwrap_or_else(|| vec![call.hub.heddle().directory().display().to_string()])
}

pub(super) async fn mcp_servers(call: Call, _: PageOf) -> Result<Answered, RpcError> {
    Ok(call.answer(&json!({"data": [], "nextCursor": null})))
}

/// What an administrator demands of the settings.
pub(super) async fn requirements(call: Call, _: Nothing) -> Result<Answered, RpcError> {
    let supports = false;
    Ok(call.answer(&json!({"supportsIndependentSpeedModes": supports, "requirements": null})))
}
