//! Test fixtures for the other crates: a scripted model endpoint, a strict one that validates requests,
//! temporary homes and workspaces, a manual clock, models to load, logs of threads, the replay of recorded runs, and a copy of what the
//! reference publishes of its wire format.
//!
//! A dev-dependency only. It uses plain threads and no async runtime, so that a test of the runtime never
//! shares an executor with the endpoint it talks to.

pub mod chat;
pub mod clock;
pub mod gguf;
pub mod lab;
mod model;
pub mod reference;
pub mod replay;
pub mod saved;
pub mod script;
pub mod server;
pub mod strict;

pub use clock::Clock;
pub use lab::{Home, Lab, Workspace};
pub use model::model;
pub use script::{Choice, Entry, Script, ScriptError};
pub use server::{ModelServer, Recorded, StartError};
pub use strict::{Refusal, Strict};
