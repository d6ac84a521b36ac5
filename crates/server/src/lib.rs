//! The app-server: threads for other programs, by JSON-RPC.
//!
//! ```text
//! transport  stdin and stdout, a Unix socket, a WebSocket: lines in, lines out
//!    serve   one connection: its requests, begun in their order
//!   method   a row and a handler for each method
//!      hub   what connections share: threads, clients, what clients were asked
//!   thread   a loaded thread: its task, who follows it ── turn: events become notifications (pure)
//!     peer   a client, and what it still has to read
//!    watch   the files that clients watch; processes: the commands that they run;
//!            searches: the files that they look for
//! ```
//!
//! A client is trusted as the user is: it may open any thread, with any settings. What a model causes is not, and goes
//! through the gate of its thread.

mod ask;
mod dynamic_tool;
mod hub;
pub mod message;
mod method;
pub mod notification;
pub mod page;
pub mod past;
mod peer;
mod processes;
#[cfg(test)]
mod published;
pub mod question;
pub mod request;
mod searches;
mod serve;
mod thread;
pub mod transport;
pub mod turn;
mod watch;
pub mod wire;

pub use hub::{Hub, Options, PEERS_MAX, THREADS_MAX};
pub use method::{METHODS, Method, Stability};
pub use peer::{JOIN_BYTES, Peer, PeerId, UNREAD_BYTES_MAX, WAIT_BYTES};
pub use processes::{OUTPUT_BYTES_DEFAULT, OUTPUT_BYTES_MAX, PROCESSES_MAX, TIMEOUT_DEFAULT};
pub use searches::{FOUND_MAX, SEARCHES_MAX};
pub use serve::{REQUESTS_MAX, serve};
pub use watch::{CHANGED_PATHS_MAX, WATCHES_MAX};
