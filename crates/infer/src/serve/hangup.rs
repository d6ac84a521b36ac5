//! Detects that the peer has closed the connection.
//!
//! A client that has shut down its sending side still reads. On a Unix socket that is a different event from
//! closing; on TCP both look the same until something is sent, so this is not used there.

use std::io;
use std::os::fd::AsFd as _;

use tokio::io::Interest;
use tokio::net::UnixStream;

/// A watch on a socket, independent of its users.
#[derive(Debug)]
pub(crate) struct Hangup(UnixStream);

impl Hangup {
    pub(crate) fn new(stream: &UnixStream) -> io::Result<Self> {
        // A separate descriptor, so that its readiness state does not interfere with the other users.
        let again = stream.as_fd().try_clone_to_owned()?;
        UnixStream::from_std(again.into()).map(Self)
    }

    /// Waits until the peer has closed the connection.
    pub(crate) async fn wait(&self) {
        // An error means that the runtime is shutting down.
        while let Ok(ready) = self.0.ready(Interest::WRITABLE).await {
            if ready.is_write_closed() {
                return;
            }
            // Being writable is not interesting; wait for the next event.
            let _ = self.0.try_io(Interest::WRITABLE, || -> io::Result<()> {
                Err(io::ErrorKind::WouldBlock.into())
            });
        }
    }
}
