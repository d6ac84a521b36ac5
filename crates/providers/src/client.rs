//! One attempt: a request out, a stream of bytes in.

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
use crate::unreachable::{self, Destination, causes};

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
        let http = http.build().map_err(|e| EndpointError::Client(causes(&e)))?;
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
        let sent = match (self.send(body.clone()).await, &self.endpoint.socket) {
            // Nobody has seen the request yet.
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
        let patience = self.endpoint.idle_timeout;
        let deadline = Instant::now() + patience;
        Ok(ByteStream { response, patience, deadline, silence: self.silent() })
    }

    /// Says that the endpoint took the request, and nothing came.
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

/// The body of an answer, as it comes.
#[derive(Debug)]
pub struct ByteStream {
    response: Response,
    /// How long it may be silent.
    patience: Duration,
    /// When it counts as broken off.
    deadline: Instant,
    /// What it means if nothing comes until then.
    silence: SampleError,
}

impl ByteStream {
    /// Waits for more bytes, as long as the stream may be silent; none at the end of the body.
    ///
    /// Dropping the future loses nothing: the next call goes on where this one waited.
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

    /// Notes that an event has come. Only the caller knows: a proxy can keep a dead stream alive with bytes
    /// that say nothing.
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

/// Writes a time as a person would.
fn span(time: Duration) -> String {
    match time.as_millis() {
        ms if ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
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
