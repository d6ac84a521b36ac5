//! From settings to a thread: what it is put together from, and the order in which that happens.
//!
//! Everything here may block: files are read, sandboxes are tried out, a daemon may be started. [`Heddle`](crate::Heddle)
//! runs it where nobody waits for it.

pub(crate) mod assemble;
pub mod host;
pub mod local;
pub(crate) mod past;
pub(crate) mod provider;
pub mod safety;
pub mod settings;

pub use assemble::check_output_schema;
pub use config::SCHEMA_BYTES_MAX;
