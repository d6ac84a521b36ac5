//! Small building blocks that the standard library lacks and several crates need.
//!
//! Nothing here knows about agents or does I/O.

mod head_tail;
pub mod lines;
pub mod panics;
mod redacted;
mod rng;
pub mod visible;

pub use head_tail::HeadTail;
pub use redacted::Redacted;
pub use rng::Rng;
