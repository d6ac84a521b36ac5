//! The same program over every transport: the library drives this binary, and the published Codex binary.
//!
//! Each check runs one conversation over a transport and compares what the library makes of it: items, answers, tokens, ids.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use heddle::approvals::{Answer, ApprovalFuture, Approver, Question, Subject};
use heddle::error::{ErrorClass, Limit, LimitKind};
use heddle::events::{Event, Item, ItemBody, Review, Status};
use heddle::structured_output::Schema;
use heddle::transport::{AppServer, Exec, Program, ServerAddress};
use heddle::{
    ApprovalPolicy, ErrorKind, Heddle, Input, ReviewTarget, RunLimits, SandboxMode, ThreadSpec,
    TurnLimits,
};
use serde_json::{Value, json};
use testkit::script::{call, deltas, message, response};
use testkit::{Lab, ModelServer};
use tokio::runtime::Runtime;

use crate::run::{lab_for, until};
use crate::{BINARY, interop, npm};

/// A way to run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    InProcess,
    Exec,
    AppServer,
    /// An app-server that is running already.
    Socket,
}

const ALL: [Over; 4] = [Over::InProcess, Over::Exec, Over::AppServer, Over::Socket];
const PROCESSES: [Over; 3] = [Over::Exec, Over::AppServer, Over::Socket];

/// A lab whose model plays `script`, and a way to talk to it.
struct Scene {
    lab: Lab,
    server: ModelServer,
    runtime: Runtime,
    heddle: Heddle,
    _listening: Option<Listening>,
}

/// An app-server on a socket, which is killed when this is dropped.
struct Listening(std::process::Child);

impl Listening {
    fn start(lab: &Lab, binary: &Path) -> (Self, ServerAddress) {
        let path = lab.root().join("app-server.sock");
        let address = format!("unix://{}", path.display());
        let mut command = lab.command(binary);
        command.args(["app-server", "--listen", &address]).stderr(std::process::Stdio::null());
        let started = Self(command.spawn().unwrap());
        until("a socket", || std::os::unix::net::UnixStream::connect(&path).ok());
        (started, address.parse().unwrap())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Scene {
    fn new(over: Over, binary: &Path, script: Value) -> Self {
        let server = ModelServer::start(script).unwrap();
        let lab = lab_for(&server);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut program = Program::new(binary).clear_env();
        let mut heddle = Heddle::builder().home(lab.home.path()).directory(lab.workspace.path());
        for (name, value) in lab.home.env() {
            program = program.var(&name, &value);
            heddle = heddle.var(&name, &value);
        }
        let heddle = heddle.build().unwrap();
        let mut listening = None;
        let heddle = match over {
            Over::Socket => {
                let (started, address) = Listening::start(&lab, binary);
                listening = Some(started);
                let server = runtime.block_on(AppServer::connect(address));
                heddle.over(server.unwrap())
            }
            Over::InProcess => heddle,
            Over::Exec => heddle.over(Exec::new(program)),
            Over::AppServer => {
                let server = runtime.block_on(AppServer::start(program));
                heddle.over(server.unwrap())
            }
        };
        Self { lab, server, runtime, heddle, _listening: listening }
    }

    /// Runs without a sandbox, since a test program in this process has no helper.
    fn spec(&self) -> ThreadSpec {
        ThreadSpec::new().sandbox(SandboxMode::DangerFullAccess)
    }
}

/// A review is the same turn over every transport that has it.
#[test]
fn reviews() {
    with_both(&[Over::InProcess, Over::AppServer], |over, binary| {
        let scene = Scene::new(over, binary, json!([response([message("All is well.")])]));
        scene.runtime.block_on(async {
            let thread = scene.heddle.start(scene.spec()).await.unwrap();
            let blank = ReviewTarget::Custom { instructions: " ".to_owned() };
            assert_eq!(thread.review(blank).err().unwrap().kind(), ErrorKind::Settings);
            let mut turn = thread.review(ReviewTarget::UncommittedChanges).unwrap();
            let mut items = Vec::new();
            while let Some(event) = turn.next().await {
                if let Event::ItemCompleted(Item { body, .. }) = event {
                    items.push(body);
                }
            }
            let result = turn.result().unwrap();
            assert_eq!(result.final_response.as_deref(), Some("All is well."), "{over:?}");
            let [ItemBody::EnteredReview { hint, .. }, .., exited, last] = &items[..] else {
                panic!("{over:?}: {items:?}")
            };
            let review = Review::shown("All is well.".to_owned());
            assert_eq!(
                (hint.as_str(), exited),
                ("current changes", &ItemBody::ExitedReview { review })
            );
            assert_eq!(last, &ItemBody::AgentMessage { text: "All is well.".into() });
        });
    });
}

/// Runs `check` with this binary, and with the published one if it is installed.
fn with_both(over: &[Over], check: impl Fn(Over, &Path)) {
    for &over in over {
        check(over, Path::new(BINARY));
    }
    match interop::codex() {
        Ok(codex) => {
            for &over in over.iter().filter(|over| **over != Over::InProcess) {
                check(over, &codex);
            }
        }
        Err(reason) => npm::skip("transports to Codex", &reason),
    }
}

/// What a person would see of an item.
fn shown(item: &Item) -> String {
    match &item.body {
        ItemBody::AgentMessage { text } => format!("message {text}"),
        ItemBody::Command(command) => {
            format!(
                "command {:?} {:?} {}",
                command.status,
                command.exit_code,
                command.output.trim()
            )
        }
        ItemBody::FileChange { changes, status, .. } => {
            format!("patch {status:?} {}", changes.len())
        }
        ItemBody::Reasoning { summary, .. } => format!("reasoning {}", summary.join("|")),
        body => format!("{body:?}"),
    }
}

#[test]
fn a_turn_is_the_same_over_every_transport() {
    let script = json!([
        response([call("c1", "exec_command", json!({"cmd": "echo out; exit 3"}))]),
        response(deltas(["It ", "failed."])),
    ]);
    with_both(&ALL, |over, binary| {
        let scene = Scene::new(over, binary, script.clone());
        let what = format!("{over:?} {}", binary.display());
        scene.runtime.block_on(async {
            let thread = scene.heddle.start(scene.spec()).await.unwrap();
            let mut turn = thread.turn("go");
            let (mut kinds, mut text) = (Vec::new(), String::new());
            while let Some(event) = turn.next().await {
                match &event {
                    Event::Delta { text: part, .. } => text.push_str(part),
                    Event::TurnStarted { .. } => kinds.push("started"),
                    Event::TurnCompleted { .. } => kinds.push("completed"),
                    _ => {}
                }
            }
            assert_eq!(kinds, ["started", "completed"], "{what}");
            let result = turn.result().unwrap();
            let items: Vec<_> = result.items.iter().map(shown).collect();
            assert_eq!(items, ["command Failed Some(3) out", "message It failed."], "{what}");
            assert_eq!(result.final_response.as_deref(), Some("It failed."), "{what}");
            assert_eq!(result.usage.input_tokens, result.thread_usage.input_tokens, "{what}");
            assert!(result.usage.output_tokens > 0, "{what}: {:?}", result.usage);
            assert_eq!(result.tool_times.len(), 1, "{what}");
            assert!(thread.id().is_some(), "{what}");
            thread.close().await;
        });
    });
}

#[test]
fn threads_go_on_and_fork() {
    let answers = ["one", "two", "three", "four"].map(|text| response([message(text)]));
    with_both(&ALL, |over, binary| {
        let scene = Scene::new(over, binary, json!(answers));
        let what = format!("{over:?} {}", binary.display());
        scene.runtime.block_on(async {
            let thread = scene.heddle.start(scene.spec()).await.unwrap();
            let first = thread.turn("first").run().await.unwrap();
            let second = thread.turn("second").run().await.unwrap();
            assert_eq!(second.usage.input_tokens, first.usage.input_tokens, "{what}");
            let id = thread.id().unwrap();
            thread.close().await;
            drop(thread);
            let spec = ThreadSpec::resume(id).sandbox(SandboxMode::DangerFullAccess);
            let thread = scene.heddle.start(spec).await.unwrap();
            let third = thread.turn("third").run().await.unwrap();
            assert_eq!(third.final_response.as_deref(), Some("three"), "{what}");
            assert_eq!(thread.id(), Some(id), "{what}");
            thread.close().await;
            drop(thread);
            let spec = ThreadSpec::fork(id).sandbox(SandboxMode::DangerFullAccess);
            let fork = scene.heddle.start(spec).await.unwrap();
            let fourth = fork.turn("fourth").run().await.unwrap();
            assert_eq!(fourth.final_response.as_deref(), Some("four"), "{what}");
            assert!(fork.id().is_some_and(|fork| fork != id), "{what}");
        });
        let requests = scene.server.requests();
        let last = requests.last().unwrap().body.to_string();
        for said in ["first", "second", "third", "fourth", "three"] {
            assert!(last.contains(said), "{what}: the history has {said}: {last}");
        }
    });
}

/// The reference does not check answers; then the library does, and over all transports the caller sees the same.
#[test]
fn answers_follow_their_schema() {
    let good = r#"{"ok":true}"#;
    let script = json!(["no", good, r#"{"ok":1}"#].map(|text| response([message(text)])));
    with_both(&ALL, |over, binary| {
        let scene = Scene::new(over, binary, script.clone());
        let what = format!("{over:?} {}", binary.display());
        let schema = Schema::object().field("ok", Schema::boolean());
        let requests = || scene.server.requests().len();
        scene.runtime.block_on(async {
            let thread = scene.heddle.start(scene.spec()).await.unwrap();
            let corrected =
                thread.turn("go").output_schema(schema.clone()).unwrap().run().await.unwrap();
            assert_eq!(corrected.json(), Ok(json!({"ok": true})), "{what}");
            assert_eq!((corrected.usage.input_tokens, requests()), (200, 2), "{what}");
            for (retries, made) in [(Some(0), 3), (None, 5), (Some(2), 8)] {
                let mut turn = thread.turn("again").output_schema(schema.clone()).unwrap();
                turn.set_output_retries(retries);
                let error = turn.run().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Answer, "{what}");
                let says = "at /ok: expected boolean, got 1";
                assert!(error.to_string().contains(says), "{what}: {error}");
                assert_eq!(requests(), made, "{what} {retries:?}");
                assert!(error.so_far().unwrap().final_response.is_some(), "{what}");
            }
        });
        let bodies = scene.server.requests();
        let format = &bodies[0].body["text"]["format"];
        assert_eq!(
            (&format["strict"], &format["schema"]["additionalProperties"]),
            (&json!(true), &json!(false))
        );
        assert!(
            bodies[1].body["input"].to_string().contains("does not follow the schema"),
            "{what}"
        );
    });
}

/// Attached files reach the model over every transport, in the form that the other program has for them.
#[test]
fn files_reach_the_model() {
    let answers = ["one", "two"].map(|text| response([message(text)]));
    with_both(&ALL, |over, binary| {
        let scene = Scene::new(over, binary, json!(answers));
        let what = format!("{over:?} {}", binary.display());
        let heddle = binary == Path::new(BINARY);
        scene.lab.workspace.write("notes, new.md", "# Notes\n").unwrap();
        scene.runtime.block_on(async {
            let files = scene.heddle.files();
            let dot = files.stage_bytes("dot.png", DOT).await.unwrap();
            let thread = scene.heddle.start(scene.spec()).await.unwrap();
            let input = Input::from("see").file("notes, new.md").attachment(&dot);
            let mut turn = thread.turn(input);
            let mut staged = Vec::new();
            while let Some(event) = turn.next().await {
                if let Event::FileStaged { file, reused } = event {
                    staged.push((file.name, reused));
                }
            }
            turn.result().unwrap();
            let want = [("notes, new.md".to_owned(), false), ("dot.png".to_owned(), false)];
            assert_eq!(staged, want, "{what}");
            let paper = files.stage_bytes("paper.pdf", "%PDF-1.7 paper").await.unwrap();
            let result = thread.turn(Input::from("and").attachment(&paper)).run().await;
            let taken = match over {
                Over::InProcess => true,
                Over::Exec => heddle,
                Over::AppServer | Over::Socket => false,
            };
            match (result, taken) {
                (Ok(result), true) => assert_eq!(result.final_response.as_deref(), Some("two")),
                (Err(error), false) => {
                    assert!(error.to_string().starts_with("a PDF cannot be used over"), "{error}");
                }
                (result, _) => panic!("{what}: {result:?}"),
            }
            let requests = scene.server.requests();
            assert_eq!(
                requests.len(),
                if taken { 2 } else { 1 },
                "{what}: refused before anything"
            );
            let first = requests[0].body["input"].to_string();
            let text = r"[attached file notes, new.md]\n```\n# Notes\n```";
            assert_eq!(first.matches(text).count(), 1, "{what}: {first}");
            assert_eq!(first.matches("data:image/png;base64,").count(), 1, "{what}: {first}");
            if taken {
                let last = requests[1].body["input"].to_string();
                assert!(last.contains(r#""filename":"paper.pdf""#), "{what}: {last}");
            }
            thread.close().await;
        });
    });
}

/// A picture with one pixel.
const DOT: [u8; 70] = *b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\xdacd\xf8\xcfP\x0f\0\x03\x86\x01\x80Z4}k\0\0\0\0IEND\xaeB`\x82";

/// An approver that answers every question in the same way, and remembers them.
#[derive(Clone)]
struct Says(Answer, Arc<Mutex<Vec<Question>>>);

impl Approver for Says {
    fn ask(&self, question: Question) -> ApprovalFuture<'_> {
        self.1.lock().unwrap().push(question);
        Box::pin(std::future::ready(self.0.clone()))
    }
}

#[test]
fn an_approver_is_asked_through_the_server() {
    let script = json!([
        response([call(
            "c1",
            "exec_command",
            json!({
                "cmd": "touch made",
                "sandbox_permissions": "require_escalated",
                "justification": "May I?",
            })
        )]),
        response([message("Asked.")]),
    ]);
    with_both(&[Over::AppServer, Over::Socket], |over, binary| {
        for (answer, made) in [(Answer::Accept, true), (Answer::Decline, false)] {
            ask_through(Scene::new(over, binary, script.clone()), &answer, made);
        }
    });
}

/// Runs a turn with a command that asks; compares what comes of the answer.
fn ask_through(scene: Scene, answer: &Answer, made: bool) {
    let says = Says(answer.clone(), Arc::default());
    let spec = ThreadSpec::new()
        .sandbox(SandboxMode::WorkspaceWrite)
        .approval_policy(ApprovalPolicy::OnRequest)
        .approver(says.clone());
    scene.runtime.block_on(async {
        let thread = scene.heddle.start(spec).await.unwrap();
        let mut turn = thread.turn("go");
        let (mut asked, mut resolved) = (0, 0);
        while let Some(event) = turn.next().await {
            match event {
                Event::ApprovalRequested { item, .. } => {
                    assert!(item.is_some(), "the item that waits was started");
                    asked += 1;
                }
                Event::ApprovalResolved { .. } => resolved += 1,
                _ => {}
            }
        }
        assert_eq!((asked, resolved), (1, 1), "{answer:?}");
        let result = turn.result().unwrap();
        let command = result.items.iter().find_map(|item| match &item.body {
            ItemBody::Command(command) => Some(command.status),
            _ => None,
        });
        let want = if made { Status::Completed } else { Status::Declined };
        assert_eq!(command, Some(want), "{answer:?}");
    });
    let questions = says.1.lock().unwrap();
    let Subject::Command { argv, .. } = &questions[0].request.subject else { panic!() };
    assert!(argv.join(" ").contains("touch made"), "{argv:?}");
    assert_eq!(scene.lab.workspace.path().join("made").exists(), made, "{answer:?}");
}

/// A turn whose command runs until somebody ends it.
fn long_turn() -> Value {
    json!([
        response([call("c1", "exec_command", json!({"cmd": "touch began; sleep 60"}))]),
        response([message("Too late.")]),
    ])
}

/// Polls `turn` until its command has begun.
async fn until_it_runs(turn: &mut heddle::Turn) {
    while let Some(event) = turn.next().await {
        if let Event::ItemStarted(Item { body: ItemBody::Command(_), .. }) = event {
            return;
        }
    }
    panic!("the turn ended without a command");
}

#[test]
fn an_interrupted_turn_says_so_and_the_thread_goes_on() {
    with_both(&ALL, |over, binary| {
        let scene = Scene::new(over, binary, long_turn());
        let what = format!("{over:?} {}", binary.display());
        scene.runtime.block_on(async {
            let thread = scene.heddle.start(scene.spec()).await.unwrap();
            let mut turn = thread.turn("go");
            until_it_runs(&mut turn).await;
            turn.handle().interrupt();
            let mut last = None;
            while let Some(event) = turn.next().await {
                last = Some(event);
            }
            assert!(matches!(last, Some(Event::TurnInterrupted { .. })), "{what}: {last:?}");
            let error = turn.result().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Interrupted, "{what}: {error:?}");
            assert_eq!(error.thread_id(), thread.id(), "{what}");
            let next = thread.turn("again").run().await.unwrap();
            assert_eq!(next.final_response.as_deref(), Some("Too late."), "{what}");
        });
    });
}

#[test]
fn a_dropped_turn_is_interrupted_and_the_thread_goes_on() {
    with_both(&PROCESSES, |over, binary| {
        let scene = Scene::new(over, binary, long_turn());
        let what = format!("{over:?} {}", binary.display());
        scene.runtime.block_on(async {
            let thread = scene.heddle.start(scene.spec()).await.unwrap();
            let mut turn = thread.turn("go");
            until_it_runs(&mut turn).await;
            drop(turn);
            // The id of a thread over exec is known from the turn that was dropped.
            assert!(thread.id().is_some(), "{what}");
            let next = thread.turn("again").run().await.unwrap();
            assert_eq!(next.final_response.as_deref(), Some("Too late."), "{what}");
        });
    });
}

/// Limits end turns over every transport, and what was done before is in the next request.
#[test]
fn turns_end_at_their_limits_and_the_next_goes_on() {
    let step = |id: &str, cmd: &str| call(id, "exec_command", json!({ "cmd": cmd }));
    let calls = json!([
        response([step("c1", "echo c1 ran")]),
        // Another program may be done before it is interrupted.
        response([step("c2", "sleep 1")]),
        response([message("Done.")]),
        response([message("Done.")]),
    ]);
    let none = TurnLimits::new();
    let cases = [
        (calls.clone(), none.calls(1), LimitKind::Calls, 1),
        (calls.clone(), none.requests(1), LimitKind::Requests, 1),
        (calls, none.tokens(1), LimitKind::Tokens, 1),
        (long_turn(), none.time(Duration::from_secs(2)), LimitKind::Time, 2_000),
    ];
    for (script, limits, kind, value) in cases {
        with_both(&ALL, |over, binary| {
            let what = format!("{kind:?} {over:?} {}", binary.display());
            let scene = Scene::new(over, binary, script.clone());
            scene.runtime.block_on(async {
                let thread = scene.heddle.start(scene.spec()).await.unwrap();
                let error = thread.turn("go").limits(limits).run().await.unwrap_err();
                let is_counted = matches!(kind, LimitKind::Tokens | LimitKind::Requests);
                if over == Over::Exec && binary != Path::new(BINARY) && is_counted {
                    return assert_eq!(error.kind(), ErrorKind::Unsupported, "{what}: {error:?}");
                }
                assert_eq!(error.kind(), ErrorKind::Limit, "{what}: {error:?}");
                assert_eq!(error.limit(), Some(Limit { kind, value }), "{what}: {error:?}");
                assert_eq!(error.thread_id(), thread.id(), "{what}");
                let next = thread.turn("again").run().await;
                let next = next.unwrap_or_else(|error| panic!("{what}: {error:?}"));
                assert!(next.final_response.is_some(), "{what}");
            });
            let requests = scene.server.requests();
            let output = if kind == LimitKind::Time { "again" } else { "c1 ran" };
            assert!(
                requests.last().is_none_or(|it| it.body.to_string().contains(output)),
                "{what}"
            );
        });
    }
}

/// What an endpoint says of a failure reaches the host program over every transport of ours.
#[test]
fn failures_say_the_same_over_every_transport() {
    let refused = json!([{
        "status": 401,
        "headers": {"x-request-id": "req_7"},
        "body": {"error": {"message": "bad key"}},
    }]);
    for over in ALL {
        let scene = Scene::new(over, Path::new(BINARY), refused.clone());
        scene.runtime.block_on(async {
            let thread = scene.heddle.start(scene.spec()).await.unwrap();
            let error = thread.turn("go").run().await.unwrap_err();
            let kind = ErrorKind::Model(ErrorClass::Credentials);
            assert_eq!((error.kind(), error.attempts()), (kind, 1), "{over:?}: {error:?}");
            assert_eq!(error.request_id(), Some("req_7"), "{over:?}");
            assert!(!error.is_retryable(), "{over:?}");
        });
    }
}

/// A turn that fails has used what it has used, in all of this binary's transports, and the next one has not.
#[test]
fn tokens_of_a_failed_turn_are_its_own_over_every_transport() {
    let script = json!([
        response([call("c1", "exec_command", json!({"cmd": "true"}))]),
        {"status": 401, "body": {"error": {"message": "bad key"}}},
        response([message("Done.")]),
    ]);
    for over in ALL {
        let scene = Scene::new(over, Path::new(BINARY), script.clone());
        scene.runtime.block_on(async {
            let thread = scene.heddle.start(scene.spec()).await.unwrap();
            let mut turn = thread.turn("go");
            let mut told = None;
            while let Some(event) = turn.next().await {
                if let Event::TurnFailed { error, .. } = event {
                    told = error.usage;
                }
            }
            let failed = turn.result().unwrap_err().into_so_far().unwrap();
            let answered = thread.turn("go on").run().await.unwrap();
            // Each answer of the script takes as many.
            assert!(failed.usage.total_tokens() > 0, "{over:?}");
            assert_eq!(failed.usage, answered.usage, "{over:?}");
            assert_eq!(told.unwrap().turn, failed.usage, "{over:?}");
            assert_eq!(told.unwrap().thread, failed.thread_usage, "{over:?}");
            let both = failed.usage.total_tokens() + answered.usage.total_tokens();
            assert_eq!(answered.thread_usage.total_tokens(), both, "{over:?}");
        });
    }
}

/// So it is with one that is interrupted, here at a limit of time, which nobody but the library counts over exec.
#[test]
fn tokens_of_an_interrupted_turn_are_its_own() {
    for over in [Over::InProcess, Over::Exec] {
        let scene = Scene::new(over, Path::new(BINARY), long_turn());
        scene.runtime.block_on(async {
            let thread = scene.heddle.start(scene.spec()).await.unwrap();
            let limits = TurnLimits::new().time(Duration::from_secs(2));
            let error = thread.turn("go").limits(limits).run().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Limit, "{over:?}: {error:?}");
            let ended = error.into_so_far().unwrap();
            let answered = thread.turn("again").run().await.unwrap();
            // Each answer of the script takes as many.
            assert!(ended.usage.total_tokens() > 0, "{over:?}");
            assert_eq!(ended.usage, answered.usage, "{over:?}");
        });
    }
}

/// A run goes on over turns that end at a limit, and adds them up.
#[test]
fn runs_over_every_transport() {
    let step = |id: &str| call(id, "exec_command", json!({"cmd": format!("echo {id} ran")}));
    let script = json!([
        response([step("c1")]),
        response([step("c2")]),
        response([step("c3")]),
        response([message("Done.")]),
    ]);
    with_both(&ALL, |over, binary| {
        let what = format!("{over:?} {}", binary.display());
        let scene = Scene::new(over, binary, script.clone());
        scene.runtime.block_on(async {
            let thread = scene.heddle.start(scene.spec()).await.unwrap();
            let limits = RunLimits::new().turns(9).time(Duration::from_secs(120));
            let run = thread.run("go").turn_limits(TurnLimits::new().calls(1)).limits(limits);
            let run = run.await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
            assert!(run.turns.len() >= 2 && run.turns.len() <= 4, "{what}: {}", run.turns.len());
            assert_eq!(run.final_response(), Some("Done."), "{what}");
            let usage: u64 = run.turns.iter().map(|turn| turn.usage.total_tokens()).sum();
            assert_eq!(usage, run.usage.total_tokens(), "{what}");
        });
        let last = scene.server.requests().last().unwrap().body.to_string();
        assert!(last.contains("c1 ran") && last.contains("Go on."), "{what}: {last}");
    });
}
