//! Saved threads: read, list, search.

use std::collections::{BTreeMap, HashSet};

use heddle::ThreadId;
use heddle::threads::index::{Cursor, Direction as Order, Filter, List, Search, Sort, Summary};

use super::open::refused;
use super::{Answered, Call, model, thread as threads};
use crate::hub::Hub;
use crate::message::RpcError;
use crate::occurrences::Occurrence;
use crate::page::{self, ItemEntry, Page};
use crate::past::PastThread;
use crate::request::{
    Direction, ItemsList, ItemsRead, ItemsView, OneOrMany, PageOf, SearchOccurrences, SortKey,
    ThreadList, ThreadRead, ThreadSearch, TurnsList,
};
use crate::response::{Data, FoundThread, FoundThreads, Listed, OneThread, Threads};
use crate::wire::{Thread, Turn};

/// Most threads per page.
const PAGE_MAX: u32 = 100;
/// Threads per page if the client sets no limit.
const PAGE_DEFAULT: u32 = 25;

pub(super) async fn read(call: Call, read: ThreadRead) -> Result<Answered<OneThread>, RpcError> {
    let ThreadRead { thread_id, include_turns } = read;
    if let Some(loaded) = call.hub.find(thread_id) {
        let state = loaded.lock();
        if include_turns && state.is_ephemeral() {
            return Err(RpcError::invalid("ephemeral threads do not support includeTurns"));
        }
        if !state.is_saved() {
            return Ok(call.answer(&OneThread { thread: state.shown() }));
        }
    }
    let view = include_turns.then_some(ItemsView::Full);
    let thread = thread(&call.hub, thread_id, view).await?;
    Ok(call.answer(&OneThread { thread }))
}

/// Lists turns of a thread, a page at a time.
pub(super) async fn turns(call: Call, asked: TurnsList) -> Result<Answered<Page<Turn>>, RpcError> {
    threads::is_saved(&call.hub, asked.thread_id)?;
    let view = asked.items_view.unwrap_or_default();
    let thread = thread(&call.hub, asked.thread_id, Some(view)).await?;
    Ok(call.answer(&page::page(thread.turns, &asked)?))
}

/// Lists items of a thread, a page at a time.
pub(super) async fn items(
    call: Call,
    asked: ItemsList,
) -> Result<Answered<Page<ItemEntry>>, RpcError> {
    threads::is_saved(&call.hub, asked.thread_id)?;
    let thread = thread(&call.hub, asked.thread_id, Some(ItemsView::Full)).await?;
    Ok(call.answer(&page::items(thread.turns, &asked)?))
}

/// Returns some items of a turn.
pub(super) async fn read_items(
    call: Call,
    asked: ItemsRead,
) -> Result<Answered<Data<ItemEntry>>, RpcError> {
    let ItemsRead { thread_id, turn_id, item_ids } = asked;
    threads::is_saved(&call.hub, thread_id)?;
    let thread = thread(&call.hub, thread_id, Some(ItemsView::Full)).await?;
    let data = page::entries(thread.turns, Some(&turn_id))
        .filter(|entry| item_ids.iter().any(|id| *id == entry.item.body.id()))
        .collect();
    Ok(call.answer(&Data { data }))
}

/// Searches the messages of users and models, and the commands, of all threads.
pub(super) async fn search(
    call: Call,
    asked: ThreadSearch,
) -> Result<Answered<FoundThreads>, RpcError> {
    let ThreadSearch { search_term: words, limit, cursor, archived } = asked;
    if words.trim().is_empty() {
        return Err(RpcError::invalid("thread/search requires a non-empty searchTerm"));
    }
    let search = Search {
        words,
        raw: false,
        cwd: None,
        archived: archived.unwrap_or(false),
        limit: SEARCH_HITS_MAX,
    };
    let hits = call.hub.heddle().threads().search(search).await.map_err(refused)?;
    // A thread is there once, with its best hit.
    let mut seen = HashSet::new();
    let found = hits.into_iter().filter(|hit| seen.insert(hit.thread.id));
    let page = PageOf { limit: Some(limit.unwrap_or(PAGE_DEFAULT).min(PAGE_MAX)), cursor };
    let (found, next_cursor) = model::page_of(found.collect(), &page)?;
    let mut data = Vec::new();
    for hit in found {
        let snippet: String = hit.snippet.iter().map(|piece| piece.text.as_str()).collect();
        data.push(FoundThread { thread: shown(&call.hub, hit.thread).await, snippet });
    }
    Ok(call.answer(&FoundThreads { data, next_cursor, backwards_cursor: () }))
}

/// Most hits of a search; several can be in the same thread.
const SEARCH_HITS_MAX: usize = 1000;

/// Searches the messages of one thread.
pub(super) async fn occurrences(
    call: Call,
    asked: SearchOccurrences,
) -> Result<Answered<Listed<Occurrence>>, RpcError> {
    let SearchOccurrences { thread_id, search_term, page } = asked;
    threads::is_saved(&call.hub, thread_id)?;
    let thread = thread(&call.hub, thread_id, Some(ItemsView::Full)).await?;
    let page = crate::occurrences::occurrences(&thread.turns, &search_term, &page)?;
    Ok(call.answer(&Listed { data: page.data, next_cursor: page.next_cursor }))
}

/// Lists saved threads, a page at a time.
pub(super) async fn list(call: Call, asked: ThreadList) -> Result<Answered<Threads>, RpcError> {
    let ThreadList {
        limit,
        cursor,
        archived,
        cwd,
        search_term,
        model_providers,
        sort_direction,
        sort_key,
    } = asked;
    let cursor = match cursor {
        Some(text) => {
            let garbage = |_| RpcError::invalid(format!("invalid cursor: {text:.100}"));
            Some(text.parse::<Cursor>().map_err(garbage)?)
        }
        None => None,
    };
    let one = |given: Option<OneOrMany>, what: &str| match given {
        None => Ok(None),
        Some(OneOrMany::One(one)) => Ok(Some(one)),
        Some(OneOrMany::Many(many)) if many.len() <= 1 => Ok(many.into_iter().next()),
        Some(OneOrMany::Many(_)) => {
            Err(RpcError::invalid(format!("thread/list: give one {what}, or none")))
        }
    };
    let filter = Filter {
        cwd: one(cwd, "cwd")?,
        provider: one(model_providers.map(OneOrMany::Many), "model provider")?,
        name: search_term.filter(|term| !term.trim().is_empty()),
        archived: archived.unwrap_or(false),
        since_ms: None,
        until_ms: None,
    };
    let list = List {
        filter,
        sort: match sort_key.unwrap_or_default() {
            SortKey::CreatedAt | SortKey::SectionPosition => Sort::Created,
            SortKey::UpdatedAt | SortKey::RecencyAt => Sort::Updated,
        },
        direction: match sort_direction.unwrap_or_default() {
            Direction::Desc => Order::Newest,
            Direction::Asc => Order::Oldest,
        },
        limit: limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX) as usize,
        cursor,
    };
    let page = call.hub.heddle().threads().list(list).await.map_err(refused)?;
    let mut data = Vec::new();
    for found in page.threads {
        data.push(shown(&call.hub, found).await);
    }
    Ok(call.answer(&Threads {
        data,
        read_states: BTreeMap::new(),
        next_cursor: page.next.map(|next| next.to_string()),
        backwards_cursor: (),
    }))
}

async fn shown(hub: &Hub, found: Summary) -> Thread {
    let id = found.id;
    let mut thread = Thread::from_summary(found);
    add_extras(hub, id, &mut thread).await;
    if let Some(loaded) = hub.find(id) {
        add_live(&mut thread, &loaded.lock().shown());
    }
    thread
}

/// Reads a thread from disk with the items that `view` selects; without a view it has no turns.
pub(super) async fn thread(
    hub: &Hub,
    id: ThreadId,
    view: Option<ItemsView>,
) -> Result<Thread, RpcError> {
    let threads = hub.heddle().threads();
    let collected = PastThread::new(view.unwrap_or(ItemsView::NotLoaded));
    let past = match threads.read(id, collected, PastThread::line).await {
        Ok(past) => past,
        // Its first turn was requested, but has not written anything yet.
        Err(error) if error.kind() == heddle::ErrorKind::NoSuchThread => {
            let loaded = hub.find(id).ok_or_else(|| refused(error))?;
            return Ok(loaded.lock().shown());
        }
        Err(error) => return Err(refused(error)),
    };
    let found = threads.find(id).await.map_err(refused)?;
    let (path, name) = found.map(|found| (found.path, found.name)).unwrap_or_default();
    let live = hub.find(id).map(|loaded| loaded.lock().shown());
    let running = live.as_ref().is_some_and(|live| live.status.is_active());
    let mut thread = Thread {
        id: id.to_string(),
        path: path.map(|path| path.display().to_string()),
        name,
        ..past.finish(running)
    };
    if view.is_none() {
        thread.turns = Vec::new();
    }
    add_extras(hub, id, &mut thread).await;
    if let Some(live) = live {
        add_live(&mut thread, &live);
    }
    Ok(thread)
}

/// Adds what clients have changed about a thread. If that cannot be read, the thread is shown as in its log; a later change
/// of it reports the error.
async fn add_extras(hub: &Hub, id: ThreadId, thread: &mut Thread) {
    if let Ok(extras) = hub.extras(id).await {
        thread.git_info = extras.git.applied_to(thread.git_info.take());
    }
}

/// Adds the status and the environments of a loaded thread, which are not on disk.
fn add_live(thread: &mut Thread, live: &Thread) {
    thread.status = live.status.clone();
    thread.environments.clone_from(&live.environments);
    thread.can_accept_direct_input = live.can_accept_direct_input;
}
