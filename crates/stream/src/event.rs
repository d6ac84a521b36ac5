//! What a model's output comes to, whatever dialect it was written in.
//!
//! Events borrow their text from the input or from what a parser held back. Each comes with the
//! range of input bytes it was made of. Nothing is taken back: a call that was started stays.

use std::ops::Range;

use protocol::usage::Usage;

/// One thing that a parser found.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A piece of the answer.
    Text(&'a str),
    /// A piece of the reasoning.
    Reasoning(&'a str),
    /// A piece of what the model says on the way, such as a word before a call: progress for whoever watches, and never
    /// part of the answer. Dialects with channels have it.
    Commentary(&'a str),
    /// A provider's seal on the reasoning, which it wants back unchanged.
    ReasoningSignature(&'a str),
    /// A piece of a refusal.
    Refusal(&'a str),
    /// A plan begins.
    PlanStart,
    /// A piece of a plan.
    Plan(&'a str),
    /// A plan ends.
    PlanEnd {
        /// Whether the end of the stream ended it.
        implicit: bool,
    },
    /// A call begins.
    ToolStart {
        /// Counts the calls of a stream from zero.
        index: u32,
        /// The tool.
        name: &'a str,
        /// The call's id, where the dialect has one and it came with the name.
        id: Option<&'a str>,
        /// A provider's seal on the call, which it wants back unchanged.
        signature: Option<&'a str>,
    },
    /// The id of a call that was started without one.
    ToolId {
        /// The call.
        index: u32,
        /// Its id.
        id: &'a str,
    },
    /// A piece of a call's arguments.
    ToolArgs {
        /// The call.
        index: u32,
        /// The piece. All pieces together are the arguments.
        text: &'a str,
    },
    /// A call ends.
    ToolEnd {
        /// The call.
        index: u32,
        /// Whether it came whole; half a call must not be run.
        complete: bool,
    },
    /// Something is wrong with the input; parsing goes on.
    Error {
        /// What a program does about it.
        kind: ErrorKind,
        /// What a person reads; for [`ErrorKind::Upstream`] the provider's own words.
        detail: &'a str,
    },
    /// Token counts, where the wire has them.
    Usage(Usage),
    /// Why the model stopped, where the wire says so.
    Finish(FinishReason<'a>),
}

/// What can be wrong with a model's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The stream ended inside of something.
    Truncated,
    /// A call that does not follow its grammar.
    MalformedCall,
    /// The header of a message that does not follow its grammar.
    MalformedHeader,
    /// Arguments that should be JSON and are not.
    InvalidJson,
    /// Bytes that are not UTF-8.
    InvalidUtf8,
    /// A key that came twice where it may come once.
    DuplicateKey,
    /// Data where none belongs; it is not shown.
    UnexpectedData,
    /// The provider reported an error.
    Upstream,
    /// Something grew beyond its bound.
    Limit,
}

impl ErrorKind {
    /// Returns the name that scripts see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::MalformedCall => "malformed_call",
            Self::MalformedHeader => "malformed_header",
            Self::InvalidJson => "invalid_json",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::DuplicateKey => "duplicate_key",
            Self::UnexpectedData => "unexpected_data",
            Self::Upstream => "upstream",
            Self::Limit => "limit",
        }
    }
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason<'a> {
    /// It had said what it wanted to say.
    Stop,
    /// It wants its calls answered.
    ToolCalls,
    /// It ran out of tokens.
    Length,
    /// A filter stopped it.
    ContentFilter,
    /// Something failed.
    Error,
    /// A word that only the provider knows.
    Other(&'a str),
}

impl<'a> FinishReason<'a> {
    /// Returns the name that scripts see.
    pub fn as_str(self) -> &'a str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
            Self::Error => "error",
            Self::Other(word) => word,
        }
    }
}

/// Takes events as they are found.
pub trait Sink {
    /// Takes one event, and the range of input bytes that it was made of.
    fn event(&mut self, event: Event<'_>, range: Range<u64>);
}

impl<F: FnMut(Event<'_>, Range<u64>)> Sink for F {
    fn event(&mut self, event: Event<'_>, range: Range<u64>) {
        self(event, range);
    }
}
