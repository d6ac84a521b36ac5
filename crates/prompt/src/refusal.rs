//! Why a request is not done, in the words and with the status of the API.

use serde::Serialize;

/// How long to stay away when too many are waiting.
pub const RETRY_AFTER_SECONDS: u64 = 2;

/// Why a request is not done.
///
/// One variant per thing a client does about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Send something else: a field is missing, has the wrong type, or asks for what is not here.
    #[error("{message}")]
    Invalid {
        /// What is wrong, and what would be right.
        message: String,
        /// The path of the field, such as `tools[0].name`.
        param: Option<String>,
    },
    /// Send less.
    #[error(
        "the request has {used} tokens and asks for at least {wanted} more; this model takes {limit} in all"
    )]
    ContextFull {
        /// The tokens of the prompt.
        used: u64,
        /// The tokens that must be left for the answer.
        wanted: u64,
        /// What the model takes.
        limit: u64,
    },
    /// Send far less: nobody counted to the end.
    #[error("the request has more than {counted} tokens; this model takes {limit} in all")]
    FarTooLong {
        /// The tokens that were counted.
        counted: u64,
        /// What the model takes.
        limit: u64,
    },
    /// Send fewer bytes.
    #[error("the request is larger than {limit} bytes")]
    TooLarge {
        /// What is taken.
        limit: usize,
    },
    /// Ask for a model that is here.
    #[error("there is no model `{model}` here; `heddle models list` shows those that are")]
    UnknownModel {
        /// What was asked for.
        model: String,
    },
    /// Come back later.
    #[error("{waiting} requests are waiting already; try again in {RETRY_AFTER_SECONDS}s")]
    Busy {
        /// How many.
        waiting: usize,
    },
}

impl Refusal {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Invalid { .. } | Self::ContextFull { .. } | Self::FarTooLong { .. } => 400,
            Self::UnknownModel { .. } => 404,
            Self::TooLarge { .. } => 413,
            Self::Busy { .. } => 429,
        }
    }

    /// Returns what `Retry-After` says, where coming back helps.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        matches!(self, Self::Busy { .. }).then_some(RETRY_AFTER_SECONDS)
    }

    /// Returns the code by which programs know it; what is only invalid has none.
    fn code(&self) -> Option<&'static str> {
        match self {
            Self::Invalid { .. } | Self::TooLarge { .. } => None,
            Self::ContextFull { .. } | Self::FarTooLong { .. } => Some("context_length_exceeded"),
            Self::UnknownModel { .. } => Some("model_not_found"),
            Self::Busy { .. } => Some("rate_limit_exceeded"),
        }
    }

    /// Returns the body of the answer.
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

/// Writes the body of an answer that is an error.
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
