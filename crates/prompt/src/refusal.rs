//! Why a request is refused, with the error body and status of the API.

use serde::Serialize;

/// The value of `Retry-After` if the queue is full.
pub const RETRY_AFTER_SECONDS: u64 = 2;

/// Why a request is refused.
///
/// One variant per action that a client can take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Fix the request: a field is missing, has the wrong type, or asks for something unsupported.
    #[error("{message}")]
    Invalid {
        /// What is wrong, and what would be right.
        message: String,
        /// The path of the field, such as `tools[0].name`.
        param: Option<String>,
    },
    /// Send fewer tokens.
    #[error(
        "the request has {used} tokens and asks for at least {wanted} more, but the context of this model is {limit} tokens; shorten the request"
    )]
    ContextFull {
        /// Tokens of the prompt.
        used: u64,
        /// Tokens that must be left for the answer.
        wanted: u64,
        limit: u64,
    },
    /// Send far fewer tokens: counting was stopped early.
    #[error(
        "the request has more than {counted} tokens, but the context of this model is {limit} tokens; shorten it"
    )]
    FarTooLong {
        /// Tokens counted so far.
        counted: u64,
        limit: u64,
    },
    /// Send fewer bytes.
    #[error("the request is larger than {limit} bytes; shorten it")]
    TooLarge { limit: usize },
    /// Use a model that is available.
    #[error("the model `{model}` is not available here; `heddle models list` shows those that are")]
    UnknownModel { model: String },
    /// Retry later.
    #[error("{waiting} requests are waiting already; try again in {RETRY_AFTER_SECONDS}s")]
    Busy { waiting: usize },
}

impl Refusal {
    pub fn status(&self) -> u16 {
        match self {
            Self::Invalid { .. } | Self::ContextFull { .. } | Self::FarTooLong { .. } => 400,
            Self::UnknownModel { .. } => 404,
            Self::TooLarge { .. } => 413,
            Self::Busy { .. } => 429,
        }
    }

    /// Returns the value of `Retry-After`, if a retry can help.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        matches!(self, Self::Busy { .. }).then_some(RETRY_AFTER_SECONDS)
    }

    /// Returns the machine-readable code; a merely invalid request has none.
    fn code(&self) -> Option<&'static str> {
        match self {
            Self::Invalid { .. } | Self::TooLarge { .. } => None,
            Self::ContextFull { .. } | Self::FarTooLong { .. } => Some("context_length_exceeded"),
            Self::UnknownModel { .. } => Some("model_not_found"),
            Self::Busy { .. } => Some("rate_limit_exceeded"),
        }
    }

    /// Returns the body of the response.
    pub fn to_body(&self) -> Vec<u8> {
        let param = match self {
            Self::Invalid { param, .. } => param.as_deref(),
            Self::UnknownModel { .. } => Some("model"),
            Self::ContextFull { .. }
            | Self::FarTooLong { .. }
            | Self::TooLarge { .. }
            | Self::Busy { .. } => None,
        };
        let kind = match self {
            Self::Busy { .. } => "requests",
            _ => "invalid_request_error",
        };
        error_body(&self.to_string(), kind, param, self.code())
    }
}

/// Serializes the body of an error response.
pub fn error_body(message: &str, kind: &str, param: Option<&str>, code: Option<&str>) -> Vec<u8> {
    let body = Body { error: WireError { message, kind, param, code } };
    serde_json::to_vec(&body).expect("strings can be written as JSON")
}

#[derive(Serialize)]
struct Body<'a> {
    error: WireError<'a>,
}

/// An error, as both APIs write it.
#[derive(Serialize)]
struct WireError<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    param: Option<&'a str>,
    code: Option<&'a str>,
}
