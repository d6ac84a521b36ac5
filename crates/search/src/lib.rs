//! Fuzzy file search: finds files by parts of their paths, as people type them into an editor.
//!
//! A [`Walk`] lists the files below some directories step by step, and [`Files::best`] ranks them by a query. Both can be
//! cancelled, have bounded memory, and read only those files that list what to ignore.

mod rank;
mod walk;

pub use rank::Match;
pub use walk::{Files, PATH_BYTES_MAX, PATHS_MAX, Walk};
