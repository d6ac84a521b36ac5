//! Errors of sampling from a model, classified by what a caller can do about them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::usage::TurnUsage;

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
    /// The provider's id of the request, which its support asks for.
    pub request_id: Option<String>,
}

impl SampleError {
    /// Creates an error without a status and without a retry delay.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), status: None, retry_after: None, request_id: None }
    }

    /// Returns whether the same request can succeed later. Of overloads that is those with which an endpoint answers at all; in
    /// the middle of an answer they mean that the model is not to be had for now.
    pub fn can_retry(&self) -> bool {
        let is_answer = self.class == ErrorClass::Overloaded && self.status >= Some(500);
        self.class.can_retry() || is_answer
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

    /// Adds the provider's id of the request, unless the error has one.
    #[must_use]
    pub fn with_request_id(mut self, id: Option<String>) -> Self {
        self.request_id = self.request_id.or(id);
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
    /// The provider's id of the last of these requests, if it was answered.
    pub request_id: Option<String>,
    /// The limit that was reached, if that is the cause. Old logs do not say which.
    pub limit: Option<Limit>,
    /// Tokens used until the failure, if the program that ran the turn reports them. A log has them in lines of their own.
    pub usage: Option<TurnUsage>,
}

impl TurnError {
    /// Creates an error that no request and no limit caused, and that a retry will not avoid.
    pub fn new(cause: TurnErrorCause, message: impl Into<String>) -> Self {
        Self {
            cause,
            message: message.into(),
            attempts: 0,
            retry: RetryAdvice::Never,
            request_id: None,
            limit: None,
            usage: None,
        }
    }
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
    /// The answer does not match its schema, not even after the model could correct it.
    Answer,
    /// The turn ran in another program, which did not say.
    Unknown,
}

/// What a failure says to programs besides its message, as lines and notifications have it. Programs that do not know it
/// leave it alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureFacts {
    /// How many requests were made for the answer that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The name of the cause, as in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The limit that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The provider's id of the last request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Whether and when the turn can be retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryAdvice>,
    /// Tokens used until the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TurnUsage>,
}

impl FailureFacts {
    /// Returns whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads facts; a newer version may write some in a form that this one does not know, which says nothing then.
    pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut facts = serde_json::Value::deserialize(deserializer)?;
        let mut field =
            |name: &str| facts.get_mut(name).map(serde_json::Value::take).unwrap_or_default();
        Ok(Self {
            attempts: serde_json::from_value(field("attempts")).unwrap_or_default(),
            cause: serde_json::from_value(field("cause")).unwrap_or_default(),
            limit: serde_json::from_value(field("limit")).unwrap_or_default(),
            request_id: serde_json::from_value(field("request_id")).unwrap_or_default(),
            retry: serde_json::from_value(field("retry")).unwrap_or_default(),
            usage: serde_json::from_value(field("usage")).unwrap_or_default(),
        })
    }
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// What is limited.
    pub kind: LimitKind,
    /// The limit; times are in milliseconds.
    pub value: u64,
}

/// What a limit is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitKind {
    /// Turns of a run.
    Turns,
    /// Requests to the model, not counting retries.
    Requests,
    /// Calls of tools.
    Calls,
    /// Tokens of requests and answers.
    Tokens,
    /// Time from the start.
    Time,
    /// Consecutive answers without progress.
    IdleAnswers,
    /// Items of one answer.
    AnswerItems,
    /// Bytes of one answer.
    AnswerBytes,
    /// Time of one answer.
    AnswerTime,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, value } = *self;
        match kind {
            LimitKind::Turns => write!(f, "{value} turns"),
            LimitKind::Requests => write!(f, "{value} requests"),
            LimitKind::Calls => write!(f, "{value} tool calls"),
            LimitKind::Tokens => write!(f, "{value} tokens"),
            LimitKind::IdleAnswers => write!(f, "{value} answers without progress"),
            LimitKind::AnswerItems => write!(f, "{value} items in an answer"),
            LimitKind::AnswerBytes => write!(f, "{value} bytes in an answer"),
            LimitKind::Time => write!(f, "{} s", Duration::from_millis(value).as_secs_f64()),
            LimitKind::AnswerTime => {
                write!(f, "{} s for an answer", Duration::from_millis(value).as_secs_f64())
            }
        }
    }
}

/// Whether and when a retry makes sense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAdvice {
    /// The same request cannot succeed.
    #[default]
    Never,
    /// It may succeed at any time.
    Later,
    /// It may succeed after this delay, which is written in milliseconds.
    #[serde(rename = "after_ms", serialize_with = "write_ms", deserialize_with = "read_ms")]
    After(Duration),
}

fn write_ms<S: Serializer>(delay: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
}

fn read_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}
