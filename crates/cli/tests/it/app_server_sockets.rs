//! Clients that connect to an app-server: several at once, some of them slow, gone, or not allowed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use testkit::ModelServer;
use testkit::script::{after_ms, call, deltas, message, response};
use tokio::net::UnixStream;
use tokio_tungstenite::tungstenite::Error;

use crate::BINARY;
use crate::app_server_client::{Client, Server, scene};
use crate::run::{LIMIT, lab_for, until};

/// Two clients see the same turn, and each has its own view of everything else.
#[test]
fn two_clients_follow_one_thread() {
    let (_model, lab, server, runtime) = scene(json!([response(deltas(["Hello ", "there."]))]));
    runtime.block_on(async {
        let (mut ann, mut ben) =
            (Client::unix(&server, "ann").await, Client::unix(&server, "ben").await);
        let thread = ann.start_thread(json!({})).await;
        assert_eq!(ben.told("thread/started").await["thread"]["id"], thread);
        // Nothing of it is on disk.
        let early = ben.ask("thread/resume", json!({"threadId": thread})).await;
        assert!(early["message"].as_str().unwrap().starts_with("no rollout found"), "{early}");
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        let resumed = ben.ask("thread/resume", json!({"threadId": thread})).await;
        assert_eq!(resumed["thread"]["turns"].as_array().unwrap().len(), 1, "{resumed}");
        ben.say(&thread).await;
        for client in [&mut ann, &mut ben] {
            assert_eq!(client.told("turn/completed").await["turn"]["status"], "completed");
        }
        // The second client is told who was the first.
        let mut late = Client::over(
            Box::new(UnixStream::connect(server.unix()).await.unwrap()),
            "localhost",
            &[],
        )
        .await
        .unwrap();
        let user_agent = late.introduce("zoe").await["userAgent"].clone();
        assert!(user_agent.as_str().unwrap().starts_with("ann/0.166.0 "), "{user_agent}");
        let status = ben.ask("thread/unsubscribe", json!({"threadId": thread})).await;
        assert_eq!(status["status"], "unsubscribed");
        let loaded = late.ask("thread/loaded/list", json!({})).await;
        assert_eq!(loaded["data"], json!([thread]));
    });
    assert_eq!(server.terminate(), 0);
    assert!(!lab.root().join("s").exists(), "the socket is removed");
}

/// A question goes to all who follow; the first answer counts, and who comes later is asked, too.
#[test]
fn a_question_is_answered_once() {
    let ask = json!({
        "cmd": "echo ran >> ran.txt",
        "sandbox_permissions": "require_escalated",
        "justification": "May I?",
    });
    let (_model, lab, server, runtime) = scene(json!([
        response([message("Ready.")]),
        response([call("c1", "exec_command", ask)]),
        response([message("Done.")]),
    ]));
    const ASK: &str = "item/commandExecution/requestApproval";
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let settings = json!({"sandbox": "read-only", "approvalPolicy": "on-request"});
        let thread = ann.start_thread(settings).await;
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        let mut ben = Client::unix(&server, "ben").await;
        ben.ask("thread/resume", json!({"threadId": thread, "excludeTurns": true})).await;
        ann.say(&thread).await;
        let first = ann.until(|it| it["method"] == ASK).await;
        let second = ben.until(|it| it["method"] == ASK).await;
        assert_eq!(first, second);
        assert!(first["params"]["command"].as_str().unwrap().contains("echo ran"), "{first}");
        // Nobody answers who was not asked, introduced or not.
        let accept = json!({"id": first["id"], "result": {"decision": "accept"}});
        let mut eve = Client::unix(&server, "eve").await;
        eve.send(accept.clone()).await;
        let stream = UnixStream::connect(server.unix()).await.unwrap();
        let mut stranger = Client::over(Box::new(stream), "localhost", &[]).await.unwrap();
        stranger.send(accept.clone()).await;
        stranger.introduce("stranger").await;
        eve.ask("thread/loaded/list", json!({})).await;
        let status =
            eve.ask("thread/read", json!({"threadId": thread})).await["thread"]["status"].clone();
        assert_eq!(status["activeFlags"], json!(["waitingOnApproval"]));
        // One client vanishes while it is asked; another one comes.
        drop(ann);
        let mut zoe = Client::unix(&server, "zoe").await;
        zoe.ask("thread/resume", json!({"threadId": thread, "excludeTurns": true})).await;
        assert_eq!(zoe.until(|it| it["method"] == ASK).await["id"], first["id"]);
        ben.send(accept.clone()).await;
        for client in [&mut ben, &mut zoe] {
            assert_eq!(client.told("serverRequest/resolved").await["requestId"], first["id"]);
        }
        zoe.send(json!({"id": first["id"], "result": {"decision": "decline"}})).await;
        zoe.send(accept).await;
        let completed = zoe.told("turn/completed").await;
        assert_eq!(completed["turn"]["status"], "completed");
    });
    assert_eq!(lab.workspace.read("ran.txt").unwrap(), "ran\n");
}

/// With nobody left to answer, a question is a refusal, and the turn goes on without its clients.
#[test]
fn a_question_that_nobody_can_answer_is_refused() {
    let ask = json!({
        "cmd": "echo ran > ran.txt",
        "sandbox_permissions": "require_escalated",
        "justification": "May I?",
    });
    let (model, lab, server, runtime) =
        scene(json!([response([call("c1", "exec_command", ask)]), response([message("Done.")]),]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let settings = json!({"sandbox": "read-only", "approvalPolicy": "on-request"});
        let thread = ann.start_thread(settings).await;
        ann.say(&thread).await;
        ann.until(|it| it["method"] == "item/commandExecution/requestApproval").await;
        drop(ann);
        until("the second request", || (model.requests().len() == 2).then_some(()));
        let mut ben = Client::unix(&server, "ben").await;
        until_idle(&mut ben, &thread).await;
        let read = ben.ask("thread/read", json!({"threadId": thread, "includeTurns": true})).await;
        assert_eq!(read["thread"]["turns"][0]["status"], "completed", "{read}");
    });
    assert!(lab.workspace.read("ran.txt").is_err(), "it ran");
}

/// Waits until no turn of a thread is running.
async fn until_idle(client: &mut Client, thread: &str) {
    until_read(client, thread, |read| read["status"]["type"] == "idle").await;
}

/// Waits until a thread, as it is read with its turns, fits.
async fn until_read(client: &mut Client, thread: &str, fits: impl Fn(&Value) -> bool) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let read =
            client.ask("thread/read", json!({"threadId": thread, "includeTurns": true})).await;
        if fits(&read["thread"]) {
            return;
        }
        assert!(Instant::now() < deadline, "{read}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// What is added to a turn after its last request is said in a turn of its own.
#[test]
fn nothing_that_was_accepted_is_lost() {
    let (model, _lab, server, runtime) = scene(json!([response(deltas(["one"]))]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        for round in 0..20 {
            ann.seen.clear();
            ann.say(&thread).await;
            ann.until(|it| {
                it["method"] == "item/completed" && it["params"]["item"]["type"] == "agentMessage"
            })
            .await;
            let text = format!("late {round}");
            let input = json!([{"type": "text", "text": text}]);
            let late = ann.ask("turn/start", json!({"threadId": thread, "input": input})).await;
            assert_eq!(late["turn"]["status"], "inProgress", "{late}");
            // However many turns that takes. Between two of them the thread is idle, so that alone tells nothing.
            until_read(&mut ann, &thread, |read| {
                read["status"]["type"] == "idle" && read.to_string().contains(&text)
            })
            .await;
        }
    });
    let last = model.requests().last().unwrap().body["input"].to_string();
    assert!(last.contains("late 0") && last.contains("late 19"), "{last}");
}

/// A command that the user runs in a thread is a turn of its own, which the model reads about in the next one.
#[test]
fn commands_of_the_user() {
    let (model, lab, server, runtime) = scene(json!([response([message("I see.")])]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        // The sandbox is the model's.
        let thread = ann.start_thread(json!({"sandbox": "read-only"})).await;
        let run = |command: &str| json!({"threadId": thread, "command": command});
        let empty = ann.ask("thread/shellCommand", run(" ")).await;
        assert_eq!(empty["code"], -32600, "{empty}");
        assert_eq!(
            ann.ask("thread/shellCommand", run("echo made | tee made.txt")).await,
            json!({})
        );
        let begun = ann.told("item/started").await["item"].clone();
        let ended = ann.told("item/completed").await["item"].clone();
        for (item, status) in [(&begun, "inProgress"), (&ended, "completed")] {
            assert_eq!((&item["source"], &item["status"]), (&json!("userShell"), &json!(status)));
        }
        assert_eq!((&ended["exitCode"], &ended["aggregatedOutput"]), (&json!(0), &json!("made\n")));
        assert_eq!(ann.told("turn/completed").await["turn"]["status"], "completed");
        // One turn at a time; an interruption ends the command.
        ann.ask("thread/shellCommand", run("touch begun.txt; sleep 1000")).await;
        until("the command", || lab.workspace.read("begun.txt").ok());
        let busy = ann.ask("thread/shellCommand", run("true")).await;
        assert!(busy["message"].as_str().unwrap().contains("is running"), "{busy}");
        ann.ask("turn/interrupt", json!({"threadId": thread, "turnId": ""})).await;
        assert_eq!(ann.told("turn/completed").await["turn"]["status"], "interrupted");
        let timed = json!({"threadId": thread, "command": "sleep 1000", "timeoutMs": 50});
        ann.ask("thread/shellCommand", timed).await;
        assert_eq!(ann.told("turn/completed").await["turn"]["status"], "completed");
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        let read = ann.ask("thread/read", json!({"threadId": thread, "includeTurns": true})).await;
        let turns = &read["thread"]["turns"];
        assert_eq!(turns[0]["items"][0], ended, "as it was live");
        assert_eq!(turns.as_array().unwrap().len(), 4, "{turns}");
        assert_eq!(read["thread"]["preview"], "go");
    });
    let input = model.requests()[0].body["input"].to_string();
    for words in
        ["<user_shell_command>", "made", "aborted by user", "Ended by its timeout of 0.05 s"]
    {
        assert!(input.contains(words), "{words}: {input}");
    }
    assert_eq!(lab.workspace.read("made.txt").unwrap(), "made\n");
}

/// A compaction takes no input: the user would get no answer to it.
#[test]
fn nothing_is_added_to_a_compaction() {
    let (_model, _lab, server, runtime) = scene(json!([
        response([message("Hello.")]),
        response([after_ms(600_000, message("A summary."))]),
    ]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        ann.ask("thread/compact/start", json!({"threadId": thread})).await;
        let turn = ann.told("turn/started").await;
        ann.told("turn/started").await;
        let refused = ann.say(&thread).await;
        assert!(refused["message"].as_str().unwrap().contains("compacted"), "{refused} {turn}");
        ann.ask("turn/interrupt", json!({"threadId": thread, "turnId": ""})).await;
        ann.until(|it| it["params"]["turn"]["status"] == "interrupted").await;
    });
}

/// The last turns of a thread can be taken out of it; it stays loaded, and its clients go on following it.
#[test]
fn a_thread_is_reverted() {
    let (model, _lab, server, runtime) = scene(json!([response([message("Hello.")])]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        let early =
            ann.ask("thread/revert", json!({"threadId": thread, "beforeTurnId": "t"})).await;
        assert!(early["message"].as_str().unwrap().starts_with("no rollout found"), "{early}");
        let mut turns = Vec::new();
        for text in ["one", "two", "three"] {
            let input = json!([{"type": "text", "text": text}]);
            let begun = ann.ask("turn/start", json!({"threadId": thread, "input": input})).await;
            turns.push(begun["turn"]["id"].clone());
            ann.told("turn/completed").await;
        }
        ann.seen.clear();
        let revert = |turn: &Value| json!({"threadId": thread, "beforeTurnId": turn});
        let unknown = ann.ask("thread/revert", revert(&json!("nope"))).await;
        assert_eq!(unknown["message"], "turn not found: nope");
        let statuses = |client: &Client| {
            let statuses = client.seen.iter().filter(|it| it["method"] == "thread/status/changed");
            statuses.map(|it| it["params"]["status"]["type"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(statuses(&ann), ["notLoaded", "idle"]);
        let reverted = ann.ask("thread/revert", revert(&turns[1])).await;
        assert_eq!(reverted["thread"]["status"]["type"], "idle", "{reverted}");
        assert_eq!(ann.told("thread/reverted").await["threadId"], *thread);
        let list =
            |cursor: &Value| json!({"threadId": thread, "cursor": cursor, "sortDirection": "asc"});
        let last = ann.ask("thread/turns/list", list(&reverted["turnsBackwardsCursor"])).await;
        assert_eq!(last["data"][0]["id"], turns[0], "{last}");
        let last = ann.ask("thread/items/list", list(&reverted["itemsBackwardsCursor"])).await;
        assert_eq!(last["data"][0]["item"]["text"], "Hello.", "{last}");
        ann.say(&thread).await;
        assert_eq!(ann.told("turn/completed").await["turn"]["status"], "completed");
    });
    let input = model.requests()[3].body["input"].to_string();
    let said = |text: &str| input.contains(&format!("{text:?}"));
    assert!(said("one") && said("go") && !said("two"), "{input}");
}

/// Items of a client are part of the history, at once and after the thread was closed.
#[test]
fn items_are_injected() {
    let (model, lab, server, runtime) = scene(json!([response([message("Hello.")])]));
    let said = |text: &str| json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        let inject = |items: Value| json!({"threadId": thread, "items": items});
        for (items, words) in [
            (json!([]), "must not be empty"),
            (json!([said("x"), 1]), "items[1] is not a valid"),
            (json!([{"role": "user"}]), "items[0] is not a valid"),
        ] {
            let refused = ann.ask("thread/inject_items", inject(items)).await;
            assert!(refused["message"].as_str().unwrap().contains(words), "{refused}");
        }
        // An output without its call would make every later request fail.
        let orphan = json!({"type": "function_call_output", "call_id": "c9", "output": "orphan"});
        let items = json!([said("first"), {"type": "hologram", "x": 1}, orphan]);
        assert_eq!(ann.ask("thread/inject_items", inject(items)).await, json!({}));
        let warning = ann.told("warning").await;
        assert!(warning["message"].as_str().unwrap().contains("output"), "{warning}");
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        ann.ask("thread/inject_items", inject(json!([said("second")]))).await;
        assert_eq!(server.terminate(), 0);
        let socket = format!("unix://{}", lab.root().join("s2").display());
        let server = Server::start(&lab, &["--listen", &socket]);
        let mut ben = Client::unix(&server, "ben").await;
        ben.ask("thread/resume", json!({"threadId": thread})).await;
        ben.say(&thread).await;
        ben.told("turn/completed").await;
    });
    for (request, words) in [(0, &["first"][..]), (1, &["first", "second"])] {
        let input = model.requests()[request].body["input"].to_string();
        assert!(words.iter().all(|word| input.contains(word)), "{input}");
        assert!(!input.contains("orphan"), "{input}");
    }
}

/// What was said is found: in all threads, in one, and by the ids of items.
#[test]
fn words_are_found() {
    let (_model, _lab, server, runtime) =
        scene(json!([response([message("A heron stood there.")])]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        let turn = ann.say(&thread).await["turn"]["id"].clone();
        ann.told("turn/completed").await;
        let found = ann.ask("thread/search", json!({"searchTerm": "heron"})).await;
        assert_eq!(found["data"][0]["thread"]["id"], *thread, "{found}");
        assert_eq!(found["data"][0]["thread"]["status"]["type"], "idle");
        assert!(found["data"][0]["snippet"].as_str().unwrap().contains("heron"));
        let term = |term: &str| json!({"threadId": thread, "searchTerm": term});
        let places = ann.ask("thread/searchOccurrences", term("HERON")).await["data"].clone();
        assert_eq!(places[0]["turnId"], turn, "{places}");
        assert_eq!(places[0]["snippetMatchRange"], json!({"start": 2, "end": 7}));
        let ids = [places[0]["itemId"].clone(), json!("nope")];
        let asked = json!({"threadId": thread, "turnId": turn, "itemIds": ids});
        let items = ann.ask("thread/items/read", asked).await["data"].clone();
        assert_eq!(items.as_array().unwrap().len(), 1, "{items}");
        assert_eq!(items[0]["item"]["text"], "A heron stood there.");
        let cursor = places[0]["turnCursor"].clone();
        let list = json!({"threadId": thread, "cursor": cursor, "limit": 1});
        assert_eq!(ann.ask("thread/turns/list", list).await["data"][0]["id"], turn);
        for method in ["thread/search", "thread/searchOccurrences"] {
            let empty = ann.ask(method, term(" ")).await;
            let words = format!("{method} requires a non-empty searchTerm");
            assert_eq!(empty["message"], *words);
        }
    });
}

/// Commands that the model has left running are listed, and can be ended.
#[test]
fn commands_in_the_background() {
    let run =
        |file: &str| json!({"cmd": format!("touch {file}; sleep 1000"), "yield_time_ms": 250});
    let (_model, lab, server, runtime) = scene(json!([
        response([call("c1", "exec_command", run("a")), call("c2", "exec_command", run("b"))]),
        response([message("They run.")]),
    ]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        let of = json!({"threadId": thread});
        let list = ann.ask("thread/backgroundTerminals/list", of.clone()).await["data"].clone();
        assert_eq!(list.as_array().unwrap().len(), 2, "{list}");
        assert_eq!((&list[0]["itemId"], &list[1]["itemId"]), (&json!("c1"), &json!("c2")));
        assert!(list[0]["command"].as_str().unwrap().contains("touch a"), "{list}");
        let end = |process: &Value| json!({"threadId": thread, "processId": process});
        let method = "thread/backgroundTerminals/terminate";
        for (process, terminated) in [(&list[0]["processId"], true), (&json!("x"), false)] {
            assert_eq!(ann.ask(method, end(process)).await, json!({"terminated": terminated}));
        }
        assert_eq!(ann.ask("thread/backgroundTerminals/clean", of.clone()).await, json!({}));
        let deadline = Instant::now() + LIMIT;
        while ann.ask("thread/backgroundTerminals/list", of.clone()).await["data"] != json!([]) {
            assert!(Instant::now() < deadline, "they still run");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(lab.workspace.read("b").is_ok());
}

/// What the model has left running ends when the thread enters plan mode; the sandbox of the settings applies again after it, and
/// a thread that is loaded again is in its last mode.
#[test]
fn plan_mode_ends_commands_and_keeps_settings() {
    let run = json!({"cmd": "while :; do echo x >> grows; sleep 0.01; done", "yield_time_ms": 250});
    let write = |file: &str| call("c2", "exec_command", json!({"cmd": format!("echo x > {file}")}));
    let (_model, lab, server, runtime) = scene(json!([
        response([call("c1", "exec_command", run)]),
        response([message("It runs.")]),
        response([write("planned")]),
        response([message("Planned.")]),
        response([write("planned")]),
        response([message("Planned again.")]),
        response([write("done")]),
        response([message("Done.")]),
    ]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({"sandbox": "workspace-write"})).await;
        let of = json!({"threadId": thread});
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        assert!(lab.workspace.read("grows").is_ok(), "the command runs");
        let turn = |mode: &str| {
            json!({
                "threadId": thread, "input": [{"type": "text", "text": "go"}],
                "collaborationMode": {"mode": mode, "settings": {
                    "model": "gpt-5.5", "reasoning_effort": null, "developer_instructions": null,
                }},
            })
        };
        ann.ask("turn/start", turn("plan")).await;
        ann.told("turn/completed").await;
        let grown = lab.workspace.read("grows").unwrap();
        let list = ann.ask("thread/backgroundTerminals/list", of.clone()).await["data"].clone();
        assert_eq!(list, json!([]));
        ann.ask("thread/archive", of.clone()).await;
        ann.ask("thread/unarchive", of.clone()).await;
        let opened = ann.ask("thread/resume", of.clone()).await;
        assert_eq!(opened["sandbox"]["type"], "workspaceWrite", "{opened}");
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        assert_eq!(lab.workspace.read("grows").unwrap(), grown, "it still runs");
        assert!(lab.workspace.read("planned").is_err(), "written in plan mode");
        ann.ask("turn/start", turn("default")).await;
        ann.told("turn/completed").await;
    });
    assert_eq!(lab.workspace.read("done").unwrap(), "x\n");
}

/// A client that was away gets what it has missed, and nothing twice.
#[test]
fn a_client_catches_up() {
    let texts: Vec<String> = (0..400).map(|word| format!("{word} ")).collect();
    let (_model, _lab, server, runtime) = scene(json!([
        response([message("Ready.")]),
        response(deltas(texts.iter().map(String::as_str).collect::<Vec<_>>())),
    ]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        let mut ben = Client::unix(&server, "ben").await;
        let resumed = ben.ask("thread/resume", json!({"threadId": thread})).await;
        let before = resumed["heddleSeq"].as_u64().unwrap();
        ann.say(&thread).await;
        // One client leaves in the middle of the answer.
        let (mut read, mut last) = (String::new(), Value::Null);
        while !read.contains("17 ") {
            let part = ben.until(|it| it["method"] == "item/agentMessage/delta").await;
            read += part["params"]["delta"].as_str().unwrap();
            last = part["heddleSeq"].clone();
        }
        drop(ben);
        ann.told("turn/completed").await;
        let mut ben = Client::unix(&server, "ben").await;
        let since = |number: &Value| json!({"threadId": thread, "since": number});
        let missed = ben.ask("thread/events", since(&last)).await;
        assert_eq!(missed["isComplete"], true, "{missed}");
        let events = missed["data"].as_array().unwrap();
        let text: String = events.iter().filter_map(|it| it["params"]["delta"].as_str()).collect();
        assert_eq!(read + &text, texts.concat());
        assert_eq!(events.last().unwrap()["method"], "turn/completed");
        assert_eq!(events.last().unwrap()["heddleSeq"], missed["lastSeq"]);
        let all = ben.ask("thread/events", since(&json!(before))).await;
        assert_eq!(all["data"][0]["method"], "turn/started", "{all}");
        let older = ben.ask("thread/events", since(&json!(before - 1000))).await;
        assert_eq!(older["isComplete"], false);
    });
}

/// The diff of a turn is all that its patches have changed: git can take it back.
#[test]
fn the_diff_of_a_turn() {
    let patch = |lines: &str| json!({"cmd": format!("apply_patch <<'EOF'\n*** Begin Patch\n{lines}*** End Patch\nEOF")});
    let first = "*** Update File: a.txt\n@@\n one\n-two\n+TWO\n*** Add File: d/new.txt\n+n\n";
    let second = "*** Update File: a.txt\n@@\n-one\n+ONE\n TWO\n*** Update File: old.txt\n\
                  *** Move to: moved.txt\n@@\n-x\n+y\n*** Delete File: gone.txt\n";
    let (_model, lab, server, runtime) = scene(json!([
        response([call("p1", "exec_command", patch(first))]),
        response([call("p2", "exec_command", patch(second))]),
        response([message("Done.")]),
    ]));
    let before = [("a.txt", "one\ntwo\n"), ("old.txt", "x\n"), ("gone.txt", "g\n")];
    for (path, text) in before {
        lab.workspace.write(path, text).unwrap();
    }
    let diff = runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        let diffs: Vec<_> =
            ann.seen.iter().filter(|it| it["method"] == "turn/diff/updated").cloned().collect();
        // After each patch, and at the end.
        assert_eq!(diffs.len(), 3, "{diffs:#?}");
        diffs[2]["params"]["diff"].as_str().unwrap().to_owned()
    });
    assert!(lab.workspace.read("moved.txt").is_ok() && lab.workspace.read("gone.txt").is_err());
    let file = lab.root().join("turn.diff");
    // The newest part first, as a file can have several.
    let mut parts: Vec<String> = diff.split("diff --git ").skip(1).map(str::to_owned).collect();
    parts.reverse();
    for part in parts {
        std::fs::write(&file, format!("diff --git {part}")).unwrap();
        let mut git = std::process::Command::new("git");
        git.args(["apply", "-R"]).arg(&file).current_dir(lab.workspace.path());
        let done = git.output().unwrap();
        assert!(done.status.success(), "{part}: {}", String::from_utf8_lossy(&done.stderr));
    }
    for (path, text) in before {
        assert_eq!(lab.workspace.read(path).unwrap(), text);
    }
    assert!(lab.workspace.read("d/new.txt").is_err());
}

/// A call of a tool fails when nobody is left to run it.
#[test]
fn a_tool_that_nobody_runs_fails() {
    let (model, _lab, server, runtime) = scene(json!([
        response([call("c1", "look_up", json!({}))]),
        response([message("Never mind.")]),
    ]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let tool =
            json!({"name": "look_up", "description": "d", "inputSchema": {"type": "object"}});
        let thread = ann.start_thread(json!({"dynamicTools": [tool]})).await;
        ann.say(&thread).await;
        ann.until(|it| it["method"] == "item/tool/call").await;
        drop(ann);
        let mut ben = Client::unix(&server, "ben").await;
        until_idle(&mut ben, &thread).await;
    });
    let output = model.requests()[1].body["input"].to_string();
    assert!(output.contains("did not answer"), "{output}");
}

/// A tool of a client is called through it, and its answer reaches the model.
#[test]
fn tools_of_a_client() {
    let (model, _lab, server, runtime) = scene(json!([
        response([call("c1", "look_up", json!({"city": "Oslo"}))]),
        response([call("c2", "look_up", json!({"city": 7}))]),
        response([message("Four degrees.")]),
    ]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let schema = json!({
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        });
        let tool = json!({"type": "function", "name": "look_up", "description": "d", "inputSchema": schema});
        for (tools, words) in [
            (json!([{"type": "namespace", "name": "n", "description": "d", "tools": []}]), "not a function"),
            (json!([tool, tool]), "two tools"),
            (json!([{"name": "a b", "description": "d", "inputSchema": schema}]), "name"),
        ] {
            let error = ann.ask("thread/start", json!({"dynamicTools": tools})).await;
            assert!(error["message"].as_str().is_some_and(|it| it.contains(words)), "{error}");
        }
        let thread = ann.start_thread(json!({"dynamicTools": [tool]})).await;
        ann.say(&thread).await;
        let called = ann.until(|it| it["method"] == "item/tool/call").await;
        assert_eq!(called["params"]["arguments"], json!({"city": "Oslo"}));
        assert_eq!((&called["params"]["tool"], &called["params"]["callId"]), (&json!("look_up"), &json!("c1")));
        let items = json!([{"type": "inputText", "text": "4 degrees"}]);
        let reply = json!({"contentItems": items, "success": true});
        ann.send(json!({"id": called["id"], "result": reply})).await;
        ann.told("turn/completed").await;
        let of_tool = |it: &Value, method: &str| {
            it["method"] == method && it["params"]["item"]["type"] == "dynamicToolCall"
        };
        let done = ann.until(|it| of_tool(it, "item/completed")).await["params"]["item"].clone();
        assert_eq!((&done["contentItems"], &done["success"]), (&items, &json!(true)), "{done}");
    });
    let outputs: Vec<String> =
        model.requests().iter().map(|it| it.body["input"].to_string()).collect();
    assert!(outputs[1].contains("4 degrees"), "{outputs:?}");
    // Arguments that do not fit the schema do not reach the client.
    assert!(outputs[2].contains("city"), "{outputs:?}");
}

#[test]
fn who_may_connect() {
    let model = ModelServer::start(json!([response([message("Hi.")])])).unwrap();
    let lab = lab_for(&model);
    let server = Server::start(&lab, &["--listen", "ws://127.0.0.1:0"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let status = |result: Result<Client, Error>| match result {
        Ok(_) => 101,
        Err(Error::Http(answer)) => answer.status().as_u16(),
        Err(error) => panic!("{error}"),
    };
    runtime.block_on(async {
        assert_eq!(status(Client::tcp(&server, &[]).await), 101);
        assert_eq!(status(Client::tcp(&server, &[("origin", "http://127.0.0.1")]).await), 403);
        assert_eq!(status(Client::tcp(&server, &[("host", "rebound.example")]).await), 403);
    });
    let token = lab.root().join("token");
    std::fs::write(&token, "a token of a server\n").unwrap();
    let args = ["--listen", "ws://127.0.0.1:0", "--ws-auth", "capability-token", "--ws-token-file"];
    let server = Server::start(&lab, &[&args[..], &[token.to_str().unwrap()]].concat());
    runtime.block_on(async {
        let sent = |value| Client::tcp(&server, value);
        assert_eq!(status(sent(&[]).await), 401);
        assert_eq!(status(sent(&[("authorization", "Bearer a token of another")]).await), 401);
        assert_eq!(status(sent(&[("authorization", "Bearer a token of a server")]).await), 101);
    });
    for (args, says) in [
        (&["--listen", "ws://0.0.0.0:0"][..], "set a token"),
        (&["--listen", "tcp://x"], "not an address to listen on"),
        (&["--listen", "ws://127.0.0.1:0", "--ws-auth", "capability-token"], "needs the token"),
        (&["--listen", "ws://127.0.0.1:0", "--ws-token-sha256", "00"], "--ws-auth"),
        (&["--ws-auth", "capability-token", "--ws-token-sha256", "00"], "is for TCP ports"),
    ] {
        let output = lab.command(BINARY).arg("app-server").args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    }
}

/// A client that reads nothing is disconnected, and the others notice nothing.
#[test]
fn a_client_that_never_reads_is_alone_with_it() {
    let long = "x".repeat(64 * 1024);
    let parts: Vec<&str> = vec![&long; 200];
    let model = ModelServer::start(json!([response(deltas(parts))])).unwrap();
    let lab = lab_for(&model);
    let socket = format!("unix://{}", lab.root().join("s").display());
    let server = Server::start(&lab, &["--listen", &socket, "--write-timeout", "1"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut ann, mut ben) =
            (Client::unix(&server, "ann").await, Client::unix(&server, "ben").await);
        let thread = ann.start_thread(json!({})).await;
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        ben.ask("thread/resume", json!({"threadId": thread, "excludeTurns": true})).await;
        ann.say(&thread).await;
        // The other one reads nothing of this.
        assert_eq!(ann.told("turn/completed").await["turn"]["status"], "completed");
        ann.say(&thread).await;
        assert_eq!(ann.told("turn/completed").await["turn"]["status"], "completed");
        let deadline = Instant::now() + LIMIT;
        while ben.socket.next().await.is_some_and(|frame| frame.is_ok()) {
            assert!(Instant::now() < deadline, "it was not disconnected");
        }
    });
}

/// What a turn changes of its thread holds from then on, before the first turn, between turns, and in the log.
#[test]
fn settings_change() {
    let answers = ["one", "two", "three"].map(|text| response([message(text)]));
    let (model, lab, server, runtime) = scene(json!(answers));
    lab.workspace.write("sub/x", "").unwrap();
    let sub = lab.workspace.path().join("sub").display().to_string();
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({"approvalPolicy": "never"})).await;
        let input = json!([{"type": "text", "text": "go"}]);
        let turn = |more: Value| {
            let mut params = json!({"threadId": thread, "input": input});
            params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            params
        };
        // The same settings change nothing.
        ann.ask("turn/start", turn(json!({"approvalPolicy": "never", "cwd": null}))).await;
        ann.told("turn/completed").await;
        assert!(!ann.seen.iter().any(|it| it["method"] == "thread/settings/updated"));
        let more = json!({"model": "gpt-other", "effort": "low", "approvalPolicy": "on-request"});
        ann.ask("turn/start", turn(more)).await;
        let updated = ann.told("thread/settings/updated").await["threadSettings"].clone();
        assert_eq!((&updated["model"], &updated["effort"]), (&json!("gpt-other"), &json!("low")));
        assert_eq!(updated["approvalPolicy"], "on-request");
        ann.told("turn/completed").await;
        let nowhere = json!({"threadId": thread, "cwd": "/no/such/directory"});
        let refused = ann.ask("thread/settings/update", nowhere).await;
        assert!(refused["message"].as_str().is_some_and(|it| it.contains("/no/such")), "{refused}");
        // What could not be opened is closed, and can be resumed.
        ann.until(|it| it["params"]["status"]["type"] == "notLoaded").await;
        ann.ask(
            "thread/resume",
            json!({"threadId": thread, "model": "gpt-other", "excludeTurns": true}),
        )
        .await;
        assert_eq!(
            ann.ask("thread/settings/update", json!({"threadId": thread, "cwd": sub})).await,
            json!({})
        );
        let resumed =
            ann.ask("thread/resume", json!({"threadId": thread, "excludeTurns": true})).await;
        assert_eq!((&resumed["cwd"], &resumed["model"]), (&json!(sub), &json!("gpt-other")));
        ann.ask("turn/start", turn(json!({}))).await;
        ann.told("turn/completed").await;
        let fork =
            ann.ask("thread/turns/list", json!({"threadId": thread, "sortDirection": "asc"})).await;
        let first = fork["data"][0]["id"].clone();
        let forked = ann.ask("thread/fork", json!({"threadId": thread, "lastTurnId": first})).await;
        assert_eq!(forked["thread"]["turns"].as_array().map(Vec::len), Some(1), "{forked}");
    });
    let requests = model.requests();
    let models: Vec<_> = requests.iter().map(|it| it.body["model"].clone()).collect();
    assert_eq!(models[1..], ["gpt-other", "gpt-other"]);
    assert_eq!(requests[1].body["reasoning"]["effort"], "low");
    assert!(requests[2].body["input"].to_string().contains(&sub), "the model is told where it is");
}

/// A thread that is loaded again goes on as its last turn was, and a fork of it but for the model.
#[test]
fn settings_hold_when_a_thread_is_loaded_again() {
    let answers = ["one", "two", "three"].map(|text| response([message(text)]));
    let (model, lab, server, runtime) = scene(json!(answers));
    lab.workspace.write("sub/x", "").unwrap();
    let sub = lab.workspace.path().join("sub").display().to_string();
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let settings = json!({"cwd": sub, "sandbox": "danger-full-access"});
        let thread = ann.start_thread(settings).await;
        let of = json!({"threadId": thread});
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        let more = json!({
            "threadId": thread, "input": [{"type": "text", "text": "go"}],
            "model": "gpt-other", "effort": "low", "approvalPolicy": "never",
        });
        ann.ask("turn/start", more).await;
        ann.told("turn/completed").await;
        ann.ask("thread/archive", of.clone()).await;
        ann.ask("thread/unarchive", of.clone()).await;
        for (method, model, effort) in [
            ("thread/resume", json!("gpt-other"), json!("low")),
            ("thread/fork", json!("gpt-5.5"), json!(null)),
        ] {
            let opened = ann.ask(method, of.clone()).await;
            assert_eq!(
                (&opened["model"], &opened["reasoningEffort"]),
                (&model, &effort),
                "{opened}"
            );
            assert_eq!((&opened["cwd"], &opened["approvalPolicy"]), (&json!(sub), &json!("never")));
            assert_eq!(opened["sandbox"], json!({"type": "dangerFullAccess"}), "{method}");
        }
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        // A directory that is gone keeps nobody from the thread.
        ann.ask("thread/archive", of.clone()).await;
        ann.ask("thread/unarchive", of.clone()).await;
        std::fs::remove_dir_all(&sub).unwrap();
        let opened = ann.ask("thread/resume", of.clone()).await;
        assert_eq!(opened["cwd"], lab.workspace.path().display().to_string(), "{opened}");
    });
    let request = &model.requests()[2].body;
    assert_eq!(
        (&request["model"], &request["reasoning"]["effort"]),
        (&json!("gpt-other"), &json!("low"))
    );
}

/// A thread that was not used yet changes, too.
#[test]
fn settings_change_before_the_first_turn() {
    let (model, _lab, server, runtime) = scene(json!([response([message("Hi.")])]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        let update = json!({"threadId": thread, "model": "gpt-other"});
        assert_eq!(ann.ask("thread/settings/update", update).await, json!({}));
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        let read = ann.ask("thread/read", json!({"threadId": thread})).await;
        assert_eq!(read["thread"]["model"], "gpt-other", "{read}");
    });
    assert_eq!(model.requests()[0].body["model"], "gpt-other");
}

/// A fork has the name that its source had then, also on disk.
#[test]
fn a_fork_takes_the_name_of_its_source() {
    let (_model, _lab, server, runtime) = scene(json!([response([message("Hi.")])]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let source = ann.start_thread(json!({})).await;
        ann.say(&source).await;
        ann.told("turn/completed").await;
        let fork = json!({"threadId": source});
        let unnamed = ann.ask("thread/fork", fork.clone()).await["thread"].clone();
        assert_eq!(unnamed["name"], Value::Null, "{unnamed}");
        ann.ask("thread/name/set", json!({"threadId": source, "name": "a name"})).await;
        let named = ann.ask("thread/fork", fork).await["thread"].clone();
        assert_eq!(named["name"], "a name", "{named}");
        let read = ann.ask("thread/read", json!({"threadId": named["id"]})).await;
        assert_eq!(read["thread"]["name"], "a name", "{read}");
    });
}

/// Parts of a text that come at once are joined when several clients follow, and none is lost.
#[test]
fn many_parts_for_many_clients() {
    let parts: Vec<String> = (0..5_000).map(|number| format!("{number} ")).collect();
    let text = parts.concat();
    let parts = deltas(parts.iter().map(String::as_str));
    let (_model, _lab, server, runtime) =
        scene(json!([response([message("Hi.")]), response(parts)]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        let mut ben = Client::unix(&server, "ben").await;
        ben.ask("thread/resume", json!({"threadId": thread, "excludeTurns": true})).await;
        ann.seen.clear();
        ann.say(&thread).await;
        for client in [&mut ann, &mut ben] {
            client.told("turn/completed").await;
            let deltas = client.seen.iter().filter(|it| it["method"] == "item/agentMessage/delta");
            let deltas: Vec<_> = deltas.map(|it| it["params"]["delta"].as_str().unwrap()).collect();
            assert_eq!(deltas.concat(), text);
            assert!(deltas.len() < 2_500, "{} parts", deltas.len());
        }
    });
}

#[test]
fn the_guide_lists_the_methods() {
    let guide = include_str!("../../../../docs/app-server.md");
    for method in server::METHODS {
        let (name, starred) = (format!("`{}`", method.name), format!("`{}`*", method.name));
        assert!(guide.contains(&name), "{} is missing", method.name);
        let experimental = method.stability == server::Stability::Experimental;
        assert_eq!(guide.contains(&starred), experimental, "{}", method.name);
    }
}

/// Each row of the table is what the schema of the method says.
#[test]
fn the_guide_lists_parameters() {
    let guide = include_str!("../../../../docs/app-server.md");
    let (_, table) = guide.split_once("| method | needs | takes |\n| --- | --- | --- |\n").unwrap();
    let (rows, _) = table.split_once("\n\n").unwrap();
    let schemas = server::schema::json_schemas(true);
    for row in rows.lines() {
        let [name, needs, takes] = row.trim_matches('|').split('|').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let names = |cell: &str| {
            let names = cell.split(", ").map(|name| name.trim().trim_matches('`').to_owned());
            names.filter(|name| name != "–").collect::<BTreeSet<_>>()
        };
        let name = name.trim().trim_matches('`');
        let method = server::METHODS.iter().find(|it| it.name == name).expect("a method");
        let schema = &schemas[&format!("v2/{}.json", method.params.name)];
        let texts = |value: &Value| serde_json::from_value::<BTreeSet<String>>(value.clone());
        let needed = texts(&schema["required"]).unwrap_or_default();
        let all: BTreeSet<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(names(needs), needed, "{name}");
        assert_eq!(names(takes), all.difference(&needed).cloned().collect(), "{name}");
    }
}
