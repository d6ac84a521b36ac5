//! A model in the process that answers from a script and yields to the executor before each event.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::stream;
use heddle::model::{
    AnswerPart, AnswerStream, Completion, Model, Request, ResponseItem, SampleFuture, StreamEvent,
};
use heddle::tools::{Tool, ToolContext, ToolFuture, ToolSpec};
use heddle::{Builder, Heddle, SandboxMode, ThreadSpec, Usage};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A home, a working directory, and the requests that the model got.
pub(crate) struct Lab {
    pub(crate) root: TempDir,
    pub(crate) heddle: Heddle,
    pub(crate) requests: Arc<Mutex<Vec<Value>>>,
    pub(crate) runs: Arc<Mutex<Vec<String>>>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let root = TempDir::new().unwrap();
        std::fs::create_dir_all(root.path().join("work")).unwrap();
        let heddle = builder(&root).build().unwrap();
        Self { root, heddle, requests: Arc::default(), runs: Arc::default() }
    }

    /// Creates a [`Heddle`] as another process would.
    pub(crate) fn another(&self) -> Heddle {
        builder(&self.root).build().unwrap()
    }

    pub(crate) fn builder(&self) -> Builder {
        builder(&self.root)
    }

    /// Starts a thread whose model gives these answers, each a list of items, and `done` after the last one.
    pub(crate) fn spec(&self, spec: ThreadSpec, answers: Vec<Vec<Value>>) -> ThreadSpec {
        self.spec_with(spec, answers, Duration::ZERO)
    }

    /// Does the same, with a slow tool.
    pub(crate) fn spec_with(
        &self,
        spec: ThreadSpec,
        answers: Vec<Vec<Value>>,
        tick: Duration,
    ) -> ThreadSpec {
        let model = Scripted {
            answers: Mutex::new(answers.into()),
            requests: Arc::clone(&self.requests),
            samples: AtomicUsize::new(0),
        };
        let runs = Arc::clone(&self.runs);
        spec.sandbox(SandboxMode::DangerFullAccess).backend(model).tool(Step { runs, tick })
    }
}

fn builder(root: &TempDir) -> Builder {
    Heddle::builder().home(root.path().join("home")).directory(root.path().join("work"))
}

pub(crate) fn message(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

pub(crate) fn call(id: &str) -> Value {
    json!({"type": "function_call", "name": "step", "call_id": id, "arguments": "{}"})
}

struct Scripted {
    answers: Mutex<VecDeque<Vec<Value>>>,
    requests: Arc<Mutex<Vec<Value>>>,
    samples: AtomicUsize,
}

impl Model for Scripted {
    fn sample(&self, request: &Request<'_>) -> SampleFuture<'_> {
        let request = serde_json::to_value(request).unwrap();
        self.requests.lock().unwrap().push(request);
        let number = self.samples.fetch_add(1, Ordering::SeqCst);
        let items = self.answers.lock().unwrap().pop_front();
        let items = items.unwrap_or_else(|| vec![message("done")]);
        let mut events = VecDeque::from([StreamEvent::Created]);
        for item in items {
            if let Some(text) = item["content"][0]["text"].as_str() {
                events.push_back(StreamEvent::ItemAdded(known(&item)));
                events.push_back(StreamEvent::TextDelta(text.to_owned()));
            }
            events.push_back(StreamEvent::ItemDone(known(&item)));
        }
        let usage =
            Usage { input_tokens: 10, output_tokens: number as u64 + 1, ..Usage::default() };
        let completion = Completion { usage, total_tokens: 20, end_turn: None };
        events.push_back(StreamEvent::Completed(completion));
        Box::pin(async move {
            breathe().await;
            let answer = stream::unfold(events, |mut events| async move {
                breathe().await;
                let event = events.pop_front()?;
                Some((Ok(AnswerPart::from(event)), events))
            });
            Ok(Box::pin(answer) as AnswerStream)
        })
    }
}

fn known(item: &Value) -> ResponseItem {
    serde_json::from_value(item.clone()).unwrap()
}

/// Yields to the executor once.
pub(crate) async fn breathe() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A tool that records that it ran.
pub(crate) struct Step {
    pub(crate) runs: Arc<Mutex<Vec<String>>>,
    pub(crate) tick: Duration,
}

impl Tool for Step {
    fn spec(&self) -> ToolSpec {
        let schema = json!({"type": "object", "properties": {"fast": {"type": "boolean"}}});
        ToolSpec::new("step", "Makes a step.", schema).parallel()
    }

    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            let id = context.call_id().to_owned();
            self.runs.lock().unwrap().push(id.clone());
            breathe().await;
            if !self.tick.is_zero() {
                tokio::time::sleep(self.tick).await;
            }
            format!("made {id}").into()
        })
    }
}
