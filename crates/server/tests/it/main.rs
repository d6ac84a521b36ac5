//! Tests of what the crate shows to other programs.

#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod schemas;
