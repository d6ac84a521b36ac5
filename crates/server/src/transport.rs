//! How clients reach the server.

mod address;
mod socket;
mod stdio;

pub use address::{Access, InvalidAddress, InvalidToken, Listen, TOKEN_BYTES_MIN, Token};
pub use socket::{ListenError, Listener};
pub use stdio::stdio;

use std::sync::Arc;

use futures_util::stream::{Stream, unfold};
use stdx::lines::Cut;
use tokio::sync::mpsc;

use crate::hub::Hub;
use crate::peer::Peer;
use crate::serve::serve;

/// Most lines of a client that wait to be handled.
const LINES_WAITING_MAX: usize = 16;

/// Why a client is not served any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client has ended the connection.
    ByClient,
    /// The server has disconnected the client, for this reason.
    Disconnected(String),
}

/// Serves a client until its input ends or it is disconnected.
async fn serve_peer(hub: &Hub, peer: &Arc<Peer>, lines: mpsc::Receiver<Cut>) -> Ended {
    let watched = peer.watch(hub.options().write_timeout);
    tokio::select! {
        () = serve(hub, peer, Box::pin(lines_of(lines))) => {}
        () = watched => {}
    }
    match peer.close_reason() {
        Some(why) => Ended::Disconnected(why),
        None => Ended::ByClient,
    }
}

fn lines_of(lines: mpsc::Receiver<Cut>) -> impl Stream<Item = Cut> {
    unfold(lines, |mut lines| async move { lines.recv().await.map(|cut| (cut, lines)) })
}
