//! The methods: one row and one handler each.
//!
//! A handler gets the parameters of its request, and ends with the one answer to it ([`Call::answer`]) or with an
//! error. It may send notifications after it has answered.

mod about;
mod account;
mod command;
mod config;
mod extension;
mod fs;
mod handshake;
mod model;
mod open;
mod past;
mod process;
mod search;
mod terminals;
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

/// A method of the protocol, and its handler.
pub struct Method {
    pub name: &'static str,
    pub stability: Stability,
    handle: Handle,
}

/// Which clients may use a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    Stable,
    /// Only clients that have opted in to the experimental API.
    Experimental,
}

type Handle = fn(Call, Option<Box<RawValue>>, bool) -> Handling;
type Handling = Pin<Box<dyn Future<Output = Result<Answered, RpcError>> + Send>>;

macro_rules! methods {
    ($($name:literal $stability:ident $params:ty => $handler:path,)*) => {
        /// All methods of this build, sorted by name.
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
    "command/exec" Stable request::CommandExec => command::exec,
    "command/exec/resize" Stable request::CommandResize => command::resize,
    "command/exec/terminate" Stable request::OfCommand => command::terminate,
    "command/exec/write" Stable request::CommandWrite => command::write,
    "config/batchWrite" Stable request::ConfigBatchWrite => config::write_batch,
    "config/mcpServer/reload" Stable Nothing => extension::reload_mcp,
    "config/read" Stable request::ConfigRead => config::read,
    "config/value/write" Stable request::ConfigValueWrite => config::write_value,
    "configRequirements/read" Stable Nothing => about::requirements,
    "experimentalFeature/enablement/set" Stable request::FeatureEnablement => extension::enable_features,
    "experimentalFeature/list" Stable request::FeatureList => extension::features,
    "fs/copy" Stable request::Copy => fs::copy,
    "fs/createDirectory" Stable request::CreateDirectory => fs::make_directory,
    "fs/getMetadata" Stable request::OfPath => fs::metadata,
    "fs/readDirectory" Stable request::OfPath => fs::read_directory,
    "fs/readFile" Stable request::OfPath => fs::read_file,
    "fs/remove" Stable request::Remove => fs::remove,
    "fs/unwatch" Stable request::Unwatch => fs::unwatch,
    "fs/watch" Stable request::Watch => fs::watch,
    "fs/writeFile" Stable request::WriteFile => fs::write_file,
    "fuzzyFileSearch" Stable request::FileSearch => search::once,
    "fuzzyFileSearch/sessionStart" Experimental request::SearchStart => search::start,
    "fuzzyFileSearch/sessionStop" Experimental request::OfSearch => search::stop,
    "fuzzyFileSearch/sessionUpdate" Experimental request::SearchUpdate => search::update,
    "hooks/list" Stable request::Directories => about::hooks,
    "initialize" Stable request::Initialize => handshake::initialize,
    "mcpServer/resource/read" Stable request::ResourceRead => extension::read_resource,
    "mcpServer/tool/call" Stable request::ToolCall => extension::call_tool,
    "mcpServerStatus/list" Stable request::PageOf => extension::mcp_servers,
    "model/list" Stable request::PageOf => model::list,
    "modelProvider/capabilities/read" Stable Nothing => model::capabilities,
    "permissionProfile/list" Stable request::PageOf => about::permission_profiles,
    "process/kill" Experimental request::OfProcess => process::kill,
    "process/resizePty" Experimental request::ProcessResize => process::resize,
    "process/spawn" Experimental request::ProcessSpawn => process::spawn,
    "process/writeStdin" Experimental request::ProcessWrite => process::write,
    "server/diagnostics" Experimental Nothing => about::diagnostics,
    "skills/config/write" Stable request::SkillSwitch => extension::switch,
    "skills/extraRoots/set" Stable request::ExtraRoots => extension::extra_roots,
    "skills/list" Stable request::Directories => about::skills,
    "thread/archive" Stable request::OfThread => thread::archive,
    "thread/backgroundTerminals/clean" Experimental request::OfThread => terminals::clean,
    "thread/backgroundTerminals/list" Experimental request::PageOfThread => terminals::list,
    "thread/backgroundTerminals/terminate" Experimental request::Terminate => terminals::terminate,
    "thread/compact/start" Stable request::OfThread => turn::compact,
    "thread/delete" Stable request::OfThread => thread::delete,
    "thread/events" Experimental request::ThreadEvents => thread::events,
    "thread/fork" Stable request::Resume => open::fork,
    "thread/inject_items" Stable request::InjectItems => thread::inject_items,
    "thread/items/list" Stable request::ItemsList => past::items,
    "thread/items/read" Experimental request::ItemsRead => past::read_items,
    "thread/list" Stable request::ThreadList => past::list,
    "thread/loaded/list" Stable request::PageOf => thread::loaded_list,
    "thread/name/set" Stable request::SetName => thread::set_name,
    "thread/read" Stable request::ThreadRead => past::read,
    "thread/resume" Stable request::Resume => open::resume,
    "thread/revert" Stable request::Revert => open::revert,
    "thread/search" Experimental request::ThreadSearch => past::search,
    "thread/searchOccurrences" Experimental request::SearchOccurrences => past::occurrences,
    "thread/settings/update" Experimental request::SettingsUpdate => thread::update_settings,
    "thread/shellCommand" Stable request::ShellCommand => turn::shell_command,
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

/// Proof that a request was answered: a handler cannot succeed without one.
pub(crate) struct Answered(());

impl Call {
    /// Sends the response to the request.
    pub(crate) fn answer(&self, result: &impl Serialize) -> Answered {
        self.peer.send(&Message::line(answer(&self.id, result)));
        Answered(())
    }

    /// Sends a notification to the client that made the request.
    pub(crate) fn tell(&self, notification: Notification) {
        self.peer.send(&Message::notification(notification, heddle::now_ms()));
    }
}

/// Handles a request; if that fails, sends the error.
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
    // Before `initialize`, the capabilities of the client are not known.
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
