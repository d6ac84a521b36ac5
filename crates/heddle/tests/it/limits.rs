//! Limits of turns and of runs, what goes on after them, and readers that are slow.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use heddle::error::{ErrorKind, Limit, LimitKind};
use heddle::events::{Event, ItemBody};
use heddle::model::{
    AnswerPart, AnswerStream, Completion, Model, Request, SampleFuture, StreamEvent,
};
use heddle::tools::tool_fn;
use heddle::turn::RUN_TURNS_MAX;
use heddle::{Error, RunLimits, SandboxMode, Thread, ThreadSpec, TurnLimits, Usage};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scripted::{Lab, call, message};

/// Two calls, one after the other, and an answer. Answer number `n` costs 10 tokens and `n`.
fn steps() -> Vec<Vec<Value>> {
    vec![vec![call("a")], vec![call("b")], vec![message("done")]]
}

async fn open(lab: &Lab, spec: ThreadSpec, answers: Vec<Vec<Value>>) -> Thread {
    lab.heddle.start(lab.spec(spec, answers)).await.unwrap()
}

#[track_caller]
fn check_limit(error: &Error, kind: LimitKind, value: u64) {
    assert_eq!(error.kind(), ErrorKind::Limit, "{error:?}");
    assert_eq!(error.limit(), Some(Limit { kind, value }), "{error:?}");
    assert!(error.to_string().contains("goes on from"), "{error}");
    assert!(!error.is_retryable());
}

/// Returns the outputs of calls in the last request.
fn outputs(lab: &Lab) -> Vec<String> {
    let requests = lab.requests.lock().unwrap();
    let items = requests.last().unwrap()["input"].as_array().unwrap().clone();
    let outputs = items.iter().filter_map(|item| item["output"].as_str().map(str::to_owned));
    outputs.collect()
}

#[tokio::test]
async fn a_turn_ends_at_each_limit_and_the_next_goes_on() {
    let none = TurnLimits::new();
    for (limits, kind, value, requests, made) in [
        (none.calls(1), LimitKind::Calls, 1, 2, vec!["made a", "not run:"]),
        (none.calls(0), LimitKind::Calls, 0, 1, vec!["not run:"]),
        (none.requests(1), LimitKind::Requests, 1, 1, vec!["made a"]),
        (none.requests(2), LimitKind::Requests, 2, 2, vec!["made a", "made b"]),
        (none.tokens(11), LimitKind::Tokens, 11, 1, vec!["made a"]),
        (none.tokens(12), LimitKind::Tokens, 12, 2, vec!["made a", "made b"]),
        // Whichever is reached first.
        (none.tokens(12).calls(1), LimitKind::Calls, 1, 2, vec!["made a", "not run:"]),
    ] {
        let what = format!("{limits:?}");
        // Those of a turn count more than those of its thread.
        for of_turn in [true, false] {
            let lab = Lab::new();
            let spec = ThreadSpec::new();
            let spec = if of_turn { spec.limits(none.calls(9)) } else { spec.limits(limits) };
            let thread = open(&lab, spec, steps()).await;
            let turn = thread.turn("go");
            let turn = if of_turn { turn.limits(limits) } else { turn };
            let error = turn.run().await.expect_err(&what);
            check_limit(&error, kind, value);
            assert_eq!(lab.requests.lock().unwrap().len(), requests, "{what}");
            // An answer that is cut short does not say what it cost.
            let whole = requests as u64 - u64::from(kind == LimitKind::Calls);
            let used = error.so_far().unwrap().usage.input_tokens;
            assert_eq!(used, 10 * whole, "{what}");
            // The model has not seen these outputs yet.
            thread.turn("on").limits(none.calls(9).requests(9).tokens(999)).run().await.unwrap();
            let on = &lab.requests.lock().unwrap()[requests]["input"].to_string();
            assert!(made.iter().all(|text| on.contains(text)), "{what}: {on}");
        }
    }
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// A tool that never returns.
fn hang() -> impl heddle::tools::Tool {
    tool_fn("hang", "Waits.", |_: Nothing, _| async { pending::<String>().await })
}

fn hanging(id: &str) -> Value {
    json!({"type": "function_call", "name": "hang", "call_id": id, "arguments": "{}"})
}

#[tokio::test(start_paused = true)]
async fn time_ends_a_turn_and_what_was_done_is_forwarded() {
    let lab = Lab::new();
    let answers = vec![vec![call("a"), hanging("b")], vec![message("on")]];
    let thread = open(&lab, ThreadSpec::new().tool(hang()), answers).await;
    let time = Duration::from_millis(90_500);
    let began = Instant::now();
    let error = thread.turn("go").limits(TurnLimits::new().time(time)).run().await.unwrap_err();
    check_limit(&error, LimitKind::Time, 90_500);
    assert!(error.to_string().contains("90.5 s"), "{error}");
    assert!(began.elapsed() >= time && began.elapsed() < time + Duration::from_secs(1));
    let done: Vec<_> = error.so_far().unwrap().tool_times.iter().map(|it| &*it.name).collect();
    assert_eq!(done, ["step"]);
    thread.turn("on").run().await.unwrap();
    let outputs = outputs(&lab);
    assert_eq!(outputs[0], "made a");
    assert!(outputs[1].starts_with("stopped: the turn reached its limit of 90.5 s"), "{outputs:?}");
}

#[tokio::test]
async fn outputs_before_an_interruption_are_forwarded() {
    let lab = Lab::new();
    let answers = vec![vec![call("a"), hanging("b")], vec![message("on")]];
    let thread = open(&lab, ThreadSpec::new().tool(hang()), answers).await;
    let mut turn = thread.turn("go");
    let handle = turn.handle();
    while let Some(event) = turn.next().await {
        if let Event::ItemCompleted(item) = &event
            && let ItemBody::ToolCall(_) = item.body
        {
            handle.interrupt();
        }
    }
    assert_eq!(turn.result().unwrap_err().kind(), ErrorKind::Interrupted);
    thread.turn("on").run().await.unwrap();
    assert_eq!(outputs(&lab), ["made a", "aborted by user"]);
}

#[tokio::test]
async fn a_run_goes_on_until_nothing_is_left_to_do() {
    let lab = Lab::new();
    let thread = open(&lab, ThreadSpec::new(), steps()).await;
    // Each turn has one request only, so the outputs of its calls are for the next.
    let run = thread.run("go").turn_limits(TurnLimits::new().requests(1)).await.unwrap();
    assert_eq!((run.turns.len(), run.calls, run.final_response()), (3, 2, Some("done")));
    assert_eq!(run.usage, Usage { input_tokens: 30, output_tokens: 6, ..Usage::default() });
    assert_eq!(outputs(&lab), ["made a", "made b"]);
    let turns: u64 = run.turns.iter().map(|turn| turn.usage.output_tokens).sum();
    assert_eq!(turns, run.usage.output_tokens);
    // Without limits of its turns, one turn does it all; answers have follow-ups.
    let mut left = vec!["fourth", "third"];
    let run = thread.run("second").follow_up(move |_| left.pop().map(Into::into));
    let run = run.await.unwrap();
    assert_eq!(run.turns.len(), 3);
    let last = lab.requests.lock().unwrap().last().unwrap()["input"].to_string();
    for said in ["go", "Go on.", "second", "third", "fourth"] {
        assert!(last.contains(said), "{said}: {last}");
    }
}

#[tokio::test]
async fn a_run_ends_at_each_of_its_limits() {
    let none = RunLimits::new();
    let each = TurnLimits::new().requests(1);
    for (limits, kind, value, turns) in [
        (none.turns(2), LimitKind::Turns, 2, 2),
        (none.turns(0), LimitKind::Turns, 0, 0),
        (none, LimitKind::Turns, RUN_TURNS_MAX.into(), RUN_TURNS_MAX as usize),
        (none.calls(1), LimitKind::Calls, 1, 2),
        (none.tokens(11), LimitKind::Tokens, 11, 1),
        (none.tokens(12), LimitKind::Tokens, 12, 2),
        (none.tokens(0), LimitKind::Tokens, 0, 0),
        (none.time(Duration::ZERO), LimitKind::Time, 0, 0),
    ] {
        let lab = Lab::new();
        let thread = open(&lab, ThreadSpec::new(), steps()).await;
        let run = thread.run("go").limits(limits).turn_limits(each);
        let error = run.follow_up(|_| Some("more".into())).await.unwrap_err();
        check_limit(&error, kind, value);
        assert_eq!(error.turn_id().is_some(), turns > 0, "{limits:?}");
        assert_eq!(error.thread_id(), thread.id());
        let run = error.run().unwrap();
        assert_eq!(run.turns.len(), turns, "{limits:?}");
        let whole = turns as u64 - u64::from(kind == LimitKind::Calls);
        assert_eq!(run.usage.input_tokens, 10 * whole, "{limits:?}");
        assert_eq!(lab.requests.lock().unwrap().len(), turns, "{limits:?}");
    }
    // A turn that does nothing is not followed by another.
    let lab = Lab::new();
    let thread = open(&lab, ThreadSpec::new(), steps()).await;
    let error = thread.run("go").turn_limits(each.requests(0)).await.unwrap_err();
    check_limit(&error, LimitKind::Requests, 0);
    assert_eq!(error.run().unwrap().turns.len(), 1);
    // What is left for a turn ends it in the middle.
    let lab = Lab::new();
    let thread = open(&lab, ThreadSpec::new(), steps()).await;
    let error = thread.run("go").limits(none.tokens(12)).await.unwrap_err();
    check_limit(&error, LimitKind::Tokens, 12);
    assert_eq!(error.run().unwrap().turns.len(), 1);
    assert_eq!(lab.requests.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_run_has_its_time() {
    let lab = Lab::new();
    let tick = Duration::from_secs(60);
    let spec = lab.spec_with(ThreadSpec::new(), steps(), tick);
    let thread = lab.heddle.start(spec).await.unwrap();
    let limits = RunLimits::new().time(Duration::from_secs(90));
    let run = thread.run("go").limits(limits).turn_limits(TurnLimits::new().requests(1));
    let began = Instant::now();
    let error = run.await.unwrap_err();
    check_limit(&error, LimitKind::Time, 90_000);
    assert!(began.elapsed() < Duration::from_secs(91), "{:?}", began.elapsed());
    assert_eq!(error.run().unwrap().turns.len(), 2);
    assert_eq!(error.run().unwrap().duration.as_secs(), 90);
}

#[tokio::test]
async fn a_run_can_be_interrupted_and_fails_with_its_turns() {
    let lab = Lab::new();
    let answers = vec![vec![call("a")], vec![hanging("b")]];
    let thread = open(&lab, ThreadSpec::new().tool(hang()), answers).await;
    let mut run = thread.run("go").turn_limits(TurnLimits::new().requests(1));
    let handle = run.handle();
    let mut began = 0;
    while let Some(event) = run.next().await {
        began += usize::from(matches!(event, Event::TurnStarted { .. }));
        if began == 2 {
            handle.interrupt();
        }
    }
    let error = run.result().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert_eq!(error.run().unwrap().turns.len(), 2);
    // One that was not polled has nothing to say.
    assert_eq!(thread.run("never").result().unwrap_err().kind(), ErrorKind::NotOver);
    // Between two turns, too.
    let run = thread.run("go");
    let handle = run.handle();
    let run = run.follow_up(move |_| {
        handle.interrupt();
        Some("more".into())
    });
    let error = run.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert_eq!(error.run().unwrap().final_response(), Some("done"));
}

/// A model that has all of its answer at once, and counts how much of it was taken.
struct Flood {
    parts: usize,
    taken: Arc<AtomicUsize>,
}

impl Model for Flood {
    fn sample(&self, _: &Request<'_>) -> SampleFuture<'_> {
        let item = serde_json::from_value(message("")).unwrap();
        let deltas = (0..self.parts).map(|number| StreamEvent::TextDelta(format!("{number} ")));
        let ends = [
            StreamEvent::ItemDone(serde_json::from_value(message("all of it")).unwrap()),
            StreamEvent::Completed(Completion::default()),
        ];
        let events = [StreamEvent::Created, StreamEvent::ItemAdded(item)];
        let events: Vec<_> = events.into_iter().chain(deltas).chain(ends).collect();
        let taken = Arc::clone(&self.taken);
        let answer = stream::iter(events).map(move |event| {
            taken.fetch_add(1, Ordering::SeqCst);
            Ok(AnswerPart::from(event))
        });
        Box::pin(async { Ok(Box::pin(answer) as AnswerStream) })
    }
}

/// How far a model may be ahead of whoever reads the events.
const AHEAD_MAX: usize = 400;

#[tokio::test(start_paused = true)]
async fn a_slow_reader_slows_the_model_and_loses_nothing() {
    const PARTS: usize = 3_000;
    let lab = Lab::new();
    let taken = Arc::<AtomicUsize>::default();
    let model = Flood { parts: PARTS, taken: Arc::clone(&taken) };
    let spec = ThreadSpec::new().sandbox(SandboxMode::DangerFullAccess).backend(model);
    let thread = lab.heddle.start(spec).await.unwrap();
    let mut turn = thread.turn("go");
    let (mut read, mut text, began) = (0, String::new(), Instant::now());
    while let Some(event) = turn.next().await {
        if let Event::Delta { text: part, .. } = event {
            text.push_str(&part);
        }
        read += 1;
        let ahead = taken.load(Ordering::SeqCst).saturating_sub(read);
        assert!(ahead <= AHEAD_MAX, "{ahead} parts were taken, and nobody has read them");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(began.elapsed() >= Duration::from_secs(PARTS as u64));
    let want: String = (0..PARTS).map(|number| format!("{number} ")).collect();
    assert_eq!(text, want);
    assert_eq!(turn.result().unwrap().final_response.as_deref(), Some("all of it"));
    // A quick one does not wait for anything.
    let quick = Arc::new(AtomicBool::new(false));
    thread.turn("again").run().await.map(|_| quick.store(true, Ordering::SeqCst)).unwrap();
    assert!(quick.load(Ordering::SeqCst));
}
