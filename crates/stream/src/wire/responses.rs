//! Parses the streamed events of the Responses API.
//!
//! Everything is sent up to three times: in deltas, in the event that ends a part, and in the item. After the
//! deltas the rest must be ignored, but some endpoints send only the rest, so it is tracked what was emitted
//! of each item. `crate::responses` reads the same stream for callers that want complete items.

use protocol::responses::WireUsage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::NAME_BYTES_MAX;
use crate::event::{ErrorKind, FinishReason};
use crate::wire::call::{Call, End};
use crate::wire::{Out, Provider, arguments, failure, number, part, text, word};

/// Parses the events of one answer.
#[derive(Debug, Default)]
pub(crate) struct Responses {
    items: Vec<Item>,
    limit_reported: bool,
}

/// What is tracked of an item.
#[derive(Debug, Default)]
struct Item {
    index: Option<u64>,
    id: String,
    call_id: String,
    /// Which parts were emitted, one bit each.
    said: [u64; 3],
    call: Option<Call>,
    /// Arguments came for a call that has not begun; its end repeats them.
    is_nameless: bool,
    is_done: bool,
}

/// The lists of parts that an item has.
#[derive(Clone, Copy)]
enum List {
    Content,
    Summary,
    Reasoning,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    output_index: Option<&'a RawValue>,
    #[serde(borrow)]
    item_id: Option<&'a RawValue>,
    #[serde(borrow)]
    content_index: Option<&'a RawValue>,
    #[serde(borrow)]
    summary_index: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    /// For an answer that was not streamed.
    #[serde(borrow)]
    output: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireItem<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    encrypted_content: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Response<'a> {
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    incomplete_details: Option<Incomplete<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Incomplete<'a> {
    #[serde(borrow)]
    reason: Option<&'a RawValue>,
}

impl Provider for Responses {
    fn read(&mut self, name: &str, json: &str, out: &mut Out<'_>) -> serde_json::Result<()> {
        let wire: Wire<'_> = serde_json::from_str(json)?;
        let kind = text(wire.kind);
        let kind = if kind.is_empty() { name } else { &*kind };
        // An empty delta must not hide the event with the full text.
        let delta = text(wire.delta);
        match kind {
            _ if kind.ends_with(".delta") && delta.is_empty() => {}
            "response.output_text.delta" => {
                self.mark_emitted(&wire, List::Content, wire.content_index, out);
                out.text(&delta);
            }
            "response.refusal.delta" => {
                self.mark_emitted(&wire, List::Content, wire.content_index, out);
                out.refusal(&delta);
            }
            "response.reasoning_summary_text.delta" => {
                self.mark_emitted(&wire, List::Summary, wire.summary_index, out);
                out.reasoning(&delta);
            }
            "response.reasoning_text.delta" => {
                self.mark_emitted(&wire, List::Reasoning, wire.content_index, out);
                out.reasoning(&delta);
            }
            "response.output_text.done" => {
                if !self.mark_emitted(&wire, List::Content, wire.content_index, out) {
                    out.text(&text(wire.text));
                }
            }
            "response.refusal.done" => {
                if !self.mark_emitted(&wire, List::Content, wire.content_index, out) {
                    out.refusal(&text(wire.refusal));
                }
            }
            "response.reasoning_summary_text.done" => {
                if !self.mark_emitted(&wire, List::Summary, wire.summary_index, out) {
                    out.reasoning(&text(wire.text));
                }
            }
            "response.reasoning_text.done" => {
                if !self.mark_emitted(&wire, List::Reasoning, wire.content_index, out) {
                    out.reasoning(&text(wire.text));
                }
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.args(&wire, &delta, out);
            }
            "response.function_call_arguments.done" | "response.custom_tool_call_input.done" => {
                self.args_done(&wire, out);
            }
            "response.output_item.added" => {
                let item = part(wire.item);
                self.added(number(wire.output_index), &item, out);
            }
            "response.output_item.done" => {
                let item = part(wire.item);
                self.done(number(wire.output_index), &item, out);
            }
            "response.completed"
            | "response.done"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                let response = part(wire.response);
                self.handle_end(kind.strip_prefix("response."), json, &response, out);
            }
            "error" => out.upstream(&failure(wire.error).unwrap_or(json.into())),
            _ if text(wire.object) == "response" || wire.output.is_some() => {
                let response = serde_json::from_str(json)?;
                self.handle_end(None, json, &response, out);
            }
            _ => {
                if let Some(error) = failure(wire.error) {
                    out.upstream(&error);
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Out<'_>) {
        self.end_all(End::Cut, out);
        out.finish_without_last_word();
    }
}

impl Responses {
    /// Records that a part was emitted; returns whether it was before.
    fn mark_emitted(
        &mut self,
        wire: &Wire<'_>,
        list: List,
        part: Option<&RawValue>,
        out: &mut Out<'_>,
    ) -> bool {
        let Some(at) = self.find_or_open(wire, out) else { return false };
        self.items[at].says(list, number(part).unwrap_or_default())
    }

    fn args(&mut self, wire: &Wire<'_>, piece: &str, out: &mut Out<'_>) {
        let Some(at) = self.find_or_open(wire, out) else { return };
        let item = &mut self.items[at];
        match &mut item.call {
            Some(call) => call.args(piece, out),
            None => item.is_nameless |= !item.is_done,
        }
    }

    fn args_done(&mut self, wire: &Wire<'_>, out: &mut Out<'_>) {
        let whole = arguments(wire.arguments.or(wire.input));
        if let Some(at) = self.find(number(wire.output_index), &word(wire.item_id))
            && let Some(call) = &mut self.items[at].call
            && !call.has_args()
        {
            call.args(&whole, out);
        }
    }

    fn added(&mut self, index: Option<u64>, wire: &WireItem<'_>, out: &mut Out<'_>) {
        let (id, call_id) = (word(wire.id), word(wire.call_id));
        let known = self.find(index, &id).filter(|at| {
            let item = &self.items[*at];
            (index.is_some() || !id.is_empty()) && !item.is_done && item.call.is_none()
        });
        if let Some(at) = known.or_else(|| self.open(index, &id, &call_id, out)) {
            self.start(at, wire, out);
        }
    }

    /// Starts the call of an item, if it is one.
    fn start(&mut self, at: usize, wire: &WireItem<'_>, out: &mut Out<'_>) {
        let kind = text(wire.kind);
        if !matches!(&*kind, "function_call" | "custom_tool_call") {
            return;
        }
        let (name, call_id) = (text(wire.name), word(wire.call_id));
        let item = &mut self.items[at];
        item.call_id = bounded(&call_id);
        if name.is_empty() {
            item.is_nameless = true;
            return;
        }
        if name.len() > NAME_BYTES_MAX || call_id.len() > NAME_BYTES_MAX {
            item.is_done = true;
            return self.tell_limit("the name or the id of a call is too long", out);
        }
        item.is_nameless = false;
        let id = (!call_id.is_empty()).then_some(&*call_id);
        item.call = Some(if kind == "custom_tool_call" {
            Call::start_free(&name, id, out)
        } else {
            Call::start(&name, id, None, out)
        });
    }

    fn done(&mut self, index: Option<u64>, wire: &WireItem<'_>, out: &mut Out<'_>) {
        let (id, call_id) = (word(wire.id), word(wire.call_id));
        let at = match self.find(index, &id) {
            Some(at) if !self.items[at].is_done => at,
            Some(at) if self.items[at].is(&id, &call_id) => return,
            // Its index was used before, so the index means nothing.
            _ => match self.open(index, &id, &call_id, out) {
                Some(at) => at,
                None => return,
            },
        };
        if self.items[at].call.is_none() {
            self.start(at, wire, out);
        }
        let item = &mut self.items[at];
        item.is_done = true;
        match &*text(wire.kind) {
            "message" => {
                for (at, part) in part::<Vec<Part<'_>>>(wire.content).iter().enumerate() {
                    if !item.says(List::Content, at as u64) {
                        out.text(&text(part.text));
                        out.refusal(&text(part.refusal));
                    }
                }
            }
            "reasoning" => {
                for (at, part) in part::<Vec<Part<'_>>>(wire.summary).iter().enumerate() {
                    if !item.says(List::Summary, at as u64) {
                        out.reasoning(&text(part.text));
                    }
                }
                for (at, part) in part::<Vec<Part<'_>>>(wire.content).iter().enumerate() {
                    if !item.says(List::Reasoning, at as u64) {
                        out.reasoning(&text(part.text));
                    }
                }
                out.signature(&text(wire.encrypted_content));
            }
            _ => {}
        }
        if let Some(mut call) = item.call.take() {
            if !call.has_args() {
                call.args(&arguments(wire.arguments.or(wire.input)), out);
            }
            let cut = text(wire.status) == "incomplete";
            call.end(if cut { End::Cut } else { End::Said }, out);
        } else if std::mem::take(&mut item.is_nameless) {
            out.error(ErrorKind::MalformedCall, "a call has no name");
        }
    }

    /// Handles the final event of the answer.
    fn handle_end(
        &mut self,
        status: Option<&str>,
        json: &str,
        response: &Response<'_>,
        out: &mut Out<'_>,
    ) {
        // If nothing else was sent, the answer is in here.
        if self.items.is_empty() {
            for (at, item) in part::<Vec<WireItem<'_>>>(response.output).iter().enumerate() {
                self.done(Some(at as u64), item, out);
            }
        }
        let stated = text(response.status);
        let status = match status {
            None | Some("done") => &*stated,
            Some(status) => status,
        };
        let is_whole = matches!(status, "completed" | "");
        self.end_all(if is_whole { End::Said } else { End::Cut }, out);
        if let Ok(usage) =
            serde_json::from_str::<WireUsage>(response.usage.map_or("", RawValue::get))
        {
            out.reported.usage = Some(usage.into());
        }
        let details = response.incomplete_details.as_ref();
        let reason = text(details.and_then(|details| details.reason));
        match (status, &*reason) {
            ("failed", _) => {
                out.upstream(&failure(response.error).unwrap_or(json.into()));
                out.finish(FinishReason::Error);
            }
            ("incomplete", "max_output_tokens" | "max_tokens" | "length") => {
                out.finish(FinishReason::Length);
            }
            ("incomplete", "content_filter") => out.finish(FinishReason::ContentFilter),
            ("incomplete", reason) if !reason.is_empty() => {
                out.finish(FinishReason::Other(reason));
            }
            ("completed" | "", _) => out.finish(out.stopped()),
            (other, _) => out.finish(FinishReason::Other(other)),
        }
        out.give_usage();
    }

    fn end_all(&mut self, end: End, out: &mut Out<'_>) {
        for item in &mut self.items {
            item.is_done = true;
            if let Some(call) = item.call.take() {
                call.end(end, out);
            } else if std::mem::take(&mut item.is_nameless) {
                out.error(ErrorKind::MalformedCall, "a call has no name");
            }
        }
    }

    fn find_or_open(&mut self, wire: &Wire<'_>, out: &mut Out<'_>) -> Option<usize> {
        let (index, id) = (number(wire.output_index), word(wire.item_id));
        self.find(index, &id).or_else(|| self.open(index, &id, "", out))
    }

    /// Finds an item by its index, or by its id; without either, the current one.
    ///
    /// The index comes first: some endpoints hide ids by changing them each time.
    fn find(&self, index: Option<u64>, id: &str) -> Option<usize> {
        let by_index = index.and_then(|_| self.items.iter().rposition(|item| item.index == index));
        let by_id = || {
            (!id.is_empty()).then(|| self.items.iter().rposition(|item| item.id == id)).flatten()
        };
        let is_known = index.is_some() || !id.is_empty();
        by_index.or_else(by_id).or_else(|| {
            let last = self.items.len().checked_sub(1)?;
            (!is_known && !self.items[last].is_done).then_some(last)
        })
    }

    fn open(
        &mut self,
        index: Option<u64>,
        id: &str,
        call_id: &str,
        out: &mut Out<'_>,
    ) -> Option<usize> {
        if self.items.len() >= ITEMS_MAX {
            self.tell_limit("the answer has too many items", out);
            return None;
        }
        let (id, call_id) = (bounded(id), bounded(call_id));
        self.items.push(Item { index, id, call_id, ..Item::default() });
        Some(self.items.len() - 1)
    }

    fn tell_limit(&mut self, why: &str, out: &mut Out<'_>) {
        if !self.limit_reported {
            self.limit_reported = true;
            out.error(ErrorKind::Limit, why);
        }
    }
}

impl Item {
    fn says(&mut self, list: List, part: u64) -> bool {
        // Parts beyond the last bit share it: they are not distinguished, and come as deltas anyway.
        let bit = 1 << part.min(63);
        let said = &mut self.said[list as usize];
        let before = *said & bit != 0;
        *said |= bit;
        before
    }

    fn is(&self, id: &str, call_id: &str) -> bool {
        if id.is_empty() { self.call_id == call_id } else { self.id == id }
    }
}

/// Keeps an id for comparison only if it has a reasonable length.
fn bounded(id: &str) -> String {
    if id.len() <= NAME_BYTES_MAX { id.to_owned() } else { String::new() }
}

/// Most items of one answer.
const ITEMS_MAX: usize = 4096;
