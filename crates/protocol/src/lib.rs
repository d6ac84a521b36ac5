//! Types that cross a process or a disk, and nothing else.
//!
//! * [`responses`]: what is sent to a model endpoint and what it streams back (Responses API);
//! * [`chat`]: the same request in the format of Chat Completions;
//! * [`event`] and [`item`]: what the engine reports, a closed set;
//! * [`user`]: what a user gives a turn; [`file`](mod@file): the files attached to it;
//! * [`approval`]: what a person is asked, and the possible answers;
//! * [`call`]: a tool call, and what the tool reports while it runs;
//! * [`exec`]: the JSON lines of `heddle exec --json`, an open set: unknown kinds survive a round trip;
//! * [`mode`]: how the user and the model work together;
//! * [`persist`]: what the engine writes to the log of a thread;
//! * [`review`]: what is reviewed, and what a reviewer found;
//! * [`repair`]: what was changed in a history so that an endpoint accepts it;
//! * [`json`]: repairs JSON before it is parsed; [`open`]: keeps objects of unknown kinds;
//! * [`error`], [`usage`], [`id`]: shared by the others.
//!
//! No type here opens, reads, waits or decides.

#![warn(missing_docs)]

pub mod approval;
pub mod call;
pub mod chat;
pub mod error;
pub mod event;
pub mod exec;
pub mod file;
pub mod id;
pub mod item;
pub mod json;
pub mod mode;
pub mod open;
pub mod persist;
pub mod repair;
pub mod responses;
pub mod review;
pub mod usage;
pub mod user;
