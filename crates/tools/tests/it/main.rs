//! Tools against real processes and real files.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod bench;
mod exec;
mod patch;
