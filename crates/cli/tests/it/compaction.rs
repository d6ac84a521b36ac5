//! Histories that are replaced by shorter ones, and brought back: nothing is lost without a word.

use serde_json::json;
use testkit::strict::Strict;
use testkit::{Lab, ModelServer, script};

use crate::BINARY;
use crate::resume::{id, run, say, sent, start};
use crate::run::{Ended, Run, exec, lab_for};

/// Runs `heddle`, and expects a code and parts of what it says beside its output; those that begin with `!`
/// must not be there.
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
fn a_small_window_is_no_dead_end() {
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
        // What never fits is told, and is not in the way of what comes after it.
        let long = "word ".repeat(tokens);
        let ended = Run::start(exec(&lab, &["-c", &window, &long])).end();
        assert_eq!(ended.code, Some(1), "{}", ended.stdout);
        assert!(ended.stdout.contains("say less at once"), "{}", ended.stdout);
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
    let as_it_was = ["is as it was", "!was cut", "!nearly full"];
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
fn a_compaction_on_request_says_so() {
    let (_server, lab) = start(json!([say("one"), say("SUM")]));
    let thread = id(&run(&lab, &["q1"]));
    check(&lab, &["threads", "compact", &thread], 0, &["as you wished", "!nearly full"]);
}
