//! `command/*`: runs a command of the client.
//!
//! The client is trusted like the user, so no rule applies and no approval is asked for; only what a model causes goes
//! through a gate. The sandbox is that of the settings, unless the client sets another.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use heddle::Heddle;
use heddle::commands::{
    self, CommandSpec, Controls, InputError, RunningCommand, StartError, Streams,
};

use super::{Answered, Call, open};
use crate::message::RpcError;
use crate::notification::OutputOf;
use crate::processes::{
    Attention, Kind, OUTPUT_BYTES_DEFAULT, OUTPUT_BYTES_MAX, TIMEOUT_DEFAULT, attend,
};
use crate::request::{
    CommandExec, CommandResize, CommandWrite, Input, OfCommand, Run, SandboxPolicy, Settings,
    TerminalSize,
};
use crate::response::{Done, Ended};

pub(super) async fn exec(call: Call, exec: CommandExec) -> Result<Answered<Ended>, RpcError> {
    exec.check()?;
    let CommandExec { command, process_id, cwd, sandbox_policy, run, .. } = exec;
    let timeout = match (exec.timeout_ms, exec.disable_timeout) {
        (_, true) => None,
        (given, false) => timeout("command/exec", given.map(Some))?,
    };
    let cap = match (exec.output_bytes_cap, exec.disable_output_cap) {
        (_, true) => Some(None),
        (given, false) => given.map(Some),
    };
    let told_as = streams_output(&run)
        .then(|| OutputOf::Command { process_id: process_id.clone().unwrap_or_default() });
    let settings = Settings {
        sandbox: sandbox_policy.as_ref().map(SandboxPolicy::mode),
        sandbox_policy,
        ..Settings::default()
    };
    let spec = CommandSpec {
        argv: command,
        preferences: open::preferences(&call.hub.options().preferences, &settings),
        confined: true,
        streams: streams(&run),
        env: run.env.unwrap_or_default(),
    };
    let controls = Arc::new(Controls::new(spec.streams));
    let peer = call.peer.id();
    // Known before it is started: a client writes to it without knowing when that is.
    let begun = call.hub.processes().begin(peer, Kind::Command, process_id, &controls)?;
    let running = start(call.hub.heddle(), cwd.as_deref().map(Path::new), spec, &controls).await?;
    let attention = Attention { bytes_max: bytes_max(cap, told_as.is_some()), told_as, timeout };
    let ended = attend(&call.peer, running, &controls, &attention).await;
    // Its name is free again as soon as the client knows.
    drop(begun);
    // What was kept can be a lot.
    call.peer.has_room().await;
    Ok(call.answer(&Ended {
        exit_code: ended.code,
        stdout: ended.stdout.to_text(),
        stderr: ended.stderr.to_text(),
    }))
}

pub(super) async fn write(call: Call, write: CommandWrite) -> Result<Answered, RpcError> {
    let bytes = read_input("command/exec/write", &write.input)?;
    let controls = call.hub.processes().find(call.peer.id(), Kind::Command, write.process_id)?;
    put(&controls, bytes, write.input.close_stdin, "this command/exec")?;
    Ok(call.answer(&Done {}))
}

pub(super) async fn resize(call: Call, resize: CommandResize) -> Result<Answered, RpcError> {
    resize.size.check()?;
    let controls = call.hub.processes().find(call.peer.id(), Kind::Command, resize.process_id)?;
    give_size(&controls, resize.size)?;
    Ok(call.answer(&Done {}))
}

pub(super) async fn terminate(call: Call, of: OfCommand) -> Result<Answered, RpcError> {
    call.hub.processes().find(call.peer.id(), Kind::Command, of.process_id)?.kill();
    Ok(call.answer(&Done {}))
}

/// Starts a command in the given directory, or in the server's.
pub(super) async fn start(
    heddle: &Heddle,
    directory: Option<&Path>,
    spec: CommandSpec,
    controls: &Arc<Controls>,
) -> Result<RunningCommand, RpcError> {
    let failed = |error: String| RpcError::internal(format!("failed to spawn command: {error}"));
    let heddle = match directory {
        Some(directory) => heddle.at(directory).map_err(|error| failed(error.to_string()))?,
        None => heddle.clone(),
    };
    let started = commands::start(&heddle, spec, Arc::clone(controls)).await;
    started.map_err(|error| match error {
        StartError::Setup(error) => open::refused(error),
        error => failed(error.to_string()),
    })
}

pub(super) fn streams(run: &Run) -> Streams {
    match run.tty {
        true => Streams::Terminal(run.size.map(size)),
        false => Streams::Pipes { input: run.stream_stdin },
    }
}

/// Returns whether output is sent while the command runs.
pub(super) fn streams_output(run: &Run) -> bool {
    run.tty || run.stream_stdout_stderr
}

/// Returns how long a command may run. `given` is `None` if the client does not say, and `Some(None)` for no limit.
pub(super) fn timeout(
    method: &str,
    given: Option<Option<i64>>,
) -> Result<Option<Duration>, RpcError> {
    let Some(ms) = given.unwrap_or(Some(TIMEOUT_DEFAULT.as_millis() as i64)) else {
        return Ok(None);
    };
    let ms = u64::try_from(ms).map_err(|_| {
        RpcError::invalid_params(format!("{method} timeoutMs must be non-negative, got {ms}"))
    })?;
    Ok(Some(Duration::from_millis(ms)))
}

/// Returns how many bytes of each stream are kept or sent. Output that is sent is not stored here, so it needs no limit.
pub(super) fn bytes_max(given: Option<Option<u64>>, is_told: bool) -> usize {
    let bound = if is_told { usize::MAX } else { OUTPUT_BYTES_MAX };
    match given {
        None => OUTPUT_BYTES_DEFAULT,
        Some(None) => bound,
        Some(Some(cap)) => usize::try_from(cap).unwrap_or(usize::MAX).min(bound),
    }
}

/// Decodes the input that a client writes to a command.
pub(super) fn read_input(method: &str, input: &Input) -> Result<Option<Vec<u8>>, RpcError> {
    let Some(data) = &input.delta_base64 else {
        return match input.close_stdin {
            true => Ok(None),
            false => Err(RpcError::invalid_params(format!(
                "{method} requires deltaBase64 or closeStdin"
            ))),
        };
    };
    let decoded = BASE64_STANDARD.decode(data);
    let decoded = decoded
        .map_err(|error| RpcError::invalid_params(format!("invalid deltaBase64: {error}")))?;
    Ok(Some(decoded))
}

/// Passes a client's input on to a command.
pub(super) fn put(
    controls: &Controls,
    bytes: Option<Vec<u8>>,
    close: bool,
    what: &str,
) -> Result<(), RpcError> {
    let written = bytes.map_or(Ok(()), |bytes| controls.write(bytes));
    let closed = written.and_then(|()| if close { controls.close_input() } else { Ok(()) });
    closed.map_err(|error| match error {
        InputError::None => RpcError::invalid(format!("stdin streaming is not enabled for {what}")),
        InputError::Full => RpcError::overloaded(format!("{what}: {error}")),
        error => RpcError::invalid(error.to_string()),
    })
}

/// Resizes the terminal of a command.
pub(super) fn give_size(controls: &Controls, new: TerminalSize) -> Result<(), RpcError> {
    match controls.resize(size(new)) {
        true => Ok(()),
        false => Err(RpcError::invalid("failed to resize PTY: process is not attached to a PTY")),
    }
}

fn size(size: TerminalSize) -> commands::TerminalSize {
    commands::TerminalSize { rows: size.rows, columns: size.cols }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        for (given, want) in [
            (None, Some(10_000)),
            (Some(None), None),
            (Some(Some(0)), Some(0)),
            (Some(Some(i64::MAX)), Some(i64::MAX as u64)),
        ] {
            assert_eq!(timeout("m", given), Ok(want.map(Duration::from_millis)), "{given:?}");
        }
        let negative = timeout("m", Some(Some(-1))).unwrap_err();
        assert_eq!(negative.message, "m timeoutMs must be non-negative, got -1");
        for (given, told, want) in [
            (None, true, OUTPUT_BYTES_DEFAULT),
            (None, false, OUTPUT_BYTES_DEFAULT),
            (Some(Some(0)), false, 0),
            (Some(Some(u64::MAX)), false, OUTPUT_BYTES_MAX),
            (Some(None), false, OUTPUT_BYTES_MAX),
            (Some(None), true, usize::MAX),
        ] {
            assert_eq!(bytes_max(given, told), want, "{given:?} {told}");
        }
    }

    #[test]
    fn input() {
        let given = |data: Option<&str>, close_stdin| Input {
            delta_base64: data.map(str::to_owned),
            close_stdin,
        };
        for (data, close, want) in [
            (Some("aGk="), false, Ok(Some(b"hi".to_vec()))),
            (Some(""), true, Ok(Some(Vec::new()))),
            (None, true, Ok(None)),
            (None, false, Err("m requires deltaBase64 or closeStdin")),
            (Some("!"), true, Err("invalid deltaBase64: Invalid symbol 33, offset 0.")),
        ] {
            let got = read_input("m", &given(data, close)).map_err(|error| error.message);
            assert_eq!(got, want.map_err(str::to_owned), "{data:?} {close}");
        }
    }
}
