//! One file per command.

pub(crate) mod completion;
pub(crate) mod exec;
