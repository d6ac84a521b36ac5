//! Turns played from scripts and from seeds, through the two methods that drivers use.

#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod history;
mod simulate;
mod turn;
mod window;
