//! A client on stdin and stdout: each line is one JSON object.
//!
//! Stdin and stdout are each handled by a separate thread, since either can block.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use stdx::lines::{Cut, Lines};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::{Ended, LINES_WAITING_MAX, serve_peer};
use crate::hub::Hub;
use crate::peer::Peer;

const READ_BYTES: usize = 64 * 1024;
/// Bytes per write; small enough to notice progress within a long line.
const WRITE_BYTES: usize = 32 * 1024;

/// Serves one client on stdin and stdout until stdin ends or the client is disconnected. The returned receiver resolves
/// once everything is written.
pub async fn stdio(hub: &Hub) -> io::Result<(Ended, oneshot::Receiver<()>)> {
    let Some(peer) = hub.connect() else {
        return Err(io::Error::other("there are too many connections"));
    };
    let lines = read_lines()?;
    let written = write_lines(&peer)?;
    let ended = serve_peer(hub, &peer, lines).await;
    Ok((ended, written))
}

fn read_lines() -> io::Result<mpsc::Receiver<Cut>> {
    let (sender, receiver) = mpsc::channel(LINES_WAITING_MAX);
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut lines = Lines::default();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let cuts = match stdin.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => lines.push(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            for cut in cuts {
                // If the receiver is gone, the program is exiting.
                let Ok(()) = sender.blocking_send(cut) else { return };
            }
        }
        if let Some(cut) = lines.finish() {
            let _ = sender.blocking_send(cut);
        }
    })?;
    Ok(receiver)
}

fn write_lines(peer: &Arc<Peer>) -> io::Result<oneshot::Receiver<()>> {
    let (done, written) = oneshot::channel();
    let (peer, runtime) = (Arc::clone(peer), Handle::current());
    std::thread::Builder::new().name("stdout".to_owned()).spawn(move || {
        let mut stdout = io::stdout().lock();
        while let Some(lines) = runtime.block_on(peer.next()) {
            let mut bytes = Vec::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
            for line in lines {
                bytes.extend_from_slice(line.as_bytes());
                bytes.push(b'\n');
            }
            for piece in bytes.chunks(WRITE_BYTES) {
                if stdout.write_all(piece).and_then(|()| stdout.flush()).is_err() {
                    return peer.close("the client cannot be reached");
                }
                peer.note_progress();
            }
        }
        let _ = done.send(());
    })?;
    Ok(written)
}
