//! A model endpoint on loopback that plays a script: real HTTP/1.1 over real sockets, in process.
//!
//! `POST …/responses` and `…/chat/completions` get the next entry of the [`Script`], `…/models` an empty
//! list, anything else 404. A stream closes its connection; every other answer leaves it open. One thread
//! accepts and one serves each connection; all of them have ended when the drop of a [`ModelServer`] returns.
//!
//! A [`ModelServer::strict`] one answers 400 to a request with an invalid history, as real endpoints do; such
//! a request does not consume an entry of the script.

pub(crate) mod http;
pub(crate) mod play;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::script::{Script, ScriptError};
use crate::strict::Strict;
use http::Request;
use play::{Ids, Play, Stream, reply};

/// A scripted model endpoint; it stops when dropped.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Returns the threads of the connections it accepted.
    acceptor: Option<JoinHandle<Vec<JoinHandle<()>>>>,
}

/// A received request.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers, with lower-case names.
    pub headers: BTreeMap<String, String>,
    /// The body as JSON; null if there was none or it was something else.
    pub body: Value,
    /// The raw body.
    pub bytes: Vec<u8>,
}

/// Why an endpoint did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The script is invalid.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// No port or no thread was available.
    #[error("cannot listen on loopback")]
    Listen(#[from] io::Error),
}

impl ModelServer {
    /// Starts an endpoint that plays a JSON list of entries.
    pub fn start(script: Value) -> Result<Self, StartError> {
        Ok(Self::play(Script::from_value(script)?)?)
    }

    /// Starts an endpoint that plays a JSON list of entries, for requests that follow its rules.
    pub fn strict(script: Value, rules: Strict) -> Result<Self, StartError> {
        Ok(Self::open(Script::from_value(script)?, Some(rules))?)
    }

    /// Starts an endpoint that plays a script from its beginning.
    pub fn play(script: Script) -> io::Result<Self> {
        Self::open(script, None)
    }

    fn open(script: Script, rules: Option<Strict>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared =
            Arc::new(Shared { script, rules, state: Mutex::default(), stopped: Condvar::new() });
        let acceptor = thread::Builder::new().name("model-accept".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        })?;
        Ok(Self { address, shared, acceptor: Some(acceptor) })
    }

    /// Returns the port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the base URL for a provider's configuration.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Stops keeping bodies, for tests that measure memory.
    pub fn forget_bodies(&self) {
        self.shared.state().forgetful = true;
    }

    /// Returns the requests so far, in the order they arrived.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.state().requests.clone()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.state().stopping = true;
        self.shared.stopped.notify_all();
        // The acceptor checks the flag only when a client connects. If even that fails, it is better left
        // alone than waited for.
        if TcpStream::connect_timeout(&self.address, STOP_WAIT).is_err() {
            return;
        }
        let Some(Ok(workers)) = self.acceptor.take().map(JoinHandle::join) else { return };
        for stream in self.shared.state().connections.values() {
            // It fails if the client closed first, which is fine.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for worker in workers {
            let _ = worker.join();
        }
    }
}

#[derive(Debug)]
struct Shared {
    script: Script,
    rules: Option<Strict>,
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Recorded>,
    answered: usize,
    stopping: bool,
    /// Whether bodies are not kept.
    forgetful: bool,
    /// Open connections. They are shared, not duplicated: a socket with a second descriptor would outlive the
    /// close that is meant to reset it.
    connections: HashMap<u64, Arc<TcpStream>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps; fails as soon as the endpoint stops.
    fn sleep(&self, wait: Duration) -> io::Result<()> {
        let deadline = Instant::now() + wait;
        let mut state = self.state();
        loop {
            if state.stopping {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let waited = self.stopped.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Serves one connection to its end.
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        // Each write of a script should arrive separately; Nagle's algorithm would join them.
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        while let Some(request) = http::read_request(&mut reader)? {
            let route = request.path.split('?').next().unwrap_or_default();
            let answers = request.method == "POST"
                && (route.contains("/responses") || route.ends_with("/chat/completions"));
            let lists = route.ends_with("/models");
            let bytes = self.record(request);
            if let Some(refusal) = self.refusal(&bytes).filter(|_| answers) {
                write(stream, &reply(400, &refusal, ""))?;
            } else if answers {
                if !self.answer(stream, &bytes)? {
                    return Ok(());
                }
            } else if lists {
                write(stream, &reply(200, br#"{"object":"list","data":[],"models":[]}"#, ""))?;
            } else {
                write(stream, &reply(404, b"{}", ""))?;
            }
        }
        Ok(())
    }

    /// Returns the error for a request with an invalid history.
    fn refusal(&self, body: &[u8]) -> Option<Vec<u8>> {
        let rules = self.rules.as_ref()?;
        let refusal = rules.check(&serde_json::from_slice(body).unwrap_or_default()).err()?;
        Some(refusal.body().to_string().into_bytes())
    }

    fn record(&self, request: Request) -> Vec<u8> {
        let Request { method, path, headers, body } = request;
        let (json, bytes) = if self.state().forgetful {
            (Value::Null, Vec::new())
        } else {
            (serde_json::from_slice(&body).unwrap_or_default(), body.clone())
        };
        self.state().requests.push(Recorded { method, path, headers, body: json, bytes });
        body
    }

    /// Plays the next entry; returns whether the connection stays open.
    fn answer(&self, stream: &TcpStream, body: &[u8]) -> io::Result<bool> {
        let number = {
            let mut state = self.state();
            state.answered += 1;
            state.answered - 1
        };
        match self.script.answer(number).map(|answer| answer.choose(body)) {
            None => write(stream, &reply(500, b"{}", ""))?,
            Some(Play::Reply(bytes)) => write(stream, bytes)?,
            Some(Play::Stream(play)) => {
                self.stream(stream, play, body)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn stream(&self, stream: &TcpStream, play: &Stream, body: &[u8]) -> io::Result<()> {
        write(stream, &play.head)?;
        let ids = Ids::find(body);
        for segment in &play.segments {
            let bytes = segment.bytes(&ids);
            self.sleep(segment.wait)?;
            for chunk in bytes.chunks(play.chunk.unwrap_or(bytes.len()).max(1)) {
                write(stream, chunk)?;
            }
        }
        self.sleep(play.linger)?;
        if play.reset {
            rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
            return Ok(());
        }
        stream.shutdown(Shutdown::Both)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
    let mut workers: Vec<JoinHandle<()>> = Vec::new();
    for number in 0_u64.. {
        let accepted = listener.accept();
        if shared.state().stopping {
            break;
        }
        let Ok((stream, _)) = accepted else {
            // Most likely out of descriptors: a connection has to end first.
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        let stream = Arc::new(stream);
        shared.state().connections.insert(number, Arc::clone(&stream));
        workers.retain(|worker| !worker.is_finished());
        let worker = thread::Builder::new().name("model-serve".to_owned()).spawn({
            let shared = Arc::clone(shared);
            move || {
                // A client may disconnect or send nonsense at any time; its connection is closed.
                let _ = shared.serve(&stream);
                shared.state().connections.remove(&number);
            }
        });
        match worker {
            Ok(worker) => workers.push(worker),
            Err(_) => drop(shared.state().connections.remove(&number)),
        }
    }
    workers
}

fn write(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)
}

/// Timeout for waking the acceptor of a stopping endpoint.
const STOP_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script;
    use serde_json::json;
    use std::io::Read;

    /// Sends `requests` over one connection and reads until it ends. That a connection stays open shows by
    /// silence after `last`, so only then is the timeout short.
    fn talk(
        server: &ModelServer,
        requests: &[&str],
        last: Option<&str>,
    ) -> (String, Result<(), io::ErrorKind>) {
        let mut stream = TcpStream::connect(server.address).unwrap();
        for request in requests {
            stream.write_all(request.as_bytes()).unwrap();
        }
        let (mut text, mut buffer) = (Vec::new(), [0; 65536]);
        let end = loop {
            let seen =
                last.is_some_and(|last| memchr::memmem::find(&text, last.as_bytes()).is_some());
            let patience = Duration::from_millis(if seen { 100 } else { 20_000 });
            stream.set_read_timeout(Some(patience)).unwrap();
            match stream.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(length) => text.extend_from_slice(&buffer[..length]),
                Err(error) => break Err(error.kind()),
            }
        };
        (String::from_utf8(text).unwrap(), end)
    }

    fn post(body: &str) -> String {
        let length = body.len();
        format!("POST /v1/responses HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{body}")
    }

    const CLOSED: Result<(), io::ErrorKind> = Ok(());
    const OPEN: Result<(), io::ErrorKind> = Err(io::ErrorKind::WouldBlock);
    const RESET: Result<(), io::ErrorKind> = Err(io::ErrorKind::ConnectionReset);

    /// Plays `script` on one connection; every text of `want` must come, in this order.
    #[track_caller]
    fn check(script: Value, requests: &[&str], want: &[&str], want_end: Result<(), io::ErrorKind>) {
        let server = ModelServer::start(script).unwrap();
        let last = want.last().copied().filter(|_| want_end == OPEN);
        let (text, end) = talk(&server, requests, last);
        let mut rest = &text[..];
        for part in want {
            let at = rest.find(part).unwrap_or_else(|| panic!("no {part:?} in {text:?}"));
            rest = &rest[at + part.len()..];
        }
        assert_eq!(end, want_end, "{text:?}");
        assert_eq!(server.requests().len(), requests.len());
    }

    #[test]
    fn entries() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
        let hi = json!([script::response([script::message("hi")])]);
        let created = "event: response.created\ndata: {\"type\":\"response.created\",";
        check(
            hi,
            &[&post("{}")],
            &[head, created, "\"text\":\"hi\"", "response.completed"],
            CLOSED,
        );
        check(json!([{}]), &[&post("{}")], &[head, "connection: close\r\n\r\n"], CLOSED);
        check(json!([{ "raw": "data: x" }]), &[&post("{}")], &["\r\n\r\ndata: x"], CLOSED);
        let cut = json!([{ "raw": "one two", "chunk": 1, "delay_ms": 1 }]);
        check(cut, &[&post("{}")], &["\r\n\r\none two"], CLOSED);
        check(json!([{ "raw": "x", "reset": true }]), &[&post("{}")], &[], RESET);
        check(json!([{ "raw": "x", "hang_ms": 60_000 }]), &[&post("{}")], &["x"], OPEN);
        check(json!([]), &[&post("{}")], &["HTTP/1.1 500 X\r\n", "\r\n\r\n{}"], OPEN);
    }

    #[test]
    fn answers_that_are_no_stream_keep_the_connection() {
        let busy = json!({ "status": 429, "headers": { "retry-after": 2 }, "body": { "a": 1 } });
        let want = ["429 X\r\n", "retry-after: 2\r\n", "content-length: 7\r\n\r\n{\"a\":1}"];
        check(json!([busy]), &[&post("{}")], &want, OPEN);
        let as_json = json!([{ "json": true, "body": "[]" }]);
        check(as_json, &[&post("{}")], &["200 X\r\n", "application/json", "\r\n\r\n[]"], OPEN);
        let page =
            json!([{ "status": 404, "headers": { "Content-Type": "text/html" }, "body": "<p>" }]);
        let want = ["HTTP/1.1 404 X\r\nContent-Type: text/html\r\ncontent-length: 3\r\n\r\n<p>"];
        check(page, &[&post("{}")], &want, OPEN);
        let models = "GET /v1/models?x=y HTTP/1.1\r\n\r\n";
        let chunked =
            "POST /v1/responses HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
        check(
            json!([busy, { "raw": "last" }]),
            &[models, "GET /other HTTP/1.1\r\n\r\n", &post("{}"), chunked],
            &["200 X", "\"models\":[]", "404 X", "429 X", "200 OK", "last"],
            CLOSED,
        );
    }

    #[test]
    fn the_request_picks_the_answer() {
        let script = json!([{
            "raw": "neither",
            "__match__": [
                { "if": "red", "then": { "raw": "first" } },
                { "if": "blue", "then": { "raw": "second" } },
            ],
        }]);
        check(script.clone(), &[&post(r#"["blue"]"#)], &["second"], CLOSED);
        check(script.clone(), &[&post(r#"["blue","red"]"#)], &["first"], CLOSED);
        check(script, &[&post(r#"["green"]"#)], &["neither"], CLOSED);
        let arguments = r#"{"session_id":{{SESSION_ID}}}"#;
        let script = json!([script::events([script::call_text("c", "write_stdin", arguments)])]);
        let running = post(r#"{"output":"Process running with session ID 4711\nOutput:"}"#);
        check(script, &[&running], &[r#"{\"session_id\":4711}"#], CLOSED);
    }

    #[test]
    fn a_strict_endpoint_refuses_invalid_histories() {
        let script = json!([{ "raw": "one" }]);
        let server = ModelServer::strict(script, Strict::default()).unwrap();
        let half = post(
            r#"{"input":[{"type":"function_call","name":"f","arguments":"{}","call_id":"c"}]}"#,
        );
        let (text, end) = talk(&server, &[&half, &post(r#"{"input":[]}"#)], None);
        assert!(text.contains("400 X\r\n") && text.contains("No tool output found"), "{text:?}");
        assert!(text.ends_with("one"), "{text:?}");
        assert_eq!((end, server.requests().len()), (CLOSED, 2));
    }

    #[test]
    fn the_last_entry_repeats() {
        let server = ModelServer::start(json!([{ "raw": "one" }, { "raw": "two" }])).unwrap();
        for want in ["one", "two", "two"] {
            let (text, _) = talk(&server, &[&post(r#"{"n":1}"#)], None);
            assert!(text.ends_with(want), "{text:?}");
        }
        let requests = server.requests();
        assert_eq!(requests.len(), 3);
        assert_eq!(
            (requests[0].method.as_str(), requests[0].path.as_str()),
            ("POST", "/v1/responses")
        );
        assert_eq!(
            (&requests[0].body["n"], &requests[0].bytes[..]),
            (&json!(1), &br#"{"n":1}"#[..])
        );
        assert_eq!(requests[0].headers["content-length"], "7");
    }

    #[test]
    fn waits_are_kept() {
        let slow = script::after_ms(60, script::delta("b"));
        let server =
            ModelServer::start(json!([script::events([script::delta("a"), slow])])).unwrap();
        let start = Instant::now();
        let (text, end) = talk(&server, &[&post("{}")], None);
        assert_eq!((text.matches("event: ").count(), end), (2, CLOSED));
        assert!(start.elapsed() >= Duration::from_millis(60));
    }

    #[test]
    fn a_stop_ends_every_thread_at_once() {
        let script = json!([{ "hang_ms": 60_000 }]);
        let server = ModelServer::start(script).unwrap();
        let shared = Arc::clone(&server.shared);
        let idle = TcpStream::connect(server.address).unwrap();
        let (_, end) = talk(&server, &[&post("{}")], Some("200 OK"));
        assert_eq!(end, OPEN);
        let start = Instant::now();
        drop(server);
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(Arc::strong_count(&shared), 1, "a thread is left");
        drop(idle);
    }

    #[test]
    fn a_long_stream_arrives_whole() {
        let words = std::iter::repeat_n("word ", 50_000);
        let server = ModelServer::start(json!([script::response(script::deltas(words))])).unwrap();
        let (text, end) = talk(&server, &[&post("{}")], None);
        assert_eq!(
            (text.matches("\nevent: response.output_text.delta\n").count(), end),
            (50_000, CLOSED)
        );
    }
}
