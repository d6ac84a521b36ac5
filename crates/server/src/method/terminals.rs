//! Background commands of a thread: those that the model started and that are still running.

use heddle::tools::RunningCommand;

use super::{Answered, Call, model};
use crate::message::RpcError;
use crate::request::{OfThread, PageOfThread, Terminate};
use crate::response::{Done, Listed, Terminal, Terminated};

pub(super) async fn list(
    call: Call,
    of: PageOfThread,
) -> Result<Answered<Listed<Terminal>>, RpcError> {
    let running = call.hub.loaded(of.thread_id)?.lock().open.running_commands();
    let (data, next_cursor) = model::page_of(running.into_iter().map(shown).collect(), &of.page)?;
    Ok(call.answer(&Listed { data, next_cursor }))
}

/// Ends all background commands.
pub(super) async fn clean(call: Call, of: OfThread) -> Result<Answered, RpcError> {
    let thread = call.hub.loaded(of.thread_id)?.lock().open.clone();
    for command in thread.running_commands() {
        thread.stop_command(command.session);
    }
    Ok(call.answer(&Done {}))
}

/// Ends one background command.
pub(super) async fn terminate(call: Call, of: Terminate) -> Result<Answered<Terminated>, RpcError> {
    let thread = call.hub.loaded(of.thread_id)?.lock().open.clone();
    // Any other id is none of ours.
    let session = of.process_id.parse().ok();
    let terminated = session.is_some_and(|session| thread.stop_command(session));
    Ok(call.answer(&Terminated { terminated }))
}

fn shown(command: RunningCommand) -> Terminal {
    Terminal {
        item_id: command.call_id,
        process_id: command.session.to_string(),
        command: command.command,
        cwd: command.cwd.display().to_string(),
        os_pid: (),
        cpu_percent: (),
        rss_kb: (),
    }
}
