//! WebSocket clients over TCP or a Unix socket: each text frame is one JSON object.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN,
    SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use stdx::lines::{Cut, LINE_BYTES_MAX};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{
    CloseFrame, Message as Frame, Role, WebSocketConfig,
};
use tokio_tungstenite::{WebSocketStream, tungstenite};

use super::address::{Access, Headers, Listen, Refusal};
use super::{Ended, LINES_WAITING_MAX, serve_peer};
use crate::hub::Hub;

/// How long a client may take to send the headers of a request.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long sending the close frame may take.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(1);
/// The header that tells clients the most bytes that an unfragmented message may have.
const MESSAGE_LIMIT: HeaderName =
    HeaderName::from_static("x-codex-websocket-max-unfragmented-message-bytes");

/// A socket that accepts clients.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    access: Access,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Without a token, every machine on the network could use the server.
    #[error(
        "{0} can be reached by other machines: set a token (--ws-auth capability-token with \
         --ws-token-file or --ws-token-sha256), or listen on 127.0.0.1"
    )]
    Unprotected(SocketAddr),
    #[error("another program listens on {}: stop it, or choose another path", path.display())]
    InUse { path: PathBuf },
    /// The file is not removed, because it may be the user's.
    #[error("{} exists and is not a socket: remove it, or choose another path", path.display())]
    NoSocket { path: PathBuf },
    #[error("cannot listen on {address}")]
    System { address: String, source: io::Error },
}

impl Listener {
    /// Starts to listen. `access` applies to TCP ports; a Unix socket admits only its owner.
    pub async fn bind(listen: &Listen, access: Access) -> Result<Self, ListenError> {
        let failed = |source| ListenError::System { address: listen.to_string(), source };
        match listen {
            Listen::Stdio => Err(failed(io::ErrorKind::Unsupported.into())),
            Listen::WebSocket(address) => {
                if !address.ip().is_loopback() && !matches!(access, Access::Bearer(_)) {
                    return Err(ListenError::Unprotected(*address));
                }
                let socket = TcpListener::bind(address).await.map_err(failed)?;
                Ok(Self { socket: Socket::Tcp(socket), access })
            }
            Listen::Unix(path) => {
                let (socket, file) = bind_unix(path, &failed)?;
                Ok(Self { socket: Socket::Unix(socket, file), access: Access::Owner })
            }
        }
    }

    /// Returns the address, including a port that the system chose.
    pub fn address(&self) -> String {
        match &self.socket {
            Socket::Unix(_, file) => Listen::Unix(file.0.clone()).to_string(),
            Socket::Tcp(socket) => match socket.local_addr() {
                Ok(address) => Listen::WebSocket(address).to_string(),
                Err(error) => error.to_string(),
            },
        }
    }

    /// Accepts clients until the future is dropped. Each connection has its own task.
    pub async fn run(&self, hub: &Hub) {
        loop {
            let (served, access) = (hub.clone(), self.access.clone());
            let accepted = match &self.socket {
                Socket::Tcp(socket) => socket.accept().await.map(|(stream, _)| {
                    // Messages are small and have to arrive at once.
                    let _ = stream.set_nodelay(true);
                    tokio::spawn(answer(served, access, stream));
                }),
                Socket::Unix(socket, _) => socket.accept().await.map(|(stream, _)| {
                    tokio::spawn(answer(served, access, stream));
                }),
            };
            if let Err(error) = accepted {
                // Most likely, too many files are open, and some will be closed soon.
                hub.note(&format!("a connection could not be accepted: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// How long to wait after accepting a connection failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The file of a Unix socket, removed with its listener.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Creates a socket that only its owner can open. It is moved to its path after its permissions are set, so no other user
/// can open it in between.
fn bind_unix(
    path: &Path,
    failed: &dyn Fn(io::Error) -> ListenError,
) -> Result<(UnixListener, SocketFile), ListenError> {
    use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};

    let path = std::path::absolute(path).map_err(failed)?;
    match std::fs::symlink_metadata(&path) {
        Ok(found) if !found.file_type().is_socket() => return Err(ListenError::NoSocket { path }),
        Ok(_) if std::os::unix::net::UnixStream::connect(&path).is_ok() => {
            return Err(ListenError::InUse { path });
        }
        // No program listens there any more. The rename below replaces the file.
        Ok(_) | Err(_) => {}
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    // The time distinguishes the name from one that an earlier process with the same id has left.
    let private = parent.join(format!(".heddle-{}-{}", std::process::id(), heddle::now_ms()));
    std::fs::DirBuilder::new().mode(0o700).create(&private).map_err(failed)?;
    let bound = (|| {
        let inside = private.join("s");
        let socket = UnixListener::bind(&inside)?;
        std::fs::set_permissions(&inside, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&inside, &path)?;
        Ok(socket)
    })();
    let _ = std::fs::remove_dir_all(&private);
    bound.map(|socket| (socket, SocketFile(path))).map_err(failed)
}

/// Answers the HTTP requests of a connection until one of them turns it into a WebSocket.
async fn answer(
    hub: Hub,
    access: Access,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) {
    let service = service_fn(move |request| {
        let answered = respond(&hub, &access, request);
        async move { Ok::<_, Infallible>(answered) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIME_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // After an error, there is no client left to report it to.
    let _ = connection.await;
}

fn respond(hub: &Hub, access: &Access, request: Request<Incoming>) -> Response<String> {
    let path = request.uri().path();
    if request.method() == Method::GET && matches!(path, "/readyz" | "/healthz") {
        return Response::new(String::new());
    }
    if let Err(refusal) = access.check(headers(request.headers())) {
        let (status, why) = match refusal {
            Refusal::Origin => (StatusCode::FORBIDDEN, "web pages may not connect"),
            Refusal::Host => (StatusCode::FORBIDDEN, "connect to 127.0.0.1, [::1] or localhost"),
            Refusal::Token => {
                (StatusCode::UNAUTHORIZED, "send the token: Authorization: Bearer TOKEN")
            }
        };
        return refused(status, why);
    }
    let asks = request.headers().get(UPGRADE).and_then(|value| value.to_str().ok());
    let key = request.headers().get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let (Some(true), Some(accept)) = (asks.map(|it| it.eq_ignore_ascii_case("websocket")), key)
    else {
        return refused(StatusCode::UPGRADE_REQUIRED, "this is a WebSocket: ask for an upgrade");
    };
    let Ok(accept) = HeaderValue::from_str(&accept) else {
        return refused(StatusCode::BAD_REQUEST, "the key of the WebSocket is none");
    };
    let hub = hub.clone();
    tokio::spawn(async move {
        if let Ok(upgraded) = hyper::upgrade::on(request).await {
            converse(&hub, upgraded).await;
        }
    });
    let mut response = Response::new(String::new());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    headers.insert(MESSAGE_LIMIT, HeaderValue::from(LINE_BYTES_MAX));
    response
}

fn refused(status: StatusCode, why: &str) -> Response<String> {
    let mut response = Response::new(format!("{why}\n"));
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn headers(all: &HeaderMap) -> Headers<'_> {
    // A header that is not text still counts as sent.
    let text = |name| all.get(name).map(|value| value.to_str().unwrap_or("?"));
    Headers { origin: text(ORIGIN), host: text(HOST), authorization: text(AUTHORIZATION) }
}

/// Serves a WebSocket until the client or the server ends the connection.
async fn converse(hub: &Hub, upgraded: Upgraded) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(LINE_BYTES_MAX))
        .max_frame_size(Some(LINE_BYTES_MAX));
    let stream = TokioIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let (mut sink, mut frames) = socket.split();
    let Some(peer) = hub.connect() else {
        let why = "there are too many connections";
        return goodbye(&mut sink, CloseCode::Again, why).await;
    };
    let (sender, lines) = mpsc::channel(LINES_WAITING_MAX);
    let mut problem = None;
    let problem_of = &mut problem;
    let reading = async move {
        while let Some(frame) = frames.next().await {
            match frame {
                // Pings are answered by the library; other frames are ignored.
                Ok(Frame::Text(text)) => {
                    if sender.send(Cut::Line(text.as_bytes().to_vec())).await.is_err() {
                        return;
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    *problem_of = close_code(&error);
                    return;
                }
            }
        }
    };
    let writing = async {
        while let Some(lines) = peer.next().await {
            for line in lines {
                if sink.feed(Frame::text(&*line)).await.is_err() {
                    return;
                }
            }
            if sink.flush().await.is_err() {
                return;
            }
            peer.note_progress();
        }
    };
    let serving = async {
        let ended = serve_peer(hub, &peer, lines).await;
        // The last answers are still written.
        peer.finish();
        if ended == Ended::ByClient {
            std::future::pending::<()>().await;
        }
    };
    let reading = async {
        reading.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = writing => {}
        () = serving => {}
        () = reading => {}
    }
    hub.disconnect(&peer);
    match (peer.close_reason(), problem) {
        (None, Some((code, why))) => goodbye(&mut sink, code, &why).await,
        (Some(why), _) => {
            hub.note(&format!("disconnected a client: {why}"));
            goodbye(&mut sink, CloseCode::Policy, &why).await;
        }
        (None, None) => goodbye(&mut sink, CloseCode::Normal, "").await,
    }
}

/// Returns the code and the reason of the close frame after an invalid message; `None` if the connection broke.
fn close_code(error: &tungstenite::Error) -> Option<(CloseCode, String)> {
    let code = match error {
        tungstenite::Error::Capacity(_) => CloseCode::Size,
        tungstenite::Error::Utf8(_) => CloseCode::Invalid,
        tungstenite::Error::Protocol(_) => CloseCode::Protocol,
        _ => return None,
    };
    let why = error.to_string();
    Some((code, why[..why.floor_char_boundary(REASON_BYTES_MAX)].to_owned()))
}

/// Longest reason in a close frame, in bytes.
const REASON_BYTES_MAX: usize = 120;

async fn goodbye(sink: &mut (impl futures_util::Sink<Frame> + Unpin), code: CloseCode, why: &str) {
    let frame = CloseFrame { code, reason: why.to_owned().into() };
    let _ = tokio::time::timeout(GOODBYE_TIME_MAX, sink.send(Frame::Close(Some(frame)))).await;
}
