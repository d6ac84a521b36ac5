//! Detects that the peer has closed the connection.
//!
//! A client that has shut down its sending end has said all it has to say, and still reads. On a Unix socket that is
//! another event than its end; on TCP both look the same until something is sent, so there is no such watch.

use std::io;
use std::os::fd::AsFd as _;

use tokio::io::Interest;
use tokio::net::UnixStream;

/// A watch over a socket, beside those who use it.
#[derive(Debug)]
pub(crate) struct Hangup(UnixStream);

impl Hangup {
    /// Watches a socket.
    pub(crate) fn new(stream: &UnixStream) -> io::Result<Self> {
        // Another descriptor of the same socket, so that what is noted here about events is not what others go by.
        let again = stream.as_fd().try_clone_to_owned()?;
        UnixStream::from_std(again.into()).map(Self)
    }

    /// Waits until nobody can read what is sent.
    pub(crate) async fn wait(&self) {
        // Without a driver of events everything is at its end.
        while let Ok(ready) = self.0.ready(Interest::WRITABLE).await {
            if ready.is_write_closed() {
                return;
            }
            // That there is room is no news; the next event is waited for.
            let _ = self.0.try_io(Interest::WRITABLE, || -> io::Result<()> {
                Err(io::ErrorKind::WouldBlock.into())
            });
        }
    }
}
