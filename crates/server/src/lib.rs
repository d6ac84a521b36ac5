//! The app-server: serves threads to other programs over JSON-RPC.
//!
//! ```text
//! transport  stdin and stdout, a Unix socket, a WebSocket: lines in, lines out
//!    serve   one connection: its requests, begun in their order
//!   method   a row and a handler for each method
//!      hub   what connections share: threads, clients, open requests to clients
//!   thread   a loaded thread: its task, its followers ── turn: events become notifications (pure)
//!     peer   a client, and the messages that it has not read yet
//!   extras   what is kept about a thread besides its log ── queue: what is to be said next (pure)
//!    watch   the files that clients watch; processes: the commands that they run;
//!            searches: the files that they look for
//! ```
//!
//! A client is trusted like the user: it may open any thread, with any settings. Calls of the model are not trusted; they
//! pass the gate of their thread.

mod ask;
pub mod diff;
mod dynamic_tool;
mod extras;
pub mod goal;
mod hub;
pub mod message;
mod method;
pub mod missed;
pub mod notification;
pub mod occurrences;
pub mod page;
pub mod past;
mod peer;
mod processes;
#[cfg(test)]
mod published;
pub mod question;
mod queue;
pub mod request;
mod response;
pub mod restored;
pub mod schema;
mod searches;
mod serve;
mod thread;
pub mod transport;
pub mod turn;
mod watch;
pub mod wire;

pub use hub::{Hub, Options, PEERS_MAX, THREADS_MAX};
pub use method::{METHODS, Method, NO_PARAMS, Shape, Stability};
pub use peer::{JOIN_BYTES, Peer, PeerId, UNREAD_BYTES_MAX, WAIT_BYTES};
pub use processes::{OUTPUT_BYTES_DEFAULT, OUTPUT_BYTES_MAX, PROCESSES_MAX, TIMEOUT_DEFAULT};
pub use queue::{QUEUE_BYTES_MAX, QUEUED_MAX};
pub use searches::{FOUND_MAX, SEARCHES_MAX};
pub use serve::{REQUESTS_MAX, serve};
pub use watch::{CHANGED_PATHS_MAX, WATCHES_MAX};
