//! Accepts connections, and shuts the server down.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::hangup::Hangup;
use super::seat::Seats;
use super::{Door, Phase, Server};

#[derive(Debug)]
pub struct Listeners {
    /// The owner's Unix socket.
    pub socket: UnixListener,
    /// A TCP port on loopback.
    pub port: Option<TcpListener>,
}

enum Client {
    Socket(UnixStream),
    Port(TcpStream),
}

/// Serves until `end` completes, then lets answers finish for a while, and returns when all is over.
pub async fn serve(server: Arc<Server>, listeners: Listeners, end: impl Future<Output = ()>) {
    // Separate limits, so that clients of the port, which is open to the whole machine, cannot block the
    // socket.
    let silence = 2 * server.limits.keep_alive;
    let seats = || Arc::new(Seats::new(server.limits.connections_max, silence));
    let (socket_seats, port_seats) = (seats(), seats());
    let mut connections = JoinSet::new();
    let mut end = std::pin::pin!(end);
    loop {
        let client = tokio::select! {
            client = accept(&listeners) => client,
            () = &mut end => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let client = match client {
            Ok(client) => client,
            Err(_) => {
                // Most likely out of file descriptors: give existing connections time to close.
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let seats = Arc::clone(match client {
            Client::Socket(_) => &socket_seats,
            Client::Port(_) => &port_seats,
        });
        let Some(seat) = seats.take(Instant::now()) else {
            turn_away(client);
            continue;
        };
        let server = Arc::clone(&server);
        connections.spawn(async move {
            match client {
                Client::Socket(stream) => {
                    // Without it, a client that shuts down its sending side counts as gone.
                    let hangup = Hangup::new(&stream).ok();
                    server.watched(stream, Door::Socket, hangup, &seat).await;
                }
                Client::Port(stream) => server.watched(stream, Door::Port, None, &seat).await,
            }
            seats.leave(&seat);
        });
    }
    drop(listeners);
    server.enter(Phase::Draining);
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(server.limits.grace, all).await;
    server.enter(Phase::Over);
    let all = async { while connections.join_next().await.is_some() {} };
    // Truncated answers say so, which takes no longer than a client takes to read it.
    let _ = timeout(LAST_WORDS, all).await;
    connections.shutdown().await;
}

async fn accept(listeners: &Listeners) -> io::Result<Client> {
    let port = async {
        match &listeners.port {
            Some(port) => port.accept().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        accepted = listeners.socket.accept() => {
            let (stream, _) = accepted?;
            // The directory and the socket are private; this check holds even if someone has opened them up.
            let ours = rustix::process::geteuid().as_raw();
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == ours => Ok(Client::Socket(stream)),
                _ => Err(io::ErrorKind::PermissionDenied.into()),
            }
        }
        accepted = port => {
            let (stream, _) = accepted?;
            // Frames are small, and should be sent immediately.
            let _ = stream.set_nodelay(true);
            Ok(Client::Port(stream))
        }
    }
}

/// Refuses a client for lack of room, in few enough bytes to fit into any buffer.
fn turn_away(client: Client) {
    let last_words = async |mut stream: Box<dyn tokio::io::AsyncWrite + Send + Unpin>| {
        let _ = timeout(LAST_WORDS, stream.write_all(FULL.as_bytes())).await;
    };
    let stream: Box<dyn tokio::io::AsyncWrite + Send + Unpin> = match client {
        Client::Socket(stream) => Box::new(stream),
        Client::Port(stream) => Box::new(stream),
    };
    tokio::spawn(async move { last_words(stream).await });
}

const FULL: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
     retry-after: 1\r\nconnection: close\r\ncontent-length: 156\r\n\r\n\
     {\"error\":{\"message\":\"too many connections are open; close some, or come back in a \
     moment\",\"type\":\"server_error\",\"param\":null,\"code\":\"too_many_connections\"}}";
/// How long the final frames may take.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long to pause if the system cannot accept connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    #[test]
    fn the_refusal_of_connections_has_the_right_length() {
        let (head, body) = super::FULL.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}
