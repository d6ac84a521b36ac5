//! The library as a host program uses it, and misuses it.
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod approvers;
mod dropped;
mod errors;
mod examples;
mod files;
mod function;
mod limits;
mod programs;
mod registry;
mod scripted;
mod shared;
mod stores;
mod structured;
mod tools;
mod turns;
