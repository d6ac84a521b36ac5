//! The `*** Begin Patch` format: turns a model's text into a list of edits, without touching a file.
//!
//! [`Patch::parse`] checks the grammar, [`Plan::new`] locates every change in the files it is shown, and the
//! caller performs the plan. A plan exists only if the whole patch applies, so a refused patch has changed
//! nothing. [`extract`] finds a patch inside a shell script.
//!
//! Whether a path *may* be written is not decided here: the caller asks a policy about the path of each
//! [`Edit`].

pub use apply::{Change, ChangeKind, Edit, FileState, Plan, PlanError, WriteKind};
pub use heredoc::{Embedded, extract};
pub use parse::{Chunk, Line, Operation, ParseError, Patch, Problem};

mod apply;
mod diff;
mod excerpt;
mod heredoc;
mod parse;
mod seek;
