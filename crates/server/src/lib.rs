//! The app-server: threads for other programs, by JSON-RPC.
//!
//! ```text
//! transport  stdin and stdout, a Unix socket, a WebSocket: lines in, lines out
//!    serve   one connection: its requests, begun in their order
//!   method   a row and a handler for each method
//!      hub   what connections share: threads, clients, open requests to clients
//!   thread   a loaded thread: its task, its followers ── turn: events become notifications (pure)
//!     peer   a client, and the messages that it has not read yet
//! ```
//!
//! A client is trusted like the user: it may open any thread, with any settings. The calls of a model are not trusted,
//! and go through the gate of their thread.

mod ask;
pub mod diff;
mod dynamic_tool;
mod hub;
pub mod message;
mod method;
pub mod missed;
pub mod notification;
pub mod occurrences;
pub mod page;
pub mod past;
mod peer;
#[cfg(test)]
mod published;
pub mod question;
pub mod request;
mod serve;
mod thread;
pub mod transport;
pub mod turn;
pub mod wire;

pub use hub::{Hub, Options, PEERS_MAX, THREADS_MAX};
pub use method::{METHODS, Method, Stability};
pub use peer::{JOIN_BYTES, Peer, PeerId, UNREAD_BYTES_MAX, WAIT_BYTES};
pub use serve::{REQUESTS_MAX, serve};
