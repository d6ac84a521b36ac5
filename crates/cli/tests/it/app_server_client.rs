//! An app-server on a socket, and clients of it.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use testkit::{Lab, ModelServer};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::BINARY;
use crate::run::{LIMIT, lab_for, until};

/// A server, killed when it is dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    /// Where it listens.
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(lab: &Lab, args: &[&str]) -> Self {
        let mut command = lab.command(BINARY);
        command.arg("app-server").args(args).stdin(Stdio::null()).stderr(Stdio::piped());
        Self::of(command)
    }

    pub(crate) fn of(mut command: Command) -> Self {
        use std::io::{BufRead as _, BufReader};

        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let deadline = Instant::now() + LIMIT;
        let address = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = lines.recv_timeout(left).expect("it says where it listens");
            if let Some((_, address)) = line.split_once("listening on ") {
                break address.to_owned();
            }
        };
        Self { child, address }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn tcp(&self) -> &str {
        self.address.strip_prefix("ws://").unwrap()
    }

    pub(crate) fn unix(&self) -> &str {
        self.address.strip_prefix("unix://").unwrap()
    }

    pub(crate) fn terminate(mut self) -> i32 {
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        until("the end of the server", || self.child.try_wait().unwrap()).code().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) trait Duplex: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> Duplex for T {}

/// A client that speaks JSON-RPC over a WebSocket.
pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<Box<dyn Duplex>>,
    next: u64,
    /// Messages that nobody has waited for.
    pub(crate) seen: Vec<Value>,
}

impl Client {
    pub(crate) async fn over(
        stream: Box<dyn Duplex>,
        host: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, Error> {
        let mut request = format!("ws://{host}/").into_client_request()?;
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let (socket, _) = client_async(request, stream).await?;
        Ok(Self { socket, next: 0, seen: Vec::new() })
    }

    pub(crate) async fn tcp(
        server: &Server,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, Error> {
        let stream = TcpStream::connect(server.tcp()).await.unwrap();
        Self::over(Box::new(stream), server.tcp(), headers).await
    }

    /// Connects to a Unix socket and introduces itself.
    pub(crate) async fn unix(server: &Server, name: &str) -> Self {
        let stream = UnixStream::connect(server.unix()).await.unwrap();
        let mut client = Self::over(Box::new(stream), "localhost", &[]).await.unwrap();
        client.introduce(name).await;
        client
    }

    pub(crate) async fn introduce(&mut self, name: &str) -> Value {
        let who = json!({
            "clientInfo": {"name": name, "version": "1"},
            "capabilities": {"experimentalApi": true},
        });
        self.ask("initialize", who).await
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.socket.send(Message::text(message.to_string())).await.unwrap();
    }

    /// Makes a request and returns its result or error.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(json!({"id": id, "method": method, "params": params})).await;
        let answer = self.until(|it| it["id"] == id && it["method"].is_null()).await;
        if answer["error"].is_null() { answer["result"].clone() } else { answer["error"].clone() }
    }

    /// Waits for a message, which may have come before.
    pub(crate) async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.seen.iter().position(&fits) {
            return self.seen.remove(at);
        }
        loop {
            let frame = tokio::time::timeout(LIMIT, self.socket.next()).await;
            let frame = frame.unwrap_or_else(|_| panic!("nothing fits: {:#?}", self.seen));
            let Message::Text(text) = frame.unwrap().unwrap() else { continue };
            let message: Value = serde_json::from_str(&text).unwrap();
            if fits(&message) {
                return message;
            }
            self.seen.push(message);
        }
    }

    pub(crate) async fn told(&mut self, method: &str) -> Value {
        self.until(|it| it["method"] == method).await["params"].clone()
    }

    pub(crate) async fn start_thread(&mut self, more: Value) -> String {
        let mut params = json!({"sandbox": "danger-full-access"});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let started = self.ask("thread/start", params).await;
        started["thread"]["id"].as_str().unwrap_or_else(|| panic!("{started}")).to_owned()
    }

    pub(crate) async fn say(&mut self, thread: &str) -> Value {
        let input = json!([{"type": "text", "text": "go"}]);
        self.ask("turn/start", json!({"threadId": thread, "input": input})).await
    }
}

pub(crate) fn scene(script: Value) -> (ModelServer, Lab, Server, Runtime) {
    let model = ModelServer::start(script).unwrap();
    let lab = lab_for(&model);
    let socket = format!("unix://{}", lab.root().join("s").display());
    let server = Server::start(&lab, &["--listen", &socket]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    (model, lab, server, runtime)
}
