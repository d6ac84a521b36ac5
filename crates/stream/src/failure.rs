//! Classifies a provider's error object, in a stream or in the body of a response.

use std::time::Duration;

use protocol::error::{ErrorClass, SampleError};
use serde::Deserialize;

/// An error object as providers send it; every field may be missing.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct WireError {
    /// A code for programs; some send a number.
    #[serde(deserialize_with = "text_or_number")]
    pub code: Option<String>,
    /// A category of codes.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// A message for people.
    pub message: Option<String>,
    /// When a quota resets, in Unix seconds.
    pub resets_at: Option<u64>,
}

impl WireError {
    /// Parses an error that is an object, or only a text.
    pub fn read(json: &str) -> serde_json::Result<Self> {
        if json.starts_with('"') {
            let message = Some(serde_json::from_str(json)?);
            return Ok(Self { message, ..Self::default() });
        }
        serde_json::from_str(json)
    }

    /// Returns the message, or the code, or a fallback.
    pub fn text(&self) -> &str {
        self.message.as_deref().or(self.code.as_deref()).unwrap_or("the provider gave no reason")
    }
}

/// Classifies an error that a stream reported.
pub fn classify(error: &WireError) -> SampleError {
    let text = error.text();
    let found = by_code(error, text);
    // Not every endpoint has a code for this, and it must not be treated as a request that cannot be fixed.
    let vague = matches!(found.class, ErrorClass::InvalidRequest | ErrorClass::Disconnected);
    if vague && says_full(text) { context_full(text) } else { found }
}

fn by_code(error: &WireError, text: &str) -> SampleError {
    // A number says less than a word: it is the HTTP status that the answer would have had.
    let status = error.code.as_deref().and_then(|code| code.parse::<u16>().ok());
    let code = error.code.as_deref().filter(|_| status.is_none()).or(error.kind.as_deref());
    match code.unwrap_or_default() {
        "context_length_exceeded" | "exceed_context_size_error" => context_full(text),
        "insufficient_quota" => SampleError::new(
            ErrorClass::Quota,
            format!("the account has no quota left; check its plan and billing ({text})"),
        ),
        "usage_not_included" => SampleError::new(
            ErrorClass::Quota,
            format!("the account's plan does not include this use ({text})"),
        ),
        "usage_limit_reached" => SampleError::new(
            ErrorClass::UsageLimit,
            format!("the account's usage limit is reached ({text})"),
        ),
        "invalid_prompt" | "invalid_request_error" => {
            SampleError::new(ErrorClass::InvalidRequest, text)
        }
        "bio_policy" | "cyber_policy" | "misalignment_policy_violation" => {
            SampleError::new(ErrorClass::ContentPolicy, text)
        }
        "model_not_found" => SampleError::new(ErrorClass::ModelNotFound, text),
        "invalid_api_key" | "authentication_error" => {
            SampleError::new(ErrorClass::Credentials, text)
        }
        "server_is_overloaded" => SampleError::new(
            ErrorClass::Overloaded,
            format!("the model is at capacity; try again later or choose another ({text})"),
        ),
        "rate_limit_exceeded" | "slow_down" => rate_limited(text),
        _ => match status {
            Some(400 | 413 | 422) => SampleError::new(ErrorClass::InvalidRequest, text),
            Some(401 | 403) => SampleError::new(ErrorClass::Credentials, text),
            Some(402) => SampleError::new(ErrorClass::Quota, text),
            Some(429) => rate_limited(text),
            _ => SampleError::new(
                ErrorClass::Disconnected,
                format!("the provider ended the answer before it was complete: {text}"),
            ),
        },
    }
}

fn context_full(text: &str) -> SampleError {
    SampleError::new(
        ErrorClass::ContextFull,
        format!("the request does not fit into the model's context window ({text})"),
    )
}

/// Tells whether a message says that a request is too long for the model.
fn says_full(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let any = |words: &[&str]| words.iter().any(|words| text.contains(words));
    any(&["prompt is too long", "maximum context length", "input token count"])
        || any(&["context length", "context window", "context size"])
            && any(&[
                "exceed",
                "too long",
                "too large",
                "longer than",
                "larger than",
                "greater than",
            ])
}

fn rate_limited(text: &str) -> SampleError {
    SampleError::new(ErrorClass::RateLimited, format!("rate limit reached: {text}"))
        .with_retry_after(delay_in_text(text))
}

/// Classifies an answer that the provider ended early.
pub fn incomplete(reason: Option<&str>) -> SampleError {
    match reason {
        // The filter judges the sampled text, and another sample may pass it.
        Some("content_filter") => SampleError::new(
            ErrorClass::Disconnected,
            "the provider's content filter cut the answer short",
        ),
        Some("max_output_tokens") => SampleError::new(
            ErrorClass::Incomplete,
            "the answer reached the provider's token limit before it was complete",
        ),
        reason => SampleError::new(
            ErrorClass::Incomplete,
            format!(
                "the provider left the answer incomplete, reason: {}",
                reason.unwrap_or("unknown")
            ),
        ),
    }
}

/// Finds a delay in messages such as "try again in 1.5s" or "try again in 250 ms".
pub fn delay_in_text(text: &str) -> Option<Duration> {
    let lower = text.to_ascii_lowercase();
    let rest = lower.split_once("try again in ")?.1;
    let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let number: f64 = rest[..digits].parse().ok()?;
    let unit = rest[digits..].trim_start();
    let seconds = if unit.starts_with("ms") || unit.starts_with("milli") {
        number / 1000.0
    } else if unit.starts_with('s') {
        number
    } else if unit.starts_with('m') {
        number * 60.0
    } else {
        return None;
    };
    Duration::try_from_secs_f64(seconds).ok()
}

fn text_or_number<'de, D: serde::Deserializer<'de>>(de: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Code {
        Text(String),
        Number(i64),
        Other(serde::de::IgnoredAny),
    }
    Ok(match Option::<Code>::deserialize(de)? {
        Some(Code::Text(text)) => Some(text),
        Some(Code::Number(number)) => Some(number.to_string()),
        Some(Code::Other(_)) | None => None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::error::ErrorClass::{self, *};

    use super::{WireError, classify, delay_in_text, incomplete};

    #[track_caller]
    fn check(json: &str, class: ErrorClass, delay_ms: Option<u64>) {
        let error = WireError::read(json).expect("an error");
        let got = classify(&error);
        assert_eq!(got.class, class, "{json}");
        assert_eq!(got.retry_after, delay_ms.map(Duration::from_millis), "{json}");
        assert!(!got.message.is_empty());
    }

    #[test]
    fn codes() {
        check(r#"{"code":"context_length_exceeded","message":"too long"}"#, ContextFull, None);
        check(r#"{"code":"insufficient_quota"}"#, Quota, None);
        check(r#"{"code":"usage_not_included","message":"no"}"#, Quota, None);
        check(r#"{"type":"usage_limit_reached"}"#, UsageLimit, None);
        check(r#"{"code":"invalid_prompt","message":"x"}"#, InvalidRequest, None);
        check(r#"{"code":"cyber_policy","message":"x"}"#, ContentPolicy, None);
        check(r#"{"code":"server_is_overloaded","message":"busy"}"#, Overloaded, None);
        check(r#"{"code":"slow_down"}"#, RateLimited, None);
        check(
            r#"{"code":"rate_limit_exceeded","message":"Please try again in 0.5s."}"#,
            RateLimited,
            Some(500),
        );
        check(r#"{"code":"rate_limit_exceeded","message":"later"}"#, RateLimited, None);
        check(r#"{"code":"server_error","message":"x"}"#, Disconnected, None);
        for text in [
            "This model's maximum context length is 8192 tokens. However, you requested 9000",
            "prompt is too long: 210000 tokens > 200000 maximum",
            "The input token count (9) exceeds the maximum number of tokens allowed (8).",
            "request (9000 tokens) exceeds the available context size (8192 tokens)",
        ] {
            for code in ["400", r#""invalid_request_error""#, "null"] {
                check(&format!(r#"{{"code":{code},"message":"{text}"}}"#), ContextFull, None);
            }
        }
        check(r#"{"code":400,"message":"unknown field `context window`"}"#, InvalidRequest, None);
        check(r#"{"code":500}"#, Disconnected, None);
        check(r#"{"code":402,"message":"pay"}"#, Quota, None);
        check(r#"{"code":"403"}"#, Credentials, None);
        check(r#"{"code":429,"message":"Try again in 2s"}"#, RateLimited, Some(2000));
        check(r#"{"code":400,"type":"exceed_context_size_error"}"#, ContextFull, None);
        check(r#"{"code":400,"type":"BadRequestError","message":"no"}"#, InvalidRequest, None);
        check(r#""out of luck""#, Disconnected, None);
        check(r#"{"code":null,"message":null}"#, Disconnected, None);
        check("{}", Disconnected, None);
    }

    #[test]
    fn delays() {
        for (text, ms) in [
            ("Please try again in 11.054s. Visit", Some(11_054)),
            ("try again in 250ms", Some(250)),
            ("Try again in 35 seconds.", Some(35_000)),
            ("try again in 2m", Some(120_000)),
            ("try again in a while", None),
            ("try again in 5 parsecs", None),
            ("try again in 99999999999999999999999999s", None),
            ("no advice", None),
        ] {
            assert_eq!(delay_in_text(text), ms.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn reasons() {
        assert_eq!(incomplete(Some("content_filter")).class, Disconnected);
        assert_eq!(incomplete(Some("max_output_tokens")).class, Incomplete);
        assert_eq!(incomplete(None).class, Incomplete);
    }
}
