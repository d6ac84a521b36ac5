//! The log, from outside.

mod records;
mod replay;
