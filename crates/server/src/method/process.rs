//! `process/*`: runs a process of the client, without a sandbox.
//!
//! The client is trusted like the user and asks for exactly that. Calls of a model never get here.

use std::sync::Arc;

use heddle::commands::{CommandSpec, Controls};

use super::command::{
    bytes_max, give_size, put, read_input, start, streams, streams_output, timeout,
};
use super::{Answered, Call};
use crate::message::RpcError;
use crate::notification::{Notification, OutputOf};
use crate::processes::{Attention, Kind, attend};
use crate::request::{OfProcess, ProcessResize, ProcessSpawn, ProcessWrite};
use crate::response::Done;

/// Starts a process, and notifies the client of its end.
pub(super) async fn spawn(call: Call, spawn: ProcessSpawn) -> Result<Answered, RpcError> {
    spawn.check()?;
    let ProcessSpawn { command, process_handle, cwd, timeout_ms, output_bytes_cap, run } = spawn;
    let timeout = timeout("process/spawn", timeout_ms)?;
    let told_as =
        streams_output(&run).then(|| OutputOf::Process { process_handle: process_handle.clone() });
    let spec = CommandSpec {
        argv: command,
        preferences: call.hub.options().preferences.clone(),
        confined: false,
        streams: streams(&run),
        env: run.env.unwrap_or_default(),
    };
    let controls = Arc::new(Controls::new(spec.streams));
    let (peer, name) = (call.peer.id(), Some(process_handle.clone()));
    let begun = call.hub.processes().begin(peer, Kind::Process, name, &controls)?;
    let running = start(call.hub.heddle(), Some(cwd.as_path()), spec, &controls).await?;
    let answered = call.answer(&Done {});
    let bytes_max = bytes_max(output_bytes_cap, told_as.is_some());
    let attention = Attention { told_as, bytes_max, timeout };
    tokio::spawn(async move {
        let ended = attend(&call.peer, running, &controls, &attention).await;
        drop(begun);
        // What was kept can be a lot.
        call.peer.has_room().await;
        call.tell(Notification::ProcessExited {
            process_handle,
            exit_code: ended.code,
            output_drain_timed_out: !ended.drained,
            stdout: ended.stdout.to_text(),
            stdout_cap_reached: ended.stdout.cap_reached,
            stderr: ended.stderr.to_text(),
            stderr_cap_reached: ended.stderr.cap_reached,
        });
    });
    Ok(answered)
}

pub(super) async fn write(call: Call, write: ProcessWrite) -> Result<Answered, RpcError> {
    let bytes = read_input("process/writeStdin", &write.input)?;
    let controls =
        call.hub.processes().find(call.peer.id(), Kind::Process, write.process_handle)?;
    put(&controls, bytes, write.input.close_stdin, "this process")?;
    Ok(call.answer(&Done {}))
}

pub(super) async fn resize(call: Call, resize: ProcessResize) -> Result<Answered, RpcError> {
    resize.size.check()?;
    let controls =
        call.hub.processes().find(call.peer.id(), Kind::Process, resize.process_handle)?;
    give_size(&controls, resize.size)?;
    Ok(call.answer(&Done {}))
}

pub(super) async fn kill(call: Call, of: OfProcess) -> Result<Answered, RpcError> {
    call.hub.processes().find(call.peer.id(), Kind::Process, of.process_handle)?.kill();
    Ok(call.answer(&Done {}))
}
