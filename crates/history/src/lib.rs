//! From the lines of a log to a history that an endpoint takes.
//!
//! * [`fold`]: lines in, history out: forks, reverts, rollbacks and compactions applied;
//! * [`heal()`]: what a turn lacks whose process died in it;
//! * [`sendable`]: any history in, one that an endpoint takes out, with a list of what was repaired.
//!
//! Nothing here opens a file or writes one: what is on disk stays as it is.

pub mod fold;
mod heal;
mod item;
mod live;
pub mod sendable;

pub use fold::{Entry, Fold, Folded, Ignored, ModelId, Origin};
pub use heal::{PROCESS_ENDED, heal};
pub use live::{HISTORY_BYTES_MAX, LeftOut, SETUP_BYTES_MAX, USER_BYTES_MAX};
pub use log::{TURNS_MAX, Turn, TurnEnd, Turns, WORDS_BYTES_MAX, words};
pub use sendable::{Checked, Profile, Wire, check};
