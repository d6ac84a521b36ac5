//! The library as a host program uses it, and misuses it.
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod dropped;
mod examples;
mod scripted;
mod shared;
mod stores;
mod tools;
mod turns;
