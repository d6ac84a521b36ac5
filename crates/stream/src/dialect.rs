//! Every way in which a model writes reasoning, answers and calls, read into the same events.
//!
//! A [`Format`] is one of the table's dialects. A [`Dialect`] is a format made ready with options
//! and the tools that a model may call; it is cheap to clone. A [`Parser`] reads one stream: push
//! whatever the network brings, then finish. The events do not depend on how the input was cut.

use std::fmt;

use serde::Deserialize;

use crate::event::Sink;

pub use crate::dialect::tools::{Tools, ToolsError};

mod body;
mod tools;

/// The longest name of a tool, a key or an id.
pub const NAME_BYTES_MAX: usize = 4096;

/// The most bytes that are held back until it is known what they are.
pub const HELD_BYTES_MAX: usize = 1 << 20;

/// Levels that one value inside of a call may nest, where nesting has to be remembered.
pub const DEPTH_MAX: usize = 512;

/// How a stream is to be read, where a format leaves a choice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The prompt has already opened the reasoning.
    pub start_in_reasoning: bool,
    /// A call inside of reasoning that was not closed ends it.
    pub tool_call_ends_reasoning: bool,
    /// A prefix that tags may carry, such as `ns:`.
    pub namespace: Option<String>,
    /// A suffix that tokens may carry, such as `:opensource`.
    pub token_suffix: Option<String>,
    /// The name of another way to mark reasoning.
    pub reasoning: Option<String>,
    /// A Python list of calls may begin in the middle of text.
    pub pythonic_anywhere: bool,
}

/// A dialect of the table.
pub struct Format {
    name: &'static str,
    title: &'static str,
    grammar: Grammar,
}

/// How a format is read.
enum Grammar {}

impl Format {
    /// Returns all formats, in the order of the table.
    pub fn all() -> &'static [Format] {
        &[]
    }

    /// Finds a format by its name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().iter().find(|format| format.name == name)
    }

    /// Returns the name by which it is chosen.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns what people call it.
    pub fn title(&self) -> &'static str {
        self.title
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Reads the text of one stream.
trait Engine {
    /// Takes the next text, which stands at `at` in the input.
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink);

    /// Ends the stream, which is `at` bytes long.
    fn finish(&mut self, at: u64, sink: &mut dyn Sink);
}
