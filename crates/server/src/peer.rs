//! [`Peer`]: a client at the other end of a connection, and the messages that it has not read yet.
//!
//! Messages are queued and written by the transport. For a client that reads slowly, the deltas of a text are joined; a
//! client that reads nothing for too long, or leaves too much unread, is disconnected. Other clients are not affected.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::missed::Missed;
use crate::notification::Notification;

/// Unread bytes beyond which the deltas of a text are joined.
pub const JOIN_BYTES: usize = 64 * 1024;
/// Unread bytes beyond which a turn waits for its client, if no other client follows the thread.
pub const WAIT_BYTES: usize = 4 << 20;
/// Unread bytes beyond which a client is disconnected.
pub const UNREAD_BYTES_MAX: usize = 64 << 20;

/// Identifies a connection within its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

#[derive(Debug)]
pub struct Peer {
    id: PeerId,
    client: OnceLock<Client>,
    queue: Mutex<Queue>,
    /// Signals the transport that a message is queued or the connection is closing.
    written_to: Notify,
    /// Signals that the transport has written something or the connection is closing.
    read_from: Notify,
    /// Signals that a message is queued and nothing was waiting before.
    unread: Notify,
    closed: Notify,
    file_gate: tokio::sync::Mutex<()>,
}

/// What a client said about itself in `initialize`.
#[derive(Debug)]
pub struct Client {
    pub name: String,
    /// Whether it opted in to the experimental API.
    pub experimental: bool,
    /// Methods of the notifications that it opted out of.
    pub opted_out: HashSet<String>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Since when the client has read nothing although messages wait; `None` if none wait.
    since: Option<Instant>,
    /// The reason why the connection was closed; `None` while it is open.
    closed: Option<String>,
    /// Whether to close the connection once everything is written.
    ending: bool,
}

#[derive(Debug)]
struct Waiting {
    message: Message,
    /// The text of the deltas that were joined to the first one.
    more: String,
}

/// A message to one or several clients, which share its text.
#[derive(Clone, Debug)]
pub struct Message {
    line: Arc<str>,
    /// The method, if the message is a notification.
    method: Option<&'static str>,
    /// The notification and its time in milliseconds, if later deltas can be joined to it.
    part: Option<Arc<(Notification, u64)>>,
    /// The notification's number in its thread.
    number: Option<u64>,
}

impl Message {
    /// Creates a message from a response, or from a request to clients.
    pub fn line(line: impl Into<Arc<str>>) -> Self {
        Self { line: line.into(), method: None, part: None, number: None }
    }

    /// Creates a message from a notification.
    pub fn notification(notification: Notification, now_ms: u64) -> Self {
        let line = notification.line(now_ms).into();
        Self::of_line(notification, now_ms, line)
    }

    /// Creates a message from the next notification of a thread, and keeps it for clients that are disconnected.
    pub fn of_thread(notification: Notification, now_ms: u64, missed: &mut Missed) -> Self {
        let number = Some(missed.count());
        let line = notification.numbered_line(now_ms, number).into();
        missed.keep(&notification, now_ms, &line);
        Self { number, ..Self::of_line(notification, now_ms, line) }
    }

    fn of_line(notification: Notification, now_ms: u64, line: Arc<str>) -> Self {
        let method = Some(notification.method());
        let is_part = notification.part_text().is_some();
        let part = is_part.then(|| Arc::new((notification, now_ms)));
        Self { line, method, part, number: None }
    }

    /// Returns the text of this delta if it continues `other`.
    fn continues(&self, other: &Self) -> Option<&str> {
        let (ours, theirs) = (self.part.as_ref()?, other.part.as_ref()?);
        if !ours.0.is_same_text(&theirs.0) {
            return None;
        }
        ours.0.part_text()
    }
}

impl Waiting {
    fn into_line(self) -> Arc<str> {
        match &self.message.part {
            Some(part) if !self.more.is_empty() => {
                let (notification, now_ms) = &**part;
                let text = notification.part_text().unwrap_or_default().to_owned() + &self.more;
                notification.with_text(text).numbered_line(*now_ms, self.message.number).into()
            }
            _ => self.message.line,
        }
    }
}

impl Peer {
    pub fn new(id: PeerId) -> Self {
        Self {
            id,
            client: OnceLock::new(),
            queue: Mutex::default(),
            written_to: Notify::new(),
            read_from: Notify::new(),
            unread: Notify::new(),
            closed: Notify::new(),
            file_gate: tokio::sync::Mutex::new(()),
        }
    }

    pub fn id(&self) -> PeerId {
        self.id
    }

    /// Returns what the client said about itself; `None` before `initialize`.
    pub fn client(&self) -> Option<&Client> {
        self.client.get()
    }

    /// Returns the lock by which requests about files are handled one at a time per connection.
    pub(crate) fn file_gate(&self) -> &tokio::sync::Mutex<()> {
        &self.file_gate
    }

    /// Returns whether the connection is closed or closing, so that nothing more is sent.
    pub(crate) fn is_gone(&self) -> bool {
        let queue = self.lock();
        queue.closed.is_some() || queue.ending
    }

    /// Records what the client says about itself. Returns false if it did so before.
    pub fn introduce(&self, client: Client) -> bool {
        self.client.set(client).is_ok()
    }

    /// Returns the number of bytes that the client has not read.
    pub fn unread_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Queues a message. Notifications are dropped before `initialize`, and if the client has opted out of them.
    pub fn send(&self, message: &Message) {
        let mut queue = self.lock();
        if queue.closed.is_some() || queue.ending {
            return;
        }
        if let Some(method) = message.method
            && self.client.get().is_none_or(|client| client.opted_out.contains(method))
        {
            return;
        }
        // One message alone may be larger.
        if queue.bytes > UNREAD_BYTES_MAX {
            let megabytes = UNREAD_BYTES_MAX >> 20;
            let why = format!("the client has left more than {megabytes} MiB unread");
            return self.close_locked(queue, why);
        }
        let is_first = queue.since.is_none();
        queue.add(message);
        drop(queue);
        self.written_to.notify_one();
        if is_first {
            self.unread.notify_waiters();
        }
    }

    /// Waits for messages and takes some of them; `None` once the connection is closed.
    pub async fn next(&self) -> Option<Vec<Arc<str>>> {
        loop {
            let changed = self.written_to.notified();
            {
                let mut queue = self.lock();
                if queue.closed.is_some() {
                    return None;
                }
                if !queue.waiting.is_empty() {
                    return Some(queue.take());
                }
                if queue.ending {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Records that the client has read something.
    pub fn note_progress(&self) {
        let mut queue = self.lock();
        queue.since = (!queue.waiting.is_empty()).then(Instant::now);
        drop(queue);
        self.read_from.notify_waiters();
    }

    /// Waits until the client has at most [`WAIT_BYTES`] unread.
    pub async fn has_room(&self) {
        loop {
            let changed = self.read_from.notified();
            tokio::pin!(changed);
            // Registered before the look at the queue, so no change is missed.
            changed.as_mut().enable();
            {
                let queue = self.lock();
                if queue.bytes <= WAIT_BYTES || queue.closed.is_some() || queue.ending {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Closes the connection without sending what is queued.
    pub fn close(&self, why: impl Into<String>) {
        let queue = self.lock();
        self.close_locked(queue, why.into());
    }

    /// Closes the connection once everything that is queued is written.
    pub fn finish(&self) {
        self.lock().ending = true;
        self.written_to.notify_one();
        // Wakes the turn that waits in `has_room`.
        self.read_from.notify_waiters();
    }

    /// Waits until the connection is closed.
    pub async fn closed(&self) {
        loop {
            let changed = self.closed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.lock().closed.is_some() {
                return;
            }
            changed.await;
        }
    }

    /// Returns why the connection was closed, if it was.
    pub fn close_reason(&self) -> Option<String> {
        self.lock().closed.clone()
    }

    /// Closes the connection if the client reads nothing for as long as `patience` while messages wait. Sets no timer while
    /// the queue is empty.
    pub async fn watch(&self, patience: Duration) {
        loop {
            let since = {
                let queue = self.lock();
                if queue.closed.is_some() {
                    return;
                }
                queue.since
            };
            match since {
                None => tokio::select! {
                    () = self.closed() => return,
                    () = self.has_unread() => {}
                },
                Some(since) if since.elapsed() >= patience => {
                    let seconds = patience.as_secs();
                    return self.close(format!("the client has read nothing for {seconds} s"));
                }
                Some(since) => tokio::select! {
                    () = self.closed() => return,
                    () = tokio::time::sleep_until((since + patience).into()) => {}
                },
            }
        }
    }

    /// Waits until the queue is not empty.
    async fn has_unread(&self) {
        let changed = self.unread.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if self.lock().since.is_none() {
            changed.await;
        }
    }

    fn close_locked(&self, mut queue: MutexGuard<'_, Queue>, why: String) {
        queue.closed.get_or_insert(why);
        queue.waiting.clear();
        (queue.bytes, queue.since) = (0, None);
        drop(queue);
        self.written_to.notify_one();
        self.read_from.notify_waiters();
        self.closed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn add(&mut self, message: &Message) {
        self.since.get_or_insert_with(Instant::now);
        if self.bytes > JOIN_BYTES
            && let Some(last) = self.waiting.back_mut()
            && let Some(text) = message.continues(&last.message)
        {
            last.more.push_str(text);
            // Then it has all until this one.
            last.message.number = message.number;
            self.bytes += text.len();
            return;
        }
        self.bytes += message.line.len() + 1;
        self.waiting.push_back(Waiting { message: message.clone(), more: String::new() });
    }

    /// Takes the oldest messages, about as many as fit in one write.
    fn take(&mut self) -> Vec<Arc<str>> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while bytes < WRITE_BYTES
            && let Some(next) = self.waiting.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(next.message.line.len() + 1 + next.more.len());
            let line = next.into_line();
            bytes += line.len() + 1;
            taken.push(line);
        }
        taken
    }
}

/// Approximate number of bytes per write.
const WRITE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use serde_json::Value;

    use super::*;

    fn peer() -> Peer {
        let peer = Peer::new(PeerId(1));
        let opted_out = HashSet::from(["thread/archived".to_owned()]);
        peer.introduce(Client { name: "c".into(), experimental: false, opted_out });
        peer
    }

    fn part(item: &str, text: &str) -> Message {
        let text_of = |text: &str| text.to_owned();
        let (thread_id, turn_id) = (text_of("th"), text_of("tu"));
        let (item_id, delta) = (text_of(item), text_of(text));
        let part = Notification::AgentMessageDelta { thread_id, turn_id, item_id, delta };
        Message::notification(part, 7)
    }

    /// Takes all queued messages, as the texts of deltas or the ids of responses.
    fn taken(peer: &Peer) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(Some(lines)) = peer.next().now_or_never() {
            all.extend(lines.iter().map(|line| {
                let message: Value = serde_json::from_str(line).unwrap();
                let delta = message["params"]["delta"].as_str().map(str::to_owned);
                delta.unwrap_or_else(|| message["id"].to_string())
            }));
        }
        all
    }

    #[test]
    fn parts_are_joined_for_slow_clients_only() {
        let peer = peer();
        for text in ["a", "b"] {
            peer.send(&part("1", text));
        }
        assert_eq!(taken(&peer), ["a", "b"]);
        let long = "x".repeat(JOIN_BYTES);
        for (item, text) in
            [("1", &*long), ("1", "b"), ("1", "c"), ("2", "d"), ("2", "e"), ("1", "f")]
        {
            peer.send(&part(item, text));
        }
        peer.send(&Message::line(r#"{"id":5}"#));
        peer.send(&part("1", "g"));
        assert_eq!(taken(&peer), [&*format!("{long}bc"), "de", "f", "5", "g"]);
        assert_eq!(peer.lock().bytes, 0);
    }

    #[test]
    fn unread_messages_have_a_bound() {
        let peer = peer();
        let long = "x".repeat(UNREAD_BYTES_MAX);
        // One alone may be longer.
        peer.send(&part("1", &long));
        assert_eq!(peer.close_reason(), None);
        assert!(peer.has_room().now_or_never().is_none());
        peer.send(&part("1", "more"));
        assert_eq!(
            peer.close_reason().as_deref(),
            Some("the client has left more than 64 MiB unread")
        );
        assert!(peer.has_room().now_or_never().is_some());
        assert_eq!(peer.next().now_or_never(), Some(None));
        assert!(peer.closed().now_or_never().is_some());
    }

    #[test]
    fn what_is_not_wanted_is_not_sent() {
        let peer = peer();
        let archived = Notification::ThreadArchived { thread_id: "t".into() };
        peer.send(&Message::notification(archived, 0));
        assert_eq!(peer.next().now_or_never(), None);
        // A client that has not introduced itself gets no notifications.
        let silent = Peer::new(PeerId(2));
        silent.send(&part("1", "a"));
        assert_eq!(silent.next().now_or_never(), None);
    }

    #[test]
    fn the_end_is_after_what_waits() {
        let peer = peer();
        peer.send(&part("1", "a"));
        peer.finish();
        peer.send(&part("1", "b"));
        assert_eq!(taken(&peer), ["a"]);
        assert_eq!(peer.next().now_or_never(), Some(None));
    }
}
