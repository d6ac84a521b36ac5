//! Living plans: Markdown documents that say what a long task is for, what is done, and what was learned.
//!
//! [`Plan::parse`] reads any text, the `PLANS.md` of others too: headings are matched by what they mean, and
//! what means nothing is kept. [`Plan::apply`] carries out an [`Edit`] and changes no other line. [`merge`] puts
//! together what the agent and a person made of the same plan, and the person wins. [`Plan::pinned`] is what a
//! model is shown, [`template`] what a new plan begins with.
//!
//! Nothing here opens a file, reads a clock or runs a command: evidence is written and read here, and tried
//! again elsewhere.

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
