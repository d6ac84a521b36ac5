//! The local inference daemon: a model in memory, behind the APIs of hosted endpoints.
//!
//! * [`engine`]: what the server wants of a model in memory;
//! * [`gguf`]: what the file of a model says of it;
//! * `llama`: the engine itself, with the feature of that name;
//! * [`models`]: models on disk, and where more come from;
//! * [`probe`]: trying a model out;
//! * [`serve`]: HTTP, limits, answers; [`tools`]: what the daemon runs itself; [`log`] and [`metrics`];
//! * [`panics`]: which panics end a request, and which the process;
//! * [`daemon`]: its life; [`home`]: its files; [`client`]: whoever wants it to live; [`service`]: keeps it.

pub mod client;
pub mod daemon;
pub mod engine;
pub mod gguf;
pub mod home;
#[cfg(any(feature = "llama", test))]
pub mod llama;
pub mod log;
pub mod metrics;
pub mod models;
pub mod panics;
pub mod probe;
pub mod serve;
pub mod service;
mod template_guard;
pub mod tools;
