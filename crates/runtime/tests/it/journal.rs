//! The log of a thread during turns: what is synced before it is shown, how often, what happens when the disk
//! fails, and what a thousand turns leave behind.

use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::retry::RetryLimits;
use engine::{Limits, Outcome, UserTurnInput};
use log::{PAGINATED, Rollout, SessionMeta, TurnContext};
use protocol::call::Report;
use protocol::error::TurnErrorCause;
use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::item::{Command, CommandSource, ItemBody, Status};
use providers::{Auth, Client, Endpoint, Identity, WireApi};
use runtime::{
    Clock, EndpointModel, Journal, RequestOptions, ResumeState, Thread, ThreadOptions, Toolset,
};
use serde_json::{Value, json};
use store::disk::{Disk, DiskFile, Entry, Metadata, Mode, RealDisk};
use store::{FileStore, NewThread};
use tempfile::TempDir;
use testkit::{ModelServer, script};
use tokio::sync::mpsc;
use tools::{Sessions, Tool, ToolContext, ToolFuture, ToolSpec};

/// A disk that counts calls, and fails on demand.
#[derive(Debug, Default)]
struct Watched {
    syncs: AtomicU64,
    appends: AtomicU64,
    /// Bytes of the log that are certainly on disk.
    durable: AtomicU64,
    written: AtomicU64,
    /// The number of the failing call, counted from 1.
    failing_append: Option<u64>,
    failing_sync: Option<u64>,
}

#[derive(Debug)]
struct WatchedDisk(Arc<Watched>);

#[derive(Debug)]
struct WatchedFile {
    inner: Arc<dyn DiskFile>,
    watched: Arc<Watched>,
    is_log: bool,
}

impl Disk for WatchedDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn DiskFile>> {
        let is_log = path.extension().is_some_and(|extension| extension == "jsonl");
        let (inner, watched) = (RealDisk.open(path, mode)?, Arc::clone(&self.0));
        Ok(Arc::new(WatchedFile { inner, watched, is_log }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        RealDisk.list(path)
    }
    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        RealDisk.metadata(path)
    }
}

impl DiskFile for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_log {
            return self.inner.append(bytes);
        }
        let number = self.watched.appends.fetch_add(1, Ordering::SeqCst) + 1;
        if self.watched.failing_append == Some(number) {
            // Half of it is written, as on a disk that fills up.
            self.inner.append(&bytes[..bytes.len() / 2])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let length = self.inner.append(bytes)?;
        self.watched.written.fetch_add(length as u64, Ordering::SeqCst);
        Ok(length)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.inner.write_at(bytes, offset)
    }
    fn truncate(&self, length: u64) -> io::Result<()> {
        self.inner.truncate(length)
    }
    fn sync_data(&self) -> io::Result<()> {
        if !self.is_log {
            return self.inner.sync_data();
        }
        let before = self.watched.written.load(Ordering::SeqCst);
        let number = self.watched.syncs.fetch_add(1, Ordering::SeqCst) + 1;
        if self.watched.failing_sync == Some(number) {
            return Err(io::Error::other("the disk is broken"));
        }
        // A real sync takes time; this one does, too, so that events have a chance to overtake it.
        std::thread::sleep(Duration::from_millis(2));
        self.watched.durable.fetch_max(before, Ordering::SeqCst);
        Ok(())
    }
    fn metadata(&self) -> io::Result<Metadata> {
        self.inner.metadata()
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.inner.try_lock()
    }
}

/// A tool that prints a given amount.
struct Print {
    runs: Arc<Mutex<Vec<String>>>,
}

impl Tool for Print {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("print", "Prints.", json!({ "type": "object" })).parallel()
    }
    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            let call_id = context.call_id();
            self.runs.lock().unwrap().push(call_id.to_owned());
            let bytes = context.arguments::<Value>().unwrap()["bytes"].as_u64().unwrap();
            let line = format!("{call_id} abcdefgh\n");
            let output = line.repeat(bytes as usize / line.len() + 1);
            let mut command = Command {
                command: format!("print {bytes}"),
                cwd: "/w".into(),
                output: String::new(),
                exit_code: None,
                status: Status::InProgress,
                source: CommandSource::Model,
            };
            context.report(Report::Started(ItemBody::Command(command.clone()))).await;
            command.output.clone_from(&output);
            (command.exit_code, command.status) = (Some(0), Status::Completed);
            context.report(Report::Ended(ItemBody::Command(command))).await;
            format!("Output:\n{output}").into()
        })
    }
}

struct Host {
    home: TempDir,
    watched: Arc<Watched>,
    server: ModelServer,
    runs: Arc<Mutex<Vec<String>>>,
    compact_at: Option<u64>,
}

impl Host {
    fn new(script: Value, watched: Watched) -> Self {
        Self {
            home: TempDir::new().unwrap(),
            watched: Arc::new(watched),
            server: ModelServer::start(script).unwrap(),
            runs: Arc::default(),
            compact_at: None,
        }
    }

    fn thread(&self) -> Thread {
        let id = ThreadId::new(1, [7; 10]);
        let disk = Arc::new(WatchedDisk(Arc::clone(&self.watched)));
        let store = FileStore::with_disk(self.home.path(), disk);
        let meta = SessionMeta { history_mode: Some(PAGINATED.into()), ..SessionMeta::default() };
        let meta = SessionMeta { id: Some(id), cwd: "/w".into(), ..meta };
        let log = store.create(NewThread { id, meta }).unwrap();
        let endpoint = Endpoint {
            name: "mock".into(),
            base_url: self.server.base_url(),
            socket: None,
            wire_api: WireApi::Responses,
            query: Vec::new(),
            headers: Vec::new(),
            auth: Auth::None,
            idle_timeout: Duration::from_secs(3_600),
        };
        let identity = Identity {
            originator: "test".into(),
            user_agent: "test".into(),
            thread_id: id.to_string(),
        };
        let options = ThreadOptions {
            mode: protocol::mode::Mode::Default,
            clock: Clock::default(),
            request: RequestOptions {
                model: "m".into(),
                instructions: String::new(),
                effort: None,
                summary: None,
                verbosity: None,
                service_tier: None,
                output_schema: None,
            },
            limits: Limits::default(),
            retry: RetryLimits { request_max: 0, stream_max: 0 },
            context_window: None,
            compact_at: self.compact_at,
            seed: 1,
            turn_context: TurnContext::default(),
        };
        let tool: Box<dyn Tool> = Box::new(Print { runs: Arc::clone(&self.runs) });
        let tools = Toolset::new(vec![tool], &[], Arc::new(Sessions::default())).unwrap();
        let client = Client::new(endpoint, &identity).unwrap();
        let model = Box::new(EndpointModel::new(client, None));
        let mut thread = Thread::new(id, model, tools, options, Vec::new(), ResumeState::default());
        thread.set_journal(Journal::new(Box::new(log), Rollout::new(id, false, None)));
        thread
    }

    /// Returns the lines of the log, up to this many bytes.
    fn lines(&self, bytes: Option<u64>) -> Vec<Value> {
        let folder = self.home.path().join("sessions");
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read(path).unwrap();
                let end = bytes.map_or(text.len(), |bytes| bytes as usize);
                let text = String::from_utf8(text[..end].to_vec()).unwrap();
                let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
                return lines.collect();
            }
        }
        Vec::new()
    }

    fn durable_items(&self) -> Vec<Value> {
        let durable = self.watched.durable.load(Ordering::SeqCst);
        let lines = self.lines(Some(durable));
        let items = lines.into_iter().filter(|line| line["payload"]["type"] == "item_completed");
        items.map(|line| line["payload"]["item"].clone()).collect()
    }

    /// Runs turns; what is shown as completed must be on disk at that moment.
    fn run(&self, turns: usize) -> Ran {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (_sender, mut control) = mpsc::channel(1);
        let mut thread = self.thread();
        let mut ran = Ran::default();
        runtime.block_on(async {
            for _ in 0..turns {
                let mut sink = |event: Event| {
                    ran.note(&event, self, turns < 10);
                    ControlFlow::Continue(())
                };
                let said = vec![UserTurnInput::text("go")];
                ran.outcome = Some(thread.run_turn(said, &mut control, &mut sink).await);
            }
            thread.shutdown().await;
        });
        ran
    }
}

#[derive(Default)]
struct Ran {
    outcome: Option<Outcome>,
    completed: u64,
    discarded: u64,
    failure: Option<String>,
}

impl Ran {
    fn note(&mut self, event: &Event, host: &Host, look: bool) {
        match event {
            Event::ItemCompleted(item) => {
                self.completed += 1;
                if !look {
                    return;
                }
                let durable = host.durable_items();
                let there = durable.iter().any(|kept| match &item.body {
                    ItemBody::AgentMessage { text } => kept["content"][0]["text"] == **text,
                    ItemBody::UserMessage(_) => kept["type"] == "UserMessage",
                    ItemBody::Command(_) => {
                        Some(kept["id"].as_str().unwrap()) == item.call_id.as_deref()
                    }
                    _ => true,
                });
                assert!(there, "item {} was shown before it was on disk", item.id.0);
            }
            Event::ItemDiscarded(_) => self.discarded += 1,
            Event::TurnFailed { error, .. } => self.failure = Some(error.message.clone()),
            _ => {}
        }
    }
}

fn print(id: &str, bytes: u64) -> Value {
    script::call(id, "print", json!({ "bytes": bytes }))
}

/// Parallel calls, one call, a message.
fn busy() -> Value {
    json!([
        script::response([print("a", 100), print("b", 9_000), print("c", 100), print("d", 100)]),
        script::response([print("e", 100)]),
        script::response([script::message("done")]),
    ])
}

#[test]
fn synced_before_it_is_shown_and_not_too_often() {
    let host = Host::new(busy(), Watched::default());
    let ran = host.run(1);
    assert_eq!(ran.outcome, Some(Outcome::Completed));
    assert_eq!(ran.completed, 7);
    let syncs = host.watched.syncs.load(Ordering::SeqCst);
    // The end of a turn may need one of its own.
    assert!(syncs <= ran.completed + 1, "{syncs} syncs for {} items", ran.completed);
    // Four calls that end together do not need four syncs.
    assert!(syncs <= 6, "{syncs} syncs");
    let lines = host.lines(None);
    assert_eq!(lines.last().unwrap()["payload"]["type"], "task_complete");
}

#[test]
fn a_disk_that_refuses() {
    // The number of calls when nothing fails.
    let whole = Host::new(busy(), Watched::default());
    whole.run(1);
    let (appends, syncs) =
        (whole.watched.appends.load(Ordering::SeqCst), whole.watched.syncs.load(Ordering::SeqCst));
    let append = |number| Watched { failing_append: Some(number), ..Watched::default() };
    let sync = |number| Watched { failing_sync: Some(number), ..Watched::default() };
    let cases = (1..=appends).map(append).chain((1..=syncs).map(sync));
    for watched in cases {
        let what = format!("{watched:?}");
        let host = Host::new(busy(), watched);
        let ran = host.run(1);
        // The number of writes depends on timing, so the last may not be reached.
        if ran.outcome == Some(Outcome::Completed) {
            let reached = host.watched.appends.load(Ordering::SeqCst);
            let synced = host.watched.syncs.load(Ordering::SeqCst);
            assert!(
                host.watched.failing_append.is_none_or(|number| number > reached)
                    && host.watched.failing_sync.is_none_or(|number| number > synced),
                "{what}: the failure was not noticed"
            );
            continue;
        }
        assert_eq!(ran.outcome, Some(Outcome::Failed(TurnErrorCause::Storage)), "{what}");
        let failure = ran.failure.unwrap_or_else(|| panic!("{what}: nobody was told"));
        assert!(failure.contains("full") || failure.contains("lost written lines"), "{failure}");
        // No torn line is left, and no command ran that the log does not know of.
        let known = host.lines(None);
        for id in host.runs.lock().unwrap().iter() {
            let call = |line: &Value| {
                line["payload"]["type"] == "function_call" && line["payload"]["call_id"] == **id
            };
            assert!(known.iter().any(call), "{what}: {id} ran unknown to the log");
        }
    }
}

/// A thousand turns with 16 KB of output each: memory does not grow, and the log is not much larger than its
/// content.
#[test]
fn soak() {
    const OUTPUT_BYTES: u64 = 16_000;
    let turns = std::env::var("HEDDLE_TEST_SOAK").ok().map_or(300, |text| text.parse().unwrap());
    let mut entries = Vec::new();
    let compact_at = 240_000;
    let mut tokens = 0;
    for turn in 0..turns {
        if tokens >= compact_at {
            entries.push(script::response([script::message("a summary of what was done")]));
            tokens = 1_000;
        }
        entries.push(script::response([print(&format!("c{turn}"), OUTPUT_BYTES)]));
        tokens += OUTPUT_BYTES / 4;
        let usage = script::Usage { input: tokens, cached: 0, output: 10, reasoning: 0 };
        entries.push(script::response_with([script::message("done")], usage));
        tokens += 10;
    }
    let mut host = Host::new(json!(entries), Watched::default());
    host.compact_at = Some(compact_at);
    host.server.forget_bodies();
    // The first turns warm everything up.
    let before = resident_bytes();
    let ran = host.run(turns);
    let after = resident_bytes();
    assert_eq!(ran.outcome, Some(Outcome::Completed));
    let grown = after.saturating_sub(before) / 1_000_000;
    let log: u64 = host.lines(None).iter().map(|line| line.to_string().len() as u64).sum();
    let payload = turns as u64 * OUTPUT_BYTES;
    let ratio = log as f64 / payload as f64;
    let line = format!("{turns} turns: {grown} MB more, log {ratio:.2} of the payload\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    assert!(grown <= 25, "{grown} MB more after {turns} turns");
    assert!(ratio <= 1.5, "the log is {ratio:.2} times the payload");
    let syncs = host.watched.syncs.load(Ordering::SeqCst);
    // The end of a turn may need one of its own.
    let most = ran.completed + turns as u64;
    assert!(syncs <= most, "{syncs} syncs for {} items of {turns} turns", ran.completed);
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
