//! Checks request headers: host, token, protocol version, request ids.

use hyper::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap};
use ring::hmac;
use stdx::Redacted;

use super::problem::Problem;
use super::{PROTOCOL, PROTOCOL_HEADER, REQUEST_ID_HEADER};
use crate::home::random_hex;
use crate::log::ClientIds;

/// Longest id that is accepted from a client.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// Host names that reach only this machine.
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// A token that is compared in constant time.
pub(crate) struct Token {
    key: hmac::Key,
    tag: hmac::Tag,
}

impl Token {
    pub(crate) fn new(token: &Redacted) -> std::io::Result<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new())
            .map_err(|_| {
                std::io::Error::other("the operating system provides no random numbers")
            })?;
        let tag = hmac::sign(&key, token.expose().as_bytes());
        Ok(Self { key, tag })
    }

    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let given = headers.get(AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.as_bytes().split_at_checked("bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
        });
        let given = given.ok_or_else(Problem::unauthorized)?;
        hmac::verify(&self.key, given, self.tag.as_ref()).map_err(|_| Problem::unauthorized())
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Checks the `Host` header, against web pages that make a browser send requests to us (DNS rebinding).
pub(crate) fn check_host(headers: &HeaderMap) -> Result<(), Problem> {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Problem::forbidden_host());
    };
    let host = host.to_str().unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let ours = HOSTS.iter().any(|ours| name.eq_ignore_ascii_case(ours));
    if ours { Ok(()) } else { Err(Problem::forbidden_host()) }
}

/// Checks the protocol version of heddle's own clients. Clients of the public APIs do not send one.
pub(crate) fn check_version(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(version) = headers.get(PROTOCOL_HEADER) else { return Ok(()) };
    let version = version.to_str().unwrap_or("?");
    let major = version.split('.').next().unwrap_or_default();
    if major.trim() == PROTOCOL { Ok(()) } else { Err(Problem::version(version)) }
}

/// Checks that a body is plain JSON.
pub(crate) fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.get(CONTENT_ENCODING).is_some_and(|value| value != "identity") {
        return Err(Problem::media_type("`Content-Encoding`"));
    }
    let Some(kind) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.to_str().unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(Problem::media_type("other kind"))
    }
}

/// Returns the client's id if it can appear in a log, otherwise a new one.
pub(crate) fn request_id(headers: &HeaderMap) -> String {
    let made = || format!("req_{}", random_hex(12).unwrap_or_default());
    // An id that is not unique is better than no answer.
    plain_id(headers, REQUEST_ID_HEADER).unwrap_or_else(made)
}

/// Returns the ids that a client sent, as far as they can appear in a log.
pub(crate) fn client_ids(headers: &HeaderMap) -> ClientIds {
    let thread_id = plain_id(headers, "thread-id");
    let other = |name| plain_id(headers, name).filter(|id| Some(id) != thread_id.as_ref());
    let (session_id, client_request_id) = (other("session-id"), other("x-client-request-id"));
    let protocol = plain_id(headers, PROTOCOL_HEADER);
    ClientIds { thread_id, session_id, client_request_id, protocol }
}

/// Returns an id that a client sent, if it is short and plain: anything else would put text into the log.
fn plain_id(headers: &HeaderMap, name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let sane = |id: &&str| (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.chars().all(plain);
    let given = headers.get(name).and_then(|value| value.to_str().ok());
    given.filter(sane).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderMap, HeaderName, HeaderValue};
    use stdx::Redacted;

    use super::*;

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        let name = HeaderName::from_static(name);
        let values = values.iter().map(|value| HeaderValue::from_bytes(value.as_bytes()).unwrap());
        values.map(|value| (name.clone(), value)).collect()
    }

    #[track_caller]
    fn check<T>(
        rule: impl Fn(&HeaderMap) -> Result<T, Problem>,
        name: &'static str,
        good: &[&[&str]],
        bad: &[&[&str]],
    ) {
        for values in good {
            assert!(rule(&headers(name, values)).is_ok(), "{name}: {values:?}");
        }
        for values in bad {
            assert!(rule(&headers(name, values)).is_err(), "{name}: {values:?}");
        }
    }

    #[test]
    fn headers_are_checked() {
        check(
            check_host,
            "host",
            &[&["localhost"], &["LocalHost:80"], &["127.0.0.1:5"], &["[::1]:7"], &["[::1]"]],
            &[
                &[],
                &[""],
                &["evil.example"],
                &["evil.example:80"],
                &["localhost.evil.example"],
                &["127.0.0.1.evil.example:80"],
                &["localhost", "evil.example"],
                &["evil.example:80@localhost"],
                &["127.0.0.2"],
            ],
        );
        check(
            check_version,
            PROTOCOL_HEADER,
            &[&[], &["1"], &["1.7"]],
            &[&["2"], &["2.1"], &[""], &["10"], &["x"], &["\u{e4}"]],
        );
        check(
            check_media_type,
            "content-type",
            &[&[], &["application/json"], &["Application/JSON; charset=utf-8"]],
            &[&["text/plain"], &[""], &["application/x-www-form-urlencoded"]],
        );
        check(check_media_type, "content-encoding", &[&["identity"]], &[&["gzip"], &["zstd"]]);
        let token = Token::new(&Redacted::new("0123456789abcdef")).unwrap();
        check(
            |headers| token.check(headers),
            "authorization",
            &[&["Bearer 0123456789abcdef"], &["bearer  0123456789abcdef "]],
            &[
                &[],
                &["Bearer"],
                &["Bearer "],
                &["Bearer 0123456789abcde"],
                &["Bearer 0123456789abcdeF"],
                &["Basic 0123456789abcdef"],
                &["0123456789abcdef"],
            ],
        );
    }

    #[test]
    fn ids_of_clients() {
        let long = "x".repeat(129);
        let all = |values: [&str; 3]| {
            let names = ["thread-id", "session-id", "x-client-request-id"];
            let pairs = names.into_iter().zip(values).filter(|(_, value)| !value.is_empty());
            let headers = pairs.map(|(name, value)| {
                let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
                (HeaderName::from_static(name), value)
            });
            let ClientIds { thread_id, session_id, client_request_id, protocol: _ } =
                client_ids(&headers.collect());
            [thread_id, session_id, client_request_id].map(Option::unwrap_or_default)
        };
        for (given, taken) in [
            (["", "", ""], ["", "", ""]),
            // As our own agent sends them: ids that only repeat the thread are dropped.
            (["01a-7", "01a-7", "01a-7"], ["01a-7", "", ""]),
            (["t", "s", "r"], ["t", "s", "r"]),
            (["", "s", "s"], ["", "s", "s"]),
            (["a b", "\u{e4}", &long], ["", "", ""]),
            (["{\"a\":1}", "x;y", "../z"], ["", "", ""]),
        ] {
            assert_eq!(all(given), taken, "{given:?}");
        }
    }

    #[test]
    fn request_ids() {
        let long = "x".repeat(129);
        for (given, taken) in
            [("abc-1_2.3", true), ("", false), ("a b", false), ("a\u{e4}", false), (&long, false)]
        {
            let id = request_id(&headers(REQUEST_ID_HEADER, &[given]));
            assert_eq!(id == given, taken, "{given} {id}");
            assert!(taken || (id.starts_with("req_") && id.len() == 28), "{id}");
        }
    }
}
