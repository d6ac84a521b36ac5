//! The driver against a scripted endpoint, real files and real commands.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod approvals;
mod bent;
mod host;
mod journal;
