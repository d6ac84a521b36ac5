//! Files that are attached to messages: what models get, what events say, and what clean-up keeps.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use heddle::error::ErrorKind;
use heddle::events::Event;
use heddle::files::{CleanUp, Kept, Listing, Report, StageError};
use heddle::threads::MemoryStore;
use heddle::{Heddle, Input, Thread, ThreadSpec};
use serde_json::{Value, json};

use crate::scripted::{Lab, call, message};

const PDF: &[u8] = b"%PDF-1.7 paper";

fn write(lab: &Lab, name: &str, content: &[u8]) {
    std::fs::write(lab.root.path().join("work").join(name), content).unwrap();
}

/// The events of a turn that are about files, and where it starts.
async fn events(thread: &Thread, input: Input) -> Vec<String> {
    let mut turn = thread.turn(input);
    let mut seen = Vec::new();
    while let Some(event) = turn.next().await {
        match event {
            Event::FileStaged { file, reused } => {
                seen.push(format!("staged {} {}", file.name, if reused { "again" } else { "new" }));
            }
            Event::FileSent(file) => seen.push(format!("sent {}", file.name)),
            Event::Warning(text) => seen.push(format!("warning {text}")),
            Event::TurnStarted { .. } => seen.push("started".to_owned()),
            _ => {}
        }
    }
    turn.result().unwrap();
    seen
}

/// The contents of the user's last message in a request.
fn said(request: &Value) -> Vec<Value> {
    let mut messages = request["input"].as_array().unwrap().iter().rev();
    let last = messages.find(|item| item["role"] == "user").unwrap();
    last["content"].as_array().unwrap().clone()
}

/// Makes everything that is staged look as if it was last used ten days ago.
fn age(heddle: &Heddle) {
    let then = SystemTime::now() - Duration::from_secs(10 * 24 * 3600);
    for entry in std::fs::read_dir(heddle.home().join("staged-files")).unwrap() {
        File::open(entry.unwrap().path()).unwrap().set_modified(then).unwrap();
    }
}

async fn clean_up(heddle: &Heddle) -> Report {
    heddle.files().clean_up(CleanUp::default(), |_| {}).await.unwrap()
}

#[tokio::test]
async fn staged_then_started_then_sent_once_each() {
    let lab = Lab::new();
    write(&lab, "paper.pdf", PDF);
    write(&lab, "copy.pdf", PDF);
    write(&lab, "notes.md", b"# Notes\n");
    let answers = vec![vec![call("a")], vec![message("read")]];
    let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), answers)).await.unwrap();
    let input = Input::from("Read.").file("paper.pdf").file("notes.md").file("copy.pdf");
    let want = [
        "staged paper.pdf new",
        "staged notes.md new",
        "started",
        "sent paper.pdf",
        "sent notes.md",
    ];
    assert_eq!(events(&thread, input).await, want);
    // Both requests of the turn have the same content, where the references are.
    let file = json!({"type": "input_file", "filename": "paper.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjcgcGFwZXI="});
    let parts = {
        let requests = lab.requests.lock().unwrap();
        assert_eq!(requests.len(), 2);
        assert_eq!(said(&requests[0]), said(&requests[1]));
        said(&requests[0])
    };
    assert_eq!(parts[0]["text"], "Read.");
    assert_eq!(parts[1], file);
    assert_eq!(parts[2]["text"], "[attached file notes.md]\n```\n# Notes\n```");
    assert_eq!(parts[3]["filename"], "copy.pdf");
    // The next turn uses them again.
    let input = Input::from("And?").file("notes.md");
    assert_eq!(events(&thread, input).await, ["staged notes.md again", "started", "sent notes.md"]);
    // The log has neither content.
    let log = std::fs::read_to_string(thread.facts().unwrap().log_path.clone().unwrap()).unwrap();
    assert!(log.contains("\"heddle_file\"") && !log.contains("JVBERi0xLjcgcGFwZXI"), "{log}");
    assert!(!log.contains("# Notes"), "{log}");
}

#[tokio::test]
async fn a_thread_that_goes_on_sends_the_same_bytes() {
    let lab = Lab::new();
    write(&lab, "paper.pdf", PDF);
    let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), Vec::new())).await.unwrap();
    events(&thread, Input::from("Read.").file("paper.pdf")).await;
    let id = thread.id().unwrap();
    drop(thread);
    std::fs::remove_file(lab.root.path().join("work/paper.pdf")).unwrap();
    for spec in [ThreadSpec::resume(id), ThreadSpec::fork(id)] {
        let thread = lab.another().start(lab.spec(spec, Vec::new())).await.unwrap();
        // It was sent before.
        assert_eq!(events(&thread, Input::from("And?")).await, ["started"]);
        let requests = lab.requests.lock().unwrap();
        let item = |request: &Value| {
            let items = request["input"].as_array().unwrap();
            items.iter().find(|item| item.to_string().contains("input_file")).unwrap().to_string()
        };
        assert_eq!(item(&requests[0]), item(requests.last().unwrap()));
    }
}

/// A log in another home names what is not there, once; the turn goes on, and the model reads why.
#[tokio::test]
async fn a_thread_in_another_home_names_what_is_missing() {
    let lab = Lab::new();
    write(&lab, "paper.pdf", PDF);
    let answers = vec![vec![call("a")], vec![message("read")]];
    let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), Vec::new())).await.unwrap();
    events(&thread, Input::from("Read.").file("paper.pdf")).await;
    let id = thread.id().unwrap();
    drop(thread);
    std::fs::remove_dir_all(lab.heddle.home().join("staged-files")).unwrap();
    let thread = lab.another().start(lab.spec(ThreadSpec::resume(id), answers)).await.unwrap();
    let why = "its content is not in the staging area of this home; attach it again";
    let warning = format!("warning the model does not get the file paper.pdf: {why}");
    assert_eq!(events(&thread, Input::from("And?")).await, ["started".to_owned(), warning]);
    let text = format!("[the attached file paper.pdf was left out: {why}]");
    assert!(lab.requests.lock().unwrap().last().unwrap()["input"].to_string().contains(&text));
    assert_eq!(events(&thread, Input::from("And now?")).await, ["started"]);
    // Attached again, it is there for the old message, too.
    let input = Input::from("Here.").file("paper.pdf");
    assert_eq!(events(&thread, input).await, ["staged paper.pdf new", "started", "sent paper.pdf"]);
    let last = lab.requests.lock().unwrap().last().unwrap()["input"].to_string();
    assert_eq!((last.matches("input_file").count(), last.contains("left out")), (2, false));
}

#[tokio::test]
async fn what_cannot_be_attached_is_refused_before_the_turn() {
    let lab = Lab::new();
    write(&lab, "a.zip", b"PK\x03\x04....");
    write(&lab, "good.txt", b"good");
    let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), Vec::new())).await.unwrap();
    for (file, words) in [
        ("missing.pdf", "missing.pdf cannot be attached: No such file"),
        ("a.zip", "a ZIP archive"),
    ] {
        let mut turn = thread.turn(Input::from("Read.").file("good.txt").file(file));
        assert_eq!(turn.next().await, None, "no event comes");
        let error = turn.result().unwrap_err();
        assert_eq!((error.kind(), error.turn_id().is_some()), (ErrorKind::Settings, true));
        assert!(error.file().is_some(), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
        let error = lab.heddle.files().stage(file).await.unwrap_err();
        let why = error.file().expect("it is about a file");
        assert!(matches!(why, StageError::NotSupported { .. } | StageError::Unreadable { .. }));
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(lab.requests.lock().unwrap().len(), 0);
    thread.turn("The thread is as it was.").run().await.unwrap();
}

#[tokio::test]
async fn attachments_are_announced_once_and_kept_while_they_are_used() {
    let lab = Lab::new();
    let files = lab.heddle.files();
    let chart = files.stage_bytes("chart.csv", "day,users\n").await.unwrap().temporary();
    let unused = files.stage_bytes("unused.csv", "nothing\n").await.unwrap().temporary();
    let path = unused.path();
    drop(unused.clone());
    assert!(path.exists());
    drop(unused);
    assert!(!path.exists(), "a temporary file goes with its last handle");
    let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), Vec::new())).await.unwrap();
    let input = Input::from("Look.").attachment(&chart).attachment(&chart);
    assert_eq!(events(&thread, input).await, ["staged chart.csv new", "started", "sent chart.csv"]);
    let again = Input::from("Again.").attachment(&chart);
    assert_eq!(
        events(&thread, again).await,
        ["staged chart.csv again", "started", "sent chart.csv"]
    );
    let path = chart.path();
    drop(chart);
    assert!(path.exists(), "a thread refers to it");
}

#[tokio::test]
async fn clean_up_keeps_what_threads_refer_to() {
    let lab = Lab::new();
    for name in ["forked", "archived", "ephemeral", "nobody"] {
        write(&lab, &format!("{name}.txt"), name.as_bytes());
    }
    let run = async |spec: ThreadSpec, name: &str| {
        let thread = lab.heddle.start(lab.spec(spec, Vec::new())).await.unwrap();
        let input = match name {
            "" => Input::from("go on"),
            name => Input::from("Read.").file(format!("{name}.txt")),
        };
        events(&thread, input).await;
        thread
    };
    let source = run(ThreadSpec::new(), "forked").await;
    let fork = run(ThreadSpec::fork(source.id().unwrap()), "").await;
    let archived = run(ThreadSpec::new(), "archived").await;
    let id = archived.id().unwrap();
    drop(archived);
    lab.heddle.threads().archive(id).await.unwrap();
    let ephemeral = run(ThreadSpec::new().ephemeral(true), "ephemeral").await;
    drop(lab.heddle.files().stage("nobody.txt").await.unwrap());
    age(&lab.heddle);
    let report = clean_up(&lab.heddle).await;
    let why: Vec<_> = report.kept.iter().map(|(_, why)| *why).collect();
    assert_eq!((report.removed.len(), why), (1, vec![Kept::Mentioned; 3]), "nobody refers to one");
    // Another process does not see the ephemeral thread, but that it has the file.
    let elsewhere = clean_up(&lab.another()).await;
    assert_eq!(elsewhere.kept.iter().filter(|(_, why)| *why == Kept::InUse).count(), 1);
    drop((ephemeral, source, fork));
    let report = clean_up(&lab.another()).await;
    assert_eq!((report.removed.len(), report.kept.len()), (1, 2));
    // One thread is deleted, and with it what only that has.
    let Listing { files, .. } = lab.heddle.files().list(|_| {}).await.unwrap();
    let names: Vec<_> = files.iter().map(|(_, mentions)| mentions.names.join(" ")).collect();
    assert!(names.contains(&"archived.txt".to_owned()), "{names:?}");
    lab.heddle.threads().unarchive(id).await.unwrap();
    lab.heddle.threads().delete(id).await.unwrap();
    let report = clean_up(&lab.heddle).await;
    assert_eq!((report.removed.len(), report.kept.len()), (1, 1));
}

/// A host program may keep its threads anywhere.
#[tokio::test]
async fn clean_up_asks_the_store_of_the_host() {
    let lab = Lab::new();
    write(&lab, "a.txt", b"content");
    let store = Arc::new(MemoryStore::default());
    let heddle = lab.builder().store(store).build().unwrap();
    let thread = heddle.start(lab.spec(ThreadSpec::new(), Vec::new())).await.unwrap();
    events(&thread, Input::from("Read.").file("a.txt")).await;
    let id = thread.id().unwrap();
    thread.close().await;
    drop(thread);
    for archived in [false, true] {
        if archived {
            heddle.threads().archive(id).await.unwrap();
        }
        age(&heddle);
        assert_eq!(clean_up(&heddle).await.kept[0].1, Kept::Mentioned, "{archived}");
    }
    heddle.threads().unarchive(id).await.unwrap();
    heddle.threads().delete(id).await.unwrap();
    assert_eq!(clean_up(&heddle).await.removed.len(), 1);
}

/// Paths are those of the thread, not of the process.
#[tokio::test]
async fn paths_are_relative_to_the_thread() {
    let lab = Lab::new();
    std::fs::create_dir(lab.root.path().join("work/sub")).unwrap();
    write(&lab, "sub/a.txt", b"content");
    let spec = lab.spec(ThreadSpec::in_dir("sub"), Vec::new());
    let thread = lab.heddle.start(spec).await.unwrap();
    let seen = events(&thread, Input::from("Read.").file(Path::new("a.txt"))).await;
    assert_eq!(seen[0], "staged a.txt new");
    assert_eq!(lab.heddle.files().stage("sub/a.txt").await.unwrap().reference().name, "a.txt");
}
