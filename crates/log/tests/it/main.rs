//! Tests of the crate through its public API.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod records;
mod replay;
