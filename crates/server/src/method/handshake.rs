//! `initialize`: a client introduces itself.

use super::{Answered, Call};
use crate::message::RpcError;
use crate::peer::Client;
use crate::request::Initialize;
use crate::response::Initialized;

/// Longest name and longest version of a client, in bytes, because both are sent in headers.
const CLIENT_BYTES_MAX: usize = 256;

/// The version of the reference whose protocol this server speaks. Clients choose the features that they use by it.
const PROTOCOL_VERSION: &str = "0.166.0";

pub(super) async fn initialize(
    call: Call,
    who: Initialize,
) -> Result<Answered<Initialized>, RpcError> {
    let Initialize { client_info, capabilities } = who;
    let plain = |text: &str| {
        text.len() <= CLIENT_BYTES_MAX && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
    };
    let (name, version) = (client_info.name, client_info.version);
    if name.trim().is_empty() || !plain(&name) || !plain(&version) {
        return Err(RpcError::invalid(format!(
            "clientInfo: the name and the version are sent in headers, so each may have at most \
             {CLIENT_BYTES_MAX} printable ASCII characters, and the name must not be empty"
        )));
    }
    let capabilities = capabilities.unwrap_or_default();
    let client = Client {
        name: name.clone(),
        experimental: capabilities.experimental_api,
        opted_out: capabilities
            .opt_out_notification_methods
            .unwrap_or_default()
            .into_iter()
            .collect(),
    };
    if !call.peer.introduce(client) {
        return Err(RpcError::invalid("Already initialized"));
    }
    let originator = call.hub.originator(&name);
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let ours = env!("CARGO_PKG_VERSION");
    Ok(call.answer(&Initialized {
        user_agent: format!(
            "{originator}/{PROTOCOL_VERSION} ({os}; {arch}) heddle/{ours} ({name}; {version})"
        ),
        codex_home: call.hub.heddle().home().display().to_string(),
        platform_family: if cfg!(windows) { "windows" } else { "unix" },
        platform_os: os,
    }))
}
