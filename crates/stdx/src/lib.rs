//! What the standard library lacks and several crates need.
//!
//! Nothing here knows about agents, and nothing here does I/O.

mod head_tail;
mod redacted;
mod rng;
mod text;

pub use head_tail::HeadTail;
pub use redacted::Redacted;
pub use rng::Rng;
pub use text::{ceil_char_boundary, floor_char_boundary};
