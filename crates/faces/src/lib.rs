//! What events look like to those who watch: pure projections, one module each.
//!
//! A face adds no fact and keeps no state beyond what its format needs (such as item numbers). It
//! returns text or values; writing them is the caller's.
//!
//! * [`exec_jsonl`]: the lines of `exec --json`;
//! * [`human`]: what a person reads on a terminal;
//! * [`last_message`]: the answer itself;
//! * [`table`]: rows that line up, and times in words.

pub mod exec_jsonl;
pub mod human;
pub mod last_message;
pub mod table;
