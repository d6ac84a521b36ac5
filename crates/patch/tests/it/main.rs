//! Whole patches against files in memory.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod conformance;
mod memory;
mod plans;
mod properties;
