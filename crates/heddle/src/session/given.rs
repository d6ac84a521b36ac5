//! Reads files that a user names, such as on the command line: a pipe or device in their place does not block for long, and
//! nothing is read beyond a limit.

pub use ::files::{FileError, Kind, open, read_given, read_text};
