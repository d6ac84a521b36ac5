//! The `*** Begin Patch` format: from a model's text to a list of edits, touching no file.
//!
//! [`Patch::parse`] checks the grammar, [`Plan::new`] finds every change in the files it is shown,
//! and the caller performs the plan. A plan exists only when the whole patch fits, so a patch
//! that is refused has changed nothing. [`extract`] finds a patch inside a shell script.
//!
//! Whether a path *may* be written is not decided here: a policy is asked about the path of each
//! [`Edit`].

pub use apply::{Change, ChangeKind, Edit, FileState, Plan, PlanError, WriteKind};
pub use heredoc::{Embedded, extract};
pub use parse::{Chunk, Line, Operation, ParseError, Patch, Problem};

mod apply;
mod excerpt;
mod heredoc;
mod parse;
mod seek;
