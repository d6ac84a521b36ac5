//! A model hub for tests, with scripted faults. It has two ports, as real hubs redirect downloads to another host.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use infer::models::sha256::Sha256;

/// What the hub does with a request for bytes; after the last fault it behaves correctly.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Sends this many bytes and closes the connection.
    Cut(usize),
    /// Responds with this status.
    Status(u16, &'static str),
    /// Sends nothing for longer than any timeout.
    Silence,
    /// Sends the whole file, whatever was requested.
    Whole,
    /// Announces this length.
    Length(u64),
    /// Sends more than it announces.
    Endless,
    /// Sends another range than requested.
    Elsewhere,
    /// Sends bytes that do not match the checksum.
    Garbled,
    /// Announces this total size.
    Total(u64),
}

/// What the hub announces about files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// Size and SHA-256, and redirects to the other port.
    Linked,
    /// Size and an ETag, and serves the bytes itself.
    Plain,
    /// The checksum of something else.
    WrongSum,
    WrongSize,
    NoSize,
}

/// A recorded request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// `hub` or `bytes`.
    pub(crate) port: &'static str,
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
}

#[derive(Debug)]
struct State {
    files: BTreeMap<String, Vec<u8>>,
    faults: VecDeque<Fault>,
    says: Says,
    etag: String,
    asked: Vec<Asked>,
    bytes_port: u16,
}

#[derive(Clone, Debug)]
pub(crate) struct TestHub {
    state: Arc<Mutex<State>>,
    port: u16,
}

impl TestHub {
    /// Starts a hub with these files in `lab/models-GGUF`.
    pub(crate) fn start(files: &[(&str, Vec<u8>)], says: Says, faults: &[Fault]) -> Self {
        let hub = TcpListener::bind("127.0.0.1:0").unwrap();
        let bytes = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = State {
            files: files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect(),
            faults: faults.iter().copied().collect(),
            says,
            etag: "\"one\"".to_owned(),
            asked: Vec::new(),
            bytes_port: bytes.local_addr().unwrap().port(),
        };
        let state = Arc::new(Mutex::new(state));
        let port = hub.local_addr().unwrap().port();
        for (listener, name) in [(hub, "hub"), (bytes, "bytes")] {
            let state = Arc::clone(&state);
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let state = Arc::clone(&state);
                    std::thread::spawn(move || serve(stream, name, &state));
                }
            });
        }
        Self { state, port }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state.lock().unwrap().asked.clone()
    }

    /// Replaces the bytes of a file.
    pub(crate) fn change(&self, file: &str, bytes: Vec<u8>) {
        let mut state = self.state.lock().unwrap();
        state.files.insert(file.to_owned(), bytes);
        state.etag = "\"two\"".to_owned();
    }

    pub(crate) fn fail(&self, faults: &[Fault]) {
        self.state.lock().unwrap().faults = faults.iter().copied().collect();
    }
}

const REPOSITORY: &str = "lab/models-GGUF";

fn serve(stream: TcpStream, port: &'static str, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let headers: BTreeMap<_, _> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let line = lines[0].clone();
    let (answer, sleep) = {
        let mut state = state.lock().unwrap();
        state.asked.push(Asked { port, line: line.clone(), headers: headers.clone() });
        answer(&mut state, port, &line, &headers)
    };
    std::thread::sleep(sleep);
    // The client may be gone.
    let _ = stream.write_all(&answer);
}

fn answer(
    state: &mut State,
    port: &str,
    line: &str,
    headers: &BTreeMap<String, String>,
) -> (Vec<u8>, Duration) {
    let now = Duration::ZERO;
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let path = target.split('?').next().unwrap();
    if path == format!("/api/models/{REPOSITORY}/tree/main") {
        // Two pages.
        let names: Vec<_> = state.files.keys().collect();
        let (first, second) = names.split_at(names.len() / 2);
        let last = target.contains("cursor");
        let page = if last { second } else { first };
        let entries: Vec<_> = page
            .iter()
            .map(|name| serde_json::json!({"type": "file", "path": name, "size": 1}))
            .chain([serde_json::json!({"type": "directory", "path": "x.gguf"})])
            .collect();
        let body = serde_json::to_string(&entries).unwrap();
        let next = format!("Link: <{path}?recursive=true&cursor=2>; rel=\"next\"\r\n");
        let link = if last { "" } else { &next };
        return (whole("200 OK", link, body.as_bytes()), now);
    }
    let file = path.split_once("/resolve/").and_then(|(repository, rest)| {
        let (_, file) = rest.split_once('/')?;
        (repository == format!("/{REPOSITORY}")).then_some(file)
    });
    let file = if port == "bytes" { path.strip_prefix("/blob/") } else { file };
    let Some((file, bytes)) = file.and_then(|file| Some((file, state.files.get(file)?.clone())))
    else {
        return (whole("404 Not Found", "", b""), now);
    };
    let linked = state.says != Says::Plain && state.says != Says::NoSize;
    if port == "hub" && linked {
        let mut sum = Sha256::default();
        sum.update(if state.says == Says::WrongSum { b"x" } else { &bytes });
        let size = bytes.len() + if state.says == Says::WrongSize { 7 } else { 0 };
        let head = format!(
            "Location: http://127.0.0.1:{}/blob/{file}\r\nX-Linked-Size: {size}\r\nX-Linked-ETag: \"{}\"\r\n\
             X-Repo-Commit: {}\r\n",
            state.bytes_port,
            sum.finish(),
            "c0ffee".repeat(7).get(..40).unwrap(),
        );
        return (whole("302 Found", &head, b""), now);
    }
    let etag = format!("ETag: {}\r\n", state.etag);
    if method == "HEAD" {
        let length = if state.says == Says::NoSize {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", bytes.len())
        };
        let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{etag}{length}\r\n");
        return (head.into_bytes(), now);
    }
    let from = headers.get("range").and_then(|range| {
        let range = range.strip_prefix("bytes=")?.strip_suffix('-')?;
        range.parse::<usize>().ok()
    });
    let same = headers.get("if-range").is_none_or(|tag| *tag == state.etag);
    let from = from.filter(|_| same);
    let total = bytes.len();
    let ranged = |from: usize, total: u64, bytes: &[u8]| {
        let last = bytes.len() - 1;
        let range = format!("{etag}Content-Range: bytes {from}-{last}/{total}\r\n");
        whole("206 Partial Content", &range, &bytes[from..])
    };
    let sent = match from {
        Some(from) if from >= total => whole("416 Range Not Satisfiable", "", b""),
        Some(from) => ranged(from, total as u64, &bytes),
        None => whole("200 OK", &etag, &bytes),
    };
    match state.faults.pop_front() {
        None => (sent, now),
        Some(Fault::Cut(count)) => {
            let body = sent.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
            (sent[..(body + count).min(sent.len())].to_vec(), now)
        }
        Some(Fault::Status(status, more)) => (whole(&format!("{status} No"), more, b""), now),
        Some(Fault::Silence) => (Vec::new(), Duration::from_secs(5)),
        Some(Fault::Whole) => (whole("200 OK", &etag, &bytes), now),
        Some(Fault::Length(length)) => {
            let head =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
            ([head.as_bytes(), &bytes].concat(), now)
        }
        Some(Fault::Endless) => {
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
            ([head.as_bytes(), &bytes, &bytes].concat(), now)
        }
        Some(Fault::Elsewhere) => (ranged(from.unwrap_or(0) + 1, total as u64, &bytes), now),
        Some(Fault::Garbled) => {
            let other: Vec<u8> = bytes.iter().map(|byte| byte ^ 1).collect();
            (whole("200 OK", &etag, &other), now)
        }
        Some(Fault::Total(total)) => (ranged(from.unwrap_or(0), total, &bytes), now),
    }
}

fn whole(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}
