//! `heddle app-server` over its pipes: whole conversations with the built binary.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stdx::lines::LINE_BYTES_MAX;
use testkit::{Lab, ModelServer, script};

use crate::BINARY;
use crate::run::lab_for;

/// Time limit for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client with its own server.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    next_id: u64,
}

impl Client {
    fn start(lab: &Lab, env: &[(&str, &str)]) -> Self {
        let mut command = lab.command(BINARY);
        command.envs(env.iter().copied()).args(["app-server", "-s", "danger-full-access"]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or_else(|_| json!({"raw": line}));
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, next_id: 0 }
    }

    pub(crate) fn initialized(lab: &Lab, env: &[(&str, &str)]) -> Self {
        let mut client = Self::start(lab, env);
        let info = json!({"name": "tests", "version": "1.0"});
        client.ask("initialize", json!({"clientInfo": info})).unwrap();
        client.write(r#"{"method":"initialized"}"#);
        client
    }

    fn write(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.write(&json!({"id": id, "method": method, "params": params}).to_string());
        id
    }

    /// Sends a request and skips everything before its response.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        loop {
            let mut line = self.next();
            if line["id"] == id {
                return match line.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(line["result"].take()),
                };
            }
        }
    }

    #[track_caller]
    fn next(&self) -> Value {
        self.lines.recv_timeout(PATIENCE).expect("the server says something")
    }

    /// Waits for a notification; returns it, and a short form of everything before it.
    fn until(&self, method: &str) -> (Value, Vec<String>) {
        let mut seen = Vec::new();
        loop {
            let line = self.next();
            seen.push(short(&line));
            if line["method"] == method {
                return (line, seen);
            }
        }
    }

    pub(crate) fn start_thread(&mut self) -> String {
        let thread = self.ask("thread/start", json!({"approvalPolicy": "never"})).unwrap();
        thread["thread"]["id"].as_str().unwrap().to_owned()
    }

    fn say(&mut self, thread: &str, text: &str) -> Result<Value, Value> {
        let input = json!([{"type": "text", "text": text}]);
        self.ask("turn/start", json!({"threadId": thread, "input": input}))
    }

    /// Runs a turn to its end.
    pub(crate) fn turn(&mut self, thread: &str, text: &str) -> Value {
        self.say(thread, text).unwrap();
        self.until("turn/completed").0["params"]["turn"].clone()
    }

    /// Runs a turn to its end; returns all notifications of it.
    pub(crate) fn told_in_turn(&mut self, thread: &str, text: &str) -> Vec<Value> {
        self.say(thread, text).unwrap();
        let mut told = Vec::new();
        loop {
            told.push(self.next());
            if told.last().is_some_and(|line| line["method"] == "turn/completed") {
                return told;
            }
        }
    }

    /// Closes stdin; returns how long the program took to exit successfully.
    fn end(mut self) -> Duration {
        drop(self.stdin.take());
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert_eq!(status.code(), Some(0));
                return began.elapsed();
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // This fails only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn short(line: &Value) -> String {
    let params = &line["params"];
    match line["method"].as_str() {
        None => format!("answer {}", line["id"]),
        Some("thread/status/changed") => {
            format!("status {}", params["status"]["type"].as_str().unwrap())
        }
        Some(method @ ("item/started" | "item/completed")) => {
            format!("{method} {}", params["item"]["type"].as_str().unwrap())
        }
        Some(method) => method.to_owned(),
    }
}

fn answers(texts: &[&str]) -> ModelServer {
    let entries = texts.iter().map(|text| script::response(script::deltas([*text])));
    ModelServer::start(entries.collect()).unwrap()
}

/// A model that starts to answer and then hangs.
fn slow() -> ModelServer {
    let mut events = script::deltas(["one"]);
    let last = events.pop().unwrap();
    events.push(script::after_ms(60_000, last));
    ModelServer::start(json!([script::response(events)])).unwrap()
}

fn logs(lab: &Lab, folder: &str) -> usize {
    fn count(path: &std::path::Path) -> usize {
        let Ok(entries) = std::fs::read_dir(path) else { return 0 };
        let entries = entries.map(|entry| entry.unwrap().path());
        entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
    }
    count(&lab.home.path().join(folder))
}

/// Follows the recording of the reference: a turn, a fork, archiving the source, the turns of the fork.
#[test]
fn a_fork_outlives_its_source() {
    let server = answers(&["one", "two"]);
    let lab = lab_for(&server);
    let mut client = Client::initialized(&lab, &[]);
    let source = client.start_thread();
    assert_eq!(logs(&lab, "sessions"), 0);
    let begun = client.say(&source, "q1").unwrap();
    let (completed, seen) = client.until("turn/completed");
    assert_eq!(
        seen,
        [
            "thread/started",
            "status active",
            "turn/started",
            "item/started userMessage",
            "item/completed userMessage",
            "item/started agentMessage",
            "item/agentMessage/delta",
            "item/completed agentMessage",
            "thread/tokenUsage/updated",
            "status idle",
            "turn/completed",
        ][1..]
    );
    let turn = &completed["params"]["turn"];
    assert_eq!(turn["id"], begun["turn"]["id"]);
    assert_eq!(turn["items"][0]["text"], "one");

    let fork = json!({"threadId": source, "excludeTurns": true});
    let forked = client.ask("thread/fork", fork).unwrap();
    assert_eq!(forked["thread"]["forkedFromId"], source);
    let fork = forked["thread"]["id"].as_str().unwrap();
    client.ask("thread/archive", json!({"threadId": source})).unwrap();
    assert_eq!(client.until("thread/archived").1, ["thread/archived"]);
    assert_eq!((logs(&lab, "sessions"), logs(&lab, "archived_sessions")), (1, 1));
    let page = client.ask("thread/turns/list", json!({"threadId": fork})).unwrap();
    let items = &page["data"][0]["items"];
    // The same turn and the same items as were seen live.
    assert_eq!((&page["data"][0]["id"], &items[1]["id"]), (&turn["id"], &turn["items"][0]["id"]));
    assert_eq!((&items[0]["content"][0]["text"], &items[1]["text"]), (&json!("q1"), &json!("one")));

    let refused = client.ask("thread/resume", json!({"threadId": source})).unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("thread/unarchive"), "{refused}");
    let back = client.ask("thread/unarchive", json!({"threadId": source})).unwrap();
    assert_eq!(
        (&back["thread"]["preview"], &back["thread"]["status"]["type"]),
        (&json!("q1"), &json!("notLoaded"))
    );
    // The fork continues with what it has.
    assert_eq!(client.turn(fork, "q2")["items"][0]["text"], "two");
    let sent = server.requests().last().unwrap().body["input"].to_string();
    assert!(sent.contains("q1") && sent.contains("one") && sent.contains("q2"), "{sent}");
    client.end();
}

#[test]
fn a_thread_is_loaded_again() {
    let server = answers(&["one", "two"]);
    let lab = lab_for(&server);
    let mut client = Client::initialized(&lab, &[]);
    let id = client.start_thread();
    client.turn(&id, "q1");
    client.end();

    let mut client = Client::initialized(&lab, &[]);
    let read = client.ask("thread/read", json!({"threadId": id, "includeTurns": true})).unwrap();
    assert_eq!(read["thread"]["turns"][0]["items"][1]["text"], "one");
    assert_eq!(read["thread"]["originator"], "tests");
    let resumed = client.ask("thread/resume", json!({"threadId": id})).unwrap();
    assert_eq!(resumed["thread"]["turns"][0]["itemsView"], "full");
    assert_eq!(client.turn(&id, "q2")["status"], "completed");
    let page = json!({"threadId": id, "limit": 1});
    let page = client.ask("thread/turns/list", page).unwrap();
    assert_eq!(page["data"][0]["items"][1]["text"], "two");
    let next = json!({"threadId": id, "cursor": page["nextCursor"]});
    let next = client.ask("thread/turns/list", next).unwrap();
    assert_eq!(
        (next["data"][0]["items"][1]["text"].as_str(), &next["nextCursor"]),
        (Some("one"), &Value::Null)
    );
    client.end();
}

/// A picture of one pixel, and its bytes as text.
const DOT: (&[u8], &str) = (
    b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\
      \x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\x0dIDATx\xdacd\xf8\xcfP\x0f\x00\x03\x86\x01\
      \x80Z4}k\x00\x00\x00\x00IEND\xaeB`\x82",
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
);

/// Follows the recording of the reference (`app_turn_input_kinds`): what the user gave is shown as they gave
/// it, by this process and by the next one; the model gets the text and the pictures.
#[test]
fn input_of_every_kind_survives() {
    let server = answers(&["one", "two"]);
    let lab = lab_for(&server);
    let (path, url) =
        (lab.workspace.path().join("a.png"), format!("data:image/png;base64,{}", DOT.1));
    std::fs::write(&path, DOT.0).unwrap();
    let element = json!({"byteRange": {"start": 0, "end": 4}, "placeholder": "[x]"});
    let content = json!([
        {"type": "text", "text": "look", "text_elements": [element]},
        {"type": "localImage", "detail": null, "path": path},
        {"type": "image", "url": url, "detail": null},
        {"type": "mention", "name": "a", "path": "/a.txt"},
    ]);
    let mut client = Client::initialized(&lab, &[]);
    let id = client.start_thread();
    let params = json!({"threadId": id, "input": content, "clientUserMessageId": "mine"});
    client.ask("turn/start", params).unwrap();
    let (begun, _) = client.until("item/started");
    let (done, _) = client.until("item/completed");
    let said = &done["params"]["item"];
    assert_eq!((&said["content"], &said["clientId"]), (&content, &json!("mine")));
    assert_eq!(begun["params"]["item"]["content"], content);
    client.until("turn/completed");
    let sent = server.requests().last().unwrap().body["input"].clone();
    let parts = &sent.as_array().unwrap().last().unwrap()["content"];
    let image = |detail: &[&str]| {
        let mut image = json!({"type": "input_image", "image_url": url});
        detail.iter().for_each(|detail| image["detail"] = json!(detail));
        image
    };
    let label = format!("<image name=[Image #1] path=\"{}\">", path.display());
    assert_eq!(
        *parts,
        json!([
            {"type": "input_text", "text": "look"},
            {"type": "input_text", "text": label},
            image(&["high"]),
            {"type": "input_text", "text": "</image>"},
            image(&[]),
        ])
    );
    let steps = [json!({"type": "skill", "name": "s", "path": "/s"})];
    let refused = client.ask("turn/start", json!({"threadId": id, "input": steps})).unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("no skills yet"), "{refused}");
    let mention = [&content[3]];
    let refused = client.ask("turn/start", json!({"threadId": id, "input": mention})).unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("input is empty"), "{refused}");
    client.end();

    let mut client = Client::initialized(&lab, &[]);
    let read = client.ask("thread/read", json!({"threadId": id, "includeTurns": true})).unwrap();
    assert_eq!(read["thread"]["turns"][0]["items"][0], *said);
    assert_eq!(read["thread"]["preview"], "look");
    client.ask("thread/resume", json!({"threadId": id})).unwrap();
    assert_eq!(client.turn(&id, "and now?")["status"], "completed");
    let again = server.requests().last().unwrap().body["input"].to_string();
    assert!(again.contains(&parts.to_string()), "{again}");
    client.end();
}

#[test]
fn garbage_does_not_end_the_connection() {
    let server = answers(&["one"]);
    let lab = lab_for(&server);
    let mut client = Client::start(&lab, &[]);
    let code = |refused: Result<Value, Value>| refused.unwrap_err()["code"].as_i64().unwrap();
    assert_eq!(code(client.ask("thread/start", json!({}))), -32600);
    let info = json!({"clientInfo": {"name": "tests", "version": "1.0"}});
    client.ask("initialize", info.clone()).unwrap();
    assert_eq!(code(client.ask("initialize", info)), -32600);
    let deep = "[".repeat(200_000);
    let long = format!("\"{}\"", "x".repeat(LINE_BYTES_MAX + 1));
    for line in ["", "[]", "{", "\u{0}", "null", r#"{"id":null,"method":"x"}"#, &deep, &long] {
        client.write(line);
    }
    let deep =
        format!(r#"{{"id":77,"method":"thread/start","params":{deep}{}}}"#, "]".repeat(200_000));
    client.write(&deep);
    client.write(&format!(r#"{{"id":76,"method":"thread/start","params":{{"x":{long}}}}}"#));
    // The line that is too long has no id; the others above are passed over.
    for id in [Value::Null, json!(77), json!(76)] {
        let refused = client.next();
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&id, &json!(-32600)), "{refused}");
    }
    for (method, params, want) in [
        ("no/such", json!({}), -32600),
        ("thread/list", json!({"cursor": "nope"}), -32600),
        ("thread/start", json!([]), -32600),
        ("thread/start", json!({"approvalPolicy": "always"}), -32600),
        ("thread/start", json!({"cwd": "/no/such/directory"}), -32600),
        ("thread/start", json!({"config": {"model": 3}}), -32600),
        ("thread/read", json!({"threadId": "nope"}), -32600),
        ("thread/resume", json!({"threadId": "01a1e059-0000-7000-8000-000000000000"}), -32600),
        ("thread/archive", json!({"threadId": "01a1e059-0000-7000-8000-000000000000"}), -32600),
        (
            "turn/start",
            json!({"threadId": "01a1e059-0000-7000-8000-000000000000", "input": []}),
            -32600,
        ),
    ] {
        assert_eq!(code(client.ask(method, params.clone())), want, "{method} {params}");
    }
    let id = client.start_thread();
    assert_eq!(client.turn(&id, "still there?")["status"], "completed");
    client.end();
}

#[test]
fn a_turn_is_interrupted() {
    let server = slow();
    let lab = lab_for(&server);
    let mut client = Client::initialized(&lab, &[]);
    let id = client.start_thread();
    let turn = client.say(&id, "go").unwrap()["turn"]["id"].clone();
    client.until("item/agentMessage/delta");
    let joined = client.say(&id, "more").unwrap();
    assert_eq!(joined["turn"]["id"], turn, "what is said meanwhile is added");
    let wrong =
        json!({"threadId": id, "expectedTurnId": "x", "input": [{"type": "text", "text": "y"}]});
    let refused = client.ask("turn/steer", wrong).unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("but found"), "{refused}");
    client.ask("turn/interrupt", json!({"threadId": id, "turnId": turn})).unwrap();
    let (completed, seen) = client.until("turn/completed");
    assert_eq!(completed["params"]["turn"]["status"], "interrupted");
    // What was added is kept; nothing else is told before the end.
    let added = ["item/started userMessage", "item/completed userMessage"];
    assert_eq!(seen[seen.len() - 2..], ["status idle", "turn/completed"]);
    assert!(seen[..seen.len() - 2].is_empty() || seen[..seen.len() - 2] == added, "{seen:?}");
    let refused = client.ask("turn/interrupt", json!({"threadId": id, "turnId": turn}));
    assert_eq!(refused.unwrap_err()["message"], "no active turn to interrupt");
    client.end();
}

#[test]
fn two_threads_run_at_once() {
    let server = slow();
    let lab = lab_for(&server);
    let mut client = Client::initialized(&lab, &[]);
    let (first, second) = (client.start_thread(), client.start_thread());
    client.say(&first, "go").unwrap();
    client.until("item/agentMessage/delta");
    client.say(&second, "go").unwrap();
    let (delta, _) = client.until("item/agentMessage/delta");
    assert_eq!(delta["params"]["threadId"], second);
    // Archiving a thread ends its turn; the other one continues.
    client.send("thread/archive", json!({"threadId": first}));
    let (archived, seen) = client.until("thread/archived");
    assert_eq!(archived["params"]["threadId"], first);
    assert_eq!(
        seen,
        [
            "status idle",
            "turn/completed",
            "status notLoaded",
            &format!("answer {}", client.next_id),
            "thread/archived"
        ]
    );
    client.end();
}

#[test]
fn the_end_of_stdin_ends_turns_and_releases_threads() {
    let server = slow();
    let lab = lab_for(&server);
    let mut client = Client::initialized(&lab, &[]);
    let id = client.start_thread();
    client.say(&id, "go").unwrap();
    client.until("item/agentMessage/delta");

    // Another process uses it in the meantime.
    let mut other = Client::initialized(&lab, &[]);
    let refused = other.ask("thread/resume", json!({"threadId": id})).unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("in use by"), "{refused}");
    let refused = other.ask("thread/archive", json!({"threadId": id})).unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("in use by"), "{refused}");

    // Sooner than the forced exit.
    assert!(client.end() < Duration::from_millis(2500));
    let resumed = other.ask("thread/resume", json!({"threadId": id})).unwrap();
    assert_eq!(resumed["thread"]["turns"][0]["status"], "interrupted");
    other.end();
}

/// A client that reads until a turn is running, and then never again. Its stderr is never read at all.
struct Deaf {
    child: Child,
    stdin: Option<ChildStdin>,
    _stdout: BufReader<std::process::ChildStdout>,
    thread: String,
}

impl Deaf {
    fn start(lab: &Lab) -> Self {
        let mut command = lab.command(BINARY);
        command.args(["app-server", "--write-timeout", "1", "-s", "danger-full-access"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stdin = child.stdin.take().unwrap();
        let mut until = |wanted: &str| loop {
            let mut line = String::new();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "no {wanted}");
            if line.contains(wanted) {
                return serde_json::from_str::<Value>(&line).unwrap();
            }
        };
        let info = json!({"name": "deaf", "version": "1.0"});
        let hello = json!({"id": 1, "method": "initialize", "params": {"clientInfo": info}});
        let start = json!({"id": 2, "method": "thread/start", "params": {}});
        let ready = json!({"method": "initialized"});
        writeln!(stdin, "{hello}\n{ready}\n{start}").unwrap();
        let thread = until("\"id\":2")["result"]["thread"]["id"].as_str().unwrap().to_owned();
        let input = json!([{"type": "text", "text": "go"}]);
        let params = json!({"threadId": thread, "input": input});
        writeln!(stdin, "{}", json!({"id": 3, "method": "turn/start", "params": params})).unwrap();
        until("item/agentMessage/delta");
        Self { child, stdin: Some(stdin), _stdout: stdout, thread }
    }

    /// Waits for the end; the log must contain the end of the turn.
    #[track_caller]
    fn ends(mut self, lab: &Lab, code: i32) {
        let status = crate::run::until("the end of the server", || self.child.try_wait().unwrap());
        assert_eq!(status.code(), Some(code));
        let mut other = Client::initialized(lab, &[]);
        let resumed = other.ask("thread/resume", json!({"threadId": self.thread})).unwrap();
        assert_eq!(resumed["thread"]["turns"][0]["status"], "interrupted");
        let log = resumed["thread"]["path"].as_str().unwrap().to_owned();
        let log = std::fs::read_to_string(log).unwrap();
        // Written by the process that ended, not reconstructed by the one that found it.
        assert!(log.contains("\"turn_aborted\""), "{log}");
        other.end();
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// However many responses are not read, the server ends, and its turns are interrupted first.
#[test]
fn a_client_that_never_reads_is_dropped() {
    let server = slow();
    let lab = lab_for(&server);
    // One case that fits the queue, and one that does not.
    for requests in [3_000, 200_000] {
        let mut deaf = Deaf::start(&lab);
        let mut stdin = deaf.stdin.take().unwrap();
        let feeder = thread::spawn(move || {
            for id in 10..10 + requests {
                // This fails once the server has ended.
                if writeln!(stdin, r#"{{"id":{id},"method":"no/such"}}"#).is_err() {
                    break;
                }
            }
            stdin
        });
        deaf.ends(&lab, 1);
        drop(feeder.join().unwrap());
    }
}

/// A client that has closed its end and reads nothing gets no more time than any other.
#[test]
fn a_client_that_disconnects_without_reading_ends_the_server() {
    let server = slow();
    let lab = lab_for(&server);
    let mut deaf = Deaf::start(&lab);
    let mut stdin = deaf.stdin.take().unwrap();
    for id in 10..3_000 {
        writeln!(stdin, r#"{{"id":{id},"method":"no/such"}}"#).unwrap();
    }
    drop(stdin);
    let began = Instant::now();
    deaf.ends(&lab, 0);
    assert!(began.elapsed() < PATIENCE);
}

/// Endless garbage is answered or skipped and blocks nothing else, even if stderr is not read.
#[test]
fn endless_garbage_blocks_nothing() {
    let server = answers(&["one"]);
    let lab = lab_for(&server);
    let mut client = Client::initialized(&lab, &[]);
    let id = client.start_thread();
    for round in 0..20_000 {
        client.write(if round % 2 == 0 { "{garbage" } else { "\u{7f}\u{1b}[2J" });
    }
    assert_eq!(client.turn(&id, "still there?")["status"], "completed");
    client.end();
}

/// A client is warned about settings that have no effect.
#[test]
fn settings_without_effect_are_named() {
    let server = answers(&["one"]);
    let lab = lab_for(&server);
    let config = testkit::lab::mock_config(server.port());
    lab.home.write("config.toml", format!("{config}[mcp_servers.x]\ncommand = 'x'\n")).unwrap();
    let mut client = Client::initialized(&lab, &[]);
    client.send("thread/start", json!({}));
    let (warning, _) = client.until("configWarning");
    let summary = warning["params"]["summary"].as_str().unwrap();
    assert!(summary.contains("`mcp_servers`"), "{warning}");
    client.end();
}

/// Turns can have their own schema, which is checked like that of `exec`.
#[test]
fn a_turn_with_a_schema() {
    let server = answers(&["no", r#"{"ok":true}"#, "no", "no", "free"]);
    let lab = lab_for(&server);
    let mut client = Client::initialized(&lab, &[]);
    let id = client.start_thread();
    let schema =
        json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]});
    let mut turn = |schema: Value| {
        let input = json!([{"type": "text", "text": "go"}]);
        let params = json!({"threadId": id, "input": input, "outputSchema": schema});
        client.ask("turn/start", params)?;
        Ok::<_, Value>(client.until("turn/completed").0["params"]["turn"].clone())
    };
    for bad in [json!({"type": "text"}), json!({"$ref": "http://127.0.0.1:9/"}), json!("object")] {
        let refused = turn(bad).unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains("outputSchema: "), "{refused}");
    }
    assert_eq!(turn(schema.clone()).unwrap()["status"], "completed");
    let failed = turn(schema.clone()).unwrap();
    assert_eq!(failed["status"], "failed");
    let why = failed["error"]["message"].as_str().unwrap();
    assert!(why.contains("expected one JSON value") && why.contains("got \"no\""), "{why}");
    assert_eq!(turn(Value::Null).unwrap()["status"], "completed");
    let formats: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.body["text"]["format"]["schema"].clone())
        .collect();
    assert_eq!(formats, [&schema, &schema, &schema, &schema, &Value::Null].map(Clone::clone));
}

/// A call that the endpoint ran is an item for clients, live and when the thread is read again.
#[test]
fn a_call_that_the_endpoint_ran_is_an_item() {
    let output = json!({
        "type": "function_call_output", "call_id": "c1", "output": "hi", "status": "failed",
    });
    let call = script::call("c1", "echo", json!({"msg": "hi"}));
    let answer = script::response([call, script::item(output), script::message("done")]);
    let server = ModelServer::start(json!([answer])).unwrap();
    let lab = lab_for(&server);
    let mut client = Client::initialized(&lab, &[]);
    let thread = client.start_thread();
    client.say(&thread, "go").unwrap();
    let mut seen = Vec::new();
    loop {
        let line = client.next();
        match line["method"].as_str() {
            Some("turn/completed") => break,
            Some("item/started" | "item/completed") => seen.push(line["params"]["item"].clone()),
            _ => {}
        }
    }
    seen.retain(|item| item["type"] == "mcpToolCall");
    let read = client.ask("thread/read", json!({"threadId": thread, "includeTurns": true}));
    let items = read.unwrap()["thread"]["turns"][0]["items"].clone();
    let is_call = |item: &&Value| item["type"] == "mcpToolCall";
    seen.extend(items.as_array().unwrap().iter().filter(is_call).cloned());
    assert_eq!(seen.len(), 3, "{seen:?} {items}");
    for (item, status) in seen.iter().zip(["inProgress", "failed", "failed"]) {
        assert_eq!((&item["id"], &item["server"]), (&json!("c1"), &json!("endpoint")), "{item}");
        assert_eq!((&item["tool"], &item["status"]), (&json!("echo"), &json!(status)), "{item}");
        assert_eq!(item["arguments"], json!({"msg": "hi"}), "{item}");
    }
    for item in &seen[1..] {
        assert_eq!(item["result"]["content"][0]["text"], "hi", "{item}");
        assert_eq!(item["error"]["message"], "hi", "{item}");
    }
    assert_eq!(server.requests().len(), 1);
}

/// JavaScript clients escape unpaired surrogates.
#[test]
fn half_a_surrogate_pair_from_a_client_is_accepted() {
    let answer = script::response([script::message("done")]);
    let server = ModelServer::start(json!([answer])).unwrap();
    let lab = lab_for(&server);
    let mut client = Client::initialized(&lab, &[]);
    let thread = client.start_thread();
    client.write(&format!(
        r#"{{"id":99,"method":"turn/start","params":{{"threadId":"{thread}","input":[{{"type":"text","text":"a\ud800b"}}]}}}}"#
    ));
    let (ended, seen) = client.until("turn/completed");
    assert_eq!(ended["params"]["turn"]["status"], "completed", "{seen:?}");
    assert!(server.requests()[0].body["input"].to_string().contains("a\u{fffd}b"));
}
