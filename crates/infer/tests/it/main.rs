//! Tests of the daemon's parts through their public API; the server runs with a scripted engine, over a
//! socket.
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod answers;
mod crowd;
mod death;
mod garbage;
mod gguf;
mod hub;
#[cfg(feature = "llama")]
mod kernels;
mod life;
mod limits;
#[cfg(feature = "llama")]
mod llama;
mod models;
mod own_tools;
mod panics;
mod pull;
mod routes;
mod scripted;
mod wire;
