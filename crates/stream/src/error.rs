//! Everything that can fail in this crate, as one type.
//!
//! Stream parsers do not fail: an error in a model's output is an event, and parsing continues. What can fail
//! is strict by nature: a document that is not JSON, an invalid envelope, path or option.

use crate::dialect::ToolsError;
use crate::document::PathError;
use crate::event::{ErrorKind, Event};
use crate::json::JsonError;
use crate::sse::EventTooLong;

/// Why something cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParserError {
    /// A document that is not JSON; includes the position.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// An error in a model's output, for callers that want to stop at it.
    #[error("{detail} ({})", kind.as_str())]
    Stream {
        /// The kind of the error, for programs.
        kind: ErrorKind,
        /// A description of the error, for people.
        detail: String,
    },
    /// A text that should be one ToolCall_V2 envelope.
    #[error(
        "this is not a ToolCall_V2 envelope: {0}; it must be \
         {{\"ToolCall_V2\":{{\"name\":…,\"arguments\":…}}}}, with an \"id\" if it has one"
    )]
    NoEnvelope(&'static str),
    /// An invalid path to calls.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Options that are not a JSON object of options.
    #[error("the options cannot be read: {0}")]
    Options(#[from] serde_json::Error),
    /// An invalid list of tools.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// A format that is not in the table.
    #[error("unknown format `{0}`; `Format::all` lists the known ones")]
    UnknownFormat(String),
    /// A provider's frame that exceeds its size limit.
    #[error(transparent)]
    TooLong(#[from] EventTooLong),
}

impl ParserError {
    /// Converts an error event to an error.
    pub fn from_event(event: &Event<'_>) -> Option<Self> {
        match event {
            Event::Error { kind, detail } => {
                Some(Self::Stream { kind: *kind, detail: (*detail).to_owned() })
            }
            _ => None,
        }
    }

    /// Returns the kind of the equivalent event in a stream.
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
