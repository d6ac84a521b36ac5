//! One attempt: sends a request and reads the byte stream of the answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use protocol::error::{ErrorClass, SampleError};
use protocol::responses::Request;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Response, Url, redirect};
use tokio::time::Instant;

use crate::classify::{self, Refused};
use crate::endpoint::{Auth, Endpoint, EndpointError, Identity, Socket, WireApi};
use crate::secrets::Secrets;
use crate::tls;
use crate::unreachable::{self, Destination, causes};

/// Timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for reading the body of an error response.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// How much of an error body is read.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// State the provider keeps for a turn: what it sends with an answer is returned with later requests.
const TURN_STATE: HeaderName = HeaderName::from_static("x-codex-turn-state");
/// Where providers put their id of a request; proxies have one of their own, which is better than none.
const REQUEST_IDS: [HeaderName; 4] = [
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("request-id"),
    HeaderName::from_static("apim-request-id"),
    HeaderName::from_static("cf-ray"),
];
/// Longest id of a request in bytes; what is longer is something else. The usual ones have 40.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Sends requests to one endpoint.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    endpoint: Endpoint,
    url: Url,
    /// The URL without parts that may be secret, for messages.
    shown_url: String,
    headers: HeaderMap,
    secrets: Secrets,
    turn_state: Mutex<Option<HeaderValue>>,
}

impl Client {
    /// Creates a client; proxies are taken from the usual environment variables.
    pub fn new(endpoint: Endpoint, identity: &Identity) -> Result<Self, EndpointError> {
        let url = endpoint.url()?;
        let shown_url = shown(&url);
        let headers = endpoint.headers(identity)?;
        let encrypted = url.scheme() == "https" || proxied();
        let http = match &endpoint.socket {
            // A proxy cannot reach a local socket.
            Some(socket) => builder(false)?.no_proxy().unix_socket(socket.path.clone()),
            None => builder(encrypted)?,
        };
        let http = http.build().map_err(|e| EndpointError::Client(causes(&e)))?;
        let (secrets, turn_state) = (endpoint.secrets(), Mutex::new(None));
        Ok(Self { http, endpoint, url, shown_url, headers, secrets, turn_state })
    }

    /// Drops the provider's state of the previous turn; call it when a new one begins.
    pub fn begin_turn(&self) {
        *self.turn_state() = None;
    }

    /// Returns the API that the endpoint speaks.
    pub fn wire_api(&self) -> WireApi {
        self.endpoint.wire_api
    }

    /// Returns what must not appear in errors of this endpoint. Those of [`Self::open`] are masked already.
    pub fn secrets(&self) -> Secrets {
        self.secrets.clone()
    }

    /// Serializes a request in the format of the endpoint.
    pub fn encode(&self, request: &Request<'_>) -> Bytes {
        self.endpoint.wire_api.encode(request).into()
    }

    /// Sends `body` and waits for the head of the answer.
    pub async fn open(&self, body: Bytes) -> Result<ByteStream, SampleError> {
        self.open_unmasked(body).await.map_err(|error| self.secrets.mask(error))
    }

    async fn open_unmasked(&self, body: Bytes) -> Result<ByteStream, SampleError> {
        if let Auth::Missing { variable, instructions } = &self.endpoint.auth {
            let more = instructions.as_ref().map(|text| format!(" ({text})")).unwrap_or_default();
            return Err(SampleError::new(
                ErrorClass::Credentials,
                format!(
                    "the environment variable `{variable}` is not set; model provider `{}` takes \
                     its key from it{more}",
                    self.endpoint.name
                ),
            ));
        }
        let sent = match (self.send(body.clone()).await, &self.endpoint.socket) {
            // The connection failed, so the request was not sent yet.
            (Some(Err(error)), Some(socket)) if error.is_connect() => {
                wake(socket).await?;
                self.send(body).await
            }
            (sent, _) => sent,
        };
        let response = sent.ok_or_else(|| self.silent())?;
        let response = response.map_err(|error| self.unreachable(error))?;
        if let Some(state) = response.headers().get(TURN_STATE) {
            *self.turn_state() = Some(state.clone());
        }
        let request_id = request_id(response.headers());
        let kind = header(&response, &CONTENT_TYPE).to_ascii_lowercase();
        if response.status() != 200 {
            return Err(self.refused(response).await.with_request_id(request_id));
        }
        // Simple servers send no content type at all; the decoder will find out.
        if !kind.is_empty() && !kind.contains("event-stream") {
            let body = body_start(response).await;
            let provider = &self.endpoint.name;
            let error = classify::not_a_stream(&kind, &body, &self.shown_url, provider);
            return Err(error.with_request_id(request_id));
        }
        let patience = self.endpoint.idle_timeout;
        let deadline = Instant::now() + patience;
        Ok(ByteStream { response, request_id, patience, deadline, silence: self.silent() })
    }

    /// Builds the error for an endpoint that accepted the request and sent nothing.
    fn silent(&self) -> SampleError {
        let Self { shown_url, endpoint, .. } = self;
        let message = format!(
            "{shown_url} took the request, and nothing came for {}; `stream_idle_timeout_ms` of model \
             provider `{}` says how long it may be silent",
            span(endpoint.idle_timeout),
            endpoint.name
        );
        SampleError::new(ErrorClass::Silent, message)
    }

    /// Sends `body`; `None` if the idle timeout expires before the head of the answer arrives.
    async fn send(&self, body: Bytes) -> Option<Result<Response, reqwest::Error>> {
        let mut request = self.http.post(self.url.clone()).headers(self.headers.clone()).body(body);
        if let Some(state) = self.turn_state().clone() {
            request = request.header(TURN_STATE, state);
        }
        tokio::time::timeout(self.endpoint.idle_timeout, request.send()).await.ok()
    }

    fn turn_state(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        self.turn_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unreachable(&self, error: reqwest::Error) -> SampleError {
        if let Some(socket) = &self.endpoint.socket {
            return unreachable::socket(&error, &socket.path);
        }
        let proxy = unreachable::proxy_for(self.url.as_str()).filter(|_| !no_proxy_at_all());
        let (url, provider) = (&self.shown_url, &self.endpoint.name);
        unreachable::classify(&error, Destination { url, provider, proxy: proxy.as_deref() })
    }

    async fn refused(&self, response: Response) -> SampleError {
        let status = response.status().as_u16();
        let retry_after = classify::retry_after(header(&response, &RETRY_AFTER), SystemTime::now());
        let body = body_start(response).await;
        let (url, provider) = (self.shown_url.as_str(), self.endpoint.name.as_str());
        classify::refused(&Refused { status, retry_after, body: &body, url, provider })
    }
}

/// Asks for a program to be started that listens on the socket.
async fn wake(socket: &Socket) -> Result<(), SampleError> {
    let wake = Arc::clone(&socket.wake);
    let woken = tokio::task::spawn_blocking(move || wake()).await;
    let woken = woken.unwrap_or_else(|_| Err("the local daemon could not be started".to_owned()));
    // If it cannot be started now, a retry will not help either.
    woken.map_err(|problem| SampleError::new(ErrorClass::ModelNotFound, problem))
}

/// Creates a client for other downloads, such as files: with the same certificates and proxies, and without
/// redirects, which the caller follows itself.
pub fn http() -> Result<reqwest::Client, EndpointError> {
    builder(true)?.build().map_err(|e| EndpointError::Client(causes(&e)))
}

fn builder(encrypted: bool) -> Result<reqwest::ClientBuilder, EndpointError> {
    let tls = tls::config(encrypted).map_err(|e| EndpointError::Client(e.to_string()))?;
    let http = reqwest::Client::builder()
        .use_preconfigured_tls(tls)
        .http1_only()
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT);
    Ok(if no_proxy_at_all() { http.no_proxy() } else { http })
}

/// The body of an answer as a stream of bytes.
#[derive(Debug)]
pub struct ByteStream {
    response: Response,
    request_id: Option<String>,
    /// The idle timeout.
    patience: Duration,
    /// When the stream counts as broken.
    deadline: Instant,
    /// The error to return if nothing arrives until then.
    silence: SampleError,
}

impl ByteStream {
    /// Waits for more bytes until the idle timeout; `None` at the end of the body.
    ///
    /// Cancel-safe: the next call continues the same wait.
    pub async fn next(&mut self) -> Result<Option<Bytes>, SampleError> {
        match tokio::time::timeout_at(self.deadline, self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => Err(SampleError::new(
                ErrorClass::Disconnected,
                format!("the answer broke off: {}", causes(&error)),
            )),
            Err(_) => Err(self.silence.clone()),
        }
    }

    /// Returns the provider's id of the request, for errors about the answer.
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// Restarts the idle timeout because an event arrived. Only the caller can tell: a proxy can keep a dead
    /// stream alive with bytes that carry no event.
    pub fn heard(&mut self) {
        self.deadline = Instant::now() + self.patience;
        if self.silence.class == ErrorClass::Silent {
            self.silence = SampleError::new(
                ErrorClass::Disconnected,
                format!("the answer broke off: nothing came for {}", span(self.patience)),
            );
        }
    }
}

/// Formats a duration for people.
fn span(time: Duration) -> String {
    match time.as_millis() {
        ms if ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}

/// Reads the beginning of a body; if it breaks off, returns what arrived.
async fn body_start(mut response: Response) -> String {
    let mut body = Vec::new();
    let deadline = Instant::now() + BODY_PATIENCE;
    while body.len() < BODY_BYTES_MAX {
        match tokio::time::timeout_at(deadline, response.chunk()).await {
            Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
            _ => break,
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// Returns the provider's id of a request, from the headers of its answer.
fn request_id(headers: &HeaderMap) -> Option<String> {
    let text = REQUEST_IDS.iter().find_map(|name| {
        let text = headers.get(name)?.to_str().ok()?.trim();
        (!text.is_empty() && text.len() <= REQUEST_ID_BYTES_MAX).then_some(text)
    })?;
    Some(text.to_owned())
}

fn header<'a>(response: &'a Response, name: &HeaderName) -> &'a str {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Formats a URL without its query and user, which may be secret.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    // Neither can fail on a URL with a host, and ours has one.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

/// Tells whether a proxy is configured, which may itself use TLS.
fn proxied() -> bool {
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Tells whether `NO_PROXY` is `*`. The library applies that to host names only, so a local endpoint given by
/// its IP address would still go through the proxy.
fn no_proxy_at_all() -> bool {
    ["NO_PROXY", "no_proxy"].iter().any(|name| std::env::var_os(name).is_some_and(|v| v == "*"))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::{REQUEST_ID_BYTES_MAX, request_id};

    #[test]
    fn ids_of_requests() {
        let long = "x".repeat(REQUEST_ID_BYTES_MAX + 1);
        let longest = &long[1..];
        for (headers, want) in [
            (&[][..], None),
            (&[("X-Request-Id", "req_1")], Some("req_1")),
            (&[("request-id", " a b ")], Some("a b")),
            (&[("cf-ray", "ray"), ("x-request-id", "req_1")], Some("req_1")),
            (&[("x-request-id", ""), ("cf-ray", "ray")], Some("ray")),
            (&[("x-request-id", &long), ("apim-request-id", "azure")], Some("azure")),
            (&[("x-request-id", longest)], Some(longest)),
            (&[("x-request-id", "\u{e9}")], None),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(
                    reqwest::header::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                    reqwest::header::HeaderValue::from_bytes(value.as_bytes()).unwrap(),
                );
            }
            assert_eq!(request_id(&map).as_deref(), want, "{headers:?}");
        }
    }
}
