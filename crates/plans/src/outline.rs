//! What a plan says, as values with the place where each stands.

use serde::Serialize;

use crate::evidence::Evidence;
use crate::state::{Mark, State};
use crate::time::Time;

/// Everything in a plan that has a meaning; the rest of the document is kept, but not listed here.
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

/// Where something stands: its first line, counted from one, and its bytes.
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
    /// What its checkbox says, if it has one.
    pub state: Option<State>,
    pub span: Span,
}

/// Where things stand, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    pub time: Option<Time>,
    pub text: String,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The name by which edits find it: its number in the document if no other step has that, else its place.
    pub handle: String,
    pub text: String,
    pub state: State,
    /// When it was done or written down, if the text begins with that.
    pub time: Option<Time>,
    /// The step that it is a part of, counted from zero.
    pub parent: Option<usize>,
    pub depth: usize,
    pub evidence: Vec<Evidence>,
    /// What stands in the place of evidence and cannot be tried again.
    pub unread: Vec<String>,
    pub span: Span,
    #[serde(skip)]
    pub(crate) form: Form,
}

/// What a step is in the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Item { item: usize, mark: Mark },
    Row { table: usize, line: usize },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogEntry {
    pub time: Option<Time>,
    pub what: String,
    /// What came of it: a commit, lines.
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
    /// Tells whether somebody still has to do it.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Done | State::Dropped)
    }
}
