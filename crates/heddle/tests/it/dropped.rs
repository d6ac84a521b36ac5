//! A host may drop a turn at any point: nothing is lost, nothing runs twice, and the thread can continue.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_util::Stream as _;
use heddle::events::Event;
use heddle::{ErrorKind, Notice, ThreadSpec};
use proptest::prelude::*;
use serde_json::Value;
use testkit::Strict;

use crate::scripted::{Lab, call, message};

/// Polls a turn a number of times and drops it, then continues in the same thread and after resuming it.
fn check(polls: usize, answers: Vec<Vec<Value>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lab = Lab::new();
    runtime.block_on(async {
        let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), answers)).await.unwrap();
        let mut turn = thread.turn("first");
        let mut context = Context::from_waker(Waker::noop());
        let mut ended = false;
        for _ in 0..polls {
            match Pin::new(&mut turn).poll_next(&mut context) {
                Poll::Ready(Some(event)) => ended |= matches!(event, Event::TurnCompleted { .. }),
                Poll::Ready(None) => break,
                // Syncs are made by other threads.
                Poll::Pending => tokio::task::yield_now().await,
            }
        }
        drop(turn);
        let result = thread.turn("second").run().await.unwrap();
        assert_eq!(result.final_response.as_deref().map(|text| !text.is_empty()), Some(true));
        thread.close().await;

        let mut runs = lab.runs.lock().unwrap().clone();
        runs.sort();
        let count = runs.len();
        runs.dedup();
        assert_eq!(runs.len(), count, "a call ran twice");

        // From the disk it is the same thread, and nobody has to repair it.
        let again = lab.another();
        let spec = lab.spec(ThreadSpec::resume(thread.id().unwrap()), Vec::new());
        let thread = again.start(spec).await.unwrap();
        let repaired =
            |notice: &&Notice| matches!(notice, Notice::HistoryRepaired(_) | Notice::Thread(_));
        assert_eq!(thread.notices().iter().find(repaired), None);
        thread.turn("third").run().await.unwrap();
        thread.close().await;
        let requests = lab.requests.lock().unwrap();
        for request in requests.iter() {
            Strict::default().check(request).unwrap();
        }
        let said = |text: &str| {
            let last = requests.last().unwrap()["input"].to_string();
            last.matches(&format!("\"{text}\"")).count()
        };
        // What was said before the turn was dropped stays said, if the turn had begun at all.
        assert_eq!((said("second"), said("third")), (1, 1));
        assert_eq!(said("first"), usize::from(polls > 0), "after {polls} polls, ended: {ended}");
    });
}

#[test]
fn a_turn_that_is_never_polled_does_nothing() {
    check(0, vec![vec![call("a")]]);
}

#[test]
fn every_point_of_a_turn_with_calls() {
    for polls in 0..60 {
        check(polls, vec![vec![message("I will"), call("a"), call("b")], vec![call("c")]]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_point_of_any_turn(
        polls in 0_usize..120,
        shape in prop::collection::vec((any::<bool>(), 0_usize..4), 1..5),
    ) {
        let mut number = 0;
        let answers = shape.iter().map(|(says, calls)| {
            let mut items: Vec<_> = says.then(|| message("so")).into_iter().collect();
            items.extend((0..*calls).map(|_| {
                number += 1;
                call(&format!("c{number}"))
            }));
            if items.is_empty() { vec![message("end")] } else { items }
        });
        check(polls, answers.collect());
    }
}

/// A caller's timeout drops the turn.
#[tokio::test]
async fn a_timeout_leaves_a_thread_that_works() {
    let lab = Lab::new();
    let hour = std::time::Duration::from_secs(3600);
    let spec = lab.spec_with(ThreadSpec::new(), vec![vec![call("slow")]], hour);
    let thread = lab.heddle.start(spec).await.unwrap();
    let limit = std::time::Duration::from_millis(200);
    assert!(tokio::time::timeout(limit, thread.turn("first").run()).await.is_err());
    let result = thread.turn("second").run().await.unwrap();
    assert_eq!(result.final_response.as_deref(), Some("done"));
    let log = std::fs::read_to_string(thread.facts().unwrap().log_path.as_ref().unwrap()).unwrap();
    assert_eq!(log.matches("\"turn_aborted\"").count(), 1);
    assert_eq!(log.matches("\"task_complete\"").count(), 1);
}

#[tokio::test]
async fn one_turn_at_a_time() {
    use futures_util::StreamExt as _;
    let lab = Lab::new();
    let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), Vec::new())).await.unwrap();
    let mut turn = thread.turn("first");
    assert!(matches!(turn.next().await, Some(Event::TurnStarted { .. })));
    let busy = thread.turn("second").run().await;
    assert_eq!(busy.unwrap_err().kind(), ErrorKind::Busy);
    let unpolled = thread.turn("never polled").result();
    assert_eq!(unpolled.unwrap_err().kind(), ErrorKind::NotOver);
    while turn.next().await.is_some() {}
    assert!(turn.result().is_ok());
    thread.turn("third").run().await.unwrap();
    // After its end nothing would be kept, so nothing is run.
    thread.close().await;
    let closed = thread.turn("fourth").run().await;
    assert_eq!(closed.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(lab.requests.lock().unwrap().len(), 2);
}

/// Dropping a thread kills its commands, whether it was closed or not.
#[tokio::test]
async fn dropping_a_thread_kills_its_commands() {
    let lab = Lab::new();
    let arguments = r#"{"cmd": "echo $$ > pid; exec sleep 1000", "yield_time_ms": 250}"#;
    let command = serde_json::json!({
        "type": "function_call", "name": "exec_command", "call_id": "x", "arguments": arguments,
    });
    let spec = lab.spec(ThreadSpec::new(), vec![vec![command]]);
    let thread = lab.heddle.start(spec).await.unwrap();
    thread.turn("go").run().await.unwrap();
    let pid = std::fs::read_to_string(lab.root.path().join("work/pid")).unwrap();
    let process = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
    assert!(process.exists(), "the turn is over, and the command goes on");
    drop(thread);
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while process.exists() {
        assert!(tokio::time::Instant::now() < deadline, "{} is still there", process.display());
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
