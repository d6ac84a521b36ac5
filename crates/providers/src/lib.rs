//! Model endpoints over HTTP.
//!
//! One attempt at a time: [`Client::open`] sends a request and returns the byte stream of the answer, or a
//! typed error with the kind of failure and when the provider accepts a retry. Whether to retry is decided in
//! `engine`; what the bytes mean, in `stream`.

mod classify;
mod client;
mod endpoint;
mod secrets;
mod tls;
mod unreachable;

pub use client::{ByteStream, Client, http};
pub use endpoint::{Auth, Endpoint, EndpointError, Identity, OPENAI_BASE_URL, Socket, WireApi};
pub use secrets::Secrets;
