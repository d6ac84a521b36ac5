//! Connections, played from scripts.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::lines::Cut;
use crate::message::METHOD_NOT_FOUND;
use crate::wire::Sandbox;

const A: &str = "01a1e055-b282-7523-b985-c798177efe12";

fn id() -> ThreadId {
    A.parse().unwrap()
}

/// A connection, and all of its actions, abbreviated.
struct Play {
    connection: Connection,
    seen: Vec<String>,
    waiting: Vec<RequestId>,
}

impl Play {
    fn new() -> Self {
        let facts = Facts {
            version: "1".into(),
            home: "/h".into(),
            os: "linux".into(),
            arch: "x86_64".into(),
            check_schema: |text| match text.contains("type") {
                true => Ok(()),
                false => Err("no type".to_owned()),
            },
        };
        let mut turns = 0;
        let new_id = Box::new(move || {
            turns += 1;
            format!("turn{turns}")
        });
        let connection = Connection::new(facts, new_id);
        Self { connection, seen: Vec::new(), waiting: Vec::new() }
    }

    fn initialized() -> Self {
        let mut play = Self::new();
        play.say("initialize", json!({"clientInfo": {"name": "c", "version": "2"}}));
        play.seen.clear();
        play
    }

    /// A connection with a loaded thread.
    fn loaded() -> Self {
        let mut play = Self::initialized();
        play.say("thread/start", json!({}));
        play.opened(Loading::Start);
        play.seen.clear();
        play
    }

    fn give(&mut self, input: Input<'_>) {
        self.connection.handle(5000, input);
        while let Some(action) = self.connection.poll() {
            let short = match action {
                Action::Send(line) => short(&serde_json::from_str(&line).unwrap()),
                Action::Note(_) => "note".into(),
                Action::Open { request, loading, .. } => {
                    self.waiting.push(request);
                    let kind = match loading {
                        Loading::Start => "start",
                        Loading::Resume { .. } => "resume",
                        Loading::Fork { .. } => "fork",
                    };
                    format!("OPEN {kind}")
                }
                Action::Read { request, reading, turns, running, .. } => {
                    self.waiting.push(request);
                    format!("READ {reading:?} {turns} {running}")
                }
                Action::List { request, running, .. } => {
                    self.waiting.push(request);
                    format!("LIST {running}")
                }
                Action::Archive { request, .. } => {
                    self.waiting.push(request);
                    "ARCHIVE".into()
                }
                Action::Unarchive { request, .. } => {
                    self.waiting.push(request);
                    "UNARCHIVE".into()
                }
                Action::Run { turn, .. } => format!("RUN {turn}"),
                Action::Interrupt(_) => "INTERRUPT".into(),
                Action::Close(_) => "CLOSE".into(),
                Action::Exit => "EXIT".into(),
            };
            self.seen.push(short);
        }
    }

    fn say(&mut self, method: &str, params: Value) {
        let line = json!({"id": 1, "method": method, "params": params}).to_string();
        self.give(Input::Line(line.as_bytes()));
    }

    fn opened(&mut self, loading: Loading) {
        let thread = Thread { id: A.into(), ..Thread::default() };
        let running =
            ThreadSettings::new("m".into(), "p".into(), "/w".into(), Sandbox::DangerFullAccess);
        let (usage, window, told) = (Usage::default(), None, Vec::new());
        let config_warnings = Vec::new();
        let opened =
            OpenedThread { id: id(), thread, running, usage, window, told, config_warnings };
        let request = self.waiting.pop().unwrap();
        self.give(Input::Opened { request, loading, result: Ok(Box::new(opened)) });
    }

    fn event(&mut self, event: &Event) {
        self.give(Input::Event { thread: id(), event });
    }

    fn turn(&mut self) {
        let input = json!([{"type": "text", "text": "hi"}]);
        self.say("turn/start", json!({"threadId": A, "input": input}));
    }

    /// Compares the actions since the last check.
    #[track_caller]
    fn check(&mut self, want: &[&str]) {
        assert_eq!(std::mem::take(&mut self.seen), want);
    }
}

fn short(line: &Value) -> String {
    match (line["method"].as_str(), line.get("error")) {
        (Some("thread/status/changed"), _) => {
            format!("status {}", line["params"]["status"]["type"].as_str().unwrap())
        }
        (Some("turn/completed"), _) => {
            format!("turn/completed {}", line["params"]["turn"]["status"].as_str().unwrap())
        }
        (Some(method), _) => method.into(),
        (None, Some(error)) => {
            format!("{} {}", error["code"], error["message"].as_str().unwrap())
        }
        (None, None) => "ok".into(),
    }
}

const COMPLETED: Event = Event::TurnCompleted {
    usage: Usage {
        input_tokens: 1,
        cached_input_tokens: 0,
        cache_write_input_tokens: 0,
        output_tokens: 1,
        reasoning_output_tokens: 0,
    },
    turn_usage: Usage {
        input_tokens: 1,
        cached_input_tokens: 0,
        cache_write_input_tokens: 0,
        output_tokens: 1,
        reasoning_output_tokens: 0,
    },
    at_ms: 0,
};

#[test]
fn initialize_must_come_first() {
    let mut play = Play::new();
    play.say("thread/start", json!({}));
    play.say("no/such", json!({}));
    play.say("initialize", json!({}));
    play.check(&[
        "-32600 Not initialized",
        "-32600 Not initialized",
        "-32600 Invalid request: missing field `clientInfo`",
    ]);
    for name in ["", "a\nb", "é", &"a".repeat(CLIENT_BYTES_MAX + 1)] {
        play.say("initialize", json!({"clientInfo": {"name": name, "version": "1"}}));
        let seen = play.seen.pop().unwrap();
        assert!(seen.starts_with("-32600 clientInfo"), "{name:?} {seen}");
    }
    play.say("initialize", json!({"clientInfo": {"name": "c", "version": "2"}}));
    play.say("initialize", json!({"clientInfo": {"name": "c", "version": "2"}}));
    play.check(&["ok", "-32600 Already initialized"]);
    play.give(Input::Line(br#"{"method":"initialized"}"#));
    play.check(&[]);
    play.say("no/such", json!({}));
    assert!(play.seen[0].starts_with(&METHOD_NOT_FOUND.to_string()), "{:?}", play.seen);
}

#[test]
fn messages_that_are_not_requests_are_ignored() {
    let mut play = Play::initialized();
    for line in ["", "[]", "{", r#"{"id":null,"method":"a"}"#, r#"{"id":1,"result":1}"#] {
        play.give(Input::Line(line.as_bytes()));
    }
    play.give(Input::Line(br#"{"method":"unknown"}"#));
    play.check(&["note"; 6]);
}

/// What was wrong, and with which line.
#[test]
fn notes_name_the_line() {
    let mut play = Play::initialized();
    let mut check = |line: &[u8], want: &str| {
        play.connection.handle(0, Input::Line(line));
        let Some(Action::Note(note)) = play.connection.poll() else { panic!("{line:?}") };
        assert!(note.starts_with("skipped a line: ") && note.ends_with(want), "{note}");
        assert!(play.connection.poll().is_none());
    };
    check(b"{this is not json", "; it begins with `{this is not json`");
    check(br#"{"id":1.5,"method":"a"}"#, "string; it begins with `{\"id\":1.5,\"method\":\"a\"}`");
    check(b"\xff\xfe", "; it begins with `\u{fffd}\u{fffd}`");
    check(b"", "line 1 column 0");
    check(&[b'['; 5000], &format!("; it begins with `{}`", "[".repeat(80)));
}

/// Lines over the limit are refused: whoever sent a request waits for a response.
#[test]
fn overlong_lines() {
    let mut play = Play::initialized();
    let mut check = |head: &str, want: Option<Value>| {
        play.connection.handle(0, Input::Overlong(head.as_bytes()));
        let mut actions = Vec::new();
        while let Some(action) = play.connection.poll() {
            actions.push(action);
        }
        assert!(matches!(&actions[0], Action::Note(note) if note.contains(head)), "{actions:?}");
        let sent = actions.get(1).map(|action| match action {
            Action::Send(line) => serde_json::from_str::<Value>(line).unwrap(),
            other => panic!("{other:?}"),
        });
        assert_eq!(sent.as_ref().map(|sent| sent["id"].clone()), want, "{head}");
        if let Some(sent) = sent {
            assert_eq!(sent["error"]["code"], -32600, "{sent}");
        }
    };
    check(r#"{"id":"q","method":"turn/start","params":{"input":"aaa"#, Some(json!("q")));
    check(r#"{"method":"turn/start","params":{"input":"aaa"#, Some(Value::Null));
    check("aaaaaaa", Some(Value::Null));
    check(r#"{"id":3,"result":"aaa"#, None);
}

#[test]
fn a_turn() {
    let mut play = Play::initialized();
    play.say("thread/start", json!({}));
    play.opened(Loading::Start);
    play.check(&["OPEN start", "ok", "thread/started"]);
    play.turn();
    play.check(&["ok", "RUN turn1"]);
    play.event(&Event::TurnStarted { at_ms: 0 });
    play.check(&["status active", "turn/started"]);
    play.turn();
    assert!(play.seen.pop().unwrap().contains("turn1 is running"));
    play.event(&COMPLETED);
    play.check(&["thread/tokenUsage/updated", "status idle", "turn/completed completed"]);
    // Events after the end are ignored.
    play.event(&COMPLETED);
    play.turn();
    play.check(&["ok", "RUN turn2"]);
}

#[test]
fn interruptions() {
    let interrupt = |play: &mut Play, turn: &str| {
        play.say("turn/interrupt", json!({"threadId": A, "turnId": turn}));
    };
    let mut play = Play::loaded();
    interrupt(&mut play, "turn1");
    play.turn();
    interrupt(&mut play, "other");
    interrupt(&mut play, "turn1");
    interrupt(&mut play, "");
    play.check(&[
        "-32600 no active turn to interrupt",
        "ok",
        "RUN turn1",
        "-32600 expected active turn id other but found turn1",
        "ok",
        "INTERRUPT",
        "ok",
        "INTERRUPT",
    ]);
    play.event(&Event::TurnInterrupted { at_ms: 0 });
    play.check(&["status idle", "turn/completed interrupted"]);
}

#[test]
fn an_ephemeral_thread_cannot_be_forked_or_archived() {
    let mut play = Play::loaded();
    let none = format!("-32600 no rollout found for thread id {A}");
    for method in ["thread/fork", "thread/resume", "thread/archive", "thread/turns/list"] {
        play.say(method, json!({"threadId": A}));
        play.check(&[&none]);
    }
    play.say("thread/read", json!({"threadId": A}));
    play.turn();
    play.say("thread/turns/list", json!({"threadId": A}));
    play.say("thread/read", json!({"threadId": A, "includeTurns": true}));
    play.say("thread/resume", json!({"threadId": A}));
    play.say("thread/resume", json!({"threadId": A, "excludeTurns": true}));
    play.say("thread/fork", json!({"threadId": A}));
    play.check(&[
        "ok",
        "ok",
        "RUN turn1",
        "LIST true",
        "READ Show true true",
        "READ Resume true true",
        "ok",
        "OPEN fork",
    ]);
}

#[test]
fn archiving() {
    let mut play = Play::loaded();
    play.turn();
    play.say("thread/archive", json!({"threadId": A}));
    play.say("thread/archive", json!({"threadId": A}));
    play.turn();
    play.event(&Event::TurnInterrupted { at_ms: 0 });
    play.check(&[
        "ok",
        "RUN turn1",
        "INTERRUPT",
        &format!("-32600 thread {A} is being archived"),
        &format!("-32600 thread not found: {A}"),
        "status idle",
        "turn/completed interrupted",
        "CLOSE",
    ]);
    play.give(Input::Closed(id()));
    let request = play.waiting.pop().unwrap();
    play.give(Input::Archived { request, thread: id(), result: Ok(()) });
    play.check(&["status notLoaded", "ARCHIVE", "ok", "thread/archived"]);
    play.say("thread/archive", json!({"threadId": A}));
    let request = play.waiting.pop().unwrap();
    let result = Err(RpcError::internal("no"));
    play.give(Input::Archived { request, thread: id(), result });
    play.check(&["ARCHIVE", "-32603 no"]);
    play.say("thread/unarchive", json!({"threadId": A}));
    let request = play.waiting.pop().unwrap();
    let result = Ok(Box::new(Thread::default()));
    play.give(Input::Read { request, thread: id(), reading: Reading::Unarchive, result });
    play.check(&["UNARCHIVE", "ok", "thread/unarchived"]);
}

#[test]
fn the_end() {
    let mut play = Play::initialized();
    play.give(Input::End);
    play.give(Input::End);
    play.check(&["EXIT"]);

    let mut play = Play::loaded();
    play.turn();
    play.event(&Event::TurnStarted { at_ms: 0 });
    play.seen.clear();
    play.give(Input::End);
    play.turn();
    play.event(&Event::TurnInterrupted { at_ms: 0 });
    play.give(Input::Closed(id()));
    // There is no client to notify.
    play.check(&["INTERRUPT", "CLOSE", "EXIT"]);

    let mut play = Play::initialized();
    play.say("thread/start", json!({}));
    play.give(Input::End);
    play.opened(Loading::Start);
    play.give(Input::Closed(id()));
    play.check(&["OPEN start", "CLOSE", "EXIT"]);
}

#[test]
fn notifications_can_be_left_out() {
    let mut play = Play::new();
    let capabilities = json!({"optOutNotificationMethods": ["thread/started", "no/such"]});
    play.say(
        "initialize",
        json!({"clientInfo": {"name": "c", "version": "2"}, "capabilities": capabilities}),
    );
    play.say("thread/start", json!({}));
    play.opened(Loading::Start);
    play.check(&["ok", "OPEN start", "ok"]);
}

#[test]
fn the_number_of_threads_is_limited() {
    let mut play = Play::initialized();
    for _ in 0..THREADS_MAX {
        play.say("thread/start", json!({}));
    }
    play.check(&["OPEN start"; THREADS_MAX]);
    play.say("thread/start", json!({}));
    assert!(play.seen[0].starts_with("-32600 256 threads"), "{:?}", play.seen);
}

/// A message, or what somebody might take for one.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let value = || {
        prop::sample::select(vec![
            "1",
            "-0",
            "1.5",
            "1e400",
            "null",
            "true",
            "\"x\"",
            "[]",
            "{}",
            "[{}]",
            "\"thread/start\"",
            "\"initialize\"",
            "\"model/list\"",
            "\"\\ud800\"",
            "99999999999999999999",
            "",
        ])
    };
    let key = prop::sample::select(vec!["id", "method", "params", "result", "error", "jsonrpc"]);
    let object = prop::collection::vec((key, value()), 0..5).prop_map(|fields| {
        let fields = fields.iter().map(|(key, value)| format!("\"{key}\":{value}"));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(",")).into_bytes()
    });
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    prop_oneof![bytes, object, value().prop_map(|value| value.as_bytes().to_vec())]
}

proptest! {
    /// Any bytes bring a response, work or a note, and never the end.
    #[test]
    fn no_line_is_passed_over_in_silence(
        texts in prop::collection::vec(line(), 1..8), initialized: bool, limit in 20usize..400,
    ) {
        let mut play = if initialized { Play::initialized() } else { Play::new() };
        let mut lines = crate::lines::Lines::with_limit(limit);
        let mut cuts = lines.push(&texts.join(&b'\n'));
        cuts.extend(lines.finish());
        for cut in &cuts {
            let accepted = match cut {
                Cut::Line(line) => {
                    play.give(Input::Line(line));
                    matches!(Incoming::parse(line), Ok(Incoming::Notification { method }) if method == "initialized")
                }
                Cut::Overlong(head) => {
                    play.give(Input::Overlong(head));
                    false
                }
            };
            prop_assert!(accepted || !play.seen.is_empty(), "{cut:?}");
            prop_assert!(!play.seen.iter().any(|seen| seen == "EXIT"), "{cut:?}");
            play.seen.clear();
        }
    }

    /// In any order of inputs, every request has one response, a turn ends once, and the exit comes when
    /// everything is closed.
    #[test]
    fn any_order(steps in prop::collection::vec(0u8..9, 0..40)) {
        let mut play = Play::loaded();
        let (mut running, mut closing, mut there) = (false, false, true);
        for step in steps {
            match step {
                0 => play.turn(),
                1 => play.say("turn/interrupt", json!({"threadId": A, "turnId": ""})),
                2 => play.say("thread/archive", json!({"threadId": A})),
                3 if running => play.event(&COMPLETED),
                4 if running => play.event(&Event::TurnInterrupted { at_ms: 0 }),
                5 if closing => play.give(Input::Closed(id())),
                6 => play.give(Input::Line(b"{")),
                7 => play.event(&Event::TurnStarted { at_ms: 0 }),
                8 => play.give(Input::End),
                _ => continue,
            }
            running &= !matches!(step, 3 | 4);
            for seen in play.seen.drain(..) {
                match seen.as_str() {
                    "CLOSE" => {
                        prop_assert!(!running && !closing && there);
                        closing = true;
                    }
                    "INTERRUPT" => prop_assert!(running),
                    "EXIT" => prop_assert!(!there || step == 5),
                    run if run.starts_with("RUN") => {
                        prop_assert!(!running && !closing);
                        running = true;
                    }
                    _ => {}
                }
            }
            if step == 5 {
                (closing, there) = (false, false);
            }
        }
    }
}
