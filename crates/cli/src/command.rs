//! The subcommands of `heddle`, one file each.

pub(crate) mod app_server;
pub(crate) mod completion;
pub(crate) mod daemon;
pub(crate) mod decode;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod models;
pub(crate) mod policy;
pub(crate) mod sandbox;
pub(crate) mod threads;
pub(crate) mod tools;
