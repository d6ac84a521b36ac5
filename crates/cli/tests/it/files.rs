//! `heddle exec --file` and `heddle files`: what endpoints get, what is kept, and what is refused.

use std::fs::File;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use testkit::script::{message, response};
use testkit::{Lab, ModelServer, chat};

use crate::BINARY;
use crate::run::{Ended, Run, exec, lab, lab_for};

const PDF: &[u8] = b"%PDF-1.7 paper";
const PDF_URL: &str = "data:application/pdf;base64,JVBERi0xLjcgcGFwZXI=";
/// One pixel.
const PNG: [u8; 70] = *b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\xdacd\xf8\xcfP\x0f\0\x03\x86\x01\x80Z4}k\0\0\0\0IEND\xaeB`\x82";

fn attach(lab: &Lab) {
    lab.workspace.write("paper.pdf", PDF).unwrap();
    lab.workspace.write("notes.md", "# Notes\n").unwrap();
    lab.workspace.write("dot.png", PNG).unwrap();
}

#[track_caller]
fn files(lab: &Lab, args: &[&str]) -> Ended {
    let mut command = lab.command(BINARY);
    command.arg("files").args(args);
    Run::start(command).end()
}

/// The lines of `heddle files … --json`, without digests and times.
#[track_caller]
fn listed(lab: &Lab, args: &[&str]) -> Vec<Value> {
    let ended = files(lab, args);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let line = |line: &str| {
        let mut object: Value = serde_json::from_str(line).unwrap();
        assert_eq!(object["sha256"].as_str().unwrap().len(), 64);
        assert!(object["used_at"].as_str().unwrap().starts_with("20"));
        object.as_object_mut().unwrap().retain(|key, _| key != "sha256" && key != "used_at");
        object
    };
    let mut lines: Vec<_> = ended.stdout.lines().map(line).collect();
    lines.sort_by_key(|object| object["bytes"].as_u64());
    lines
}

/// Makes everything that is staged look as if it was last used ten days ago.
fn age(lab: &Lab) {
    let then = SystemTime::now() - Duration::from_secs(10 * 24 * 3600);
    for entry in std::fs::read_dir(lab.home.path().join("staged-files")).unwrap() {
        File::open(entry.unwrap().path()).unwrap().set_modified(then).unwrap();
    }
}

/// Runs a turn with three files; returns the parts of the user's message, which begins with the prompt.
#[track_caller]
fn parts(api: &str, answer: Value, settings: &str) -> (Vec<Value>, Ended) {
    let server = ModelServer::start(json!([answer])).unwrap();
    let lab = lab();
    let config =
        testkit::lab::mock_config(server.port()).replace("\"responses\"", &format!("{api:?}"));
    lab.home.write("config.toml", config + settings).unwrap();
    attach(&lab);
    let files = ["--file", "paper.pdf", "--file", "notes.md", "--file", "dot.png"];
    let ended = Run::start(exec(&lab, &[&files[..], &["read these"]].concat())).end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let body = &server.requests()[0].body;
    let messages = if api == "chat" { &body["messages"] } else { &body["input"] };
    let last = messages.as_array().unwrap().iter().rfind(|it| it["role"] == "user").unwrap();
    let parts = match &last["content"] {
        Value::Array(parts) => parts.clone(),
        // Nothing but text.
        text => vec![json!({ "text": text })],
    };
    assert!(parts[0]["text"].as_str().unwrap().contains("read these"), "{parts:?}");
    (parts, ended)
}

#[test]
fn the_responses_api_gets_all_kinds() {
    let (parts, ended) = parts("responses", response([message("ok")]), "");
    let text = |text: &str| json!({"type": "input_text", "text": text});
    assert_eq!(
        parts[1],
        json!({"type": "input_file", "filename": "paper.pdf", "file_data": PDF_URL})
    );
    assert_eq!(parts[2], text("[attached file notes.md]\n```\n# Notes\n```"));
    assert_eq!(parts[3], text("[attached file dot.png]"));
    assert_eq!((&parts[4]["type"], &parts[4]["detail"]), (&json!("input_image"), &json!("high")));
    assert!(parts[4]["image_url"].as_str().unwrap().starts_with("data:image/png;base64,iVBOR"));
    assert_eq!(parts.len(), 5);
    // Consumers of the lines see what they always saw.
    let kinds: Vec<_> =
        ended.events().iter().map(|it| it["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["thread.started", "turn.started", "item.completed", "turn.completed"]);
}

#[test]
fn chat_completions_gets_documents_if_the_settings_say_so() {
    let answer = || chat::answer([chat::text("ok")]);
    let (named, _) = parts("chat", answer(), "attachments = [\"pdfs\", \"images\"]\n");
    assert_eq!(
        named[1],
        json!({"type": "file", "file": {"filename": "paper.pdf", "file_data": PDF_URL}})
    );
    assert_eq!(named[4]["type"], "image_url");
    for (settings, refused) in [("", &["PDFs"][..]), ("attachments = []\n", &["PDFs", "images"])] {
        let (parts, ended) = parts("chat", answer(), settings);
        for what in refused {
            let why = format!("the provider mock is not known to take {what}");
            assert!(
                parts.iter().any(|it| it["text"].as_str().is_some_and(|it| it.contains(&why))),
                "{parts:?}"
            );
            assert!(ended.stdout.contains(&why) || ended.stderr.contains(&why), "{ended:#?}");
        }
    }
}

#[test]
fn files_are_kept_while_a_thread_refers_to_them() {
    let server =
        ModelServer::start(json!([response([message("ok")]), response([message("ok")])])).unwrap();
    let lab = lab_for(&server);
    let none = files(&lab, &["list"]);
    assert!(none.code == Some(0) && none.stderr.contains("there are no staged files"), "{none:#?}");
    assert_eq!(listed(&lab, &["gc", "--json"]), Vec::<Value>::new());
    attach(&lab);
    let ended =
        Run::start(exec(&lab, &["--file", "paper.pdf", "--file", "notes.md", "read"])).end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    // Again, in a thread that is not kept, with another name.
    std::fs::rename(lab.workspace.path().join("paper.pdf"), lab.workspace.path().join("b.pdf"))
        .unwrap();
    let again = ["--ephemeral", "--file", "b.pdf", "--file", "dot.png", "read"];
    let ended = Run::start(exec(&lab, &again)).end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let file = |mime: &str, bytes: usize| json!({"type": "file", "mime": mime, "bytes": bytes});
    let with = |mut file: Value, more: Value| {
        file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        file
    };
    let want = [
        with(file("text/plain", 8), json!({"logs": 1, "names": ["notes.md"]})),
        with(file("application/pdf", 14), json!({"logs": 1, "names": ["paper.pdf"]})),
        with(file("image/png", 70), json!({"logs": 0, "names": []})),
    ];
    assert_eq!(listed(&lab, &["list", "--json"]), want);
    let table = files(&lab, &["ls"]);
    assert!(table.stdout.starts_with("SHA-256"), "{table:#?}");
    assert!(table.stdout.lines().any(|line| line.ends_with("1  notes.md")), "{table:#?}");
    // Everything is new, then only one is not referred to.
    let recent = files(&lab, &["gc"]);
    assert!(
        recent.stderr.contains("0 files removed (0 B); 3 kept, as they were used not long ago"),
        "{recent:#?}"
    );
    age(&lab);
    let dry = files(&lab, &["gc", "--dry-run"]);
    assert!(
        dry.stderr.contains("1 file would be removed (70 B); 2 kept, as threads refer to them"),
        "{dry:#?}"
    );
    assert!(dry.stdout.contains("image/png"), "{dry:#?}");
    assert_eq!(listed(&lab, &["list", "--json"]).len(), 3);
    let longer = files(&lab, &["gc", "--ttl", "11d"]);
    assert!(longer.stderr.contains("0 files removed"), "{longer:#?}");
    // What cannot be read may refer to anything.
    lab.home.write("sessions/old.jsonl.zst", b"\x28\xb5\x2f\xfd").unwrap();
    let blind = files(&lab, &["gc"]);
    assert_eq!(blind.code, Some(1), "{blind:#?}");
    assert!(
        blind.stderr.contains("old.jsonl.zst cannot be searched for references: it is compressed"),
        "{blind:#?}"
    );
    assert!(blind.stderr.contains("1 kept, as not all logs can be read"), "{blind:#?}");
    std::fs::remove_file(lab.home.path().join("sessions/old.jsonl.zst")).unwrap();
    let done = listed(&lab, &["gc", "--json"]);
    let what: Vec<_> =
        done.iter().map(|it| (it["done"].as_str().unwrap(), it["why"].as_str())).collect();
    assert_eq!(what, [("kept", Some("mentioned")), ("kept", Some("mentioned")), ("removed", None)]);
    assert_eq!(listed(&lab, &["list", "--json"]).len(), 2);
}

#[test]
fn what_cannot_be_attached_ends_the_run_before_it_starts() {
    let server = ModelServer::start(json!([])).unwrap();
    let lab = lab_for(&server);
    lab.workspace.write("a.docx", b"PK\x03\x04....").unwrap();
    lab.workspace.write("long.txt", "x".repeat((1 << 20) + 1)).unwrap();
    for (args, words) in [
        (&["--file", "gone.pdf", "hi"][..], "gone.pdf cannot be attached: No such file"),
        (&["--file", ".git", "hi"], "it is a directory"),
        (
            &["--file", "a.docx", "hi"],
            "a.docx cannot be attached: it is a ZIP archive, as are documents of Word",
        ),
        (
            &["--file", "long.txt", "hi"],
            "text files of at most 1048576 bytes can be attached; make it smaller, or",
        ),
    ] {
        let ended = Run::start(exec(&lab, args)).end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:#?}");
        assert!(ended.stderr.contains(words), "{ended:#?}");
    }
    assert!(!lab.home.path().join("sessions").exists(), "there is no thread");
    let bad = files(&lab, &["gc", "--ttl", "7"]);
    assert!(bad.code == Some(2) && bad.stderr.contains("give a number and a unit"), "{bad:#?}");
}
