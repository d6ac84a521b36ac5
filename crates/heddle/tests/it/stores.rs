//! Stores of the host program: they store threads as files do, and if they fail, nothing is lost or run twice.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_util::StreamExt as _;
use heddle::events::Event;
use heddle::threads::index::{CatalogError, Hit, List, Page, ResolveError, Search};
use heddle::threads::{
    Catalog, Found, LineSink, LogFuture, ManageError, MemoryStore, NewThread, OpenError, Opened,
    ReadReport, StoreFuture, ThreadLog, ThreadStore, WriteError, WriteErrorKind,
};
use heddle::{ErrorKind, Heddle, ThreadId, ThreadSpec};
use log::Record;

use crate::scripted::{Lab, breathe, call, message};

/// How a log misbehaves. Its appends and syncs are counted together, from 1.
#[derive(Clone, Copy, Debug)]
enum Behaviour {
    /// Yields this many times in every call.
    Slow(usize),
    /// Fails from this call on.
    Fails(usize),
    /// Never returns from this call on.
    Hangs(usize),
    /// Reports success without writing, from this call on.
    Lies(usize),
}

/// A store in memory whose logs misbehave as told.
#[derive(Debug)]
struct Odd {
    inner: MemoryStore,
    behaviour: Behaviour,
    calls: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct OddLog {
    inner: Arc<Mutex<Box<dyn ThreadLog>>>,
    behaviour: Behaviour,
    calls: Arc<AtomicUsize>,
}

impl Odd {
    fn log(&self, inner: Box<dyn ThreadLog>) -> Box<dyn ThreadLog> {
        let (behaviour, calls) = (self.behaviour, Arc::clone(&self.calls));
        Box::new(OddLog { inner: Arc::new(Mutex::new(inner)), behaviour, calls })
    }
}

impl OddLog {
    fn answer(&mut self, records: Option<Vec<Record>>) -> LogFuture {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let inner = Arc::clone(&self.inner);
        let answer = move || match records {
            Some(records) => inner.lock().unwrap().append(records),
            None => inner.lock().unwrap().sync(),
        };
        match self.behaviour {
            Behaviour::Slow(0) => answer(),
            Behaviour::Slow(breaths) => {
                // As a store elsewhere would: it is done whether anybody waits for it or not.
                let writing = tokio::spawn(async move {
                    for _ in 0..breaths {
                        breathe().await;
                    }
                    let answer = answer();
                    answer.await
                });
                Box::pin(async move { writing.await.unwrap() })
            }
            Behaviour::Fails(from) if number >= from => Box::pin(async {
                let source = std::io::ErrorKind::StorageFull.into();
                Err(WriteError {
                    place: "of a test".to_owned(),
                    kind: WriteErrorKind::Full,
                    source,
                })
            }),
            Behaviour::Hangs(from) if number >= from => Box::pin(std::future::pending()),
            Behaviour::Lies(from) if number >= from => Box::pin(async { Ok(()) }),
            _ => answer(),
        }
    }
}

impl ThreadLog for OddLog {
    fn append(&mut self, records: Vec<Record>) -> LogFuture {
        self.answer(Some(records))
    }

    fn sync(&mut self) -> LogFuture {
        self.answer(None)
    }
}

impl ThreadStore for Odd {
    fn create(&self, new: NewThread) -> StoreFuture<'_, Box<dyn ThreadLog>, OpenError> {
        Box::pin(async move { Ok(self.log(self.inner.create(new).await?)) })
    }
    fn open<'a>(&'a self, id: ThreadId, sink: LineSink<'a>) -> StoreFuture<'a, Opened, OpenError> {
        Box::pin(async move {
            breathe().await;
            let (log, report) = self.inner.open(id, sink).await?;
            Ok((self.log(log), report))
        })
    }
    fn read<'a>(&'a self, id: ThreadId, sink: LineSink<'a>) -> StoreFuture<'a, ReadReport> {
        self.inner.read(id, sink)
    }
    fn fork<'a>(
        &'a self,
        id: ThreadId,
        new: NewThread,
        before: Option<u64>,
        sink: LineSink<'a>,
    ) -> StoreFuture<'a, Opened, OpenError> {
        Box::pin(async move {
            let (log, report) = self.inner.fork(id, new, before, sink).await?;
            Ok((self.log(log), report))
        })
    }
    fn find(&self, id: ThreadId) -> StoreFuture<'_, Option<Found>> {
        self.inner.find(id)
    }
    fn archive(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError> {
        self.inner.archive(id)
    }
    fn unarchive(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError> {
        self.inner.unarchive(id)
    }
    fn delete(&self, id: ThreadId) -> StoreFuture<'_, (), ManageError> {
        self.inner.delete(id)
    }
    fn set_name<'a>(&'a self, id: ThreadId, name: &'a str) -> StoreFuture<'a, ()> {
        self.inner.set_name(id, name)
    }
}

impl Catalog for Odd {
    fn list(&self, list: List) -> StoreFuture<'_, Page, CatalogError> {
        self.inner.list(list)
    }
    fn search(&self, search: Search) -> StoreFuture<'_, Vec<Hit>, CatalogError> {
        self.inner.search(search)
    }
    fn resolve<'a>(&'a self, text: &'a str) -> StoreFuture<'a, ThreadId, ResolveError> {
        self.inner.resolve(text)
    }
    fn last<'a>(&'a self, cwd: Option<&'a str>) -> StoreFuture<'a, Option<ThreadId>, CatalogError> {
        self.inner.last(cwd)
    }
}

fn with_store(lab: &Lab, store: MemoryStore, behaviour: Behaviour) -> Heddle {
    let odd = Odd { inner: store, behaviour, calls: Arc::default() };
    lab.builder().store(Arc::new(odd)).build().unwrap()
}

const STEADY: Behaviour = Behaviour::Slow(0);

fn answers() -> Vec<Vec<serde_json::Value>> {
    vec![vec![message("I will"), call("a"), call("b")], vec![call("c")]]
}

/// Returns the texts of one kind in a thread's log.
async fn kept(heddle: &Heddle, id: ThreadId) -> Vec<String> {
    let threads = heddle.threads();
    let read = threads.read(id, Vec::new(), |lines, line| {
        lines.push(format!("{} {}", line.kind, line.payload.get()));
    });
    read.await.unwrap()
}

/// A turn with a slow store is the same as with files.
#[tokio::test]
async fn a_slow_store_keeps_everything() {
    for breaths in [0, 1, 7] {
        let (lab, store) = (Lab::new(), MemoryStore::default());
        let heddle = with_store(&lab, store, Behaviour::Slow(breaths));
        let thread = heddle.start(lab.spec(ThreadSpec::new(), answers())).await.unwrap();
        assert_eq!(thread.facts().unwrap().log_path, None);
        let result = thread.turn("first").run().await.unwrap();
        assert_eq!(result.final_response.as_deref(), Some("done"));
        let id = thread.id().unwrap();
        thread.close().await;
        assert_eq!(lab.runs.lock().unwrap().len(), 3);
        let spec = lab.spec(ThreadSpec::resume(id), Vec::new());
        let thread = heddle.start(spec).await.unwrap();
        assert!(thread.notices().is_empty(), "{:?}", thread.notices());
        thread.turn("second").run().await.unwrap();
        let fork = heddle.start(lab.spec(ThreadSpec::fork(id), Vec::new())).await.unwrap();
        fork.turn("third").run().await.unwrap();
        let last = lab.requests.lock().unwrap().last().unwrap()["input"].to_string();
        for said in ["first", "second", "third", "made c"] {
            assert_eq!(last.matches(&format!("\"{said}\"")).count(), 1, "{said}");
        }
        thread.close().await;
        heddle.threads().set_name(id, "kept elsewhere").await.unwrap();
        assert_eq!(heddle.threads().resolve("kept elsewhere").await.unwrap(), id);
        let last = heddle.threads().last(None).await.unwrap();
        assert!(last == Some(id) || last == Some(fork.id().unwrap()));
        let home = std::fs::read_dir(lab.root.path().join("home/sessions"));
        assert!(home.is_err(), "something was written into the home");
    }
}

/// What the user adds to a turn is said in it or in the next one, at whatever moment it comes: also while the end of the turn
/// waits for the store.
#[tokio::test]
async fn nothing_that_a_turn_accepts_is_lost() {
    for breaths in [0, 1, 7] {
        let mut accepted = 0;
        for moment in 0..90 {
            let lab = Lab::new();
            let heddle = with_store(&lab, MemoryStore::default(), Behaviour::Slow(breaths));
            let answers = vec![vec![message("ready")]];
            let thread = heddle.start(lab.spec(ThreadSpec::new(), answers)).await.unwrap();
            let turn = thread.turn("go");
            let handle = turn.handle();
            let running = turn.run();
            tokio::pin!(running);
            let mut ended = false;
            for _ in 0..moment {
                if !ended {
                    let once = |context: &mut Context<'_>| {
                        Poll::Ready(running.as_mut().poll(context).is_ready())
                    };
                    ended = std::future::poll_fn(once).await;
                }
                breathe().await;
            }
            if ended || !handle.try_steer("and this") {
                continue;
            }
            accepted += 1;
            running.await.unwrap();
            if thread.has_unsaid() {
                thread.turn(heddle::Input::default()).run().await.unwrap();
            }
            let last = lab.requests.lock().unwrap().last().unwrap()["input"].to_string();
            assert!(last.contains("\"and this\""), "{breaths} {moment}: {last}");
        }
        assert!(accepted > 0, "{breaths}");
    }
}

/// If the store fails, the turn fails with an error that says so; everything shown as completed is stored; no call runs
/// that is not in the log; and the thread can be resumed.
#[tokio::test]
async fn a_store_that_fails_or_lies_at_any_call() {
    for from in 1..40 {
        for behaviour in [Behaviour::Fails(from), Behaviour::Lies(from)] {
            check_failing(behaviour).await;
        }
    }
}

/// A turn does not wait forever for a store that hangs.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_at_any_call() {
    for from in 1..24 {
        check_failing(Behaviour::Hangs(from)).await;
    }
}

async fn check_failing(behaviour: Behaviour) {
    let (lab, store) = (Lab::new(), MemoryStore::default());
    let heddle = with_store(&lab, store.clone(), behaviour);
    let thread = heddle.start(lab.spec(ThreadSpec::new(), answers())).await.unwrap();
    let id = thread.id().unwrap();
    let mut turn = thread.turn("first");
    let mut completed = 0;
    while let Some(event) = turn.next().await {
        completed += usize::from(matches!(event, Event::ItemCompleted(_)));
    }
    let lies = matches!(behaviour, Behaviour::Lies(_));
    match turn.result() {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Storage => {
            assert!(!lies, "{behaviour:?}: {error:?}");
            assert!(error.to_string().contains("resume the thread"), "{error}");
            assert_eq!(error.thread_id(), Some(id));
        }
        Err(error) => panic!("{behaviour:?}: {error}"),
    }
    // It stays failed: nothing is kept any more, so nothing more is done.
    thread.close().await;
    drop(thread);
    let runs = lab.runs.lock().unwrap().clone();
    let sound = with_store(&lab, store, STEADY);
    if sound.threads().find(id).await.unwrap().is_none() {
        assert!(completed == 0 || lies, "{behaviour:?}: {completed} items are lost");
        assert!(runs.is_empty() || lies, "{behaviour:?}: {runs:?} ran, and nothing knows of it");
        return;
    }
    let lines = kept(&sound, id).await.join("\n");
    if !lies {
        let shown = lines.matches("\"item_completed\"").count();
        assert!(shown >= completed.saturating_sub(1), "{behaviour:?}: {completed} shown\n{lines}");
        for run in &runs {
            assert!(lines.contains(&format!("\"call_id\":\"{run}\"")), "{behaviour:?}: {run}");
        }
    }
    let thread = sound.start(lab.spec(ThreadSpec::resume(id), Vec::new())).await.unwrap();
    thread.turn("second").run().await.unwrap();
    let again = lab.runs.lock().unwrap().clone();
    assert_eq!(again, runs, "{behaviour:?}: something ran again");
    for request in lab.requests.lock().unwrap().iter() {
        testkit::Strict::default().check(request).unwrap();
    }
}

/// After an interruption, whatever waited for a slow store is not started.
#[tokio::test]
async fn interrupted_during_a_write() {
    for polls in 0..80 {
        let (lab, store) = (Lab::new(), MemoryStore::default());
        let heddle = with_store(&lab, store, Behaviour::Slow(5));
        let thread = heddle.start(lab.spec(ThreadSpec::new(), answers())).await.unwrap();
        let mut turn = thread.turn("first");
        let handle = turn.handle();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..polls {
            let polled = futures_util::Stream::poll_next(Pin::new(&mut turn), &mut context);
            match polled {
                std::task::Poll::Ready(None) => break,
                std::task::Poll::Ready(Some(_)) => {}
                // The store has its turn.
                std::task::Poll::Pending => tokio::task::yield_now().await,
            }
        }
        handle.interrupt();
        while turn.next().await.is_some() {}
        let runs = lab.runs.lock().unwrap().clone();
        let lines = kept(&heddle, thread.id().unwrap()).await.join("\n");
        for run in &runs {
            assert!(lines.contains(&format!("\"call_id\":\"{run}\"")), "after {polls}: {run}");
        }
        thread.turn("second").run().await.unwrap();
        assert!(lab.runs.lock().unwrap().starts_with(&runs));
    }
}

/// An ephemeral thread can be forked and read while it is open, and is gone afterwards.
#[tokio::test]
async fn ephemeral_threads() {
    let lab = Lab::new();
    let spec = |spec: ThreadSpec| lab.spec(spec, Vec::new());
    let thread = lab.heddle.start(spec(ThreadSpec::new().ephemeral(true))).await.unwrap();
    let id = thread.id().unwrap();
    thread.turn("first").run().await.unwrap();
    assert!(kept(&lab.heddle, id).await.len() > 3);
    let fork = lab.heddle.start(spec(ThreadSpec::fork(id))).await.unwrap();
    fork.turn("second").run().await.unwrap();
    assert!(fork.facts().unwrap().log_path.is_some());
    let other =
        lab.heddle.start(spec(ThreadSpec::fork(fork.id().unwrap()).ephemeral(true))).await.unwrap();
    other.turn("third").run().await.unwrap();
    let last = lab.requests.lock().unwrap().last().unwrap()["input"].to_string();
    for said in ["first", "second", "third"] {
        assert_eq!(last.matches(&format!("\"{said}\"")).count(), 1, "{said}");
    }
    let (fork_id, other_id) = (fork.id().unwrap(), other.id().unwrap());
    for thread in [thread, fork, other] {
        thread.close().await;
    }
    for gone in [id, other_id] {
        let resumed = lab.heddle.start(spec(ThreadSpec::resume(gone))).await;
        assert_eq!(resumed.unwrap_err().kind(), ErrorKind::NoSuchThread);
    }
    // What was kept of it is a thread like any other, for other processes, too.
    let again = lab.another();
    let thread = again.start(spec(ThreadSpec::resume(fork_id))).await.unwrap();
    assert!(thread.notices().is_empty(), "{:?}", thread.notices());
    thread.turn("fourth").run().await.unwrap();
    let last = lab.requests.lock().unwrap().last().unwrap()["input"].to_string();
    for said in ["first", "second", "fourth"] {
        assert_eq!(last.matches(&format!("\"{said}\"")).count(), 1, "{said}");
    }
    // One that goes on without being kept leaves what is kept as it is.
    thread.close().await;
    let before = kept(&lab.heddle, fork_id).await.len();
    let fleeting = spec(ThreadSpec::resume(fork_id).ephemeral(true));
    let fleeting = lab.heddle.start(fleeting).await.unwrap();
    fleeting.turn("fifth").run().await.unwrap();
    assert!(kept(&lab.heddle, fork_id).await.len() > before);
    fleeting.close().await;
    assert_eq!(kept(&lab.heddle, fork_id).await.len(), before);
}
