//! Many clients, slow ones, and those that disconnect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use infer::serve::Limits;
use tokio::io::AsyncWriteExt as _;

use crate::scripted::STEPS_MAX;
use crate::wire::{Lab, Set, TOKEN, input, post, until};

/// The required upper limit.
const CANCEL_MAX: Duration = Duration::from_millis(100);
/// Polls after which everyone has made progress: the runtime checks sockets every 61.
const TURNS: usize = 1000;

#[tokio::test]
async fn disconnecting_cancels_the_answer_at_once() {
    let lab = Lab::new(Set { slots: 1, ..Set::default() }).await;
    let mut cancelled = 0;
    for stream in [true, false] {
        let mut client = lab.connect().await;
        client.send(&post("/v1/responses"), &input("[[hang]]", stream).to_string()).await;
        if stream {
            assert!(client.until("output_text.delta").await);
        }
        until("the run", || lab.engine.seen.running.load(std::sync::atomic::Ordering::SeqCst) == 1)
            .await;
        // One that waits behind it disconnects as well.
        let mut waiting = lab.connect().await;
        waiting.send(&post("/v1/responses"), &input("[[hang]]", stream).to_string()).await;
        until("the wait", || lab.seen.waiting.load(std::sync::atomic::Ordering::SeqCst) == 1).await;
        for gone in [waiting, client] {
            let left = Instant::now();
            drop(gone);
            cancelled += 1;
            until("the cancel", || lab.seen.cancelled.lock().unwrap().len() == cancelled).await;
            let after = lab.seen.cancelled.lock().unwrap().last().unwrap().duration_since(left);
            assert!(after < CANCEL_MAX, "stream {stream}: {after:?}");
        }
        until("nobody", || lab.seen.running.load(std::sync::atomic::Ordering::SeqCst) == 0).await;
    }
    until("the log", || lab.log().matches("\"outcome\":\"cancelled\"").count() == 4).await;
    // Clients that got nothing have the status 499.
    for status in ["200", "499"] {
        let line = format!("\"status\":{status},\"outcome\":\"cancelled\"");
        assert_eq!(lab.log().matches(&line).count(), 2, "{}", lab.log());
    }
    // The slot is free again.
    assert_eq!(lab.responses(&input("[[say hi]]", true)).await.text(), "hi");
}

/// A client may shut down its sending side and still gets its answer; if it then disconnects, that is noticed
/// as soon as for others.
#[tokio::test]
async fn half_closed_clients_are_answered() {
    let lab = Lab::new(Set::default()).await;
    for stream in [true, false] {
        let mut client = lab.connect().await;
        client
            .send(&post("/v1/responses"), &input("[[slow 20 hi there]]", stream).to_string())
            .await;
        client.stream.shutdown().await.unwrap();
        assert_eq!(client.answer().await.text(), "hi there", "stream {stream}");
        assert_eq!(client.rest().await, "");
        let mut client = lab.connect().await;
        client.send(&post("/v1/responses"), &input("[[hang]]", stream).to_string()).await;
        client.stream.shutdown().await.unwrap();
        until("the run", || lab.seen.running.load(std::sync::atomic::Ordering::SeqCst) == 1).await;
        let before = lab.seen.cancelled.lock().unwrap().len();
        let left = Instant::now();
        drop(client);
        until("the cancel", || lab.seen.cancelled.lock().unwrap().len() == before + 1).await;
        let after = lab.seen.cancelled.lock().unwrap().last().unwrap().duration_since(left);
        assert!(after < CANCEL_MAX, "stream {stream}: {after:?}");
        until("nobody", || lab.seen.running.load(std::sync::atomic::Ordering::SeqCst) == 0).await;
    }
}

/// On the port, a shut-down side cannot be told from a closed connection.
#[tokio::test]
async fn on_tcp_a_half_closed_client_counts_as_disconnected() {
    let lab = Lab::new(Set { port: true, ..Set::default() }).await;
    let mut client = lab.connect_port().await;
    let head = post("/v1/responses").replace("host: x", "host: localhost");
    let head = format!("{head}authorization: Bearer {TOKEN}\r\n");
    client.send(&head, &input("[[hang]]", false).to_string()).await;
    until("the run", || lab.seen.running.load(std::sync::atomic::Ordering::SeqCst) == 1).await;
    let left = Instant::now();
    client.stream.shutdown().await.unwrap();
    until("the cancel", || lab.seen.cancelled.lock().unwrap().len() == 1).await;
    let after = lab.seen.cancelled.lock().unwrap().last().unwrap().duration_since(left);
    assert!(after < CANCEL_MAX, "{after:?}");
}

#[tokio::test]
async fn fifty_clients_are_served_in_order_and_none_is_forgotten() {
    let lab = Arc::new(Lab::new(Set { slots: 4, ..Set::default() }).await);
    let mut clients = Vec::new();
    for number in 0..50 {
        let lab = Arc::clone(&lab);
        let mut client = lab.connect().await;
        let mut body = input(&format!("[[slow 1 answer {number:02}]]"), number % 3 != 0);
        body["prompt_cache_key"] = format!("{number:02}").into();
        client.send(&post("/v1/responses"), &body.to_string()).await;
        // The next one comes when this one is in the queue.
        until("its place", || lab.seen.prompts.lock().unwrap().len() == number + 1).await;
        clients.push(tokio::spawn(async move {
            let answer = client.answer().await;
            (answer.text(), Instant::now())
        }));
    }
    let mut ends = Vec::new();
    for (number, client) in clients.into_iter().enumerate() {
        let (text, end) = client.await.unwrap();
        assert_eq!(text, format!("answer {number:02}"));
        ends.push(end);
    }
    // No overtaking: they begin in the order in which they came.
    let order = lab.seen.order.lock().unwrap().clone();
    let want: Vec<_> = (0..50).map(|number| format!("{number:02}")).collect();
    assert_eq!(order, want);
    // With four slots, no answer ends after one that came eight later.
    for (number, pair) in ends.windows(9).enumerate() {
        assert!(pair[0] <= pair[8], "client {number} waited for more than its share");
    }
}

#[tokio::test]
async fn a_full_queue_refuses_with_retry_after() {
    let lab = Lab::new(Set { slots: 1, waiting_max: 2, ..Set::default() }).await;
    let mut held = Vec::new();
    for number in 0..3 {
        let mut client = lab.connect().await;
        client.send(&post("/v1/responses"), &input("[[hang]]", true).to_string()).await;
        assert!(client.until("response.created").await);
        until("its place", || lab.seen.prompts.lock().unwrap().len() == number + 1).await;
        if number == 0 {
            assert!(client.until("output_text.delta").await);
        }
        held.push(client);
    }
    let answer = lab.responses(&input("x", true)).await;
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded");
    assert_eq!(answer.header("retry-after"), "2");
    assert!(answer.body.contains("again in 2s"), "{answer:?}");
}

#[tokio::test]
async fn a_slow_reader_delays_only_its_own_answer() {
    let lab = Lab::new(Set { slots: 2, ..Set::default() }).await;
    let mut slow = lab.connect().await;
    slow.send(&post("/v1/responses"), &input("[[flood 20000]]", true).to_string()).await;
    let made = || lab.seen.tokens.load(std::sync::atomic::Ordering::SeqCst);
    until("a beginning", || made() > 1000).await;
    // Nobody reads, so at some point nothing more is generated. All of this is on one thread: whatever can
    // continue does so when it is polled, so after many polls without progress, there will be none.
    let mut before = 0;
    while made() != before {
        before = made();
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }
    assert!(before < 20_000 * 1024 / 4, "{before} tokens, with {STEPS_MAX} at a time");
    let begun = Instant::now();
    for _ in 0..5 {
        assert_eq!(lab.responses(&input("[[say hi]]", true)).await.text(), "hi");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(slow);
    until("the cancel", || lab.seen.cancelled.lock().unwrap().len() == 1).await;
}

#[tokio::test]
async fn a_reader_that_never_reads_is_dropped() {
    let limits = Limits { write_timeout: Duration::from_millis(200), ..Limits::default() };
    let lab = Lab::new(Set { limits, ..Set::default() }).await;
    let mut slow = lab.connect().await;
    slow.send(&post("/v1/responses"), &input("[[flood 20000]]", true).to_string()).await;
    until("the end", || lab.seen.cancelled.lock().unwrap().len() == 1).await;
}
