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
pub(crate) mod goal;
mod handshake;
mod model;
mod open;
mod past;
mod process;
pub(crate) mod queue;
mod review;
mod search;
mod terminals;
mod thread;
mod turn;

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::hub::Hub;
use crate::message::{RequestId, RpcError, answer, refusal};
use crate::notification::Notification;
use crate::occurrences::Occurrence;
use crate::peer::{Message, Peer};
use crate::queue::Queued;
use crate::request::{self, Nothing};
use crate::response::{self, Done, Refused};
use crate::{page, wire};

pub struct Method {
    pub name: &'static str,
    pub stability: Stability,
    pub params: Shape,
    pub result: Shape,
    handle: Handle,
}

/// The type of a method's parameters or result.
pub struct Shape {
    /// Its name in the reference; [`NO_PARAMS`] for methods without parameters.
    pub name: &'static str,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
}

/// The name that stands for missing parameters.
pub const NO_PARAMS: &str = "NoParams";

/// Which clients may use a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    Stable,
    /// Only for clients that have opted in to the experimental API.
    Experimental,
}

type Handle = fn(Call, Option<Box<RawValue>>, bool) -> Handling;
type Handling = Pin<Box<dyn Future<Output = Result<Answered, RpcError>> + Send>>;

// A row: the method, the name and type of its parameters, its handler, and the name and type of its result.
macro_rules! methods {
    ($($name:literal $stability:ident $asked:ident($params:ty)
        => $handler:path => $told:ident($result:ty),)*) => {
        /// All methods of this build, sorted by name.
        pub const METHODS: &[Method] = &[$(Method {
            name: $name,
            stability: Stability::$stability,
            params: Shape {
                name: stringify!($asked),
                schema: <$params as JsonSchema>::json_schema,
            },
            result: Shape {
                name: stringify!($told),
                schema: <$result as JsonSchema>::json_schema,
            },
            handle: |call, params, experimental| Box::pin(async move {
                let params: $params =
                    request::read_params($name, params.as_deref(), experimental)?;
                let answered: Answered<$result> = $handler(call, params).await?;
                Ok(answered.done())
            }),
        }),*];
    };
}

methods! {
    "account/login/start" Stable LoginAccountParams(request::LoginStart)
        => account::login => LoginAccountResponse(Refused),
    "account/logout" Stable NoParams(Nothing)
        => account::logout => LogoutAccountResponse(Done),
    "account/rateLimits/read" Stable NoParams(Nothing)
        => account::rate_limits => GetAccountRateLimitsResponse(Refused),
    "account/read" Stable GetAccountParams(request::ReadAccount)
        => account::read => GetAccountResponse(response::WhoPays),
    "account/usage/read" Stable NoParams(Nothing)
        => account::usage => GetAccountTokenUsageResponse(Refused),
    "collaborationMode/list" Experimental CollaborationModeListParams(Nothing)
        => about::collaboration_modes => CollaborationModeListResponse(response::Data<response::CollaborationMode>),
    "command/exec" Stable CommandExecParams(request::CommandExec)
        => command::exec => CommandExecResponse(response::Ended),
    "command/exec/resize" Stable CommandExecResizeParams(request::CommandResize)
        => command::resize => CommandExecResizeResponse(Done),
    "command/exec/terminate" Stable CommandExecTerminateParams(request::OfCommand)
        => command::terminate => CommandExecTerminateResponse(Done),
    "command/exec/write" Stable CommandExecWriteParams(request::CommandWrite)
        => command::write => CommandExecWriteResponse(Done),
    "config/batchWrite" Stable ConfigBatchWriteParams(request::ConfigBatchWrite)
        => config::write_batch => ConfigWriteResponse(config::WriteResult),
    "config/mcpServer/reload" Stable NoParams(Nothing)
        => extension::reload_mcp => McpServerRefreshResponse(Done),
    "config/read" Stable ConfigReadParams(request::ConfigRead)
        => config::read => ConfigReadResponse(config::ReadResult),
    "config/value/write" Stable ConfigValueWriteParams(request::ConfigValueWrite)
        => config::write_value => ConfigWriteResponse(config::WriteResult),
    "configRequirements/read" Stable NoParams(Nothing)
        => about::requirements => ConfigRequirementsReadResponse(response::Requirements),
    "experimentalFeature/enablement/set" Stable ExperimentalFeatureEnablementSetParams(request::FeatureEnablement)
        => extension::enable_features => ExperimentalFeatureEnablementSetResponse(response::Enabled),
    "experimentalFeature/list" Stable ExperimentalFeatureListParams(request::FeatureList)
        => extension::features => ExperimentalFeatureListResponse(response::Listed<response::NoEntry>),
    "fs/copy" Stable FsCopyParams(request::Copy)
        => fs::copy => FsCopyResponse(Done),
    "fs/createDirectory" Stable FsCreateDirectoryParams(request::CreateDirectory)
        => fs::make_directory => FsCreateDirectoryResponse(Done),
    "fs/getMetadata" Stable FsGetMetadataParams(request::OfPath)
        => fs::metadata => FsGetMetadataResponse(response::FileMetadata),
    "fs/readDirectory" Stable FsReadDirectoryParams(request::OfPath)
        => fs::read_directory => FsReadDirectoryResponse(response::Entries),
    "fs/readFile" Stable FsReadFileParams(request::OfPath)
        => fs::read_file => FsReadFileResponse(response::FileContent),
    "fs/remove" Stable FsRemoveParams(request::Remove)
        => fs::remove => FsRemoveResponse(Done),
    "fs/unwatch" Stable FsUnwatchParams(request::Unwatch)
        => fs::unwatch => FsUnwatchResponse(Done),
    "fs/watch" Stable FsWatchParams(request::Watch)
        => fs::watch => FsWatchResponse(response::Watched),
    "fs/writeFile" Stable FsWriteFileParams(request::WriteFile)
        => fs::write_file => FsWriteFileResponse(Done),
    "fuzzyFileSearch" Stable FuzzyFileSearchParams(request::FileSearch)
        => search::once => FuzzyFileSearchResponse(response::FoundFiles),
    "fuzzyFileSearch/sessionStart" Experimental FuzzyFileSearchSessionStartParams(request::SearchStart)
        => search::start => FuzzyFileSearchSessionStartResponse(Done),
    "fuzzyFileSearch/sessionStop" Experimental FuzzyFileSearchSessionStopParams(request::OfSearch)
        => search::stop => FuzzyFileSearchSessionStopResponse(Done),
    "fuzzyFileSearch/sessionUpdate" Experimental FuzzyFileSearchSessionUpdateParams(request::SearchUpdate)
        => search::update => FuzzyFileSearchSessionUpdateResponse(Done),
    "hooks/list" Stable HooksListParams(request::HooksList)
        => about::hooks => HooksListResponse(response::Data<response::Hooks>),
    "initialize" Stable InitializeParams(request::Initialize)
        => handshake::initialize => InitializeResponse(response::Initialized),
    "mcpServer/resource/read" Stable McpResourceReadParams(request::ResourceRead)
        => extension::read_resource => McpResourceReadResponse(Refused),
    "mcpServer/tool/call" Stable McpServerToolCallParams(request::ToolCall)
        => extension::call_tool => McpServerToolCallResponse(Refused),
    "mcpServerStatus/list" Stable ListMcpServerStatusParams(request::PageOf)
        => extension::mcp_servers => ListMcpServerStatusResponse(response::Listed<response::NoEntry>),
    "model/list" Stable ModelListParams(request::ModelList)
        => model::list => ModelListResponse(response::Listed<response::Model>),
    "modelProvider/capabilities/read" Stable ModelProviderCapabilitiesReadParams(Nothing)
        => model::capabilities => ModelProviderCapabilitiesReadResponse(response::ProviderCapabilities),
    "permissionProfile/list" Stable PermissionProfileListParams(request::ProfileList)
        => about::permission_profiles => PermissionProfileListResponse(response::Listed<response::PermissionProfile>),
    "process/kill" Experimental ProcessKillParams(request::OfProcess)
        => process::kill => ProcessKillResponse(Done),
    "process/resizePty" Experimental ProcessResizePtyParams(request::ProcessResize)
        => process::resize => ProcessResizePtyResponse(Done),
    "process/spawn" Experimental ProcessSpawnParams(request::ProcessSpawn)
        => process::spawn => ProcessSpawnResponse(Done),
    "process/writeStdin" Experimental ProcessWriteStdinParams(request::ProcessWrite)
        => process::write => ProcessWriteStdinResponse(Done),
    "review/start" Stable ReviewStartParams(request::ReviewStart)
        => review::start => ReviewStartResponse(response::ReviewStarted),
    "server/diagnostics" Experimental ServerDiagnosticsParams(Nothing)
        => about::diagnostics => ServerDiagnosticsResponse(response::Diagnostics),
    "skills/config/write" Stable SkillsConfigWriteParams(request::SkillSwitch)
        => extension::switch => SkillsConfigWriteResponse(response::SkillSwitched),
    "skills/extraRoots/set" Stable SkillsExtraRootsSetParams(request::ExtraRoots)
        => extension::extra_roots => SkillsExtraRootsSetResponse(Done),
    "skills/list" Stable SkillsListParams(request::SkillsList)
        => about::skills => SkillsListResponse(response::Data<response::Skills>),
    "thread/archive" Stable ThreadArchiveParams(request::OfThread)
        => thread::archive => ThreadArchiveResponse(Done),
    "thread/backgroundTerminals/clean" Experimental ThreadBackgroundTerminalsCleanParams(request::OfThread)
        => terminals::clean => ThreadBackgroundTerminalsCleanResponse(Done),
    "thread/backgroundTerminals/list" Experimental ThreadBackgroundTerminalsListParams(request::PageOfThread)
        => terminals::list => ThreadBackgroundTerminalsListResponse(response::Listed<response::Terminal>),
    "thread/backgroundTerminals/terminate" Experimental ThreadBackgroundTerminalsTerminateParams(request::Terminate)
        => terminals::terminate => ThreadBackgroundTerminalsTerminateResponse(response::Terminated),
    "thread/compact/start" Stable ThreadCompactStartParams(request::OfThread)
        => turn::compact => ThreadCompactStartResponse(Done),
    "thread/delete" Stable ThreadDeleteParams(request::OfThread)
        => thread::delete => ThreadDeleteResponse(Done),
    "thread/events" Experimental ThreadEventsParams(request::ThreadEvents)
        => thread::events => ThreadEventsResponse(response::Events),
    "thread/fork" Stable ThreadForkParams(request::Fork)
        => open::fork => ThreadForkResponse(response::Opened),
    "thread/goal/clear" Stable ThreadGoalClearParams(request::OfThread)
        => goal::clear => ThreadGoalClearResponse(response::Cleared),
    "thread/goal/get" Stable ThreadGoalGetParams(request::OfThread)
        => goal::get => ThreadGoalGetResponse(response::MaybeGoal),
    "thread/goal/set" Stable ThreadGoalSetParams(request::GoalSet)
        => goal::set => ThreadGoalSetResponse(response::OneGoal),
    "thread/inject_items" Stable ThreadInjectItemsParams(request::InjectItems)
        => thread::inject_items => ThreadInjectItemsResponse(Done),
    "thread/items/list" Stable ThreadItemsListParams(request::ItemsList)
        => past::items => ThreadItemsListResponse(page::Page<page::ItemEntry>),
    "thread/items/read" Experimental ThreadItemsReadParams(request::ItemsRead)
        => past::read_items => ThreadItemsReadResponse(response::Data<page::ItemEntry>),
    "thread/list" Stable ThreadListParams(request::ThreadList)
        => past::list => ThreadListResponse(response::Threads),
    "thread/loaded/list" Stable ThreadLoadedListParams(request::PageOf)
        => thread::loaded_list => ThreadLoadedListResponse(response::Listed<String>),
    "thread/metadata/update" Stable ThreadMetadataUpdateParams(request::MetadataUpdate)
        => thread::update_metadata => ThreadMetadataUpdateResponse(response::OneThread),
    "thread/name/set" Stable ThreadSetNameParams(request::SetName)
        => thread::set_name => ThreadSetNameResponse(Done),
    "thread/queue/add" Experimental ThreadQueueAddParams(request::QueueAdd)
        => queue::add => ThreadQueueAddResponse(response::OneQueued),
    "thread/queue/delete" Experimental ThreadQueueDeleteParams(request::QueueDelete)
        => queue::delete => ThreadQueueDeleteResponse(response::Deleted),
    "thread/queue/list" Experimental ThreadQueueListParams(request::PageOfThread)
        => queue::list => ThreadQueueListResponse(response::Listed<Queued>),
    "thread/queue/reorder" Experimental ThreadQueueReorderParams(request::QueueReorder)
        => queue::reorder => ThreadQueueReorderResponse(Done),
    "thread/queue/start" Experimental ThreadQueueStartParams(request::QueueStart)
        => queue::start => ThreadQueueStartResponse(response::OneTurn),
    "thread/queue/update" Experimental ThreadQueueUpdateParams(request::QueueUpdate)
        => queue::update => ThreadQueueUpdateResponse(response::OneQueued),
    "thread/read" Stable ThreadReadParams(request::ThreadRead)
        => past::read => ThreadReadResponse(response::OneThread),
    "thread/resume" Stable ThreadResumeParams(request::Resume)
        => open::resume => ThreadResumeResponse(response::Opened),
    "thread/revert" Stable ThreadRevertParams(request::Revert)
        => open::revert => ThreadRevertResponse(response::Reverted),
    "thread/search" Experimental ThreadSearchParams(request::ThreadSearch)
        => past::search => ThreadSearchResponse(response::FoundThreads),
    "thread/searchOccurrences" Experimental ThreadSearchOccurrencesParams(request::SearchOccurrences)
        => past::occurrences => ThreadSearchOccurrencesResponse(response::Listed<Occurrence>),
    "thread/settings/update" Experimental ThreadSettingsUpdateParams(request::SettingsUpdate)
        => thread::update_settings => ThreadSettingsUpdateResponse(Done),
    "thread/shellCommand" Stable ThreadShellCommandParams(request::ShellCommand)
        => turn::shell_command => ThreadShellCommandResponse(Done),
    "thread/start" Stable ThreadStartParams(request::ThreadStart)
        => open::start => ThreadStartResponse(response::Opened),
    "thread/turns/list" Stable ThreadTurnsListParams(request::TurnsList)
        => past::turns => ThreadTurnsListResponse(page::Page<wire::Turn>),
    "thread/unarchive" Stable ThreadUnarchiveParams(request::OfThread)
        => thread::unarchive => ThreadUnarchiveResponse(response::OneThread),
    "thread/unsubscribe" Stable ThreadUnsubscribeParams(request::OfThread)
        => thread::unsubscribe => ThreadUnsubscribeResponse(response::Unsubscribed),
    "turn/interrupt" Stable TurnInterruptParams(request::TurnInterrupt)
        => turn::interrupt => TurnInterruptResponse(Done),
    "turn/start" Stable TurnStartParams(request::TurnStart)
        => turn::start => TurnStartResponse(response::OneTurn),
    "turn/steer" Stable TurnSteerParams(request::TurnSteer)
        => turn::steer => TurnSteerResponse(response::Steered),
}

/// A request that is being handled.
pub(crate) struct Call {
    pub(crate) hub: Hub,
    pub(crate) peer: Arc<Peer>,
    pub(crate) id: RequestId,
}

/// Proof that a request was answered with a `T`: a handler cannot return `Ok` without it.
pub(crate) struct Answered<T = Done>(PhantomData<fn() -> T>);

impl<T> Answered<T> {
    fn done(self) -> Answered {
        Answered(PhantomData)
    }
}

impl Call {
    /// Sends the response to the request.
    pub(crate) fn answer<T: Serialize>(&self, result: &T) -> Answered<T> {
        self.peer.send(&Message::line(answer(&self.id, result)));
        Answered(PhantomData)
    }

    /// Sends a notification to the client that made the request.
    pub(crate) fn tell(&self, notification: Notification) {
        self.peer.send(&Message::notification(notification, heddle::now_ms()));
    }
}

/// Handles a request, and sends the error if that fails.
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
