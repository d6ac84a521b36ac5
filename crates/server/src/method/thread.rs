//! Threads as a whole: archive, delete, name, follow.

use super::{Answered, Call, open};
use crate::hub::Hub;
use crate::message::RpcError;
use crate::method::open::refused;
use crate::method::past;
use crate::missed::Since;
use crate::notification::Notification;
use crate::request::{
    InjectItems, MetadataUpdate, OfThread, PageOf, SetName, SettingsUpdate, ThreadEvents,
};
use crate::response::{Done, Events, Listed, OneThread, UnsubscribeStatus, Unsubscribed};
use crate::thread::LoadedThread;

pub(super) async fn archive(call: Call, of: OfThread) -> Result<Answered, RpcError> {
    let id = of.thread_id;
    let _gate = call.hub.gate(id).await;
    is_saved(&call.hub, id)?;
    unload(&call.hub, id).await;
    call.hub.heddle().threads().archive(id).await.map_err(refused)?;
    let answered = call.answer(&Done {});
    call.hub.tell_all(Notification::ThreadArchived { thread_id: id.to_string() });
    Ok(answered)
}

pub(super) async fn unarchive(call: Call, of: OfThread) -> Result<Answered<OneThread>, RpcError> {
    let id = of.thread_id;
    let _gate = call.hub.gate(id).await;
    call.hub.heddle().threads().unarchive(id).await.map_err(refused)?;
    let thread = past::thread(&call.hub, id, None).await?;
    let answered = call.answer(&OneThread { thread });
    call.hub.tell_all(Notification::ThreadUnarchived { thread_id: id.to_string() });
    Ok(answered)
}

/// Deletes a thread for good.
pub(super) async fn delete(call: Call, of: OfThread) -> Result<Answered, RpcError> {
    let id = of.thread_id;
    let _gate = call.hub.gate(id).await;
    // A thread without a log is gone once it is closed.
    let has_log = is_saved(&call.hub, id).is_ok();
    unload(&call.hub, id).await;
    if has_log {
        call.hub.heddle().threads().delete(id).await.map_err(refused)?;
    }
    let answered = call.answer(&Done {});
    call.hub.tell_all(Notification::ThreadDeleted { thread_id: id.to_string() });
    Ok(answered)
}

pub(super) async fn set_name(call: Call, set: SetName) -> Result<Answered, RpcError> {
    let SetName { thread_id: id, name } = set;
    let name = name.trim();
    if name.is_empty() {
        return Err(RpcError::invalid("the name is empty: give one"));
    }
    let _gate = call.hub.gate(id).await;
    is_saved(&call.hub, id)?;
    call.hub.heddle().threads().set_name(id, name).await.map_err(refused)?;
    if let Some(loaded) = call.hub.find(id) {
        loaded.lock().set_name(name);
    }
    let answered = call.answer(&Done {});
    let (thread_id, thread_name) = (id.to_string(), Some(name.to_owned()));
    call.hub.tell_all(Notification::ThreadNameUpdated { thread_id, thread_name });
    Ok(answered)
}

/// Changes the metadata of a thread other than its name, loaded or not.
pub(super) async fn update_metadata(
    call: Call,
    update: MetadataUpdate,
) -> Result<Answered<OneThread>, RpcError> {
    let id = update.thread_id;
    let changes = update.changes()?;
    let _gate = call.hub.gate(id).await;
    needs_log(&call.hub, id, "metadata updates").await?;
    let git = call.hub.change_extras(id, |extras| {
        extras.git.add(changes);
        Ok(extras.git.clone())
    });
    let git = git.await?;
    if let Some(loaded) = call.hub.find(id) {
        loaded.lock().set_git(&git);
    }
    let thread = past::thread(&call.hub, id, None).await?;
    Ok(call.answer(&OneThread { thread }))
}

/// Returns the notifications that a client missed while it was disconnected.
pub(super) async fn events(call: Call, asked: ThreadEvents) -> Result<Answered<Events>, RpcError> {
    let ThreadEvents { thread_id, since } = asked;
    let loaded = call.hub.loaded(thread_id)?;
    let Since { lines, last, is_complete } = loaded.missed().since(since);
    Ok(call.answer(&Events { data: lines, last_seq: last, is_complete }))
}

/// Adds items to the history of a thread, between turns.
pub(super) async fn inject_items(call: Call, inject: InjectItems) -> Result<Answered, RpcError> {
    let InjectItems { thread_id: id, items } = inject;
    let _gate = call.hub.gate(id).await;
    let loaded = call.hub.loaded(id)?;
    if items.is_empty() {
        return Err(RpcError::invalid("items must not be empty"));
    }
    if let Some((index, item)) =
        items.iter().enumerate().find(|(_, item)| item["type"].as_str().is_none())
    {
        let problem = format!("items[{index}] is not a valid response item: {item:.100}");
        return Err(RpcError::invalid(problem));
    }
    open::renew(&call.hub, &loaded).await?;
    let thread = loaded.lock().open.clone();
    let repairs = thread.inject(items).await.map_err(refused)?;
    loaded.lock().note_saved();
    let answered = call.answer(&Done {});
    if !repairs.is_empty() {
        let words: Vec<_> = repairs.iter().map(ToString::to_string).collect();
        let (thread_id, message) = (Some(id.to_string()), words.join("\n"));
        call.hub.tell_followers(&loaded, Notification::Warning { thread_id, message });
    }
    Ok(answered)
}

/// Changes settings of a loaded thread from its next turn on.
pub(super) async fn update_settings(
    call: Call,
    update: SettingsUpdate,
) -> Result<Answered, RpcError> {
    let SettingsUpdate { thread_id: id, changes } = update;
    let _gate = call.hub.gate(id).await;
    let loaded = call.hub.loaded(id)?;
    open::change(&call.hub, &loaded, &changes).await?;
    let answered = call.answer(&Done {});
    tell_settings(&call.hub, &loaded);
    Ok(answered)
}

/// Sends the settings of a thread to the clients that follow it.
pub(super) fn tell_settings(hub: &Hub, loaded: &LoadedThread) {
    let thread_settings = Box::new(loaded.lock().settings.to_updated());
    let thread_id = loaded.id.to_string();
    hub.tell_followers(loaded, Notification::SettingsUpdated { thread_id, thread_settings });
}

/// Removes the client from the followers of a thread. The thread stays loaded for a while.
pub(super) async fn unsubscribe(
    call: Call,
    of: OfThread,
) -> Result<Answered<Unsubscribed>, RpcError> {
    let status = match call.hub.find(of.thread_id) {
        None => UnsubscribeStatus::NotLoaded,
        Some(loaded) if call.hub.unfollow(&loaded, call.peer.id()) => {
            UnsubscribeStatus::Unsubscribed
        }
        Some(_) => UnsubscribeStatus::NotSubscribed,
    };
    Ok(call.answer(&Unsubscribed { status }))
}

/// Lists the threads that are loaded.
pub(super) async fn loaded_list(
    call: Call,
    page: PageOf,
) -> Result<Answered<Listed<String>>, RpcError> {
    let ids: Vec<String> = call.hub.threads().iter().map(|loaded| loaded.id.to_string()).collect();
    let (data, next_cursor) = super::model::page_of(ids, &page)?;
    Ok(call.answer(&Listed { data, next_cursor }))
}

/// Refuses a loaded thread that has no log yet, for requests that need one.
pub(super) fn is_saved(hub: &Hub, id: heddle::ThreadId) -> Result<(), RpcError> {
    match hub.find(id) {
        Some(loaded) if !loaded.lock().is_saved() => {
            Err(RpcError::invalid(format!("no rollout found for thread id {id}")))
        }
        _ => Ok(()),
    }
}

/// Refuses a thread that does not exist, and one that is never saved. A new thread, which would be lost when it is closed,
/// is saved. The caller holds its gate.
pub(super) async fn needs_log(hub: &Hub, id: heddle::ThreadId, what: &str) -> Result<(), RpcError> {
    let Some(loaded) = hub.find(id) else {
        let found = hub.heddle().threads().find(id).await.map_err(refused)?;
        let missing = || RpcError::invalid(format!("no rollout found for thread id {id}"));
        return found.map(drop).ok_or_else(missing);
    };
    if loaded.lock().is_ephemeral() {
        return Err(RpcError::invalid(format!("ephemeral thread does not support {what}: {id}")));
    }
    if !loaded.lock().is_saved() {
        open::renew(hub, &loaded).await?;
        let thread = loaded.lock().open.clone();
        thread.inject(Vec::new()).await.map_err(refused)?;
        loaded.lock().note_saved();
    }
    Ok(())
}

/// Closes a thread if it is loaded, and waits until its log may be opened again.
pub(super) async fn unload(hub: &Hub, id: heddle::ThreadId) {
    if let Some(loaded) = hub.find(id) {
        loaded.close();
        loaded.gone().await;
    }
}
