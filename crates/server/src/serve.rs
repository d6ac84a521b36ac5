//! Serves one connection: reads its lines and handles the requests in them.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, Stream, StreamExt as _};
use stdx::lines::{Cut, LINE_BYTES_MAX};

use crate::hub::Hub;
use crate::message::{Envelope, Incoming, RequestId, RpcError, refusal};
use crate::method::{self, Call};
use crate::peer::{Message, Peer};

/// Most requests of one client that are handled at the same time.
pub const REQUESTS_MAX: usize = 256;

/// Serves a client until its input ends or it is disconnected. Requests that were read before the end of the input are
/// still handled.
pub async fn serve(hub: &Hub, peer: &Arc<Peer>, mut lines: impl Stream<Item = Cut> + Unpin) {
    // A request is begun when it arrives, so requests that wait for nothing are handled in their order.
    let mut handled = FuturesUnordered::new();
    let mut at_end = false;
    let mut initialized = false;
    while !at_end || !handled.is_empty() {
        tokio::select! {
            biased;
            () = peer.closed() => return,
            Some(()) = handled.next(), if !handled.is_empty() => {}
            cut = lines.next(), if !at_end => {
                let Some(cut) = cut else {
                    at_end = true;
                    // Among what was asked are commands that may never end by themselves.
                    hub.end_work(peer.id());
                    continue;
                };
                let Some((id, method, params)) = read(hub, peer, &cut) else { continue };
                if !initialized && method != "initialize" {
                    refuse(peer, &id, &RpcError::invalid("Not initialized"));
                } else if handled.len() >= REQUESTS_MAX {
                    let many = format!(
                        "{REQUESTS_MAX} requests are being handled: wait for one of their answers"
                    );
                    refuse(peer, &id, &RpcError::overloaded(many));
                } else {
                    let call = Call { hub: hub.clone(), peer: Arc::clone(peer), id };
                    handled.push(method::handle(call, method, params));
                }
                // `initialize` is done as soon as it is begun.
                if !initialized {
                    let _ = handled.next().now_or_never();
                    initialized = peer.client().is_some();
                }
            }
        }
    }
}

type Requested = (RequestId, String, Option<Box<serde_json::value::RawValue>>);

/// Returns the request in a line; notifications, responses and unreadable lines are handled here.
fn read(hub: &Hub, peer: &Peer, cut: &Cut) -> Option<Requested> {
    let line = match cut {
        Cut::Line(line) => line,
        Cut::Overlong(head) => {
            refuse_overlong(hub, peer, head);
            return None;
        }
    };
    match Incoming::parse(line) {
        Ok(Incoming::Request { id, method, params }) => return Some((id, method, params)),
        Ok(Incoming::Notification { method }) if method == "initialized" => {}
        Ok(Incoming::Notification { method }) => {
            hub.note(&format!("skipped an unknown notification: {method:.100}"));
        }
        Ok(Incoming::Response { id, result }) => {
            let taken = match id {
                RequestId::Number(id) => hub.answered(peer.id(), id, result),
                RequestId::Text(_) => false,
            };
            if !taken {
                hub.note("received a response that nobody waits for");
            }
        }
        // The reference is silent, too: clients do not expect responses without an id.
        Err(error) => hub.note(&format!("skipped a line: {error}{}", begins(line))),
    }
    None
}

/// Refuses a request that is too long, under its own id if the first bytes show it.
fn refuse_overlong(hub: &Hub, peer: &Peer, head: &[u8]) {
    let problem = format!("the line has more than {LINE_BYTES_MAX} bytes, so it was not read");
    hub.note(&format!("skipped a line: {problem}{}", begins(head)));
    let id = match Envelope::of_head(head) {
        // A response is not responded to.
        Envelope::Response => return,
        Envelope::Request(id) => Some(id),
        Envelope::Unknown => None,
    };
    let error = RpcError::invalid(format!("{problem}; send less at once"));
    peer.send(&Message::line(refusal(id.as_ref(), &error)));
}

fn refuse(peer: &Peer, id: &RequestId, error: &RpcError) {
    peer.send(&Message::line(refusal(Some(id), error)));
}

/// Quotes the beginning of a line for the operator.
fn begins(line: &[u8]) -> String {
    if line.is_empty() {
        return String::new();
    }
    let head = String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_SHOWN)]);
    format!("; it begins with `{head}`")
}

/// How many bytes of an unreadable line are shown.
const LINE_BYTES_SHOWN: usize = 80;
