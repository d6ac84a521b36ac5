//! Reading files that a person names, on a command line for instance: whatever is in their place, nothing blocks for long,
//! and nothing is read beyond a limit.

pub use ::files::{FileError, Kind, open, read_given, read_text};
