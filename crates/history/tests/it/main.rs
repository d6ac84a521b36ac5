//! Logs of all kinds fold to a history, and any history becomes one that a strict endpoint accepts.

#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]
#![expect(
    clippy::disallowed_methods,
    reason = "test cases are files; only the crate itself does no I/O"
)]

mod broken;
mod endpoint;
mod fold;
mod generate;
mod large;
mod properties;
mod vouched;
