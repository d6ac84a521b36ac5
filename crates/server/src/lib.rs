//! The app-server protocol: JSON-RPC, one object per line.
//!
//! [`Connection`] takes lines of a client and results of earlier actions, and returns actions: lines to send
//! and work to perform. It opens no file, runs no turn and reads no clock.
//!
//! This build supports a first part of the protocol: the methods in [`request::METHODS`]. A new one needs a
//! variant of [`request::Request`], an arm in `connection.rs`, and if it needs work an [`Action`].

mod action;
mod connection;
pub mod lines;
pub mod message;
pub mod notification;
pub mod page;
pub mod past;
pub mod request;
pub mod turn;
pub mod wire;

pub use action::{Action, Facts, Input, Loading, OpenedThread, Reading};
pub use connection::{CLIENT_BYTES_MAX, Connection, THREADS_MAX};
