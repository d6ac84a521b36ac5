//! Everything that crosses a process round-trips; each file is a table or a property behind one `check`.

#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod chat;
mod exec;
mod generate;
mod responses;
mod unknown;
