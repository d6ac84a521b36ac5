//! Completes a turn whose process died.

use std::collections::HashMap;

use log::history_item;
use protocol::responses::{CallOutput, KnownItem, OutputBody};

use crate::fold::{Folded, Origin};

/// Returns what must be appended to the log of a thread whose process ended in the middle of a turn: an
/// output for every call without one.
pub fn heal(folded: &Folded) -> Vec<KnownItem> {
    if folded.open_turn.is_none() {
        return Vec::new();
    }
    // Calls that can still lack an output come after the user's last message.
    let tail = folded.entries.iter().rposition(|entry| entry.origin == Origin::User);
    let tail = &folded.entries[tail.map_or(0, |at| at + 1)..];
    let mut calls: Vec<(String, bool)> = Vec::new();
    let mut outputs: HashMap<String, usize> = HashMap::new();
    for item in tail.iter().filter_map(|entry| history_item::read(entry.wire.as_str()).ok()) {
        match item {
            KnownItem::FunctionCall(call) => calls.push((call.call_id, false)),
            KnownItem::CustomToolCall(call) => calls.push((call.call_id, true)),
            KnownItem::FunctionCallOutput(output) | KnownItem::CustomToolCallOutput(output) => {
                *outputs.entry(output.call_id).or_default() += 1;
            }
            KnownItem::Message(_) | KnownItem::Reasoning(_) | KnownItem::WebSearchCall(_) => {}
        }
    }
    let returned: HashMap<&str, &OutputBody> =
        folded.returned.iter().map(|back| (back.call_id.as_str(), &back.output)).collect();
    let mut added = Vec::new();
    for (call_id, custom) in calls {
        // An output cannot refer to a call without an id; `sendable` handles such a history.
        if call_id.is_empty() {
            continue;
        }
        if let Some(left) = outputs.get_mut(&call_id).filter(|left| **left > 0) {
            *left -= 1;
            continue;
        }
        let output = returned.get(call_id.as_str()).copied().cloned();
        let output = output.unwrap_or_else(|| OutputBody::Text(PROCESS_ENDED.to_owned()));
        let output = CallOutput::new(call_id, output);
        added.push(if custom {
            KnownItem::CustomToolCallOutput(output)
        } else {
            KnownItem::FunctionCallOutput(output)
        });
    }
    added
}

/// What the model reads about a call that was running when the process ended.
pub const PROCESS_ENDED: &str = "\
The agent's process ended before this call did. It may have run in part, in whole or not at all: check what it \
has done before you do it again.";
