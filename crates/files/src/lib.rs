//! Access to files whose path comes from elsewhere, or that can change while we use them.
//!
//! A model's command may replace a file with a pipe, a device or a symbolic link at any moment. So nothing
//! here blocks on a peer, trusts a path, or reads beyond a limit: a path is opened once, and the checks are
//! made on the open file. The exception is [`read_given`], for paths that a person gives on the command line:
//! it waits for the writer of a pipe, with a timeout. Reading can still take as long as the disk takes, so
//! callers with other work do it on a separate thread.

mod lock;
mod open;

pub use lock::{Holder, LockError, holder, lock_within};
#[cfg(unix)]
pub use open::read_given;
pub use open::{
    FileError, Kind, open, open_own, open_with, read, read_opened, read_outside, read_text, regular,
};
