//! Converts the lines of a log to a history that an endpoint accepts.
//!
//! * [`fold`]: lines in, history out, with forks, reverts, rollbacks and compactions applied;
//! * [`heal()`]: completes a turn whose process died;
//! * [`sendable`]: any history in, one that an endpoint accepts out, with a list of repairs.
//!
//! Nothing here opens or writes a file: the disk is not changed.

pub mod fold;
mod heal;
mod item;
mod live;
pub mod sendable;

pub use fold::{Entry, Fold, Folded, Ignored, ModelId, Origin};
pub use heal::{PROCESS_ENDED, heal};
pub use item::origin_of;
pub use live::{HISTORY_BYTES_MAX, LeftOut, SETUP_BYTES_MAX, USER_BYTES_MAX};
pub use log::{TURNS_MAX, Turn, TurnEnd, Turns, WORDS_BYTES_MAX, words};
pub use sendable::{Checked, Profile, Wire, check};
