//! The addresses that a server can listen on, and the programs that may connect (pure).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use ring::digest::{SHA256, digest};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A single client, on stdin and stdout.
    Stdio,
    /// WebSocket on a Unix socket.
    Unix(PathBuf),
    /// WebSocket on a TCP port.
    WebSocket(SocketAddr),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address to listen on: give stdio://, unix://PATH or ws://IP:PORT")]
pub struct InvalidAddress(String);

impl FromStr for Listen {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = || InvalidAddress(text.to_owned());
        match text.split_once("://").ok_or_else(invalid)? {
            ("stdio", "") => Ok(Self::Stdio),
            ("unix", path) if !path.is_empty() => Ok(Self::Unix(PathBuf::from(path))),
            ("ws", address) => address
                .strip_suffix('/')
                .unwrap_or(address)
                .parse()
                .map(Self::WebSocket)
                .map_err(|_| invalid()),
            _ => Err(invalid()),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio => f.write_str("stdio://"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::WebSocket(address) => write!(f, "ws://{address}"),
        }
    }
}

/// A token that clients must send. Only its digest is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 32]);

/// Why a string is neither a token nor the digest of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// A short token could be guessed.
    #[error("the token has fewer than {TOKEN_BYTES_MIN} bytes: use a longer one")]
    Short,
    #[error("the digest is not 64 hexadecimal digits, as `sha256sum` prints them")]
    Digest,
}

/// Shortest token, in bytes.
pub const TOKEN_BYTES_MIN: usize = 16;

impl Token {
    /// Hashes a token as it is in a file; white space around it is ignored.
    pub fn new(text: &str) -> Result<Self, InvalidToken> {
        let text = text.trim();
        match text.len() {
            0..TOKEN_BYTES_MIN => Err(InvalidToken::Short),
            _ => Ok(Self(sha256(text))),
        }
    }

    /// Reads the SHA-256 of a token, in hexadecimal.
    pub fn from_digest(hex: &str) -> Result<Self, InvalidToken> {
        let digits = hex.trim().as_bytes();
        if digits.len() != 64 {
            return Err(InvalidToken::Digest);
        }
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| InvalidToken::Digest)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidToken::Digest)?;
        }
        Ok(Self(digest))
    }

    /// Compares the digests, so that the time it takes reveals nothing about the token.
    fn is(&self, sent: &str) -> bool {
        sha256(sent.trim()) == self.0
    }
}

fn sha256(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    bytes
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Programs that can open the socket; its file permissions allow only its owner.
    Owner,
    /// Programs on this machine, but not web pages.
    ThisMachine,
    /// Programs that send the token.
    Bearer(Token),
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has an `Origin` header, so it comes from a web page.
    Origin,
    /// Its `Host` header does not name this machine; a web page may have rebound its DNS name.
    Host,
    /// Its token is missing or wrong.
    Token,
}

/// The headers that decide whether a connection is accepted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a> {
    pub origin: Option<&'a str>,
    pub host: Option<&'a str>,
    pub authorization: Option<&'a str>,
}

impl Access {
    /// Accepts or refuses a connection. Web pages are always refused.
    pub fn check(&self, headers: Headers<'_>) -> Result<(), Refusal> {
        if headers.origin.is_some() {
            return Err(Refusal::Origin);
        }
        match self {
            Self::Owner => Ok(()),
            Self::ThisMachine => {
                let is_here = headers.host.is_some_and(is_loopback);
                if is_here { Ok(()) } else { Err(Refusal::Host) }
            }
            Self::Bearer(token) => {
                let sent = headers.authorization.and_then(|value| value.split_once(' '));
                let is_it = |(scheme, sent): (&str, &str)| {
                    scheme.eq_ignore_ascii_case("bearer") && token.is(sent)
                };
                if sent.is_some_and(is_it) { Ok(()) } else { Err(Refusal::Token) }
            }
        }
    }
}

/// Returns whether a `Host` header names this machine, with or without a port.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, want) in [
            ("stdio://", Some("stdio://")),
            ("unix:///run/x.sock", Some("unix:///run/x.sock")),
            ("unix://x.sock", Some("unix://x.sock")),
            ("ws://127.0.0.1:0", Some("ws://127.0.0.1:0")),
            ("ws://[::1]:80/", Some("ws://[::1]:80")),
            ("unix://", None),
            ("ws://localhost:80", None),
            ("ws://127.0.0.1", None),
            ("wss://127.0.0.1:1", None),
            ("stdio://x", None),
            ("stdio", None),
            ("", None),
        ] {
            let got = text.parse::<Listen>().ok().map(|listen| listen.to_string());
            assert_eq!(got.as_deref(), want, "{text}");
        }
    }

    #[test]
    fn tokens() {
        assert_eq!(Token::new(" short \n"), Err(InvalidToken::Short));
        let token = Token::new(" 0123456789abcdef\n").unwrap();
        let digest = "9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f";
        assert_eq!(Token::from_digest(digest), Ok(token.clone()));
        assert_eq!(Token::from_digest("9f"), Err(InvalidToken::Digest));
        assert_eq!(Token::from_digest(&"é".repeat(32)), Err(InvalidToken::Digest));
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn who_is_let_in() {
        let bearer = Access::Bearer(Token::new("0123456789abcdef").unwrap());
        let none = Headers::default();
        let host = |host| Headers { host: Some(host), ..none };
        let token = |value| Headers { authorization: Some(value), ..none };
        let page = Headers { origin: Some("https://x"), host: Some("localhost"), ..none };
        for (access, headers, want) in [
            (&Access::Owner, none, Ok(())),
            (&Access::Owner, page, Err(Refusal::Origin)),
            (&Access::ThisMachine, none, Err(Refusal::Host)),
            (&Access::ThisMachine, host("127.0.0.1:8080"), Ok(())),
            (&Access::ThisMachine, host("LOCALHOST"), Ok(())),
            (&Access::ThisMachine, host("[::1]:1"), Ok(())),
            (&Access::ThisMachine, host("127.0.0.1.example.com"), Err(Refusal::Host)),
            (&Access::ThisMachine, host("rebound.example:80"), Err(Refusal::Host)),
            (&Access::ThisMachine, host("10.0.0.1"), Err(Refusal::Host)),
            (&Access::ThisMachine, page, Err(Refusal::Origin)),
            (&bearer, none, Err(Refusal::Token)),
            (&bearer, token("Bearer 0123456789abcdef"), Ok(())),
            (&bearer, token("bearer  0123456789abcdef "), Ok(())),
            (&bearer, token("Bearer 0123456789abcdee"), Err(Refusal::Token)),
            (&bearer, token("Basic 0123456789abcdef"), Err(Refusal::Token)),
            (&bearer, token("0123456789abcdef"), Err(Refusal::Token)),
            (&bearer, page, Err(Refusal::Origin)),
        ] {
            assert_eq!(access.check(headers), want, "{access:?} {headers:?}");
        }
    }
}
