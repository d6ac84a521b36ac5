//! Why there is no answer at all, and what to do about it.

use std::error::Error;
use std::io;

use hyper_util::client::proxy::matcher::Matcher;
use protocol::error::{ErrorClass, SampleError};

/// Whom a request was sent to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination<'a> {
    /// Its address, without what may be secret in it.
    pub(crate) url: &'a str,
    /// The model provider that has it.
    pub(crate) provider: &'a str,
    /// The proxy that is asked for it.
    pub(crate) proxy: Option<&'a str>,
}

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The other side does not speak TLS.
    Plain,
    /// Its certificate is not one that is trusted.
    Untrusted,
    /// The TLS handshake failed for another reason.
    Tls,
    /// No program listens at the address.
    Refused,
    /// There is no host of that name.
    UnknownHost,
    /// The proxy does not pass it on.
    ProxyRefused,
    /// What answers does not speak HTTP.
    NotHttp,
    /// Anything else, which may pass.
    Other,
}

/// Says what a failed connection means.
pub(crate) fn classify(error: &(dyn Error + 'static), to: Destination<'_>) -> SampleError {
    let Destination { url, provider, proxy } = to;
    let (trouble, problem) = (trouble(error), causes(error));
    // With a proxy the connection is made to the proxy alone; only TLS goes through it.
    let (class, message) = match (trouble, proxy) {
        (Trouble::Plain, _) => (
            ErrorClass::NotAnEndpoint,
            format!(
                "what answers at {url} does not speak TLS ({problem}); if it is a plain server, set `base_url` of \
                 model provider `{provider}` to an address with http://"
            ),
        ),
        (Trouble::Untrusted, _) => (
            ErrorClass::NotAnEndpoint,
            format!(
                "{url} is not trusted: {problem}; check the address, or name the authority's certificate in \
                 SSL_CERT_FILE"
            ),
        ),
        (Trouble::Tls, _) => (
            ErrorClass::NotAnEndpoint,
            format!(
                "no secure connection to {url}: {problem}; check `base_url` of model provider `{provider}`"
            ),
        ),
        (Trouble::Refused | Trouble::UnknownHost, Some(proxy)) => (
            ErrorClass::ConnectionRefused,
            format!(
                "the proxy {proxy} could not be reached ({problem}), so {url} was not asked; see HTTPS_PROXY, \
                 HTTP_PROXY and ALL_PROXY, or name the host in NO_PROXY"
            ),
        ),
        (Trouble::Refused, None) => (
            ErrorClass::ConnectionRefused,
            format!(
                "nobody listens at {url} ({problem}); is the server running? see `base_url` of model provider \
                 `{provider}`"
            ),
        ),
        (Trouble::UnknownHost, None) => (
            ErrorClass::ConnectionRefused,
            format!(
                "there is no host for {url} ({problem}); check `base_url` of model provider `{provider}`"
            ),
        ),
        (Trouble::ProxyRefused, _) => (
            ErrorClass::NotAnEndpoint,
            format!(
                "the proxy {} does not pass requests on to {url} ({problem}); see HTTPS_PROXY and ALL_PROXY, which may \
                 need a user and a password, or name the host in NO_PROXY",
                proxy.unwrap_or_default()
            ),
        ),
        (Trouble::NotHttp, _) => (
            ErrorClass::NotAnEndpoint,
            format!(
                "what answers at {url} does not speak HTTP ({problem}); check `base_url` of model provider `{provider}`"
            ),
        ),
        (Trouble::Other, Some(proxy)) => (
            ErrorClass::Unreachable,
            format!(
                "{url} could not be reached through the proxy {proxy}: {problem}; check the network, HTTPS_PROXY, \
                 HTTP_PROXY and ALL_PROXY, and `base_url` of model provider `{provider}`"
            ),
        ),
        (Trouble::Other, None) => (
            ErrorClass::Unreachable,
            format!(
                "{url} could not be reached: {problem}; check the network, and `base_url` of model provider \
                 `{provider}`"
            ),
        ),
    };
    SampleError::new(class, message)
}

/// Says what it means that the daemon's socket failed.
pub(crate) fn socket(error: &(dyn Error + 'static), path: &std::path::Path) -> SampleError {
    let class = match trouble(error) {
        Trouble::Refused => ErrorClass::ConnectionRefused,
        _ => ErrorClass::Unreachable,
    };
    let message = format!(
        "the local daemon could not be reached at {}: {}; see `heddle daemon status` and `heddle daemon logs`",
        path.display(),
        causes(error)
    );
    SampleError::new(class, message)
}

/// Names the proxy that is asked for `url`, without its password.
pub(crate) fn proxy_for(url: &str) -> Option<String> {
    let intercept = Matcher::from_env().intercept(&url.parse().ok()?)?;
    let uri = intercept.uri();
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{}{port}", uri.scheme_str().unwrap_or("http"), uri.host()?))
}

/// Joins the causes of an error, because reqwest says the least interesting thing first.
///
/// The error itself is left out, as the address in it may hold a key.
pub(crate) fn causes(error: &(dyn Error + 'static)) -> String {
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

fn trouble(error: &(dyn Error + 'static)) -> Trouble {
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return match tls {
            rustls::Error::InvalidMessage(_) => Trouble::Plain,
            rustls::Error::InvalidCertificate(_) => Trouble::Untrusted,
            _ => Trouble::Tls,
        };
    }
    // Neither library lets its kinds be told apart from outside; what they say is kept by tests here.
    let words = error.to_string();
    if PROXY_REFUSED.contains(&words.as_str()) {
        return Trouble::ProxyRefused;
    }
    if words.starts_with("invalid HTTP") || words == SPOKE_FIRST {
        return Trouble::NotHttp;
    }
    let io = error.downcast_ref::<io::Error>();
    if io.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        return Trouble::Refused;
    }
    // The resolver's own codes are lost in the standard library; its words are the same in every language, as
    // we never choose one.
    if io.is_some() && UNKNOWN_HOST.iter().any(|unknown| words.contains(unknown)) {
        return Trouble::UnknownHost;
    }
    // An I/O error hides what it wraps from `source`, and one may wrap another.
    let wrapped = io.and_then(io::Error::get_ref).map(|inner| trouble(inner));
    match wrapped {
        Some(found) if found != Trouble::Other => found,
        _ => error.source().map_or(Trouble::Other, trouble),
    }
}

/// What hyper-util says where a proxy answers, and not with a tunnel.
const PROXY_REFUSED: [&str; 2] =
    ["tunnel error: proxy authorization required", "tunnel error: unsuccessful"];

/// What hyper says where the other side began to speak.
const SPOKE_FIRST: &str = "received unexpected message from connection";

/// What resolvers say of a host name that does not exist: glibc (two), macOS, musl.
const UNKNOWN_HOST: [&str; 4] = [
    "Name or service not known",
    "No address associated with hostname",
    "nodename nor servname provided",
    "Name does not resolve",
];

#[cfg(test)]
mod tests {
    use std::io;

    use rustls::{CertificateError, InvalidMessage};

    use super::*;

    #[track_caller]
    fn check(error: &(dyn Error + 'static), proxy: Option<&str>, class: ErrorClass, words: &str) {
        let to = Destination { url: "https://a.test/v1", provider: "p", proxy };
        let found = classify(error, to);
        assert_eq!(found.class, class, "{found}");
        assert!(found.message.contains(words), "no {words:?} in {found}");
    }

    #[test]
    fn troubles() {
        use ErrorClass::{ConnectionRefused, NotAnEndpoint, Unreachable};
        let tls = |error: rustls::Error| io::Error::other(io::Error::other(error));
        let plain = tls(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType));
        check(&plain, None, NotAnEndpoint, "does not speak TLS");
        let expired = tls(rustls::Error::InvalidCertificate(CertificateError::Expired));
        check(&expired, None, NotAnEndpoint, "SSL_CERT_FILE");
        check(
            &tls(rustls::Error::DecryptError),
            Some("p:1"),
            NotAnEndpoint,
            "no secure connection",
        );
        let refused = io::Error::other(io::Error::from(io::ErrorKind::ConnectionRefused));
        check(&refused, None, ConnectionRefused, "nobody listens at https://a.test/v1");
        check(&refused, Some("http://p:1"), ConnectionRefused, "the proxy http://p:1");
        for words in UNKNOWN_HOST {
            let unknown =
                io::Error::other(format!("failed to lookup address information: {words}"));
            check(&unknown, None, ConnectionRefused, "there is no host");
            check(&unknown, Some("http://p:1"), ConnectionRefused, "the proxy http://p:1");
        }
        let silent_proxy = io::Error::other("tunnel error: unsuccessful");
        check(&silent_proxy, Some("http://p:1"), NotAnEndpoint, "http://p:1 does not pass");
        for words in ["invalid HTTP version parsed", SPOKE_FIRST] {
            check(&io::Error::other(words), None, NotAnEndpoint, "does not speak HTTP");
        }
        // This one may pass: the network is just coming up.
        let later = io::Error::other("Temporary failure in name resolution");
        check(&later, None, Unreachable, "check the network");
        check(&later, Some("http://p:1"), Unreachable, "through the proxy http://p:1");
    }
}
