//! Classifies answers that are not a stream. Pure: status, headers and body in, typed error out.

use std::time::{Duration, SystemTime};

use protocol::error::{ErrorClass, SampleError};
use protocol::json;
use serde::Deserialize;
use serde_json::value::RawValue;
use stream::failure::{self, WireError};

/// How much of a body a message quotes.
const EXCERPT_BYTES_MAX: usize = 400;

/// An answer with a status other than 200.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused<'a> {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: &'a str,
    pub(crate) url: &'a str,
    pub(crate) provider: &'a str,
}

pub(crate) fn refused(refused: &Refused<'_>) -> SampleError {
    let Refused { status, retry_after, body, url, provider } = *refused;
    let wire = error_object(body);
    let said = match &wire {
        Some(error) => error.text().to_owned(),
        None => excerpt(body),
    };
    // These codes are more precise than a status.
    if let Some(error) = wire.as_ref().map(failure::classify)
        && matches!(error.class, ErrorClass::ContextFull | ErrorClass::Quota)
    {
        return error.with_status(status);
    }
    // Some say it as the code, some as the type, and then with another code.
    let is = |name: &str| {
        wire.as_ref()
            .is_some_and(|it| [&it.code, &it.kind].iter().any(|it| it.as_deref() == Some(name)))
    };
    let (class, message) = match status {
        500.. if is("server_is_overloaded") => {
            (ErrorClass::Overloaded, format!("the model is overloaded ({status}): {said}"))
        }
        404 if is("model_not_found") => (ErrorClass::ModelNotFound, said),
        429 if is("usage_limit_reached") => {
            (ErrorClass::UsageLimit, usage_limit(&said, wire.as_ref()))
        }
        400 | 413 | 422 => (
            ErrorClass::InvalidRequest,
            format!("the provider calls the request invalid ({status}): {said}"),
        ),
        401 | 403 => (
            ErrorClass::Credentials,
            format!(
                "model provider `{provider}` refused the credentials ({status}): {said}; \
                 check its API key: the variable that `env_key` names, else OPENAI_API_KEY"
            ),
        ),
        429 => {
            // Some providers give the delay only in the message.
            let retry_after = retry_after.or_else(|| failure::delay_in_text(&said));
            let message = format!("too many requests (429): {said}");
            return SampleError::new(ErrorClass::RateLimited, message)
                .with_status(status)
                .with_retry_after(retry_after);
        }
        408 | 409 | 425 | 500.. => {
            (ErrorClass::ServerFault, format!("the endpoint failed with status {status}: {said}"))
        }
        300..400 => (
            ErrorClass::NotAnEndpoint,
            format!(
                "{url} answered with a redirect ({status}); \
                 set `base_url` of model provider `{provider}` to the address it points to"
            ),
        ),
        _ => (
            ErrorClass::NotAnEndpoint,
            format!(
                "{url} answered with status {status}: {said}; \
                 check `base_url` of model provider `{provider}`"
            ),
        ),
    };
    SampleError::new(class, message).with_status(status).with_retry_after(retry_after)
}

/// Classifies a 200 response whose content type is not an event stream.
pub(crate) fn not_a_stream(
    content_type: &str,
    body: &str,
    url: &str,
    provider: &str,
) -> SampleError {
    if let Some(error) = error_object(body) {
        return failure::classify(&error).with_status(200);
    }
    SampleError::new(
        ErrorClass::NotAnEndpoint,
        format!(
            "{url} answered with `{content_type}` and not with an event stream: {}; check \
             `base_url` and `wire_api` of model provider `{provider}`",
            excerpt(body)
        ),
    )
    .with_status(200)
}

/// Parses `Retry-After`: seconds, or a date relative to `now`.
pub(crate) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    // A date in the past means no delay.
    Some(date.duration_since(now).unwrap_or_default())
}

fn usage_limit(said: &str, wire: Option<&WireError>) -> String {
    match wire.and_then(|error| error.resets_at) {
        Some(at) => {
            let when = httpdate::fmt_http_date(
                SystemTime::UNIX_EPOCH + Duration::from_secs(at.min(MAX_DATE)),
            );
            format!("the account's usage limit is reached; it resets at {when} ({said})")
        }
        None => format!("the account's usage limit is reached ({said})"),
    }
}

/// The last second of the year 9999, the latest possible HTTP date.
const MAX_DATE: u64 = 253_402_300_799;

fn error_object(body: &str) -> Option<WireError> {
    #[derive(Deserialize)]
    struct Wrapped<'a> {
        #[serde(borrow)]
        error: &'a RawValue,
    }
    let body = json::mend(body);
    let Wrapped { error } = serde_json::from_str(&body).ok()?;
    let error = WireError::read(error.get()).ok()?;
    (error != WireError::default()).then_some(error)
}

/// Quotes the beginning of a body on one line.
fn excerpt(body: &str) -> String {
    let flat = body.split_whitespace().collect::<Vec<_>>().join(" ");
    if flat.is_empty() {
        return "(no body)".to_owned();
    }
    if flat.len() <= EXCERPT_BYTES_MAX {
        return flat;
    }
    format!("{}…", &flat[..flat.floor_char_boundary(EXCERPT_BYTES_MAX)])
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use prompt::refusal::Refusal;
    use protocol::error::ErrorClass::{self, *};

    use super::{Refused, not_a_stream, refused, retry_after};

    #[track_caller]
    fn check(status: u16, body: &str, class: ErrorClass, words: &str) {
        let (url, provider) = ("http://h/v1/responses", "mock");
        let error = refused(&Refused { status, retry_after: None, body, url, provider });
        assert_eq!(error.class, class, "{status} {body}");
        assert!(error.message.contains(words), "{} lacks {words}", error.message);
        assert_eq!(error.status, Some(status));
    }

    #[test]
    fn statuses() {
        check(400, r#"{"error":{"message":"Bad"}}"#, InvalidRequest, "Bad");
        check(400, r#"{"error":{"code":"context_length_exceeded"}}"#, ContextFull, "window");
        let long = r#"{"error":{"code":400,"type":"exceed_context_size_error"}}"#;
        check(400, long, ContextFull, "window");
        check(400, r#"{"error":"just words"}"#, InvalidRequest, "just words");
        check(401, "", Credentials, "env_key");
        check(403, "<html>no</html>", Credentials, "<html>no</html>");
        check(
            404,
            r#"{"error":{"code":"model_not_found","message":"gone"}}"#,
            ModelNotFound,
            "gone",
        );
        check(404, "nope", NotAnEndpoint, "base_url");
        check(301, "", NotAnEndpoint, "redirect");
        check(418, "", NotAnEndpoint, "418");
        check(429, "{}", RateLimited, "429");
        check(429, r#"{"error":{"code":"insufficient_quota"}}"#, Quota, "quota");
        let limit =
            r#"{"error":{"type":"usage_limit_reached","message":"l","resets_at":1794800000}}"#;
        check(429, limit, UsageLimit, "16 Nov 2026");
        let coded = r#"{"error":{"type":"usage_limit_reached","code":"rate_limited"}}"#;
        check(429, coded, UsageLimit, "usage limit");
        let never = r#"{"error":{"type":"usage_limit_reached","resets_at":18446744073709551615}}"#;
        check(429, never, UsageLimit, "9999");
        check(500, "{}", ServerFault, "500");
        check(503, "oops", ServerFault, "oops");
        let busy = r#"{"error":{"code":"server_is_overloaded","message":"busy"}}"#;
        check(503, busy, Overloaded, "busy");
        check(400, busy, InvalidRequest, "busy");
        check(599, &"é".repeat(1000), ServerFault, "…");
    }

    #[test]
    fn refusals_of_the_local_daemon() {
        let model = "m".to_owned();
        let message = "wrong".to_owned();
        for (refusal, class) in [
            (Refusal::Invalid { message, param: None }, InvalidRequest),
            (Refusal::ContextFull { used: 9, wanted: 1, limit: 8 }, ContextFull),
            (Refusal::TooLarge { limit: 8 }, InvalidRequest),
            (Refusal::UnknownModel { model }, ModelNotFound),
            (Refusal::Busy { waiting: 3 }, RateLimited),
        ] {
            let body = String::from_utf8(refusal.to_body()).unwrap();
            check(refusal.status(), &body, class, &refusal.to_string());
        }
    }

    #[test]
    fn other_content() {
        let error = not_a_stream("text/html", "<h1>hi</h1>", "u", "p");
        assert_eq!(error.class, NotAnEndpoint);
        assert!(error.message.contains("text/html") && error.message.contains("base_url"));
        let error = not_a_stream(
            "application/json",
            r#"{"error":{"code":"server_is_overloaded"}}"#,
            "u",
            "p",
        );
        assert_eq!(error.class, Overloaded);
    }

    #[test]
    fn delays() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_794_800_000);
        for (value, want) in [
            ("0", Some(0)),
            (" 12 ", Some(12)),
            ("Mon, 16 Nov 2026 03:33:30 GMT", Some(10)),
            ("Sun, 15 Nov 2026 18:07:53 GMT", Some(0)),
            ("soon", None),
            ("-3", None),
            ("", None),
        ] {
            assert_eq!(retry_after(value, now), want.map(Duration::from_secs), "{value}");
        }
    }
}
