//! Everything that can fail in this crate, as one type.
//!
//! Parsers of streams do not fail: what is wrong with a model's output is an event, and reading goes on. What
//! fails is what is strict by its nature: a document that is no JSON, an envelope that is none, a path or an
//! option that nobody could mean.

use crate::dialect::ToolsError;
use crate::document::PathError;
use crate::event::{ErrorKind, Event};
use crate::json::JsonError;
use crate::sse::EventTooLong;

/// Why something cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParserError {
    /// A document that is no JSON; the place is in it.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// What is wrong with a model's output, where somebody wants to stop at it.
    #[error("{detail} ({})", kind.as_str())]
    Stream {
        /// What a program does about it.
        kind: ErrorKind,
        /// What a person reads.
        detail: String,
    },
    /// A text that should be one ToolCall_V2 envelope.
    #[error(
        "this is no ToolCall_V2 envelope: {0}; it must be \
         {{\"ToolCall_V2\":{{\"name\":…,\"arguments\":…}}}}, with an \"id\" if it has one"
    )]
    NoEnvelope(&'static str),
    /// A path to calls.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Options that are no JSON object of options.
    #[error("the options cannot be read: {0}")]
    Options(#[from] serde_json::Error),
    /// The list of tools.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// A format that is not in the table.
    #[error("there is no format `{0}`; `Format::all` lists them")]
    UnknownFormat(String),
    /// A frame of a provider that has no end.
    #[error(transparent)]
    TooLong(#[from] EventTooLong),
}

impl ParserError {
    /// Makes an error of an event that is one.
    pub fn from_event(event: &Event<'_>) -> Option<Self> {
        match event {
            Event::Error { kind, detail } => {
                Some(Self::Stream { kind: *kind, detail: (*detail).to_owned() })
            }
            _ => None,
        }
    }

    /// Returns the kind of event that says the same in a stream.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Stream { kind, .. } => *kind,
            Self::NoEnvelope(_) => ErrorKind::MalformedCall,
            Self::TooLong(_) => ErrorKind::Limit,
            Self::Json(_)
            | Self::Path(_)
            | Self::Options(_)
            | Self::Tools(_)
            | Self::UnknownFormat(_) => ErrorKind::InvalidJson,
        }
    }
}
