//! The account that pays for answers. Keys come from the environment, so there is nothing to log in to and no plan to ask
//! about.

use super::{Answered, Call};
use crate::message::RpcError;
use crate::notification::Notification;
use crate::request::{LoginStart, Nothing, ReadAccount};
use crate::response::{Account, Done, Refused, WhoPays};

/// Environment variables that can hold the key of the default provider.
const KEYS: [&str; 2] = ["OPENAI_API_KEY", "CODEX_API_KEY"];

/// Returns the owner of the key in the environment, if there is one.
pub(super) async fn read(call: Call, _: ReadAccount) -> Result<Answered<WhoPays>, RpcError> {
    let account = key(&call).map(|_| Account::ApiKey {});
    Ok(call.answer(&WhoPays { account, requires_openai_auth: false, workspace_routing: () }))
}

/// Returns the variable that holds a key.
fn key(call: &Call) -> Option<&'static str> {
    let env = &call.hub.heddle().host().env;
    KEYS.into_iter().find(|name| env.get(*name).is_some_and(|value| !value.trim().is_empty()))
}

pub(super) async fn rate_limits(_: Call, _: Nothing) -> Result<Answered<Refused>, RpcError> {
    Err(RpcError::invalid(
        "chatgpt authentication required to read rate limits: this build uses API keys only, and the provider \
         reports a limit when it is reached",
    ))
}

pub(super) async fn usage(_: Call, _: Nothing) -> Result<Answered<Refused>, RpcError> {
    Err(RpcError::invalid(
        "chatgpt authentication required to read token usage: this build uses API keys only; \
         thread/tokenUsage/updated reports the usage of a thread",
    ))
}

/// Logs out. A key in the environment cannot be removed from here, so the error says what to do.
pub(super) async fn logout(call: Call, _: Nothing) -> Result<Answered, RpcError> {
    if let Some(name) = key(&call) {
        return Err(RpcError::invalid(format!(
            "the key is in the server's environment: remove {name} there, and restart the server"
        )));
    }
    call.hub.tell_all(Notification::AccountUpdated { auth_mode: None, plan_type: None });
    Ok(call.answer(&Done {}))
}

pub(super) async fn login(_: Call, _: LoginStart) -> Result<Answered<Refused>, RpcError> {
    Err(RpcError::invalid(
        "there is nothing to log in to: set OPENAI_API_KEY, or the variable that `env_key` of the provider names, \
         in the environment of the server, and start the server again",
    ))
}
