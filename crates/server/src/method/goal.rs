//! The goal of a thread: clients set it, and the model works towards it, turn after turn.

use std::sync::{Arc, Weak};
use std::time::Duration;

use heddle::Input;
use heddle::tools::{FnTool, Json, tool_fn};
use protocol::error::{ErrorClass, TurnErrorCause};
use protocol::event::Event;
use schemars::JsonSchema;
use serde::Deserialize;

use super::turn::refuse_while_active;
use super::{Answered, Call, open, queue};
use crate::goal::{Goal, GoalStatus, Happened, ThreadGoal};
use crate::hub::Hub;
use crate::message::RpcError;
use crate::notification::Notification;
use crate::request::{GoalSet, OfThread};
use crate::response::{Cleared, MaybeGoal, OneGoal};
use crate::thread::{LoadedThread, Owner};

/// The source that the history records for messages about a goal.
const SOURCE: &str = "goal";

/// Sets or changes the goal. If it is active and the thread is idle, a turn that works on it starts immediately.
pub(super) async fn set(call: Call, set: GoalSet) -> Result<Answered<OneGoal>, RpcError> {
    let id = set.thread_id;
    let _gate = queue::has_extras(&call.hub, id, "goals").await?;
    let (is_new_objective, activates) =
        (set.objective.is_some(), set.status == Some(GoalStatus::Active));
    let now = seconds();
    let changed = call.hub.change_extras(id, move |extras| {
        let is_first = extras.goal.is_none();
        let goal = Goal::set(extras.goal.as_ref(), &set, now)?;
        extras.goal = Some(goal.clone());
        Ok((goal, is_first))
    });
    let (goal, is_first) = changed.await?;
    let answered = call.answer(&OneGoal { goal: goal.shown(id) });
    let Ok(loaded) = call.hub.loaded(id) else {
        call.tell(updated(None, goal.shown(id)));
        return Ok(answered);
    };
    call.hub.tell_followers(&loaded, updated(None, goal.shown(id)));
    offer(&call.hub, &loaded, Some(&goal));
    if !goal.is_active() {
        return Ok(answered);
    }
    if is_new_objective && !is_first {
        let state = loaded.lock();
        if let Some(handle) = state.handle().filter(|_| state.closed_to_input().is_none()) {
            // If it is over, the next turn begins with the goal as it is then.
            handle.try_steer(Input::aside(SOURCE, goal.changed_prompt()));
        }
    }
    if activates || is_first {
        loaded.lock().may_go_on_again();
    }
    queue::go_on(&call.hub, &loaded).await;
    Ok(answered)
}

pub(super) async fn get(call: Call, of: OfThread) -> Result<Answered<MaybeGoal>, RpcError> {
    let id = of.thread_id;
    let _gate = queue::has_extras(&call.hub, id, "goals").await?;
    let goal = call.hub.extras(id).await?.goal;
    Ok(call.answer(&MaybeGoal { goal: goal.map(|goal| goal.shown(id)) }))
}

/// Removes the goal. A turn that is working on it continues to its end.
pub(super) async fn clear(call: Call, of: OfThread) -> Result<Answered<Cleared>, RpcError> {
    let id = of.thread_id;
    let _gate = queue::has_extras(&call.hub, id, "goals").await?;
    let cleared = call.hub.change_extras(id, |extras| Ok(extras.goal.take().is_some())).await?;
    let answered = call.answer(&Cleared { cleared });
    if cleared {
        let notification = Notification::GoalCleared { thread_id: id.to_string() };
        match call.hub.loaded(id) {
            Ok(loaded) => {
                offer(&call.hub, &loaded, None);
                call.hub.tell_followers(&loaded, notification);
            }
            Err(_) => call.tell(notification),
        }
    }
    Ok(answered)
}

/// Starts a turn that works on the goal. The caller holds the gate of the thread.
pub(super) async fn pursue(
    hub: &Hub,
    loaded: &Arc<LoadedThread>,
    goal: &Goal,
) -> Result<(), RpcError> {
    open::renew(hub, loaded).await?;
    let mut state = loaded.lock();
    refuse_while_active(&state)?;
    let turn = state.open.turn(Input::aside(SOURCE, goal.prompt()));
    state.begin(&turn, None, heddle::now_ms());
    state.send(turn)
}

/// Updates a loaded thread for this goal: the model has a tool to report on the goal as long as it is open.
pub(super) fn offer(hub: &Hub, loaded: &Arc<LoadedThread>, goal: Option<&Goal>) {
    let mut state = loaded.lock();
    state.pursues = goal.is_some_and(Goal::is_active);
    let tools = &state.opening.goal_tools;
    match (goal.is_some_and(Goal::is_open), state.goal_tool) {
        // Nothing else is in this registry, so there is room, and the name is free.
        (true, None) => {
            state.goal_tool = tools.add(update_tool(hub.clone(), &state.opening.owner)).ok();
        }
        (false, Some(tool)) => {
            // It is there, as nobody else removes it.
            let _ = tools.remove(tool);
            state.goal_tool = None;
        }
        _ => {}
    }
}

/// Sends the goal of a thread to a client that has just resumed it.
pub(super) async fn tell(call: &Call, loaded: &LoadedThread) {
    if !loaded.lock().may_have_extras() {
        return;
    }
    let id = loaded.id;
    match call.hub.extras(id).await.map(|extras| extras.goal) {
        Ok(Some(goal)) => call.tell(updated(None, goal.shown(id))),
        Ok(None) => call.tell(Notification::GoalCleared { thread_id: id.to_string() }),
        // Who changes it is told.
        Err(_) => {}
    }
}

/// Returns what an event of a turn counts as for the goal, if anything.
pub(crate) fn happened(event: &Event) -> Option<Happened> {
    match event {
        Event::TokensUsed { answer, .. } => {
            let fresh = answer.input_tokens.saturating_sub(answer.cached_input_tokens);
            Some(Happened::Answered(fresh.saturating_add(answer.output_tokens)))
        }
        Event::TurnFailed { error, .. } => {
            let limit = TurnErrorCause::Sample(ErrorClass::UsageLimit);
            Some(Happened::Failed { usage_limit: error.cause == limit })
        }
        Event::TurnCompleted { .. } | Event::TurnInterrupted { .. } => Some(Happened::Ended),
        _ => None,
    }
}

/// Adds the usage of a turn to the goal of its thread.
pub(crate) async fn count(
    hub: &Hub,
    loaded: &Arc<LoadedThread>,
    turn: &str,
    what: Happened,
    elapsed: Duration,
) {
    let (id, now) = (loaded.id, seconds());
    let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let counted = hub.change_extras(id, move |extras| {
        let Some(goal) = &mut extras.goal else { return Ok(None) };
        let before = goal.shown(id);
        goal.note(what, elapsed_ms, now);
        Ok(Some((goal.clone(), before)))
    });
    match counted.await {
        Ok(Some((goal, before))) => {
            if what != Happened::Ended || goal.shown(id) != before {
                let turn = Some(turn.to_owned());
                hub.tell_followers(loaded, updated(turn, goal.shown(id)));
            }
            offer(hub, loaded, Some(&goal));
        }
        Ok(None) => {}
        Err(error) => {
            // What is used cannot be counted, so the model must not go on by itself.
            loaded.lock().pursues = false;
            let (thread_id, message) = (Some(id.to_string()), error.message);
            hub.tell_followers(loaded, Notification::Warning { thread_id, message });
        }
    }
}

/// What the model says about the goal.
#[derive(Deserialize, JsonSchema)]
struct Said {
    status: SaidStatus,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum SaidStatus {
    /// Every part of it is done and checked.
    Complete,
    /// The same obstacle has stopped three turns in a row, and only the user can remove it.
    Blocked,
    /// The user has asked to stop working on it for now.
    Paused,
}

fn update_tool(hub: Hub, owner: &Owner) -> FnTool {
    let owner = Arc::clone(owner);
    let what = "Says how the goal of this thread ends: complete, blocked or paused. While it is none of these, you are asked to \
                go on with it after each turn.";
    let tool = tool_fn("update_goal", what, move |said: Said, _| {
        let (hub, owner) = (hub.clone(), Arc::clone(&owner));
        async move {
            let loaded = owner.get().and_then(Weak::upgrade).ok_or("the thread is being closed")?;
            let goal = update(&hub, &loaded, said.status).await.map_err(|error| error.message)?;
            Ok::<_, String>(Json(goal))
        }
    });
    // It changes nothing that a sandbox protects, so nobody is asked.
    tool.read_only()
}

async fn update(
    hub: &Hub,
    loaded: &Arc<LoadedThread>,
    said: SaidStatus,
) -> Result<ThreadGoal, RpcError> {
    let status = match said {
        SaidStatus::Complete => GoalStatus::Complete,
        SaidStatus::Blocked => GoalStatus::Blocked,
        SaidStatus::Paused => GoalStatus::Paused,
    };
    let now = seconds();
    let changed = hub.change_extras(loaded.id, move |extras| {
        let none = || RpcError::invalid("this thread has no goal any more");
        let goal = extras.goal.as_mut().ok_or_else(none)?;
        goal.change(status, now);
        Ok(goal.clone())
    });
    let goal = changed.await?;
    offer(hub, loaded, Some(&goal));
    let turn = loaded.lock().turn_id().map(str::to_owned);
    hub.tell_followers(loaded, updated(turn, goal.shown(loaded.id)));
    Ok(goal.shown(loaded.id))
}

fn updated(turn_id: Option<String>, goal: ThreadGoal) -> Notification {
    Notification::GoalUpdated { thread_id: goal.thread().to_owned(), turn_id, goal }
}

fn seconds() -> i64 {
    i64::try_from(heddle::now_ms() / 1000).unwrap_or(i64::MAX)
}
