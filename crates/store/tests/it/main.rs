//! Threads on disk, from the outside.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod index;
mod index_home;
