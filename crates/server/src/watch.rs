//! [`Watches`]: the files and directories that clients watch.
//!
//! One thread and one watcher of the operating system serve all clients. Both sleep while nothing changes, and changes in
//! quick succession are reported together. A path need not exist; until it does, the nearest existing directory above it is
//! watched.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvError, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use notify::event::ModifyKind;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::oneshot;

use crate::message::RpcError;
use crate::notification::Notification;
use crate::peer::{Message as ToPeer, Peer, PeerId};

/// Most paths that a connection can watch.
pub const WATCHES_MAX: usize = 128;
/// Most paths in one notification; if more have changed, only the watched path is named.
pub const CHANGED_PATHS_MAX: usize = 1024;

/// How long changes are collected before they are reported.
const GATHER: Duration = Duration::from_millis(200);
/// Most events of the system that can wait. If more arrive, every watched path is reported as changed.
const EVENTS_WAITING_MAX: usize = 16 * 1024;
/// How often to try to watch directories that change in the meantime.
const TRIES: u32 = 8;

#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// The channel to the thread, which is started for the first watch.
    thread: Mutex<Option<Sender<Message>>>,
}

/// Everything that wakes the thread.
enum Message {
    Event(notify::Result<Event>),
    Add {
        peer: Arc<Peer>,
        id: String,
        path: PathBuf,
        done: oneshot::Sender<Result<(), RpcError>>,
    },
    Remove {
        key: Key,
        done: oneshot::Sender<()>,
    },
    /// The client has disconnected.
    Forget(PeerId),
    End,
}

/// A watch, by its client and the client's name for it.
type Key = (PeerId, String);

impl Watches {
    /// Starts to watch a path.
    pub(crate) async fn add(
        &self,
        peer: &Arc<Peer>,
        id: String,
        path: PathBuf,
    ) -> Result<(), RpcError> {
        let (done, added) = oneshot::channel();
        let add = Message::Add { peer: Arc::clone(peer), id, path, done };
        let ended = || RpcError::internal("the thread that watches files has ended");
        self.thread()?.send(add).map_err(|_| ended())?;
        added.await.map_err(|_| ended())?
    }

    /// Stops watching a path, if it is watched.
    pub(crate) async fn remove(&self, peer: PeerId, id: String) {
        let (done, removed) = oneshot::channel();
        if self.tell(Message::Remove { key: (peer, id), done }) {
            // If the thread has ended, nothing is watched any more.
            let _ = removed.await;
        }
    }

    /// Ends all watches of a client.
    pub(crate) fn forget(&self, peer: PeerId) {
        self.tell(Message::Forget(peer));
    }

    /// Sends a message to the thread. Returns false if the thread was never started.
    fn tell(&self, message: Message) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| thread.send(message).is_ok())
    }

    fn thread(&self) -> Result<Sender<Message>, RpcError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = &*thread {
            return Ok(thread.clone());
        }
        let refused = |error: String| {
            RpcError::internal(format!("files cannot be watched on this machine: {error}"))
        };
        let (sender, messages) = mpsc::channel();
        let queue = Arc::new(Queue::default());
        let (events, counted) = (sender.clone(), Arc::clone(&queue));
        let system = notify::recommended_watcher(move |event| counted.put(&events, event));
        let system = system.map_err(|error| refused(error.to_string()))?;
        let watcher = Watcher {
            system,
            queue,
            watches: BTreeMap::new(),
            by_path: HashMap::new(),
            anchors: HashMap::new(),
            changed: BTreeMap::new(),
            due: None,
        };
        let name = std::thread::Builder::new().name("watch".to_owned());
        name.spawn(move || watcher.run(&messages)).map_err(|error| refused(error.to_string()))?;
        *thread = Some(sender.clone());
        Ok(sender)
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.tell(Message::End);
    }
}

/// Counts the events that wait for the thread. Their sender must not block, because the thread waits for it whenever it
/// starts to watch a directory.
#[derive(Debug, Default)]
struct Queue {
    waiting: AtomicUsize,
    /// Whether events were dropped because there was no room.
    lost: AtomicBool,
}

impl Queue {
    fn put(&self, to: &Sender<Message>, event: notify::Result<Event>) {
        // To look at a file changes nothing.
        if event.as_ref().is_ok_and(|event| event.kind.is_access()) {
            return;
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= EVENTS_WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.lost.store(true, Ordering::Relaxed);
        } else {
            // If the thread has ended, nobody watches.
            let _ = to.send(Message::Event(event));
        }
    }
}

/// The state of the thread.
struct Watcher {
    system: RecommendedWatcher,
    queue: Arc<Queue>,
    watches: BTreeMap<Key, Watch>,
    by_path: HashMap<PathBuf, BTreeSet<Key>>,
    /// The directories that the system watches, and the number of watches that need each.
    anchors: HashMap<PathBuf, usize>,
    /// Changes that are not reported yet; `due` is when they will be.
    changed: BTreeMap<Key, BTreeSet<PathBuf>>,
    due: Option<Instant>,
}

struct Watch {
    peer: Arc<Peer>,
    path: PathBuf,
    /// The directories that the system watches for it.
    anchors: BTreeSet<PathBuf>,
    exists: bool,
}

impl Watcher {
    fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let message = match self.due {
                None => messages.recv().map_err(|RecvError| RecvTimeoutError::Disconnected),
                Some(due) => messages.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match message {
                Ok(Message::Event(event)) => {
                    self.queue.waiting.fetch_sub(1, Ordering::Relaxed);
                    self.event(event);
                }
                Ok(Message::Add { peer, id, path, done }) => {
                    // Whoever does not wait for it any more is gone, which is told, too.
                    let _ = done.send(self.add(peer, id, path));
                }
                Ok(Message::Remove { key, done }) => {
                    self.remove(&key);
                    let _ = done.send(());
                }
                Ok(Message::Forget(peer)) => {
                    let keys = self.watches.range((peer, String::new())..);
                    let keys = keys.map(|(key, _)| key.clone()).take_while(|key| key.0 == peer);
                    keys.collect::<Vec<_>>().iter().for_each(|key| self.remove(key));
                }
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            // A flood of events must not put it off.
            if self.due.is_some_and(|due| due <= Instant::now()) {
                self.tell();
            }
        }
    }

    fn add(&mut self, peer: Arc<Peer>, id: String, path: PathBuf) -> Result<(), RpcError> {
        let key = (peer.id(), id);
        if self.watches.contains_key(&key) {
            return Err(RpcError::invalid(format!("watchId already exists: {:.200}", key.1)));
        }
        let theirs = self.watches.range((key.0, String::new())..);
        if theirs.take_while(|(other, _)| other.0 == key.0).count() >= WATCHES_MAX {
            return Err(RpcError::invalid(format!(
                "this connection watches {WATCHES_MAX} paths, which is the limit: end some \
                 with fs/unwatch"
            )));
        }
        let exists = path.symlink_metadata().is_ok();
        let (anchors, refused) = self.hold(&path);
        if anchors.is_empty() {
            let why = refused.unwrap_or_else(|| "there is no directory above it".to_owned());
            let shown = path.display();
            return Err(RpcError::internal(format!("{shown} cannot be watched: {why}")));
        }
        self.by_path.entry(path.clone()).or_default().insert(key.clone());
        self.watches.insert(key, Watch { peer, path, anchors, exists });
        Ok(())
    }

    fn remove(&mut self, key: &Key) {
        let Some(watch) = self.watches.remove(key) else { return };
        self.changed.remove(key);
        if let Some(keys) = self.by_path.get_mut(&watch.path) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_path.remove(&watch.path);
            }
        }
        self.release(&watch.anchors);
    }

    /// Watches the directories in which changes of a path can be seen. Returns those that the system does watch, and why
    /// another one could not be watched.
    fn hold(&mut self, path: &Path) -> (BTreeSet<PathBuf>, Option<String>) {
        let (mut held, mut refused) = (BTreeSet::new(), None);
        for anchor in anchors_of(path) {
            match self.anchors.get_mut(&anchor) {
                Some(count) => *count += 1,
                None => match self.system.watch(&anchor, RecursiveMode::NonRecursive) {
                    Ok(()) => drop(self.anchors.insert(anchor.clone(), 1)),
                    Err(error) => {
                        refused = Some(error.to_string());
                        continue;
                    }
                },
            }
            held.insert(anchor);
        }
        (held, refused)
    }

    fn release(&mut self, anchors: &BTreeSet<PathBuf>) {
        for anchor in anchors {
            let Some(count) = self.anchors.get_mut(anchor) else { continue };
            *count -= 1;
            if *count == 0 {
                self.anchors.remove(anchor);
                // It is an error if the directory is gone, and then it is as good.
                let _ = self.system.unwatch(anchor);
            }
        }
    }

    fn event(&mut self, event: notify::Result<Event>) {
        let lost = self.queue.lost.swap(false, Ordering::Relaxed);
        // An error is one of the queue of the system.
        if lost || event.as_ref().map_or(true, Event::need_rescan) {
            let all: Vec<_> = self.watches.keys().cloned().collect();
            for key in all {
                self.anchor_again(&key);
                let path = self.watches[&key].path.clone();
                self.note(&key, path);
            }
        }
        let Ok(event) = event else { return };
        let comes_or_goes = matches!(
            event.kind,
            EventKind::Any
                | EventKind::Create(_)
                | EventKind::Remove(_)
                | EventKind::Modify(ModifyKind::Name(_))
        );
        for path in event.paths {
            if comes_or_goes {
                self.moved(&path);
            }
            for place in [Some(&*path), path.parent()].into_iter().flatten() {
                for key in self.by_path.get(place).cloned().into_iter().flatten() {
                    self.note(&key, path.clone());
                }
            }
        }
    }

    /// Updates the watched directories after something at this path was created or removed.
    fn moved(&mut self, path: &Path) {
        if self.anchors.contains_key(path) {
            // The system looks at what was there before, if at anything.
            let _ = self.system.unwatch(path);
            let _ = self.system.watch(path, RecursiveMode::NonRecursive);
        }
        let below = self.watches.iter().filter(|(_, watch)| watch.path.starts_with(path));
        let below: Vec<_> = below.map(|(key, _)| key.clone()).collect();
        below.iter().for_each(|key| self.anchor_again(key));
    }

    fn anchor_again(&mut self, key: &Key) {
        for _ in 0..TRIES {
            let path = self.watches[key].path.clone();
            let (held, _) = self.hold(&path);
            let Some(watch) = self.watches.get_mut(key) else { return };
            let before = std::mem::replace(&mut watch.anchors, held);
            let exists = path.symlink_metadata().is_ok();
            let came_or_went = std::mem::replace(&mut watch.exists, exists) != exists;
            let settled = watch.anchors == before;
            self.release(&before);
            if came_or_went {
                self.note(key, path);
            }
            // What was created before it was looked at has no event.
            if settled {
                return;
            }
        }
    }

    fn note(&mut self, key: &Key, path: PathBuf) {
        let paths = self.changed.entry(key.clone()).or_default();
        if paths.len() <= CHANGED_PATHS_MAX {
            paths.insert(path);
        }
        self.due.get_or_insert_with(|| Instant::now() + GATHER);
    }

    fn tell(&mut self) {
        self.due = None;
        for (key, paths) in std::mem::take(&mut self.changed) {
            let Some(watch) = self.watches.get(&key) else { continue };
            let shown = |path: &PathBuf| path.display().to_string();
            let changed_paths = match paths.len() > CHANGED_PATHS_MAX {
                true => vec![shown(&watch.path)],
                false => paths.iter().map(shown).collect(),
            };
            let changed = Notification::FsChanged { watch_id: key.1, changed_paths };
            watch.peer.send(&ToPeer::notification(changed, heddle::now_ms()));
        }
    }
}

/// Returns the directories in which changes of a path can be seen: the path itself, and the nearest directory above it.
fn anchors_of(path: &Path) -> Vec<PathBuf> {
    let above = path.ancestors().skip(1).find(|above| above.is_dir());
    let itself = path.is_dir().then_some(path);
    itself.into_iter().chain(above).map(Path::to_owned).collect()
}
