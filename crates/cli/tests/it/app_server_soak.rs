//! Fifty clients of several app-servers do everything at once for a while, on all transports: they connect, vanish, are
//! killed, read slowly, send nonsense and the same twice, run turns in shared threads, add to them, interrupt them and
//! answer the same questions.
//!
//! It takes a few seconds; `HEDDLE_SOAK_SECONDS=60` makes it longer. `HEDDLE_SEED=N` repeats the choices of a run, as far as
//! programs that run at the same time can be repeated.

#![expect(clippy::print_stderr, reason = "a seed to run it again, and what it did")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::path::Path;
use std::process::{Child, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use stdx::Rng;
use testkit::Lab;
use testkit::script::{call, completed, created, deltas, message};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::BINARY;
use crate::app_server_client::Server;
use crate::run::{LIMIT, lab, until};

/// How long it takes unless the environment says otherwise.
const SECONDS: u64 = 4;
/// Clients at once: of the server on a Unix socket, of the one on a TCP port, and of servers of their own.
const CLIENTS: [usize; 3] = [28, 14, 8];
/// Parts of the time. After each all threads are archived, and after each but the first, in which a server takes what it needs
/// for so many clients, its memory is measured.
const PARTS: u64 = 4;
/// Threads that the clients of a server share.
const THREADS: usize = 10;
/// Turns after which a thread is archived, so that histories do not grow.
const TURNS: u64 = 25;
/// By how much the memory of a server may be larger at the end than after half of the time, whose second half is as busy as
/// the first. An allocator keeps what the busiest moment took, and a busier one may come in the second half: 6 MB were seen, be
/// it in seconds or in minutes, with a hundred threads or with thousands.
const GROWTH_MB: f64 = 10.0;
const TOKEN: &str = "the token of the soak test";

#[test]
fn soak() {
    let from_env = |name: &str| std::env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = from_env("HEDDLE_SEED").unwrap_or(u64::from(now.subsec_nanos()));
    let seconds = from_env("HEDDLE_SOAK_SECONDS").unwrap_or(SECONDS);
    eprintln!("HEDDLE_SEED={seed} HEDDLE_SOAK_SECONDS={seconds}");

    let lab = lab();
    lab.home.write_mock_config(serve_model()).unwrap();
    let token = lab.root().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    let unix = format!("unix://{}", lab.root().join("s").display());
    let guarded = ["--ws-auth", "capability-token", "--ws-token-file", token.to_str().unwrap()];
    let servers = [
        Server::start(&lab, &["--listen", &unix]),
        Server::start(&lab, &[&["--listen", "ws://127.0.0.1:0"], &guarded[..]].concat()),
    ];
    let world = Rc::new(World { lab, seen: RefCell::default() });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut rng = Rng::new(seed);
    let mut memory = Vec::new();
    for number in 1..=PARTS {
        let part = Duration::from_millis(seconds * 1000 / PARTS);
        LocalSet::new().block_on(&runtime, part_of_it(&world, &servers, &mut rng, part));
        if number < PARTS / 2 {
            continue;
        }
        LocalSet::new().block_on(&runtime, nothing_stays_loaded(&world, &servers));
        memory.push(servers.each_ref().map(|server| own_memory_mb(server.id())));
        eprintln!("memory of the servers: {:.1?} MB", memory[memory.len() - 1]);
    }
    for (half, end) in memory[0].iter().zip(memory[memory.len() - 1]) {
        assert!(end <= half + GROWTH_MB, "the memory grows: {half:.1} MB, {end:.1} MB");
    }
    for server in servers {
        assert!(heaps_of_threads(server.id()) <= 1, "threads have heaps of their own");
        assert_eq!(server.terminate(), 0);
    }
    until("the end of all processes", || left_over(world.lab.root()).is_empty().then_some(()));
    LocalSet::new().block_on(&runtime, check_what_was_shown(&world));
}

/// What all clients have seen.
#[derive(Default)]
struct Seen {
    /// Counts inputs, so that each can be told from all others.
    inputs: u64,
    /// By thread and turn: the items that were shown as completed, and how the turn ended.
    turns: BTreeMap<(String, String), Turn>,
    /// Why requests were refused, without numbers.
    refusals: BTreeMap<String, usize>,
    answered: usize,
    questions: usize,
    /// Threads whose server was killed.
    orphans: Vec<String>,
}

#[derive(Default)]
struct Turn {
    items: BTreeMap<String, Value>,
    status: Option<String>,
}

struct World {
    lab: Lab,
    seen: RefCell<Seen>,
}

/// A server, as its clients know it.
struct Target {
    place: Place,
    /// The threads, and how many turns were requested in each.
    threads: RefCell<Vec<(String, u64)>>,
    /// The turns that were seen to begin, by thread.
    running: RefCell<HashMap<String, String>>,
}

#[derive(Clone)]
enum Place {
    Unix(String),
    Tcp(String),
    /// A server of its own for each client.
    Stdio,
}

impl Target {
    fn new(place: Place) -> Rc<Self> {
        Rc::new(Self { place, threads: RefCell::default(), running: RefCell::default() })
    }
}

fn shared_targets(servers: &[Server; 2]) -> [Rc<Target>; 2] {
    [
        Target::new(Place::Unix(servers[0].unix().to_owned())),
        Target::new(Place::Tcp(servers[1].tcp().to_owned())),
    ]
}

/// Lets all clients live for a while. At the end all threads are archived.
async fn part_of_it(world: &Rc<World>, servers: &[Server; 2], rng: &mut Rng, time: Duration) {
    let until = Instant::now() + time;
    let shared = shared_targets(servers);
    let mut clients = JoinSet::new();
    for (index, count) in CLIENTS.into_iter().enumerate() {
        for _ in 0..count {
            let (world, shared) = (Rc::clone(world), shared.get(index).cloned());
            let mut rng = Rng::new(rng.next_u64());
            clients.spawn_local(async move {
                while Instant::now() < until {
                    let target = shared.clone().unwrap_or_else(|| Target::new(Place::Stdio));
                    live(&world, &target, &mut rng, until).await;
                }
            });
        }
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    for target in shared {
        let mut client = Client::connect(world, &target, Rng::new(rng.next_u64())).await;
        // Forks whose client has vanished are there, too, and threads that were never used, which cannot be archived.
        let loaded = client.ask("thread/loaded/list", json!({})).await.unwrap()["data"].clone();
        for thread in loaded.as_array().unwrap() {
            client.retire(thread.as_str().unwrap()).await;
        }
        client.finish().await;
    }
}

/// Waits until both servers have closed the threads whose clients have vanished.
async fn nothing_stays_loaded(world: &Rc<World>, servers: &[Server; 2]) {
    for target in shared_targets(servers) {
        let mut client = Client::connect(world, &target, Rng::new(0)).await;
        let deadline = Instant::now() + LIMIT;
        loop {
            let loaded = client.ask("thread/loaded/list", json!({})).await.unwrap()["data"].clone();
            if loaded == json!([]) {
                break;
            }
            assert!(Instant::now() < deadline, "threads stay loaded: {loaded}");
            client.pump(Duration::from_millis(20)).await;
        }
        client.finish().await;
    }
}

/// One client, from its first request to its end.
async fn live(world: &Rc<World>, target: &Rc<Target>, rng: &mut Rng, until: Instant) {
    let mut client = Client::connect(world, target, Rng::new(rng.next_u64())).await;
    if matches!(target.place, Place::Stdio) {
        client.take_over().await;
    }
    for _ in 0..10 + rng.below(40) {
        if Instant::now() >= until {
            break;
        }
        client.act().await;
        let pause = Duration::from_millis(rng.below(30));
        client.pump(pause).await;
    }
    let own = matches!(target.place, Place::Stdio);
    if rng.one_in(3) && Instant::now() < until {
        // It vanishes in the middle of what it does; a server of its own is killed.
        if own {
            let threads = target.threads.take().into_iter().map(|(thread, _)| thread);
            drop(client);
            world.seen.borrow_mut().orphans.extend(threads);
        }
        return;
    }
    if own {
        let threads = target.threads.take();
        for (thread, _) in threads {
            client.retire(&thread).await;
        }
    }
    client.finish().await;
}

struct Client {
    world: Rc<World>,
    target: Rc<Target>,
    wire: Wire,
    rng: Rng,
    next: u64,
    /// How many answers each request has still to get.
    open: HashMap<u64, (String, usize)>,
    /// Answers to questions, and when they are sent.
    later: Vec<(Instant, String)>,
}

impl Client {
    async fn connect(world: &Rc<World>, target: &Rc<Target>, rng: Rng) -> Self {
        let wire = match &target.place {
            Place::Unix(path) => {
                let stream = UnixStream::connect(path).await.unwrap();
                Wire::frames(Box::new(stream), "localhost", None).await
            }
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address).await.unwrap();
                Wire::frames(Box::new(stream), address, Some(TOKEN)).await
            }
            Place::Stdio => Wire::lines(&world.lab),
        };
        let (world, target) = (Rc::clone(world), Rc::clone(target));
        let (open, later) = (HashMap::new(), Vec::new());
        let mut client = Self { world, target, wire, rng, next: 0, open, later };
        let who = json!({
            "clientInfo": {"name": "soak", "version": "1"},
            "capabilities": {"experimentalApi": true},
        });
        client.ask("initialize", who).await.unwrap();
        client.wire.send(json!({"method": "initialized"}).to_string());
        client
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let line = json!({"id": self.next, "method": method, "params": params}).to_string();
        // A request that comes twice is two requests.
        let count = if method != "initialize" && self.rng.one_in(40) { 2 } else { 1 };
        self.open.insert(self.next, (method.to_owned(), count));
        for _ in 0..count {
            self.wire.send(line.clone());
        }
        self.next
    }

    /// Makes a request, and waits for its answer.
    async fn ask(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let id = self.send(method, params);
        let deadline = Instant::now() + LIMIT;
        loop {
            let line = self.line(deadline).await;
            let line = line.unwrap_or_else(|| panic!("no answer to {method}: {:?}", self.open));
            if let Some((answered, result)) = self.take(&line)
                && answered == id
            {
                return result;
            }
        }
    }

    /// Returns the next line; none at the deadline. Sends answers to questions that are due.
    async fn line(&mut self, deadline: Instant) -> Option<String> {
        loop {
            let now = Instant::now();
            let (due, later) = self.later.drain(..).partition(|(at, _)| *at <= now);
            self.later = later;
            let due: Vec<(Instant, String)> = due;
            for (_, answer) in due {
                self.wire.send(answer);
            }
            let wake = self.later.iter().map(|(at, _)| *at).min().unwrap_or(deadline);
            tokio::select! {
                biased;
                line = self.wire.lines.recv() => match line {
                    Some(line) => return Some(line),
                    None => panic!("the server has ended the connection: {:?}", self.open),
                },
                () = tokio::time::sleep_until(wake.min(deadline).into()) => {}
            }
            if Instant::now() >= deadline {
                return None;
            }
        }
    }

    /// Takes what comes for a while.
    async fn pump(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        while let Some(line) = self.line(deadline).await {
            self.take(&line);
        }
    }

    /// Takes a line; returns the id and the result, if it is an answer.
    fn take(&mut self, line: &str) -> Option<(u64, Result<Value, String>)> {
        let told: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let (method, params) = (told["method"].as_str(), &told["params"]);
        match method {
            Some(_) if !told["id"].is_null() => self.question(&told),
            Some(method) => self.note(method, params),
            None => {
                let id =
                    told["id"].as_u64().unwrap_or_else(|| panic!("an answer to nothing: {line}"));
                let left = self.open.get_mut(&id);
                let (_, left) = left.unwrap_or_else(|| panic!("one answer too many: {line}"));
                *left -= 1;
                if *left == 0 {
                    self.open.remove(&id);
                }
                let mut seen = self.world.seen.borrow_mut();
                seen.answered += 1;
                let result = match told.get("error") {
                    None => Ok(told["result"].clone()),
                    Some(error) => {
                        let why = error["message"].as_str().unwrap().to_owned();
                        *seen.refusals.entry(without_ids(&why)).or_default() += 1;
                        Err(why)
                    }
                };
                return Some((id, result));
            }
        }
        None
    }

    fn note(&mut self, method: &str, params: &Value) {
        let mut seen = self.world.seen.borrow_mut();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let thread = text(&params["threadId"]);
        match method {
            "turn/started" => {
                self.target.running.borrow_mut().insert(thread, text(&params["turn"]["id"]));
            }
            "item/completed" => {
                let turn = seen.turns.entry((thread, text(&params["turnId"]))).or_default();
                turn.items.insert(text(&params["item"]["id"]), params["item"].clone());
            }
            "turn/completed" => {
                let id = text(&params["turn"]["id"]);
                let turn = seen.turns.entry((thread, id)).or_default();
                let status = text(&params["turn"]["status"]);
                assert!(turn.status.get_or_insert_with(|| status.clone()) == &status, "{params}");
            }
            _ => {}
        }
    }

    /// Decides how to answer a question: late, twice, or with nonsense.
    fn question(&mut self, told: &Value) {
        self.world.seen.borrow_mut().questions += 1;
        let id = &told["id"];
        let answer = match self.rng.below(12) {
            0 | 1 => json!({"id": id, "result": {"decision": "decline"}}),
            2 => json!({"id": id, "result": {"decision": "cancel"}}),
            3 => json!({"id": id, "result": {"decision": "perhaps"}}),
            4 => json!({"id": id, "error": {"code": 1, "message": "no"}}),
            _ => json!({"id": id, "result": {"decision": "accept"}}),
        };
        for _ in 0..1 + self.rng.below(2) {
            let at = Instant::now() + Duration::from_millis(self.rng.below(100));
            self.later.push((at, answer.to_string()));
        }
    }

    /// Returns one of the shared threads; starts one if there are too few.
    async fn thread(&mut self) -> String {
        let known = self.target.threads.borrow().len();
        if known >= THREADS || known > 0 && self.rng.below(THREADS as u64) < known as u64 {
            let at = self.rng.below(known as u64) as usize;
            // Another client may have retired some meanwhile.
            if let Some((thread, _)) = self.target.threads.borrow().get(at) {
                return thread.clone();
            }
        }
        let settings = json!({"sandbox": "read-only", "approvalPolicy": "on-request"});
        let started = self.ask("thread/start", settings).await.unwrap();
        let thread = started["thread"]["id"].as_str().unwrap().to_owned();
        self.target.threads.borrow_mut().push((thread.clone(), 0));
        thread
    }

    async fn act(&mut self) {
        let thread = self.thread().await;
        let of = json!({"threadId": thread});
        let turn = self.target.running.borrow().get(&thread).cloned().unwrap_or_default();
        match self.rng.below(24) {
            0..=6 => self.say(&thread).await,
            7 | 8 => {
                let input = self.input("SAY");
                let steer = json!({"threadId": thread, "expectedTurnId": turn, "input": input});
                self.send("turn/steer", steer);
            }
            9 => {
                self.send("turn/interrupt", json!({"threadId": thread, "turnId": turn}));
            }
            10..=12 => {
                let resume = json!({"threadId": thread, "excludeTurns": self.rng.one_in(2)});
                self.send("thread/resume", resume);
            }
            13 => {
                self.send("thread/unsubscribe", of);
            }
            14 => {
                self.send("thread/read", json!({"threadId": thread, "includeTurns": true}));
            }
            15 => {
                self.send("thread/turns/list", json!({"threadId": thread, "limit": 3}));
            }
            16 => {
                self.send("thread/list", json!({"limit": 5}));
            }
            17 => {
                self.send("thread/name/set", json!({"threadId": thread, "name": "soak"}));
            }
            18 => {
                if let Ok(fork) = self.ask("thread/fork", of).await {
                    let fork = json!({"threadId": fork["thread"]["id"]});
                    self.send("thread/delete", fork);
                }
            }
            19 => {
                self.send("thread/compact/start", of);
            }
            20 | 21 => self.nonsense(&thread),
            22 => {
                // It reads nothing for a while.
                tokio::time::sleep(Duration::from_millis(self.rng.below(300))).await;
            }
            _ => {
                let methods = ["model/list", "thread/loaded/list", "account/read"];
                for method in methods {
                    self.send(method, json!({}));
                }
            }
        }
    }

    fn input(&mut self, kind: &str) -> Value {
        let mut seen = self.world.seen.borrow_mut();
        seen.inputs += 1;
        json!([{"type": "text", "text": format!("Q-{kind} {}.", seen.inputs)}])
    }

    async fn say(&mut self, thread: &str) {
        let turns = {
            let mut threads = self.target.threads.borrow_mut();
            let Some((_, turns)) = threads.iter_mut().find(|(it, _)| it == thread) else { return };
            *turns += 1;
            *turns
        };
        if turns > TURNS {
            self.target.threads.borrow_mut().retain(|(it, _)| it != thread);
            return self.retire(thread).await;
        }
        let kind = match self.rng.below(8) {
            0..=2 => "SAY",
            3 => "SLOW",
            4 => "MANY",
            5 | 6 => "ASK",
            _ => "LEAVE",
        };
        let input = self.input(kind);
        self.send("turn/start", json!({"threadId": thread, "input": input}));
    }

    /// Sends what no server should be sent.
    fn nonsense(&mut self, thread: &str) {
        match self.rng.below(8) {
            0 => self.wire.send("{\"id\":".to_owned()),
            1 => self.wire.send("[]".to_owned()),
            2 => self.wire.send(json!({"method": "no/such"}).to_string()),
            3 => {
                self.send("no/such", json!({}));
            }
            4 => {
                self.send("turn/start", json!({"threadId": 7}));
            }
            5 => {
                self.send("turn/start", json!({"threadId": thread, "input": []}));
            }
            6 => self.wire.send(json!({"id": 77, "result": {"decision": "accept"}}).to_string()),
            _ => {
                let who = json!({"clientInfo": {"name": "x", "version": "1"}});
                self.send("initialize", who);
            }
        }
    }

    /// Resumes a thread whose server was killed.
    async fn take_over(&mut self) {
        let orphan = self.world.seen.borrow_mut().orphans.pop();
        let Some(thread) = orphan else { return };
        // It may not have had a turn, and then there is nothing of it.
        if self.ask("thread/resume", json!({"threadId": thread})).await.is_ok() {
            self.target.threads.borrow_mut().push((thread, 0));
        }
    }

    /// Ends what runs in a thread, and archives it.
    async fn retire(&mut self, thread: &str) {
        let _ = self.ask("thread/archive", json!({"threadId": thread})).await;
    }

    /// Waits for everything that it still has to get, and disconnects.
    async fn finish(mut self) {
        let deadline = Instant::now() + LIMIT;
        while !self.open.is_empty() {
            let line = self.line(deadline).await;
            let line = line.unwrap_or_else(|| panic!("never answered: {:?}", self.open));
            self.take(&line);
        }
        self.wire.end().await;
    }
}

trait Duplex: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> Duplex for T {}

/// A connection. What comes waits for its reader, so that a client that reads slowly is one for the server, too.
struct Wire {
    out: mpsc::UnboundedSender<String>,
    lines: mpsc::Receiver<String>,
    tasks: JoinSet<()>,
    child: Option<Child>,
}

impl Wire {
    async fn frames(stream: Box<dyn Duplex>, host: &str, token: Option<&str>) -> Self {
        let mut request = format!("ws://{host}/").into_client_request().unwrap();
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().insert("authorization", value);
        }
        let (socket, _) = client_async(request, stream).await.unwrap();
        let (mut sink, mut frames) = socket.split();
        let (out, mut waiting) = mpsc::unbounded_channel::<String>();
        let (sender, lines) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        tasks.spawn_local(async move {
            while let Some(line) = waiting.recv().await {
                if sink.send(Message::text(line)).await.is_err() {
                    return;
                }
            }
            let _ = sink.close().await;
        });
        tasks.spawn_local(async move {
            while let Some(Ok(frame)) = frames.next().await {
                let Message::Text(text) = frame else { continue };
                if sender.send(text.to_string()).await.is_err() {
                    return;
                }
            }
        });
        Self { out, lines, tasks, child: None }
    }

    /// Starts a server for this client alone.
    fn lines(lab: &Lab) -> Self {
        let mut command = lab.command(BINARY);
        command.arg("app-server").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (out, mut waiting) = mpsc::unbounded_channel::<String>();
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || {
            while let Some(line) = waiting.blocking_recv() {
                if writeln!(stdin, "{line}").is_err() {
                    return;
                }
            }
        });
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self { out, lines, tasks: JoinSet::new(), child: Some(child) }
    }

    fn send(&self, line: String) {
        // One that is disconnected notices that when it reads.
        let _ = self.out.send(line);
    }

    /// Says goodbye, and waits for the end of the connection, or of the server.
    async fn end(mut self) {
        let (nothing, _) = mpsc::unbounded_channel();
        self.out = nothing;
        let end = async { while self.lines.recv().await.is_some() {} };
        tokio::time::timeout(LIMIT, end).await.expect("the connection ends");
        if let Some(child) = &mut self.child {
            let status = until("the end of a server", || child.try_wait().unwrap());
            assert_eq!(status.code(), Some(0));
        }
        self.tasks.abort_all();
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Reads all threads from disk, and compares them with what clients were shown.
async fn check_what_was_shown(world: &Rc<World>) {
    let target = Target::new(Place::Stdio);
    let mut client = Client::connect(world, &target, Rng::new(0)).await;
    let turns = std::mem::take(&mut world.seen.borrow_mut().turns);
    let threads: BTreeSet<_> = turns.keys().map(|(thread, _)| thread.clone()).collect();
    let (mut items, mut ran) = (0, BTreeMap::new());
    let mut saved = HashMap::new();
    for thread in threads {
        let params = json!({"threadId": thread, "includeTurns": true});
        let read = match client.ask("thread/read", params).await {
            Ok(read) => read,
            // Forks are deleted, and had no turns of their own.
            Err(why) => panic!("{thread} is gone: {why}"),
        };
        for turn in read["thread"]["turns"].as_array().unwrap() {
            saved.insert((thread.clone(), turn["id"].as_str().unwrap().to_owned()), turn.clone());
        }
    }
    client.finish().await;
    for (place, shown) in &turns {
        let turn = saved.get(place).unwrap_or_else(|| panic!("the turn {place:?} is gone"));
        if let Some(status) = &shown.status {
            assert_eq!(turn["status"], **status, "{place:?}");
        }
        for (id, item) in &shown.items {
            let found = turn["items"].as_array().unwrap().iter().find(|it| it["id"] == **id);
            let found = found.unwrap_or_else(|| panic!("{item} is gone from {turn}"));
            assert_eq!(found["type"], item["type"], "{place:?}");
            assert_eq!(found["text"], item["text"], "{place:?}");
            assert_eq!(found["status"], item["status"], "{place:?}");
            items += 1;
            if item["type"] == "commandExecution" {
                ran.insert(command_number(item), item["status"].as_str().unwrap().to_owned());
            }
        }
    }
    // A command appends its number once.
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    for line in world.lab.workspace.read("ran.txt").unwrap_or_default().lines() {
        *times.entry(line.parse().unwrap()).or_default() += 1;
    }
    for (number, count) in &times {
        assert_eq!(*count, 1, "the command {number} ran more than once");
    }
    for (number, status) in &ran {
        let count = times.get(number).copied().unwrap_or_default();
        match status.as_str() {
            "completed" => assert_eq!(count, 1, "the command {number} was accepted"),
            "declined" => assert_eq!(count, 0, "the command {number} was not accepted"),
            // It was interrupted.
            _ => {}
        }
    }
    let seen = world.seen.borrow();
    let Seen { answered, questions, .. } = &*seen;
    let turns = turns.len();
    eprintln!(
        "{answered} answers, {turns} turns, {items} items, {questions} questions, {} commands ran",
        times.len()
    );
    for (why, count) in &seen.refusals {
        eprintln!("{count:6} {why}");
    }
    assert!(turns > 0 && !times.is_empty(), "nothing was done");
}

/// Finds the number of a command of the model.
fn command_number(item: &Value) -> u64 {
    let command = item["command"].as_str().unwrap();
    let (_, rest) = command.split_once("echo ").unwrap_or_else(|| panic!("{item}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// Removes ids and numbers, so that equal reasons are equal texts.
fn without_ids(text: &str) -> String {
    let is_id = |word: &str| word.bytes().any(|byte| byte.is_ascii_digit());
    let words = text.split(' ').map(|word| if is_id(word) { "N" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns how much memory a process has that is not of a file.
fn own_memory_mb(pid: u32) -> f64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss_Anon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

/// Counts the heaps that glibc has made for threads, besides that of the first one: each has 64 MiB of addresses, of which the
/// first part is in use.
fn heaps_of_threads(pid: u32) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let ranges: Vec<_> = maps
        .lines()
        .map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (begin, end) = words.next().unwrap().split_once('-').unwrap();
            let address = |text| u64::from_str_radix(text, 16).unwrap();
            (address(begin), address(end), words.next().unwrap())
        })
        .collect();
    let is_heap = |pair: &&[(u64, u64, &str)]| {
        let [(begin, used, "rw-p"), (rest, end, "---p")] = **pair else { return false };
        used == rest && end - begin == 64 << 20 && begin.is_multiple_of(64 << 20)
    };
    ranges.windows(2).filter(is_heap).count()
}

/// Lists processes that were started in a lab.
fn left_over(root: &Path) -> Vec<u32> {
    let root = root.to_str().unwrap().as_bytes();
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(environment) = std::fs::read(process.path().join("environ")) else { continue };
        if pid != std::process::id() && environment.windows(root.len()).any(|it| it == root) {
            found.push(pid);
        }
    }
    found
}

/// Serves a model that does what the last input says; returns its port. It ends with the test.
fn serve_model() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // A client may be interrupted or killed.
                let _ = answer(&stream);
                let _ = stream.shutdown(Shutdown::Both);
            });
        }
    });
    port
}

fn answer(stream: &std::net::TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    )?;
    let (events, pause) = events_for(&body);
    for mut event in [vec![created()], events, vec![completed(Default::default())]].concat() {
        // Every response has a message of its own.
        let kind = event["type"].as_str().unwrap().to_owned();
        for place in ["/item/id", "/item_id"] {
            if let Some(id) = event.pointer_mut(place) {
                *id = json!(format!("msg_{length}"));
            }
        }
        write!(stream, "event: {kind}\ndata: {event}\n\n")?;
        if kind.contains("delta") && !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    Ok(())
}

/// Returns what a model says to the last item of a request, and how fast it says that.
fn events_for(body: &Value) -> (Vec<Value>, Duration) {
    let items = body["input"].as_array().map(Vec::as_slice).unwrap_or_default();
    let said = items.iter().rev().find_map(|item| {
        let text = item["content"][0]["text"].as_str().filter(|_| item["role"] == "user")?;
        text.strip_prefix("Q-")?.strip_suffix('.')?.split_once(' ')
    });
    let Some((kind, number)) = said else { return (vec![message("A summary.")], Duration::ZERO) };
    let called = format!("call-{number}");
    let was_called = items.iter().any(|item| item["call_id"] == *called);
    let run = |command: String| {
        let arguments = json!({
            "cmd": command,
            "yield_time_ms": 250,
            "sandbox_permissions": "require_escalated",
            "justification": "May I?",
        });
        (vec![call(&called, "exec_command", arguments)], Duration::ZERO)
    };
    match kind {
        "SLOW" => (deltas(["slowly "; 20]), Duration::from_millis(5)),
        "MANY" => (deltas(["much "; 2_000]), Duration::ZERO),
        "ASK" if !was_called => run(format!("echo {number} >> ran.txt")),
        "LEAVE" if !was_called => run(format!("echo {number} >> ran.txt; sleep 1000")),
        _ => (deltas(["an ", "answer"]), Duration::ZERO),
    }
}
