//! What can be done to a plan, and why it is refused.

use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::plan::StepError;
use crate::time::Time;
use crate::words::TextError;

/// One operation on a plan. Texts are single lines: line breaks become blanks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Edit {
    /// Says that a step is done, and what shows it. Of a step that is done already the evidence is replaced.
    Tick {
        step: String,
        #[serde(default)]
        evidence: Vec<Evidence>,
    },
    /// Opens a step that was ticked; its evidence goes.
    Untick {
        step: String,
        reason: String,
    },
    /// Adds a step behind another one, or behind the last.
    AddStep {
        #[serde(default)]
        after: Option<String>,
        text: String,
    },
    /// Adds an entry to the progress log.
    Log {
        time: Time,
        what: String,
        /// What came of it: a commit, lines.
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
    /// Says where things stand, in place of what was said before.
    Status {
        time: Time,
        text: String,
    },
    /// Says what came of it all.
    Finish {
        outcome: String,
    },
}

/// Why an edit changes nothing.
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
