//! Reviews: turns in which a reviewer examines a change.

use protocol::review::ReviewTarget;

use super::turn::refuse_while_active;
use super::{Answered, Call, open};
use crate::message::RpcError;
use crate::request::ReviewStart;
use crate::response::ReviewStarted;
use crate::thread::Closed;
use crate::wire;

/// Starts a turn that reviews a change.
pub(super) async fn start(
    call: Call,
    start: ReviewStart,
) -> Result<Answered<ReviewStarted>, RpcError> {
    let ReviewStart { thread_id, target, delivery: _ } = start;
    let target = ReviewTarget::from(target).trimmed();
    let target = target.map_err(|blank| RpcError::invalid(blank.to_string()))?;
    let hint = target.hint();
    let _gate = call.hub.gate(thread_id).await;
    let loaded = call.hub.loaded(thread_id)?;
    open::renew(&call.hub, &loaded).await?;
    let mut state = loaded.lock();
    refuse_while_active(&state)?;
    let turn = state.open.review(target).map_err(|error| RpcError::invalid(error.to_string()))?;
    let begun = state.begin(&turn, None, heddle::now_ms());
    state.takes_no_input(Closed::Review);
    let shown = wire::Turn::of_review(begun.id, hint);
    let answered =
        call.answer(&ReviewStarted { turn: shown, review_thread_id: thread_id.to_string() });
    state.send(turn)?;
    Ok(answered)
}
