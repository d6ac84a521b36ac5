//! The events of the Responses API, from the bytes of its stream.
//!
//! The type of an event stands in its data; unknown types are skipped. Only whole items matter for
//! the outcome: deltas are for those who watch.

use std::borrow::Cow;

use protocol::error::{ErrorClass, SampleError};
use protocol::responses::{Completion, StreamEvent, WireUsage};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

use crate::failure::{self, WireError};
use crate::sse;

/// An incremental decoder.
#[derive(Debug, Default)]
pub struct Decoder {
    sse: sse::Decoder,
    seen: Seen,
}

/// What has gone by.
#[derive(Debug, Default)]
struct Seen {
    frames: u64,
    unreadable: u64,
}

impl Decoder {
    /// Takes the next bytes and appends the events that they complete.
    pub fn push(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), sse::EventTooLong> {
        let Self { sse, seen } = self;
        sse.push(bytes, |data| read(data, events, seen))
    }

    /// Ends the stream.
    pub fn finish(&mut self, events: &mut Vec<StreamEvent>) {
        let Self { sse, seen } = self;
        sse.finish(|data| read(data, events, seen));
    }

    /// Returns how many events could not be read; useful in the message about a stream that broke off.
    pub fn unreadable(&self) -> u64 {
        self.seen.unreadable
    }

    /// Returns how many events have come, of whatever kind; a keep-alive is none.
    pub fn frames(&self) -> u64 {
        self.seen.frames
    }
}

/// Text that borrows from the stream unless it has escapes.
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
}

#[derive(Deserialize)]
struct WireIncomplete<'a> {
    #[serde(borrow)]
    reason: Option<Text<'a>>,
}

fn read(data: &[u8], events: &mut Vec<StreamEvent>, seen: &mut Seen) {
    seen.frames += 1;
    let text = String::from_utf8_lossy(data);
    // The closing word of Chat Completions, which some endpoints send here too.
    if text == "[DONE]" {
        return;
    }
    match event(&text) {
        Ok(Some(event)) => events.push(event),
        Ok(None) => {}
        Err(_) => seen.unreadable += 1,
    }
}

fn event(text: &str) -> serde_json::Result<Option<StreamEvent>> {
    let wire: Wire<'_> = serde_json::from_str(text)?;
    let event = match &*wire.kind.0 {
        "response.created" => StreamEvent::Created,
        "response.output_text.delta" | "response.refusal.delta" => {
            StreamEvent::TextDelta(string(wire.delta)?)
        }
        "response.reasoning_summary_text.delta" => StreamEvent::ReasoningDelta(string(wire.delta)?),
        "response.output_item.added" => StreamEvent::ItemAdded(part(wire.item)?),
        "response.output_item.done" => StreamEvent::ItemDone(part(wire.item)?),
        "response.completed" => completed(part(wire.response)?),
        "response.failed" => {
            let response: WireResponse<'_> = part(wire.response)?;
            // An error in a form that nobody can read is an error all the same.
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
        _ => return Ok(None),
    };
    Ok(Some(event))
}

/// A completion without an id is what a broken proxy sends; it cannot be trusted to be whole.
fn completed(response: WireResponse<'_>) -> StreamEvent {
    if response.id.is_none() {
        return StreamEvent::Failed(SampleError::new(
            ErrorClass::Disconnected,
            "the answer was called complete without naming its id",
        ));
    }
    // Counts in a form that nobody can read are no reason to lose a whole answer.
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

/// Reads a field that its event cannot do without; `null` counts as missing.
fn part<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> serde_json::Result<T> {
    // Not read as `null`: an item would take that for one of an unknown kind.
    let raw = raw.ok_or_else(|| serde_json::Error::custom("the event lacks its content"))?;
    serde_json::from_str(raw.get())
}

#[cfg(test)]
mod tests {
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
            assert_eq!((decoder.frames(), events.len()), (frames, 0), "{text}");
        }
    }
}
