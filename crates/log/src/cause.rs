//! Why a turn failed: our causes and their names in the log, in one table.
//!
//! The reference has fewer names than we have causes, so our lines contain both: `codex_error_info` is for
//! other programs, `heddle_cause` is read back as the exact cause.

use protocol::error::ErrorClass::{
    ConnectionRefused, ContentPolicy, ContextFull, Credentials, Disconnected, Incomplete,
    InvalidRequest, ModelNotFound, NotAnEndpoint, Overloaded, Quota, RateLimited, ServerFault,
    Silent, Unreachable, UsageLimit,
};
use protocol::error::TurnErrorCause::{self, Answer, Limit, Sample, Storage, Unknown};
use protocol::error::{FailureFacts, RetryAdvice, TurnError};
use protocol::usage::TurnUsage;
use serde_json::{Value, json};

/// A row of the table.
struct Row {
    cause: TurnErrorCause,
    /// Our name.
    name: &'static str,
    info: Info,
}

/// The reference's name.
#[derive(Clone, Copy, PartialEq)]
enum Info {
    Plain(&'static str),
    /// With an HTTP status.
    Http(&'static str, Option<u16>),
}

const fn row(cause: TurnErrorCause, name: &'static str, info: Info) -> Row {
    Row { cause, name, info }
}

/// If several causes share a name of the reference, that name is read back as the first.
const ROWS: &[Row] = &[
    row(Sample(ContextFull), "context_full", Info::Plain("context_window_exceeded")),
    row(Sample(UsageLimit), "usage_limit", Info::Plain("usage_limit_exceeded")),
    row(Sample(Quota), "quota", Info::Plain("usage_limit_exceeded")),
    row(Sample(Overloaded), "overloaded", Info::Plain("server_overloaded")),
    row(
        Sample(RateLimited),
        "rate_limited",
        Info::Http("response_too_many_failed_attempts", Some(429)),
    ),
    row(Sample(Credentials), "credentials", Info::Plain("unauthorized")),
    row(Sample(InvalidRequest), "invalid_request", Info::Plain("bad_request")),
    row(Sample(ModelNotFound), "model_not_found", Info::Plain("model_not_found")),
    row(Sample(ServerFault), "server_fault", Info::Plain("internal_server_error")),
    row(Sample(Unreachable), "unreachable", Info::Http("http_connection_failed", None)),
    row(
        Sample(ConnectionRefused),
        "connection_refused",
        Info::Http("http_connection_failed", None),
    ),
    row(Sample(Silent), "silent", Info::Http("http_connection_failed", None)),
    row(Sample(Disconnected), "disconnected", Info::Http("response_stream_disconnected", None)),
    row(Sample(ContentPolicy), "content_policy", Info::Plain(OTHER)),
    row(Sample(Incomplete), "incomplete", Info::Plain(OTHER)),
    row(Sample(NotAnEndpoint), "not_an_endpoint", Info::Plain(OTHER)),
    row(Limit, "limit", Info::Plain(OTHER)),
    row(Storage, "storage", Info::Plain(OTHER)),
    row(Answer, "answer", Info::Plain(OTHER)),
    row(Unknown, "unknown", Info::Plain(OTHER)),
];

/// What `exec` says of a turn that was interrupted, which is no failure.
pub const INTERRUPTED: &str = "interrupted";

/// The name for everything that the reference has no name for.
pub const OTHER: &str = "other";

/// Returns the name of `cause` for other programs.
pub fn error_info(cause: TurnErrorCause) -> Value {
    match ROWS.iter().find(|row| row.cause == cause).map(|row| row.info) {
        Some(Info::Plain(name)) => json!(name),
        Some(Info::Http(name, status)) => json!({ name: { "http_status_code": status } }),
        None => json!(OTHER),
    }
}

/// Returns every cause, once.
pub fn all() -> impl Iterator<Item = TurnErrorCause> {
    ROWS.iter().map(|row| row.cause)
}

/// Returns our own name of `cause`.
pub fn cause_name(cause: TurnErrorCause) -> Option<&'static str> {
    ROWS.iter().find(|row| row.cause == cause).map(|row| row.name)
}

/// Returns what an error says to programs.
pub fn facts(error: &TurnError) -> FailureFacts {
    FailureFacts {
        attempts: (error.attempts > 0).then_some(error.attempts),
        cause: cause_name(error.cause).filter(|_| error.cause != Unknown).map(str::to_owned),
        limit: error.limit,
        request_id: error.request_id.clone(),
        retry: (error.retry != RetryAdvice::Never).then_some(error.retry),
        // A thread that has used nothing has nothing to say.
        usage: error.usage.filter(|usage| *usage != TurnUsage::default()),
    }
}

/// Builds an error from what it says to programs, and from the reference's name of its cause.
pub fn turn_error(message: String, facts: FailureFacts, info: &Value) -> TurnError {
    let FailureFacts { attempts, cause: name, limit, request_id, retry, usage } = facts;
    TurnError {
        attempts: attempts.unwrap_or_default(),
        retry: retry.unwrap_or_default(),
        request_id,
        limit,
        usage,
        ..TurnError::new(cause(name.as_deref(), info).unwrap_or(Unknown), message)
    }
}

/// Parses a cause: by our own name, or else by the reference's; none if neither is known.
pub fn cause(name: Option<&str>, info: &Value) -> Option<TurnErrorCause> {
    let named = name.and_then(|name| ROWS.iter().find(|row| row.name == name));
    let by_info = || {
        let found = match info {
            Value::String(name) => Some(name.as_str()),
            Value::Object(fields) => fields.keys().next().map(String::as_str),
            _ => None,
        }?;
        let row = ROWS.iter().filter(|_| found != OTHER).find(|row| match row.info {
            Info::Plain(name) | Info::Http(name, _) => name == found,
        });
        let other = || OTHERS.iter().find(|(name, _)| *name == found).map(|(_, cause)| *cause);
        row.map(|row| row.cause).or_else(other)
    };
    named.map(|row| row.cause).or_else(by_info)
}

/// More names of the reference, which we only read.
const OTHERS: &[(&str, TurnErrorCause)] = &[
    ("rate_limit_exceeded", Sample(RateLimited)),
    ("flex_unavailable", Sample(Overloaded)),
    ("policy_capacity_unavailable", Sample(Overloaded)),
    ("response_stream_connection_failed", Sample(Unreachable)),
    ("cyber_policy", Sample(ContentPolicy)),
    ("misalignment_policy_violation", Sample(ContentPolicy)),
    ("session_budget_exceeded", Limit),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_reads_back() {
        for row in ROWS {
            let info = error_info(row.cause);
            assert_eq!(cause(cause_name(row.cause), &info), Some(row.cause), "{}", row.name);
            let error = TurnError { attempts: 2, ..TurnError::new(row.cause, "m") };
            let read = turn_error("m".to_owned(), facts(&error), &Value::Null);
            assert_eq!(read, error, "{}", row.name);
        }
    }

    #[test]
    fn names_of_the_reference() {
        for (info, want) in [
            (json!("context_window_exceeded"), Some(Sample(ContextFull))),
            (json!("usage_limit_exceeded"), Some(Sample(UsageLimit))),
            (
                json!({ "http_connection_failed": { "http_status_code": 502 } }),
                Some(Sample(Unreachable)),
            ),
            (json!({ "response_stream_disconnected": {} }), Some(Sample(Disconnected))),
            (json!("rate_limit_exceeded"), Some(Sample(RateLimited))),
            (json!("session_budget_exceeded"), Some(Limit)),
            (json!("other"), None),
            (json!("newer"), None),
            (json!(null), None),
        ] {
            assert_eq!(cause(None, &info), want, "{info}");
            assert_eq!(cause(Some("newer"), &info), want, "{info}");
        }
    }
}
