//! One attempt: a request out, a stream of bytes in.

use std::error::Error;
use std::io;
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
use crate::tls;

/// How long making a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the body of an error may take.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an error's body that are read.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The provider's memory of a turn: what it sends with an answer goes along with later requests.
const TURN_STATE: HeaderName = HeaderName::from_static("x-codex-turn-state");

/// Sends requests to one endpoint.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    endpoint: Endpoint,
    url: Url,
    /// The address without what may be secret in it: for messages.
    shown_url: String,
    headers: HeaderMap,
    turn_state: Mutex<Option<HeaderValue>>,
}

impl Client {
    /// Makes a client; proxies are taken from the environment as other programs do.
    pub fn new(endpoint: Endpoint, identity: &Identity) -> Result<Self, EndpointError> {
        let url = endpoint.url()?;
        let shown_url = shown(&url);
        let headers = endpoint.headers(identity)?;
        let encrypted = url.scheme() == "https" || proxied();
        let http = match &endpoint.socket {
            // A proxy knows nothing of our sockets.
            Some(socket) => builder(false)?.no_proxy().unix_socket(socket.path.clone()),
            None => builder(encrypted)?,
        };
        let http = http.build().map_err(|e| EndpointError::Client(causes(e)))?;
        Ok(Self { http, endpoint, url, shown_url, headers, turn_state: Mutex::new(None) })
    }

    /// Forgets what the provider remembers of the turn; call it when a new one begins.
    pub fn begin_turn(&self) {
        *self.turn_state() = None;
    }

    /// Returns the API that the endpoint speaks.
    pub fn wire_api(&self) -> WireApi {
        self.endpoint.wire_api
    }

    /// Writes the body of a request in the form that the endpoint takes.
    pub fn encode(&self, request: &Request<'_>) -> Bytes {
        self.endpoint.wire_api.encode(request).into()
    }

    /// Sends `body` and waits for the beginning of the answer.
    pub async fn open(&self, body: Bytes) -> Result<ByteStream, SampleError> {
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
        let idle = self.endpoint.idle_timeout;
        let sent = match (self.send(body.clone()).await, &self.endpoint.socket) {
            // Nobody has seen the request yet.
            (Some(Err(error)), Some(socket)) if error.is_connect() => {
                wake(socket).await?;
                self.send(body).await
            }
            (sent, _) => sent,
        };
        let response = sent.ok_or_else(|| idle_for_too_long(idle))?;
        let response = response.map_err(|error| self.unreachable(error))?;
        if let Some(state) = response.headers().get(TURN_STATE) {
            *self.turn_state() = Some(state.clone());
        }
        let kind = header(&response, &CONTENT_TYPE).to_ascii_lowercase();
        if response.status() != 200 {
            return Err(self.refused(response).await);
        }
        // No content type at all is what hand-made servers send; the decoder will find out.
        if !kind.is_empty() && !kind.contains("event-stream") {
            let body = body_start(response).await;
            let provider = &self.endpoint.name;
            return Err(classify::not_a_stream(&kind, &body, &self.shown_url, provider));
        }
        Ok(ByteStream { response, idle })
    }

    /// Sends `body`; none if nothing comes back. Until the head of the answer comes, silence is silence too.
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
        let Self { shown_url, endpoint, .. } = self;
        if is_tls(&error) {
            let problem = causes(error);
            let message = format!(
                "{shown_url} is not trusted: {problem}; check the address, or name the authority's \
                 certificate in SSL_CERT_FILE"
            );
            return SampleError::new(ErrorClass::NotAnEndpoint, message);
        }
        let class = match is_refused(&error) {
            true => ErrorClass::ConnectionRefused,
            false => ErrorClass::Unreachable,
        };
        if let Some(socket) = &endpoint.socket {
            let (socket, problem) = (socket.path.display(), causes(error));
            let message = format!(
                "the local daemon could not be reached at {socket}: {problem}; see `heddle daemon \
                 status` and `heddle daemon logs`"
            );
            return SampleError::new(class, message);
        }
        if class == ErrorClass::ConnectionRefused {
            let problem = causes(error);
            let message = format!(
                "nobody listens at {shown_url} ({problem}); is the server running? see `base_url` of \
                 model provider `{}`",
                endpoint.name
            );
            return SampleError::new(class, message);
        }
        SampleError::new(
            class,
            format!(
                "{shown_url} could not be reached: {}; check the network, and `base_url` of model \
                 provider `{}`",
                causes(error),
                endpoint.name
            ),
        )
    }

    async fn refused(&self, response: Response) -> SampleError {
        let status = response.status().as_u16();
        let retry_after = classify::retry_after(header(&response, &RETRY_AFTER), SystemTime::now());
        let body = body_start(response).await;
        let (url, provider) = (self.shown_url.as_str(), self.endpoint.name.as_str());
        classify::refused(&Refused { status, retry_after, body: &body, url, provider })
    }
}

/// Has somebody listen on a socket.
async fn wake(socket: &Socket) -> Result<(), SampleError> {
    let wake = Arc::clone(&socket.wake);
    let woken = tokio::task::spawn_blocking(move || wake()).await;
    let woken = woken.unwrap_or_else(|_| Err("the local daemon could not be started".to_owned()));
    // What cannot be started now cannot be started in a moment either.
    woken.map_err(|problem| SampleError::new(ErrorClass::ModelNotFound, problem))
}

/// Makes a client for other things than models, such as files: with the same trust and the same proxies, and
/// without redirects, which are the caller's to follow.
pub fn http() -> Result<reqwest::Client, EndpointError> {
    builder(true)?.build().map_err(|e| EndpointError::Client(causes(e)))
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

/// The body of an answer, as it comes.
#[derive(Debug)]
pub struct ByteStream {
    response: Response,
    idle: Duration,
}

impl ByteStream {
    /// Returns how long the stream may be silent.
    pub fn idle_timeout(&self) -> Duration {
        self.idle
    }

    /// Waits for more bytes, until `deadline` at most; none at the end of the body.
    ///
    /// What counts as silence is the caller's to say, who knows an event from a keep-alive. Dropping
    /// the future loses nothing: the next call goes on where this one waited.
    pub async fn next(&mut self, deadline: Instant) -> Result<Option<Bytes>, SampleError> {
        match tokio::time::timeout_at(deadline, self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => Err(SampleError::new(
                ErrorClass::Disconnected,
                format!("the answer broke off: {}", causes(error)),
            )),
            Err(_) => Err(idle_for_too_long(self.idle)),
        }
    }
}

fn idle_for_too_long(idle: Duration) -> SampleError {
    SampleError::new(
        ErrorClass::Disconnected,
        format!("the answer broke off: nothing came for {} ms", idle.as_millis()),
    )
}

/// Reads the beginning of a body; one that breaks off gives what came.
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

fn header<'a>(response: &'a Response, name: &HeaderName) -> &'a str {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Joins an error and its causes, because reqwest says the least interesting thing first.
fn causes(error: reqwest::Error) -> String {
    // The address in it may hold a key.
    let error = error.without_url();
    let mut text = String::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&words);
        }
        next = cause.source();
    }
    if text.is_empty() { error.to_string() } else { text }
}

/// Tells whether TLS itself refused: trying again will not help.
fn is_tls(error: &(dyn Error + 'static)) -> bool {
    if error.is::<rustls::Error>() {
        return true;
    }
    // An I/O error hides what it wraps from `source`, and one may wrap another.
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    wrapped.is_some_and(|inner| is_tls(inner)) || error.source().is_some_and(is_tls)
}

/// Tells whether nobody listens at the address.
fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        || io.and_then(io::Error::get_ref).is_some_and(|inner| is_refused(inner))
        || error.source().is_some_and(is_refused)
}

/// Names an address without its query and user, which may be secret.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    // Neither can fail on an address that has a host, and ours does.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

/// Tells whether a proxy is configured, which may itself speak TLS.
fn proxied() -> bool {
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Tells whether `NO_PROXY` is `*`. The library takes that to be about names only, so that a local
/// endpoint, which is named by its address, would still be asked for through the proxy.
fn no_proxy_at_all() -> bool {
    ["NO_PROXY", "no_proxy"].iter().any(|name| std::env::var_os(name).is_some_and(|v| v == "*"))
}
