//! Compacting and restoring histories: nothing is lost silently.

use std::fs;

use serde_json::{Value, json};
use testkit::strict::Strict;
use testkit::{Lab, ModelServer, script};

use crate::BINARY;
use crate::resume::{id, log, run, say, sent, start, threads};
use crate::run::{Ended, Run, exec, lab_for};

/// Runs `heddle` and checks the exit code and stderr for these parts; parts that begin with `!` must be
/// absent.
#[track_caller]
fn check(lab: &Lab, args: &[&str], code: i32, said: &[&str]) -> Ended {
    let mut command = lab.command(BINARY);
    command.args(args);
    let ended = Run::start(command).end();
    assert_eq!(ended.code, Some(code), "{args:?}: {}\n{}", ended.stdout, ended.stderr);
    for words in said {
        match words.strip_prefix('!') {
            Some(words) => assert!(!ended.stderr.contains(words), "{words}: {}", ended.stderr),
            None => assert!(ended.stderr.contains(words), "no {words}: {}", ended.stderr),
        }
    }
    ended
}

#[test]
fn a_small_window_can_be_compacted() {
    for tokens in [4_000, 8_000] {
        let rules = Strict { history_bytes_max: Some(tokens * 4), ..Strict::default() };
        let server = ModelServer::strict(json!(vec![say("ok"); 60]), rules).unwrap();
        let lab = lab_for(&server);
        let window = format!("model_context_window={tokens}");
        let thread = id(&run(&lab, &["-c", &window, "hello"]));
        for turn in 0..8 {
            let said = format!("turn {turn} {}", "word ".repeat(tokens / 5));
            run(&lab, &["-c", &window, "resume", &thread, &said]);
            let sent = server.requests().last().unwrap().body["input"].to_string();
            assert!(sent.contains(&said), "turn {turn} was answered without its task");
        }
        // An input that never fits is reported, and does not block what comes after it.
        let long = "word ".repeat(tokens);
        let ended = Run::start(exec(&lab, &["-c", &window, &long])).end();
        assert_eq!(ended.code, Some(1), "{}", ended.stdout);
        assert!(ended.stdout.contains("send less at once"), "{}", ended.stdout);
        run(&lab, &["-c", &window, "resume", &id(&ended), "less"]);
    }
}

#[test]
fn a_summary_that_is_refused_leaves_the_history() {
    let refused = |code: &str, message: &str| {
        let error = json!({ "message": message, "type": "invalid_request_error", "code": code });
        script::status(400, json!({ "error": error }))
    };
    let (server, lab) = start(json!([
        say("one"),
        refused("model_not_found", "there is no gpt-typo"),
        refused("unsupported_parameter", "no reasoning.summary here"),
        script::response([script::message("")]),
        say("two"),
    ]));
    let thread = id(&run(&lab, &["q1"]));
    let compact = ["threads", "compact", &thread];
    let as_it_was = ["is unchanged", "!was cut", "!nearly full"];
    let [typo, parameter, empty] =
        ["there is no gpt-typo", "no reasoning.summary here", "wrote no summary"]
            .map(|words| [&as_it_was[..], &[words]].concat());
    check(&lab, &[&["-m", "gpt-typo"], &compact[..]].concat(), 1, &typo);
    check(&lab, &compact, 1, &parameter);
    check(&lab, &compact, 1, &empty);
    run(&lab, &["resume", &thread, "q2"]);
    assert_eq!(sent(&server), ["q1", "one", "q2"]);
}

#[test]
fn undoing_a_compaction_reports_damage() {
    let (_server, lab) =
        start(json!([say("one"), say("SUM"), say("two"), say("SUM"), say("three")]));
    let thread = id(&run(&lab, &["q1 and some more"]));
    threads(&lab, &["compact", &thread]);
    let file = log(&lab, &thread);
    let whole = fs::read(&file).unwrap();
    let undo = ["threads", "undo-compaction", &thread];
    let lacks = "lacks the damaged lines";

    // The last line is torn: the next process that opens the file truncates it.
    run(&lab, &["resume", &thread, "q2"]);
    let mut torn = fs::read(&file).unwrap();
    torn.truncate(torn.len() - 40);
    fs::write(&file, torn).unwrap();
    check(&lab, &undo, 0, &["damage:", "the last line is incomplete", lacks]);

    // A message of the user differs from what was written.
    let text = String::from_utf8(whole.clone()).unwrap();
    fs::write(&file, text.replacen("q1 and some more", "q1 and some mare", 1)).unwrap();
    check(&lab, &undo, 0, &["damage:", "a line is damaged", lacks]);

    // An older copy lacks the later lines, unless no one knows about them.
    fs::write(&file, whole).unwrap();
    check(&lab, &undo, 0, &["damage:", "the end is missing", lacks]);
    fs::write(&file, text).unwrap();
    fs::remove_dir_all(lab.home.path().join("thread-ends")).unwrap();
    check(&lab, &undo, 0, &["!damage", "!lacks"]);
}

#[test]
fn rolling_back_a_compaction_restores_what_it_replaced() {
    let (server, lab) = start(json!([say("new")]));
    let thread = "01a1e26e-392c-7690-abfb-eb0dc0cda447";
    let message = |role: &str, text: &str| {
        let kind = if role == "user" { "input_text" } else { "output_text" };
        json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] })
    };
    let event = |kind: &str, turn: u32| {
        ("event_msg", json!({ "type": kind, "turn_id": format!("t{turn}") }))
    };
    let compacted = |said: &str| {
        let summary = "Another language model started to solve this problem";
        let history = json!([message("user", said), message("user", summary)]);
        ("compacted", json!({ "message": "S", "replacement_history": history }))
    };
    let head = json!({ "id": thread, "timestamp": "2026-11-16T03:37:16.888Z", "cwd": "/w",
        "originator": "x", "cli_version": "0", "history_mode": "paginated" });
    let mut lines = vec![("session_meta", head)];
    for turn in 1..=5 {
        lines.push(event("task_started", turn));
        lines.push(("response_item", message("user", &format!("q{turn}"))));
        if turn == 3 || turn == 5 {
            lines.push(compacted(&format!("q{turn}")));
        }
        lines.push(("response_item", message("assistant", &format!("a{turn}"))));
        lines.push(event("task_complete", turn));
        if turn == 3 {
            lines.push(("event_msg", json!({ "type": "thread_rolled_back", "num_turns": 1 })));
        }
    }
    let line = |(ordinal, (kind, payload)): (usize, &(&str, Value))| {
        let time = "2026-11-16T03:37:16.888Z";
        let line =
            json!({ "timestamp": time, "ordinal": ordinal, "type": kind, "payload": payload });
        format!("{line}\n")
    };
    let text: String = lines.iter().enumerate().map(line).collect();
    let file = format!("sessions/2026/11/16/rollout-2026-11-16T03-37-16-{thread}.jsonl");
    lab.home.write(&file, text).unwrap();
    threads(&lab, &["undo-compaction", thread]);
    run(&lab, &["resume", thread, "q6"]);
    assert_eq!(sent(&server), ["q1", "a1", "q2", "a2", "q4", "a4", "q5", "a5", "q6"]);
}

#[test]
fn a_requested_compaction_is_reported() {
    let (_server, lab) = start(json!([say("one"), say("SUM")]));
    let thread = id(&run(&lab, &["q1"]));
    check(&lab, &["threads", "compact", &thread], 0, &["as requested", "!nearly full"]);
}
