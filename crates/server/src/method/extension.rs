//! What extends the agent: features, skills, MCP servers. There are none in this build, and clients ask all the same.

use std::collections::BTreeMap;

use heddle::session::config_file::{Conditions, Skill, switch_skill};

use super::model::page_of;
use super::{Answered, Call, config};
use crate::message::RpcError;
use crate::notification::Notification;
use crate::request::{
    ExtraRoots, FeatureEnablement, FeatureList, Nothing, PageOf, ResourceRead, SkillSwitch,
    ToolCall,
};
use crate::response::{Done, Enabled, Listed, NoEntry, Refused, SkillSwitched};

/// Lists features that can be switched on before they are finished.
pub(super) async fn features(
    call: Call,
    list: FeatureList,
) -> Result<Answered<Listed<NoEntry>>, RpcError> {
    if let Some(thread) = list.thread_id {
        call.hub.loaded(thread)?;
    }
    empty_page(&call, &list.page)
}

/// Switches features, and returns those that there are.
pub(super) async fn enable_features(
    call: Call,
    _: FeatureEnablement,
) -> Result<Answered<Enabled>, RpcError> {
    Ok(call.answer(&Enabled { enablement: BTreeMap::new() }))
}

pub(super) async fn mcp_servers(
    call: Call,
    page: PageOf,
) -> Result<Answered<Listed<NoEntry>>, RpcError> {
    empty_page(&call, &page)
}

fn empty_page(call: &Call, page: &PageOf) -> Result<Answered<Listed<NoEntry>>, RpcError> {
    let (data, next_cursor) = page_of(Vec::new(), page)?;
    Ok(call.answer(&Listed { data, next_cursor }))
}

/// Says where else skills are. Clients ask for the list again when they are told that it has changed.
pub(super) async fn extra_roots(call: Call, _: ExtraRoots) -> Result<Answered, RpcError> {
    call.hub.tell_all(Notification::SkillsChanged {});
    Ok(call.answer(&Done {}))
}

/// Switches a skill on or off in the configuration.
pub(super) async fn switch(
    call: Call,
    switch: SkillSwitch,
) -> Result<Answered<SkillSwitched>, RpcError> {
    let SkillSwitch { enabled, name, path } = switch;
    let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    let path = path.map(|path| path.display().to_string());
    let skill = match (name, path) {
        (Some(name), None) => Skill::Name(name),
        (None, Some(path)) => Skill::Path(path),
        _ => {
            return Err(RpcError::invalid_params(
                "skills/config/write requires exactly one of path or name",
            ));
        }
    };
    let edit = move |config: &_| Ok(vec![switch_skill(config, &skill, enabled)?]);
    config::write(&call.hub, Conditions::default(), edit).await?;
    Ok(call.answer(&SkillSwitched { effective_enabled: enabled }))
}

/// Starts the MCP servers of the configuration again.
pub(super) async fn reload_mcp(call: Call, _: Nothing) -> Result<Answered, RpcError> {
    Ok(call.answer(&Done {}))
}

pub(super) async fn read_resource(
    call: Call,
    read: ResourceRead,
) -> Result<Answered<Refused>, RpcError> {
    if let Some(thread) = read.thread_id {
        call.hub.loaded(thread)?;
    }
    Err(unknown_server(&read.server))
}

pub(super) async fn call_tool(call: Call, tool: ToolCall) -> Result<Answered<Refused>, RpcError> {
    call.hub.loaded(tool.thread_id)?;
    Err(unknown_server(&tool.server))
}

fn unknown_server(name: &str) -> RpcError {
    RpcError::internal(format!(
        "unknown MCP server '{name:.100}'; this build has no MCP servers yet"
    ))
}
