//! Tests of the crate through its public API.
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod records;
mod replay;
