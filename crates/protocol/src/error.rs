//! Errors of sampling from a model, classified by what a caller can do about them.

use std::time::Duration;

/// Why one attempt to sample from a model ended without a complete answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct SampleError {
    /// What a caller can do about it.
    pub class: ErrorClass,
    /// The message for people: what happened and, where it helps, what to do.
    pub message: String,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// When the provider says that a retry is possible.
    pub retry_after: Option<Duration>,
}

impl SampleError {
    /// Creates an error without a status and without a retry delay.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), status: None, retry_after: None }
    }

    /// Adds the HTTP status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds the provider's retry delay.
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
    /// The endpoint could not be reached, or disconnected before it answered.
    Unreachable,
    /// Nothing listens at the endpoint's address: it is not running, or the address is wrong.
    ConnectionRefused,
    /// The endpoint answered with a 5xx status or something similar.
    ServerFault,
    /// The endpoint accepted the request and then sent nothing until the time-out.
    Silent,
    /// The answer broke off: cut, reset, idle for too long, or failed by the provider in mid-stream.
    Disconnected,
    /// Too many requests for now.
    RateLimited,
    /// The account's allowance is used up until a time that the message names.
    UsageLimit,
    /// The account has no quota or plan for this.
    Quota,
    /// The provider says that the model has no capacity.
    Overloaded,
    /// The request does not fit into the model's context window.
    ContextFull,
    /// The provider refused the request by its content rules.
    ContentPolicy,
    /// The provider ended the answer early, for example at a token limit.
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
    /// Returns whether the same request can succeed later.
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
    /// The cause, for programs.
    pub cause: TurnErrorCause,
    /// The message, for people.
    pub message: String,
    /// How many requests were made for the failed sample.
    pub attempts: u32,
    /// Whether and when the turn can be retried.
    pub retry: RetryAdvice,
}

/// The part of a [`TurnError`] that a program branches on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnErrorCause {
    /// The model could not be sampled.
    Sample(ErrorClass),
    /// One of our limits was reached.
    Limit,
    /// The log could not be written.
    Storage,
    /// The answer does not match its schema, not even at the second attempt.
    Answer,
}

/// Whether and when a retry makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAdvice {
    /// The same request cannot succeed.
    Never,
    /// It may succeed at any time.
    Later,
    /// It may succeed after this delay.
    After(Duration),
}
