//! Events in a canonical form, in which two runs can be compared and people can read them.
//!
//! Adjacent pieces of one kind are merged and empty pieces dropped; everything about a call, including a late
//! id, is placed where the call began. Token counts are left out. Commentary counts as reasoning here,
//! because scripts only distinguish the answer from everything else.

use std::collections::HashMap;
use std::ops::Range;

use protocol::usage::Usage;
use serde::Serialize;

use crate::event::{Event, Sink};

/// An event that owns its text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Canonical {
    /// The kind of the event, with its content.
    #[serde(flatten)]
    pub kind: Kind,
    /// The start and end of the input bytes that produced it; the end is exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[u64; 2]>,
}

/// The kinds of events, under the names that scripts see.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variants are those of `crate::event::Event`")]
pub enum Kind {
    Text {
        text: String,
    },
    Reasoning {
        text: String,
    },
    ReasoningSignature {
        text: String,
    },
    Refusal {
        text: String,
    },
    PlanStart,
    Plan {
        text: String,
    },
    PlanEnd {
        implicit: bool,
    },
    ToolStart {
        index: u32,
        name: String,
        id: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    ToolId {
        index: u32,
        id: String,
    },
    ToolArgs {
        index: u32,
        text: String,
    },
    ToolEnd {
        index: u32,
        complete: bool,
    },
    Error {
        kind: &'static str,
        #[serde(skip)]
        detail: String,
    },
    Usage {
        usage: Usage,
    },
    Finish {
        reason: String,
    },
}

impl From<Event<'_>> for Kind {
    fn from(event: Event<'_>) -> Self {
        let owned = |text: &str| text.to_owned();
        match event {
            Event::Text(text) => Self::Text { text: owned(text) },
            Event::Reasoning(text) | Event::Commentary(text) => {
                Self::Reasoning { text: owned(text) }
            }
            Event::ReasoningSignature(text) => Self::ReasoningSignature { text: owned(text) },
            Event::Refusal(text) => Self::Refusal { text: owned(text) },
            Event::PlanStart => Self::PlanStart,
            Event::Plan(text) => Self::Plan { text: owned(text) },
            Event::PlanEnd { implicit } => Self::PlanEnd { implicit },
            Event::ToolStart { index, name, id, signature } => Self::ToolStart {
                index,
                name: owned(name),
                id: id.map(owned),
                signature: signature.map(owned),
            },
            Event::ToolId { index, id } => Self::ToolId { index, id: owned(id) },
            Event::ToolArgs { index, text } => Self::ToolArgs { index, text: owned(text) },
            Event::ToolEnd { index, complete } => Self::ToolEnd { index, complete },
            Event::Error { kind, detail } => {
                Self::Error { kind: kind.as_str(), detail: owned(detail) }
            }
            Event::Usage(usage) => Self::Usage { usage },
            Event::Finish(reason) => Self::Finish { reason: owned(reason.as_str()) },
        }
    }
}

/// Collects events into their canonical form.
#[derive(Debug, Default)]
pub struct Collector {
    /// Each slot holds what began there: one event, or a whole call.
    places: Vec<Vec<Canonical>>,
    /// The slot of each call.
    calls: HashMap<u32, usize>,
    /// The last slot that is not an error.
    last: Option<usize>,
}

impl Collector {
    /// Returns the events; with ranges only if requested.
    pub fn into_events(self, ranges: bool) -> Vec<Canonical> {
        let mut events: Vec<_> = self.places.into_iter().flatten().collect();
        if !ranges {
            events.iter_mut().for_each(|event| event.range = None);
        }
        events
    }

    fn push(&mut self, kind: Kind, range: Range<u64>) {
        // An error between two pieces of a text does not split the text.
        let last = self.last.and_then(|at| self.places.get_mut(at));
        if let Some(last) = last.and_then(|place| place.last_mut())
            && let Some((text, more)) = merge(&mut last.kind, &kind)
        {
            text.push_str(more);
            extend(&mut last.range, range);
            return;
        }
        if !is_empty(&kind) {
            if !matches!(kind, Kind::Error { .. }) {
                self.last = Some(self.places.len());
            }
            self.places.push(vec![Canonical { kind, range: Some([range.start, range.end]) }]);
        }
    }

    fn push_call(&mut self, index: u32, kind: Kind, range: Range<u64>) {
        let Some(place) = self.calls.get(&index).and_then(|at| self.places.get_mut(*at)) else {
            return;
        };
        if let Some(last) = place.last_mut()
            && let Some((text, more)) = merge(&mut last.kind, &kind)
        {
            text.push_str(more);
            extend(&mut last.range, range);
        } else if !is_empty(&kind) {
            place.push(Canonical { kind, range: Some([range.start, range.end]) });
        }
    }
}

impl Sink for Collector {
    fn event(&mut self, event: Event<'_>, range: Range<u64>) {
        match event {
            Event::ToolStart { index, .. } => {
                self.calls.insert(index, self.places.len());
                self.push(event.into(), range);
            }
            Event::ToolId { index, id: late } => {
                let place = self.calls.get(&index).and_then(|at| self.places.get_mut(*at));
                if let Some(Canonical { kind: Kind::ToolStart { id, .. }, .. }) =
                    place.and_then(|place| place.first_mut())
                {
                    *id = Some(late.to_owned());
                }
            }
            Event::ToolArgs { index, .. } | Event::ToolEnd { index, .. } => {
                self.push_call(index, event.into(), range);
            }
            Event::Usage(_) => {}
            event => self.push(event.into(), range),
        }
    }
}

/// Returns where a piece is appended if it continues the last event.
fn merge<'a>(last: &'a mut Kind, next: &'a Kind) -> Option<(&'a mut String, &'a str)> {
    match (last, next) {
        (Kind::Text { text }, Kind::Text { text: more })
        | (Kind::Reasoning { text }, Kind::Reasoning { text: more })
        | (Kind::ReasoningSignature { text }, Kind::ReasoningSignature { text: more })
        | (Kind::Refusal { text }, Kind::Refusal { text: more })
        | (Kind::Plan { text }, Kind::Plan { text: more })
        | (Kind::ToolArgs { text, .. }, Kind::ToolArgs { text: more, .. }) => Some((text, more)),
        _ => None,
    }
}

fn is_empty(kind: &Kind) -> bool {
    match kind {
        Kind::Text { text }
        | Kind::Reasoning { text }
        | Kind::ReasoningSignature { text }
        | Kind::Refusal { text }
        | Kind::Plan { text }
        | Kind::ToolArgs { text, .. } => text.is_empty(),
        _ => false,
    }
}

fn extend(range: &mut Option<[u64; 2]>, more: Range<u64>) {
    if let Some([_, end]) = range {
        *end = more.end.max(*end);
    }
}
