//! The library from the outside: what a host program can do with it, and what it may do to it.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod dropped;
mod examples;
mod scripted;
mod shared;
mod stores;
mod tools;
mod turns;
