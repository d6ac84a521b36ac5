//! Arbitrary bytes on a connection to the daemon, in two chunks: no panic, no hang, and every answer is HTTP.

#[path = "../../infer/tests/it/scripted.rs"]
mod scripted;

use std::sync::Arc;
use std::time::Duration;

use infer::log::Log;
use infer::serve::{Door, Limits, LoadState, LoadedModel, Parts, Server};
use infer::tools::{Settings, Tools};
use prompt::model::ModelOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

use crate::Given;

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let mut given = Given(data);
    let input = (given.number(), given.rest());
    let (at, bytes) = input;
    let (head, tail) = bytes.split_at(usize::from(at).min(bytes.len()));
    // With a paused clock, timeouts expire immediately.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (client, stream) = tokio::io::duplex(1 << 20);
        let connection =
            tokio::spawn(server(at.is_multiple_of(2)).connection(stream, Door::Socket));
        let (mut read, mut write) = tokio::io::split(client);
        let _ = write.write_all(head).await;
        tokio::task::yield_now().await;
        let _ = write.write_all(tail).await;
        let mut answer = Vec::new();
        let reading = read.read_to_end(&mut answer);
        tokio::time::timeout(Duration::from_secs(3600), reading)
            .await
            .expect("every connection ends")
            .expect("memory can be read");
        connection.await.expect("a connection does not panic");
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "no HTTP");
    });
}

fn server(harmony: bool) -> Arc<Server> {
    // With tools on, text from the request and the model is parsed as arguments.
    let allowed = ["echo", "upper"].map(str::to_owned).to_vec();
    let tools = Settings { on: true, allowed, ..Settings::default() };
    let engine = scripted::Scripted::new(2, 4);
    let engine = Arc::new(if harmony { engine.harmony() } else { engine });
    let loaded = LoadedModel::new("tiny".to_owned(), engine, ModelOptions::default());
    let loaded = Arc::new(loaded.expect("the template is ours"));
    let (sender, standing) = watch::channel(LoadState::Ready(loaded));
    drop(sender);
    Server::new(Parts {
        limits: Limits::default(),
        model: "tiny".to_owned(),
        file: None,
        settings: Vec::new(),
        configured: String::new(),
        context_tokens_set: None,
        standing,
        tools: Tools::new(tools).expect("they are built in"),
        forced_calls: true,
        metrics: true,
        tokens_noted: 4,
        token: None,
        address: None,
        log: Log::none(),
    })
    .expect("random numbers")
}
