//! Logs of all kinds fold to a history, and any history becomes one that a strict endpoint accepts.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "the crate reads no file, but its tests have data")]

mod broken;
mod endpoint;
mod fold;
mod generate;
mod large;
mod properties;
mod vouched;
