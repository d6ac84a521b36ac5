//! Bytes to events, incrementally, without I/O.
//!
//! Every decoder here takes bytes as they come and gives the same events however they were cut.
//! None of them fails on garbage: what cannot be read is skipped and counted.
//!
//! * [`utf8`]: bytes to text;
//! * [`json`]: text to the events of a JSON document;
//! * [`sse`]: the framing of `text/event-stream`;
//! * [`responses`]: the events of the Responses API;
//! * [`failure`]: what a provider's error object means.

pub mod canonical;
pub mod dialect;
pub mod document;
mod escape;
pub mod event;
pub mod face;
pub mod failure;
pub mod json;
pub mod responses;
mod shape;
pub mod sse;
pub mod utf8;
mod wire;
