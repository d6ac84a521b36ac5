//! The queue of a thread: clients add input, and each entry starts a turn of its own once the thread is idle.

use std::sync::Arc;

use heddle::ThreadId;
use tokio::sync::OwnedMutexGuard;

use super::turn::{check_said, refuse_while_active, to_input};
use super::{Answered, Call, goal, model, open, past, thread as threads};
use crate::extras::Extras;
use crate::hub::Hub;
use crate::message::RpcError;
use crate::notification::Notification;
use crate::past::preview;
use crate::queue::Queued;
use crate::request::{
    ItemsView, PageOfThread, QueueAdd, QueueDelete, QueueReorder, QueueStart, QueueUpdate,
};
use crate::response::{Deleted, Done, Listed, OneQueued, OneTurn};
use crate::thread::LoadedThread;
use crate::wire::{self, Body};

/// Adds input to the queue. If the thread is idle, its turn starts immediately.
pub(super) async fn add(call: Call, add: QueueAdd) -> Result<Answered<OneQueued>, RpcError> {
    let QueueAdd { thread_id: id, input, client_user_message_id } = add;
    let _gate = has_queue(&call.hub, id).await?;
    check_said(&input)?;
    let now_ms = heddle::now_ms();
    let queued = call
        .hub
        .change_extras(id, move |extras| extras.queue.add(input, client_user_message_id, now_ms));
    let answered = call.answer(&OneQueued { queued_submission: queued.await? });
    changed(&call.hub, id);
    if let Ok(loaded) = call.hub.loaded(id) {
        go_on(&call.hub, &loaded).await;
    }
    Ok(answered)
}

/// Lists the waiting entries, a page at a time.
pub(super) async fn list(
    call: Call,
    asked: PageOfThread,
) -> Result<Answered<Listed<Queued>>, RpcError> {
    let PageOfThread { thread_id: id, page } = asked;
    let _gate = has_queue(&call.hub, id).await?;
    let extras = call.hub.extras(id).await?;
    let (data, next_cursor) = model::page_of(extras.queue.waiting().cloned().collect(), &page)?;
    Ok(call.answer(&Listed { data, next_cursor }))
}

pub(super) async fn update(
    call: Call,
    update: QueueUpdate,
) -> Result<Answered<OneQueued>, RpcError> {
    let QueueUpdate { thread_id: id, queued_submission_id, input } = update;
    let _gate = has_queue(&call.hub, id).await?;
    check_said(&input)?;
    let queued =
        call.hub.change_extras(id, move |extras| extras.queue.update(&queued_submission_id, input));
    let answered = call.answer(&OneQueued { queued_submission: queued.await? });
    changed(&call.hub, id);
    Ok(answered)
}

pub(super) async fn delete(call: Call, delete: QueueDelete) -> Result<Answered<Deleted>, RpcError> {
    let QueueDelete { thread_id: id, queued_submission_id } = delete;
    let _gate = has_queue(&call.hub, id).await?;
    let deleted = call
        .hub
        .change_extras(id, move |extras| Ok(extras.queue.delete(&queued_submission_id)))
        .await?;
    let answered = call.answer(&Deleted { deleted });
    if deleted {
        changed(&call.hub, id);
    }
    Ok(answered)
}

pub(super) async fn reorder(call: Call, reorder: QueueReorder) -> Result<Answered, RpcError> {
    let QueueReorder { thread_id: id, queued_submission_ids: ids } = reorder;
    let _gate = has_queue(&call.hub, id).await?;
    let reordered = call.hub.change_extras(id, move |extras| extras.queue.reorder(&ids)).await?;
    let answered = call.answer(&Done {});
    if reordered {
        changed(&call.hub, id);
    }
    Ok(answered)
}

/// Starts the turn of an entry now, even if an interruption has stopped the queue.
pub(super) async fn start(call: Call, start: QueueStart) -> Result<Answered<OneTurn>, RpcError> {
    let QueueStart { thread_id: id, queued_submission_id } = start;
    let _gate = call.hub.gate(id).await;
    let loaded = call.hub.loaded(id)?;
    say(&call.hub, &loaded, queued_submission_id, |turn| call.answer(&OneTurn { turn })).await
}

/// Starts the turn of the next entry, or else one for the goal, if the thread is idle and was not interrupted. The caller
/// holds its gate.
pub(crate) async fn go_on(hub: &Hub, loaded: &Arc<LoadedThread>) {
    if !loaded.lock().may_go_on() {
        return;
    }
    let done = match hub.extras(loaded.id).await {
        Ok(Extras { queue, .. }) if queue.waiting().next().is_some() => {
            say(hub, loaded, None, drop).await
        }
        Ok(Extras { goal: Some(goal), .. }) if goal.is_active() => {
            goal::pursue(hub, loaded, &goal).await
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = done {
        let (thread_id, why) = (Some(loaded.id.to_string()), error.message);
        let message = format!("the thread cannot go on by itself: {why}");
        hub.tell_followers(loaded, Notification::Warning { thread_id, message });
    }
}

/// Settles the entries whose turns had started when the server was killed, and continues with the queue and the goal of a
/// thread that was just loaded.
pub(super) async fn loaded(hub: &Hub, loaded: &Arc<LoadedThread>) {
    let id = loaded.id;
    // One that was never used, or is not saved, has none.
    if !loaded.lock().may_have_extras() {
        return;
    }
    let Ok(Extras { queue, goal, .. }) = hub.extras(id).await else { return };
    goal::offer(hub, loaded, goal.as_ref());
    if queue.turns().next().is_some() {
        let Ok(past) = past::thread(hub, id, Some(ItemsView::Summary)).await else { return };
        let is_message = |item: &wire::Item| matches!(item.body, Body::UserMessage { .. });
        let said: Vec<_> = past
            .turns
            .into_iter()
            .filter(|turn| turn.items.iter().any(is_message))
            .map(|turn| turn.id)
            .collect();
        let settled = hub.change_extras(id, move |extras| {
            extras.queue.settle(|turn| Some(said.iter().any(|id| id == turn)));
            Ok(())
        });
        if settled.await.is_err() {
            return;
        }
    }
    go_on(hub, loaded).await;
}

/// Settles the entry of a turn that has ended.
pub(crate) async fn ended(hub: &Hub, loaded: &LoadedThread, turn: String, was_said: bool) {
    let settled = hub.change_extras(loaded.id, move |extras| {
        extras.queue.settle(|it| (it == turn).then_some(was_said));
        Ok(())
    });
    if let Err(error) = settled.await {
        // It is settled when the thread is loaded again.
        let (thread_id, message) = (Some(loaded.id.to_string()), error.message);
        hub.tell_followers(loaded, Notification::Warning { thread_id, message });
    }
    if !was_said {
        tell_changed(hub, loaded);
    }
}

/// Starts the turn of an entry. `answer` gets the turn before any notification about it is sent.
async fn say<T>(
    hub: &Hub,
    loaded: &Arc<LoadedThread>,
    which: Option<String>,
    answer: impl FnOnce(wire::Turn) -> T,
) -> Result<T, RpcError> {
    refuse_while_active(&loaded.lock())?;
    open::renew(hub, loaded).await?;
    let Queued { id, input, client_user_message_id } =
        hub.extras(loaded.id).await?.queue.next(which.as_deref())?;
    let first = preview(&input);
    let turn = loaded.lock().open.turn(to_input(input, Some(client_user_message_id)));
    let turn_id = turn.id().to_owned();
    let begun = turn_id.clone();
    hub.change_extras(loaded.id, move |extras| extras.queue.begin(&id, &begun)).await?;
    let begun = {
        let mut state = loaded.lock();
        // A turn with input that came too late for the last one does not wait for the gate.
        refuse_while_active(&state).map(|()| {
            let shown = state.begin(&turn, Some(first), heddle::now_ms());
            state.says_queued();
            shown
        })
    };
    match begun {
        Ok(shown) => {
            let answered = answer(shown);
            tell_changed(hub, loaded);
            loaded.lock().send(turn)?;
            Ok(answered)
        }
        Err(refusal) => {
            ended(hub, loaded, turn_id, false).await;
            Err(refusal)
        }
    }
}

async fn has_queue(hub: &Hub, id: ThreadId) -> Result<OwnedMutexGuard<()>, RpcError> {
    has_extras(hub, id, "queued submissions").await
}

/// Locks the gate of a thread that can have extras; other threads are refused, with `what` in the error.
pub(super) async fn has_extras(
    hub: &Hub,
    id: ThreadId,
    what: &str,
) -> Result<OwnedMutexGuard<()>, RpcError> {
    let gate = hub.gate(id).await;
    threads::needs_log(hub, id, what).await?;
    if hub.find(id).is_none() {
        open::refuse_archived(hub.heddle(), id).await?;
    }
    Ok(gate)
}

fn changed(hub: &Hub, id: ThreadId) {
    if let Some(loaded) = hub.find(id) {
        tell_changed(hub, &loaded);
    }
}

fn tell_changed(hub: &Hub, loaded: &LoadedThread) {
    let thread_id = loaded.id.to_string();
    hub.tell_followers(loaded, Notification::QueueChanged { thread_id });
}
