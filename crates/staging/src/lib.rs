//! The staging area of a home: files that users attach to messages.
//!
//! `staged-files/` has one file for each content, named by its SHA-256, even if several processes stage the same
//! content at once. Logs have references ([`protocol::file`]); a content that no log refers to is removed some time
//! after its last use ([`Area::clean_up`]).
//!
//! * An entry appears whole and synced, by a rename, and never changes. One that is damaged is replaced when the same
//!   content is staged again.
//! * Entries are added to the area and removed from it under one lock (`.lock`), which is held for a few system calls.
//! * A process that needs an entry has a shared lock on it ([`Staged`]), so that clean-up leaves it alone even before a
//!   log refers to it. The system releases the locks of a process when it ends.
//! * Beside a content may be its prepared form for requests (`.prepared-1`), with a digest of its own. It is removed
//!   with the content.
//! * A temporary file is locked by its writer; one that is not locked was left by a process that died.

mod area;
mod clean_up;
mod content;
mod error;
mod kind;
mod logs;
mod prepared;
mod search;

pub use area::{Area, Entry, FOLDER, SMALL_BYTES_MAX, Staged};
pub use clean_up::{CleanUp, Kept, Report};
pub use content::Limits;
pub use error::{AreaError, ReadError, StageError};
pub use kind::{HEAD_BYTES, NotSupported, Sniffer};
pub use logs::{LogScan, Mentions, Progress, Unreadable};
pub use search::Search;
