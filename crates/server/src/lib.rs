//! The app-server protocol: JSON-RPC, one object per line.
//!
//! [`Connection`] takes what a client says and what became of earlier actions, and gives out actions:
//! lines to send and work to perform. It opens no file, runs no turn and reads no clock.
//!
//! This build knows a first part of the protocol: the methods in [`request::METHODS`]. A further one is
//! a variant of [`request::Request`], an arm in `connection.rs`, and if it needs work an [`Action`].

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
