//! Assembles a thread from settings, files, the machine and the parts that the host program provides.
//!
//! Everything here may block: it reads files, tries out sandboxes and may start the daemon. [`Heddle`](crate::Heddle)
//! runs it on a thread for blocking work.

pub(crate) mod assemble;
pub mod config_file;
pub mod given;
pub mod host;
pub(crate) mod host_tools;
pub mod local;
pub(crate) mod past;
pub(crate) mod provider;
pub mod safety;
pub(crate) mod scratch;
pub mod settings;

pub use assemble::check_output_schema;
pub use config::SCHEMA_BYTES_MAX;
