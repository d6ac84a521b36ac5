//! [`Hub`]: what all connections of a server share: its threads, its clients, and what clients were asked.
//!
//! A thread belongs to the hub. Any connection may follow it, start turns in it and answer its questions; it goes on when
//! the connection that opened it is gone.

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
use crate::question::Question;
use crate::thread::{LoadedThread, Opened};

/// Most threads that can be loaded at once.
pub const THREADS_MAX: usize = 256;
/// Most connections at once.
pub const PEERS_MAX: usize = 256;

/// What a server is started with.
pub struct Options {
    /// Settings that hold for every thread, unless a client says otherwise.
    pub preferences: Preferences,
    /// Called with what a person should know when a thread is opened.
    pub on_notice: fn(Notice),
    /// Called with what the operator of the server should know.
    pub on_note: Box<dyn Fn(&str) + Send + Sync>,
    /// How long a client may read nothing of what it was sent.
    pub write_timeout: Duration,
}

/// Everything that connections share. Cheap to clone; all clones are the same hub.
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
    /// Requests about the configuration are handled one after the other, too.
    config_gate: Gate,
    requests: Mutex<Requests>,
    /// The name of the first client, which threads are marked with.
    originator: OnceLock<String>,
    ending: AtomicBool,
    /// Number of requests of clients that are being handled.
    handling: AtomicUsize,
    started: Instant,
}

/// What a server has to do at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Requests of clients that are being handled.
    pub(crate) requests: usize,
    /// Loaded threads.
    pub(crate) threads: usize,
    /// Turns that run.
    pub(crate) turns: usize,
    pub(crate) clients: usize,
    /// What clients were sent and have not read.
    pub(crate) unread_bytes: usize,
    /// What clients were asked and have not answered.
    pub(crate) questions: usize,
    /// How long the server has run.
    pub(crate) uptime: Duration,
}

/// Requests about one thread are handled one after the other.
type Gate = Arc<tokio::sync::Mutex<()>>;

/// Requests to clients that have no answer yet.
struct Requests {
    next: i64,
    open: HashMap<i64, Request>,
}

/// A request to clients.
struct Request {
    thread: ThreadId,
    line: Arc<str>,
    reply: Reply,
}

/// What is done with an answer.
enum Reply {
    Question(Question),
    /// None if the client refused.
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
                // An answer to a question of an earlier process must not count for one of this.
                next: i64::try_from(heddle::now_ms()).unwrap_or_default(),
                open: HashMap::new(),
            }),
            originator: OnceLock::new(),
            ending: AtomicBool::new(false),
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

    /// Tells the operator of the server something.
    pub fn note(&self, text: &str) {
        (self.0.options.on_note)(text);
    }

    /// Adds a client; none if there are too many.
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

    /// Removes a client. Its turns go on; its questions are left to the others.
    pub fn disconnect(&self, peer: &Peer) {
        lock(&self.0.peers).remove(&peer.id());
        for thread in self.threads() {
            self.unfollow(&thread, peer.id());
        }
    }

    /// Lets a client follow a thread no more. Returns whether it did.
    pub(crate) fn unfollow(&self, thread: &Arc<LoadedThread>, peer: PeerId) -> bool {
        let followed = thread.unfollow(peer);
        if followed && !thread.has_followers() && self.has_open(thread.id) {
            self.give_up_later(thread);
        }
        followed
    }

    /// Returns whether anything that was asked in a thread is open.
    fn has_open(&self, thread: ThreadId) -> bool {
        lock(&self.0.requests).open.values().any(|request| request.thread == thread)
    }

    /// Ends what is asked in a thread, unless somebody follows it again soon.
    fn give_up_later(&self, thread: &Arc<LoadedThread>) {
        let (hub, thread) = (self.clone(), Arc::clone(thread));
        tokio::spawn(async move {
            if !thread.is_followed_again().await {
                thread.asked.give_up();
                // Whoever waits for the answer to a call finds out.
                let is_call = |request: &Request| {
                    request.thread == thread.id && matches!(request.reply, Reply::Call(_))
                };
                lock(&hub.0.requests).open.retain(|_, request| !is_call(request));
            }
        });
    }

    /// Counts a request of a client until what is returned is dropped.
    pub(crate) fn count_request(&self) -> Counted {
        self.0.handling.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }

    /// Returns what there is to do at this moment.
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

    /// Returns the name that new threads are marked with: the first client's.
    pub(crate) fn originator(&self, name: &str) -> &str {
        self.0.originator.get_or_init(|| name.to_owned())
    }

    /// Tells all clients something.
    pub(crate) fn tell_all(&self, notification: Notification) {
        let message = Message::notification(notification, heddle::now_ms());
        let peers: Vec<_> = lock(&self.0.peers).values().cloned().collect();
        peers.iter().for_each(|peer| peer.send(&message));
    }

    /// Tells those who follow a thread something.
    pub(crate) fn tell_followers(&self, loaded: &LoadedThread, notification: Notification) {
        let message = Message::notification(notification, heddle::now_ms());
        loaded.followers().iter().for_each(|peer| peer.send(&message));
    }

    /// Waits until no other request about the thread is handled.
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

    /// Waits until no earlier request about the configuration is handled: a client that sends several need not wait for their
    /// answers.
    pub(crate) async fn config_gate(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.0.config_gate).lock_owned().await
    }

    pub(crate) fn threads(&self) -> Vec<Arc<LoadedThread>> {
        lock(&self.0.threads).values().cloned().collect()
    }

    /// Returns a thread that is loaded.
    pub(crate) fn find(&self, thread: ThreadId) -> Option<Arc<LoadedThread>> {
        lock(&self.0.threads).get(&thread).cloned()
    }

    /// Returns a thread that is loaded and not closing.
    pub(crate) fn loaded(&self, thread: ThreadId) -> Result<Arc<LoadedThread>, RpcError> {
        self.find(thread)
            .filter(|loaded| !loaded.lock().is_closing())
            .ok_or_else(|| RpcError::invalid(format!("thread not found: {thread}")))
    }

    /// Makes room for one more thread.
    pub(crate) fn reserve(&self) -> Result<Reserved, RpcError> {
        let opening = self.0.opening.fetch_add(1, Ordering::AcqRel);
        let reserved = Reserved(self.clone());
        if self.0.ending.load(Ordering::Acquire) {
            return Err(RpcError::invalid("the server is shutting down"));
        }
        if lock(&self.0.threads).len() + opening >= THREADS_MAX {
            return Err(RpcError::invalid(format!(
                "{THREADS_MAX} threads are loaded, which is as many as can be; archive some, or \
                 start another server"
            )));
        }
        Ok(reserved)
    }

    /// Takes over a thread that was opened.
    pub(crate) fn add(&self, id: ThreadId, opened: Opened) -> Arc<LoadedThread> {
        let loaded = LoadedThread::start(self, id, opened);
        lock(&self.0.threads).insert(id, Arc::clone(&loaded));
        if self.0.ending.load(Ordering::Acquire) {
            loaded.close();
        }
        loaded
    }

    /// Forgets a thread that was closed.
    pub(crate) fn forget(&self, loaded: &LoadedThread) {
        lock(&self.0.threads).remove(&loaded.id);
        let status = crate::wire::Status::NotLoaded;
        let thread_id = loaded.id.to_string();
        self.tell_all(Notification::ThreadStatusChanged { thread_id, status });
    }

    /// Lets a client follow a thread, and asks it what others were asked before.
    pub(crate) fn follow(&self, loaded: &LoadedThread, peer: &Arc<Peer>) {
        loaded.follow(peer);
        let requests = lock(&self.0.requests);
        let mut open: Vec<_> =
            requests.open.iter().filter(|(_, request)| request.thread == loaded.id).collect();
        open.sort_by_key(|(id, _)| **id);
        for (_, request) in open {
            peer.send(&Message::line(Arc::clone(&request.line)));
        }
    }

    /// Asks those who follow a thread, also those who begin to within a moment.
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

    /// Calls a tool of those who follow a thread. The result is none if they refuse, or if there is nobody.
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
        // Still locked, so that whoever begins to follow now is asked once.
        let message = Message::line(line);
        followers.iter().for_each(|peer| peer.send(&message));
        id
    }

    /// Takes the answer of a client. Returns false if nobody waits for one of this client: another was first, it is settled,
    /// or the client was not asked.
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

    /// Forgets a request that nobody needs answered any more.
    pub(crate) fn forget_request(&self, id: i64) {
        lock(&self.0.requests).open.remove(&id);
    }

    /// Ends all turns durably, and closes all threads and connections.
    pub async fn shut_down(&self) {
        self.0.ending.store(true, Ordering::Release);
        let peers: Vec<_> = lock(&self.0.peers).values().cloned().collect();
        // Whoever ends the server does not wait for what follows from it.
        peers.iter().for_each(|peer| peer.finish());
        for thread in self.threads() {
            thread.close();
        }
        for thread in self.threads() {
            thread.gone().await;
        }
        while self.0.opening.load(Ordering::Acquire) > 0 {
            // Opening one ends by itself, and it is rare that one is.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for thread in self.threads() {
            thread.gone().await;
        }
    }

    /// Kills all commands without waiting for them, before the process is forced to exit.
    pub fn kill_commands(&self) {
        self.threads().iter().for_each(|thread| thread.lock().open.kill_commands());
    }
}

/// How many gates are kept although nobody waits at them.
const GATES_KEPT: usize = 1024;

/// Room for a thread that is being opened.
pub(crate) struct Reserved(Hub);

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.0.opening.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A request of a client that is being handled.
pub(crate) struct Counted(Hub);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.handling.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Forgets a call when nobody waits for its answer any more, and tells clients so if there was none.
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
