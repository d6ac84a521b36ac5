//! Why no answer arrived at all, and what to do about it.

use std::error::Error;
use std::io;

use hyper_util::client::proxy::matcher::Matcher;
use protocol::error::{ErrorClass, SampleError};

/// Where a request was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination<'a> {
    /// The URL, without parts that may be secret.
    pub(crate) url: &'a str,
    /// The name of the model provider.
    pub(crate) provider: &'a str,
    /// The proxy in between.
    pub(crate) proxy: Option<&'a str>,
}

/// Why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The peer does not speak TLS.
    Plain,
    /// The peer's certificate is not trusted.
    Untrusted,
    /// The TLS handshake failed for another reason.
    Tls,
    /// No program listens at the address.
    Refused,
    /// The host name does not resolve.
    UnknownHost,
    /// The proxy refused the tunnel.
    ProxyRefused,
    /// The peer does not speak HTTP.
    NotHttp,
    /// Anything else, possibly transient.
    Other,
}

/// Turns a failed connection into an error with advice.
pub(crate) fn classify(error: &(dyn Error + 'static), to: Destination<'_>) -> SampleError {
    let Destination { url, provider, proxy } = to;
    let (trouble, problem) = (trouble(error), causes(error));
    // With a proxy, the TCP connection is to the proxy; only TLS is end to end.
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
                "nothing listens at {url} ({problem}); is the server running? see `base_url` of model provider \
                 `{provider}`"
            ),
        ),
        (Trouble::UnknownHost, None) => (
            ErrorClass::ConnectionRefused,
            format!(
                "the host name of {url} does not resolve ({problem}); check `base_url` of model provider `{provider}`"
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

/// Turns a failure of the daemon's socket into an error with advice.
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

/// Returns the proxy used for `url`, without its password.
pub(crate) fn proxy_for(url: &str) -> Option<String> {
    let intercept = Matcher::from_env().intercept(&url.parse().ok()?)?;
    let uri = intercept.uri();
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{}{port}", uri.scheme_str().unwrap_or("http"), uri.host()?))
}

/// Joins the causes of an error, because reqwest reports the least specific one first.
///
/// The error itself is left out, since the URL in it may contain a key.
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
    // Neither library exposes its error kinds, so we match messages; the tests here pin them.
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
    // The standard library drops the resolver's error codes; its messages are always in English, as we never
    // set a locale.
    if io.is_some() && UNKNOWN_HOST.iter().any(|unknown| words.contains(unknown)) {
        return Trouble::UnknownHost;
    }
    // `source` skips what an I/O error wraps, and one may wrap another.
    let wrapped = io.and_then(io::Error::get_ref).map(|inner| trouble(inner));
    match wrapped {
        Some(found) if found != Trouble::Other => found,
        _ => error.source().map_or(Trouble::Other, trouble),
    }
}

/// What hyper-util reports if a proxy answers with anything but a tunnel.
const PROXY_REFUSED: [&str; 2] =
    ["tunnel error: proxy authorization required", "tunnel error: unsuccessful"];

/// What hyper reports if the peer sends data first.
const SPOKE_FIRST: &str = "received unexpected message from connection";

/// What resolvers report for an unknown host name: glibc (two), macOS, musl.
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
        check(&refused, None, ConnectionRefused, "nothing listens at https://a.test/v1");
        check(&refused, Some("http://p:1"), ConnectionRefused, "the proxy http://p:1");
        for words in UNKNOWN_HOST {
            let unknown =
                io::Error::other(format!("failed to lookup address information: {words}"));
            check(&unknown, None, ConnectionRefused, "does not resolve");
            check(&unknown, Some("http://p:1"), ConnectionRefused, "the proxy http://p:1");
        }
        let silent_proxy = io::Error::other("tunnel error: unsuccessful");
        check(&silent_proxy, Some("http://p:1"), NotAnEndpoint, "http://p:1 does not pass");
        for words in ["invalid HTTP version parsed", SPOKE_FIRST] {
            check(&io::Error::other(words), None, NotAnEndpoint, "does not speak HTTP");
        }
        // This one may be transient: the network is just coming up.
        let later = io::Error::other("Temporary failure in name resolution");
        check(&later, None, Unreachable, "check the network");
        check(&later, Some("http://p:1"), Unreachable, "through the proxy http://p:1");
    }
}
