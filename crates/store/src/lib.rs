//! Stores threads: an append-only log for each, and an index for lists and searches.
//!
//! The log is the source of truth; everything else is derived from it, and can be rebuilt. What a program keeps about a thread
//! that was never said in it is next to the logs (`extras`).
//!
//! * [`Store`]: the traits of a store; [`FileStore`] and [`MemoryStore`] implement them;
//! * [`conformance`]: test cases for other implementations;
//! * [`index`]: lists, searches, and finding a thread by name;
//! * [`disk`]: file operations, which tests can replace.

mod branch;
mod chain;
pub mod conformance;
pub mod disk;
mod end;
mod export;
mod extras;
mod file_store;
mod files;
mod fsck;
mod head;
mod import;
pub mod index;
mod line;
mod lock;
mod log;
mod manage;
mod memory;
mod names;
mod open;
mod part;
mod read;
mod scan;
mod side;
mod store;
mod thread_store;

pub use self::files::ThreadFiles;
pub use self::log::{FileLog, Syncer, WriteError, WriteErrorKind};
pub use chain::DEPTH_MAX;
pub use extras::{EXTRAS_BYTES_MAX, FOLDER as EXTRAS_FOLDER};
pub use fsck::{FileReport, Report};
pub use import::{ImportOutcome, Imported};
pub use index::FOLDER as INDEX_FOLDER;
pub use line::encode;
pub use lock::FOLDER as LOCKS_FOLDER;
pub use manage::ManageError;
pub use memory::{CopiedLines, MemoryStore};
pub use names::shown as shown_name;
pub use read::{DAMAGE_MAX, Damage, DamageKind, Note, NoteKind, ReadReport};
pub use scan::{LINE_BYTES_MAX, Reading, Stretch, stretches};
pub use store::{FileStore, Found, NewThread, OpenError, StoreError, advice};
pub use thread_store::{
    Catalog, LineSink, LogFuture, Opened, Store, StoreFuture, ThreadLog, ThreadStore,
};
