//! Tests of the crate through its public API; each file is a table behind one `check`.

#![expect(clippy::disallowed_methods, reason = "tests read files and clocks")]
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod documents;
mod edits;
mod large;
mod merging;
mod pinned;
mod properties;

use plans::{Evidence, Time};

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

fn command(command: &str) -> Evidence {
    Evidence::Command { command: command.to_owned(), exit: 0 }
}
