//! Types that cross a process or a disk, and nothing else.
//!
//! * [`responses`]: what a model endpoint is sent and what it streams back (Responses API);
//! * [`chat`]: the same request in the form of Chat Completions;
//! * [`event`] and [`item`]: what the engine tells the world, a closed set;
//! * [`approval`]: what a person is asked, and what comes of it;
//! * [`exec`]: the JSON lines of `heddle exec --json`, an open set: unknown kinds survive a round trip;
//! * [`persist`]: what the engine wants kept in the log of a thread;
//! * [`repair`]: what was done to a history so that an endpoint takes it;
//! * [`json`]: what is put right in JSON before it is read;
//! * [`error`], [`usage`], [`id`]: what the others share.
//!
//! No type here opens, reads, waits or decides.

#![warn(missing_docs)]

pub mod approval;
pub mod call;
pub mod chat;
pub mod error;
pub mod event;
pub mod exec;
pub mod id;
pub mod item;
pub mod json;
pub mod open;
pub mod persist;
pub mod repair;
pub mod responses;
pub mod usage;
