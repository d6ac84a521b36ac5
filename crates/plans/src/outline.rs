//! The parsed content of a plan, with the position of each part.

use serde::Serialize;

use crate::evidence::Evidence;
use crate::state::{Mark, State};
use crate::time::Time;

/// Everything in a plan that has a known meaning; the document may contain more, which is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outline {
    pub title: Option<Passage>,
    pub purpose: Option<Passage>,
    pub criteria: Vec<Criterion>,
    pub status: Option<Status>,
    pub steps: Vec<Step>,
    pub log: Vec<LogEntry>,
    pub surprises: Vec<Passage>,
    pub decisions: Vec<Decision>,
    pub outcome: Option<Passage>,
}

/// A position in the document: the first line, counted from one, and the range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    pub line: usize,
    pub start: usize,
    pub end: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Passage {
    pub text: String,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Criterion {
    pub text: String,
    /// The state of its checkbox, if it has one.
    pub state: Option<State>,
    pub span: Span,
}

/// The current status, and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    pub time: Option<Time>,
    pub text: String,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The name that edits use for it: its number in the document if that is unique, or else its position (`#3`).
    pub handle: String,
    pub text: String,
    pub state: State,
    /// The time at the beginning of its text.
    pub time: Option<Time>,
    /// The index of the step that it is a part of.
    pub parent: Option<usize>,
    pub depth: usize,
    pub evidence: Vec<Evidence>,
    /// Evidence that cannot be parsed, and so cannot be checked.
    pub unread: Vec<String>,
    pub span: Span,
    #[serde(skip)]
    pub(crate) form: Form,
}

/// How a step is written in the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Item { item: usize, mark: Mark },
    Row { table: usize, line: usize },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogEntry {
    pub time: Option<Time>,
    pub what: String,
    /// The result, such as a commit or changed lines.
    pub change: Option<String>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub time: Option<Time>,
    pub what: String,
    pub reason: Option<String>,
    pub span: Span,
}

impl Step {
    /// Returns whether the step still has to be done.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Done | State::Dropped)
    }
}
