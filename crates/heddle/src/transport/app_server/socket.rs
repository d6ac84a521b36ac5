//! [`ServerAddress`]: the address of a running app-server, and the WebSocket to it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use stdx::lines::LINE_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::{Message as Frame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, error::CapacityError};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::transport::app_server::connection::Patience;
use crate::transport::error::TransportError;
use crate::transport::program::SILENCE_TIMEOUT;

/// How long connecting may take, and how long the answer to each request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest message, in bytes: a saved thread with all of its turns is one.
const MESSAGE_BYTES_MAX: usize = 8 * LINE_BYTES_MAX;

/// Where an app-server listens: `unix://PATH` or `ws://IP:PORT`, as `heddle app-server --listen` takes it.
///
/// ```
/// use heddle::transport::ServerAddress;
///
/// let address: ServerAddress = "ws://127.0.0.1:8765".parse()?;
/// let address = address.token("a secret of the server");
/// assert!("http://127.0.0.1".parse::<ServerAddress>().is_err());
/// # Ok::<(), heddle::transport::InvalidAddress>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ServerAddress {
    place: Place,
    token: Option<String>,
    client: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Unix(PathBuf),
    Tcp(String),
}

/// A text is not an address of an app-server: write `unix://PATH` or `ws://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address of an app-server: give unix://PATH or ws://HOST:PORT")]
pub struct InvalidAddress(String);

impl FromStr for ServerAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let place = match text.split_once("://") {
            Some(("unix", path)) if !path.is_empty() => Place::Unix(PathBuf::from(path)),
            Some(("ws", host)) => {
                let host = host.strip_suffix('/').unwrap_or(host);
                let has_port = host
                    .rsplit_once(':')
                    .is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
                if !has_port || host.contains(['/', '?', '#', '@']) {
                    return Err(InvalidAddress(text.to_owned()));
                }
                Place::Tcp(host.to_owned())
            }
            _ => return Err(InvalidAddress(text.to_owned())),
        };
        Ok(Self { place, token: None, client: "heddle".to_owned() })
    }
}

impl ServerAddress {
    /// Sets the token that the server requires of its clients.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the name of this program, which is sent to the server and becomes the originator of its threads.
    #[must_use]
    pub fn client(mut self, name: impl Into<String>) -> Self {
        self.client = name.into();
        self
    }

    pub(crate) fn client_name(&self) -> &str {
        &self.client
    }

    /// How long to wait for a server: as long as for a program.
    pub(crate) const PATIENCE: Patience =
        Patience { answer: ANSWER_TIMEOUT, silence: SILENCE_TIMEOUT };

    /// Connects. Returns the halves that messages are written to and read from.
    pub(crate) async fn connect(&self) -> Result<(SocketSink, SocketSource), TransportError> {
        let name = self.to_string();
        match timeout(ANSWER_TIMEOUT, self.open()).await {
            Ok(Ok(socket)) => {
                let (sink, source) = socket.split();
                Ok((SocketSink(sink), SocketSource { source, name }))
            }
            Ok(Err(reason)) => Err(TransportError::Disconnected {
                program: name,
                reason,
                printed: Default::default(),
            }),
            Err(_) => Err(TransportError::TimedOut {
                program: name,
                waited: ANSWER_TIMEOUT,
                waiting_for: "the connection was to be accepted",
                printed: Default::default(),
            }),
        }
    }

    async fn open(&self) -> Result<WebSocketStream<Box<dyn Duplex>>, String> {
        let said = |error: std::io::Error| error.to_string();
        let (stream, host): (Box<dyn Duplex>, &str) = match &self.place {
            Place::Unix(path) => {
                (Box::new(UnixStream::connect(path).await.map_err(said)?), "localhost")
            }
            Place::Tcp(host) => {
                let stream = TcpStream::connect(host).await.map_err(said)?;
                // Messages are small and have to arrive at once.
                let _ = stream.set_nodelay(true);
                (Box::new(stream), host)
            }
        };
        let request = format!("ws://{host}/").into_client_request();
        let mut request = request.map_err(|error| error.to_string())?;
        if let Some(token) = &self.token {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            let value = value.map_err(|_| "the token cannot be sent in a header".to_owned())?;
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        match client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => Ok(socket),
            Err(tungstenite::Error::Http(answer)) => {
                let body = answer.body().as_deref().unwrap_or_default();
                let body = String::from_utf8_lossy(&body[..body.len().min(BODY_BYTES_SHOWN)]);
                let said = stdx::visible::lines(body.trim()).into_owned();
                Err(format!("the server refused with {}: {said}", answer.status()))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// How many bytes of a refusal are shown.
const BODY_BYTES_SHOWN: usize = 500;

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Unix(path) => write!(f, "unix://{}", path.display()),
            Place::Tcp(host) => write!(f, "ws://{host}"),
        }
    }
}

impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is a secret.
        write!(f, "ServerAddress({self})")
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The half that messages are written to.
pub(crate) struct SocketSink(SplitSink<WebSocketStream<Box<dyn Duplex>>, Frame>);

/// The half that messages are read from.
pub(crate) struct SocketSource {
    source: SplitStream<WebSocketStream<Box<dyn Duplex>>>,
    name: String,
}

impl SocketSink {
    /// Sends one message. False if the connection is broken.
    pub(crate) async fn send(&mut self, line: &str) -> bool {
        self.0.send(Frame::text(line.trim_end())).await.is_ok()
    }
}

impl SocketSource {
    /// Returns the next message, or why there are no more.
    pub(crate) async fn next(&mut self) -> Result<Vec<u8>, TransportError> {
        loop {
            let reason = match self.source.next().await {
                Some(Ok(Frame::Text(text))) => return Ok(text.as_bytes().to_vec()),
                Some(Ok(Frame::Close(Some(frame)))) if !frame.reason.is_empty() => {
                    format!("the server said: {}", stdx::visible::lines(&frame.reason))
                }
                Some(Ok(Frame::Close(_))) | None => "the server closed it".to_owned(),
                Some(Ok(_)) => continue,
                Some(Err(tungstenite::Error::Capacity(CapacityError::MessageTooLong {
                    ..
                }))) => {
                    return Err(TransportError::LineTooLong {
                        program: self.name.clone(),
                        limit: MESSAGE_BYTES_MAX,
                        printed: Default::default(),
                    });
                }
                Some(Err(error)) => error.to_string(),
            };
            let (program, printed) = (self.name.clone(), Default::default());
            return Err(TransportError::Disconnected { program, reason, printed });
        }
    }

    /// Returns the error for a message that cannot be read.
    pub(crate) fn malformed(&self, line: &[u8], reason: String) -> TransportError {
        let head = String::from_utf8_lossy(&line[..line.len().min(BODY_BYTES_SHOWN)]);
        TransportError::Malformed {
            program: self.name.clone(),
            reason,
            line: stdx::visible::lines(&head).into_owned(),
            printed: Default::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ServerAddress;

    #[test]
    fn addresses() {
        for (text, want) in [
            ("unix:///run/x", Some("unix:///run/x")),
            ("ws://localhost:1/", Some("ws://localhost:1")),
            ("ws://[::1]:65535", Some("ws://[::1]:65535")),
            ("unix://", None),
            ("ws://host", None),
            ("ws://:1", None),
            ("ws://host:65536", None),
            ("ws://user@host:1", None),
            ("ws://host:1/x:2", None),
            ("wss://host:1", None),
            ("/run/x", None),
        ] {
            let address = text.parse::<ServerAddress>().ok().map(|address| address.to_string());
            assert_eq!(address.as_deref(), want, "{text}");
        }
        let address: ServerAddress = "ws://h:1".parse().unwrap();
        assert_eq!(format!("{:?}", address.token("secret")), "ServerAddress(ws://h:1)");
    }
}
