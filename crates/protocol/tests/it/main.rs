//! What crosses a process comes back as it was; each file is a table or a property behind one `check`.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod chat;
mod exec;
mod generate;
mod responses;
mod unknown;
