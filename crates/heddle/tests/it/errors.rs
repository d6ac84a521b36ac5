//! Errors of turns: what they say to programs, live and from the log.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use heddle::error::{ErrorClass, ErrorKind, Limit, LimitKind};
use heddle::session::settings::Preferences;
use heddle::{Error, Heddle, Notice, SandboxMode, ThreadId, ThreadSpec};
use log::event::TaskError;
use log::{LogEvent, Replay, Step};
use serde_json::{Value, json};
use testkit::script::{call, failed, message, response};
use testkit::{Lab, ModelServer};

/// What an error must say.
struct Says {
    kind: ErrorKind,
    retryable: bool,
    after: Option<u64>,
    attempts: u32,
    request: Option<&'static str>,
    limit: Option<Limit>,
    /// Text of the message.
    text: &'static str,
}

fn heddle(lab: &Lab) -> Heddle {
    Heddle::builder().home(lab.home.path()).directory(lab.workspace.path()).build().unwrap()
}

fn spec() -> ThreadSpec {
    ThreadSpec::new()
        .sandbox(SandboxMode::DangerFullAccess)
        .setting("model_providers.mock.request_max_retries=1")
        .setting("model_providers.mock.stream_max_retries=1")
}

/// A setting that nobody knows is a notice, or an error for those who want that.
#[tokio::test]
async fn a_setting_with_a_typo_can_be_an_error() {
    let lab = Lab::new().unwrap();
    let server = ModelServer::start(json!([])).unwrap();
    lab.home.write_mock_config(server.port()).unwrap();
    let heddle = heddle(&lab);
    let typo = || spec().setting("modle=\"gpt-5.5\"");
    let thread = heddle.start(typo()).await.unwrap();
    let told = |notice: &heddle::Notice| notice.to_string().contains("modle");
    assert!(thread.notices().iter().any(told), "{:?}", thread.notices());
    let error = heddle.start(typo().strict_settings(true)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Settings);
    for words in ["modle", "did you mean `model`"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    // Whatever else is set, in whatever order.
    let strict = ThreadSpec::new().strict_settings(true).setting("modle=1");
    assert!(heddle.start(strict).await.is_err());
    heddle.start(spec().strict_settings(true)).await.unwrap();
    heddle.start(typo().strict_settings(true).strict_settings(false)).await.unwrap();
}

/// A host program has no command line of ours: errors and notices name what the library has.
#[tokio::test]
async fn errors_and_notices_name_no_flags() {
    let lab = Lab::new().unwrap();
    let server = ModelServer::start(json!([response([message("hi")])])).unwrap();
    lab.home.write_mock_config(server.port()).unwrap();
    let heddle = heddle(&lab);
    let thread = heddle.start(spec()).await.unwrap();
    thread.turn("go").run().await.unwrap();
    let id = thread.id().unwrap();
    let unknown = "01a1e055-b282-7523-b985-c798177efe12".parse().unwrap();
    let preferences = |change: fn(&mut Preferences)| {
        let mut preferences = Preferences::default();
        change(&mut preferences);
        ThreadSpec::new().preferences(preferences)
    };
    let mut texts = Vec::new();
    for (spec, kind, words) in [
        (ThreadSpec::resume(id), ErrorKind::ThreadInUse, "fork"),
        (ThreadSpec::resume(unknown), ErrorKind::NoSuchThread, "there is no thread"),
        (ThreadSpec::new().model(" "), ErrorKind::Settings, "the name of the model is empty"),
        (ThreadSpec::new().setting("model=5"), ErrorKind::Settings, "setting model:1:7"),
        (ThreadSpec::new().setting("model"), ErrorKind::Settings, "model"),
        (ThreadSpec::new().setting("=1"), ErrorKind::Settings, "="),
        (
            preferences(|it| it.writable_dirs.push("gone".into())),
            ErrorKind::Settings,
            "the directory gone, which",
        ),
    ] {
        let error = heddle.start(spec).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        texts.push(error.to_string());
    }
    thread.close().await;
    let other = ThreadSpec::resume(id).model("gpt-5.4").sandbox(SandboxMode::DangerFullAccess);
    let other = heddle.start(other).await.unwrap();
    texts.extend(other.notices().iter().map(ToString::to_string));
    for (notice, words) in [
        (Notice::ProviderNotChosen { provider: "mine".to_owned() }, "model_provider=\"mine\""),
        (
            Notice::UsingLocalModel { model: "m".to_owned(), smoke_test: false, may_write: true },
            "may write",
        ),
    ] {
        assert!(notice.to_string().contains(words), "{notice}");
        texts.push(notice.to_string());
    }
    assert!(texts.iter().any(|text| text.contains("gpt-5.4")), "{texts:?}");
    for text in texts {
        let mut words = text.split([' ', '`', '(', '"']);
        let flag = words.any(|word| word.len() > 1 && word.starts_with('-'));
        assert!(!flag && !text.contains("heddle exec"), "{text}");
    }
}

/// Reads the failures of a thread from its log.
async fn logged(heddle: &Heddle, id: ThreadId) -> Vec<TaskError> {
    let errors = Arc::new(Mutex::new((Replay::default(), Vec::new())));
    let threads = heddle.threads();
    let read = threads.read(id, errors, |state, line| {
        let (replay, errors) = &mut *state.lock().unwrap();
        if let Step::TurnEnded { event, .. } = replay.line(line)
            && let Some(LogEvent::TaskComplete(ended)) = event.read()
        {
            errors.extend(ended.error.map(|error| *error));
        }
    });
    let read = read.await.unwrap();
    std::mem::take(&mut read.lock().unwrap().1)
}

async fn check(script: Value, spec: ThreadSpec, says: Says) {
    let lab = Lab::new().unwrap();
    let server = ModelServer::start(script).unwrap();
    lab.home.write_mock_config(server.port()).unwrap();
    let heddle = heddle(&lab);
    let thread = heddle.start(spec).await.unwrap();
    let turn = thread.turn("go");
    let id = turn.id().to_owned();
    let error = turn.run().await.expect_err(says.text);
    let what = format!("{error:?}");
    assert_eq!(error.kind(), says.kind, "{what}");
    assert_eq!(error.is_retryable(), says.retryable, "{what}");
    assert_eq!(error.retry_after(), says.after.map(Duration::from_secs), "{what}");
    assert_eq!(error.attempts(), says.attempts, "{what}");
    assert_eq!(error.request_id(), says.request, "{what}");
    assert_eq!(error.limit(), says.limit, "{what}");
    assert_eq!((error.thread_id(), error.turn_id()), (thread.id(), Some(&*id)), "{what}");
    assert_eq!(error.so_far().unwrap().id, id, "{what}");
    assert!(error.to_string().contains(says.text), "{error}");
    let facts = says.request.map(|id| format!("request {id}"));
    assert!(facts.is_none_or(|facts| error.to_string().contains(&facts)), "{error}");
    // The same is in the log.
    let [logged] = <[_; 1]>::try_from(logged(&heddle, thread.id().unwrap()).await).unwrap();
    let logged = logged.into_turn_error();
    assert_eq!((logged.attempts, logged.limit), (says.attempts, says.limit), "{what}");
    assert_eq!(logged.request_id.as_deref(), says.request, "{what}");
    assert!(error.to_string().starts_with(&logged.message), "{what}: {logged:?}");
}

#[tokio::test]
async fn failures_of_requests() {
    let named = |mut entry: Value, id: &str| {
        entry["headers"]["x-request-id"] = id.into();
        entry
    };
    let refused = |status: u16| {
        let body = json!({"error": {"message": "no luck"}});
        named(json!({"status": status, "body": body}), &format!("req_{status}"))
    };
    let says = |kind: ErrorClass| Says {
        kind: ErrorKind::Model(kind),
        retryable: true,
        after: None,
        attempts: 1,
        request: None,
        limit: None,
        text: "no luck",
    };
    let credentials = says(ErrorClass::Credentials);
    let credentials = Says { retryable: false, request: Some("req_401"), ..credentials };
    check(json!([refused(401)]), spec(), credentials).await;
    let mut limited = refused(429);
    limited["headers"]["retry-after"] = 300.into();
    let later = says(ErrorClass::RateLimited);
    let later = Says { after: Some(300), request: Some("req_429"), ..later };
    check(json!([limited]), spec(), later).await;
    // A silent retry, one that is told, and a silent one after that.
    let fault = says(ErrorClass::ServerFault);
    let fault = Says { attempts: 4, request: Some("req_503"), ..fault };
    check(json!([refused(500), refused(500), refused(500), refused(503)]), spec(), fault).await;
    let broken = named(json!({"events": [failed("server_error", "no luck")]}), "req_stream");
    let cut = says(ErrorClass::Disconnected);
    check(json!([broken]), spec(), Says { attempts: 2, request: Some("req_stream"), ..cut }).await;
    let unreachable = spec().setting("model_providers.mock.base_url=\"http://127.0.0.1:9/v1\"");
    let unreachable = unreachable
        .setting("model_providers.mock.request_max_retries=0")
        .setting("model_providers.mock.stream_max_retries=0");
    let text = "127.0.0.1:9";
    let nobody = Says { text, ..says(ErrorClass::ConnectionRefused) };
    check(json!([refused(500)]), unreachable, nobody).await;
}

#[tokio::test]
async fn limits_name_themselves() {
    let step = |id: &str| call(id, "exec_command", json!({"cmd": "true"}));
    let says = |kind: LimitKind, value: u64, text: &'static str| Says {
        kind: ErrorKind::Limit,
        retryable: false,
        after: None,
        attempts: 0,
        request: None,
        limit: Some(Limit { kind, value }),
        text,
    };
    let twice = json!([response([step("a"), step("b")]), response([message("done")])]);
    let calls = spec().setting("limits.calls_max=1");
    check(twice.clone(), calls, says(LimitKind::Calls, 1, "limit of 1 tool calls")).await;
    let requests = spec().setting("limits.requests_max=1");
    check(twice, requests, says(LimitKind::Requests, 1, "another turn goes on")).await;
}

/// Errors go through `?` into whatever a program uses, with their message and without the items of the turn.
#[test]
fn errors_in_programs() {
    fn build() -> Result<Heddle, Error> {
        Heddle::builder().build()
    }
    fn program() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        build()?;
        Ok(())
    }
    let error = program().unwrap_err();
    assert_eq!(error.to_string(), "no home is set: call `home` on the builder");
    let printed = format!("{error:?}");
    assert!(printed.contains("Settings") && printed.contains("no home is set"), "{printed}");
    let error = error.downcast::<Error>().unwrap();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Settings, false));
    // A result with it is as small as one with a box.
    assert_eq!(size_of::<Error>(), size_of::<usize>());
}
