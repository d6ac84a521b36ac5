//! Where requests go, and what goes along with each of them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::{chat, responses};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use stdx::Redacted;

/// The address of OpenAI's own endpoint.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// The API that an endpoint speaks: where requests go, and in which form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WireApi {
    /// Responses.
    #[default]
    Responses,
    /// Chat Completions.
    Chat,
}

impl WireApi {
    /// Returns the path of the API below an endpoint's address.
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

/// A model endpoint, ready to be used: nothing in it needs the environment any more.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// What the user calls it.
    pub name: String,
    /// The address without the path of the API.
    pub base_url: String,
    /// Where it listens, if it is a program of this machine; the address then only has the path.
    pub socket: Option<Socket>,
    /// The API that it speaks.
    pub wire_api: WireApi,
    /// Added to the address; some put their keys here.
    pub query: Vec<(String, Redacted)>,
    /// Added to the headers.
    pub headers: Vec<(String, Redacted)>,
    /// The key to send, if any.
    pub auth: Auth,
    /// How long a stream may be silent.
    pub idle_timeout: Duration,
}

/// A Unix socket, and how to have somebody listen on it.
#[derive(Clone)]
pub struct Socket {
    /// The file.
    pub path: PathBuf,
    /// Called when nobody listens: blocks until somebody does, or says why not and what to do.
    pub wake: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.path).finish()
    }
}

/// How requests prove who sends them.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Not at all, as with local endpoints.
    None,
    /// With a bearer token.
    Bearer(Redacted),
    /// With the value of a variable that is not set; every request fails with advice.
    Missing {
        /// The variable.
        variable: String,
        /// How to get a key, in the provider's words.
        instructions: Option<String>,
    },
}

/// Who asks: sent as headers, so that a provider can tell threads and clients apart.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The program that drives us, or ourselves.
    pub originator: String,
    /// Our version and the platform.
    pub user_agent: String,
    /// The thread.
    pub thread_id: String,
}

/// The configuration of an endpoint cannot be used.
#[derive(Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The address is not one.
    #[error(
        "`base_url` of model provider `{name}` is not an http or https address: write it as in \
         https://host/v1"
    )]
    BaseUrl {
        /// The provider.
        name: String,
    },
    /// A header cannot be sent.
    #[error(
        "header `{header}` of model provider `{name}` has a name or value that HTTP does not allow"
    )]
    Header {
        /// The provider.
        name: String,
        /// The header.
        header: String,
    },
    /// No HTTP client could be made.
    #[error("no HTTP client could be made: {0}")]
    Client(String),
}

impl Endpoint {
    /// Returns the address that requests go to.
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

    /// Returns the headers that every request carries.
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
        // What the user configured comes last, so that it wins.
        for (name, value) in &self.headers {
            insert(name, value.expose())?;
        }
        Ok(map)
    }
}
