//! Streamed text, on real terminals and as JSON lines. The endpoint sends the next part only after the
//! previous one was shown.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use testkit::{Lab, script};

use crate::BINARY;
use crate::run::{Seen, lab, until};

/// An endpoint that sends what the test gives it, when it gives it. `None` ends an answer.
struct Gated {
    port: u16,
    parts: mpsc::Sender<Option<String>>,
}

impl Gated {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (parts, given) = mpsc::channel::<Option<String>>();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if answer(stream.unwrap(), &given).is_none() {
                    return;
                }
            }
        });
        Self { port, parts }
    }

    fn send(&self, events: impl IntoIterator<Item = Value>) {
        let frame =
            |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
        self.parts.send(Some(events.into_iter().map(frame).collect())).unwrap();
    }

    /// Closes the connection.
    fn end(&self) {
        self.parts.send(None).unwrap();
    }
}

/// Answers one request with the given parts; none when there are no more.
fn answer(mut stream: TcpStream, given: &mpsc::Receiver<Option<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).ok()?;
    loop {
        match given.recv().ok()? {
            Some(part) => stream.write_all(part.as_bytes()).ok()?,
            None => return Some(()),
        }
    }
}

/// A terminal: both ends.
fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = open(name, flags, Mode::empty()).unwrap();
    (ours.into(), theirs.into())
}

/// Which streams are the terminal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum On {
    Both,
    Stdout,
    Stderr,
}

struct Watched {
    child: Child,
    screen: std::sync::Arc<Seen>,
    /// The stream that is not a terminal.
    piped: Option<std::sync::Arc<Seen>>,
    endpoint: Gated,
    lab: Lab,
}

impl Watched {
    fn start(on: On, args: &[&str]) -> Self {
        let (endpoint, lab) = (Gated::start(), lab());
        lab.home.write_mock_config(endpoint.port).unwrap();
        let (ours, theirs) = terminal();
        let mut command: Command = lab.command(BINARY);
        command.env("TERM", "dumb").args(["exec"]).args(args).stdin(Stdio::null());
        match on {
            On::Both => command.stdout(theirs.try_clone().unwrap()).stderr(theirs),
            On::Stdout => command.stdout(theirs).stderr(Stdio::piped()),
            On::Stderr => command.stdout(Stdio::piped()).stderr(theirs),
        };
        let mut child = command.spawn().unwrap();
        drop(command);
        let piped = match on {
            On::Both => None,
            On::Stdout => Some(Seen::read(child.stderr.take().unwrap())),
            On::Stderr => Some(Seen::read(child.stdout.take().unwrap())),
        };
        Self { child, screen: Seen::read(ours), piped, endpoint, lab }
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        assert!(self.screen.wait(crate::run::LIMIT, |seen| seen.contains(text)), "{self:?}");
    }

    /// Waits for the end, and returns the exit code and the output.
    #[track_caller]
    fn end(&mut self) -> (Option<i32>, String, String) {
        let status = until("the end of the run", || self.child.try_wait().unwrap());
        let piped = self.piped.as_ref().map(|seen| {
            assert!(seen.wait_end(crate::run::LIMIT));
            seen.text()
        });
        assert!(self.screen.wait_end(crate::run::LIMIT));
        (status.code(), self.screen.text().replace("\r\n", "\n"), piped.unwrap_or_default())
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.screen.text(), self.piped.as_ref().map(|seen| seen.text()))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The events of a message in three parts.
fn hello() -> [Value; 6] {
    let [added, one, two, three, done] =
        script::deltas(["one ", "two ", "three"]).try_into().unwrap();
    [added, one, two, three, done, script::completed(script::Usage::default())]
}

/// Each part is seen before the next is sent, and the whole is shown once, whichever stream is the terminal.
#[test]
fn an_answer_is_shown_as_it_arrives() {
    for on in [On::Both, On::Stdout, On::Stderr] {
        let mut run = Watched::start(on, &["-o", "answer.txt", "hello"]);
        let [added, one, two, three, done, completed] = hello();
        run.endpoint.send([script::created(), added, one]);
        run.wait_for("one ");
        assert!(!run.screen.text().contains("two"), "{run:?}");
        run.endpoint.send([two]);
        run.wait_for("one two ");
        run.endpoint.send([three, done, completed]);
        let (code, screen, piped) = run.end();
        assert_eq!(code, Some(0), "{on:?} {screen} {piped}");
        assert_eq!(screen.matches("one two three\n").count(), 1, "{on:?} {screen}");
        assert_eq!(run.lab.workspace.read("answer.txt").unwrap(), "one two three");
        assert!(!screen.contains('\u{1b}'), "{on:?} {screen}");
        match on {
            On::Both => {}
            // The answer is on the terminal, and stderr does not contain it.
            On::Stdout => {
                assert!(
                    !piped.contains("one") && piped.contains("tokens of this turn:"),
                    "{piped}"
                );
            }
            On::Stderr => assert_eq!(piped, "one two three\n"),
        }
    }
}

/// Text lost with a broken stream is marked, and its replacement is shown from the start.
#[test]
fn a_broken_stream_is_shown_again() {
    let mut run = Watched::start(On::Stderr, &["hello"]);
    let [added, one, two, three, done, completed] = hello();
    run.endpoint.send([script::created(), added.clone(), one.clone()]);
    run.wait_for("one ");
    run.endpoint.end();
    run.wait_for("cut off");
    run.endpoint.send([script::created(), added, one, two, three, done, completed]);
    let (code, screen, piped) = run.end();
    assert_eq!((code, piped.as_str()), (Some(0), "one two three\n"), "{screen}");
    let (before, after) = screen.split_once("cut off").unwrap();
    assert!(before.ends_with("one \n") && after.contains("retrying"), "{screen}");
    assert_eq!(after.matches("one two three\n").count(), 1, "{screen}");
}

/// Nothing that a model writes can control the terminal, however it is chunked.
#[test]
fn parts_cannot_drive_the_terminal() {
    let mut run = Watched::start(On::Both, &["hello"]);
    let mut events = vec![script::created()];
    events.extend(script::deltas(["a\u{1b}", "]0;owned\u{7}", "\u{202e}b\r", "\nc\r", "d"]));
    events.push(script::completed(script::Usage::default()));
    for event in events {
        run.endpoint.send([event]);
    }
    let (code, screen, _) = run.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("a\\u{1b}]0;owned\\u{7}\\u{202e}b\nc\\rd\n"), "{screen}");
    assert!(!screen.contains('\u{1b}') && !screen.contains('\u{202e}'), "{screen}");
}

/// Parts are printed as lines only with the flag, with the id of the whole item.
#[test]
fn parts_as_lines() {
    for wanted in [true, false] {
        let flags: &[&str] =
            if wanted { &["--json", "--include-deltas", "hi"] } else { &["--json", "hi"] };
        let mut run = Watched::start(On::Stderr, flags);
        let [added, one, two, three, done, completed] = hello();
        run.endpoint.send([script::created(), added, one]);
        if wanted {
            let seen = run.piped.as_ref().unwrap();
            let line = r#"{"type":"item.delta","item_id":"item_0","item_type":"agent_message","delta":"one "}"#;
            assert!(seen.wait(crate::run::LIMIT, |seen| seen.contains(line)), "{run:?}");
        }
        run.endpoint.send([two, three, done, completed]);
        let (code, screen, lines) = run.end();
        assert_eq!(code, Some(0), "{screen}");
        let events: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let parts = events.iter().filter(|event| event["type"] == "item.delta");
        let text: String = parts.map(|part| part["delta"].as_str().unwrap()).collect();
        assert_eq!(text, if wanted { "one two three" } else { "" });
        let whole = events.iter().find(|event| event["type"] == "item.completed").unwrap();
        assert_eq!(whole["item"]["id"], "item_0");
        assert!(!screen.contains("one"), "{screen}");
    }
}
