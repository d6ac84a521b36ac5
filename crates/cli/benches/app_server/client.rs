//! Clients that cost as little as possible: what they do not ask for is searched, not parsed.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};
use testkit::Lab;

use crate::Failure;

/// The end of a turn.
const END: &str = "\"turn/completed\"";
const READ_BYTES: usize = 256 * 1024;

/// An app-server, killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    pub(crate) fn on_stdio(binary: &Path, lab: &Lab) -> Result<Self, Failure> {
        let mut command = command(binary, lab);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Ok(Self { child: command.spawn()?, socket: PathBuf::new() })
    }

    pub(crate) fn on_socket(binary: &Path, lab: &Lab) -> Result<Self, Failure> {
        let socket = lab.root().join("s");
        let mut command = command(binary, lab);
        command.arg("--listen").arg(format!("unix://{}", socket.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stderr = child.stderr.take().ok_or("no stderr")?;
        let server = Self { child, socket };
        let mut stderr = BufReader::new(stderr);
        let mut line = String::new();
        while !line.contains("listening on ") {
            line.clear();
            if stderr.read_line(&mut line)? == 0 {
                return Err("the server does not listen".into());
            }
        }
        // So that it can say more.
        std::thread::spawn(move || io::copy(&mut stderr, &mut io::sink()));
        Ok(server)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the client on stdin and stdout.
    pub(crate) fn client(&mut self) -> Result<Client, Failure> {
        let stdin = self.child.stdin.take().ok_or("no stdin")?;
        let stdout = self.child.stdout.take().ok_or("no stdout")?;
        let reader = BufReader::with_capacity(READ_BYTES, stdout);
        Ok(Client { wire: Wire::Lines(stdin, reader), next: 0 })
    }
}

fn command(binary: &Path, lab: &Lab) -> Command {
    let mut command = lab.command(binary);
    command.arg("app-server");
    command
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that waits for each answer.
pub(crate) struct Client {
    wire: Wire,
    next: u64,
}

enum Wire {
    Lines(ChildStdin, BufReader<ChildStdout>),
    Frames(BufReader<UnixStream>),
}

impl Client {
    /// Connects to a server on a socket.
    pub(crate) fn connect(server: &Server) -> Result<Self, Failure> {
        let mut stream = UnixStream::connect(&server.socket)?;
        stream.write_all(UPGRADE)?;
        let mut reader = BufReader::with_capacity(READ_BYTES, stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if !line.contains(" 101 ") {
            return Err(format!("refused: {line}").into());
        }
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
        }
        Ok(Self { wire: Wire::Frames(reader), next: 0 })
    }

    pub(crate) fn introduce(&mut self) -> Result<(), Failure> {
        let who = json!({"name": "bench", "version": "1"});
        self.ask("initialize", &json!({"clientInfo": who})).map(drop)
    }

    pub(crate) fn start_thread(&mut self) -> Result<String, Failure> {
        let settings = json!({"sandbox": "danger-full-access", "approvalPolicy": "never"});
        let started = self.ask("thread/start", &settings)?;
        Ok(started["thread"]["id"].as_str().ok_or("no thread")?.to_owned())
    }

    /// Requests a turn, and does not wait for it.
    pub(crate) fn begin_turn(&mut self, thread: &str) -> Result<(), Failure> {
        let input = json!([{"type": "text", "text": "go"}]);
        self.send("turn/start", &json!({"threadId": thread, "input": input})).map(drop)
    }

    /// Runs a turn; returns how long that took.
    pub(crate) fn turn(&mut self, thread: &str) -> Result<Duration, Failure> {
        let began = Instant::now();
        self.begin_turn(thread)?;
        let mut line = String::new();
        while !line.contains(END) {
            self.line_into(&mut line)?;
        }
        let took = began.elapsed();
        let told: Value = serde_json::from_str(&line)?;
        match told["params"]["turn"]["status"].as_str() {
            Some("completed") => Ok(took),
            _ => Err(format!("the turn did not complete: {line}").into()),
        }
    }

    /// Makes a request and returns its result.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Result<Value, Failure> {
        let id = self.send(method, params)?;
        let mut line = String::new();
        loop {
            self.line_into(&mut line)?;
            let mut message: Value = serde_json::from_str(&line)?;
            if message["id"] != id || !message["method"].is_null() {
                continue;
            }
            return match message.get("error") {
                Some(error) => Err(format!("{method}: {error}").into()),
                None => Ok(message["result"].take()),
            };
        }
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<u64, Failure> {
        self.next += 1;
        let text = json!({"id": self.next, "method": method, "params": params}).to_string();
        match &mut self.wire {
            Wire::Lines(stdin, _) => stdin.write_all(format!("{text}\n").as_bytes())?,
            Wire::Frames(stream) => {
                let mut frame = vec![0x81];
                match u16::try_from(text.len())? {
                    length @ 0..=125 => frame.push(0x80 | length as u8),
                    length => {
                        frame.push(0x80 | 126);
                        frame.extend(length.to_be_bytes());
                    }
                }
                // A mask of zeros leaves the text as it is.
                frame.extend([0; 4]);
                frame.extend(text.as_bytes());
                stream.get_mut().write_all(&frame)?;
            }
        }
        Ok(self.next)
    }

    pub(crate) fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.line_into(&mut line)?;
        Ok(line)
    }

    fn line_into(&mut self, line: &mut String) -> Result<(), Failure> {
        line.clear();
        match &mut self.wire {
            Wire::Lines(_, stdout) => {
                if stdout.read_line(line)? == 0 {
                    return Err("the server has ended".into());
                }
            }
            Wire::Frames(stream) => *line = frame(stream)?,
        }
        Ok(())
    }
}

/// Reads a frame. A server sends no masks, and ours no parts of messages.
fn frame(stream: &mut impl Read) -> Result<String, Failure> {
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    if head[0] != 0x81 {
        return Err(format!("no text, but a frame of kind {:#x}", head[0]).into());
    }
    let length = match head[1] {
        126 => {
            let mut more = [0; 2];
            stream.read_exact(&mut more)?;
            u16::from_be_bytes(more).into()
        }
        127 => {
            let mut more = [0; 8];
            stream.read_exact(&mut more)?;
            u64::from_be_bytes(more)
        }
        length => u64::from(length),
    };
    let mut text = vec![0; usize::try_from(length)?];
    stream.read_exact(&mut text)?;
    Ok(String::from_utf8(text)?)
}

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n\
    upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// More clients that follow a thread.
#[derive(Default)]
pub(crate) struct Followers {
    clients: Vec<BufReader<UnixStream>>,
}

impl Followers {
    pub(crate) fn connect(
        &mut self,
        count: usize,
        server: &Server,
        thread: &str,
    ) -> Result<(), Failure> {
        for _ in 0..count {
            let mut client = Client::connect(server)?;
            client.introduce()?;
            client.ask("thread/resume", &json!({"threadId": thread, "excludeTurns": true}))?;
            let Wire::Frames(stream) = client.wire else { return Err("no socket".into()) };
            self.clients.push(stream);
        }
        Ok(())
    }

    pub(crate) fn disconnect(&mut self, server: &Server) -> Result<(), Failure> {
        self.clients.clear();
        // One that comes later is answered when the server has seen that the others are gone.
        Client::connect(server)?.introduce()
    }

    /// Reads everything of a turn: that of `first`, and then that of the others.
    pub(crate) fn read_turn(&mut self, first: &mut Client) -> Result<(), Failure> {
        let Wire::Frames(first) = &mut first.wire else { return Err("no socket".into()) };
        let mut open: Vec<_> = self
            .clients
            .iter_mut()
            .chain([first])
            .map(|stream| (stream, Vec::<u8>::new()))
            .collect();
        let mut buffer = vec![0; READ_BYTES];
        while !open.is_empty() {
            let ready: Vec<bool> = {
                let flag = |stream: &&mut BufReader<UnixStream>| !stream.buffer().is_empty();
                if open.iter().any(|(stream, _)| flag(stream)) {
                    open.iter().map(|(stream, _)| flag(stream)).collect()
                } else {
                    let mut polled: Vec<_> = open
                        .iter()
                        .map(|(stream, _)| {
                            PollFd::from_borrowed_fd(stream.get_ref().as_fd(), PollFlags::IN)
                        })
                        .collect();
                    poll(&mut polled, None)?;
                    polled.iter().map(|it| !it.revents().is_empty()).collect()
                }
            };
            let mut ready = ready.into_iter();
            let mut problem = None;
            open.retain_mut(|(stream, tail)| {
                if ready.next() != Some(true) {
                    return true;
                }
                match stream.read(&mut buffer) {
                    Ok(0) => problem = Some("a client was disconnected".to_owned()),
                    Ok(length) => {
                        // The words may be in two pieces.
                        tail.extend_from_slice(&buffer[..length]);
                        let found = memmem(tail, END.as_bytes());
                        let keep = tail.len().saturating_sub(END.len());
                        tail.drain(..keep);
                        return !found;
                    }
                    Err(error) => problem = Some(error.to_string()),
                }
                false
            });
            if let Some(problem) = problem {
                return Err(problem.into());
            }
        }
        Ok(())
    }
}

fn memmem(text: &[u8], word: &[u8]) -> bool {
    memchr::memmem::find(text, word).is_some()
}
