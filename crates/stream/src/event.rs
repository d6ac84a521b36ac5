//! The events that a model's output is parsed into, whatever its dialect.
//!
//! Events borrow their text from the input or from what a parser held back. Each comes with the range of
//! input bytes that produced it. Nothing is retracted: a started call stays.

use std::ops::Range;

use protocol::usage::Usage;

/// One event of a parser.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A piece of the answer.
    Text(&'a str),
    /// A piece of the reasoning.
    Reasoning(&'a str),
    /// A piece of commentary, such as text before a call: progress for observers, and never part of the
    /// answer. Dialects with channels have it.
    Commentary(&'a str),
    /// A provider's signature of the reasoning, which must be returned unchanged.
    ReasoningSignature(&'a str),
    /// A piece of a refusal.
    Refusal(&'a str),
    /// The beginning of a plan.
    PlanStart,
    /// A piece of a plan.
    Plan(&'a str),
    /// The end of a plan.
    PlanEnd {
        /// Whether the end of the stream ended it.
        implicit: bool,
    },
    /// The beginning of a call.
    ToolStart {
        /// Numbers the calls of a stream from zero.
        index: u32,
        /// The name of the tool.
        name: &'a str,
        /// The call's id, if the dialect has one and it came with the name.
        id: Option<&'a str>,
        /// A provider's signature of the call, which must be returned unchanged.
        signature: Option<&'a str>,
    },
    /// The id of a call that was started without one.
    ToolId {
        /// The index of the call.
        index: u32,
        /// The id that came late.
        id: &'a str,
    },
    /// A piece of a call's arguments.
    ToolArgs {
        /// The index of the call.
        index: u32,
        /// The text of the piece; all pieces together are the arguments.
        text: &'a str,
    },
    /// The end of a call.
    ToolEnd {
        /// The index of the call.
        index: u32,
        /// Whether the call is complete; an incomplete one must not be run.
        complete: bool,
    },
    /// An error in the input; parsing continues.
    Error {
        /// The kind, for programs.
        kind: ErrorKind,
        /// The description, for people; for [`ErrorKind::Upstream`] the provider's own words.
        detail: &'a str,
    },
    /// Token counts, if the wire format has them.
    Usage(Usage),
    /// Why the model stopped, if the wire format says so.
    Finish(FinishReason<'a>),
}

/// What can be wrong with a model's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The stream ended inside something.
    Truncated,
    /// A call that does not follow its grammar.
    MalformedCall,
    /// A message header that does not follow its grammar.
    MalformedHeader,
    /// Arguments that should be JSON but are not.
    InvalidJson,
    /// Bytes that are not UTF-8.
    InvalidUtf8,
    /// An object with the same key twice.
    DuplicateKey,
    /// Misplaced data, which is not shown.
    UnexpectedData,
    /// The provider reported an error.
    Upstream,
    /// Input that exceeds a limit, such as a name that is too long.
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
    /// It finished its answer.
    Stop,
    /// It waits for the outputs of its calls.
    ToolCalls,
    /// It reached the token limit.
    Length,
    /// A content filter stopped it.
    ContentFilter,
    /// The provider failed to complete the answer.
    Error,
    /// Another reason, in the provider's words.
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

/// Receives events as they are found.
pub trait Sink {
    /// Receives one event, and the range of input bytes that produced it.
    fn event(&mut self, event: Event<'_>, range: Range<u64>);
}

impl<F: FnMut(Event<'_>, Range<u64>)> Sink for F {
    fn event(&mut self, event: Event<'_>, range: Range<u64>) {
        self(event, range);
    }
}
