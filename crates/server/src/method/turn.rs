//! Turns: start, steer, interrupt, compact.

use std::time::Duration;

use super::{Answered, Call, open, thread};
use crate::message::RpcError;
use crate::past::preview;
use crate::request::{
    OfThread, ShellCommand, TurnInterrupt, TurnLimits, TurnStart, TurnSteer, UserInput, check_input,
};
use crate::response::{Done, OneTurn, Steered};
use crate::thread::{Closed, LoadedThread, ThreadState};
use crate::wire;

/// Starts a turn, or adds the input to the running one.
pub(super) async fn start(call: Call, start: TurnStart) -> Result<Answered<OneTurn>, RpcError> {
    let TurnStart {
        thread_id,
        input,
        client_user_message_id,
        output_schema,
        output_retries,
        heddle_limits,
        changes,
    } = start;
    // So that no other client starts a turn while settings change.
    let _gate = call.hub.gate(thread_id).await;
    let loaded = call.hub.loaded(thread_id)?;
    check_said(&input)?;
    let first = preview(&input);
    let only_text = is_text(&input);
    let said = to_input(input, client_user_message_id);
    let before = loaded.lock().settings.clone();
    open::change(&call.hub, &loaded, &changes).await?;
    let mut state = loop {
        if let Some(turn) = steer_running(&loaded, only_text, &said)? {
            return Ok(call.answer(&OneTurn { turn }));
        }
        // One that is over may still be told; until then nothing else begins.
        loaded.turn_told().await;
        open::renew(&call.hub, &loaded).await?;
        let state = loaded.lock();
        // Input that came too late for it may have begun another one.
        if state.turn_id().is_none() {
            break state;
        }
    };
    let mut turn = state.open.turn(said).limits(turn_limits(heddle_limits));
    if let Some(schema) = output_schema {
        turn.set_output_schema(&schema.to_string())
            .map_err(|error| RpcError::invalid(format!("outputSchema: {error}")))?;
        turn.set_output_retries(output_retries);
    }
    let shown = state.begin(&turn, Some(first), heddle::now_ms());
    let changed = state.settings != before;
    // Before the turn is sent, so that the answer precedes the notifications of the turn.
    let answered = call.answer(&OneTurn { turn: shown });
    if changed {
        drop(state);
        thread::tell_settings(&call.hub, &loaded);
        state = loaded.lock();
    }
    state.send(turn)?;
    Ok(answered)
}

/// Adds input to the running turn unless it has ended, and returns the turn.
fn steer_running(
    loaded: &LoadedThread,
    only_text: bool,
    said: &heddle::Input,
) -> Result<Option<wire::Turn>, RpcError> {
    let state = loaded.lock();
    let (Some(turn), Some(handle)) = (state.running_turn(), state.handle()) else {
        return Ok(None);
    };
    if handle.is_over() {
        return Ok(None);
    }
    refuse_input(&state)?;
    match steer_with(handle, only_text, said.clone()) {
        Err(_) if handle.is_over() => Ok(None),
        done => done.map(|()| Some(turn.clone())),
    }
}

/// Adds input to the running turn.
pub(super) async fn steer(call: Call, steer: TurnSteer) -> Result<Answered<Steered>, RpcError> {
    let TurnSteer { thread_id, expected_turn_id, input, client_user_message_id } = steer;
    let loaded = call.hub.loaded(thread_id)?;
    check_said(&input)?;
    let only_text = is_text(&input);
    let said = to_input(input, client_user_message_id);
    let state = loaded.lock();
    let (Some(active), Some(handle)) = (state.turn_id(), state.handle()) else {
        return Err(RpcError::invalid("no active turn to steer"));
    };
    if active != expected_turn_id {
        return Err(unexpected(&expected_turn_id, active));
    }
    refuse_input(&state)?;
    steer_with(handle, only_text, said)?;
    Ok(call.answer(&Steered { turn_id: active.to_owned() }))
}

pub(super) async fn interrupt(call: Call, interrupt: TurnInterrupt) -> Result<Answered, RpcError> {
    let TurnInterrupt { thread_id, turn_id } = interrupt;
    let loaded = call.hub.loaded(thread_id)?;
    let state = loaded.lock();
    let (Some(active), Some(handle)) = (state.turn_id(), state.handle()) else {
        return Err(RpcError::invalid("no active turn to interrupt"));
    };
    if !turn_id.is_empty() && turn_id != active {
        return Err(unexpected(&turn_id, active));
    }
    // Before the interruption, so that the answer precedes the notifications about it.
    let answered = call.answer(&Done {});
    handle.interrupt();
    Ok(answered)
}

/// Starts a turn that replaces the history with a summary.
pub(super) async fn compact(call: Call, of: OfThread) -> Result<Answered, RpcError> {
    let _gate = call.hub.gate(of.thread_id).await;
    let loaded = call.hub.loaded(of.thread_id)?;
    open::renew(&call.hub, &loaded).await?;
    let mut state = loaded.lock();
    refuse_while_active(&state)?;
    let turn = state.open.compact();
    state.begin(&turn, None, heddle::now_ms());
    state.takes_no_input(Closed::Compaction);
    let answered = call.answer(&Done {});
    state.send(turn)?;
    Ok(answered)
}

/// Starts a turn that runs a command of the user. The client is trusted like the user, so no approval is asked for and
/// there is no sandbox; never pass text of a model to it.
pub(super) async fn shell_command(call: Call, run: ShellCommand) -> Result<Answered, RpcError> {
    let ShellCommand { thread_id, command, timeout_ms } = run;
    let _gate = call.hub.gate(thread_id).await;
    let loaded = call.hub.loaded(thread_id)?;
    if command.trim().is_empty() {
        return Err(RpcError::invalid("command must not be empty"));
    }
    open::renew(&call.hub, &loaded).await?;
    let mut state = loaded.lock();
    refuse_while_active(&state)?;
    let turn = state.open.run_command(command, timeout_ms.map(Duration::from_millis));
    state.begin(&turn, None, heddle::now_ms());
    let answered = call.answer(&Done {});
    state.send(turn)?;
    Ok(answered)
}

/// Refuses input during a compaction, which sends no other request that could answer it, and during a review, whose
/// reviewer would not see it.
fn refuse_input(state: &ThreadState) -> Result<(), RpcError> {
    match state.closed_to_input() {
        None => Ok(()),
        Some(Closed::Compaction) => Err(RpcError::not_steerable(
            "compact",
            "the history is being compacted: wait until that is done",
        )),
        Some(Closed::Review) => Err(RpcError::not_steerable(
            "review",
            "a review is running: wait for its end, or interrupt it",
        )),
    }
}

pub(super) fn refuse_while_active(state: &ThreadState) -> Result<(), RpcError> {
    match state.turn_id() {
        None => Ok(()),
        Some(active) => Err(RpcError::invalid(format!(
            "the turn {active} is running: wait for its end, or interrupt it"
        ))),
    }
}

fn unexpected(expected: &str, active: &str) -> RpcError {
    RpcError::invalid(format!("expected active turn id {expected:.100} but found {active}"))
}

fn steer_with(
    handle: &heddle::TurnHandle,
    only_text: bool,
    said: heddle::Input,
) -> Result<(), RpcError> {
    if !only_text {
        return Err(RpcError::invalid(
            "only text can be added to a running turn: wait for its end, or leave out the images",
        ));
    }
    match handle.try_steer(said) {
        true => Ok(()),
        false => Err(RpcError::invalid("too much was added to the running turn: wait for its end")),
    }
}

/// Refuses input of which the model would get nothing, or only a part.
pub(super) fn check_said(input: &[UserInput]) -> Result<(), RpcError> {
    check_input(input)?;
    match input.iter().all(|part| matches!(part, UserInput::Mention { .. })) {
        true => Err(RpcError::invalid("input is empty: say something")),
        false => Ok(()),
    }
}

fn is_text(input: &[UserInput]) -> bool {
    input.iter().all(|part| matches!(part, UserInput::Text { .. } | UserInput::Mention { .. }))
}

pub(super) fn to_input(input: Vec<UserInput>, client_id: Option<String>) -> heddle::Input {
    let parts = input.into_iter().map(Into::into);
    let input = parts.fold(heddle::Input::default(), heddle::Input::part);
    client_id.into_iter().fold(input, heddle::Input::client_id)
}

fn turn_limits(limits: TurnLimits) -> heddle::TurnLimits {
    let mut set = heddle::TurnLimits::new();
    (set.tokens, set.calls, set.requests) = (limits.tokens, limits.calls, limits.requests);
    set
}
