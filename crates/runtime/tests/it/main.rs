//! The driver against a scripted endpoint, real files and real commands.
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod approvals;
mod bent;
mod host;
mod journal;
