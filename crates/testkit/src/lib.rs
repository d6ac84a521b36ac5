//! What the tests of the other crates stand on: a scripted model endpoint, one that is strict
//! about what it is sent, throw-away homes and workspaces, a clock moved by hand, and the replay of
//! recorded runs.
//!
//! A dev-dependency only. It uses plain threads and no async runtime, so that a test of the runtime
//! never shares an executor with the endpoint it talks to.

pub mod chat;
pub mod clock;
pub mod lab;
pub mod replay;
pub mod script;
pub mod server;
pub mod strict;

pub use clock::Clock;
pub use lab::{Home, Lab, Workspace};
pub use script::{Choice, Entry, Script, ScriptError};
pub use server::{ModelServer, Recorded, StartError};
pub use strict::{Refusal, Strict};
