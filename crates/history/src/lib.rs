//! From the lines of a log to a history that an endpoint takes.
//!
//! * [`fold`]: lines in, history out: forks, reverts, rollbacks and compactions applied;
//! * [`sendable`]: any history in, one that an endpoint takes out, with a list of what was repaired.
//!
//! Nothing here opens a file or writes one: what is on disk stays as it is.

pub mod fold;
pub mod sendable;

pub use fold::{Entry, Fold, Folded, Maker, Origin};
pub use sendable::{Checked, Profile, Wire, check};
