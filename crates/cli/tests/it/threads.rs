//! `heddle threads` with real files: list, search, name, archive, delete, export, import, repair.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::Lab;

use crate::BINARY;
use crate::run::lab;

/// The result of a run of `heddle threads`.
#[derive(Debug)]
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

fn run(lab: &Lab, args: &[&str]) -> Ran {
    let mut command = lab.command(BINARY);
    let output = command.arg("threads").args(args).stdin(Stdio::null()).output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs, and checks the output for these parts; parts that begin with `!` must be absent.
#[track_caller]
fn check(lab: &Lab, args: &[&str], code: i32, stdout: &[&str], stderr: &[&str]) -> Ran {
    let ran = run(lab, args);
    assert_eq!(ran.code, code, "{args:?} {ran:?}");
    for (text, parts) in [(&ran.stdout, stdout), (&ran.stderr, stderr)] {
        for part in parts {
            match part.strip_prefix('!') {
                Some(part) => assert!(!text.contains(part), "{args:?}: {part:?} in {text}"),
                None => assert!(text.contains(part), "{args:?}: no {part:?} in {ran:?}"),
            }
        }
    }
    ran
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn id(number: u32) -> String {
    format!("01a1e26e-{number:04x}-7690-abfb-eb0dc0cda447")
}

/// Writes a thread created in `cwd` with one turn for each message in `said`.
fn write(lab: &Lab, number: u32, cwd: &Path, said: &[&str]) -> PathBuf {
    let day = format!("2026-11-{:02}", number % 28 + 1);
    let folder = format!("sessions/{}", day.replace('-', "/"));
    let name = format!("{folder}/rollout-{day}T12-00-00-{}.jsonl", id(number));
    let mut text = String::new();
    let mut ordinal = 0;
    let mut line = |minute: usize, kind: &str, payload: Value| {
        let timestamp = format!("{day}T12:{minute:02}:00.000Z");
        let line =
            json!({ "timestamp": timestamp, "ordinal": ordinal, "type": kind, "payload": payload });
        text += &format!("{line}\n");
        ordinal += 1;
    };
    let message = |role: &str, kind: &str, text: &str| json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] });
    line(
        0,
        "session_meta",
        json!({
            "id": id(number), "timestamp": format!("{day}T12:00:00.000Z"), "cwd": cwd, "originator": "test",
            "cli_version": "0", "source": "exec", "model_provider": "mock", "history_mode": "paginated",
        }),
    );
    for (turn, said) in said.iter().enumerate() {
        let turn_id = format!("turn-{}", turn + 1);
        line(turn, "event_msg", json!({ "type": "task_started", "turn_id": turn_id }));
        line(turn, "turn_context", json!({ "turn_id": turn_id, "cwd": cwd, "model": "gpt-test" }));
        line(turn, "response_item", message("user", "input_text", said));
        line(
            turn,
            "response_item",
            json!({
                "type": "function_call", "name": "exec_command", "call_id": "c",
                "arguments": json!({ "cmd": "make check" }).to_string(),
            }),
        );
        line(
            turn,
            "response_item",
            json!({
                "type": "function_call_output", "call_id": "c", "output": "line\n".repeat(40),
            }),
        );
        line(
            turn,
            "response_item",
            message("assistant", "output_text", &format!("about {said}: done")),
        );
        line(turn, "event_msg", json!({ "type": "task_complete", "turn_id": turn_id }));
    }
    lab.home.write(&name, text).unwrap();
    lab.home.path().join(name)
}

#[test]
fn lists() {
    let lab = lab();
    let here = lab.workspace.path().to_owned();
    check(&lab, &["list"], 0, &[], &["there are no such threads", "--all"]);
    write(&lab, 1, &here, &["first question"]);
    write(&lab, 2, &here, &["second question", "and more"]);
    write(&lab, 3, Path::new("/elsewhere"), &["third\u{1b}[31m question\u{7}"]);
    let ran = check(&lab, &["list"], 0, &["first question", &id(2), "!third", "!\t"], &[]);
    let (first, second) = (ran.stdout.find(&id(1)).unwrap(), ran.stdout.find(&id(2)).unwrap());
    assert!(second < first, "{}", ran.stdout);
    check(
        &lab,
        &["list", "--all"],
        0,
        &["first", "third [31m question", "/elsewhere", "!\u{1b}", "!\u{7}"],
        &[],
    );
    check(&lab, &["list", "--cwd", "/elsewhere"], 0, &["third", "!first"], &[]);
    check(&lab, &["list", "--all", "--since", "2026-11-03"], 0, &[&id(2), &id(3), "!first"], &[]);
    check(&lab, &["list", "--all", "--until", "2026-11-03T00:00:00Z"], 0, &[&id(1), "!third"], &[]);
    check(&lab, &["list", "--all", "--provider", "other"], 0, &[], &["there are no such threads"]);
    check(&lab, &["list", "--all", "--archived"], 0, &[], &["there are no such threads"]);
    let mut thread = lab.command(BINARY);
    assert!(thread.args(["thread", "ls"]).output().unwrap().status.success());

    let ran = check(&lab, &["list", "--all", "--json"], 0, &[], &[]);
    let lines = json_lines(&ran.stdout);
    assert_eq!(lines.len(), 3);
    let row = &lines[1];
    for (key, want) in [
        ("type", json!("thread")),
        ("id", json!(id(2))),
        ("preview", json!("second question")),
        ("turns", json!(2)),
        ("cwd", json!(here)),
        ("model", json!("gpt-test")),
        ("created_at", json!("2026-11-03T12:00:00.000Z")),
        ("updated_at", json!("2026-11-03T12:01:00.000Z")),
        ("archived", json!(false)),
        ("name", Value::Null),
    ] {
        assert_eq!(row[key], want, "{key}");
    }
}

#[test]
fn pages() {
    let lab = lab();
    for number in 1..=7 {
        write(&lab, number, Path::new("/w"), &["x"]);
    }
    let mut seen = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut args = vec!["list", "--all", "--json", "--oldest", "--sort", "created", "-n", "3"];
        args.extend(cursor.as_deref().map(|_| "--cursor"));
        args.extend(cursor.as_deref());
        let mut lines = json_lines(&check(&lab, &args, 0, &[], &[]).stdout);
        let next = lines.pop_if(|line| line["type"] == "next");
        seen.extend(lines.into_iter().map(|line| line["id"].as_str().unwrap().to_owned()));
        let Some(next) = next else { break };
        cursor = Some(next["cursor"].as_str().unwrap().to_owned());
    }
    assert_eq!(seen, (1..=7).map(id).collect::<Vec<_>>());
    let ran =
        check(&lab, &["list", "--all", "-n", "3"], 0, &[], &["there are more: add --cursor "]);
    let cursor = ran.stderr.trim().rsplit(' ').next().unwrap().to_owned();
    check(&lab, &["list", "--all", "--cursor", &cursor], 0, &[&id(4), "!0005-7690"], &[]);
    check(&lab, &["list", "--all", "--oldest", "--cursor", &cursor], 2, &[], &["another order"]);
}

#[test]
fn usage_errors() {
    let lab = lab();
    write(&lab, 1, Path::new("/w"), &["x"]);
    let long = "word ".repeat(1000);
    let cases: [(&[&str], &str); 22] = [
        (
            &["show", "nobody"],
            "there is no thread `nobody`; give an id, its first four or more digits, or a name; `heddle threads list --all`",
        ),
        (&["show", "01a"], "there is no thread `01a`"),
        (&["show", "01a1e26e-ffff-7690-abfb-eb0dc0cda447"], "there is no thread 01a1e26e-ffff"),
        (&["archive", "nobody"], "there is no thread"),
        (&["delete", "01a1e26e"], "add --yes"),
        (&["delete", "--yes", "nobody"], "there is no thread"),
        (&["name", "01a1e26e", "two\nlines"], "a name is one line"),
        (
            &["name", "01a1e26e", "01a1e26e-ffff-7690-abfb-eb0dc0cda447"],
            "looks like the beginning of",
        ),
        (&["name", "01a1e26e", "01a1"], "looks like the beginning of an id"),
        (&["name", "01a1e26e", "dead-BEEF"], "looks like the beginning of an id"),
        (&["name", "01a1e26e", "\u{200b}\u{feff}"], "the name has no visible characters"),
        (&["list", "--since", "yesterday"], "--since: `yesterday` is not a time"),
        (&["list", "--cursor", "x"], "is not a valid cursor"),
        (&["list", "-n", "0"], "0"),
        (&["search"], "WORD"),
        (&["search", "--raw", "a AND"], "; omit --raw to search for plain words"),
        (&["search", &long], "the search is too long"),
        (&["revert", "01a1e26e"], "--turns"),
        (&["revert", "01a1e26e"], "--to"),
        (&["revert", "01a1e26e", "--to", "9"], "there is no such turn; the last is 1"),
        (&["revert", "01a1e26e", "--turns", "2"], "there are only 1"),
        (&["import", "missing.jsonl"], "there is no "),
    ];
    for (args, part) in cases {
        check(&lab, args, 2, &["!x"], &[part]);
    }
    write(&lab, 2, Path::new("/w"), &["x"]);
    check(&lab, &["show", "01a1"], 2, &[], &["is ambiguous", &id(1), &id(2)]);
}

#[test]
fn shows_messages_and_actions() {
    let lab = lab();
    let path = write(&lab, 1, Path::new("/w"), &["look\u{1b}[2J at it", "again"]);
    let ran = check(
        &lab,
        &["show", "01a1e26e"],
        0,
        &[
            "directory  /w",
            "turn 1",
            "user: look\\u{1b}[2J at it",
            "run: make check",
            "agent: about again: done",
            "turn 2",
            "… 30 lines …",
            "!\u{1b}",
            "!damage",
        ],
        &[],
    );
    assert!(ran.stdout.lines().count() < 60, "{}", ran.stdout);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("again", "ag\"in", 1)).unwrap();
    check(&lab, &["show", &id(1)], 0, &["damage: ", "line "], &[]);
    let lines = json_lines(&check(&lab, &["show", "--json", &id(1)], 0, &[], &[]).stdout);
    assert_eq!(lines[0]["type"], "thread");
    assert_eq!((&lines[1]["type"], &lines[1]["turn"]), (&json!("turn"), &json!(1)));
    assert_eq!(lines.last().unwrap()["type"], "damage");
    let said = lines.iter().find(|line| line["type"] == "user").unwrap();
    assert_eq!(said["text"], "look\u{1b}[2J at it");
}

#[test]
fn searches() {
    let lab = lab();
    write(&lab, 1, Path::new("/w"), &["why is the parser slow"]);
    write(&lab, 2, Path::new("/w"), &["nothing \u{1b}[31m to see"]);
    check(
        &lab,
        &["search", "PARSER", "slow"],
        0,
        &[&id(1), "turn 1 user: why is the **parser** **slow**", "!0002"],
        &[],
    );
    check(&lab, &["search", "nothing"], 0, &["**nothing**", "!\u{1b}"], &[]);
    check(&lab, &["search", "make"], 0, &["turn 1 command: **make** check"], &[]);
    check(&lab, &["search", "unheard"], 0, &[], &["no matches"]);
    check(&lab, &["search", "--", "-x", "OR", "("], 0, &[], &["no matches"]);
    check(&lab, &["search", "--raw", "parser OR nothing", "-n", "9"], 0, &[&id(1), &id(2)], &[]);
    let lines = json_lines(&check(&lab, &["search", "--json", "slow"], 0, &[], &[]).stdout);
    let user = lines.iter().find(|line| line["role"] == "user").unwrap();
    assert_eq!(
        (&user["text"], &user["marks"]),
        (&json!("why is the parser slow"), &json!([[18, 22]]))
    );
    assert_eq!(
        (&user["turn"], &user["ordinal"], &user["id"]),
        (&json!(1), &json!(3), &json!(id(1)))
    );
}

#[test]
fn names_archives_and_deletes() {
    let lab = lab();
    let path = write(&lab, 1, Path::new("/w"), &["x"]);
    write(&lab, 2, Path::new("/w"), &["y"]);
    check(&lab, &["name", "01a1e26e-0001", "the slow one"], 0, &["is now named the slow one"], &[]);
    check(&lab, &["list", "--all"], 0, &["[the slow one] x"], &[]);
    check(&lab, &["list", "--all", "--name", "SLOW"], 0, &[&id(1), "!0002"], &[]);
    check(&lab, &["show", "the slow one"], 0, &[&id(1), "name       the slow one"], &[]);
    check(&lab, &["archive", "the slow one"], 0, &["is archived"], &[]);
    assert!(!path.exists());
    check(&lab, &["list", "--all"], 0, &["!the slow one", &id(2)], &[]);
    check(&lab, &["list", "--all", "--archived"], 0, &["the slow one", "!0002"], &[]);
    check(&lab, &["search", "x"], 0, &[], &["no matches"]);
    check(&lab, &["search", "--archived", "x"], 0, &["**x**"], &[]);
    check(&lab, &["unarchive", "the slow one", &id(2)], 0, &["is back"], &[]);
    assert!(path.exists());
    let family = " 👨\u{200d}👩\u{200d}👧 Ärger ";
    check(
        &lab,
        &["name", &id(2), family],
        0,
        &["is now named 👨\u{200d}👩\u{200d}👧 Ärger\n"],
        &[],
    );
    for name in [family, family.trim()] {
        check(&lab, &["show", name], 0, &[&id(2)], &[]);
    }
    check(&lab, &["list", "--all", "--name", "äRGER"], 0, &[&id(2), "!0001"], &[]);
    check(&lab, &["name", "the slow one", ""], 0, &["no longer has a name"], &[]);
    check(&lab, &["show", "the slow one"], 2, &[], &["there is no thread"]);
    check(&lab, &["delete", "-y", &id(1), "01a1e26e-0002"], 0, &["is deleted"], &[]);
    assert!(!path.exists());
    check(&lab, &["list", "--all"], 0, &[], &["there are no such threads"]);
}

/// Deleted text is in no file of the home any more.
#[test]
fn deletes_permanently() {
    let lab = lab();
    write(&lab, 1, Path::new("/w"), &["the secretword is out"]);
    write(&lab, 2, Path::new("/w"), &["a plainword"]);
    check(&lab, &["name", &id(1), "secretname"], 0, &[], &[]);
    check(&lab, &["search", "secretword"], 0, &["**secretword**"], &[]);
    check(&lab, &["list", "--all"], 0, &["secretname"], &[]);
    check(&lab, &["delete", "--yes", &id(1)], 0, &["is deleted"], &[]);
    let mut queue = vec![lab.home.path().to_owned()];
    let mut plain = 0;
    while let Some(path) = queue.pop() {
        if path.is_dir() {
            queue.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(!has("secretword") && !has("secretname"), "{}", path.display());
        plain += usize::from(has("plainword"));
    }
    assert!(plain >= 2, "the log and the index have what was not deleted");
}

#[test]
fn reverts() {
    let lab = lab();
    let path = write(&lab, 1, Path::new("/w"), &["one", "two", "three"]);
    let before = fs::read(&path).unwrap();
    check(
        &lab,
        &["revert", "01a1e26e", "--turns", "1"],
        0,
        &["reverted 1 turn", "has 2 left"],
        &[],
    );
    check(
        &lab,
        &["show", "01a1e26e"],
        0,
        &["turns      2", "user: two", "!three", "created    2026-11-02"],
        &[],
    );
    check(&lab, &["revert", "01a1e26e", "--to", "turn-1"], 0, &["has 1 left"], &[]);
    check(&lab, &["list", "--all"], 0, &["one"], &[]);
    check(&lab, &["search", "two"], 0, &[], &["no matches"]);
    check(&lab, &["revert", "01a1e26e", "--to", "1"], 0, &["nothing to revert"], &[]);
    assert!(fs::read(&path).unwrap() == before, "the file that was there stays as it was");
}

#[test]
fn exports_and_imports() {
    let lab = lab();
    let path = write(&lab, 1, Path::new("/w"), &["take me along"]);
    let out = lab.workspace.path().join("out");
    fs::create_dir(&out).unwrap();
    check(&lab, &["export", "01a1e26e", "-o", "out"], 0, &[], &[]);
    let file = out.join(path.file_name().unwrap());
    assert!(file.is_file());
    check(&lab, &["export", "01a1e26e", "-o", "out"], 2, &[], &["exists", "--force"]);
    check(&lab, &["export", "01a1e26e", "-o", "out", "--force"], 0, &[], &[]);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1, "nothing is left beside it");
    let ran = check(&lab, &["export", "01a1e26e"], 0, &["take me along"], &[]);
    assert_eq!(ran.stdout, fs::read_to_string(&file).unwrap());
    let missing = ["export", "01a1e26e", "-o", "missing/dir/file"];
    check(&lab, &missing, 2, &[], &["missing/dir does not exist"]);
    check(&lab, &["export", "01a1e26e", "-o", "made/dir/"], 0, &[], &[]);
    assert!(lab.workspace.path().join("made/dir").join(path.file_name().unwrap()).is_file());
    // Other files in the directory are not ours.
    fs::write(lab.workspace.path().join("x.part"), "mine").unwrap();
    check(&lab, &["export", "01a1e26e", "-o", "x"], 0, &[], &[]);
    assert_eq!(fs::read_to_string(lab.workspace.path().join("x.part")).unwrap(), "mine");

    let other = crate::run::lab();
    let from = out.to_str().unwrap();
    check(&other, &["import", from], 0, &[&id(1), "1 of 1 imported"], &[]);
    check(&other, &["list", "--all"], 0, &["take me along"], &[]);
    check(&other, &["import", from], 0, &["already exists", "0 of 1"], &[]);

    // It continued there, and then here, too.
    let more = |file: &Path, words: &str| {
        let mut text = fs::read_to_string(file).unwrap();
        text += &json!({ "timestamp": "2026-11-16T12:00:00.000Z", "ordinal": 8, "type": "response_item",
            "payload": { "type": "message", "role": "user",
                         "content": [{ "type": "input_text", "text": words }] } })
        .to_string();
        fs::write(file, text + "\n").unwrap();
    };
    more(&file, "went on there");
    let older = ["updated: the existing copy was older", "1 of 1"];
    check(&other, &["import", from], 0, &older, &[]);
    check(&other, &["show", &id(1)], 0, &["went on there"], &[]);
    let ours = lab.workspace.path().join("made/dir").join(path.file_name().unwrap());
    more(&ours, "went on elsewhere");
    let ours = ours.to_str().unwrap();
    check(&other, &["import", ours], 1, &["0 of 1"], &["a diverged version", "import again"]);
    check(&other, &["show", &id(1)], 0, &["went on there", "!elsewhere"], &[]);

    // Nothing to import is not a success.
    fs::create_dir(lab.workspace.path().join("empty")).unwrap();
    let empty = lab.workspace.path().join("empty");
    let packed = empty.join(format!("{}.zst", path.file_name().unwrap().to_str().unwrap()));
    check(&other, &["import", empty.to_str().unwrap()], 1, &[], &["there are no threads in"]);
    fs::write(&packed, "x").unwrap();
    check(&other, &["import", empty.to_str().unwrap()], 1, &[], &["zstd -d"]);
    // A file exported under a name of the user's choice can be imported, too.
    let third = crate::run::lab();
    let named = lab.workspace.path().join("x");
    check(&third, &["import", named.to_str().unwrap()], 0, &[&id(1), "1 of 1 imported"], &[]);
    check(&third, &["show", &id(1)], 0, &["take me along"], &[]);
    check(&third, &["import", named.to_str().unwrap()], 0, &["already exists"], &[]);
    fs::write(&named, "no thread\n").unwrap();
    check(&third, &["import", named.to_str().unwrap()], 1, &[], &["its first line is not"]);
    let link = lab.workspace.path().join("link");
    std::os::unix::fs::symlink(&out, &link).unwrap();
    check(&other, &["import", link.to_str().unwrap()], 0, &["already exists"], &[]);
}

#[test]
fn checks_and_repairs() {
    let lab = lab();
    let path = write(&lab, 1, Path::new("/w"), &["one", "two"]);
    check(&lab, &["fsck"], 0, &["1 files, 15 lines: no damage"], &[]);
    let whole = fs::read(&path).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"{\"timestamp\":\"2026-").unwrap();
    check(&lab, &["fsck", "01a1e26e"], 1, &["damaged: ", "add --repair"], &[]);
    let lines = json_lines(&check(&lab, &["fsck", "--json"], 1, &[], &[]).stdout);
    assert_eq!(lines[0]["damage"][0]["what"], "torn_tail");
    check(&lab, &["fsck", "--repair"], 0, &["repaired: ", "no damage"], &[]);
    assert!(fs::read(&path).unwrap().starts_with(&whole), "what is whole stays");
    check(&lab, &["fsck"], 0, &["no damage"], &[]);
    let last = whole.split_inclusive(|byte| *byte == b'\n').next_back().unwrap();
    file.write_all(last).unwrap();
    check(&lab, &["fsck"], 0, &["note: ", "line 14 (", "in the file twice", "no damage"], &[]);
    let lines = json_lines(&check(&lab, &["fsck", "--json"], 0, &[], &[]).stdout);
    assert_eq!(lines[0]["notes"][0]["what"], "doubled");
    assert_eq!(lines[0]["notes"][0]["lines"], serde_json::json!([14, 14]));
}

#[test]
fn a_lost_or_broken_index_makes_no_difference() {
    let lab = lab();
    for number in 1..=3 {
        write(&lab, number, Path::new("/w"), &["question"]);
    }
    let want = check(&lab, &["list", "--all", "--json"], 0, &[], &[]).stdout;
    let index = lab.home.path().join("thread-index/index.sqlite");
    assert!(index.is_file());
    for state in [None, Some(&b"garbage"[..]), Some(&[0; 8192][..]), Some(b"")] {
        match state {
            None => fs::remove_file(&index).unwrap(),
            Some(bytes) => fs::write(&index, bytes).unwrap(),
        }
        assert_eq!(check(&lab, &["list", "--all", "--json"], 0, &[], &["!e"]).stdout, want);
    }
}

#[test]
fn closing_the_output_early_is_not_a_failure() {
    let lab = lab();
    let said: Vec<_> = (0..2000).map(|_| "a question that is long enough to fill a pipe").collect();
    write(&lab, 1, Path::new("/w"), &said[..59]);
    let mut command = lab.command(BINARY);
    command.args(["threads", "show", "--json", &id(1)]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

/// A user-role message that no user wrote does not start a turn, for any reader.
#[test]
fn all_count_the_same_turns() {
    let lab = lab();
    let said = [
        "first question",
        "<subagent_notification>{}</subagent_notification>",
        "<user_shell_command>ls</user_shell_command>",
        "Another language model started to solve this problem and left this",
        "second question",
    ];
    let line = |kind: &str, payload: Value| {
        format!(
            "{}\n",
            json!({ "timestamp": "2026-11-02T12:00:00.000Z", "type": kind, "payload": payload })
        )
    };
    let head = json!({ "id": id(1), "timestamp": "2026-11-02T12:00:00.000Z", "cwd": "/w", "originator": "x", "cli_version": "0" });
    let mut text = line("session_meta", head);
    for said in said {
        let content = json!([{ "type": "input_text", "text": said }]);
        text += &line(
            "response_item",
            json!({ "type": "message", "role": "user", "content": content }),
        );
    }
    let name = format!("sessions/2026/11/02/rollout-2026-11-02T12-00-00-{}.jsonl", id(1));
    lab.home.write(&name, text).unwrap();
    let shown = check(&lab, &["show", &id(1), "--json"], 0, &["second question"], &[]);
    let lines = json_lines(&shown.stdout);
    assert_eq!(lines.iter().filter(|line| line["type"] == "turn").count(), 2, "{}", shown.stdout);
    let found = check(&lab, &["search", "second", "--json"], 0, &["second question"], &[]);
    assert_eq!(json_lines(&found.stdout)[0]["turn"], 2, "{}", found.stdout);
    let listed = check(&lab, &["list", "--all", "--json"], 0, &[], &[]);
    assert_eq!(json_lines(&listed.stdout)[0]["turns"], 2, "{}", listed.stdout);
}
