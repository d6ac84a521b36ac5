//! Decodes the event stream of the Responses API.
//!
//! The type of an event is in its data; unknown types are skipped. Only complete items matter for the result:
//! deltas are for observers.
//!
//! No item is lost silently. An invalid item fails the answer, so that it is requested again. An event that
//! cannot be parsed at all becomes [`StreamEvent::Unreadable`], since it may have mattered. Items that only
//! the end of the answer lists are emitted before it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use protocol::error::{ErrorClass, SampleError};
use protocol::json;
use protocol::open;
use protocol::responses::{Completion, ResponseItem, StreamEvent, WireUsage};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

use crate::failure::{self, WireError};
use crate::sse;

/// Decodes one answer, incrementally.
#[derive(Debug, Default)]
pub struct Decoder {
    sse: sse::Decoder,
    seen: Seen,
}

/// What has been seen so far.
#[derive(Debug, Default)]
struct Seen {
    frames: u64,
    unreadable: u64,
    /// Completed items, counted by kind.
    kinds: HashMap<String, usize>,
    /// Their kinds with their ids and call ids: an output has the call id of its call.
    ids: HashSet<(String, String)>,
    /// The summary part of the last delta: its item, and its index.
    summary: Option<(Option<u64>, u64)>,
}

impl Decoder {
    /// Decodes the next bytes and appends the events they complete.
    pub fn push(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), sse::EventTooLong> {
        let Self { sse, seen } = self;
        sse.push(bytes, |data| read(data, events, seen))
    }

    /// Ends the stream, and appends the events of a last frame that was not terminated.
    pub fn finish(&mut self, events: &mut Vec<StreamEvent>) {
        let Self { sse, seen } = self;
        sse.finish(|data| read(data, events, seen));
    }

    /// Returns how many events could not be parsed, for error messages about a broken stream.
    pub fn unreadable(&self) -> u64 {
        self.seen.unreadable
    }

    /// Returns how many events of any kind have arrived; keep-alives do not count.
    pub fn frames(&self) -> u64 {
        self.seen.frames
    }
}

/// Text that borrows from the stream unless it contains escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The fields of all events we read, in one pass: most events are deltas, and they are many.
#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(rename = "type", borrow)]
    kind: Text<'a>,
    #[serde(default, borrow)]
    delta: Option<&'a RawValue>,
    #[serde(default, borrow)]
    item: Option<&'a RawValue>,
    #[serde(default, borrow)]
    output_index: Option<&'a RawValue>,
    #[serde(default, borrow)]
    summary_index: Option<&'a RawValue>,
    #[serde(default, borrow)]
    content_index: Option<&'a RawValue>,
    #[serde(default, borrow)]
    response: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireResponse<'a> {
    id: Option<String>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    end_turn: Option<bool>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    incomplete_details: Option<WireIncomplete<'a>>,
    #[serde(default, borrow)]
    output: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireIncomplete<'a> {
    #[serde(borrow)]
    reason: Option<Text<'a>>,
}

fn read(data: &[u8], events: &mut Vec<StreamEvent>, seen: &mut Seen) {
    seen.frames += 1;
    let text = String::from_utf8_lossy(data);
    // The end marker of Chat Completions, which some endpoints send here too.
    if text == "[DONE]" {
        return;
    }
    // Most events have no escape at all, and this is the fastest way to check.
    let mended = memchr::memchr(b'\\', data).map(|_| json::mend(&text));
    let text = mended.as_deref().unwrap_or(&text);
    if event(text, events, seen).is_err() {
        seen.unreadable += 1;
        events.push(StreamEvent::Unreadable);
    }
}

fn event(text: &str, events: &mut Vec<StreamEvent>, seen: &mut Seen) -> serde_json::Result<()> {
    let wire: Wire<'_> = serde_json::from_str(text)?;
    let event = match &*wire.kind.0 {
        "response.created" => StreamEvent::Created,
        "response.output_text.delta" | "response.refusal.delta" => {
            StreamEvent::TextDelta(string(wire.delta)?)
        }
        "response.reasoning_summary_text.delta" => {
            let delta = string(wire.delta)?;
            let part = seen.summary_part(wire.output_index, wire.summary_index);
            StreamEvent::SummaryDelta { part, text: delta }
        }
        "response.reasoning_text.delta" => {
            let index = wire.content_index.and_then(|index| index.get().parse().ok());
            // As with summaries, a number out of all proportion is not to be believed.
            let part = index.unwrap_or(0).min(SUMMARY_JUMP_MAX);
            StreamEvent::ReasoningDelta { part, text: string(wire.delta)? }
        }
        "response.output_item.added" => StreamEvent::ItemAdded(part(wire.item)?),
        "response.output_item.done" => {
            let item = wire.item.ok_or_else(lacking)?;
            seen.summary = None;
            seen.note(item.get());
            done(item)
        }
        "response.completed" => {
            let response: WireResponse<'_> = part(wire.response)?;
            if response.id.is_some() {
                let output: Vec<&RawValue> = part(response.output).unwrap_or_default();
                events.extend(seen.missing(&output).into_iter().map(done));
            }
            completed(response)
        }
        "response.failed" => {
            let response: WireResponse<'_> = part(wire.response)?;
            // An unreadable error is still an error.
            let error = response.error.and_then(|raw| WireError::read(raw.get()).ok());
            StreamEvent::Failed(failure::classify(&error.unwrap_or_default()))
        }
        "response.incomplete" => {
            let response: Option<WireResponse<'_>> =
                wire.response.map(|r| part(Some(r))).transpose()?;
            let reason = response.and_then(|r| r.incomplete_details).and_then(|d| d.reason);
            StreamEvent::Failed(failure::incomplete(reason.as_ref().map(|r| &*r.0)))
        }
        // Some send the error object inside the event, some send its fields as the event.
        "error" => {
            let error: WireError = match wire.error {
                Some(error) => WireError::read(error.get())?,
                // The type of such an event says only that it is an error.
                None => WireError { kind: None, ..serde_json::from_str(text)? },
            };
            StreamEvent::Failed(failure::classify(&error))
        }
        _ => return Ok(()),
    };
    events.push(event);
    Ok(())
}

/// Parses a complete item. The answer cannot continue without an invalid one.
fn done(item: &RawValue) -> StreamEvent {
    match ResponseItem::from_json(item) {
        Ok(item) => StreamEvent::ItemDone(item),
        Err(error) => {
            let kind = open::kind(item.get()).unwrap_or_default();
            let message = format!("the endpoint sent an item (`{kind}`) that is broken: {error}");
            StreamEvent::Failed(SampleError::new(ErrorClass::Disconnected, message))
        }
    }
}

/// Parts of a summary between two deltas.
const SUMMARY_JUMP_MAX: u64 = 8;

/// What identifies an item.
#[derive(Deserialize)]
struct Name<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    call_id: Option<Text<'a>>,
}

impl Name<'_> {
    fn read(json: &str) -> Option<(String, Vec<String>)> {
        let name: Name<'_> = serde_json::from_str(json).ok()?;
        let owned = |text: Option<Text<'_>>| text.map(|text| text.0.into_owned());
        let ids = owned(name.id).into_iter().chain(owned(name.call_id)).collect();
        Some((owned(name.kind).unwrap_or_default(), ids))
    }
}

impl Seen {
    /// Returns the part of the summary that the next delta belongs to.
    fn summary_part(&mut self, item: Option<&RawValue>, part: Option<&RawValue>) -> u64 {
        let number = |raw: Option<&RawValue>| raw.and_then(|raw| raw.get().parse::<u64>().ok());
        let (item, part) = (number(item), number(part).unwrap_or(0));
        let before = match self.summary {
            Some((same, before)) if same == item => before,
            _ => 0,
        };
        // One that jumps about is not to be believed.
        let part = part.clamp(
            before.saturating_sub(SUMMARY_JUMP_MAX),
            before.saturating_add(SUMMARY_JUMP_MAX),
        );
        self.summary = Some((item, part));
        part
    }

    fn note(&mut self, item: &str) {
        if let Some((kind, ids)) = Name::read(item) {
            self.ids.extend(ids.into_iter().map(|id| (kind.clone(), id)));
            *self.kinds.entry(kind).or_default() += 1;
        }
    }

    /// Returns the items of a complete answer that were never reported as done.
    ///
    /// Some endpoints give an item one id while it streams and another one here, and taking an item twice
    /// could run a call twice. So there must be more of a kind than were done, and only the surplus is taken.
    fn missing<'a>(&self, output: &[&'a RawValue]) -> Vec<&'a RawValue> {
        let names: Vec<_> = output.iter().map(|item| Name::read(item.get())).collect();
        let mut lacking: HashMap<&str, usize> = HashMap::new();
        for (kind, _) in names.iter().flatten() {
            *lacking.entry(kind).or_default() += 1;
        }
        for (kind, count) in &mut lacking {
            *count = count.saturating_sub(self.kinds.get(*kind).copied().unwrap_or_default());
        }
        // From the end, since that is where an answer is truncated.
        let mut missing = Vec::new();
        for (item, name) in output.iter().zip(&names).rev() {
            let is_missing = match name {
                // It cannot be identified, and will fail by itself.
                None => self.kinds.is_empty(),
                Some((kind, ids)) => {
                    let seen = |id: &String| self.ids.contains(&(kind.clone(), id.clone()));
                    let is_new = !ids.iter().any(seen);
                    let left = lacking.get_mut(kind.as_str()).filter(|left| **left > 0 && is_new);
                    left.map(|left| *left -= 1).is_some()
                }
            };
            if is_missing {
                missing.push(*item);
            }
        }
        missing.reverse();
        missing
    }
}

/// A completion without an id comes from a broken proxy, and cannot be trusted to be complete.
fn completed(response: WireResponse<'_>) -> StreamEvent {
    if response.id.is_none() {
        return StreamEvent::Failed(SampleError::new(
            ErrorClass::Disconnected,
            "the answer was called complete without naming its id",
        ));
    }
    // Unreadable token counts are no reason to lose a whole answer.
    let usage: WireUsage = part(response.usage).unwrap_or_default();
    StreamEvent::Completed(Completion {
        usage: usage.into(),
        total_tokens: usage.total_tokens(),
        end_turn: response.end_turn,
    })
}

fn string(raw: Option<&RawValue>) -> serde_json::Result<String> {
    part(raw)
}

/// Reads a required field; `null` counts as missing.
fn part<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> serde_json::Result<T> {
    // Not parsed as `null`, which an item would treat as an unknown kind.
    let raw = raw.ok_or_else(lacking)?;
    serde_json::from_str(raw.get())
}

fn lacking() -> serde_json::Error {
    serde_json::Error::custom("the event lacks its content")
}

#[cfg(test)]
mod tests {
    use protocol::responses::StreamEvent;

    use super::Decoder;

    #[test]
    fn a_keep_alive_is_no_event() {
        let (mut decoder, mut events) = (Decoder::default(), Vec::new());
        for (text, frames) in [
            (": ping\n\n", 0),
            ("data: {\"type\":\"response.in_progress\"}\n\n", 1),
            ("data: no JSON\n\n: ping\n\n", 2),
        ] {
            decoder.push(text.as_bytes(), &mut events).expect("it is short");
            let read = events.iter().filter(|event| **event != StreamEvent::Unreadable).count();
            assert_eq!((decoder.frames(), read), (frames, 0), "{text}");
        }
    }
}
