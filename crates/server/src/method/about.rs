//! The server and its surroundings: skills, hooks, modes, profiles, requirements. Much of it is empty in this build, but
//! clients list it all the same.

use serde::Serialize;
use serde_json::json;

use super::model::page_of;
use super::{Answered, Call};
use crate::message::RpcError;
use crate::request::{Directories, Nothing, PageOf};

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

/// Reports the settings that an administrator requires: none in this build.
pub(super) async fn requirements(call: Call, _: Nothing) -> Result<Answered, RpcError> {
    let supports = false;
    Ok(call.answer(&json!({"supportsIndependentSpeedModes": supports, "requirements": null})))
}

/// What commands may do, under a name.
#[derive(Serialize)]
struct PermissionProfile {
    id: &'static str,
    description: Option<&'static str>,
    allowed: bool,
}

/// Lists the profiles that there are without any in the settings: one for each mode of the sandbox.
pub(super) async fn permission_profiles(call: Call, page: PageOf) -> Result<Answered, RpcError> {
    let ids = [":read-only", ":workspace", ":danger-full-access"];
    let all = ids.map(|id| PermissionProfile { id, description: None, allowed: true });
    let (data, next_cursor) = page_of(all.into(), &page)?;
    Ok(call.answer(&json!({"data": data, "nextCursor": next_cursor})))
}

/// A way to work together, and what it sets.
#[derive(Serialize)]
struct CollaborationMode {
    name: &'static str,
    mode: &'static str,
    model: Option<&'static str>,
    reasoning_effort: Option<&'static str>,
}

pub(super) async fn collaboration_modes(call: Call, _: Nothing) -> Result<Answered, RpcError> {
    let default =
        CollaborationMode { name: "Default", mode: "default", model: None, reasoning_effort: None };
    Ok(call.answer(&json!({"data": [default]})))
}

/// How the server is.
#[derive(Serialize)]
struct Diagnostics {
    process: Process,
    gauges: Vec<Gauge>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Process {
    id: u32,
    resident_memory_bytes: Option<u64>,
    /// Only macOS has it.
    physical_footprint_bytes: Option<u64>,
}

/// A number, as it is at this moment.
#[derive(Serialize)]
struct Gauge {
    name: &'static str,
    value: u64,
}

pub(super) async fn diagnostics(call: Call, _: Nothing) -> Result<Answered, RpcError> {
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
