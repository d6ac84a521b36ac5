//! Limits: bodies, heads, connections, and timeouts.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use infer::serve::Limits;

use crate::wire::{Lab, Set, TOKEN, input, post, until};

#[tokio::test]
async fn large_bodies_are_refused_whether_announced_or_not() {
    let limits = Limits { request_bytes_max: 10_000, ..Limits::default() };
    let lab = Lab::new(Set { limits, ..Set::default() }).await;
    let body = input(&"x".repeat(20_000), false).to_string();
    let answer = lab.ask(&post("/v1/responses"), &body).await;
    assert_eq!(answer.status, 413, "{answer:?}");
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("10000"));
    let mut client = lab.connect().await;
    let head = format!("{}transfer-encoding: chunked\r\n\r\n", post("/v1/responses"));
    client.raw(head.as_bytes()).await;
    for _ in 0..20 {
        client.raw(format!("400\r\n{}\r\n", "x".repeat(1024)).as_bytes()).await;
    }
    client.raw(b"0\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 413);
    assert_eq!(lab.responses(&input("[[say hi]]", false)).await.text(), "hi");
}

/// A client that asks first whether to send a body is refused immediately, without `100 Continue`.
#[tokio::test]
async fn refused_bodies_are_not_read() {
    let limits = Limits { request_bytes_max: 10_000, ..Limits::default() };
    let lab = Lab::new(Set { limits, port: true, ..Set::default() }).await;
    let head = |path: &str, length: usize| {
        format!("{}content-length: {length}\r\nexpect: 100-continue\r\n\r\n", post(path))
    };
    let begun = Instant::now();
    for (path, length, status) in
        [("/v1/responses", 10_001, "413"), ("/nothing", 10, "404"), ("/v1/models", 10, "405")]
    {
        let mut client = lab.connect().await;
        client.raw(head(path, length).as_bytes()).await;
        let answer = client.rest().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path} {answer}");
        assert!(answer.contains("connection: close\r\n"), "{path} {answer}");
    }
    let mut client = lab.connect_port().await;
    client.raw(head("/v1/responses", 10).as_bytes()).await;
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    // Reading a body that does not come would have taken seconds.
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // A wanted body is requested.
    let body = input("[[say hi]]", false).to_string();
    let mut client = lab.connect().await;
    client.raw(head("/v1/responses", body.len()).as_bytes()).await;
    assert!(client.until("HTTP/1.1 100 Continue\r\n\r\n").await);
    client.raw(body.as_bytes()).await;
    assert!(client.until("\"text\":\"hi\"").await);
}

#[tokio::test]
async fn concurrent_bodies_share_a_limit() {
    let limits =
        Limits { request_bytes_max: 10_000, requests_bytes_max: 15_000, ..Limits::default() };
    let lab = Lab::new(Set { limits, ..Set::default() }).await;
    let mut half = lab.connect().await;
    half.raw(
        format!("{}content-length: 9000\r\n\r\n{}", post("/v1/responses"), "x".repeat(8000))
            .as_bytes(),
    )
    .await;
    // The half that arrived counts, as soon as it has been read.
    let body = input(&"x".repeat(8000), false).to_string();
    let begun = Instant::now();
    while lab.ask(&post("/v1/responses"), &body).await.status != 429 {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    drop(half);
    let begun = Instant::now();
    while lab.ask(&post("/v1/responses"), &body).await.status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

#[tokio::test]
async fn slow_heads_and_bodies_time_out() {
    let limits = Limits {
        head_timeout: Duration::from_millis(200),
        body_timeout: Duration::from_millis(200),
        ..Limits::default()
    };
    let lab = Lab::new(Set { limits, ..Set::default() }).await;
    for half in
        ["", "GET /he", "GET /health HTTP/1.1\r\nhost: x\r\n", "POST /v1/responses HTTP/1.1\r\n"]
    {
        let mut client = lab.connect().await;
        client.raw(half.as_bytes()).await;
        let begun = Instant::now();
        client.rest().await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{half:?} {:?}", begun.elapsed());
    }
    let mut client = lab.connect().await;
    client.raw(format!("{}content-length: 100\r\n\r\n{{", post("/v1/responses")).as_bytes()).await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 408, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "request_timeout");
}

#[tokio::test]
async fn connections_are_limited_and_released() {
    let limits = Limits { connections_max: 3, ..Limits::default() };
    let lab = Lab::new(Set { limits, ..Set::default() }).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut client = lab.connect().await;
        client.send("GET /health HTTP/1.1\r\nhost: x\r\n", "").await;
        assert_eq!(client.answer().await.status, 200);
        held.push(client);
    }
    let mut client = lab.connect().await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "too_many_connections");
    drop(held);
    let begun = Instant::now();
    loop {
        let mut client = lab.connect().await;
        client.send("GET /health HTTP/1.1\r\nhost: x\r\n", "").await;
        if client.answer().await.status == 200 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

/// The port is open to the whole machine: filling it does not block the socket.
#[tokio::test]
async fn a_full_port_leaves_the_socket_free() {
    let limits = Limits { connections_max: 3, ..Limits::default() };
    let lab = Lab::new(Set { limits, port: true, ..Set::default() }).await;
    let mut held = Vec::new();
    let head =
        format!("GET /health HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n");
    for _ in 0..3 {
        let mut client = lab.connect_port().await;
        client.send(&head, "").await;
        assert_eq!(client.answer().await.status, 200);
        held.push(client);
    }
    assert_eq!(lab.connect_port().await.answer().await.status, 503);
    let mut client = lab.connect().await;
    client.send("GET /health HTTP/1.1\r\nhost: x\r\n", "").await;
    assert_eq!(client.answer().await.status, 200);
}

/// Idle connections keep nobody out, whether they send nothing, half a request, or no token.
#[tokio::test]
async fn idle_connections_do_not_block_others() {
    let lab = Lab::new(Set { port: true, ..Set::default() }).await;
    let mut held = Vec::new();
    for number in 0..2 * Limits::default().connections_max {
        let mut client = lab.connect_port().await;
        match number % 3 {
            0 => {}
            1 => client.raw(b"GET /health HTTP/1.1\r\nhost: loc").await,
            _ => client.send("GET /health HTTP/1.1\r\nhost: localhost\r\n", "").await,
        }
        held.push(client);
    }
    let head =
        format!("GET /health HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n");
    let begun = Instant::now();
    let mut client = lab.connect_port().await;
    client.send(&head, "").await;
    assert_eq!(client.answer().await.status, 200);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // It stays, however many more come.
    for _ in 0..Limits::default().connections_max {
        held.push(lab.connect_port().await);
    }
    client.send(&head, "").await;
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn heads_are_limited() {
    let limits = Limits { head_timeout: Duration::from_secs(1), ..Limits::default() };
    let lab = Lab::new(Set { limits, ..Set::default() }).await;
    let many = "x-a: b\r\n".repeat(100);
    let long = format!("x-a: {}\r\n", "b".repeat(100_000));
    for headers in [many, long] {
        let mut client = lab.connect().await;
        client.send(&format!("GET /health HTTP/1.1\r\nhost: x\r\n{headers}"), "").await;
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{} {answer}", headers.len());
    }
}

/// A prompt that is far too long is not counted to its end; the error still has numbers.
#[tokio::test]
async fn prompts_that_are_far_too_long() {
    let lab = Lab::new(Set::default()).await;
    for (bytes, want) in
        [(150_000, "the request has 150"), (450_000, "the request has more than 4")]
    {
        let answer = lab.responses(&input(&"x".repeat(bytes), false)).await;
        assert_eq!(answer.status, 400);
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "context_length_exceeded");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(want) && message.contains("100000"), "{message}");
    }
}

/// No prompt is built for a client that has disconnected.
#[tokio::test]
async fn a_client_that_disconnects_while_its_prompt_is_built() {
    let lab = Lab::new(Set::default()).await;
    for stream in [true, false] {
        let mut client = lab.connect().await;
        client.send(&post("/v1/responses"), &input("[[ponder]]", stream).to_string()).await;
        let pondering = || lab.seen.pondering.load(Ordering::Relaxed);
        until("it begins", || pondering() == 1).await;
        drop(client);
        until("it ends", || pondering() == 0).await;
        assert_eq!(lab.responses(&input("[[say hi]]", false)).await.text(), "hi");
    }
}
