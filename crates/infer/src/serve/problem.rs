//! Error responses in the format of hosted endpoints.

use bytes::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use prompt::refusal::{Refusal, error_body};

use super::body::Body;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// A short code for programs and logs.
    pub(crate) code: &'static str,
    message: String,
    /// A more specific refusal, if there is one.
    refusal: Option<Refusal>,
    /// The allowed methods, if another one was used.
    allow: Option<&'static str>,
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), refusal: None, allow: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "invalid_api_key",
            "send the daemon's token: `Authorization: Bearer TOKEN`; it is in the file that `heddle \
             daemon status` names",
        )
    }

    pub(crate) fn forbidden_host() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "forbidden_host",
            "this daemon answers to localhost and to addresses of the loopback only; use one of them \
             in the URL",
        )
    }

    pub(crate) fn version(wanted: &str) -> Self {
        let ours = super::PROTOCOL;
        Self::new(
            StatusCode::BAD_REQUEST,
            "unsupported_protocol",
            format!(
                "this daemon speaks version {ours} of the protocol and not {wanted:?}; stop it with \
                 `heddle daemon stop`, and the next start is of the same version as its client"
            ),
        )
    }

    pub(crate) fn not_found(path: &str) -> Self {
        let path = &path[..path.floor_char_boundary(PATH_BYTES_SHOWN)];
        Self::new(
            StatusCode::NOT_FOUND,
            "not_found",
            format!(
                "there is nothing at {path:?}; there are /v1/responses, /v1/chat/completions, \
                 /v1/models, /health and, if it is wanted, /metrics"
            ),
        )
    }

    pub(crate) fn no_metrics() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "this daemon counts nothing; start it with `heddle daemon start --metrics`, or write `metrics = true` \
             into [daemon] of config.toml",
        )
    }

    pub(crate) fn method(allow: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                format!("use {allow} here"),
            )
        }
    }

    pub(crate) fn media_type(what: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            format!("send plain JSON with `Content-Type: application/json`, and no {what}"),
        )
    }

    pub(crate) fn slow() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            "the rest of the request did not come in time; send it again",
        )
    }

    pub(crate) fn bodies_full() -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limit_exceeded",
            "too many large requests are being read; send this one again in a moment",
        )
    }

    pub(crate) fn shutting_down() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "shutting_down",
            "the daemon is ending; start it again with `heddle daemon start`",
        )
    }

    pub(crate) fn no_model(reason: &str) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "model_not_loaded",
            format!("the model could not be loaded: {reason}"),
        )
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    pub(crate) fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::whole(self.to_body()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let refusal = self.refusal.as_ref();
                let seconds = refusal.and_then(Refusal::retry_after_seconds);
                let seconds = seconds.unwrap_or(RETRY_AFTER_SECONDS);
                headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
            _ => {}
        }
        response
    }

    fn to_body(&self) -> Bytes {
        let kind = match self.status.as_u16() {
            401 | 403 => "authentication_error",
            429 => "requests",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        match &self.refusal {
            Some(refusal) => refusal.to_body(),
            None => error_body(&self.message, kind, None, Some(self.code)),
        }
        .into()
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::ContextFull { .. } | Refusal::FarTooLong { .. } => "context_length_exceeded",
            Refusal::TooLarge { .. } => "request_too_large",
            Refusal::UnknownModel { .. } => "model_not_found",
            Refusal::Busy { .. } => "rate_limit_exceeded",
            _ => "invalid_request",
        };
        let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::BAD_REQUEST);
        Self { refusal: Some(refusal), ..Self::new(status, code, String::new()) }
    }
}

const RETRY_AFTER_SECONDS: u64 = 1;
/// How much of an unknown path is repeated.
const PATH_BYTES_SHOWN: usize = 100;
