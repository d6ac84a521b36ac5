//! Tests of the crate through its public face; each file is a table behind one `check`.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rules;
