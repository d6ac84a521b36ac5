//! Living plans: Markdown documents that say what a long task is for, what is done, and what was learned.
//!
//! [`Plan::parse`] reads any text, including the `PLANS.md` of other tools: headings are matched by meaning, and everything
//! else is kept. [`Plan::apply`] makes an [`Edit`] and changes no other line. [`merge`] combines the changes of the agent
//! and of a person to the same plan; where they conflict, the person wins. [`Plan::pinned`] is the text that a model is
//! shown, and [`template`] is the beginning of a new plan.
//!
//! Nothing here opens a file, reads a clock or runs a command: evidence is parsed and written here, and checked elsewhere.

pub use apply::{Change, Splice};
pub use edit::{Edit, EditError};
pub use evidence::{Digest, DigestError, Evidence};
pub use merge::{Conflict, Merged, Place, merge};
pub use outline::{Criterion, Decision, LogEntry, Outline, Passage, Span, Status, Step};
pub use plan::{CANDIDATES_MAX, Candidate, Plan, StepError};
pub use problem::{Problem, ProblemKind};
pub use role::Role;
pub use state::State;
pub use template::template;
pub use time::{Time, TimeError};
pub use words::{TEXT_BYTES_MAX, TextError};

mod apply;
mod diff;
mod edit;
mod evidence;
mod lines;
mod merge;
mod outline;
mod pinned;
mod plan;
mod problem;
mod read;
mod role;
mod section;
mod state;
mod table;
mod template;
mod time;
mod words;
