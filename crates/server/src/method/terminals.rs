//! Commands of a thread that run in the background: those that the model has started and that still run.

use heddle::tools::RunningCommand;
use serde_json::{Value, json};

use super::{Answered, Call, model};
use crate::message::RpcError;
use crate::request::{OfThread, PageOfThread, Terminate};

pub(super) async fn list(call: Call, of: PageOfThread) -> Result<Answered, RpcError> {
    let running = call.hub.loaded(of.thread_id)?.lock().open.running_commands();
    let (data, next_cursor) = model::page_of(running.into_iter().map(shown).collect(), &of.page)?;
    Ok(call.answer(&json!({"data": data, "nextCursor": next_cursor})))
}

/// Ends all of them.
pub(super) async fn clean(call: Call, of: OfThread) -> Result<Answered, RpcError> {
    let thread = call.hub.loaded(of.thread_id)?.lock().open.clone();
    for command in thread.running_commands() {
        thread.stop_command(command.session);
    }
    Ok(call.answer(&json!({})))
}

/// Ends one of them.
pub(super) async fn terminate(call: Call, of: Terminate) -> Result<Answered, RpcError> {
    let thread = call.hub.loaded(of.thread_id)?.lock().open.clone();
    // Any other id is none of ours.
    let session = of.process_id.parse().ok();
    let terminated = session.is_some_and(|session| thread.stop_command(session));
    Ok(call.answer(&json!({"terminated": terminated})))
}

fn shown(command: RunningCommand) -> Value {
    json!({
        "itemId": command.call_id,
        "processId": command.session.to_string(),
        "command": command.command,
        "cwd": command.cwd.display().to_string(),
        // Nothing here measures them.
        "osPid": null,
        "cpuPercent": null,
        "rssKb": null,
    })
}
