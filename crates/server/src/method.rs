//! The methods: one row and one handler each.
//!
//! A handler gets its parameters, and ends with the one answer to its request ([`Call::answer`]) or with an error. It may
//! tell clients more after it has answered.

mod about;
mod account;
mod config;
mod extension;
mod handshake;
mod model;
mod open;
mod past;
mod thread;
mod turn;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::hub::Hub;
use crate::message::{RequestId, RpcError, answer, refusal};
use crate::notification::Notification;
use crate::peer::{Message, Peer};
use crate::request::{self, Nothing};

/// A method of the protocol.
pub struct Method {
    pub name: &'static str,
    pub stability: Stability,
    handle: Handle,
}

/// Who may use a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    Stable,
    /// Clients that have asked for it.
    Experimental,
}

type Handle = fn(Call, Option<Box<RawValue>>, bool) -> Handling;
type Handling = Pin<Box<dyn Future<Output = Result<Answered, RpcError>> + Send>>;

macro_rules! methods {
    ($($name:literal $stability:ident $params:ty => $handler:path,)*) => {
        /// All methods of this build.
        pub const METHODS: &[Method] = &[$(Method {
            name: $name,
            stability: Stability::$stability,
            handle: |call, params, experimental| Box::pin(async move {
                let params: $params =
                    request::read_params($name, params.as_deref(), experimental)?;
                $handler(call, params).await
            }),
        }),*];
    };
}

methods! {
    "account/login/start" Stable request::LoginStart => account::login,
    "account/logout" Stable Nothing => account::logout,
    "account/rateLimits/read" Stable Nothing => account::rate_limits,
    "account/read" Stable Nothing => account::read,
    "account/usage/read" Stable Nothing => account::usage,
    "collaborationMode/list" Experimental Nothing => about::collaboration_modes,
    "config/batchWrite" Stable request::ConfigBatchWrite => config::write_batch,
    "config/mcpServer/reload" Stable Nothing => extension::reload_mcp,
    "config/read" Stable request::ConfigRead => config::read,
    "config/value/write" Stable request::ConfigValueWrite => config::write_value,
    "configRequirements/read" Stable Nothing => about::requirements,
    "experimentalFeature/enablement/set" Stable request::FeatureEnablement => extension::enable_features,
    "experimentalFeature/list" Stable request::FeatureList => extension::features,
    "hooks/list" Stable request::Directories => about::hooks,
    "initialize" Stable request::Initialize => handshake::initialize,
    "mcpServer/resource/read" Stable request::ResourceRead => extension::read_resource,
    "mcpServer/tool/call" Stable request::ToolCall => extension::call_tool,
    "mcpServerStatus/list" Stable request::PageOf => extension::mcp_servers,
    "model/list" Stable request::PageOf => model::list,
    "modelProvider/capabilities/read" Stable Nothing => model::capabilities,
    "permissionProfile/list" Stable request::PageOf => about::permission_profiles,
    "server/diagnostics" Experimental Nothing => about::diagnostics,
    "skills/config/write" Stable request::SkillSwitch => extension::switch,
    "skills/extraRoots/set" Stable request::ExtraRoots => extension::extra_roots,
    "skills/list" Stable request::Directories => about::skills,
    "thread/archive" Stable request::OfThread => thread::archive,
    "thread/compact/start" Stable request::OfThread => turn::compact,
    "thread/delete" Stable request::OfThread => thread::delete,
    "thread/fork" Stable request::Resume => open::fork,
    "thread/items/list" Stable request::ItemsList => past::items,
    "thread/list" Stable request::ThreadList => past::list,
    "thread/loaded/list" Stable request::PageOf => thread::loaded_list,
    "thread/name/set" Stable request::SetName => thread::set_name,
    "thread/read" Stable request::ThreadRead => past::read,
    "thread/resume" Stable request::Resume => open::resume,
    "thread/settings/update" Experimental request::SettingsUpdate => thread::update_settings,
    "thread/start" Stable request::ThreadStart => open::start,
    "thread/turns/list" Stable request::TurnsList => past::turns,
    "thread/unarchive" Stable request::OfThread => thread::unarchive,
    "thread/unsubscribe" Stable request::OfThread => thread::unsubscribe,
    "turn/interrupt" Stable request::TurnInterrupt => turn::interrupt,
    "turn/start" Stable request::TurnStart => turn::start,
    "turn/steer" Stable request::TurnSteer => turn::steer,
}

/// A request that is being handled.
pub(crate) struct Call {
    pub(crate) hub: Hub,
    pub(crate) peer: Arc<Peer>,
    pub(crate) id: RequestId,
}

/// Shows that a request was answered: a handler that ends well has one.
pub(crate) struct Answered(());

impl Call {
    /// Answers the request.
    pub(crate) fn answer(&self, result: &impl Serialize) -> Answered {
        self.peer.send(&Message::line(answer(&self.id, result)));
        Answered(())
    }

    /// Tells the client that made the request something.
    pub(crate) fn tell(&self, notification: Notification) {
        self.peer.send(&Message::notification(notification, heddle::now_ms()));
    }
}

/// Handles a request to its end.
pub(crate) async fn handle(call: Call, method: String, params: Option<Box<RawValue>>) {
    let (peer, id) = (Arc::clone(&call.peer), call.id.clone());
    let _counted = call.hub.count_request();
    if let Err(error) = dispatch(call, &method, params).await {
        peer.send(&Message::line(refusal(Some(&id), &error)));
    }
}

async fn dispatch(
    call: Call,
    name: &str,
    params: Option<Box<RawValue>>,
) -> Result<Answered, RpcError> {
    let found = METHODS.binary_search_by(|method| method.name.cmp(name));
    let method = found.map(|index| &METHODS[index]).map_err(|_| RpcError::unknown_method(name))?;
    let experimental = call.peer.client().is_some_and(|client| client.experimental);
    if method.stability == Stability::Experimental && !experimental {
        return Err(RpcError::experimental(name));
    }
    // Who the client is, is not known before.
    let experimental = experimental || call.peer.client().is_none();
    (method.handle)(call, params, experimental).await
}

#[cfg(test)]
mod tests {
    use super::METHODS;

    #[test]
    fn methods_are_sorted() {
        assert!(METHODS.is_sorted_by_key(|method| method.name));
    }
}
