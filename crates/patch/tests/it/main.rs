//! Whole patches against files in memory.
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod conformance;
mod memory;
mod plans;
mod properties;
