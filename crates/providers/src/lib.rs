//! Model endpoints over HTTP.
//!
//! One attempt at a time: [`Client::open`] sends a request and gives its stream of bytes, or a typed
//! error that says what kind of failure it was and when the provider wants to see us again. Whether
//! to try again is not decided here but in `engine`; what the bytes mean, in `stream`.

mod classify;
mod client;
mod endpoint;
mod tls;
mod unreachable;

pub use client::{ByteStream, Client, http};
pub use endpoint::{Auth, Endpoint, EndpointError, Identity, OPENAI_BASE_URL, Socket, WireApi};
