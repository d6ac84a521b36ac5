//! A server on its own socket, and a minimal HTTP client that gives tests full control.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use infer::engine::Engine;
use infer::log::Log;
use infer::serve::{self, Limits, Listeners, LoadState, LoadedModel, Parts, Server};
use infer::tools::{Settings, Tools};
use prompt::model::ModelOptions;
use serde_json::{Value, json};
use stdx::Redacted;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::scripted::{Scripted, Seen};

/// Timeout for everything.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
pub(crate) const TOKEN: &str = "0123456789abcdef0123";

/// The configuration of a test server.
pub(crate) struct Set {
    pub(crate) limits: Limits,
    pub(crate) slots: usize,
    pub(crate) waiting_max: usize,
    pub(crate) tools: Settings,
    pub(crate) forced_calls: bool,
    pub(crate) metrics: bool,
    /// Whether the model is of the Harmony family.
    pub(crate) harmony: bool,
    pub(crate) tokens_noted: usize,
    pub(crate) port: bool,
    /// Whether the model is loaded from the beginning.
    pub(crate) loaded: bool,
}

impl Default for Set {
    fn default() -> Self {
        Self {
            limits: Limits { grace: Duration::from_millis(300), ..Limits::default() },
            slots: 4,
            waiting_max: 64,
            tools: Settings::default(),
            forced_calls: false,
            metrics: true,
            harmony: false,
            tokens_noted: 0,
            port: false,
            loaded: true,
        }
    }
}

/// A server on the test's own runtime.
pub(crate) struct Lab {
    pub(crate) server: Arc<Server>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) port: Option<u16>,
    pub(crate) standing: watch::Sender<LoadState>,
    pub(crate) engine: Arc<Scripted>,
    pub(crate) serving: JoinHandle<()>,
    end: Option<oneshot::Sender<()>>,
    directory: TempDir,
}

impl Lab {
    pub(crate) async fn new(set: Set) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let engine = Scripted::new(set.slots, set.waiting_max);
        let engine = Arc::new(if set.harmony { engine.harmony() } else { engine });
        let (standing, watched) = watch::channel(LoadState::Loading(0.25));
        if set.loaded {
            standing.send_replace(ready(&engine));
        }
        let socket = UnixListener::bind(directory.path().join("socket")).unwrap();
        let port = match set.port {
            true => Some(TcpListener::bind("127.0.0.1:0").await.unwrap()),
            false => None,
        };
        let address = port.as_ref().map(|port| port.local_addr().unwrap());
        let server = Server::new(Parts {
            limits: set.limits,
            model: "tiny".to_owned(),
            file: None,
            settings: Vec::new(),
            configured: String::new(),
            context_tokens_set: None,
            standing: watched,
            tools: Tools::new(set.tools).unwrap(),
            forced_calls: set.forced_calls,
            metrics: set.metrics,
            tokens_noted: set.tokens_noted,
            token: Some(Redacted::new(TOKEN)),
            address,
            log: Log::open(&directory.path().join("log")).unwrap(),
        })
        .unwrap();
        let (end, ended) = oneshot::channel();
        let listeners = Listeners { socket, port };
        let serving = tokio::spawn(serve::serve(Arc::clone(&server), listeners, async {
            let _ = ended.await;
        }));
        let seen = Arc::clone(&engine.seen);
        let (port, end) = (address.map(|address| address.port()), Some(end));
        Self { server, seen, port, standing, engine, serving, end, directory }
    }

    /// Marks the model as loaded.
    pub(crate) fn load(&self) {
        self.standing.send_replace(ready(&self.engine));
    }

    /// Shuts the server down.
    pub(crate) fn end(&mut self) {
        let _ = self.end.take().unwrap().send(());
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    pub(crate) async fn connect(&self) -> Client<UnixStream> {
        Client::new(UnixStream::connect(self.path()).await.unwrap())
    }

    pub(crate) async fn connect_port(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(("127.0.0.1", self.port.unwrap())).await.unwrap())
    }

    /// Sends one request and reads its answer.
    pub(crate) async fn ask(&self, head: &str, body: &str) -> Answer {
        let mut client = self.connect().await;
        client.send(head, body).await;
        client.answer().await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n"), "").await
    }

    /// Sends a request to the Responses API.
    pub(crate) async fn responses(&self, body: &Value) -> Answer {
        self.ask(&post("/v1/responses"), &body.to_string()).await
    }
}

fn ready(engine: &Arc<Scripted>) -> LoadState {
    let engine: Arc<dyn Engine> = Arc::clone(engine) as _;
    let loaded = LoadedModel::new("tiny".to_owned(), engine, ModelOptions::default()).unwrap();
    LoadState::Ready(Arc::new(loaded))
}

pub(crate) fn post(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n")
}

/// Builds a request of the Responses API.
pub(crate) fn input(text: &str, stream: bool) -> Value {
    json!({"model": "tiny", "input": text, "stream": stream})
}

pub(crate) struct Client<S> {
    pub(crate) stream: S,
    read: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn send(&mut self, head: &str, body: &str) {
        let length = if head.starts_with("POST") {
            format!("content-length: {}\r\n", body.len())
        } else {
            String::new()
        };
        self.raw(format!("{head}{length}\r\n{body}").as_bytes()).await;
    }

    /// Sends bytes; errors are ignored, since the server may close its end.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Reads until `text` has arrived; false at the end.
    pub(crate) async fn until(&mut self, text: &str) -> bool {
        let read = async {
            loop {
                if String::from_utf8_lossy(&self.read).contains(text) {
                    return true;
                }
                if !self.more().await {
                    return false;
                }
            }
        };
        timeout(LIMIT, read).await.unwrap_or_else(|_| panic!("no {text:?}"))
    }

    pub(crate) fn seen(&self) -> String {
        String::from_utf8_lossy(&self.read).into_owned()
    }

    async fn more(&mut self) -> bool {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.read.extend_from_slice(&chunk[..count]);
                true
            }
        }
    }

    /// Reads everything until the server closes.
    pub(crate) async fn rest(&mut self) -> String {
        let all = async { while self.more().await {} };
        timeout(LIMIT, all).await.expect("the server closes");
        self.seen()
    }

    /// Reads one answer; anything after it stays in the buffer.
    pub(crate) async fn answer(&mut self) -> Answer {
        let read = async {
            loop {
                if let Some((answer, length)) = parse(&self.read) {
                    self.read.drain(..length);
                    return answer;
                }
                assert!(self.more().await, "the end came before an answer: {:?}", self.seen());
            }
        };
        timeout(LIMIT, read).await.expect("an answer in time")
    }
}

/// Parses an answer, if it is complete.
fn parse(bytes: &[u8]) -> Option<(Answer, usize)> {
    let split = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8(bytes[..split + 2].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let rest = &bytes[split + 4..];
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.map(str::to_owned)
    };
    if header("transfer-encoding").is_some() {
        let (mut body, mut at) = (Vec::new(), 0);
        loop {
            let line = rest[at..].windows(2).position(|window| window == b"\r\n")?;
            let size = std::str::from_utf8(&rest[at..at + line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            let begin = at + line + 2;
            body.extend_from_slice(rest.get(begin..begin + size)?);
            at = begin + size + 2;
            if rest.len() < at {
                return None;
            }
            if size == 0 {
                let body = String::from_utf8(body).unwrap();
                return Some((Answer { status, head, body }, split + 4 + at));
            }
        }
    }
    let length: usize = header("content-length").map_or(0, |length| length.parse().unwrap());
    let body = String::from_utf8(rest.get(..length)?.to_vec()).unwrap();
    Some((Answer { status, head, body }, split + 4 + length))
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let line = self.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_default()
    }

    /// Returns the events of a stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    /// Returns the text of an answer of the Responses API, streamed or not.
    pub(crate) fn text(&self) -> String {
        let response = match self.header("content-type") {
            "text/event-stream" => self.events().pop().unwrap()["response"].clone(),
            _ => self.json(),
        };
        let items = response["output"].as_array().unwrap_or_else(|| panic!("{self:?}"));
        let parts = items.iter().filter(|item| item["type"] == "message");
        parts.map(|item| item["content"][0]["text"].as_str().unwrap_or_default()).collect()
    }
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let wait = async {
        while !ready() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("{what}: not in time"));
}
