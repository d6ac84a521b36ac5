//! Files that somebody else named, or can change while we use them.
//!
//! A command of a model may put a pipe, a device or a link where a file was, at any moment. So nothing
//! here waits for whoever is at the other end of something, nothing is trusted by its name, and nothing
//! is read beyond a bound: a name is opened once, and what was opened is looked at (only [`read_given`], for
//! what a person names on the command line, waits for the other end of a pipe, and not for long). Reading can still
//! take as long as a disk takes, so callers with other work do it on a thread of its own.

mod lock;
mod open;

pub use lock::{Holder, LockError, holder, lock_within};
#[cfg(unix)]
pub use open::read_given;
pub use open::{
    FileError, Kind, open, open_with, read, read_opened, read_outside, read_text, regular,
};
