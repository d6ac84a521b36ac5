//! [`Hub`]: what all connections of a server share: threads, clients, and open requests to clients.
//!
//! Threads belong to the hub. Any connection may follow a thread, start turns in it and answer its questions, and the
//! thread outlives the connection that opened it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use heddle::session::settings::Preferences;
use heddle::{Heddle, Notice, ThreadId};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::message::{self, RpcError};
use crate::notification::Notification;
use crate::peer::{Message, Peer, PeerId};
use crate::processes::Processes;
use crate::question::Question;
use crate::searches::Searches;
use crate::thread::{LoadedThread, Opened};
use crate::watch::Watches;

/// Most threads that can be loaded at the same time.
pub const THREADS_MAX: usize = 256;
/// Most connections at the same time.
pub const PEERS_MAX: usize = 256;

/// Server settings that apply to all clients.
pub struct Options {
    /// Settings of every thread, unless a client overrides them.
    pub preferences: Preferences,
    /// Receives notices for the user while a thread is being opened.
    pub on_notice: fn(Notice),
    /// Receives messages for the operator of the server, such as lines that were skipped.
    pub on_note: Box<dyn Fn(&str) + Send + Sync>,
    /// How long a client may read nothing while messages wait for it, before it is disconnected.
    pub write_timeout: Duration,
}

/// State that all connections share. Cheap to clone; all clones refer to the same hub.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    heddle: Heddle,
    options: Options,
    peers: Mutex<BTreeMap<PeerId, Arc<Peer>>>,
    next_peer: AtomicU64,
    threads: Mutex<BTreeMap<ThreadId, Arc<LoadedThread>>>,
    /// Number of threads being opened.
    opening: AtomicUsize,
    gates: Mutex<HashMap<ThreadId, Gate>>,
    /// Requests about the configuration are also handled one at a time.
    config_gate: Gate,
    requests: Mutex<Requests>,
    /// The name of the first client; it becomes the originator of new threads.
    originator: OnceLock<String>,
    ending: AtomicBool,
    watches: Watches,
    processes: Arc<Processes>,
    searches: Arc<Searches>,
    /// Number of client requests being handled.
    handling: AtomicUsize,
    started: Instant,
}

/// What a server is doing at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Client requests being handled.
    pub(crate) requests: usize,
    pub(crate) threads: usize,
    pub(crate) turns: usize,
    pub(crate) clients: usize,
    /// Bytes queued for clients.
    pub(crate) unread_bytes: usize,
    /// Requests to clients that are not answered yet.
    pub(crate) questions: usize,
    pub(crate) uptime: Duration,
}

/// Held while a request about a thread is handled, so that these requests are handled one at a time.
type Gate = Arc<tokio::sync::Mutex<()>>;

/// Requests to clients that are not answered yet.
struct Requests {
    next: i64,
    open: HashMap<i64, Request>,
}

/// A request that was sent to the clients that follow a thread.
struct Request {
    thread: ThreadId,
    line: Arc<str>,
    reply: Reply,
}

/// What receives the answer to a request.
enum Reply {
    Question(Question),
    /// A tool call. It receives the result, or `None` if the client responded with an error.
    Call(oneshot::Sender<Option<Box<RawValue>>>),
}

impl Hub {
    pub fn new(heddle: Heddle, options: Options) -> Self {
        Self(Arc::new(Inner {
            heddle,
            options,
            peers: Mutex::default(),
            next_peer: AtomicU64::new(1),
            threads: Mutex::default(),
            opening: AtomicUsize::new(0),
            gates: Mutex::default(),
            config_gate: Gate::default(),
            requests: Mutex::new(Requests {
                // A late answer to a request of an earlier process must not count for a request of this one.
                next: i64::try_from(heddle::now_ms()).unwrap_or_default(),
                open: HashMap::new(),
            }),
            originator: OnceLock::new(),
            ending: AtomicBool::new(false),
            watches: Watches::default(),
            processes: Arc::default(),
            searches: Arc::default(),
            handling: AtomicUsize::new(0),
            started: Instant::now(),
        }))
    }

    pub fn heddle(&self) -> &Heddle {
        &self.0.heddle
    }

    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Passes a message to the server's operator.
    pub fn note(&self, text: &str) {
        (self.0.options.on_note)(text);
    }

    /// Adds a client, or returns `None` if there are [`PEERS_MAX`] already.
    pub fn connect(&self) -> Option<Arc<Peer>> {
        let mut peers = lock(&self.0.peers);
        if peers.len() >= PEERS_MAX {
            return None;
        }
        let id = PeerId(self.0.next_peer.fetch_add(1, Ordering::Relaxed));
        let peer = Arc::new(Peer::new(id));
        peers.insert(id, Arc::clone(&peer));
        Some(peer)
    }

    /// Removes a client. The turns that it started continue, and the remaining followers can answer their questions.
    pub fn disconnect(&self, peer: &Peer) {
        lock(&self.0.peers).remove(&peer.id());
        self.end_work(peer.id());
        // A turn may wait for this client to read.
        peer.finish();
        for thread in self.threads() {
            self.unfollow(&thread, peer.id());
        }
    }

    /// Ends the commands, searches and watches of a connection.
    pub(crate) fn end_work(&self, peer: PeerId) {
        self.0.watches.forget(peer);
        self.0.processes.end_of(peer);
        self.0.searches.end_of(peer);
    }

    pub(crate) fn processes(&self) -> &Arc<Processes> {
        &self.0.processes
    }

    pub(crate) fn searches(&self) -> &Arc<Searches> {
        &self.0.searches
    }

    pub(crate) fn watches(&self) -> &Watches {
        &self.0.watches
    }

    /// Removes a client from the followers of a thread. Returns whether it was a follower.
    pub(crate) fn unfollow(&self, thread: &Arc<LoadedThread>, peer: PeerId) -> bool {
        let followed = thread.unfollow(peer);
        if followed && !thread.has_followers() && self.has_open(thread.id) {
            self.give_up_later(thread);
        }
        followed
    }

    /// Returns whether the thread has a request that its clients have not answered.
    fn has_open(&self, thread: ThreadId) -> bool {
        lock(&self.0.requests).open.values().any(|request| request.thread == thread)
    }

    /// Gives up the open questions and tool calls of a thread, unless a client follows it again within moments.
    fn give_up_later(&self, thread: &Arc<LoadedThread>) {
        let (hub, thread) = (self.clone(), Arc::clone(thread));
        tokio::spawn(async move {
            if !thread.is_followed_again().await {
                thread.asked.give_up();
                // Dropping the senders tells the waiting tool calls that no answer will come.
                let is_call = |request: &Request| {
                    request.thread == thread.id && matches!(request.reply, Reply::Call(_))
                };
                lock(&hub.0.requests).open.retain(|_, request| !is_call(request));
            }
        });
    }

    /// Counts a client's request until the returned guard is dropped.
    pub(crate) fn count_request(&self) -> Counted {
        self.0.handling.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }

    pub(crate) fn load(&self) -> Load {
        let threads = self.threads();
        let peers: Vec<_> = lock(&self.0.peers).values().cloned().collect();
        Load {
            requests: self.0.handling.load(Ordering::Relaxed),
            threads: threads.len(),
            turns: threads.iter().filter(|thread| thread.lock().turn_id().is_some()).count(),
            clients: peers.len(),
            unread_bytes: peers.iter().map(|peer| peer.unread_bytes()).sum(),
            questions: lock(&self.0.requests).open.len(),
            uptime: self.0.started.elapsed(),
        }
    }

    /// Returns the originator of new threads: the name of the first client.
    pub(crate) fn originator(&self, name: &str) -> &str {
        self.0.originator.get_or_init(|| name.to_owned())
    }

    /// Sends a notification to all clients.
    pub(crate) fn tell_all(&self, notification: Notification) {
        let message = Message::notification(notification, heddle::now_ms());
        let peers: Vec<_> = lock(&self.0.peers).values().cloned().collect();
        peers.iter().for_each(|peer| peer.send(&message));
    }

    /// Sends a notification to the clients that follow the thread.
    pub(crate) fn tell_followers(&self, loaded: &LoadedThread, notification: Notification) {
        loaded.tell(&loaded.followers(), notification);
    }

    /// Waits for other requests about the thread to be handled, and locks its gate.
    pub(crate) async fn gate(&self, thread: ThreadId) -> OwnedMutexGuard<()> {
        let gate = {
            let mut gates = lock(&self.0.gates);
            if gates.len() > GATES_KEPT {
                gates.retain(|_, gate| Arc::strong_count(gate) > 1);
            }
            Arc::clone(gates.entry(thread).or_default())
        };
        gate.lock_owned().await
    }

    /// Waits for earlier requests about the configuration to be handled, so a client can send several without waiting for
    /// the answers.
    pub(crate) async fn config_gate(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.0.config_gate).lock_owned().await
    }

    pub(crate) fn threads(&self) -> Vec<Arc<LoadedThread>> {
        lock(&self.0.threads).values().cloned().collect()
    }

    /// Returns the thread if it is loaded, even if it is closing.
    pub(crate) fn find(&self, thread: ThreadId) -> Option<Arc<LoadedThread>> {
        lock(&self.0.threads).get(&thread).cloned()
    }

    /// Returns the thread if it is loaded and not closing, or else the error for the client.
    pub(crate) fn loaded(&self, thread: ThreadId) -> Result<Arc<LoadedThread>, RpcError> {
        self.find(thread).filter(|loaded| !loaded.lock().is_closing()).ok_or_else(|| {
            RpcError::invalid(format!(
                "thread not found: {thread} (if it is saved, thread/resume loads it)"
            ))
        })
    }

    /// Reserves room for one more thread. Fails if [`THREADS_MAX`] are loaded or the server is shutting down.
    pub(crate) fn reserve(&self) -> Result<Reserved, RpcError> {
        let opening = self.0.opening.fetch_add(1, Ordering::AcqRel);
        let reserved = Reserved(self.clone());
        if self.0.ending.load(Ordering::Acquire) {
            return Err(RpcError::invalid("the server is shutting down"));
        }
        if lock(&self.0.threads).len() + opening >= THREADS_MAX {
            return Err(RpcError::invalid(format!(
                "{THREADS_MAX} threads are loaded, which is the limit: archive some, or start \
                 another server"
            )));
        }
        Ok(reserved)
    }

    /// Adds an opened thread, and starts its task.
    pub(crate) fn add(&self, id: ThreadId, opened: Opened) -> Arc<LoadedThread> {
        let loaded = LoadedThread::start(self, id, opened);
        lock(&self.0.threads).insert(id, Arc::clone(&loaded));
        if self.0.ending.load(Ordering::Acquire) {
            loaded.close();
        }
        loaded
    }

    /// Removes a closed thread, and notifies all clients.
    pub(crate) fn forget(&self, loaded: &LoadedThread) {
        lock(&self.0.threads).remove(&loaded.id);
        let status = crate::wire::Status::NotLoaded;
        let thread_id = loaded.id.to_string();
        self.tell_all(Notification::ThreadStatusChanged { thread_id, status });
    }

    /// Makes a client follow a thread, and sends it the requests that are not answered yet.
    pub(crate) fn follow(&self, loaded: &LoadedThread, peer: &Arc<Peer>) {
        loaded.follow(peer);
        // One that has disconnected meanwhile is removed by nobody else.
        if !lock(&self.0.peers).contains_key(&peer.id()) {
            loaded.unfollow(peer.id());
            return;
        }
        let requests = lock(&self.0.requests);
        let mut open: Vec<_> =
            requests.open.iter().filter(|(_, request)| request.thread == loaded.id).collect();
        open.sort_by_key(|(id, _)| **id);
        for (_, request) in open {
            peer.send(&Message::line(Arc::clone(&request.line)));
        }
    }

    /// Sends a question to the clients that follow a thread; a client that follows it soon after still gets the question.
    /// Returns the id of the request.
    pub(crate) fn ask(
        &self,
        loaded: &Arc<LoadedThread>,
        followers: &[Arc<Peer>],
        question: Question,
    ) -> i64 {
        let (method, params) = (question.method, question.params.clone());
        let id = self.request(loaded.id, followers, method, &params, Reply::Question(question));
        if followers.is_empty() {
            self.give_up_later(loaded);
        }
        id
    }

    /// Sends a tool call to the clients that follow a thread. Returns `None` if a client refuses it or nobody follows the
    /// thread.
    pub(crate) async fn call(
        &self,
        loaded: &Arc<LoadedThread>,
        method: &str,
        params: &Value,
    ) -> Option<Box<RawValue>> {
        let followers = loaded.followers();
        let (sender, reply) = oneshot::channel();
        let id = self.request(loaded.id, &followers, method, params, Reply::Call(sender));
        let _forget = ForgetRequest { hub: self, loaded, id };
        if followers.is_empty() {
            self.give_up_later(loaded);
        }
        reply.await.ok().flatten()
    }

    fn request(
        &self,
        thread: ThreadId,
        followers: &[Arc<Peer>],
        method: &str,
        params: &Value,
        reply: Reply,
    ) -> i64 {
        let mut requests = lock(&self.0.requests);
        let id = requests.next;
        requests.next += 1;
        let line: Arc<str> = message::request(id, method, params).into();
        requests.open.insert(id, Request { thread, line: Arc::clone(&line), reply });
        // Still locked, so that a client that begins to follow now gets the request once.
        let message = Message::line(line);
        followers.iter().for_each(|peer| peer.send(&message));
        id
    }

    /// Accepts a client's response. Returns false if it is not needed: another client was faster, the request is settled,
    /// or the client does not follow the thread.
    pub(crate) fn answered(&self, peer: PeerId, id: i64, result: Option<Box<RawValue>>) -> bool {
        let thread = lock(&self.0.requests).open.get(&id).map(|request| request.thread);
        let was_asked = thread
            .and_then(|thread| self.find(thread))
            .is_some_and(|loaded| loaded.is_followed_by(peer));
        if !was_asked {
            return false;
        }
        let Some(request) = lock(&self.0.requests).open.remove(&id) else { return false };
        match request.reply {
            Reply::Call(sender) => sender.send(result).is_ok(),
            Reply::Question(question) => match self.find(request.thread) {
                Some(loaded) => {
                    loaded.asked.answer(question.id, question.answer(result.as_deref()));
                    true
                }
                None => false,
            },
        }
    }

    /// Removes a request whose answer is no longer needed.
    pub(crate) fn forget_request(&self, id: i64) {
        lock(&self.0.requests).open.remove(&id);
    }

    /// Ends all turns and writes their ends to the logs, then closes all threads and connections.
    pub async fn shut_down(&self) {
        self.0.ending.store(true, Ordering::Release);
        let peers: Vec<_> = lock(&self.0.peers).values().cloned().collect();
        // First of all, so that clients get no notifications about the turns that are interrupted.
        peers.iter().for_each(|peer| peer.finish());
        for thread in self.threads() {
            thread.close();
        }
        self.0.processes.shut_down().await;
        for thread in self.threads() {
            thread.gone().await;
        }
        while self.0.opening.load(Ordering::Acquire) > 0 {
            // Opening a thread ends by itself, and is rarely under way at this moment.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for thread in self.threads() {
            thread.gone().await;
        }
    }

    /// Kills all commands without waiting for them to end, because the process is about to be forced to exit.
    pub fn kill_commands(&self) {
        self.0.processes.kill_now();
        self.threads().iter().for_each(|thread| thread.lock().open.kill_commands());
    }
}

/// Unused gates are removed once there are more than this many.
const GATES_KEPT: usize = 1024;

/// Room for a thread that is being opened.
pub(crate) struct Reserved(Hub);

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.0.opening.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A client request that is being handled.
pub(crate) struct Counted(Hub);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.handling.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Removes a tool call when its caller stops waiting, and notifies the followers if none of them has answered it.
struct ForgetRequest<'a> {
    hub: &'a Hub,
    loaded: &'a LoadedThread,
    id: i64,
}

impl Drop for ForgetRequest<'_> {
    fn drop(&mut self) {
        if lock(&self.hub.0.requests).open.remove(&self.id).is_some() {
            let (thread_id, request_id) = (self.loaded.id.to_string(), self.id);
            let resolved = Notification::RequestResolved { thread_id, request_id };
            self.hub.tell_followers(self.loaded, resolved);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::peer::WAIT_BYTES;

    fn hub() -> Hub {
        let nowhere = std::env::temp_dir();
        let heddle = Heddle::builder().home(nowhere.join("no-home")).directory(&nowhere).build();
        let options = Options {
            preferences: Preferences::default(),
            on_notice: |_| {},
            on_note: Box::new(|_| {}),
            write_timeout: Duration::from_secs(60),
        };
        Hub::new(heddle.expect("the directory is there"), options)
    }

    /// A turn waits for its only client to read, but not for one that is gone.
    #[test]
    fn nothing_waits_for_a_client_that_is_gone() {
        let hub = hub();
        let peer = hub.connect().expect("there is room");
        peer.send(&Message::line("x".repeat(WAIT_BYTES + 1)));
        assert!(peer.has_room().now_or_never().is_none());
        hub.disconnect(&peer);
        assert!(peer.has_room().now_or_never().is_some());
    }
}
