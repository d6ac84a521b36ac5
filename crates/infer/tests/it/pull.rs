//! Models are downloaded completely, whatever the hub and the connection do.

use std::fs;
use std::time::Duration;

use infer::models::hub::Hub;
use infer::models::name::ModelRequest;
use infer::models::pull::{Event, Patience, PullError, Puller};
use infer::models::{Model, Models};
use stdx::Redacted;
use tempfile::TempDir;

use crate::hub::{Fault, Says, TestHub};

/// Returns bytes with the magic of a model file.
fn gguf(length: usize, seed: u8) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend((bytes.len()..length).map(|at| (at % 251) as u8 ^ seed));
    bytes
}

fn pull(
    home: &TempDir,
    hub: &TestHub,
    wanted: &str,
    name: Option<&str>,
) -> (Result<Model, PullError>, Vec<String>) {
    let models = Models::new(home.path(), Vec::new());
    let token = Redacted::new("hf_secret");
    let http = providers::http().unwrap();
    let hub = Hub::new(http, &hub.endpoint(), Some(&token)).unwrap();
    let hub = hub.with_patience(Duration::from_millis(300));
    let patience = Patience { failures_max: 3, wait: Duration::from_millis(1) };
    let puller = Puller { models: &models, hub: &hub, patience };
    let mut told = Vec::new();
    let mut tell = |event: Event<'_>| match event {
        Event::Chosen { have, files, .. } => told.push(format!("{files} files, {have} there")),
        Event::Checking => told.push("checking".to_owned()),
        Event::Waiting { .. } => told.push("waiting".to_owned()),
        Event::Again { why } => told.push(why.to_owned()),
        Event::Bytes { done, total } => assert!(done <= total),
    };
    let wanted = ModelRequest::parse(wanted).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = runtime.block_on(puller.pull(&wanted, name, &mut tell));
    (done, told)
}

/// Downloads a file of 100,000 bytes from a hub with these faults; `told` are the expected progress events,
/// and an expected failure contains these words.
#[track_caller]
fn check(says: Says, faults: &[Fault], told: &[&str], want: Result<(), &str>) {
    let bytes = gguf(100_000, 0);
    let hub = TestHub::start(&[("m.gguf", bytes.clone())], says, faults);
    let home = TempDir::new().unwrap();
    let (done, heard) = pull(&home, &hub, "hf:lab/models-GGUF:m.gguf", None);
    let heard: Vec<_> = heard.iter().map(String::as_str).filter(|t| !t.contains("there")).collect();
    let folder = home.path().join("models");
    match (done, want) {
        (Ok(model), Ok(())) => {
            assert_eq!(fs::read(&model.path).unwrap(), bytes, "{faults:?}");
            assert_eq!(model.bytes, 100_000);
            assert!(model.sha256.is_some());
            let left = fs::read_dir(&folder).unwrap().flatten();
            let left: Vec<_> =
                left.filter(|e| e.path().to_string_lossy().contains("part")).collect();
            assert!(left.is_empty(), "{left:?}");
        }
        (Err(error), Err(words)) => {
            assert!(error.to_string().contains(words), "{faults:?}: {error}");
            assert!(!folder.join("m.gguf").exists());
        }
        (done, want) => panic!("{says:?} {faults:?}: {done:?}, not {want:?}"),
    }
    assert_eq!(heard, told, "{says:?} {faults:?}");
    for asked in hub.asked() {
        let token = asked.headers.get("authorization").map(String::as_str);
        // The token is sent to the hub alone.
        let want = (asked.port == "hub").then_some("Bearer hf_secret");
        assert_eq!(token, want, "{}", asked.line);
    }
}

#[test]
fn connections_break() {
    use Fault::*;
    for says in [Says::Linked, Says::Plain] {
        check(says, &[], &[], Ok(()));
        check(says, &[Cut(0)], &["waiting"], Ok(()));
        check(says, &[Cut(50_000)], &["waiting"], Ok(()));
        check(says, &[Cut(10), Cut(10), Cut(10), Cut(10), Cut(10)], &["waiting"; 5], Ok(()));
        check(says, &[Status(503, "")], &["waiting"], Ok(()));
        check(says, &[Status(429, "Retry-After: 0\r\n")], &["waiting"], Ok(()));
        check(says, &[Silence], &["waiting"], Ok(()));
        // No new bytes ever arrive.
        check(says, &[Cut(0); 9], &["waiting"; 3], Err("the connection broke"));
        check(says, &[Status(500, ""); 9], &["waiting"; 3], Err("status 500"));
        let again = "the hub sends all of it";
        check(says, &[Cut(500), Whole], &["waiting", again], Ok(()));
        let unknown = "the hub does not know the bytes that are missing";
        check(says, &[Cut(500), Status(416, "")], &["waiting", unknown], Ok(()));
        check(says, &[Status(416, "")], &[], Err("refuses to send"));
        check(says, &[Status(404, "")], &[], Err("HF_TOKEN"));
        check(says, &[Status(418, "")], &[], Err("status 418"));
        check(says, &[Cut(500), Elsewhere], &["waiting"], Err("other bytes"));
    }
}

#[test]
fn wrong_announcements() {
    use Fault::*;
    check(
        Says::Linked,
        &[Length(100_001)],
        &[],
        Err("should have 100000 bytes, but the hub sends 100001"),
    );
    check(Says::Linked, &[Endless], &[], Err("should have 100000 bytes"));
    check(Says::Linked, &[Cut(9), Total(7)], &["waiting"], Err("but the hub sends 7"));
    check(Says::Linked, &[Garbled], &[], Err("SHA-256"));
    check(Says::WrongSum, &[], &[], Err("SHA-256"));
    check(Says::WrongSize, &[], &[], Err("should have 100007 bytes"));
    check(Says::NoSize, &[], &[], Err("how big"));
    // A redirect without a target, to another scheme, or in a loop.
    check(Says::Plain, &[Status(302, "")], &[], Err("leads nowhere"));
    check(
        Says::Plain,
        &[Status(302, "Location: file:///etc/passwd\r\n")],
        &[],
        Err("leads to file"),
    );
    let round = Status(302, "Location: /lab/models-GGUF/resolve/main/m.gguf\r\n");
    check(Says::Plain, &[round; 3], &[], Ok(()));
    check(Says::Plain, &[round; 20], &[], Err("redirects"));
}

/// A run that fails, then a change at the hub, then another run.
#[track_caller]
fn check_later(says: Says, changed: Option<Vec<u8>>, told: &[&str], ranges: &[Option<&str>]) {
    let bytes = gguf(100_000, 0);
    let hub = TestHub::start(&[("m.gguf", bytes.clone())], says, &[]);
    hub.fail(&[Fault::Cut(60_000), Fault::Status(404, "")]);
    let home = TempDir::new().unwrap();
    let (done, _) = pull(&home, &hub, "hf:lab/models-GGUF", None);
    assert!(done.is_err());
    let part = home.path().join("models/models.gguf.part");
    assert_eq!(fs::metadata(&part).unwrap().len(), 60_000);
    let now = changed.clone().unwrap_or(bytes);
    if let Some(changed) = changed {
        hub.change("m.gguf", changed);
    }
    let before = hub.asked().len();
    let (done, heard) = pull(&home, &hub, "hf:lab/models-GGUF", None);
    assert_eq!(fs::read(done.unwrap().path).unwrap(), now);
    assert_eq!(heard, told);
    let asked = hub.asked();
    let range = |asked: &crate::hub::Asked| asked.headers.get("range").cloned();
    let gets: Vec<_> = asked[before..]
        .iter()
        .filter(|a| {
            a.line.starts_with("GET")
                && !a.line.contains("/api/")
                && (a.port == "bytes" || says == Says::Plain)
        })
        .map(range)
        .collect();
    let want: Vec<_> = ranges.iter().map(|range| range.map(str::to_owned)).collect();
    assert_eq!(gets, want);
}

#[test]
fn later_runs_resume() {
    let rest = Some("bytes=60000-");
    for says in [Says::Linked, Says::Plain] {
        check_later(says, None, &["1 files, 60000 there", "checking"], &[rest]);
        let other = "the file on the hub is another one now";
        check_later(says, Some(gguf(100_000, 7)), &["1 files, 0 there", other], &[None]);
        check_later(says, Some(gguf(50_000, 7)), &["1 files, 0 there", other], &[None]);
    }
}

#[test]
fn a_damaged_part_is_detected() {
    let bytes = gguf(100_000, 0);
    let hub = TestHub::start(&[("m.gguf", bytes.clone())], Says::Linked, &[]);
    hub.fail(&[Fault::Cut(60_000), Fault::Status(404, "")]);
    let home = TempDir::new().unwrap();
    assert!(pull(&home, &hub, "hf:lab/models-GGUF", None).0.is_err());
    let part = home.path().join("models/models.gguf.part");
    let mut damaged = fs::read(&part).unwrap();
    damaged[30_000] ^= 1;
    fs::write(&part, damaged).unwrap();
    let (done, heard) = pull(&home, &hub, "hf:lab/models-GGUF", None);
    assert_eq!(fs::read(done.unwrap().path).unwrap(), bytes);
    assert_eq!(heard.last().unwrap(), "what was there of it does not have the right sum");
}

#[test]
fn one_pull_at_a_time() {
    let bytes = gguf(1000, 0);
    let hub = TestHub::start(&[("m.gguf", bytes)], Says::Linked, &[]);
    let home = TempDir::new().unwrap();
    let folder = home.path().join("models");
    fs::create_dir(&folder).unwrap();
    fs::create_dir(folder.join(".locks")).unwrap();
    let part = fs::File::create(folder.join(".locks/models.gguf.part")).unwrap();
    rustix::fs::flock(&part, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let (done, _) = pull(&home, &hub, "hf:lab/models-GGUF", None);
    assert!(matches!(done, Err(PullError::Busy { .. })), "{done:?}");
}

#[test]
fn files_are_chosen() {
    let names =
        ["a-Q8_0.gguf", "a-Q4_K_M-00001-of-00002.gguf", "a-Q4_K_M-00002-of-00002.gguf", "notes.md"];
    let files: Vec<_> = names.iter().map(|name| (*name, gguf(500, name.len() as u8))).collect();
    let hub = TestHub::start(&files, Says::Linked, &[]);
    let home = TempDir::new().unwrap();
    let (model, told) = pull(&home, &hub, "hf:lab/models-GGUF", Some("Big"));
    let model = model.unwrap();
    assert_eq!((model.name.as_str(), model.parts.len(), model.bytes), ("big", 2, 1000));
    assert!(model.path.ends_with("big-00001-of-00002.gguf"));
    assert_eq!(told, ["2 files, 0 there"]);
    assert!(model.source.unwrap().starts_with("hf:lab/models-GGUF@c0ffeec:a-Q4_K_M-00001"));
    // The same again costs nothing; a different one of that name is refused.
    let (again, told) = pull(&home, &hub, "hf:lab/models-GGUF", Some("big"));
    assert!(again.is_ok() && told.is_empty(), "{told:?}");
    let (other, _) = pull(&home, &hub, "hf:lab/models-GGUF:Q8_0", Some("big"));
    assert!(other.unwrap_err().to_string().contains("there is a model `big` already"));
    let (q8, _) = pull(&home, &hub, "hf:lab/models-GGUF:Q8_0", None);
    assert_eq!(q8.unwrap().name, "models-q8_0");
    let (none, _) = pull(&home, &hub, "hf:lab/models-GGUF:Q2_K", None);
    assert!(none.unwrap_err().to_string().contains("  a-Q8_0.gguf"));
    let (none, _) = pull(&home, &hub, "hf:lab/other", None);
    assert!(none.unwrap_err().to_string().contains("HF_TOKEN"));
    // The short name of the smoke-test model is reserved for that file.
    let (fake, _) = pull(&home, &hub, "hf:lab/models-GGUF:Q8_0", Some("smollm2"));
    assert!(fake.is_err());
}

#[test]
fn files_that_are_not_models_are_discarded() {
    let hub =
        TestHub::start(&[("m.gguf", b"<html>not a model</html>".to_vec())], Says::Linked, &[]);
    let home = TempDir::new().unwrap();
    let (done, _) = pull(&home, &hub, "hf:lab/models-GGUF", None);
    assert!(done.unwrap_err().to_string().contains("is not a GGUF model"));
    assert!(!home.path().join("models/models.gguf").exists());
}

#[test]
fn an_unreachable_hub() {
    let home = TempDir::new().unwrap();
    let models = Models::new(home.path(), Vec::new());
    // A port that nothing listens on.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let hub = Hub::new(providers::http().unwrap(), &endpoint, None).unwrap();
    let patience = Patience { failures_max: 1, wait: Duration::from_millis(1) };
    let puller = Puller { models: &models, hub: &hub, patience };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let wanted = ModelRequest::parse("smollm2").unwrap();
    let done = runtime.block_on(puller.pull(&wanted, None, &mut |_| {}));
    assert!(done.unwrap_err().to_string().contains("could not be reached"));
    assert!(!models.folder().exists());
    for bad in ["", "huggingface", "ftp://a", "file:///x"] {
        assert!(Hub::new(providers::http().unwrap(), bad, None).is_err(), "{bad}");
    }
}
