//! Reviews, by every way to start one: what the reviewer is sent, what the thread knows afterwards, and what the log has.

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::ModelServer;
use testkit::script::{after_ms, call, created, message, response, status};

use crate::BINARY;
use crate::app_server_client::{Client, scene};
use crate::resume::{id, run, say, sent, start, threads};
use crate::run::{Run, exec};

/// A review as a model writes it, and as people read it.
const WRITTEN: &str = r#"{"findings":[{"title":"Close the file","body":"It leaks.","priority":2,
    "code_location":{"absolute_file_path":"/w/a.rs","line_range":{"start":3,"end":3}}}],"overall_explanation":"One leak."}"#;
const SHOWN: &str = "One leak.\n\nFinding:\n\n- [P2] Close the file — /w/a.rs:3\n  It leaks.";

fn command(cmd: &str) -> Value {
    response([call("c1", "exec_command", json!({ "cmd": cmd }))])
}

fn input(model: &ModelServer, request: usize) -> Vec<Value> {
    model.requests()[request].body["input"].as_array().unwrap().clone()
}

/// What clients are told in order, what they read later, and what the models are sent.
#[test]
fn a_review_by_the_app_server() {
    let (model, _lab, server, runtime) = scene(json!([
        say("hello"),
        command("echo looked"),
        response([message(WRITTEN)]),
        say("after"),
    ]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        ann.seen.clear();
        let target = json!({"type": "commit", "sha": "0123456789", "title": "a title"});
        let review = json!({"threadId": thread, "target": target, "delivery": "inline"});
        let started = ann.ask("review/start", review).await;
        let turn = &started["turn"];
        assert_eq!(started["reviewThreadId"], thread);
        assert_eq!((&turn["rootTurnId"], &turn["status"]), (&Value::Null, &json!("inProgress")));
        assert_eq!(turn["items"][0]["content"][0]["text"], "commit 0123456: a title");
        let ended = ann.told("turn/completed").await;
        assert_eq!(
            (&ended["turn"]["id"], &ended["turn"]["items"][0]["text"]),
            (&turn["id"], &json!(SHOWN))
        );
        let brief = |it: &Value| {
            let (method, item) = (it["method"].as_str().unwrap(), &it["params"]["item"]["type"]);
            format!("{method} {}", item.as_str().unwrap_or_default()).trim().to_owned()
        };
        let told: Vec<_> = ann.seen.iter().map(brief).collect();
        let both = |item: &str| [format!("item/started {item}"), format!("item/completed {item}")];
        let want = [
            both("enteredReviewMode").to_vec(),
            vec!["thread/status/changed".to_owned(), "turn/started".to_owned()],
            both("userMessage").to_vec(),
            both("commandExecution").to_vec(),
            vec!["thread/tokenUsage/updated".to_owned(), "item/started agentMessage".to_owned()],
            vec!["thread/tokenUsage/updated".to_owned()],
            both("exitedReviewMode").to_vec(),
            both("agentMessage").to_vec(),
            vec!["thread/status/changed".to_owned()],
        ];
        let deltas = |told: &String| told != "item/commandExecution/outputDelta";
        let told: Vec<_> = told.into_iter().filter(deltas).collect();
        assert_eq!(told, want.concat());
        let live = ann.seen.iter().filter(|it| it["method"] == "item/completed");
        let live: Vec<_> = live.map(|it| it["params"]["item"].clone()).collect();
        let read = ann.ask("thread/read", json!({"threadId": thread, "includeTurns": true})).await;
        assert_eq!(read["thread"]["turns"][1]["items"], json!(live), "as it was live");
        ann.say(&thread).await;
        ann.told("turn/completed").await;
    });
    // The reviewer knows nothing of the thread but its environment, and has instructions of its own.
    let (before, review, after) = (input(&model, 0), input(&model, 1), input(&model, 3));
    let instructions = |request: usize| model.requests()[request].body["instructions"].clone();
    assert!(instructions(1).as_str().unwrap().contains("review"), "{}", instructions(1));
    assert_eq!((instructions(2), instructions(3)), (instructions(1), instructions(0)));
    assert_eq!((review.len(), &review[0]), (2, &before[0]), "{review:?}");
    assert!(review[1].to_string().contains("0123456789"), "{review:?}");
    // The thread's own requests go on from each other, with the result and without the reviewer's work.
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.len(), before.len() + 4, "{after:?}");
    let result = after[before.len() + 1]["content"][0]["text"].as_str().unwrap();
    assert!(result.starts_with("<user_action>") && result.contains(SHOWN), "{result}");
    assert_eq!(after[before.len() + 2]["content"][0]["text"], SHOWN);
}

#[test]
fn reviews_that_cannot_start() {
    let (_model, _lab, server, runtime) =
        scene(json!([response([after_ms(600_000, message("never"))])]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        let custom = json!({"type": "custom", "instructions": " \n"});
        for (target, delivery, words) in [
            (custom, "inline", "instructions must not be empty"),
            (json!({"type": "baseBranch", "branch": ""}), "inline", "branch must not be empty"),
            (json!({"type": "commit", "sha": " "}), "inline", "sha must not be empty"),
            (json!({"type": "everything"}), "inline", "unknown variant `everything`"),
            (json!({"type": "uncommittedChanges"}), "detached", "unknown variant `detached`"),
        ] {
            let review = json!({"threadId": thread, "target": target, "delivery": delivery});
            let refused = ann.ask("review/start", review).await;
            assert_eq!(refused["code"], -32600, "{refused}");
            assert!(refused["message"].as_str().unwrap().contains(words), "{refused}");
        }
        // While one runs, nothing is added to it, and no second one starts. An interruption ends it.
        let review = json!({"threadId": thread, "target": {"type": "uncommittedChanges"}});
        let started = ann.ask("review/start", review.clone()).await;
        let turn = started["turn"]["id"].as_str().unwrap().to_owned();
        ann.told("turn/started").await;
        let said = json!([{"type": "text", "text": "also"}]);
        let steer = json!({"threadId": thread, "expectedTurnId": turn, "input": said});
        let refused = ann.ask("turn/steer", steer).await;
        let info = json!({"activeTurnNotSteerable": {"turnKind": "review"}});
        assert_eq!(refused["data"]["codexErrorInfo"], info, "{refused}");
        assert_eq!(ann.say(&thread).await["data"]["codexErrorInfo"], info);
        let busy = ann.ask("review/start", review).await;
        assert!(busy["message"].as_str().unwrap().contains("is running"), "{busy}");
        ann.ask("turn/interrupt", json!({"threadId": thread, "turnId": turn})).await;
        assert_eq!(ann.told("turn/completed").await["turn"]["status"], "interrupted");
        let exited = ann.seen.iter().rev().find_map(|it| it["params"]["item"]["review"].as_str());
        assert_eq!(exited, Some("The reviewer did not finish."));
        let read = ann.ask("thread/read", json!({"threadId": thread, "includeTurns": true})).await;
        let turn = &read["thread"]["turns"][0];
        assert_eq!(turn["status"], "interrupted");
        assert_eq!(turn["items"][2]["review"], "The reviewer did not finish.", "{turn}");
    });
}

/// Runs a review that is begun by `args`; compares what the reviewer is asked, its first line.
#[track_caller]
fn check_asked(args: &[&str], want: &str) {
    let (model, lab) = start(json!([response([message(WRITTEN)])]));
    let mut command = lab.command(BINARY);
    command.args(args);
    let ended = Run::start(command).end();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), &*format!("{SHOWN}\n")), "{ended:?}");
    assert_eq!(sent(&model), [want], "{args:?}");
}

#[test]
fn reviews_by_exec() {
    check_asked(
        &["exec", "review", "--uncommitted"],
        &"Review all uncommitted changes of this repository: what is staged, w"[..60],
    );
    check_asked(&["review", "--commit", "HEAD"], "Review the commit HEAD.");
    check_asked(
        &["exec", "review", "--commit", "abc", "--title", "x y"],
        "Review the commit abc (\"x y\").",
    );
    check_asked(&["exec", "review", "look at the tests"], "look at the tests");
    let (_, lab) = start(json!([]));
    for (args, words) in [
        (&["review"][..], "what is to be reviewed?"),
        (&["review", "--base", " "], "branch must not be empty"),
        (&["review", "--uncommitted", "and more"], "cannot be used with"),
        (&["review", "--uncommitted", "--file", "x"], "takes no --file"),
    ] {
        let ended = Run::start(exec(&lab, args)).end();
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(words), "{args:?}: {}", ended.stderr);
    }
}

/// However a review ends, its thread goes on, with the result if there is one.
#[test]
fn threads_go_on_after_reviews() {
    let hangs = json!({"events": [created()], "hang_ms": 600_000});
    let cases = [
        ("answered", response([message(WRITTEN)]), None, Some(0), Some(SHOWN)),
        ("failed", status(400, json!({"error": {"message": "no"}})), None, Some(1), None),
        ("interrupted", hangs.clone(), Some(Signal::INT), Some(130), None),
        ("killed", hangs, Some(Signal::KILL), None, None),
    ];
    for (what, last, signal, code, result) in cases {
        let (model, lab) = start(json!([command("echo looked"), last, say("after"), say("more")]));
        let review = Run::start(exec(&lab, &["review", "--uncommitted", "--skip-git-repo-check"]));
        if let Some(signal) = signal {
            crate::run::until("the second request", || (model.requests().len() == 2).then_some(()));
            review.signal(signal);
        }
        let ended = review.end();
        assert_eq!(ended.code, code, "{what}: {ended:?}");
        let thread = id(&ended);
        let agent = ended.stdout.lines().filter(|line| line.contains("agent_message")).count();
        assert_eq!(agent, usize::from(result.is_some()), "{what}: {}", ended.stdout);
        let shown = threads(&lab, &["show", &thread]).stdout;
        assert!(shown.contains("current changes") && shown.contains("looked"), "{what}: {shown}");
        let unfinished = shown.contains("did not finish");
        assert_eq!(unfinished, result.is_none() && signal != Some(Signal::KILL), "{what}: {shown}");
        run(&lab, &["resume", &thread, "next"]);
        let next = input(&model, 2);
        let texts: Vec<_> = next
            .iter()
            .map(|item| item["content"][0]["text"].as_str().unwrap_or_default())
            .collect();
        assert_eq!(texts.last(), Some(&"next"), "{what}");
        assert!(!next.iter().any(|item| item["type"] == "function_call"), "{what}: {next:?}");
        assert!(texts[0].starts_with("<environment_context>"), "{what}: {texts:?}");
        let results: Vec<_> = texts.iter().filter(|it| it.starts_with("<user_action>")).collect();
        match result {
            Some(result) => assert!(results[0].contains(result), "{what}: {texts:?}"),
            None if signal == Some(Signal::KILL) => assert!(results.is_empty(), "{texts:?}"),
            None => assert!(results[0].contains("did not finish"), "{what}: {texts:?}"),
        }
        // A fork has the same history, and the next request begins with the bytes of this one.
        run(&lab, &["fork", &thread, "more"]);
        assert_eq!(input(&model, 3)[..next.len()], next, "{what}");
    }
}
