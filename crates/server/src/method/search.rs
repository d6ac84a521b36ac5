//! `fuzzyFileSearch`: finds files by parts of their paths.

use super::{Answered, Call};
use crate::message::RpcError;
use crate::request::{FileSearch, OfSearch, SearchStart, SearchUpdate, check_query, check_roots};
use crate::response::{Done, FoundFiles};
use crate::searches::Roots;

pub(super) async fn once(call: Call, search: FileSearch) -> Result<Answered<FoundFiles>, RpcError> {
    let FileSearch { query, roots, cancellation_token } = search;
    check_query(&query)?;
    let roots = roots_of(&call, roots)?;
    let found = call.hub.searches().once(call.peer.id(), cancellation_token, &roots, query).await?;
    Ok(call.answer(&FoundFiles { files: found }))
}

/// Starts a search with a changing query.
pub(super) async fn start(call: Call, start: SearchStart) -> Result<Answered, RpcError> {
    let SearchStart { session_id, roots } = start;
    if session_id.is_empty() {
        return Err(RpcError::invalid("sessionId must not be empty"));
    }
    if roots.is_empty() {
        return Err(RpcError::internal(
            "failed to start fuzzy file search session: at least one search directory is required",
        ));
    }
    let roots = roots_of(&call, roots)?;
    let session = call.hub.searches().start(&call.peer, session_id, roots)?;
    let answered = call.answer(&Done {});
    call.hub.searches().work(session);
    Ok(answered)
}

pub(super) async fn update(call: Call, update: SearchUpdate) -> Result<Answered, RpcError> {
    check_query(&update.query)?;
    let session = call.hub.searches().find(call.peer.id(), update.session_id)?;
    let answered = call.answer(&Done {});
    session.ask(update.query);
    call.hub.searches().work(session);
    Ok(answered)
}

pub(super) async fn stop(call: Call, of: OfSearch) -> Result<Answered, RpcError> {
    call.hub.searches().stop(call.peer.id(), of.session_id);
    Ok(call.answer(&Done {}))
}

// It looks at the directories at once, and not on a thread for that: the next request may already be about this search.
fn roots_of(call: &Call, names: Vec<String>) -> Result<Roots, RpcError> {
    check_roots(&names)?;
    Roots::find(names, call.hub.heddle().directory())
}
