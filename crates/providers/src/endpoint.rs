//! Where requests go, and which headers and parameters they carry.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::{chat, responses};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use stdx::Redacted;

use crate::secrets::Secrets;

/// Base URL of OpenAI's own endpoint.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// The API that an endpoint speaks: the path of requests, and their format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WireApi {
    #[default]
    Responses,
    Chat,
}

impl WireApi {
    /// Returns the path of the API below the base URL.
    fn path(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::Chat => "chat/completions",
        }
    }

    /// Writes the body of a request.
    pub(crate) fn encode(self, request: &responses::Request<'_>) -> Vec<u8> {
        let written = match self {
            Self::Responses => serde_json::to_vec(request),
            Self::Chat => serde_json::to_vec(&chat::Request::from(request)),
        };
        written.expect("a request is plain data with string keys")
    }
}

/// A model endpoint, fully resolved: using it does not need the environment any more.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The name the user gave it.
    pub name: String,
    /// The URL without the path of the API.
    pub base_url: String,
    /// The socket it listens on, if it runs on this machine; then the URL contributes only the path.
    pub socket: Option<Socket>,
    pub wire_api: WireApi,
    /// Query parameters to add; some contain keys.
    pub query: Vec<(String, Redacted)>,
    pub headers: Vec<(String, Redacted)>,
    pub auth: Auth,
    /// How long a stream may be silent.
    pub idle_timeout: Duration,
}

/// A Unix socket, and how to start a program that listens on it.
#[derive(Clone)]
pub struct Socket {
    pub path: PathBuf,
    /// Called if the connection is refused: blocks until a program listens, or returns why not and what to
    /// do.
    pub wake: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.path).finish()
    }
}

/// How requests are authenticated.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Not at all, as with local endpoints.
    None,
    /// With a bearer token.
    Bearer(Redacted),
    /// With a variable that is not set; every request fails with instructions.
    Missing {
        variable: String,
        /// The provider's instructions for getting a key.
        instructions: Option<String>,
    },
}

/// The client's identity, sent as headers so that a provider can tell threads and clients apart.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The program that drives heddle, or heddle itself.
    pub originator: String,
    /// Heddle's version and the platform.
    pub user_agent: String,
    pub thread_id: String,
}

/// Why an endpoint's configuration cannot be used.
#[derive(Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The URL is invalid.
    #[error(
        "`base_url` of model provider `{name}` is not an http or https address: write it as in \
         https://host/v1"
    )]
    BaseUrl { name: String },
    /// A header cannot be sent.
    #[error(
        "header `{header}` of model provider `{name}` has a name or value that HTTP does not allow"
    )]
    Header { name: String, header: String },
    #[error("no HTTP client could be made: {0}")]
    Client(String),
}

impl Endpoint {
    /// Returns the URL that requests go to.
    pub(crate) fn url(&self) -> Result<Url, EndpointError> {
        let bad = || EndpointError::BaseUrl { name: self.name.clone() };
        let text = format!("{}/{}", self.base_url.trim_end_matches('/'), self.wire_api.path());
        let mut url = Url::parse(&text).map_err(|_| bad())?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(bad());
        }
        if !self.query.is_empty() {
            let pairs = self.query.iter().map(|(name, value)| (name.as_str(), value.expose()));
            url.query_pairs_mut().extend_pairs(pairs);
        }
        Ok(url)
    }

    /// Returns the secrets in its headers and query, so that they can be masked.
    pub(crate) fn secrets(&self) -> Secrets {
        let token = match &self.auth {
            Auth::Bearer(token) => Some(token),
            _ => None,
        };
        let headers = self.headers.iter().map(|(_, value)| value);
        Secrets::new(token.into_iter().chain(headers))
    }

    /// Returns the headers of every request.
    pub(crate) fn headers(&self, identity: &Identity) -> Result<HeaderMap, EndpointError> {
        let mut map = HeaderMap::new();
        let mut insert = |name: &str, value: &str| {
            let bad = || EndpointError::Header { name: self.name.clone(), header: name.to_owned() };
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            map.insert(key, value);
            Ok::<_, EndpointError>(())
        };
        insert("accept", "text/event-stream")?;
        insert("content-type", "application/json")?;
        insert("originator", &identity.originator)?;
        insert("user-agent", &identity.user_agent)?;
        insert("session-id", &identity.thread_id)?;
        insert("thread-id", &identity.thread_id)?;
        insert("x-client-request-id", &identity.thread_id)?;
        if let Auth::Bearer(token) = &self.auth {
            insert("authorization", &format!("Bearer {}", token.expose()))?;
        }
        // User-configured headers come last, so that they win.
        for (name, value) in &self.headers {
            insert(name, value.expose())?;
        }
        Ok(map)
    }
}
