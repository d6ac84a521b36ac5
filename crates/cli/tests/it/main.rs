//! Tests of the built binary: what it reads, prints, sends and writes.
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod app_server;
mod app_server_client;
mod app_server_config;
mod app_server_extras;
mod app_server_goals;
mod app_server_guide;
mod app_server_machine;
mod app_server_schemas;
mod app_server_soak;
mod app_server_sockets;
mod bad_input;
mod chat;
mod commentary;
mod compaction;
mod daemon;
mod decode;
mod enclosed;
mod endpoint_calls;
mod examples;
mod files;
mod https;
mod interop;
mod kill;
#[cfg(feature = "local")]
mod local;
#[cfg(feature = "local")]
mod local_clients;
mod memory;
mod models;
mod npm;
mod plan_mode;
mod poisoned;
mod policy;
mod process;
mod pypi;
mod python_sdk;
mod resume;
mod review;
mod run;
mod sandbox;
mod schema;
mod sdk;
mod steps;
mod streaming;
mod threads;
mod tools;
mod transports;
mod typing;
mod wire;

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_heddle");

/// Where tests create their directories: outside of the temporary directory, which sandbox profiles leave
/// writable, and outside of any repository, which the build directory is not.
const PARENT: &str = "/var/tmp";
