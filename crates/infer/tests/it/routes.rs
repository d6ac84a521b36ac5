//! Every route, who may use it, and the errors for those who may not.

use serde_json::json;

use crate::wire::{Lab, Set, TOKEN, input, post};

#[tokio::test]
async fn refusals_have_a_status_a_code_and_ids() {
    let lab = Lab::new(Set::default()).await;
    let json_head = post("/v1/responses");
    let text = "POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n";
    let zip = format!("{json_head}content-encoding: gzip\r\n");
    let other = format!("{json_head}x-heddle-protocol: 2\r\n");
    let unknown = input("x", false).to_string().replace("tiny", "huge");
    for (head, body, status, says) in [
        ("GET /nothing HTTP/1.1\r\nhost: x\r\n", "", 404, "/v1/responses"),
        ("GET /v1/responses HTTP/1.1\r\nhost: x\r\n", "", 405, "use POST"),
        (&post("/v1/models"), "{}", 405, "use GET"),
        ("GET /v1/models/huge HTTP/1.1\r\nhost: x\r\n", "", 404, "huge"),
        (text, "{}", 415, "application/json"),
        (&zip, "{}", 415, "Content-Encoding"),
        (&other, "{}", 400, "heddle daemon stop"),
        (&json_head, "", 400, ""),
        (&json_head, "{", 400, ""),
        (&json_head, "[]", 400, ""),
        (&json_head, "\u{0}\u{1}", 400, ""),
        (&json_head, r#"{"model":"tiny"}"#, 400, "input"),
        (&json_head, r#"{"model":"tiny","input":5}"#, 400, "input"),
        (&json_head, &unknown, 404, "huge"),
        (&post("/v1/chat/completions"), r#"{"model":"tiny"}"#, 400, "messages"),
    ] {
        let answer = lab.ask(head, body).await;
        assert_eq!(answer.status, status, "{head} {body} {answer:?}");
        let error = &answer.json()["error"];
        assert!(error["message"].as_str().unwrap().contains(says), "{head} {error}");
        assert!(error["type"].is_string() && error.get("code").is_some(), "{head} {error}");
        assert!(answer.header("x-request-id").starts_with("req_"), "{answer:?}");
        assert_eq!(answer.header("x-heddle-protocol"), "1");
    }
    assert_eq!(lab.get("/v1/responses").await.header("allow"), "POST");
}

#[tokio::test]
async fn routes_answer_with_and_without_prefix() {
    let lab = Lab::new(Set::default()).await;
    for prefix in ["", "/v1"] {
        let health = lab.get(&format!("{prefix}/health")).await;
        let health = health.json();
        assert_eq!((&health["status"], &health["model"]), (&json!("ok"), &json!("tiny")));
        assert_eq!(
            (&health["progress"], &health["context_tokens"]),
            (&json!(1.0), &json!(100_000))
        );
        let models = lab.get(&format!("{prefix}/models")).await.json();
        assert_eq!(models["data"][0]["id"], "tiny");
        assert_eq!(models["data"][0]["context_length"], 100_000);
        let model = lab.get(&format!("{prefix}/models/tiny")).await.json();
        assert_eq!(model["id"], "tiny");
        let body = input("[[say hi]]", false).to_string();
        let answer = lab.ask(&post(&format!("{prefix}/responses")), &body).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "hi"), "{answer:?}");
    }
    // `local` means the model that is loaded.
    let answer = lab.responses(&json!({"model": "local", "input": "[[say hi]]"})).await;
    assert_eq!(answer.text(), "hi");
    let metrics = lab.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("text/plain; version=0.0.4"));
    for line in [
        "heddle_requests_total{route=\"/v1/responses\",status=\"200\"} 3",
        "heddle_tokens_total{kind=\"output\"} 6",
        "heddle_first_token_seconds_count 3",
        // Monitoring requests do not count.
        "heddle_request_seconds_count 3",
        "heddle_engine_memory_bytes 1234",
        "heddle_requests 0",
    ] {
        assert!(metrics.body.lines().any(|found| found == line), "{line}\n{}", metrics.body);
    }
}

/// Nothing is counted unless enabled; the error explains how.
#[tokio::test]
async fn metrics_are_a_setting() {
    let lab = Lab::new(Set { metrics: false, ..Set::default() }).await;
    for path in ["/metrics", "/v1/metrics"] {
        let answer = lab.get(path).await;
        assert_eq!(answer.status, 404, "{answer:?}");
        let error = &answer.json()["error"];
        let says = error["message"].as_str().unwrap();
        assert!(says.contains("--metrics") && says.contains("metrics = true"), "{error}");
        assert!(!answer.body.contains("heddle_requests_total"), "{answer:?}");
    }
    assert_eq!(lab.responses(&input("[[say hi]]", false)).await.text(), "hi");
}

/// A log line contains the thread and request ids of the client, and nothing that could be text.
#[tokio::test]
async fn ids_of_clients_are_in_the_log() {
    let lab = Lab::new(Set::default()).await;
    let body = input("[[say hi]]", false).to_string();
    let (thread, long) = ("01a1e0dc-1363-7193-9a96-dc7053bbb317", "x".repeat(200));
    let ours = format!("thread-id: {thread}\r\nsession-id: {thread}\r\n");
    for (ids, want) in [
        (String::new(), json!({})),
        (format!("{ours}x-client-request-id: {thread}\r\n"), json!({"thread_id": thread})),
        (
            "thread-id: t\r\nsession-id: s\r\nx-client-request-id: r.1\r\n".to_owned(),
            json!({"thread_id": "t", "session_id": "s", "client_request_id": "r.1"}),
        ),
        (format!("thread-id: {long}\r\nsession-id: my \"words\"\r\n"), json!({})),
    ] {
        let answer = lab.ask(&(post("/v1/responses") + &ids), &body).await;
        assert_eq!(answer.text(), "hi");
        let id = answer.header("x-request-id").to_owned();
        // The line is written when the request is finished, shortly after its answer.
        crate::wire::until("the line", || lab.log().contains(&id)).await;
        let log = lab.log();
        let line = log.lines().find(|line| line.contains(&id)).unwrap();
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        for name in ["thread_id", "session_id", "client_request_id"] {
            assert_eq!(line.get(name), want.get(name), "{ids} {line}");
        }
        assert_eq!(line.get("first_tokens"), None, "{line}");
    }
    assert!(!lab.log().contains("words"));
}

/// Token ids are logged only if enabled, and no more than that.
#[tokio::test]
async fn first_tokens_are_a_setting() {
    let lab = Lab::new(Set { tokens_noted: 3, ..Set::default() }).await;
    assert_eq!(lab.responses(&input("[[say hello]]", false)).await.text(), "hello");
    let noted = "\"first_tokens\":[104,101,108]";
    crate::wire::until("the line", || lab.log().contains(noted)).await;
}

#[tokio::test]
async fn the_clients_own_id_is_used_if_it_is_sane() {
    let lab = Lab::new(Set::default()).await;
    for (given, taken) in [("my-id.7", true), ("a b", false)] {
        let head = format!("GET /health HTTP/1.1\r\nhost: x\r\nx-request-id: {given}\r\n");
        let answer = lab.ask(&head, "").await;
        assert_eq!(answer.header("x-request-id") == given, taken, "{answer:?}");
    }
}

#[tokio::test]
async fn the_port_requires_a_token_and_a_local_host() {
    let lab = Lab::new(Set { port: true, ..Set::default() }).await;
    let port = lab.port.unwrap();
    let good = format!("authorization: Bearer {TOKEN}\r\n");
    for (head, status) in [
        (format!("host: localhost:{port}\r\n{good}"), 200),
        (format!("host: 127.0.0.1:{port}\r\n{good}"), 200),
        (format!("host: 127.0.0.1:{port}\r\n"), 401),
        (format!("host: 127.0.0.1:{port}\r\nauthorization: Bearer x{TOKEN}\r\n"), 401),
        (format!("host: evil.example\r\n{good}"), 403),
        (good.clone(), 403),
    ] {
        for path in ["/health", "/metrics", "/v1/models"] {
            let mut client = lab.connect_port().await;
            client.send(&format!("GET {path} HTTP/1.1\r\n{head}"), "").await;
            let answer = client.answer().await;
            assert_eq!(answer.status, status, "{path} {head} {answer:?}");
            assert!(!answer.body.contains(TOKEN), "{answer:?}");
        }
    }
    let health = lab.get("/health").await.json();
    assert_eq!(health["base_url"], format!("http://127.0.0.1:{port}/v1"));
}

#[tokio::test]
async fn health_works_while_the_model_loads_and_requests_wait() {
    let lab = Lab::new(Set { loaded: false, ..Set::default() }).await;
    let health = lab.get("/health").await.json();
    assert_eq!((&health["status"], &health["progress"]), (&json!("loading"), &json!(0.25)));
    assert_eq!(lab.get("/v1/models").await.json()["data"][0]["id"], "tiny");
    let mut client = lab.connect().await;
    client.send(&post("/v1/responses"), &input("[[say hi]]", false).to_string()).await;
    // It has been read once it counts as work.
    loop {
        if lab.get("/health").await.json()["requests"] == 1 {
            break;
        }
    }
    lab.load();
    assert_eq!(client.answer().await.text(), "hi");
}

#[tokio::test]
async fn a_model_that_cannot_be_loaded_is_named_with_its_reason() {
    let lab = Lab::new(Set { loaded: false, ..Set::default() }).await;
    lab.standing.send_replace(infer::serve::LoadState::Failed("it is a teapot".to_owned()));
    let answer = lab.responses(&input("x", true)).await;
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("it is a teapot"), "{answer:?}");
    assert_eq!(lab.get("/health").await.json()["status"], "failed");
}
