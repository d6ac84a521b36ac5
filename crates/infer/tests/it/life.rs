//! Startup and shutdown: homes, idle timeout, signals, failed loads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use infer::client::{self, HealthError};
use infer::daemon::{Daemon, DaemonError, Load, Options};
use infer::engine::Engine;
use infer::home::{Home, HomeError};
use infer::serve::Limits;
use infer::tools::Settings;
use prompt::model::ModelOptions;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::scripted::Scripted;
use crate::wire::{Lab, Set, input, post};

#[tokio::test]
async fn shutdown_finishes_answers_and_accepts_no_new_ones() {
    let limits = Limits { grace: Duration::from_secs(10), ..Limits::default() };
    let mut lab = Lab::new(Set { limits, ..Set::default() }).await;
    let mut idle = lab.connect().await;
    idle.send("GET /health HTTP/1.1\r\nhost: x\r\n", "").await;
    idle.answer().await;
    let mut client = lab.connect().await;
    client.send(&post("/v1/responses"), &input("[[slow 20 hello]]", true).to_string()).await;
    assert!(client.until("output_text.delta").await);
    lab.end();
    assert_eq!(client.answer().await.text(), "hello");
    // An idle connection is closed, and new ones are refused.
    assert_eq!(idle.rest().await, "");
    (&mut lab.serving).await.unwrap();
    assert!(tokio::net::UnixStream::connect(lab.path()).await.is_err());
}

#[tokio::test]
async fn shutdown_has_a_time_limit() {
    let mut lab = Lab::new(Set::default()).await;
    let mut streamed = lab.connect().await;
    streamed.send(&post("/v1/responses"), &input("[[hang]]", true).to_string()).await;
    assert!(streamed.until("output_text.delta").await);
    let mut whole = lab.connect().await;
    whole.send(&post("/v1/responses"), &input("[[hang]]", false).to_string()).await;
    crate::wire::until("both", || lab.seen.prompts.lock().unwrap().len() == 2).await;
    let begun = Instant::now();
    lab.end();
    let last = streamed.answer().await.events().pop().unwrap();
    assert_eq!(last["type"], "response.failed", "{last}");
    let answer = whole.answer().await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (503, &"shutting_down".into()));
    (&mut lab.serving).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_idle_timeout_starts_after_the_last_answer() {
    let lab = Arc::new(Lab::new(Set::default()).await);
    let quiet = Duration::from_millis(150);
    let begun = Instant::now();
    let idle = {
        let server = Arc::clone(&lab.server);
        tokio::spawn(async move {
            server.idle(quiet).await;
            Instant::now()
        })
    };
    let answer = lab.responses(&input("[[slow 40 abcdefghij]]", true)).await;
    assert_eq!(answer.text(), "abcdefghij");
    let answered = Instant::now();
    assert!(!idle.is_finished(), "an answer was running");
    // Monitoring does not count as use.
    lab.get("/health").await;
    let left = idle.await.unwrap();
    assert!(left >= answered + quiet - Duration::from_millis(20), "{:?}", left - begun);
}

fn options(directory: &TempDir) -> Options {
    Options {
        home: Home::new(directory.path(), None),
        model: "tiny".to_owned(),
        file: None,
        settings: Vec::new(),
        configured: String::new(),
        context_tokens_set: None,
        model_options: ModelOptions::default(),
        port: None,
        token: None,
        idle: None,
        tools: Settings::default(),
        forced_calls: false,
        metrics: false,
        tokens_noted: 0,
        limits: Limits { grace: Duration::from_millis(200), ..Limits::default() },
    }
}

fn scripted() -> Load {
    Box::new(|progress| {
        progress(0.5);
        Ok(Arc::new(Scripted::new(1, 8)) as Arc<dyn Engine>)
    })
}

async fn health(home: &Home) -> Result<client::Health, HealthError> {
    let home = home.clone();
    tokio::task::spawn_blocking(move || client::health(&home)).await.unwrap()
}

#[tokio::test]
async fn a_daemon_from_beginning_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let home = Home::new(directory.path(), None);
    assert!(matches!(health(&home).await, Err(HealthError::NotRunning)));
    // Two runs, the second of which finds what the first one left.
    for _ in 0..2 {
        let daemon = Daemon::prepare(options(&directory)).await.unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let running = tokio::spawn(daemon.run(scripted(), async { drop(ended.await) }));
        while health(&home).await.unwrap().status != "ok" {}
        let found = health(&home).await.unwrap();
        assert_eq!((found.model.as_str(), found.pid), ("tiny", std::process::id()));
        let second = Daemon::prepare(options(&directory)).await;
        assert!(matches!(second, Err(DaemonError::Home(HomeError::Taken { .. }))), "{second:?}");
        end.send(()).unwrap();
        running.await.unwrap().unwrap();
        assert!(matches!(health(&home).await, Err(HealthError::NotRunning)));
        assert!(!home.socket().exists());
    }
    let log = std::fs::read_to_string(home.log()).unwrap();
    for event in ["\"started\"", "\"loaded\"", "\"stopped\""] {
        assert_eq!(log.matches(event).count(), 2, "{event} {log}");
    }
    let loaded = log.lines().find(|line| line.contains("\"loaded\"")).unwrap();
    let loaded: Value = serde_json::from_str(loaded).unwrap();
    assert_eq!(loaded["family"], "template/hermes", "{loaded}");
    assert_eq!((&loaded["kernels"], &loaded["threads"]), (&json!("a script"), &json!(3)));
}

#[tokio::test]
async fn a_daemon_exits_when_idle() {
    let directory = tempfile::tempdir().unwrap();
    let idle = Some(Duration::from_millis(100));
    let daemon = Daemon::prepare(Options { idle, ..options(&directory) }).await.unwrap();
    let run = daemon.run(scripted(), std::future::pending());
    tokio::time::timeout(Duration::from_secs(10), run).await.unwrap().unwrap();
    let home = Home::new(directory.path(), None);
    assert!(std::fs::read_to_string(home.log()).unwrap().contains("\"why\":\"idle\""));
}

#[tokio::test]
async fn a_load_that_fails_ends_the_daemon_with_its_reason() {
    let loads: [(Load, &str); 2] = [
        (Box::new(|_| Err("no such file".to_owned())), "no such file"),
        (Box::new(|_| panic!("a bug")), "crashed while loading"),
    ];
    for (load, reason) in loads {
        let directory = tempfile::tempdir().unwrap();
        let daemon = Daemon::prepare(options(&directory)).await.unwrap();
        let run = daemon.run(load, std::future::pending());
        let error = tokio::time::timeout(Duration::from_secs(10), run).await.unwrap().unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[tokio::test]
async fn a_port_has_a_token_in_a_private_file() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::prepare(Options { port: Some(0), ..options(&directory) }).await.unwrap();
    let address = daemon.address().unwrap();
    assert!(address.ip().is_loopback() && address.port() != 0);
    let home = Home::new(directory.path(), None);
    assert_eq!(home.read_token().unwrap().expose().len(), 64);
    drop(daemon);
    let port = Some(address.port());
    let taken = std::net::TcpListener::bind(address).unwrap();
    let error = Daemon::prepare(Options { port, ..options(&directory) }).await.unwrap_err();
    assert!(error.to_string().contains("choose another"), "{error}");
    drop(taken);
}
