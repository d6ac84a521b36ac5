//! Tools against real processes and real files.
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod bench;
mod exec;
mod patch;
