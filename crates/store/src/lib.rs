//! Threads on disk: an append-only log each, and an index that can be thrown away.
//!
//! The log is the truth. What is in it is what happened; everything else is made from it.

mod line;
mod log;
mod read;
mod store;

pub use line::encode;
pub use log::{Log, Syncer, WriteError};
pub use read::{Damage, DamageKind, ReadReport};
pub use store::{Found, NewThread, OpenError, Store, StoreError};
