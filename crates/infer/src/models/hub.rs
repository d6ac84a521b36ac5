//! A model hub such as Hugging Face: lists the files of a repository, their sizes, and downloads them.
//!
//! One attempt at a time: retries are decided in [`super::pull`]. Redirects are followed here instead of by
//! the HTTP client, because the user's token is for the hub and not for the hosts it redirects to.

use std::error::Error as _;
use std::time::Duration;

use reqwest::header::{
    AUTHORIZATION, CONTENT_LENGTH, ETAG, HeaderMap, HeaderName, HeaderValue, LINK, LOCATION,
    RETRY_AFTER,
};
use reqwest::{Client, Method, Response, Url};
use serde::Deserialize;
use stdx::Redacted;

/// Default URL of the hub.
pub const ENDPOINT: &str = "https://huggingface.co";

#[derive(Debug)]
pub struct Hub {
    http: Client,
    endpoint: Url,
    token: Option<HeaderValue>,
    idle: Duration,
}

/// Metadata of a file before it is downloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub bytes: u64,
    /// Its SHA-256, if the hub provides it.
    pub sha256: Option<String>,
    pub etag: Option<String>,
    /// The commit of the repository.
    pub commit: Option<String>,
}

/// Why a request to the hub failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// It is unreachable, or the connection broke: a retry may help.
    #[error(
        "{host} could not be reached, or the connection broke: {why}; check the network, HTTPS_PROXY and HF_ENDPOINT"
    )]
    Unreachable { host: String, why: String },
    /// It has a temporary problem, or asks us to wait.
    #[error("{host} is busy (status {status}); try again later")]
    Busy { host: String, status: u16, retry_after: Option<Duration> },
    /// It does not exist, or is not accessible.
    #[error(
        "{what} does not exist, or is not public (status {status}): check the name; for a private or \
             gated repository accept its terms on its page and set HF_TOKEN"
    )]
    Missing { what: String, status: u16 },
    /// The response is invalid.
    #[error("{host} does not answer like a model hub: {why}; check HF_ENDPOINT")]
    Odd { host: String, why: String },
    /// The URL of the hub is invalid.
    #[error("`{0}` is not the address of a hub: write it as in {ENDPOINT}")]
    Endpoint(String),
}

impl HubError {
    /// Tells whether a retry may help.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Busy { .. })
    }
}

impl Hub {
    /// Creates a hub; `http` must not follow redirects.
    pub fn new(http: Client, endpoint: &str, token: Option<&Redacted>) -> Result<Self, HubError> {
        let bad = || HubError::Endpoint(endpoint.to_owned());
        let endpoint = Url::parse(endpoint.trim_end_matches('/')).map_err(|_| bad())?;
        if !matches!(endpoint.scheme(), "http" | "https") || !endpoint.has_host() {
            return Err(bad());
        }
        let token = token.and_then(|token| {
            let mut value =
                HeaderValue::from_str(&format!("Bearer {}", token.expose().trim())).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        Ok(Self { http, endpoint, token, idle: IDLE })
    }

    /// Sets the idle timeout.
    #[must_use]
    pub fn with_patience(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// Returns the idle timeout.
    pub(super) fn idle(&self) -> Duration {
        self.idle
    }

    /// Lists the files of a repository.
    pub async fn files(&self, repository: &str) -> Result<Vec<String>, HubError> {
        let mut url = self.url(&format!("api/models/{repository}/tree/main"))?;
        url.set_query(Some("recursive=true"));
        let mut files = Vec::new();
        for _ in 0..PAGES_MAX {
            let response = self.send(Method::GET, url.clone(), &HeaderMap::new()).await?;
            let response = checked(response, &format!("the repository {repository}"))?;
            let next = next_page(response.headers(), &url);
            let body = self.body(response).await?;
            let page: Vec<Entry> = serde_json::from_slice(&body)
                .map_err(|error| unexpected(&url, error.to_string()))?;
            files.extend(page.into_iter().filter(|entry| entry.kind == "file").map(|e| e.path));
            match next {
                Some(next) if next.origin() == self.endpoint.origin() => url = next,
                _ => return Ok(files),
            }
        }
        Err(unexpected(&url, "its list of files does not end".to_owned()))
    }

    /// Fetches the metadata of a file.
    pub async fn head(&self, repository: &str, file: &str) -> Result<Head, HubError> {
        let url = self.file(repository, "main", file)?;
        let response = self.send(Method::HEAD, url.clone(), &HeaderMap::new()).await?;
        // The hub itself describes the file that it then redirects to.
        let linked = response.headers().contains_key(&LINKED_ETAG);
        let response = if linked && response.status().is_redirection() {
            response
        } else {
            checked(response, &format!("{file} of {repository}"))?
        };
        let text = |name: &HeaderName| response.headers().get(name)?.to_str().ok();
        let bytes = text(&LINKED_SIZE).or_else(|| text(&CONTENT_LENGTH));
        let bytes = bytes.and_then(|bytes| bytes.trim().parse().ok());
        let etag = text(&LINKED_ETAG).or_else(|| text(&ETAG)).map(str::to_owned);
        let sha256 = etag.as_deref().map(plain).filter(|etag| is_sha256(etag));
        Ok(Head {
            bytes: bytes
                .ok_or_else(|| unexpected(&url, format!("it does not say how big {file} is")))?,
            sha256: sha256.map(str::to_ascii_lowercase),
            commit: text(&COMMIT).filter(|commit| is_commit(commit)).map(str::to_owned),
            etag,
        })
    }

    /// Requests the bytes of a file, starting at an offset. The caller checks the status.
    pub(super) async fn get(
        &self,
        (repository, revision, file): (&str, &str, &str),
        headers: &HeaderMap,
    ) -> Result<Response, HubError> {
        let url = self.file(repository, revision, file)?;
        let response = self.send(Method::GET, url, headers).await?;
        if response.status() == 416 {
            return Ok(response);
        }
        checked(response, &format!("{file} of {repository}"))
    }

    fn file(&self, repository: &str, revision: &str, file: &str) -> Result<Url, HubError> {
        self.url(&format!("{repository}/resolve/{revision}/{file}"))
    }

    fn url(&self, path: &str) -> Result<Url, HubError> {
        let text = format!("{}/{path}", self.endpoint.as_str().trim_end_matches('/'));
        Url::parse(&text).map_err(|_| HubError::Endpoint(text))
    }

    /// Sends a request and follows redirects; for HEAD only until a response describes the file.
    async fn send(
        &self,
        method: Method,
        mut url: Url,
        headers: &HeaderMap,
    ) -> Result<Response, HubError> {
        for _ in 0..=REDIRECTS_MAX {
            let mut request =
                self.http.request(method.clone(), url.clone()).headers(headers.clone());
            if url.origin() == self.endpoint.origin()
                && let Some(token) = &self.token
            {
                request = request.header(AUTHORIZATION, token.clone());
            }
            let response = match tokio::time::timeout(self.idle, request.send()).await {
                Ok(sent) => sent.map_err(|error| unreachable(&url, &error))?,
                Err(_) => return Err(silent(&url, self.idle)),
            };
            let known = method == Method::HEAD && response.headers().contains_key(&LINKED_ETAG);
            if !response.status().is_redirection() || known {
                return Ok(response);
            }
            let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let to = to.and_then(|to| url.join(to).ok());
            let to = to.ok_or_else(|| unexpected(&url, "a redirect leads nowhere".to_owned()))?;
            let safe = to.scheme() == "https" || to.scheme() == url.scheme();
            if !safe || !matches!(to.scheme(), "http" | "https") {
                return Err(unexpected(&url, format!("a redirect leads to {}", to.scheme())));
            }
            url = to;
        }
        Err(unexpected(&url, format!("more than {REDIRECTS_MAX} redirects")))
    }

    async fn body(&self, mut response: Response) -> Result<Vec<u8>, HubError> {
        let url = response.url().clone();
        let mut body = Vec::new();
        loop {
            match tokio::time::timeout(self.idle, response.chunk()).await {
                Ok(Ok(None)) => return Ok(body),
                Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
                Ok(Err(error)) => return Err(unreachable(&url, &error)),
                Err(_) => return Err(silent(&url, self.idle)),
            }
            if body.len() > PAGE_BYTES_MAX {
                return Err(unexpected(&url, "its list of files is too long".to_owned()));
            }
        }
    }
}

/// An entry of the file list.
#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    path: String,
}

/// Checks the status of a response.
fn checked(response: Response, what: &str) -> Result<Response, HubError> {
    let status = response.status().as_u16();
    let url = response.url();
    match status {
        200 | 206 => Ok(response),
        401 | 403 | 404 | 410 => Err(HubError::Missing { what: what.to_owned(), status }),
        408 | 429 | 500.. => {
            let seconds =
                response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
            let retry_after = seconds.map(Duration::from_secs);
            Err(HubError::Busy { host: host(url), status, retry_after })
        }
        _ => Err(unexpected(url, format!("it answers with status {status}"))),
    }
}

/// Returns the URL of the next page from a `Link` header.
fn next_page(headers: &HeaderMap, url: &Url) -> Option<Url> {
    let links = headers.get(LINK)?.to_str().ok()?;
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    let (_, rest) = next.split_once('<')?;
    let (address, _) = rest.split_once('>')?;
    url.join(address).ok()
}

/// Strips the quotes and weakness mark of an ETag.
fn plain(etag: &str) -> &str {
    etag.trim().trim_start_matches("W/").trim_matches('"')
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the host of a URL, without parts that may be secret.
fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

pub(super) fn unreachable(url: &Url, error: &reqwest::Error) -> HubError {
    // The library's first message is the least specific, and contains the URL.
    let mut why = None;
    let mut next = error.source();
    while let Some(cause) = next {
        why = Some(cause.to_string());
        next = cause.source();
    }
    let why = why.unwrap_or_else(|| "the connection broke".to_owned());
    HubError::Unreachable { host: host(url), why }
}

pub(super) fn silent(url: &Url, idle: Duration) -> HubError {
    let why = format!("nothing came for {} s", idle.as_secs());
    HubError::Unreachable { host: host(url), why }
}

pub(super) fn unexpected(url: &Url, why: String) -> HubError {
    HubError::Odd { host: host(url), why }
}

const LINKED_SIZE: HeaderName = HeaderName::from_static("x-linked-size");
const LINKED_ETAG: HeaderName = HeaderName::from_static("x-linked-etag");
const COMMIT: HeaderName = HeaderName::from_static("x-repo-commit");
const IDLE: Duration = Duration::from_secs(60);
const REDIRECTS_MAX: usize = 10;
/// Most pages of a file list.
const PAGES_MAX: usize = 20;
/// Largest page, in bytes.
const PAGE_BYTES_MAX: usize = 8 << 20;
