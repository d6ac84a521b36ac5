//! Information about the server and its environment: skills, hooks, modes, profiles, requirements. Most lists are empty in
//! this build, but clients ask for them anyway.

use super::model::page_of;
use super::{Answered, Call};
use crate::message::RpcError;
use crate::request::{HooksList, Nothing, ProfileList, SkillsList};
use crate::response::{
    CollaborationMode, Data, Diagnostics, Gauge, Hooks, Listed, PermissionProfile, Process,
    Requirements, Skills,
};

pub(super) async fn skills(call: Call, of: SkillsList) -> Result<Answered<Data<Skills>>, RpcError> {
    let entry = |cwd| Skills { cwd, skills: [], errors: [] };
    Ok(call.answer(&Data { data: directories(&call, of.cwds).into_iter().map(entry).collect() }))
}

pub(super) async fn hooks(call: Call, of: HooksList) -> Result<Answered<Data<Hooks>>, RpcError> {
    let entry = |cwd| Hooks { cwd, hooks: [], warnings: [], errors: [] };
    Ok(call.answer(&Data { data: directories(&call, of.cwds).into_iter().map(entry).collect() }))
}

/// Returns the directories that a client names, or the server's if it names none.
fn directories(call: &Call, cwds: Option<Vec<String>>) -> Vec<String> {
    let named = cwds.filter(|cwds| !cwds.is_empty());
    named.unwrap_or_else(|| vec![call.hub.heddle().directory().display().to_string()])
}

/// Returns the settings that an administrator enforces: none in this build.
pub(super) async fn requirements(
    call: Call,
    _: Nothing,
) -> Result<Answered<Requirements>, RpcError> {
    Ok(call.answer(&Requirements { supports_independent_speed_modes: false, requirements: () }))
}

/// Lists the built-in profiles: one for each sandbox mode.
pub(super) async fn permission_profiles(
    call: Call,
    list: ProfileList,
) -> Result<Answered<Listed<PermissionProfile>>, RpcError> {
    let ids = [":read-only", ":workspace", ":danger-full-access"];
    let all = ids.map(|id| PermissionProfile { id, description: None, allowed: true });
    let (data, next_cursor) = page_of(all.into(), &list.page)?;
    Ok(call.answer(&Listed { data, next_cursor }))
}

pub(super) async fn collaboration_modes(
    call: Call,
    _: Nothing,
) -> Result<Answered<Data<CollaborationMode>>, RpcError> {
    let mask = |name, mode, reasoning_effort| CollaborationMode {
        name,
        mode,
        model: None,
        reasoning_effort,
    };
    // The effort is a suggestion: clients send it with the mode.
    let data = vec![mask("Plan", "plan", Some("medium")), mask("Default", "default", None)];
    Ok(call.answer(&Data { data }))
}

pub(super) async fn diagnostics(call: Call, _: Nothing) -> Result<Answered<Diagnostics>, RpcError> {
    let process = Process {
        id: std::process::id(),
        resident_memory_bytes: heddle::session::host::resident_bytes(),
        physical_footprint_bytes: None,
    };
    let now = call.hub.load();
    let gauges = [
        ("app.requests.in_flight", now.requests as u64),
        // They are begun as they arrive.
        ("app.requests.queued", 0),
        ("core.threads.live", now.threads as u64),
        ("heddle.clients", now.clients as u64),
        ("heddle.messages.unread_bytes", now.unread_bytes as u64),
        ("heddle.questions.open", now.questions as u64),
        ("heddle.turns.running", now.turns as u64),
        ("heddle.uptime_seconds", now.uptime.as_secs()),
    ];
    let gauges = gauges.map(|(name, value)| Gauge { name, value }).into();
    Ok(call.answer(&Diagnostics { process, gauges }))
}
