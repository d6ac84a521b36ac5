//! Finds files by parts of their names, as people type them into an editor.
//!
//! A [`Walk`] lists the files below some directories, piece by piece, and [`Files::best`] ranks them by a query. Both stop
//! when they are told to, hold no more than a bound, and read no file but those that say what to ignore.

mod rank;
mod walk;

pub use rank::Match;
pub use walk::{Files, PATH_BYTES_MAX, PATHS_MAX, Walk};
