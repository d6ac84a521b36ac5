//! Events in the form in which two runs can be compared, and people read them.
//!
//! Adjacent pieces of one kind are one, empty pieces none; what belongs to a call stands where the call
//! began, an id that came late with it. Token counts are left out.

use std::collections::HashMap;
use std::ops::Range;

use serde::Serialize;

use crate::event::{Event, Sink};

/// An event that owns what it says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Canonical {
    /// What it is.
    #[serde(flatten)]
    pub kind: Kind,
    /// The first and the last of the input bytes that it was made of; the end is not included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[u64; 2]>,
}

/// The kinds of events, named as scripts see them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is the event of the same name in `crate::event::Event`")]
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
    Finish {
        reason: String,
    },
}

/// Gathers events into their canonical form.
#[derive(Debug, Default)]
pub struct Collector {
    /// Each place holds what began there: one event, or a whole call.
    places: Vec<Vec<Canonical>>,
    /// Where a call's place is.
    calls: HashMap<u32, usize>,
    /// The last place that is not an error.
    last: Option<usize>,
}

impl Collector {
    /// Returns the events; ranges only if asked for.
    pub fn into_events(self, ranges: bool) -> Vec<Canonical> {
        let mut events: Vec<_> = self.places.into_iter().flatten().collect();
        if !ranges {
            events.iter_mut().for_each(|event| event.range = None);
        }
        events
    }

    fn push(&mut self, kind: Kind, range: Range<u64>) {
        // An error between two pieces of a text does not make two texts of it.
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
        let text = |text: &str| text.to_owned();
        match event {
            Event::Text(piece) => self.push(Kind::Text { text: text(piece) }, range),
            Event::Reasoning(piece) => self.push(Kind::Reasoning { text: text(piece) }, range),
            Event::ReasoningSignature(piece) => {
                self.push(Kind::ReasoningSignature { text: text(piece) }, range);
            }
            Event::Refusal(piece) => self.push(Kind::Refusal { text: text(piece) }, range),
            Event::PlanStart => self.push(Kind::PlanStart, range),
            Event::Plan(piece) => self.push(Kind::Plan { text: text(piece) }, range),
            Event::PlanEnd { implicit } => self.push(Kind::PlanEnd { implicit }, range),
            Event::ToolStart { index, name, id, signature } => {
                self.calls.insert(index, self.places.len());
                let (name, id, signature) = (text(name), id.map(text), signature.map(text));
                self.push(Kind::ToolStart { index, name, id, signature }, range);
            }
            Event::ToolId { index, id: late } => {
                let place = self.calls.get(&index).and_then(|at| self.places.get_mut(*at));
                if let Some(Canonical { kind: Kind::ToolStart { id, .. }, .. }) =
                    place.and_then(|place| place.first_mut())
                {
                    *id = Some(text(late));
                }
            }
            Event::ToolArgs { index, text: piece } => {
                self.push_call(index, Kind::ToolArgs { index, text: text(piece) }, range);
            }
            Event::ToolEnd { index, complete } => {
                self.push_call(index, Kind::ToolEnd { index, complete }, range);
            }
            Event::Error { kind, detail } => {
                let kind = Kind::Error { kind: kind.as_str(), detail: text(detail) };
                self.push(kind, range);
            }
            Event::Finish(reason) => {
                self.push(Kind::Finish { reason: text(reason.as_str()) }, range);
            }
            Event::Usage(_) => {}
        }
    }
}

/// Returns where a piece goes if it continues what came last.
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
