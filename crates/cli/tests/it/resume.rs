//! Resumed threads: what reaches the model, what is on disk, and what the user is told.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{Lab, ModelServer, script};

use crate::BINARY;
use crate::run::{Ended, Run, exec, lab_for};

pub(crate) fn say(text: &str) -> Value {
    script::response([script::message(text)])
}

pub(crate) fn start(script: Value) -> (ModelServer, Lab) {
    let server = ModelServer::start(script).unwrap();
    let lab = lab_for(&server);
    (server, lab)
}

#[track_caller]
pub(crate) fn run(lab: &Lab, args: &[&str]) -> Ended {
    let ended = Run::start(exec(lab, args)).end();
    assert_eq!(ended.code, Some(0), "{args:?}: {}\n{}", ended.stdout, ended.stderr);
    ended
}

#[track_caller]
pub(crate) fn threads(lab: &Lab, args: &[&str]) -> Ended {
    let mut command = lab.command(BINARY);
    command.arg("threads").args(args);
    let ended = Run::start(command).end();
    assert_eq!(ended.code, Some(0), "{args:?}: {}\n{}", ended.stdout, ended.stderr);
    ended
}

pub(crate) fn id(ended: &Ended) -> String {
    let first: Value = serde_json::from_str(ended.stdout.lines().next().unwrap()).unwrap();
    first["thread_id"].as_str().unwrap().to_owned()
}

/// Returns the messages in the last request, without those about the environment.
pub(crate) fn sent(server: &ModelServer) -> Vec<String> {
    let body = server.requests().last().unwrap().body.clone();
    let text = |item: &Value| -> String {
        let parts = item["content"].as_array().into_iter().flatten();
        let text: String = parts.filter_map(|part| part["text"].as_str()).collect();
        match item["type"].as_str() {
            Some("message") => text.chars().take(60).collect(),
            _ => format!("{} {}", item["type"].as_str().unwrap(), item["call_id"]),
        }
    };
    let all = body["input"].as_array().unwrap().iter().map(text);
    all.filter(|text| !text.starts_with("<environment_context>")).collect()
}

/// Lists everything in the home except the configuration.
fn left(lab: &Lab) -> Vec<PathBuf> {
    let mut folders = vec![lab.home.path().to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.retain(|path| !path.ends_with("config.toml") && !path.ends_with("cache/sandbox"));
    files
}

pub(crate) fn log(lab: &Lab, id: &str) -> PathBuf {
    left(lab)
        .into_iter()
        .find(|path| path.to_string_lossy().ends_with(&format!("{id}.jsonl")))
        .unwrap()
}

/// A turn that could not begin for want of a key is kept, as in the reference: its thread has been announced, and goes
/// on once the key is there.
#[test]
fn a_turn_without_a_key_can_go_on() {
    let (server, lab) = start(json!([say("hello")]));
    let key = "model_providers.mock.env_key=\"LAB_KEY\"";
    let ended = Run::start(exec(&lab, &["-c", key, "first"])).end();
    assert_eq!((ended.code, server.requests().len()), (Some(1), 0), "{ended:#?}");
    let mut again = exec(&lab, &["-c", key, "resume", &id(&ended), "second"]);
    again.env("LAB_KEY", "k");
    let ended = Run::start(again).end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(sent(&server), ["first", "second"]);
}

#[test]
fn ephemeral_threads_leave_nothing() {
    let (server, lab) = start(json!([say("one"), say("two"), say("three")]));
    run(&lab, &["--ephemeral", "first"]);
    assert_eq!(left(&lab), Vec::<PathBuf>::new());
    // Resuming a saved thread with `--ephemeral` leaves that thread unchanged.
    let kept = id(&run(&lab, &["second"]));
    let before = fs::read(log(&lab, &kept)).unwrap();
    run(&lab, &["--ephemeral", "resume", &kept, "third"]);
    assert_eq!(sent(&server), ["second", "two", "third"]);
    assert_eq!(fs::read(log(&lab, &kept)).unwrap(), before);
    let files = left(&lab);
    assert!(!files.iter().any(|path| path.to_string_lossy().ends_with("sqlite")), "{files:?}");
}

#[test]
fn the_source_of_a_fork_can_be_archived() {
    let (server, lab) = start(json!([say("one"), say("two"), say("three")]));
    let source = id(&run(&lab, &["q1"]));
    let fork = id(&run(&lab, &["fork", &source]));
    threads(&lab, &["archive", &source]);
    run(&lab, &["resume", &fork, "q2"]);
    assert_eq!(sent(&server), ["q1", "one", "q2"]);
    // The source has continued on its own.
    threads(&lab, &["unarchive", &source]);
    run(&lab, &["resume", &source, "q3"]);
    assert_eq!(sent(&server), ["q1", "one", "q3"]);
}

#[test]
fn a_damaged_line_is_reported_and_the_rest_is_used() {
    let (server, lab) = start(json!([say("one"), say("two"), say("three")]));
    let thread = id(&run(&lab, &["q1"]));
    run(&lab, &["resume", &thread, "q2"]);
    let path = log(&lab, &thread);
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().position(|line| line.contains(r#""text":"one""#)).unwrap();
    let damaged: Vec<_> = text
        .lines()
        .enumerate()
        .map(|(at, text)| if at == line { text.replace("one", "oxe") } else { text.to_owned() })
        .collect();
    fs::write(&path, damaged.join("\n") + "\n").unwrap();
    let ended = run(&lab, &["resume", &thread, "q3"]);
    let named = format!("line {line}");
    assert!(
        ended.stdout.contains(&named) && ended.stdout.contains("response_item"),
        "{}",
        ended.stdout
    );
    assert_eq!(sent(&server), ["q1", "q2", "two", "q3"]);
    // The lost lines are kept in a file next to the log; once that is accepted, it is not mentioned again.
    let aside = fs::read_to_string(path.with_extension("jsonl.damaged")).unwrap();
    assert!(aside.contains(&format!("\"ordinal\":{line}")), "{aside}");
    threads(&lab, &["fsck", &thread, "--repair"]);
    let ended = run(&lab, &["resume", &thread, "q4"]);
    assert!(!ended.stdout.contains("damaged"), "{}", ended.stdout);
}

#[test]
fn a_turn_truncated_at_a_line_end_is_reported() {
    let (_server, lab) = start(json!([say("one"), say("two"), say("three")]));
    let first = run(&lab, &["first"]);
    let id = id(&first);
    run(&lab, &["resume", &id, "second"]);
    let path = log(&lab, &id);
    let text = fs::read_to_string(&path).unwrap();
    let turn = text.rfind("\"type\":\"task_started\"").unwrap();
    let kept = text[..turn].rfind('\n').unwrap() + 1;
    fs::write(&path, &text[..kept]).unwrap();

    let shown = threads(&lab, &["show", &id]);
    assert!(shown.stdout.contains("the end is missing"), "{}{}", shown.stdout, shown.stderr);
    let ended = run(&lab, &["resume", &id, "third"]);
    assert!(ended.stdout.contains("the end is missing"), "{}{}", ended.stdout, ended.stderr);
    // Resuming the thread does not make it forgotten.
    let mut command = lab.command(BINARY);
    command.args(["threads", "fsck", &id]);
    let checked = Run::start(command).end();
    assert_eq!(checked.code, Some(1), "{}{}", checked.stdout, checked.stderr);
    assert!(checked.stdout.contains("lines are missing"), "{}{}", checked.stdout, checked.stderr);
}

#[test]
fn a_thread_open_elsewhere_is_not_changed() {
    let hang = json!({ "events": [script::created()], "hang_ms": 60_000 });
    let (_server, lab) = start(json!([say("one"), hang]));
    let thread = id(&run(&lab, &["q1"]));
    let holder = Run::start(exec(&lab, &["resume", &thread, "q2"]));
    holder.wait_for("turn.started");
    let ended = Run::start(exec(&lab, &["resume", &thread, "q3"])).end();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    for words in ["in use by heddle (process", "exec fork"] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    // Reading it accepts nothing.
    threads(&lab, &["show", &thread]);
}

#[test]
fn compaction_on_request_can_be_undone() {
    let (server, lab) = start(json!([
        script::response([script::call("c1", "exec_command", json!({ "cmd": "echo hi" }))]),
        say("one"),
        say("SUM"),
        say("two"),
        say("three"),
    ]));
    let thread = id(&run(&lab, &["q1"]));
    threads(&lab, &["compact", &thread]);
    run(&lab, &["resume", &thread, "q2"]);
    let summary = "The earlier part of this conversation was replaced by the fo";
    assert_eq!(sent(&server), ["q1", summary, "q2"]);
    threads(&lab, &["undo-compaction", &thread]);
    run(&lab, &["resume", &thread, "q3"]);
    let call = ["function_call \"c1\"", "function_call_output \"c1\""];
    assert_eq!(sent(&server), ["q1", call[0], call[1], "one", "q2", "two", "q3"]);
    let mut again = lab.command(BINARY);
    again.args(["threads", "undo-compaction", &thread]);
    let ended = Run::start(again).end();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("no compaction to undo"), "{}", ended.stderr);
}

#[test]
fn a_changed_model_is_reported_and_old_reasoning_omitted() {
    let reasoning = script::item(json!({
        "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed",
    }));
    let (server, lab) =
        start(json!([script::response([reasoning, script::message("one")]), say("two"), say("x")]));
    let thread = id(&run(&lab, &["q1"]));
    run(&lab, &["resume", &thread, "q2"]);
    let kinds = |server: &ModelServer| server.requests().last().unwrap().body["input"].to_string();
    assert!(kinds(&server).contains("sealed"));
    let ended = run(&lab, &["-m", "other", "resume", &thread, "q3"]);
    assert!(
        ended.stdout.contains("gpt-5.5") && ended.stdout.contains("repaired"),
        "{}",
        ended.stdout
    );
    assert!(!kinds(&server).contains("sealed"));
}

#[test]
fn rules_and_environment_are_sent_once() {
    let (server, lab) = start(json!([say("one"), say("two"), say("three")]));
    lab.workspace.write("AGENTS.md", "be brief").unwrap();
    let thread = id(&run(&lab, &["q1"]));
    run(&lab, &["resume", &thread, "q2"]);
    let count = |server: &ModelServer, text: &str| {
        server.requests().last().unwrap().body["input"].to_string().matches(text).count()
    };
    assert_eq!((count(&server, "be brief"), count(&server, "<cwd>")), (1, 1));
    lab.workspace.write("AGENTS.md", "be verbose").unwrap();
    run(&lab, &["resume", &thread, "q3"]);
    assert_eq!((count(&server, "be brief"), count(&server, "be verbose")), (1, 1));
}

/// As with `resume`, the newest thread of the directory needs no name, and the argument is then the prompt.
#[test]
fn the_newest_thread_is_forked() {
    let (server, lab) = start(json!([say("one"), say("two"), say("three")]));
    let first = id(&run(&lab, &["q1"]));
    let fork = id(&run(&lab, &["fork", "--last", "q2"]));
    assert_ne!(fork, first);
    let input = server.requests().last().unwrap().body["input"].to_string();
    assert!(input.contains("q1") && input.contains("q2"), "{input}");
    // Without a prompt it only forks, and the newest one is now that fork.
    let only = id(&run(&lab, &["fork", "--last", "--all"]));
    assert!(only != first && only != fork);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn threads_that_do_not_exist() {
    let (_server, lab) = start(json!([say("one")]));
    for (args, words) in [
        (&["resume", "01a1e26e-392c-7690-abfb-eb0dc0cda447", "x"][..], "there is no thread"),
        (&["resume", "no such name", "x"], "there is no thread"),
        (&["resume", "--last", "x"], "there is no thread"),
        (&["fork", "01a1e26e-392c-7690-abfb-eb0dc0cda447"], "there is no thread"),
        (&["fork", "--last", "x"], "there is no thread"),
        (&["fork", "try it with a lock"], "add --last"),
        (&["resume"], "which thread?"),
        (&["fork"], "which thread?"),
    ] {
        let ended = Run::start(exec(&lab, args)).end();
        assert_eq!(ended.code, Some(2), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn the_latest_rules_and_sandbox_apply() {
    let answers: Vec<_> = (0..6).map(|number| say(&number.to_string())).collect();
    let (server, lab) = start(json!(answers));
    lab.workspace.write("AGENTS.md", "rules A").unwrap();
    let thread = id(&run(&lab, &["-s", "read-only", "q1"]));
    let last = |server: &ModelServer, words: &[&str]| {
        let input = server.requests().last().unwrap().body["input"].to_string();
        let at = |word: &&&str| input.rfind(**word).unwrap_or_default();
        words.iter().max_by_key(at).map(|word| (*word).to_owned())
    };
    let modes = ["<sandbox_mode>read-only", "<sandbox_mode>workspace-write"];
    for (mode, want) in [("workspace-write", modes[1]), ("read-only", modes[0])] {
        run(&lab, &["-s", mode, "resume", &thread, "go on"]);
        assert_eq!(last(&server, &modes).as_deref(), Some(want));
    }
    let rules = ["rules A", "rules B", "There are no rules any more"];
    lab.workspace.write("AGENTS.md", "rules B").unwrap();
    run(&lab, &["resume", &thread, "go on"]);
    assert_eq!(last(&server, &rules).as_deref(), Some(rules[1]));
    fs::remove_file(lab.workspace.path().join("AGENTS.md")).unwrap();
    run(&lab, &["resume", &thread, "go on"]);
    assert_eq!(last(&server, &rules).as_deref(), Some(rules[2]));
    lab.workspace.write("AGENTS.md", "rules A").unwrap();
    run(&lab, &["resume", &thread, "go on"]);
    assert_eq!(last(&server, &rules).as_deref(), Some(rules[0]));
}

#[test]
fn user_instructions_are_sent_once() {
    let answers: Vec<_> = (0..3).map(|number| say(&number.to_string())).collect();
    let (server, lab) = start(json!(answers));
    let thread = id(&run(&lab, &["q1"]));
    for _ in 0..2 {
        run(&lab, &["-c", "developer_instructions=\"BE NICE\"", "resume", &thread, "go on"]);
    }
    let input = server.requests().last().unwrap().body["input"].to_string();
    assert_eq!(input.matches("BE NICE").count(), 1);
}

#[test]
fn reasoning_is_sent_only_to_its_provider() {
    let thought = |text: &str| {
        let reasoning = json!({ "type": "reasoning", "id": format!("rs_{text}"), "summary": [],
            "encrypted_content": text });
        script::response([script::item(reasoning), script::message("said")])
    };
    let (server, lab) =
        start(json!([thought("seal1"), thought("seal2"), say("three"), say("four")]));
    let other =
        format!("model_providers.other={{ base_url = \"http://127.0.0.1:{}/v1\" }}", server.port());
    let other = ["-c", other.as_str(), "-c", "model_provider=\"other\""];
    let thread = id(&run(&lab, &["q1"]));
    let sent = || server.requests().last().unwrap().body["input"].to_string();
    run(&lab, &[&other[..], &["resume", &thread, "q2"]].concat());
    assert!(!sent().contains("seal1"));
    run(&lab, &["resume", &thread, "q3"]);
    assert!(sent().contains("seal1") && !sent().contains("seal2"));
    run(&lab, &[&other[..], &["resume", &thread, "q4"]].concat());
    assert!(!sent().contains("seal1") && sent().contains("seal2"));
}

#[test]
fn omitted_history_is_reported() {
    let (server, lab) = start(json!([say("one"), say("two")]));
    let thread = id(&run(&lab, &["q1"]));
    let path = log(&lab, &thread);
    let mut text = fs::read_to_string(&path).unwrap();
    let output = "x".repeat(1_000_000);
    for number in 0..20 {
        for item in [
            json!({ "type": "function_call", "name": "f", "arguments": "{}",
                "call_id": format!("c{number}") }),
            json!({ "type": "function_call_output", "call_id": format!("c{number}"),
                "output": output }),
        ] {
            let line = json!({ "timestamp": "2026-11-16T03:37:16.888Z",
                "ordinal": text.lines().count(), "type": "response_item", "payload": item });
            text += &format!("{line}\n");
        }
    }
    fs::write(&path, text).unwrap();
    let ended = run(&lab, &["resume", &thread, "q2"]);
    assert!(ended.stdout.contains("the oldest part"), "{}", ended.stdout);
    let sent = sent(&server);
    assert!(sent.contains(&"function_call \"c19\"".to_owned()), "{sent:?}");
    assert!(!sent.contains(&"function_call \"c0\"".to_owned()), "{sent:?}");
}

/// Input that no endpoint would accept is not sent, but kept.
#[test]
fn messages_are_stored_in_full() {
    let (server, lab) = start(json!([say("one"), say("two")]));
    let prompt = format!("begin {} end", "all of it ".repeat(1_100_000));
    let ended = Run::start_with(exec(&lab, &[]), prompt.as_bytes()).end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("what you said"), "{}", &ended.stdout[..500]);
    let thread = id(&ended);
    let log = fs::read_to_string(log(&lab, &thread)).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let came: Vec<_> = lines.filter(|line| line["type"] == "heddle_original_item").collect();
    assert_eq!(came.len(), 1);
    let text = came[0]["payload"]["content"][0]["text"].as_str().unwrap();
    assert!(text == prompt, "{} bytes of {}", text.len(), prompt.len());
    // It is reported once: what entered the history could be sent.
    let ended = run(&lab, &["resume", &thread, "go on"]);
    assert!(!ended.stdout.contains("repaired"), "{}", ended.stdout);
    assert_eq!(sent(&server).len(), 3);
}

#[test]
fn a_rolled_back_compaction_never_happened() {
    let (server, lab) = start(json!([say("new")]));
    let thread = "01a1e26e-392c-7690-abfb-eb0dc0cda447";
    let message = |role: &str, text: &str| {
        let kind = if role == "user" { "input_text" } else { "output_text" };
        json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] })
    };
    let event = |kind: &str, turn: &str| ("event_msg", json!({ "type": kind, "turn_id": turn }));
    let lines = [
        (
            "session_meta",
            json!({ "id": thread, "timestamp": "2026-11-16T03:37:16.888Z",
            "cwd": "/w", "originator": "x", "cli_version": "0" }),
        ),
        event("task_started", "t1"),
        ("response_item", message("user", "q1")),
        ("response_item", message("assistant", "a1")),
        event("task_complete", "t1"),
        event("task_started", "t2"),
        (
            "compacted",
            json!({ "message": "SUM",
            "replacement_history": [message("user", "q1"), message("user", "SUM")] }),
        ),
        ("response_item", message("user", "q2")),
        event("task_complete", "t2"),
        ("event_msg", json!({ "type": "thread_rolled_back", "num_turns": 1 })),
    ];
    let line = |(kind, payload): &(&str, Value)| {
        let time = "2026-11-16T03:37:16.888Z";
        format!("{}\n", json!({ "timestamp": time, "type": kind, "payload": payload }))
    };
    let text: String = lines.iter().map(line).collect();
    let file = format!("sessions/2026/11/16/rollout-2026-11-16T03-37-16-{thread}.jsonl");
    lab.home.write(&file, text).unwrap();
    run(&lab, &["resume", thread, "q3"]);
    assert_eq!(sent(&server), ["q1", "a1", "q3"]);
}

/// Everything that a run creates in a home is private to its owner.
#[test]
fn everything_in_a_home_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_server, lab) = start(json!([say("one"), say("two")]));
    let first = run(&lab, &["first"]);
    run(&lab, &["fork", &id(&first), "second"]);
    threads(&lab, &["list", "--all"]);
    let mut count = 0;
    let mut queue = vec![lab.home.path().to_owned()];
    while let Some(path) = queue.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            queue.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        // The lab created those two.
        let lent = path == lab.home.path() || path.ends_with("config.toml");
        let mode = metadata.permissions().mode();
        assert!(lent || mode & 0o077 == 0, "{} {mode:o}", path.display());
        count += usize::from(!lent);
    }
    assert!(count > 8, "{count}");
}

/// The end of a thread is lost, and it continues: its fork includes none of the lost part, and says so.
#[test]
fn a_fork_of_a_deleted_thread() {
    let (_server, lab) =
        start(json!([say("one"), say("two"), say("forked"), say("other"), say("again")]));
    let parent = id(&run(&lab, &["first turn"]));
    let path = left(&lab)
        .into_iter()
        .find(|path| path.to_string_lossy().contains(&format!("{parent}.jsonl")))
        .unwrap();
    let before = fs::read(lab.home.path().join(&path)).unwrap();
    run(&lab, &["resume", &parent, "second turn"]);
    let fork = id(&run(&lab, &["fork", &parent, "third turn"]));
    fs::write(lab.home.path().join(&path), before).unwrap();
    run(&lab, &["resume", &parent, "an alien turn"]);
    let shown = threads(&lab, &["show", &fork]).stdout;
    assert!(!shown.contains("alien") && shown.contains("first turn"), "{shown}");
    assert!(shown.contains("the file that this one continues has changed"), "{shown}");
    let ended = run(&lab, &["resume", &fork, "go on"]);
    assert!(ended.stdout.contains("that this one continues has changed"), "{}", ended.stdout);
    let mut command = lab.command(BINARY);
    let ended = Run::start({
        command.args(["threads", "fsck"]);
        command
    })
    .end();
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stdout.contains("that this one continues has changed"), "{}", ended.stdout);
}
