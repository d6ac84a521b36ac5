//! The edits that a plan supports, and why one is refused.

use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::plan::StepError;
use crate::time::Time;
use crate::words::TextError;

/// An edit of a plan. Texts are single lines: line breaks become spaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Edit {
    /// Marks a step as done, with its evidence. If it is done already, the evidence is replaced.
    Tick {
        step: String,
        #[serde(default)]
        evidence: Vec<Evidence>,
    },
    /// Reopens a step that was ticked, and removes its evidence.
    Untick {
        step: String,
        reason: String,
    },
    /// Adds a step after another one, or after the last.
    AddStep {
        #[serde(default)]
        after: Option<String>,
        text: String,
    },
    /// Adds an entry to the progress log.
    Log {
        time: Time,
        what: String,
        /// The result, such as a commit or changed lines.
        #[serde(default)]
        change: Option<String>,
    },
    Decide {
        time: Time,
        what: String,
        reason: String,
    },
    Surprise {
        what: String,
    },
    /// Replaces the current status.
    Status {
        time: Time,
        text: String,
    },
    /// Records the outcome of the whole plan.
    Finish {
        outcome: String,
    },
}

/// Why an edit was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(
        "step {step} is not ticked without evidence: give a command and its exit code, or a file and its SHA-256"
    )]
    EvidenceMissing { step: String },
    #[error(
        "{} of the evidence cannot be written: it has to be one line of visible characters{}",
        if *.is_command { "a command" } else { "a path" },
        if *.in_table { " without `\\|`, as it stands in a table" } else { "" }
    )]
    EvidenceUnwritable { is_command: bool, in_table: bool },
    #[error("step {step} has parts of which {open} are open: tick those first")]
    OpenBelow { step: String, open: usize },
    #[error("step {step} is not ticked")]
    NotTicked { step: String },
    #[error("step {step} says this already")]
    StepExists { step: String },
    #[error("the {field} cannot be written: {source}")]
    Text { field: &'static str, source: TextError },
    #[error(
        "the document has no place where this could be read again: look for a fence or a comment that nothing closes"
    )]
    NoPlace,
}
