//! Reads the body of a request within its limits, or leaves it unread.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::HeaderMap;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::header::EXPECT;
use prompt::refusal::Refusal;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::Server;
use super::problem::Problem;

/// The body of a request being received.
pub(crate) struct Upload {
    incoming: Incoming,
    /// Whether the client waits for `100 Continue`, which is sent when reading begins.
    is_awaited: bool,
}

impl Upload {
    pub(crate) fn new(incoming: Incoming, headers: &HeaderMap) -> Self {
        let expect = headers.get(EXPECT);
        let is_awaited = expect.is_some_and(|value| {
            value.as_bytes().eq_ignore_ascii_case(b"100-continue") && !incoming.is_end_stream()
        });
        Self { incoming, is_awaited }
    }

    /// Tells whether the client still waits for `100 Continue`; it may send the body anyway, or something
    /// else.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    async fn next(&mut self) -> Option<hyper::Result<Frame<bytes::Bytes>>> {
        self.is_awaited = false;
        self.incoming.frame().await
    }

    /// Reads a little of an unwanted body, so that the client gets to read the error; one that waits for `100
    /// Continue` reads it without that.
    pub(crate) async fn drain(&mut self) {
        if self.is_awaited {
            return;
        }
        let read = async {
            let mut left = DRAIN_BYTES_MAX;
            while let Some(Ok(frame)) = self.next().await {
                let bytes = frame.data_ref().map_or(0, bytes::Bytes::len);
                match left.checked_sub(bytes) {
                    Some(rest) => left = rest,
                    None => break,
                }
            }
        };
        // A slower client does not get to read it.
        let _ = timeout(DRAIN_TIMEOUT, read).await;
    }
}

/// A body, and the memory permit that it holds.
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Server {
    /// Reads a body within all limits. Its memory permit is released with it.
    pub(super) async fn read_body(&self, body: &mut Upload) -> Result<Received, Problem> {
        let limit = self.limits.request_bytes_max;
        let too_large = || Problem::from(Refusal::TooLarge { limit });
        if body.incoming.size_hint().lower() > limit as u64 {
            body.drain().await;
            return Err(too_large());
        }
        let (mut bytes, mut room) = (Vec::new(), None::<OwnedSemaphorePermit>);
        let read = async {
            while let Some(frame) = body.next().await {
                // A client that breaks off does not read the error.
                let frame = frame.map_err(|_| Problem::invalid("the body broke off"))?;
                let Ok(data) = frame.into_data() else { continue };
                if bytes.len() + data.len() > limit {
                    return Err(too_large());
                }
                let had = bytes.len().div_ceil(1024);
                bytes.extend_from_slice(&data);
                let more = bytes.len().div_ceil(1024) - had;
                let more = u32::try_from(more).unwrap_or(u32::MAX);
                let more = Arc::clone(&self.bodies).try_acquire_many_owned(more);
                let more = more.map_err(|_| Problem::bodies_full())?;
                match &mut room {
                    Some(room) => room.merge(more),
                    None => room = Some(more),
                }
            }
            Ok(())
        };
        match timeout(self.limits.body_timeout, read).await {
            Ok(Ok(())) => Ok(Received { bytes, _room: room }),
            Ok(Err(problem)) => {
                body.drain().await;
                Err(problem)
            }
            Err(_) => Err(Problem::slow()),
        }
    }
}

/// How much of an unwanted body is read.
const DRAIN_BYTES_MAX: usize = 64 * 1024 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
