//! [`Searches`]: the file searches that clients have started.
//!
//! A search walks directories on a thread for blocking work, and no thread is kept while it waits for the next query. A
//! newer query stops the work for the older one, and closing the connection stops all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use search::{Files, Match, Walk};
use tokio::sync::Semaphore;

use crate::message::RpcError;
use crate::notification::{FoundFile, Notification};
use crate::peer::{Message, Peer, PeerId};

/// Most searches with changing queries per connection.
pub const SEARCHES_MAX: usize = 8;
/// Most files in one result.
pub const FOUND_MAX: usize = 50;

/// Most searches that run at the same time, over all clients; the others wait.
const WORKING_MAX: usize = 8;
/// How often a client gets the results found so far.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// The searches of all clients.
#[derive(Debug)]
pub(crate) struct Searches {
    /// Searches with a single query.
    single: Mutex<BTreeMap<(PeerId, Token), Single>>,
    next: AtomicU64,
    sessions: Mutex<BTreeMap<(PeerId, String), Arc<Session>>>,
    working: Arc<Semaphore>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Token {
    None(u64),
    Given(String),
}

#[derive(Clone, Debug)]
struct Single {
    /// Distinguishes it from a later search with the same token.
    number: u64,
    cancelled: Arc<AtomicBool>,
}

impl Default for Searches {
    fn default() -> Self {
        Self {
            single: Mutex::default(),
            next: AtomicU64::new(0),
            sessions: Mutex::default(),
            working: Arc::new(Semaphore::new(WORKING_MAX)),
        }
    }
}

impl Searches {
    /// Runs a search once. A later search with the same token, or the end of the connection, makes the result empty.
    pub(crate) async fn once(
        self: &Arc<Self>,
        peer: PeerId,
        token: Option<String>,
        roots: &Roots,
        query: String,
    ) -> Result<Vec<FoundFile>, RpcError> {
        let begun = self.begin(peer, token);
        let cancelled = Arc::clone(&begun.single.cancelled);
        let permit = self.working.acquire().await;
        let roots = roots.clone();
        let work = move || {
            let go_on = || !cancelled.load(Ordering::Relaxed);
            let (mut walk, mut files) = (Walk::new(&roots.paths), Files::default());
            walk.advance(&mut files, &go_on);
            let best = files.best(&query, FOUND_MAX, &go_on).unwrap_or_default();
            roots.shown(best)
        };
        let found = tokio::task::spawn_blocking(work).await;
        drop((permit, begun));
        found.map_err(|error| RpcError::internal(error.to_string()))
    }

    fn begin(self: &Arc<Self>, peer: PeerId, token: Option<String>) -> Begun {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let key = (peer, token.map_or(Token::None(number), Token::Given));
        let single = Single { number, cancelled: Arc::default() };
        if let Some(older) = lock(&self.single).insert(key.clone(), single.clone()) {
            older.cancelled.store(true, Ordering::Relaxed);
        }
        Begun { searches: Arc::clone(self), key, single }
    }

    /// Starts a search with a changing query, which is empty at first. An earlier search of the same name is stopped.
    pub(crate) fn start(
        &self,
        peer: &Arc<Peer>,
        id: String,
        roots: Roots,
    ) -> Result<Arc<Session>, RpcError> {
        let key = (peer.id(), id.clone());
        let mut sessions = lock(&self.sessions);
        let theirs = sessions.keys().filter(|other| other.0 == key.0 && **other != key).count();
        if theirs >= SEARCHES_MAX {
            return Err(RpcError::invalid(format!(
                "this connection has {SEARCHES_MAX} searches, which is the limit: stop one with \
                 fuzzyFileSearch/sessionStop"
            )));
        }
        let session = Arc::new(Session {
            peer: Arc::clone(peer),
            id,
            cancelled: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            state: Mutex::new(State {
                query: String::new(),
                listed: Some(Listed {
                    walk: Walk::new(&roots.paths),
                    files: Files::default(),
                    over: false,
                }),
            }),
            roots,
        });
        if let Some(older) = sessions.insert(key, Arc::clone(&session)) {
            older.cancel();
        }
        Ok(session)
    }

    /// Returns a search that was started and not stopped.
    pub(crate) fn find(&self, peer: PeerId, id: String) -> Result<Arc<Session>, RpcError> {
        let key = (peer, id);
        lock(&self.sessions).get(&key).cloned().ok_or_else(|| {
            RpcError::invalid(format!("fuzzy file search session not found: {:.200}", key.1))
        })
    }

    /// Stops a search, if it exists.
    pub(crate) fn stop(&self, peer: PeerId, id: String) {
        if let Some(session) = lock(&self.sessions).remove(&(peer, id)) {
            session.cancel();
        }
    }

    /// Stops all searches of a client.
    pub(crate) fn end_of(&self, peer: PeerId) {
        for ((of, _), single) in &*lock(&self.single) {
            if *of == peer {
                single.cancelled.store(true, Ordering::Relaxed);
            }
        }
        lock(&self.sessions).retain(|(of, _), session| {
            if *of == peer {
                session.cancel();
            }
            *of != peer
        });
    }

    /// Makes a search answer its query, unless a thread is already working on it.
    pub(crate) fn work(&self, session: Arc<Session>) {
        // Taken at once, so that nobody else works on it as well.
        let Some(listed) = lock(&session.state).listed.take() else { return };
        let working = Arc::clone(&self.working);
        tokio::spawn(async move {
            let permit = working.acquire_owned().await;
            // If it panics, the search has ended, and another one can be started.
            let _ = tokio::task::spawn_blocking(move || session.work(listed)).await;
            drop(permit);
        });
    }
}

/// A search with a single query; dropping it removes it from the list.
struct Begun {
    searches: Arc<Searches>,
    key: (PeerId, Token),
    single: Single,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.single.cancelled.store(true, Ordering::Relaxed);
        let mut single = lock(&self.searches.single);
        if single.get(&self.key).is_some_and(|it| it.number == self.single.number) {
            single.remove(&self.key);
        }
    }
}

/// The directories of a search.
#[derive(Clone, Debug)]
pub(crate) struct Roots {
    /// As the client named them.
    names: Vec<String>,
    paths: Vec<PathBuf>,
}

impl Roots {
    /// Resolves the directories that a client names, relative to the server's directory, without duplicates. A path that
    /// does not exist or is not a directory is an error.
    pub(crate) fn find(names: Vec<String>, directory: &std::path::Path) -> Result<Self, RpcError> {
        let mut roots = Self { names: Vec::new(), paths: Vec::new() };
        let mut seen = BTreeSet::new();
        for name in names {
            let path = directory.join(&name);
            let wrong = |why: &dyn std::fmt::Display| {
                RpcError::invalid(format!(
                    "roots: `{name:.200}` cannot be searched: {why}; name existing directories"
                ))
            };
            let found = path.canonicalize().map_err(|error| wrong(&error))?;
            if !found.is_dir() {
                return Err(wrong(&"it is no directory"));
            }
            if seen.insert(found) {
                roots.names.push(name);
                roots.paths.push(path);
            }
        }
        Ok(roots)
    }

    fn shown(&self, found: Vec<Match>) -> Vec<FoundFile> {
        let shown = |found: Match| {
            let name = found.path.rsplit('/').next().unwrap_or_default().to_owned();
            FoundFile {
                root: self.names[found.root].clone(),
                file_name: name,
                path: found.path,
                match_type: if found.is_directory { "directory" } else { "file" },
                score: found.score,
                indices: found.indices,
            }
        };
        found.into_iter().map(shown).collect()
    }
}

/// A search with a changing query.
pub(crate) struct Session {
    peer: Arc<Peer>,
    id: String,
    roots: Roots,
    cancelled: AtomicBool,
    /// Number of the current query; changed together with the state.
    generation: AtomicU64,
    state: Mutex<State>,
}

struct State {
    query: String,
    /// `None` while a thread is using it.
    listed: Option<Listed>,
}

/// The files found so far, and the walk that finds the others.
struct Listed {
    walk: Walk,
    files: Files,
    over: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Session {
    /// Sets the next query.
    pub(crate) fn ask(&self, query: String) {
        let mut state = lock(&self.state);
        state.query = query;
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        // What is idle has no use for it any more.
        lock(&self.state).listed = None;
    }

    /// Answers queries until there is no newer one.
    fn work(&self, mut listed: Listed) {
        loop {
            let (query, generation) = {
                let state = lock(&self.state);
                (state.query.clone(), self.generation.load(Ordering::Acquire))
            };
            self.answer(&query, generation, &mut listed);
            let mut state = lock(&self.state);
            if self.cancelled.load(Ordering::Relaxed) {
                return;
            }
            if self.generation.load(Ordering::Acquire) == generation {
                state.listed = Some(listed);
                return;
            }
        }
    }

    /// Sends the matches of a query to the client, at intervals and at the end, as long as it is the latest query.
    fn answer(&self, query: &str, generation: u64, listed: &mut Listed) {
        let is_wanted = || {
            !self.cancelled.load(Ordering::Relaxed)
                && self.generation.load(Ordering::Acquire) == generation
        };
        let mut told = None;
        loop {
            let begun = Instant::now();
            let go_on = || is_wanted() && begun.elapsed() < TOLD_EVERY;
            listed.over = listed.over || listed.walk.advance(&mut listed.files, &go_on);
            let found = listed.files.best(query, FOUND_MAX, &is_wanted);
            let Some(found) = found.filter(|_| is_wanted()) else { return };
            if listed.over || !found.is_empty() && told.as_ref() != Some(&found) {
                let (session_id, query) = (self.id.clone(), query.to_owned());
                let files = self.roots.shown(found.clone());
                self.tell(Notification::SearchUpdated { session_id, query, files });
                told = Some(found);
            }
            if listed.over {
                return self.tell(Notification::SearchCompleted { session_id: self.id.clone() });
            }
        }
    }

    fn tell(&self, notification: Notification) {
        self.peer.send(&Message::notification(notification, heddle::now_ms()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots() -> Roots {
        Roots::find(Vec::new(), std::path::Path::new("/")).unwrap()
    }

    #[test]
    fn the_same_token_cancels() {
        let searches = Arc::new(Searches::default());
        let begin =
            |peer, token: Option<&str>| searches.begin(PeerId(peer), token.map(str::to_owned));
        let is_cancelled = |begun: &Begun| begun.single.cancelled.load(Ordering::Relaxed);
        let (first, other, without) = (begin(1, Some("t")), begin(2, Some("t")), begin(1, None));
        let second = begin(1, Some("t"));
        assert!(is_cancelled(&first));
        assert!(!is_cancelled(&second) && !is_cancelled(&other) && !is_cancelled(&without));
        // The end of the first is not that of the second.
        drop(first);
        let third = begin(1, Some("t"));
        assert!(is_cancelled(&second));
        searches.end_of(PeerId(1));
        assert!(is_cancelled(&third) && is_cancelled(&without) && !is_cancelled(&other));
        drop((second, third, other, without));
        assert!(lock(&searches.single).is_empty());
    }

    #[test]
    fn searches_have_a_bound() {
        let searches = Searches::default();
        let peer = Arc::new(Peer::new(PeerId(1)));
        for number in 0..SEARCHES_MAX {
            searches.start(&peer, number.to_string(), roots()).unwrap();
        }
        // The same name is no more of them.
        searches.start(&peer, "0".into(), roots()).unwrap();
        let many = searches.start(&peer, "more".into(), roots()).unwrap_err();
        assert!(many.message.contains("sessionStop"), "{many}");
        searches.stop(PeerId(1), "0".into());
        assert!(searches.find(PeerId(1), "0".into()).is_err());
        assert!(searches.find(PeerId(2), "1".into()).is_err());
        searches.start(&peer, "more".into(), roots()).unwrap();
        searches.end_of(PeerId(1));
        assert!(lock(&searches.sessions).is_empty());
    }
}
