//! Extensions of the agent: features, skills, MCP servers. This build has none, but clients ask for them anyway.

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

/// Lists experimental features that can be switched on.
pub(super) async fn features(
    call: Call,
    list: FeatureList,
) -> Result<Answered<Listed<NoEntry>>, RpcError> {
    if let Some(thread) = list.thread_id {
        call.hub.loaded(thread)?;
    }
    empty_page(&call, &list.page)
}

/// Switches features on or off, and returns the ones that exist.
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

/// Sets additional directories with skills. Clients ask for the list again when they are notified that it has changed.
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

/// Restarts the MCP servers of the configuration.
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
