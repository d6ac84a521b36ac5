//! Output formats: pure projections of events, one module each.
//!
//! A projection adds no fact and keeps no state beyond what its format needs (such as item numbers). It
//! returns text or values; the caller writes them.
//!
//! * [`exec_jsonl`]: the lines of `exec --json`;
//! * [`human`]: human-readable output for a terminal;
//! * [`last_message`]: the answer itself;
//! * [`size`](mod@size): sizes of files;
//! * [`table`]: aligned tables, and relative times.

pub mod exec_jsonl;
pub mod human;
pub mod last_message;
pub mod size;
pub mod table;
