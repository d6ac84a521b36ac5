//! The local inference daemon: a model in memory, behind the APIs of hosted endpoints.
//!
//! * [`engine`]: the server's interface to a loaded model;
//! * [`gguf`]: reads the header of a model file;
//! * `llama`: the engine itself, with the feature of that name;
//! * [`models`]: models on disk, and downloading them;
//! * [`probe`]: tries out a model;
//! * [`serve`]: HTTP, limits, answers; [`tools`]: the daemon's own tools; [`log`] and [`metrics`];
//! * [`panics`]: which panics end a request, and which the process; `template_guard`: limits the memory of chat
//!   templates;
//! * [`daemon`]: its life cycle; [`home`]: its files; [`client`]: starts, queries and stops it; [`service`]: runs
//!   it as a user service.

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
