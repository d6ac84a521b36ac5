//! How sampling from a model can fail, seen from the one who must react.

use std::time::Duration;

/// Why one attempt to sample from a model ended without a complete answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct SampleError {
    /// What a caller can do about it.
    pub class: ErrorClass,
    /// What a person reads: what happened and, where it helps, what to do.
    pub message: String,
    /// The HTTP status, when there was one.
    pub status: Option<u16>,
    /// The provider's own word on when to come back.
    pub retry_after: Option<Duration>,
}

impl SampleError {
    /// Makes an error without a status and without advice on when to retry.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), status: None, retry_after: None }
    }

    /// Adds the HTTP status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds the provider's word on when to come back.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Option<Duration>) -> Self {
        self.retry_after = delay;
        self
    }
}

/// One variant per recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The endpoint could not be reached, or broke off before it answered.
    Unreachable,
    /// Nobody listens at the endpoint's address: it is not running, or its address is another one.
    ConnectionRefused,
    /// The endpoint answered with a 5xx status or the like.
    ServerFault,
    /// The endpoint took the request and then said nothing for as long as it may.
    Silent,
    /// The answer broke off: cut, reset, idle for too long, or failed by the provider in mid-stream.
    Disconnected,
    /// Too many requests for now.
    RateLimited,
    /// The account's allowance is used up; it comes back at a time the message names.
    UsageLimit,
    /// The account has no quota or plan for this.
    Quota,
    /// The provider says that the model has no capacity.
    Overloaded,
    /// The request does not fit into the model's context window.
    ContextFull,
    /// The provider refused what was asked by its content rules.
    ContentPolicy,
    /// The answer ended early by the provider's own decision, such as a token limit.
    Incomplete,
    /// The provider refused the credentials, or there are none to send.
    Credentials,
    /// The endpoint has no such model.
    ModelNotFound,
    /// The provider calls the request invalid.
    InvalidRequest,
    /// What answered is not a model endpoint.
    NotAnEndpoint,
}

impl ErrorClass {
    /// Tells whether the same request can succeed later.
    pub fn can_retry(self) -> bool {
        match self {
            Self::Unreachable
            | Self::ConnectionRefused
            | Self::ServerFault
            | Self::Silent
            | Self::Disconnected
            | Self::RateLimited => true,
            Self::UsageLimit
            | Self::Quota
            | Self::Overloaded
            | Self::ContextFull
            | Self::ContentPolicy
            | Self::Incomplete
            | Self::Credentials
            | Self::ModelNotFound
            | Self::InvalidRequest
            | Self::NotAnEndpoint => false,
        }
    }
}

/// Why a turn ended without an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnError {
    /// What happened, for a program.
    pub cause: TurnErrorCause,
    /// What happened, for a person.
    pub message: String,
    /// How many requests were made for the sample that failed.
    pub attempts: u32,
    /// Whether and when it makes sense to try the turn again.
    pub retry: RetryAdvice,
}

/// The part of a [`TurnError`] that a program branches on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnErrorCause {
    /// The model could not be sampled.
    Sample(ErrorClass),
    /// A bound of ours was reached.
    Limit,
    /// What happened could not be written down.
    Storage,
    /// The answer does not follow its schema, and did not when it was asked for again.
    Answer,
}

/// Whether and when trying again makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAdvice {
    /// The same request cannot succeed.
    Never,
    /// It may succeed at any time.
    Later,
    /// It may succeed, but not before this long.
    After(Duration),
}
